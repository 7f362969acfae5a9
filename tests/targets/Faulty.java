package targets;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** Natives that each do one thing that they should not, and some that do nothing wrong. */
public final class Faulty {
    private Faulty() {}

    /** Does nothing, and is called very often. */
    static native void nothing();

    /** The same at a place where a probe is expensive. */
    static native int stepped();

    /** Looks up one method so many times. */
    static native void lookUp(int times);

    /** Makes so many global references and keeps them. */
    static native void keep(Object object, int times);

    /** Holds an array for so many milliseconds. */
    static native void hold(byte[] array, int milliseconds);

    /** Takes so many milliseconds. */
    static native void answer(int milliseconds);

    /** Has the whole array copied. */
    static native void copy(byte[] array);

    /** Writes a byte. */
    static native void put(int value);

    /** Throws. */
    static native void parse();

    /** Touches so many pages of new memory. */
    static native void fill(int pages);

    /** Makes so many system calls. */
    static native void list(int times);

    /** Waits for a lock, which it holds for a millisecond. */
    static native void store();

    /** Waits for two milliseconds. */
    static native void ask();

    /** Adds up what is in a direct buffer, and calls {@link #back} by an id that was found before. */
    static native int sum(ByteBuffer buffer);

    /** Writes many bytes. */
    static native void flush(byte[] array);

    /** Called by {@link #sum}. */
    static void back() {}

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Target.serve(Map.of(
                "faults", (a, out) -> faults(Integer.parseInt(a[0])),
                "clean", (a, out) -> clean(Integer.parseInt(a[0]))));
    }

    /** All faults in each of so many rounds. */
    private static void faults(int rounds) throws InterruptedException, IOException {
        List<Thread> asking = new ArrayList<>();
        boolean[] over = new boolean[1];
        for (int i = 0; i < 4; i++) {
            asking.add(start(() -> askUntil(over)));
        }
        byte[] small = new byte[64];
        byte[] large = new byte[4 << 20];
        for (int round = 0; round < rounds; round++) {
            inThreads(8, () -> working(large));
            answer(round == rounds / 2 ? 1_000 : 0);
            for (int i = 0; i < 50; i++) {
                answer(0);
            }
            keep(small, 250);
            holdUp(small);
            throwing();
            inThreads(4, Faulty::storing);
            for (int i = 0; i < 4; i++) {
                new ProcessBuilder("true").start().waitFor();
            }
        }
        synchronized (over) {
            over[0] = true;
        }
        for (Thread thread : asking) {
            thread.join();
        }
    }

    /** Holds an array, while another thread asks for a collection. */
    private static void holdUp(byte[] array) throws InterruptedException {
        Thread collecting = start(() -> {
            LockSupport.parkNanos(3_000_000);
            System.gc();
        });
        hold(array, 25);
        collecting.join();
    }

    private static void askUntil(boolean[] over) {
        while (true) {
            ask();
            synchronized (over) {
                if (over[0]) {
                    return;
                }
            }
        }
    }

    /** What costs nothing but CPU time. */
    private static void working(byte[] array) {
        for (int i = 0; i < 50_000; i++) {
            nothing();
        }
        for (int i = 0; i < 4_000; i++) {
            put(i);
        }
        for (int i = 0; i < 250; i++) {
            stepped();
        }
        lookUp(7_000);
        for (int i = 0; i < 3; i++) {
            copy(array);
        }
        for (int i = 0; i < 12; i++) {
            fill(256);
        }
        for (int i = 0; i < 60; i++) {
            list(100);
        }
    }

    private static void throwing() {
        for (int i = 0; i < 2_000; i++) {
            try {
                parse();
            } catch (IllegalStateException expected) {
                continue;
            }
            throw new AssertionError("nothing was thrown");
        }
    }

    /** For threads that are in each other's way. */
    private static void storing() {
        for (int i = 0; i < 5; i++) {
            store();
        }
    }

    /** At once: what many threads do costs something, too, on a machine that is busy with other work. */
    private static void inThreads(int count, Runnable work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            threads.add(start(work));
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static Thread start(Runnable work) {
        Thread thread = new Thread(work);
        thread.start();
        return thread;
    }

    /** Work as it should be, in so many rounds. */
    private static void clean(int rounds) {
        ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 16).order(ByteOrder.nativeOrder());
        byte[] array = new byte[1 << 16];
        for (int round = 0; round < rounds; round++) {
            if (sum(buffer) != 0) {
                throw new AssertionError("not what is in the buffer");
            }
            flush(array);
        }
    }
}
