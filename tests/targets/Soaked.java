package targets;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/**
 * The target for soaks: calls natives at high rates until it is told to stop or ends, however it ends.
 *
 * <p>The natives count their calls themselves, in a file: it is there when the process is not any more.
 */
public final class Soaked {
    private static final long PAUSE_NS = 50_000_000;
    private static final List<Thread> LOAD = new ArrayList<>();
    private static volatile boolean loading;

    /** Where the natives count. */
    static native void countIn(String file);

    /** Becomes another program. */
    static native void become();

    static native void plain();

    static native int sum(int a, int b);

    static native double mixed(long a, double b, int c, float d);

    static native Object same(Object o);

    static native long many(long a, long b, long c, long d, long e, long f, long g, long h);

    native int own(int a);

    private Soaked() {}

    /** {@code FILE LIBRARY...}: where the natives count, and what they are in. */
    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            System.load(args[i]);
        }
        countIn(args[0]);
        Class.forName("targets.Many");
        Target.serve(Map.of(
                "each", (a, out) -> each(Integer.parseInt(a[0]), Integer.parseInt(a[1])),
                "load", (a, out) -> load(Integer.parseInt(a[0]), Integer.parseInt(a[1])),
                "rest", (a, out) -> rest(),
                "become", (a, out) -> become()));
    }

    /** Calls the first natives of Many some times each. */
    private static void each(int natives, int times) throws ReflectiveOperationException {
        for (int number = 0; number < natives; number++) {
            Method method = Many.class.getDeclaredMethod("m" + number);
            for (int i = 0; i < times; i++) {
                method.invoke(null);
            }
        }
    }

    /** {@code THREADS BURST}: starts threads, each of which calls each native so many times, has a rest, and so on. */
    private static void load(int threads, int burst) {
        loading = true;
        for (int t = 0; t < threads; t++) {
            Thread thread = new Thread(() -> {
                Soaked soaked = new Soaked();
                while (loading) {
                    soaked.burst(burst);
                    LockSupport.parkNanos(PAUSE_NS);
                }
            }, "caller-" + t);
            thread.start();
            LOAD.add(thread);
        }
    }

    private static void rest() throws InterruptedException {
        loading = false;
        for (Thread thread : LOAD) {
            thread.join();
        }
        LOAD.clear();
    }

    /** The methods by turns, as programs call them. */
    private void burst(int calls) {
        for (int i = 0; i < calls && loading; i++) {
            plain();
            must(sum(i, 7) == i + 7);
            must(mixed(i, 0.5, 2, 0.25f) == i + 2.75);
            must(same(this) == this);
            must(many(i, 2, 3, 4, 5, 6, 7, 8) == i + 35L);
            must(own(i) == i + 1);
        }
    }

    private static void must(boolean right) {
        if (!right) {
            System.err.println("a native gave a wrong result");
            Runtime.getRuntime().halt(3);
        }
    }
}
