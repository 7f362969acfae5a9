package targets;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/**
 * The target for the overhead governor: does work of its own, calls natives at rates that can be changed, counts its
 * calls, and measures what they cost.
 *
 * <p>The worker takes turns, every few milliseconds, at calling {@code Many.m0}, which is traced, and its twin
 * {@code Many.m1}, which is not. What a turn costs is CPU time of the thread, so the two can be compared on a machine
 * that is busy with other things.
 */
public final class Governed {
    /** Iterations of a turn: about two milliseconds. */
    private static final int TURN = 4_000;

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** The worker makes a call in one of so many iterations. */
    private static volatile int every = 1;
    /** Calls of {@code Many.m2} per second. */
    private static volatile int rare;
    /** How many it makes at a time. */
    private static volatile int burst = 1;
    /** Whether the storm blows. */
    private static volatile boolean storm;

    private static volatile long rareCalls;
    private static volatile boolean rareRests = true;
    private static volatile long sink;

    /** Calls of m0, iterations and CPU time of its turns, iterations and CPU time of its twin's. */
    private static final long[] SUMS = new long[5];

    private Governed() {}

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        start("worker", Governed::work);
        start("rare", Governed::callRarely);
        start("storm", Governed::blow);
        Target.serve(Map.of(
                "burst", (a, out) -> burst = Integer.parseInt(a[0]),
                "every", (a, out) -> every = Integer.parseInt(a[0]),
                "measure", (a, out) -> out.println("measured " + measure(Double.parseDouble(a[0]))),
                "rare", (a, out) -> out.println("made " + rare(Integer.parseInt(a[0]))),
                "storm", (a, out) -> storm = a[0].equals("on")));
    }

    private static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void work() {
        while (true) {
            int distance = every;
            long began = THREADS.getCurrentThreadCpuTime();
            long calls = hot(distance);
            long middle = THREADS.getCurrentThreadCpuTime();
            twin(distance);
            long end = THREADS.getCurrentThreadCpuTime();
            synchronized (SUMS) {
                SUMS[0] += calls;
                SUMS[1] += TURN;
                SUMS[2] += middle - began;
                SUMS[3] += TURN;
                SUMS[4] += end - middle;
            }
        }
    }

    private static long hot(int distance) {
        long calls = 0;
        for (int i = 0; i < TURN; i++) {
            own();
            if (i % distance == 0) {
                Many.m0();
                calls++;
            }
        }
        return calls;
    }

    private static long twin(int distance) {
        long calls = 0;
        for (int i = 0; i < TURN; i++) {
            own();
            if (i % distance == 0) {
                Many.m1();
                calls++;
            }
        }
        return calls;
    }

    /** Work of the JVM's own, some hundred nanoseconds. */
    private static void own() {
        long x = sink | 1;
        for (int i = 0; i < 150; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        sink = x;
    }

    private static String measure(double seconds) throws InterruptedException {
        synchronized (SUMS) {
            java.util.Arrays.fill(SUMS, 0);
        }
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1e3));
        synchronized (SUMS) {
            long wall = System.nanoTime() - began;
            return SUMS[0] + " " + SUMS[1] + " " + SUMS[2] + " " + SUMS[3] + " " + SUMS[4] + " " + wall;
        }
    }

    private static void callRarely() {
        while (true) {
            int rate = rare;
            rareRests = rate == 0;
            LockSupport.parkNanos(1_000_000_000L / Math.max(rate, 200));
            for (int i = 0; rate > 0 && i < burst; i++) {
                Many.m2();
                rareCalls++;
            }
        }
    }

    /** Sets the rate, and returns the calls so far: all of them if it is 0. */
    private static long rare(int rate) {
        rare = rate;
        while (rate == 0 && !rareRests) {
            Thread.onSpinWait();
        }
        return rareCalls;
    }

    /** Calls several natives as fast as it can, each for some seconds, so that none stays hot and none stays cool. */
    private static void blow() {
        while (true) {
            long until = System.nanoTime() + 2_000_000_000L;
            for (int number = 0; number < 3; number++, until += 2_000_000_000L) {
                while (storm && System.nanoTime() < until) {
                    gust(number);
                }
            }
            LockSupport.parkNanos(1_000_000);
        }
    }

    private static void gust(int number) {
        for (int i = 0; i < 1_000; i++) {
            own();
            if (number == 0) {
                Many.m3();
            } else if (number == 1) {
                Many.m4();
            } else {
                Many.m5();
            }
        }
    }
}
