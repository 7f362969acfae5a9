package targets;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.ThreadMXBean;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntUnaryOperator;

/** Methods that call each other in known numbers, and count that themselves. */
public final class Trees {
    private Trees() {}

    static final AtomicLong ENTRIES = new AtomicLong();
    static final AtomicLong RECURSIONS = new AtomicLong();
    static final AtomicLong THROWN = new AtomicLong();
    static final AtomicLong NATIVES = new AtomicLong();
    static final AtomicLong MADE = new AtomicLong();
    static volatile int sink;

    static final class Failure extends Exception {
        private static final long serialVersionUID = 1;
    }

    static class Base {
        final int value;

        Base(int value) {
            this.value = value;
        }
    }

    static final class Made extends Base {
        Made(int value) {
            super(value > 0 ? value : -value);
            MADE.incrementAndGet();
        }
    }

    /** Makes a lambda: the VM makes a class for it, again in each version of this class. */
    static final class Lambdas {
        static int apply(int seed) {
            IntUnaryOperator operator = value -> Work.leaf(value) + seed;
            return operator.applyAsInt(seed);
        }
    }

    /** What is followed. */
    static final class Work {
        /** One invocation: all that trees can have. */
        static int entry(int seed) throws Failure {
            ENTRIES.incrementAndGet();
            int sum = recursive(seed % 7);
            sum += caught(seed);
            sum += new Made(seed - 3).value;
            sum += locked(seed);
            sum += Lambdas.apply(seed);
            sum += clock();
            if (seed % 10 == 9) {
                level(3);
            }
            return sum;
        }

        static int recursive(int depth) {
            RECURSIONS.incrementAndGet();
            return depth == 0 ? leaf(1) : recursive(depth - 1) + leaf(depth);
        }

        static int leaf(int value) {
            return value + sink;
        }

        static int caught(int seed) {
            try {
                return seed % 3 == 0 ? level(2) : 1;
            } catch (Failure failure) {
                return 2;
            }
        }

        static int level(int more) throws Failure {
            if (more == 0) {
                THROWN.incrementAndGet();
                throw new Failure();
            }
            return level(more - 1);
        }

        static synchronized int locked(int value) {
            sink = value & 1;
            return leaf(value);
        }

        /** Calls a native. */
        static int clock() {
            NATIVES.incrementAndGet();
            return Thread.currentThread() == null ? 1 : Thread.holdsLock(Work.class) ? 2 : 0;
        }
    }

    /** Calls methods in whose place compilers put code of their own. */
    static final class Replaced {
        static final int TIMES = 10;
        private static final String[] TEXTS = {new String("a text"), new String("a text"), "another"};
        private static final byte[] FROM = new byte[64];
        static volatile String text;

        static int replaced(int seed) {
            int sum = 0;
            for (int i = 0; i < TIMES; i++) {
                sum += TEXTS[seed % 3].equals(TEXTS[i % 3]) ? 1 : 0;
                sum += Math.max(i, seed) + Integer.bitCount(seed);
            }
            try {
                text = new StringBuilder("text ").append(seed).toString();
            } catch (IllegalStateException never) {
                text = null;
            }
            byte[] to = new byte[64];
            System.arraycopy(FROM, 0, to, 0, 1 + (seed & 31));
            return sum + to[seed & 31];
        }

        static void rounds(int rounds) {
            for (int round = 0; round < rounds; round++) {
                sink += replaced(round);
            }
        }
    }

    /** Another agent changes its constants. The compiler copies them to whoever names them. */
    static final class Marked {
        static final int FIRST = 0x5eed_0100;
        static final int SECOND = 0x5eed_0200;

        static int first(int value) {
            return FIRST + value;
        }

        static int second(int value) {
            return SECOND + value;
        }
    }

    /** Works for a time, and waits for a time. */
    static final class Waiting {
        private static final long NS = 20_000_000;

        static void both() throws Exception {
            works();
            waits();
        }

        /** Uses that much of the CPU, however long that takes. */
        static void works() {
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            long until = threads.getCurrentThreadCpuTime() + NS;
            while (threads.getCurrentThreadCpuTime() < until) {
                sink++;
            }
        }

        static void waits() throws Exception {
            Thread.sleep(NS / 1_000_000);
        }

        static void rounds(int rounds) throws Exception {
            for (int round = 0; round < rounds; round++) {
                both();
            }
        }
    }

    static void guarded(int seed) {
        try {
            sink = Work.entry(seed);
        } catch (Failure failure) {
            sink = 3;
        }
    }

    static void rounds(int rounds) {
        for (int round = 0; round < rounds; round++) {
            guarded(round);
        }
    }

    private static Thread start(boolean virtual, Runnable work) throws Exception {
        if (!virtual) {
            Thread thread = new Thread(work);
            thread.start();
            return thread;
        }
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
    }

