package targets;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/**
 * Calls natives from many stacks, and knows how often from which: every way to a native is a path with a number, which the
 * native is given and counts by.
 *
 * <p>{@code run learn ROUNDS} goes each path so often while the natives ask the VM for their stack: these stacks are the
 * only ones there are. {@code run go PATHS THREADS TURNS MILLIS} has threads go along paths at random,
 * {@code NAME:WEIGHT,...}, {@code all} or {@code virtual}, so many turns each, until that time has passed; {@code run start} does not wait
 * for them, {@code run join} does. {@code run truth} prints, for each native and path that was gone since the last time,
 * {@code path NAME NATIVE CALLS WALL_NS CPU_NS}, and below it each of its stacks: {@code stack}, and the frames innermost
 * first, {@code at CLASS METHOD LINE}. {@code run cpu} prints the CPU time of the threads that went.
 */
final class Callers {
    /** A way to a native. */
    interface Path {
        void go(int path) throws Throwable;
    }

    private static final byte[][] GARBAGE = new byte[1 << 12][];
    private static final Set<String> PASSING = Set.of("passing", "initializer");
    private static final List<String> NAMES = new ArrayList<>();
    private static final List<Path> PATHS = new ArrayList<>();
    /** The stacks of each native and path. */
    private static final Map<String, Set<String>> STACKS = new LinkedHashMap<>();
    private static final List<Thread> GOING = new ArrayList<>();
    private static volatile Throwable failure;

