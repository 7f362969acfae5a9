package targets;

import java.util.Map;

/** Natives that consume what they are told to, and say what they have consumed by the kernel's own account. */
public final class Consuming {
    private Consuming() {}

    /** Touches the stack that the others need. */
    static native void prepare();

    /** Touches so many pages of new memory. */
    static native void touch(int pages);

    /** Makes so many system calls. */
    static native void call(int times);

    /** Reads so many bytes, and writes as many. */
    static native void copy(int bytes);

    /** Reads so many bytes, and returns how many those were. */
    static native int take(int bytes);

    /** Sends so many bytes through a socket to itself, looks at them, and receives them. */
    static native void talk(int bytes);

    /** Asks so many times to wait for a lock that is free. */
    static native void lock(int times);

    /** Sleeps so many times. */
    static native void nap(int times);

    /** Maps so many pages, and then three times as many in their place. */
    static native void map(int pages);

    /** Asks the allocator seven times for memory, for eight times so many bytes together. */
    static native void allocate(int bytes);

    /** Works for so many milliseconds, and sleeps as many. */
    static native void work(int milliseconds);

    /** Touches so many pages and has {@link #touch} touch as many. */
    static native void outer(int pages);

    /** Called by {@link #outer}. */
    static void inner(int pages) {
        touch(pages);
    }

    /**
     * Touches so many pages, reads and writes so many bytes, makes so many system calls, and is left only by the end of its process.
     * Does nothing for 0.
     */
    static native void stay(int amount);

    /** Waits until so many threads wait in {@link #stay}, each of which is counted once. */
    static native void awaitStaying(int threads);

    /** Consumes the same, and is left by the end of its thread. Does nothing for 0. */
    static native void leave(int amount);

    /**
     * Hands a byte to another thread that does the same from the other side, and gets it back, so many times, on one CPU. Returns how
     * long that took, in nanoseconds.
     */
    static native long swap(boolean begins, int times);

    /** Touches so many pages, and calls {@link #inside}. */
    static native void within(int amount, boolean leaves);

    /** Has a thread of its own call {@link #lead}, and waits for its end. */
    static native void spawn(int amount);

    /** Called by {@link #within}. */
    static void inside(int amount, boolean leaves) {
        take(amount);
        if (leaves) {
            leave(amount);
        } else {
            stay(amount);
        }
    }

    /** Gets ready, and gets into all of them. */
    static void lead(int amount, boolean leaves) {
        prepare();
        within(amount, leaves);
    }

    /** Times that {@link #nap} has left the CPU. */
    static native long napSwitches();

    /** How long threads ran in {@link #work}, by their own clocks. */
    static native long workedNs();

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Target.serve(Map.of("consume", (a, out) -> {
            consume(false, a[0], Integer.parseInt(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3]));
            out.println("switches " + napSwitches());
            out.println("ran " + workedNs());
        }, "virtually", (a, out) -> consume(true, a[0], Integer.parseInt(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3])), "pass", (a, out) -> pass(a[0], Integer.parseInt(a[1])),
                "divide", (a, out) -> divide(a[0], Integer.parseInt(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3])),
                "stay", (a, out) -> stay(a[0].equals("virtually"), Integer.parseInt(a[1]), Integer.parseInt(a[2])),
                "swap", (a, out) -> out.println("took " + swap(Integer.parseInt(a[0]))),
                "leave", (a, out) -> leave(Integer.parseInt(a[0]), Integer.parseInt(a[1]))));
    }

    /** Has two threads take turns so many times. Returns how long that took, in nanoseconds. */
    private static long swap(int times) throws InterruptedException {
        long[] took = new long[1];
        Thread[] both = {new Thread(() -> took[0] = swap(true, times)), new Thread(() -> swap(false, times))};
        for (Thread thread : both) {
            thread.start();
        }
        for (Thread thread : both) {
            thread.join();
        }
        return took[0];
    }

    /** Has some threads stay inside. What is done once in a process is done before. */
    private static void stay(boolean virtually, int threads, int amount) throws ReflectiveOperationException {
        for (int i = 0; i < threads; i++) {
            start(virtually, () -> lead(amount, false)).setName("stays");
        }
        awaitStaying(threads);
    }

    /** Has some threads end inside, one after the other. For 0 of them, does everything once that ends nothing. */
    private static void leave(int threads, int amount) {
        for (int i = 0; i < threads; i++) {
            spawn(amount);
        }
        if (threads == 0) {
            spawn(0);
            lead(0, false);
            awaitStaying(0);
        }
    }

    private static Thread start(boolean virtually, Runnable task) throws ReflectiveOperationException {
        if (virtually) {
            return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task);
        }
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Has each of some threads call a native so many times. */
    private static void consume(boolean virtually, String what, int threads, int rounds, int amount)
            throws ReflectiveOperationException, InterruptedException {
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            Runnable task = () -> {
                prepare();
                for (int round = 0; round < rounds; round++) {
                    once(what, amount);
                }
            };
            all[i] = start(virtually, task);
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    /** The same from threads of which two each have the same name, and each makes as many calls more than the one before. */
    private static void divide(String what, int threads, int rounds, int amount) throws InterruptedException {
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int rounded = rounds * (i + 1);
            all[i] = new Thread(() -> {
                for (int round = 0; round < rounded; round++) {
                    once(what, amount);
                }
            }, "part-" + i / 2);
            all[i].start();
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    /** Calls a native once in each of so many threads, one after the other. */
    private static void pass(String what, int threads) throws InterruptedException {
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> once(what, 0));
            thread.start();
            thread.join();
        }
    }

    private static void once(String what, int amount) {
        switch (what) {
            case "touch": touch(amount); break;
            case "call": call(amount); break;
            case "copy": copy(amount); break;
            case "take": take(amount); break;
            case "talk": talk(amount); break;
            case "lock": lock(amount); break;
            case "nap": nap(amount); break;
            case "map": map(amount); break;
            case "allocate": allocate(amount); break;
            case "work": work(amount); break;
            case "outer": outer(amount); break;
            default: throw new IllegalArgumentException(what);
        }
    }
}