    private static void run(int threads, int rounds, boolean virtual) throws Exception {
        Thread[] all = new Thread[threads];
        // A thread that has ended would leave its ring to the next.
        CountDownLatch done = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            all[i] = start(virtual, () -> {
                for (int round = 0; round < rounds; round++) {
                    guarded(round);
                    if (virtual) {
                        Thread.yield();
                    }
                }
                done.countDown();
                try {
                    done.await();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            });
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    /** Has so many threads work all the time. */
    private static void load(int threads) {
        for (int i = 0; i < threads; i++) {
            Thread working = new Thread(() -> {
                for (int round = 0; ; round++) {
                    guarded(round);
                }
            });
            working.setDaemon(true);
            working.start();
        }
    }

    private static double time(int calls) {
        double best = Double.MAX_VALUE;
        for (int run = 0; run < 5; run++) {
            long start = System.nanoTime();
            timed(calls);
            best = Math.min(best, (System.nanoTime() - start) / (double) calls);
        }
        return best;
    }

    static int timed(int calls) {
        int sum = 0;
        for (int i = 0; i < calls; i++) {
            sum += Work.leaf(i);
        }
        return sum;
    }

    /** What an agent of the usual kind inserts: the clock of Java, and a stack of the thread's. */
    static final class Plain {
        private static final int LEVELS = 1_024;

        private static final class Calls {
            final long[] began = new long[LEVELS];
            final long[] took = new long[LEVELS];
            int depth;
        }

        private static final ThreadLocal<Calls> CALLS = ThreadLocal.withInitial(Calls::new);

        static void enter(int method) {
            Calls calls = CALLS.get();
            calls.began[calls.depth++] = System.nanoTime();
        }

        static void leave(int method) {
            Calls calls = CALLS.get();
            calls.took[method] += System.nanoTime() - calls.began[--calls.depth];
        }

        static int leaf(int value) {
            enter(1);
            int result;
            try {
                result = value + sink;
            } catch (Throwable thrown) {
                leave(1);
                throw thrown;
            }
            leave(1);
            return result;
        }

        static int timed(int calls) {
            int sum = 0;
            for (int i = 0; i < calls; i++) {
                sum += leaf(i);
            }
            return sum;
        }

        static double time(int calls) {
            double best = Double.MAX_VALUE;
            for (int run = 0; run < 5; run++) {
                long start = System.nanoTime();
                sink += timed(calls) & 1;
                best = Math.min(best, (System.nanoTime() - start) / (double) calls);
            }
            return best;
        }
    }

    static double counters(int calls) {
        double best = Double.MAX_VALUE;
        for (int run = 0; run < 5; run++) {
            long start = System.nanoTime();
            long sum = 0;
            for (int i = 0; i < calls; i++) {
                sum += System.nanoTime();
                sum -= System.nanoTime();
            }
            sink += (int) sum;
            best = Math.min(best, (System.nanoTime() - start) / (double) calls);
        }
        return best;
    }

    public static void main(String[] args) throws Exception {
        Callable<?> warm = () -> {
            guarded(9);
            Replaced.rounds(1);
            Waiting.rounds(1);
            new Made(1);
            return null;
        };
        warm.call();
        for (AtomicLong count : new AtomicLong[] {ENTRIES, RECURSIONS, THROWN, NATIVES, MADE}) {
            count.set(0);
        }
        Target.serve(Map.of("run", (a, out) -> {
            run(Integer.parseInt(a[0]), Integer.parseInt(a[1]), a[2].equals("virtual"));
        }, "replaced", (a, out) -> {
            Replaced.rounds(Integer.parseInt(a[0]));
        }, "waiting", (a, out) -> {
            Waiting.rounds(Integer.parseInt(a[0]));
        }, "marked", (a, out) -> {
            int rounds = Integer.parseInt(a[0]);
            for (int round = 1; round < rounds; round++) {
                sink = Marked.first(0) + Marked.second(0);
            }
            out.println(Marked.first(0) - Marked.FIRST + " " + (Marked.second(0) - Marked.SECOND));
        }, "collecting", (a, out) -> {
            Thread collecting = new Thread(() -> {
                while (true) {
                    System.gc();
                }
            });
            collecting.setDaemon(true);
            collecting.start();
        }, "load", (a, out) -> {
            load(Integer.parseInt(a[0]));
        }, "counts", (a, out) -> {
            out.println(ENTRIES + " " + RECURSIONS + " " + THROWN + " " + NATIVES + " " + MADE);
        }, "time", (a, out) -> {
            int calls = Integer.parseInt(a[0]);
            out.println(time(calls) + " " + counters(calls) + " " + Plain.time(calls));
        }, "memory", (a, out) -> {
            System.gc();
            for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
                if (pool.getType() == MemoryType.NON_HEAP) {
                    out.println(pool.getName().replace(' ', '_') + " " + pool.getUsage().getUsed());
                }
            }
        }, "hook", (a, out) -> {
            out.println(Class.forName("java.lang.NprofTree").getName());
        }));
    }
}