    private Callers() {}

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        CallerPaths.addTo(Callers::add);
        Target.serve(Map.of(
            "learn", Callers::learn, "go", Callers::go, "start", Callers::start, "join", (words, out) -> join(),
            "truth", Callers::truth, "cpu", (words, out) -> out.println("cpu " + CallerControl.cpu(true)), "churn",
            Callers::churn, "collect", Callers::collect));
    }

    private static void add(String name, Path path) {
        NAMES.add(name);
        PATHS.add(path);
    }

    /** All that go begin here, so that the outermost frames of a path are always the same. */
    private static void walk(int[] wheel, long turns, long deadline, Random random) {
        for (long turn = 0; turn < turns && System.nanoTime() < deadline; turn++) {
            int at = random == null ? (int) (turn % wheel.length) : random.nextInt(wheel.length);
            step(PATHS.get(wheel[at]), wheel[at]);
        }
        CallerControl.cpu(false);
    }

    private static void step(Path path, int number) {
        try {
            path.go(number);
        } catch (Throwable e) {
            failure = e;
        }
    }

    private static Thread thread(boolean isVirtual, int[] wheel, long turns, long millis, Random random)
        throws ReflectiveOperationException {
        long deadline = System.nanoTime() + millis * 1_000_000;
        Runnable task = () -> walk(wheel, turns, deadline, random);
        if (isVirtual) {
            // Named by text: the sources are of a release that does not have them.
            return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task);
        }
        Thread thread = new Thread(null, task, "caller", 16 << 20);
        thread.start();
        return thread;
    }

    /** A wheel with one place for each path. */
    private static int[] wheelOfAll() {
        return IntStream.range(0, NAMES.size()).toArray();
    }

    /** The same without the paths through classes that are soon forgotten. */
    private static int[] wheelOfLasting() {
        return IntStream.of(wheelOfAll()).filter(i -> !PASSING.contains(NAMES.get(i))).toArray();
    }

    /** A wheel with as many places for each path as its weight says. */
    private static int[] wheel(String words) {
        List<Integer> places = new ArrayList<>();
        for (String word : words.split(",")) {
            int colon = word.indexOf(':');
            int path = NAMES.indexOf(word.substring(0, colon));
            if (path < 0) {
                throw new IllegalArgumentException("no path " + word);
            }
            for (int i = 0; i < Integer.parseInt(word.substring(colon + 1)); i++) {
                places.add(path);
            }
        }
        return places.stream().mapToInt(i -> i).toArray();
    }

    private static boolean hasVirtualThreads() {
        return Runtime.version().feature() >= 21;
    }

    private static void learn(String[] args, PrintStream out) throws Exception {
        long rounds = Long.parseLong(args[0]);
        CallerControl.learn(true);
        for (boolean isVirtual : hasVirtualThreads() ? new boolean[] {false, true} : new boolean[] {false}) {
            int[] wheel = wheelOfAll();
            thread(isVirtual, wheel, rounds * wheel.length, 60_000, null).join();
        }
        CallerControl.learn(false);
        succeed();
    }

    /** Called by the natives while they learn. */
    static void learned(int path) {
        StringBuilder frames = new StringBuilder();
        StackTraceElement[] trace = new Throwable().getStackTrace();
        String method = trace[1].getMethodName();
        for (int i = 1; i < trace.length; i++) {
            StackTraceElement frame = trace[i];
            frames.append("at ").append(frame.getClassName()).append(' ').append(frame.getMethodName()).append(' ');
            frames.append(frame.getLineNumber()).append('\n');
        }
        synchronized (STACKS) {
            STACKS.computeIfAbsent(method + " " + path, key -> new LinkedHashSet<>()).add(frames.toString());
        }
    }

    private static void go(String[] args, PrintStream out) throws Exception {
        start(args, out);
        join();
    }

    /**
     * Every fourth thread is a virtual one if there are such and paths are not chosen. With {@code virtual} each is, and no
     * class passes.
     */
    private static void start(String[] args, PrintStream out) throws Exception {
        boolean areVirtual = args[0].equals("virtual");
        boolean isAll = areVirtual || args[0].equals("all");
        for (int i = 0; i < Integer.parseInt(args[1]); i++) {
            boolean isVirtual = hasVirtualThreads() && isAll && (areVirtual || i % 4 == 3);
            int[] wheel = areVirtual ? wheelOfLasting() : isAll ? wheelOfAll() : wheel(args[0]);
            GOING.add(thread(isVirtual, wheel, Long.parseLong(args[2]), Long.parseLong(args[3]), new Random(i)));
        }
    }

    private static void join() throws Exception {
        for (Thread thread : GOING) {
            thread.join();
        }
        GOING.clear();
        succeed();
    }

    /** Makes garbage, code and classes that are soon forgotten, until the process ends. */
    private static void churn(String[] args, PrintStream out) {
        int collectAfter = Integer.parseInt(args[0]);
        background("churn", turn -> {
            CallerPaths.make();
            if (turn % collectAfter == 0) {
                System.gc();
            }
        });
    }

    /** Makes garbage and has it collected, until the process ends. */
    private static void collect(String[] args, PrintStream out) {
        int collectAfter = Integer.parseInt(args[0]);
        background("collect", turn -> {
            GARBAGE[turn & GARBAGE.length - 1] = new byte[1000];
            if (turn % collectAfter == 0) {
                System.gc();
            }
        });
    }

    private static void background(String name, IntConsumer turn) {
        Thread thread = new Thread(() -> {
            for (int i = 1;; i++) {
                turn.accept(i);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void succeed() {
        if (failure != null) {
            throw new IllegalStateException("a path failed", failure);
        }
    }

    private static void truth(String[] args, PrintStream out) {
        StringBuilder text = new StringBuilder();
        String[] natives = CallerNatives.NAMES;
        for (int at = 0; at < natives.length; at++) {
            for (int path = 0; path < PATHS.size(); path++) {
                long[] counted = CallerControl.counted(at, path);
                if (counted[0] == 0) {
                    continue;
                }
                text.append("path ").append(NAMES.get(path)).append(' ').append(natives[at]);
                text.append(' ').append(counted[0]).append(' ').append(counted[1]).append(' ').append(counted[2]);
                text.append('\n');
                for (String stack : STACKS.getOrDefault(natives[at] + " " + path, Set.of())) {
                    text.append("stack\n").append(stack);
                }
            }
        }
        out.print(text);
    }
}
