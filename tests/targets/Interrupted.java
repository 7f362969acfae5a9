package targets;

import java.io.PrintStream;
import java.util.Arrays;
import java.util.Map;
import java.util.function.LongUnaryOperator;
import java.util.zip.CRC32;

/**
 * Threads that are never still, to be stopped anywhere. Which method calls which is the same for ever, so that every
 * stack can be judged: apart from what the JDK does at its inner end, it is a path of the calls written here.
 *
 * <p>{@code run spin N} starts N such threads and answers {@code thread NAME} for each that has begun.
 */
final class Interrupted {
    private static volatile long sink;

    private Interrupted() {}

    public static void main(String[] args) throws Exception {
        Target.serve(Map.of("spin", Interrupted::spin));
    }

    private static void spin(String[] args, PrintStream out) {
        for (int i = 0; i < Integer.parseInt(args[0]); i++) {
            Spin spin = new Spin(i + 1);
            Thread thread = new Thread(spin, "spin-" + i);
            thread.setDaemon(true);
            thread.start();
            // Before it has begun, the system does not know its name.
            while (!spin.hasBegun) {
                Thread.yield();
            }
            out.println("thread " + thread.getName());
        }
    }

    /** A kind of work that leads to stacks of its own. */
    interface Shape {
        long run(long seed);
    }

    static final class Spin implements Runnable {
        private final Shape[] shapes = {
            new Chain(), new Tables(), new Stubs(), new Lambdas(), new Recursion(), new Arguments(), new Locks(),
            new Throws(), new Natives(), new Maths(),
        };
        private long seed;
        // No latch: a call of that could be what a thread is stopped in.
        private volatile boolean hasBegun;

        Spin(long seed) {
            this.seed = seed;
        }

        @Override
        public void run() {
            hasBegun = true;
            for (;;) {
                sink = turn();
            }
        }

        private long turn() {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            Shape shape = shapes[(int) ((seed >>> 33) % shapes.length)];
            long sum = seed;
            for (int i = 0; i < 20; i++) {
                sum += shape.run(sum);
            }
            return sum;
        }
    }

    static final class Chain implements Shape {
        @Override
        public long run(long seed) {
            return one(seed) + one(seed + 1);
        }

        private static long one(long x) {
            return two(x * 31) ^ x;
        }

        private static long two(long x) {
            long sum = x;
            for (int i = 0; i < 3; i++) {
                sum += three(sum + i);
            }
            return sum;
        }

        private static long three(long x) {
            return four(x) + (x >>> 7);
        }

        private static long four(long x) {
            return x % 2 == 0 ? x / 3 : x * 7 + 1;
        }
    }

    static final class Tables implements Shape {
        interface Form {
            long area(long x);
        }

        abstract static class Solid implements Form {
            abstract long volume(long x);

            static long shared(long x) {
                return x * x + 1;
            }
        }

        static final class Cube extends Solid {
            @Override
            public long area(long x) {
                return shared(x) * 6;
            }

            @Override
            long volume(long x) {
                return shared(x) * x;
            }
        }

        static final class Ball extends Solid {
            @Override
            public long area(long x) {
                return shared(x) * 12;
            }

            @Override
            long volume(long x) {
                return shared(x) * 4 / 3;
            }
        }

        static final class Cone extends Solid {
            @Override
            public long area(long x) {
                return shared(x) + x;
            }

            @Override
            long volume(long x) {
                return shared(x) / 3;
            }
        }

        private final Solid[] solids = {new Cube(), new Ball(), new Cone()};

        @Override
        public long run(long seed) {
            long sum = 0;
            for (Solid solid : solids) {
                sum += byInterface(solid, seed) + byClass(solid, seed);
            }
            return sum;
        }

        private static long byInterface(Form form, long x) {
            return form.area(x) + 1;
        }

        private static long byClass(Solid solid, long x) {
            return solid.volume(x) - 1;
        }
    }

    static final class Stubs implements Shape {
        private final byte[] bytes = new byte[600];
        private final byte[] others = new byte[600];
        private final int[] numbers = new int[300];
        private final Object[] objects = new Object[100];
        private final Object[] texts = new String[100];
        private final CRC32 crc = new CRC32();

