package targets;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Says how long a call of a native takes, and calls thousands of them. */
public final class Bench {
    private Bench() {}

    public static void main(String[] args) throws Exception {
        for (String library : args) {
            System.load(library);
        }
        Target.serve(Map.of(
                "push", (a, out) -> out.println("took " + push(Integer.parseInt(a[0]))),
                "step", (a, out) -> out.println("took " + step(Integer.parseInt(a[0]))),
                "mov", (a, out) -> out.println("took " + mov(Integer.parseInt(a[0]))),
                "each", (a, out) -> out.println("called " + each(Integer.parseInt(a[0]), Integer.parseInt(a[1]))),
                "thousands", (a, out) -> out.println("called " + thousands(Integer.parseInt(a[0]))),
                "many", (a, out) -> out.println("called " + many(Double.parseDouble(a[0])))));
    }

    private static long push(int calls) {
        long began = System.nanoTime();
        for (int i = 0; i < calls; i++) {
            Entries.pushFirst();
        }
        return System.nanoTime() - began;
    }

    private static long step(int calls) {
        long began = System.nanoTime();
        for (int i = 0; i < calls; i++) {
            Entries.movFirst();
        }
        return System.nanoTime() - began;
    }

    private static long mov(int calls) {
        long began = System.nanoTime();
        for (int i = 0; i < calls; i++) {
            Entries.movThenPush();
        }
        return System.nanoTime() - began;
    }

    /** Calls the first natives of Many some times each. */
    private static long each(int natives, int times) throws ReflectiveOperationException {
        for (int number = 0; number < natives; number++) {
            Method method = Many.class.getDeclaredMethod("m" + number);
            for (int i = 0; i < times; i++) {
                method.invoke(null);
            }
        }
        return (long) natives * times;
    }

    /** Calls every native of Thousands some times. */
    private static long thousands(int times) throws ReflectiveOperationException {
        long calls = 0;
        for (Method method : Thousands.class.getDeclaredMethods()) {
            for (int i = 0; i < times; i++) {
                method.invoke(null);
                calls++;
            }
        }
        return calls;
    }

    /** Calls every native of Many again and again for some seconds, with a rest after each round. */
    private static long many(double seconds) throws ReflectiveOperationException, InterruptedException {
        List<Method> natives = new ArrayList<>();
        for (Method method : Many.class.getDeclaredMethods()) {
            natives.add(method);
        }
        long calls = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        do {
            for (Method method : natives) {
                method.invoke(null);
                calls++;
            }
            Thread.sleep(100);
        } while (System.nanoTime() < end);
        return calls;
    }
}
