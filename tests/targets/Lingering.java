package targets;

import java.util.Map;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

/**
 * A thread that stays inside a native, which runs Java code, and calls another one from there: a few dozen times a second,
 * or as fast as it can.
 */
public final class Lingering {
    /** From one call of the inner native to the next: the kernel lends a return probe for a tenth of a second. */
    private static final int BEAT_MS = 10;

    /** What the thread is to do next, and what it answers. */
    private static final SynchronousQueue<Integer> ORDERS = new SynchronousQueue<>();

    private static final SynchronousQueue<Long> ANSWERS = new SynchronousQueue<>();

    private Lingering() {}

    /** Runs this. */
    static native void stay(Runnable inside);

    static native void beat();

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        // Both are bound from here on.
        stay(() -> hot(1_000));
        Target.serve(Map.of(
                "hot", (a, out) -> out.println("took " + order(Integer.parseInt(a[0]))),
                "leave", (a, out) -> out.println("paused " + order(0)),
                "stay", (a, out) -> begin()));
    }

    /** Has the thread make so many calls, and returns how long that takes; or leave, and returns its longest pause. In nanoseconds. */
    private static long order(int calls) throws InterruptedException {
        ORDERS.put(calls);
        return ANSWERS.take();
    }

    /** Has the thread go into the native, and returns when it is there and has beaten. */
    private static void begin() throws InterruptedException {
        Thread thread = new Thread(() -> stay(Lingering::beatOn), "lingering");
        thread.setDaemon(true);
        thread.start();
        ANSWERS.take();
    }

    private static void beatOn() {
        try {
            beat();
            ANSWERS.put(0L);
            long last = System.nanoTime();
            long longest = 0;
            while (true) {
                Integer calls = ORDERS.poll(BEAT_MS, TimeUnit.MILLISECONDS);
                beat();
                long now = System.nanoTime();
                longest = Math.max(longest, now - last);
                last = now;
                if (calls != null && calls == 0) {
                    ANSWERS.put(longest);
                    return;
                }
                if (calls != null) {
                    ANSWERS.put(hot(calls));
                    last = System.nanoTime();
                }
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Makes so many calls, and returns how many nanoseconds that took. */
    private static long hot(int calls) {
        long began = System.nanoTime();
        for (int i = 0; i < calls; i++) {
            beat();
        }
        return System.nanoTime() - began;
    }
}