        @Override
        public long run(long seed) {
            int length = (int) (seed >>> 55) + 20;
            return copy(length) + copyObjects(length) + fill(length) + check(length) + compare() + text(seed);
        }

        private long copy(int length) {
            System.arraycopy(bytes, 1, others, 3, length);
            System.arraycopy(numbers, 1, numbers, 2, length / 4);
            return others[5];
        }

        private long copyObjects(int length) {
            System.arraycopy(texts, 0, objects, 1, length % 90);
            return objects.length;
        }

        private long fill(int length) {
            Arrays.fill(bytes, 2, length, (byte) length);
            return bytes[3];
        }

        private long check(int length) {
            crc.update(bytes, 0, length);
            return crc.getValue();
        }

        private long compare() {
            return Arrays.equals(bytes, others) ? 1 : 0;
        }

        private long text(long seed) {
            return Long.toString(seed).indexOf("77");
        }
    }

    static final class Lambdas implements Shape {
        private final LongUnaryOperator[] operators = {x -> x + 1, x -> x ^ 5, Lambdas::twice, x -> twice(x) - 1};

        @Override
        public long run(long seed) {
            long sum = seed;
            for (LongUnaryOperator operator : operators) {
                sum = apply(operator, sum);
            }
            return sum;
        }

        private static long apply(LongUnaryOperator operator, long x) {
            return operator.applyAsLong(x) * 3;
        }

        private static long twice(long x) {
            return x + x;
        }
    }

    static final class Recursion implements Shape {
        @Override
        public long run(long seed) {
            return down(seed, 30);
        }

        private static long down(long x, int levels) {
            return levels == 0 ? x : down(x + levels, levels - 1) ^ levels;
        }
    }

    static final class Arguments implements Shape {
        @Override
        public long run(long seed) {
            return wide(seed, 1, 2.5, seed + 1, 3, 4, 5, 6.5f, seed, 8, 9, 10, 11, 12, this);
        }

        private static long wide(
                long a, int b, double c, long d, int e, int f, int g, float h, long i, int j, int k, int l, int m, int n,
                Arguments self) {
            return self.fold(a + b, d + e + f, g + i + j, k + l + m, n, (long) (c + h), b, e) + a;
        }

        private long fold(long a, long b, long c, long d, long e, long f, long g, long h) {
            return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
        }
    }

    static final class Locks implements Shape {
        private long count;

        @Override
        public long run(long seed) {
            return guarded(seed) + block(seed);
        }

        private synchronized long guarded(long x) {
            count += x;
            return inner(count);
        }

        private long block(long x) {
            synchronized (this) {
                return inner(x) + 1;
            }
        }

        private static long inner(long x) {
            return x * 3 - 1;
        }
    }

    static final class Throws implements Shape {
        private static final class Ended extends RuntimeException {
            private static final long serialVersionUID = 1;

            Ended() {
                super(null, null, false, false);
            }
        }

        private final Ended ended = new Ended();

        @Override
        public long run(long seed) {
            try {
                return risk(seed);
            } catch (Ended e) {
                return seed;
            }
        }

        private long risk(long x) {
            return fail(x) + 1;
        }

        private long fail(long x) {
            if (x % 4 != 0) {
                return x;
            }
            throw ended;
        }
    }

    static final class Natives implements Shape {
        @Override
        public long run(long seed) {
            return hash() + time() + memory();
        }

        private static long hash() {
            return System.identityHashCode(new int[2]);
        }

        private static long time() {
            return System.nanoTime();
        }

        private static long memory() {
            return Runtime.getRuntime().freeMemory();
        }
    }

    static final class Maths implements Shape {
        @Override
        public long run(long seed) {
            return (long) wave(seed) + (long) power(seed) + Long.bitCount(seed);
        }

        private static double wave(long x) {
            return Math.sin(x) + Math.sqrt(x) + Math.abs((double) x);
        }

        private static double power(long x) {
            return Math.pow(x, 1.5) + Math.fma(1.5, x, 2.0) + Math.log(x);
        }
    }
}
