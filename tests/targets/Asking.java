package targets;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/** Natives that ask the VM for as much as they are told to. */
public final class Asking {
    /** What references are made to. */
    private static final Object KEPT = new Other();

    /** Whether a native has come so far that it never returns. */
    private static final CountDownLatch STAYING = new CountDownLatch(1);

    /** What the last allocation has made. */
    private static volatile byte[] garbage;

    private static int number;
    private int field;

    private Asking() {}

    /** Looks up two methods, two fields and a class, and a method that there is not, which it clears the exception of. */
    static native void lookUp();

    /** The same of another class. */
    static native void lookUpIn(Class<?> other);

    /** Looks up a class and a method whose names lie where nobody has read them yet. */
    static native void lookUpUntouched();

    /** Makes so many references, characters and elements of each kind, and keeps as many as it is told to. */
    static native void refer(String text, int[] array, int made, int kept);

    /** The same with an object, with nested critical sections in between. Keeps 20 global, 10 weak, 40 characters and 8 elements, or none. */
    static native void leak(Object object, String text, int[] array, int made, int kept);

    /** Makes a global reference, or lets that one go. */
    static native void keep(Object object);

    /** Holds more local references at once than there is room for, so many where that can be chosen, in one of five ways. */
    static native void beyond(Object object, int kind, int held);

    /** Holds as many, or as many one after the other, and never more at once than there is room for, in one of five ways. */
    static native void within(Object object, int kind, int held);

    /** Makes so many local references, calls {@link #staying}, and never returns. */
    static native void stay(Object object, int held);

    /** Throws so many exceptions and clears them, and then one that it leaves if it is to. */
    static native void fail(int cleared, boolean leaves);

    /** Has an exception thrown in one of three ways, and clears it or leaves it. */
    static native void raise(int kind, boolean clears);

    /** Holds an array, and once more meanwhile, for so many milliseconds. */
    static native void hold(int[] array, int milliseconds);

    /** Makes so many direct buffers, each of one byte more than the one before. */
    static native void buffers(int made);

    /** Calls {@link #back}, looks whether it has thrown, and asks for the version twice. */
    static native void call();

    /**
     * So many times calls {@link #member} in each of four ways, both of {@link #twice}, and the constructor.
     */
    native void callEach(int times);

    /** Looks up the static method {@code back} of a class, and calls it. */
    static native void callBackOf(Class<?> type);

    /** Asks for the version three times. */
    static native void leaf();

    /** Has a thread that is in no native method ask for the version so many times. */
    static native void outside(int times);

    /** Reads a field so many times. */
    native int read(int times);

    /** Called by {@link #within}: a call of its own has room of its own. */
    static void nested() {
        within(KEPT, 4, 0);
    }

    /** Called by {@link #beyond}. */
    static Object again() {
        nested();
        return KEPT;
    }

    /** Called by {@link #stay}. */
    static void staying() {
        STAYING.countDown();
    }

    /** Called by {@link #call}. */
    static void back() {
        leaf();
    }

    /** Called by {@link #raise}. */
    static void failing() {
        throw new Failure();
    }

    int member() {
        return field + number;
    }

    static int twice(int of) {
        return 2 * of;
    }

    static long twice(long of) {
        return 2 * of;
    }

    /** What {@link #failing} throws. */
    static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    /** Defines the next class anew, as often as it is asked to. */
    private static final class Loader extends ClassLoader {
        Class<?> other() {
            try (InputStream in = Asking.class.getResourceAsStream("Asking$Other.class")) {
                byte[] bytes = in.readAllBytes();
                return defineClass("targets.Asking$Other", bytes, 0, bytes.length);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    /** A class with the same members. */
    static final class Other {
        static int number;
        int field;

        private Other() {}

        static void back() {}

        int member() {
            return field + number;
        }
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Target.serve(Map.of("ask", (a, out) -> {
            ask(a[0], Integer.parseInt(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3]));
        }, "stay", (a, out) -> {
            Thread staying = new Thread(() -> stay(KEPT, Integer.parseInt(a[0])));
            staying.setDaemon(true);
            staying.start();
            STAYING.await();
        }));
    }

    /** Has each of some threads call a native so many times. */
    private static void ask(String what, int threads, int rounds, int amount) throws InterruptedException {
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                for (int round = 0; round < rounds; round++) {
                    once(what, amount);
                }
            });
            all[i].start();
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    private static void beyondAndWithin(int amount) {
        for (int kind = 0; kind < 5; kind++) {
            beyond(new Other(), kind, amount);
            within(new Other(), kind, amount);
        }
    }

    private static void raise(boolean clears) {
        for (int kind = 0; kind < 3; kind++) {
            try {
                raise(kind, clears);
            } catch (NoSuchMethodError | Failure | IllegalStateException expected) {
                continue;
            }
            if (!clears) {
                throw new AssertionError("nothing was thrown");
            }
        }
    }

    /** Keeps all of so few. For as long that stacks are taken now and then. */
    private static void oneWay(int amount) {
        LockSupport.parkNanos(1_000_000);
        leak(KEPT, "text", new int[8], amount, 1);
    }

    private static void another(int amount) {
        LockSupport.parkNanos(1_000_000);
        further(amount);
    }

    private static void further(int amount) {
        leak(KEPT, "text", new int[8], amount, 1);
    }

    /** Holds an array for so long, while another thread wants the heap collected. */
    private static void holdUp(int milliseconds, Runnable collects) {
        Thread collecting = new Thread(() -> {
            LockSupport.parkNanos(milliseconds * 250_000L);
            collects.run();
        });
        collecting.start();
        hold(new int[8], milliseconds);
        try {
            collecting.join();
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    /** More than a small young generation holds. */
    private static void allocate() {
        for (int i = 0; i < 256; i++) {
            garbage = new byte[1 << 16];
        }
    }

    private static void once(String what, int amount) {
        switch (what) {
            case "lookUp": lookUp(); break;
            case "lookUpUntouched": lookUpUntouched(); break;
            case "lookUpIn": lookUpIn(Other.class); break;
            case "refer": refer("text", new int[8], amount, 1); break;
            case "leak": leak(KEPT, "text", new int[8], amount, 1); break;
            case "leakNothing": leak(KEPT, "text", new int[8], amount, 0); break;
            case "leakOneWay": oneWay(amount); break;
            case "leakAnother": another(amount); break;
            case "keep": keep(KEPT); break;
            case "locals": beyondAndWithin(amount); break;
            case "clear": fail(amount, false); break;
            case "throw":
                try {
                    fail(amount, true);
                } catch (IllegalStateException expected) {
                    break;
                }
                throw new AssertionError("nothing was thrown");
            case "raiseAndClear": raise(true); break;
            case "raiseAndLeave": raise(false); break;
            case "hold": hold(new int[8], amount); break;
            case "holdUp": holdUp(amount, System::gc); break;
            case "holdUpAllocating": holdUp(amount, Asking::allocate); break;
            case "buffers": buffers(amount); break;
            case "call": call(); break;
            case "callEach": new Asking().callEach(amount); break;
            case "callFresh":
                callBackOf(new Loader().other());
                System.gc();
                break;
            case "leaf": leaf(); break;
            case "outside": outside(amount); break;
            case "read": new Asking().read(amount); break;
            default: throw new IllegalArgumentException(what);
        }
    }
}
