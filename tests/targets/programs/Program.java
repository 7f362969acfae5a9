package targets;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/** A program under load that keeps a log of itself: how many operations it has done, every few milliseconds. */
final class Program {
    /** What is done again and again, by one thread. */
    interface Work {
        void operate() throws Exception;
    }

    /** Makes the work of one thread. */
    interface Maker {
        Work make() throws Exception;
    }

    /** Operations done. Work that is done elsewhere is counted there. */
    static final LongAdder DONE = new LongAdder();

    private static final long STEP_NS = 10_000_000;

    /** The threads that do the work. */
    private static final List<Thread> WORKERS = new CopyOnWriteArrayList<>();

    /** Time and operations by turns. */
    private static long[] log = new long[2 * 1024];
    private static int logged;

    private Program() {}

    /** Has threads do work of their own for ever, and answers {@code log} with what was logged since the last time. */
    static void run(int threads, Maker maker) throws Exception {
        for (int i = 0; i < threads; i++) {
            Work work = maker.make();
            WORKERS.add(start("worker-" + i, () -> {
                while (true) {
                    work.operate();
                    DONE.increment();
                }
            }));
        }
        serve();
    }

    /** The same without threads of its own. */
    static void serve() throws Exception {
        start("log", () -> {
            for (long next = System.nanoTime();; next += STEP_NS) {
                LockSupport.parkNanos(next - System.nanoTime());
                note();
            }
        });
        Target.serve(Map.of(
                "log", (args, out) -> print(out),
                "progress", (args, out) -> out.println("progress " + workersCpuTime() + " " + DONE.sum())));
    }

    /** CPU time of the threads that do the work, in nanoseconds; 0 where others do it. */
    private static long workersCpuTime() {
        return WORKERS.stream().mapToLong(w -> ManagementFactory.getThreadMXBean().getThreadCpuTime(w.getId())).sum();
    }

    private static Thread start(String name, Work body) {
        Thread thread = new Thread(() -> {
            try {
                body.operate();
            } catch (Exception | LinkageError e) {
                // Nothing that is measured afterwards would mean anything.
                e.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static synchronized void note() {
        if (logged + 2 > log.length) {
            log = Arrays.copyOf(log, 2 * log.length);
        }
        log[logged++] = System.nanoTime();
        log[logged++] = DONE.sum();
    }

    private static synchronized void print(PrintStream out) {
        for (int i = 0; i < logged; i += 2) {
            out.println("at " + log[i] + " " + log[i + 1]);
        }
        logged = 0;
    }
}
