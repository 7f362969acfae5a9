package targets;

import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.function.IntSupplier;

/** Fills the stacks of threads, in methods that are followed and with tasks that are run. */
public final class Filled {
    private Filled() {}

    /** Bytes: a small one, so that few calls fill it. */
    private static final long STACK = 256 << 10;

    /** How often one has come down. One thread counts at a time, and calls nothing for that. */
    private static int calls;

    private static volatile int sink;

    /** One invocation: goes down until there is no room. */
    static int fill() {
        try {
            return down(0);
        } catch (StackOverflowError full) {
            return 1;
        }
    }

    static int down(int depth) {
        calls++;
        return down(depth + 1) + sink;
    }

    /** Another one, which calls nothing. */
    static int calm() {
        return sink;
    }

    /** Makes a task. */
    static FutureTask<Integer> submit() {
        return new FutureTask<>(() -> sink);
    }

    /** Goes down until there is no room, and runs a task wherever there is some on the way back. */
    private static int repeated(Runnable task) {
        int deepest = 0;
        try {
            deepest = repeated(task);
        } catch (StackOverflowError full) {
            deepest = 1;
        }
        try {
            task.run();
        } catch (StackOverflowError full) {
            sink = 0;
        }
        return deepest;
    }

    /**
     * Begins so many frames further down. As long as they are interpreted, these are a word larger than those of the methods above: so the stack ends
     * in another place of theirs each time.
     */
    private static int shifted(int frames, IntSupplier begun) {
        return frames == 0 ? begun.getAsInt() : shifted(frames - 1, begun);
    }

    private static void run(int frames, IntSupplier begun) throws InterruptedException {
        Thread thread = new Thread(null, () -> sink = shifted(frames, begun) & 1, "filled", STACK);
        thread.start();
        thread.join();
    }

    private static void fillBelow(int frames) throws InterruptedException {
        run(frames, () -> fill() + calm());
    }

    private static void repeatBelow(int frames) throws InterruptedException {
        FutureTask<Integer> task = submit();
        run(frames, () -> repeated(task) + calm());
    }

    public static void main(String[] args) throws Exception {
        // All classes are loaded when it is ready.
        fillBelow(0);
        repeatBelow(0);
        Target.serve(Map.of("fill", (a, out) -> {
            calls = 0;
            fillBelow(Integer.parseInt(a[0]));
        }, "calls", (a, out) -> {
            out.println(calls);
        }, "repeat", (a, out) -> {
            repeatBelow(Integer.parseInt(a[0]));
        }));
    }
}
