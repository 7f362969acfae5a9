package targets;

import com.sun.security.auth.module.UnixSystem;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** Calls the generated natives and checks every result; and the smallest native, for its cost. */
final class Stubs {
    private static final AtomicLong CHECKED = new AtomicLong();
    private static final AtomicLong WRONG = new AtomicLong();
    private static final List<Thread> LOAD = new ArrayList<>();
    private static volatile boolean loading;

    /** Does nothing. */
    static native void empty();

    /** How many nanoseconds so many pairs of readings of the time stamp counter take. */
    static native long readings(int pairs);

    private interface Starter {
        Thread start(Runnable work) throws ReflectiveOperationException;
    }

    private Stubs() {}

    public static void main(String[] args) throws Exception {
        Target.serve(commands(args[0]));
    }

    /** What can be done with the natives of this library. */
    static Map<String, Target.Command> commands(String library) {
        System.load(library);
        return Map.of(
                "shapes", (a, out) -> shapes(Stubs::platform, Integer.parseInt(a[0]), Integer.parseInt(a[1]), out),
                "virtual", (a, out) -> shapes(Stubs::virtual, Integer.parseInt(a[0]), Integer.parseInt(a[1]), out),
                "load", (a, out) -> load(Integer.parseInt(a[0])),
                "unload", (a, out) -> unload(out),
                "spin", (a, out) -> out.println("took " + spin(Integer.parseInt(a[0]))),
                "spins", (a, out) -> spins(Integer.parseInt(a[0]), Integer.parseInt(a[1]), out),
                "platform", (a, out) -> out.println("user " + new UnixSystem().getUid()),
                "readings", (a, out) -> out.println("took " + readings(Integer.parseInt(a[0]))));
    }

    private static Thread platform(Runnable work) {
        Thread thread = new Thread(work, "caller");
        thread.start();
        return thread;
    }

    /** A virtual thread, where the JVM has them. */
    private static Thread virtual(Runnable work) throws ReflectiveOperationException {
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
    }

    /** {@code THREADS ROUNDS}: each thread calls each native as often; prints how many calls were checked and were wrong. */
    private static void shapes(Starter starter, int threads, int rounds, PrintStream out) throws Exception {
        CHECKED.set(0);
        WRONG.set(0);
        List<Thread> started = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            long seed = 1_000_003L * t;
            started.add(starter.start(() -> {
                for (int round = 0; round < rounds; round++) {
                    round(seed + 257L * round);
                    Thread.yield();
                }
            }));
        }
        for (Thread thread : started) {
            thread.join();
        }
        out.println("checked " + CHECKED + " wrong " + WRONG);
    }

    private static void round(long seed) {
        Generated self = new Generated();
        int wrong = 0;
        for (int number = 0; number < Generated.COUNT; number++) {
            if (!Generated.call(number, self, seed + number)) {
                wrong++;
            }
        }
        CHECKED.addAndGet(Generated.COUNT);
        WRONG.addAndGet(wrong);
    }

    /** Starts threads that call the natives until they are told to stop. */
    private static void load(int threads) {
        CHECKED.set(0);
        WRONG.set(0);
        loading = true;
        for (int t = 0; t < threads; t++) {
            long start = 1_000_003L * t;
            LOAD.add(platform(() -> {
                for (long seed = start; loading; seed++) {
                    round(seed);
                }
            }));
        }
    }

    private static void unload(PrintStream out) throws InterruptedException {
        loading = false;
        for (Thread thread : LOAD) {
            thread.join();
        }
        LOAD.clear();
        out.println("checked " + CHECKED + " wrong " + WRONG);
    }

    private static long spin(int calls) {
        long began = System.nanoTime();
        for (int i = 0; i < calls; i++) {
            empty();
        }
        return System.nanoTime() - began;
    }

    /** {@code THREADS CALLS}: the same from several threads; prints the longest of their times. */
    private static void spins(int threads, int calls, PrintStream out) throws InterruptedException {
        long[] took = new long[threads];
        List<Thread> started = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            int place = t;
            started.add(platform(() -> took[place] = spin(calls)));
        }
        long longest = 0;
        for (int t = 0; t < threads; t++) {
            started.get(t).join();
            longest = Math.max(longest, took[t]);
        }
        out.println("took " + longest);
    }
}
