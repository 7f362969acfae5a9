package targets;

import java.lang.reflect.Method;
import java.util.function.IntUnaryOperator;

/** Methods of many shapes. For each it prints what the hooks were told, or how often the warm-up was right. */
public final class Told {
    /** One of the shapes. */
    private interface Shape {
        void run() throws Exception;
    }

    private Told() {}

    public static void main(String[] args) throws Exception {
        Class<?> hooks = Class.forName("java.lang.NprofTree");
        Method told = hooks.getMethod("told");
        int rounds = Integer.parseInt(args[0]);
        hooks.getMethod("listen").invoke(null);
        String[] names = {"loop", "caught", "passed", "constructors", "broken", "before", "recursion", "locks", "switches",
            "lambda", "results", "finish", "inner", "natives"};
        Shape[] shapes = {() -> spin(3), Told::catching, () -> swallow(() -> passing(2)), () -> new Derived(1),
            () -> swallow(() -> new Derived(-1)), () -> swallow(() -> new Derived(-2)), () -> fibonacci(3), Told::locking,
            Told::switching, Told::lambdas, Told::results, () -> finishing(true), Told::nested, Told::natives};
        for (int shape = 0; shape < shapes.length; shape++) {
            String first = null;
            for (int round = 0; round < rounds; round++) {
                shapes[shape].run();
                String now = (String) told.invoke(null);
                first = first == null ? now : first;
                if (!now.equals(first)) {
                    throw new AssertionError(names[shape] + " in round " + round + ": " + now + ", not " + first);
                }
            }
            System.out.println(names[shape] + ": " + first.trim());
        }
    }

    private static void swallow(Shape shape) throws Exception {
        try {
            shape.run();
        } catch (IllegalStateException e) {
            if (e.getMessage() == null) {
                throw e;
            }
        }
    }

    /** Its loop goes back to its first instruction. */
    private static void spin(int rounds) {
        do {
            rounds--;
        } while (rounds > 0);
    }

    private static void catching() {
        for (int i = 0; i < 2; i++) {
            try {
                failing(i);
            } catch (IllegalStateException e) {
                leaf();
            }
        }
    }

    private static void failing(int i) {
        if (i == 0) {
            throw new IllegalStateException("first");
        }
    }

    private static void leaf() {}

    private static void passing(int levels) {
        if (levels == 0) {
            failing(0);
        }
        passing(levels - 1);
    }

    /** A class with a constructor. */
    private static class Base {
        Base(int a, long b) {
            if (a + b < 0) {
                throw new IllegalStateException("negative");
            }
        }
    }

    /** A class whose constructors call others, with an argument that branches. */
    private static final class Derived extends Base {
        private final Object made;

        Derived(int a) {
            this(a == -2 ? refused() : a, new Object());
        }

        private Derived(int a, Object made) {
            super(a > 0 ? a : new int[] {a}[0], a);
            this.made = made;
        }

        private static int refused() {
            throw new IllegalStateException("refused");
        }
    }

    private static int fibonacci(int n) {
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    }

    private static void locking() {
        Object lock = new Object();
        for (int i = 0; i < 2; i++) {
            try {
                synchronized (lock) {
                    locked(i);
                }
            } catch (IllegalStateException e) {
                leaf();
            }
        }
    }

    private static synchronized void locked(int i) {
        synchronized (Told.class) {
            failing(i);
        }
    }

    private static void switching() {
        for (int i : new int[] {0, 1, 2, 1_000_000, -1}) {
            dense(i);
            sparse(i);
        }
    }

    private static String dense(int i) {
        switch (i) {
            case 0:
                return "0";
            case 1:
                leaf();
                return "1";
            case 2:
                return "2";
            default:
                return "?";
        }
    }

    private static long sparse(int i) {
        switch (i) {
            case 0:
                return 0;
            case 1_000_000:
                leaf();
                return 1L << 40;
            default:
                return -1;
        }
    }

    private static void lambdas() {
        int more = 2;
        IntUnaryOperator add = a -> adding(a, more);
        applied(add, 1);
    }

    private static int applied(IntUnaryOperator operator, int a) {
        return operator.applyAsInt(a);
    }

    private static int adding(int a, int b) {
        return a + b;
    }

    private static void results() {
        if (aLong() + aDouble() + aFloat() != 6.0 || !"s".equals(anObject())) {
            throw new AssertionError("a result was changed");
        }
    }

    private static long aLong() {
        return 1;
    }

    private static double aDouble() {
        return 2;
    }

    private static float aFloat() {
        return 3;
    }

    private static Object anObject() {
        return "s";
    }

    private static int finishing(boolean fails) {
        try {
            if (fails) {
                throw new IllegalArgumentException();
            }
            return 1;
        } catch (IllegalArgumentException e) {
            return 2;
        } finally {
            leaf();
        }
    }

    private static void nested() {
        int caught = 0;
        for (int i = 0; i < 2; i++) {
            try {
                try {
                    failing(i);
                    caught += 1;
                } catch (IllegalArgumentException e) {
                    caught += 10;
                }
            } catch (IllegalStateException e) {
                caught += 100;
            }
        }
        if (caught != 101) {
            throw new AssertionError("" + caught);
        }
    }

    /** A native method that works, and one that throws in a place where this is caught, with locals that are needed afterwards. */
    private static void natives() {
        long before = System.nanoTime();
        double some = 0.5;
        String text = "text";
        for (int i = 0; i < 2; i++) {
            Object[] from = i == 0 ? null : new Object[] {text, some};
            Object[] to = new Object[2];
            try {
                System.arraycopy(from, 0, to, 0, 2);
            } catch (NullPointerException e) {
                some += to.length + from(from) + text.length();
            }
        }
        if (some != 6.5 || before == 0) {
            throw new AssertionError("" + some);
        }
    }

    private static int from(Object[] array) {
        return array == null ? 0 : 1;
    }
}
