package targets;

import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/** Natives that call all kinds of JNI functions in known numbers, and what they call. */
public final class Functions {
    private static final AtomicInteger WRONG = new AtomicInteger();

    private boolean fieldBoolean;
    private static boolean staticBoolean;
    private byte fieldByte;
    private static byte staticByte;
    private char fieldChar;
    private static char staticChar;
    private short fieldShort;
    private static short staticShort;
    private int fieldInt;
    private static int staticInt;
    private long fieldLong;
    private static long staticLong;
    private float fieldFloat;
    private static float staticFloat;
    private double fieldDouble;
    private static double staticDouble;
    private Object fieldObject;
    private static Object staticObject;

    private Functions() {}

    private Functions(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
    }

    static native int calls(Functions object, int round);

    static native int fields(Functions object, int round);

    static native int others(Functions object, Class<?> exception);

    static native void nested(int depth);

    static native int replaced();

    static native int wrap(boolean wraps);

    static native long wrappedCalls();

    static native long time(int kind, int calls);

    static native long readings(int pairs);

    private static void down(int depth) {
        nested(depth);
    }

    private static void nothing() {}

    /** Whether all arguments are what was passed: {@code j} is their sum, each as often as its place says, in quarters. */
    private static void check(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        double sum = a + 2.0 * b + 3.0 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * (h ? 1 : 0) + 9.0 * i + 11 * k + 12 * l + 13 * m + 14 * n
                + 15 * o + 16 * p + 17 * q + 18 * r + 19 * s + 20 * t;
        if ((long) (4 * sum) != j || !(u instanceof Functions)) {
            WRONG.incrementAndGet();
        }
    }

    private boolean takeBoolean(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return h;
    }

    private static boolean giveBoolean(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return h;
    }

    private byte takeByte(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return e;
    }

    private static byte giveByte(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return e;
    }

    private char takeChar(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return g;
    }

    private static char giveChar(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return g;
    }

    private short takeShort(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return f;
    }

    private static short giveShort(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return f;
    }

    private int takeInt(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return a;
    }

    private static int giveInt(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return a;
    }

    private long takeLong(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return b;
    }

    private static long giveLong(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return b;
    }

    private float takeFloat(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return c;
    }

    private static float giveFloat(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return c;
    }

    private double takeDouble(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return d;
    }

    private static double giveDouble(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return d;
    }

    private Object takeObject(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return u;
    }

    private static Object giveObject(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
        return u;
    }

    private void takeVoid(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
    }

    private static void giveVoid(int a, long b, float c, double d, byte e, short f, char g, boolean h, int i, long j,
            double k, float l, double m, double n, float o, double p, double q, float r, double s, double t, Object u) {
        check(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
    }

    private interface Round {
        int wrong(Functions object, int round);
    }

    /** {@code THREADS ROUNDS}: each thread does something so many times; prints how often that was wrong. */
    private static Target.Command repeated(Round once) {
        return (a, out) -> {
            WRONG.set(0);
            int rounds = Integer.parseInt(a[1]);
            Thread[] threads = new Thread[Integer.parseInt(a[0])];
            for (int i = 0; i < threads.length; i++) {
                threads[i] = new Thread(() -> {
                    Functions object = new Functions();
                    for (int round = 0; round < rounds; round++) {
                        WRONG.addAndGet(once.wrong(object, round));
                    }
                });
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            out.println("wrong " + WRONG.get());
        };
    }

    /** The static fields are of all threads: one at a time. */
    private static synchronized int fieldsInTurn(Functions object, int round) {
        return fields(object, round);
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Target.serve(Map.of(
                "calls", repeated(Functions::calls),
                "fields", repeated(Functions::fieldsInTurn),
                "others", repeated((object, round) -> others(object, IllegalStateException.class)),
                "nested", (a, out) -> nested(Integer.parseInt(a[0])),
                "replaced", (a, out) -> out.println(replaced()),
                "wrapped", (a, out) -> out.println(wrappedCalls()),
                "wrap", (a, out) -> {
                    if (wrap(Boolean.parseBoolean(a[0])) != 0) {
                        throw new IllegalStateException("the table cannot be replaced");
                    }
                },
                "time", (a, out) -> out.println(time(Integer.parseInt(a[0]), Integer.parseInt(a[1]))),
                "readings", (a, out) -> out.println(readings(Integer.parseInt(a[0])))));
    }
}
