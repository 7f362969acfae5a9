package targets;

import java.io.InputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The natives of {@code Stubs} in a JVM that has other troubles: collections without end, arrays that may not move, a
 * profiler's signals, classes that are replaced.
 */
final class Stressed {
    private static final int LENGTH = 1_000;
    private static final AtomicLong COLLECTIONS = new AtomicLong();
    private static Thread collector;
    private static volatile boolean collecting;

    /** The sum of an array, which may not move while it is taken. */
    static native int pinned(int[] numbers);

    /** The same, by a native of which there is a second one that {@code -XX:+CriticalJNINatives} uses. */
    static native int swift(int[] numbers);

    /** How often the one and the other of these two were called. */
    static native long[] ways();

    /** Takes a sample each time that the process has used so many microseconds; with 0 never again. */
    static native int profile(int microseconds);

    /** How many samples were taken: all, those with a stack, those of a thread in a native method. */
    static native long[] samples();

    /** Replaces a class; by itself where there are no bytes. Gives the VM's error. */
    static native int redefine(Class<?> type, byte[] bytes);

    private interface Sum {
        int of(int[] numbers);
    }

    private Stressed() {}

    public static void main(String[] args) throws Exception {
        System.load(args[1]);
        Map<String, Target.Command> commands = new HashMap<>(Stubs.commands(args[0]));
        commands.put("collect", (a, out) -> collect());
        commands.put("calm", (a, out) -> calm(out));
        commands.put("pinned", (a, out) -> sums(Stressed::pinned, a, out));
        commands.put("swift", (a, out) -> sums(Stressed::swift, a, out));
        commands.put("ways", (a, out) -> print(ways(), out));
        commands.put("profile", (a, out) -> must(profile(Integer.parseInt(a[0]))));
        commands.put("samples", (a, out) -> print(samples(), out));
        commands.put("redefine", (a, out) -> redefine(Integer.parseInt(a[0])));
        Target.serve(commands);
    }

    private static void print(long[] numbers, PrintStream out) {
        for (long number : numbers) {
            out.println(number);
        }
    }

    private static void must(int error) {
        if (error != 0) {
            throw new IllegalStateException("error " + error);
        }
    }

    /** Collects all garbage, and makes some, until it is told to stop. */
    private static void collect() {
        collecting = true;
        COLLECTIONS.set(0);
        collector = new Thread(() -> {
            byte[][] kept = new byte[16][];
            for (int i = 0; collecting; i++) {
                kept[i % kept.length] = new byte[200_000];
                if (i % 64 == 0) {
                    System.gc();
                    COLLECTIONS.incrementAndGet();
                }
            }
        }, "collector");
        collector.start();
    }

    private static void calm(PrintStream out) throws InterruptedException {
        collecting = false;
        collector.join();
        out.println(COLLECTIONS);
    }

    /** {@code THREADS ROUNDS}: sums new arrays; prints how many sums were taken and were wrong. */
    private static void sums(Sum sum, String[] words, PrintStream out) throws InterruptedException {
        int threads = Integer.parseInt(words[0]);
        int rounds = Integer.parseInt(words[1]);
        AtomicLong wrong = new AtomicLong();
        List<Thread> started = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            Thread thread = new Thread(() -> wrong.addAndGet(wrongSums(sum, rounds)), "adder");
            thread.start();
            started.add(thread);
        }
        for (Thread thread : started) {
            thread.join();
        }
        out.println("checked " + (long) threads * rounds + " wrong " + wrong);
    }

    private static int wrongSums(Sum sum, int rounds) {
        int wrong = 0;
        for (int round = 0; round < rounds; round++) {
            int[] numbers = new int[LENGTH];
            int right = 0;
            for (int i = 0; i < LENGTH; i++) {
                numbers[i] = round ^ i * 31;
                right += numbers[i];
            }
            wrong += sum.of(numbers) == right ? 0 : 1;
        }
        return wrong;
    }

    /** Replaces the class with the generated natives so many times, in the two ways that there are. */
    private static void redefine(int rounds) throws Exception {
        byte[] bytes;
        try (InputStream file = Stressed.class.getResourceAsStream("Generated.class")) {
            bytes = file.readAllBytes();
        }
        for (int round = 0; round < rounds; round++) {
            must(redefine(Generated.class, round % 2 == 0 ? bytes : null));
        }
    }
}
