package targets;

import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import java.util.function.IntConsumer;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;

/** The paths of {@link Callers}: every way in which Java code can come to call a native. */
public final class CallerPaths extends CallerNatives {
    private static final int[] DEPTHS = {5, 17, 40, 90, 150, 220, 300};
    private static final Object LOCK = new Object();
    private static volatile int kept;
    /** The path that initializers are to count by; negative for none. */
    private static int initializing = -1;

    private CallerPaths() {}

    static void addTo(BiConsumer<String, Callers.Path> add) throws Exception {
        CallerPaths self = new CallerPaths();
        Step[] steps = {CallerPaths::left, CallerPaths::right, new Middle()};
        add.accept("direct", CallerNatives::tick);
        add.accept("own", self::viaValue);
        add.accept("many", path -> many(path, 1, 2, 3, 4, 5, 6, 7, 8, 9));
        add.accept("locked", CallerNatives::locked);
        add.accept("lockedTwice", CallerPaths::lockedTwice);
        add.accept("synchronized", self::inSynchronized);
        add.accept("raise", CallerPaths::caught);
        add.accept("handler", CallerPaths::inHandler);
        add.accept("finally", CallerPaths::inFinally);
        add.accept("inlined", path -> kept = a(path, 3));
        add.accept("lambda", path -> apply(x -> apply(y -> tick(y), x), path));
        add.accept("stream", path -> IntStream.range(0, 3).filter(x -> x == 2).forEach(x -> tick(path)));
        add.accept("megamorphic", path -> steps[path % 2].go(path, 9, steps));
        add.accept("computed", path -> new HashMap<Integer, Integer>().computeIfAbsent(path, x -> a(x, 1)));
        add.accept("sorted", CallerPaths::sorted);
        add.accept("callBack", path -> callBack(path, () -> tick(path)));
        add.accept("callBackTwice", path -> callBack(path, () -> callBack(path, () -> a(path, 2))));
        add.accept("callBackWork", path -> callBack(path, () -> work(path, 20_000, 0)));
        add.accept("loop", CallerPaths::loop);
        add.accept("constructor", path -> kept = new Calling(path).value);
        addHandles(add);
        addYielding(add);
        for (int depth : DEPTHS) {
            add.accept("recursion" + depth, path -> kept = recurse(depth, path));
            add.accept("mutual" + depth, path -> kept = even(depth, path));
        }
        addTimed(add);
        add.accept("passing", path -> passing(path, -1));
        add.accept("initializer", path -> passing(path, path));
    }

    /** Reflection and method handles. */
    private static void addHandles(BiConsumer<String, Callers.Path> add) throws Exception {
        Method tick = CallerNatives.class.getDeclaredMethod("tick", int.class);
        Method recurse = CallerPaths.class.getDeclaredMethod("recurse", int.class, int.class);
        MethodType type = MethodType.methodType(int.class, int.class);
        MethodHandle handle = MethodHandles.lookup().findStatic(CallerNatives.class, "tick", type);
        add.accept("reflection", path -> tick.invoke(null, path));
        add.accept("reflectionTwice", path -> recurse.invoke(null, 3, path));
        add.accept("handle", path -> kept = (int) handle.invokeExact(path));
        add.accept("handleGeneric", path -> kept = (Integer) handle.invokeWithArguments(path));
    }

    /** In a virtual thread, the frames below are in the heap when the native is called. */
    private static void addYielding(BiConsumer<String, Callers.Path> add) {
        add.accept("yielded", path -> kept = yieldBelow(path, 4));
        add.accept("yieldedAtOnce", path -> kept = yieldBelow(path, 0));
        add.accept("yieldedDeep", path -> kept = yieldBelow(path, 60));
        add.accept("yieldedOften", path -> kept = yieldOften(path, 5));
        add.accept("yieldedInLambda", path -> IntStream.of(path, path).forEach(it -> kept = yieldBelow(it, 2)));
        add.accept("yieldedCallback", path -> callBack(path, () -> kept = yieldBelow(path, 3)));
        add.accept("slept", path -> sleepBelow(path, 6));
    }

    private static int yieldBelow(int path, int depth) {
        if (depth > 0) {
            return yieldBelow(path, depth - 1) + 1;
        }
        Thread.yield();
        return tick(path);
    }

    /** What is frozen the next time does not fit where it was frozen before. */
    private static int yieldOften(int path, int depth) {
        Thread.yield();
        return depth > 0 ? yieldOften(path, depth - 1) + tick(path) : tick(path);
    }

    private static void sleepBelow(int path, int depth) throws InterruptedException {
        if (depth > 0) {
            sleepBelow(path, depth - 1);
        } else {
            Thread.sleep(1);
        }
        kept = tick(path);
    }

    /** For sums of time: each path with a line, and so with a stack, of its own. */
    private static void addTimed(BiConsumer<String, Callers.Path> add) {
        add.accept("spin1", path -> work(path, 20_000, 0));
        add.accept("spin4", path -> work(path, 80_000, 0));
        add.accept("spin16", path -> work(path, 320_000, 0));
        add.accept("blind", path -> work(path, -300_000, 0));
        add.accept("nap1", path -> work(path, 0, 500_000));
        add.accept("nap4", path -> work(path, 0, 2_000_000));
        add.accept("both", path -> work(path, 500_000, 1_000_000));
        add.accept("rare", path -> tick(path));
        add.accept("some", path -> tick(path));
        add.accept("often", path -> tick(path));
        add.accept("seldom", path -> locked(path));
        add.accept("java1", path -> kept = compute(200_000));
        add.accept("java3", path -> kept = compute(600_000));
        add.accept("outer", path -> callBack(path, () -> work(path, 100_000, 0)));
        add.accept("outerNap", path -> callBack(path, () -> work(path, 0, 1_000_000)));
        add.accept("deaf", path -> callBack(path, () -> kept++));
    }

    private void viaValue(int path) {
        kept = own(path) + (int) value();
    }

    private static void lockedTwice(int path) {
        synchronized (CallerNatives.class) {
            kept = locked(path);
        }
    }

    private synchronized int inSynchronized(int path) {
        synchronized (LOCK) {
            return tick(path);
        }
    }

    private static void caught(int path) {
        try {
            raise(path);
        } catch (IllegalStateException e) {
            kept++;
        }
    }

    private static void inHandler(int path) {
        try {
            thrower(path, 3);
        } catch (IllegalArgumentException e) {
            kept = a(path, 2);
        }
    }

    private static void thrower(int path, int depth) {
        if (depth == 0) {
            throw new IllegalArgumentException();
        }
        thrower(path, depth - 1);
    }

    private static void inFinally(int path) {
        try {
            kept++;
        } finally {
            kept = tick(path);
        }
    }

    private static int a(int path, int x) {
        return b(path, x + 1)
            + 1;
    }

    private static int b(int path, int x) {
        int y = x * 3;
        return c(path, y) + y;
    }

    private static int c(int path, int x) {
        return x < 0 ? 0 : tick(
            path) + x;
    }

    private static int apply(IntUnaryOperator operator, int x) {
        return operator.applyAsInt(x);
    }

    private interface Step {
        int go(int path, int left, Step[] all);
    }

    private static int left(int path, int left, Step[] all) {
        return left == 0 ? tick(path) : all[left % 3].go(path, left - 1, all) + 1;
    }

    private static int right(int path, int left, Step[] all) {
        return left == 0 ? tick(path) : all[left % 3].go(path, left - 1, all) + 2;
    }

    private static final class Middle implements Step {
        @Override
        public int go(int path, int left, Step[] all) {
            return left == 0 ? tick(path) : all[left % 3].go(path, left - 1, all) + 3;
        }
    }

    private static void sorted(int path) {
        Integer[] numbers = {5, 3, 9, 1, 7, 2};
        Arrays.sort(numbers, (x, y) -> x == 7 || y == 7 && x == 2 ? Integer.compare(x, y) + 0 * tick(path) : x - y);
        TreeMap<Integer, Integer> tree = new TreeMap<>((x, y) -> y == 3 && x == 3 ? tick(path) : x - y);
        for (int i = 0; i < 5; i++) {
            tree.put(i, i);
        }
        tree.put(3, 0);
    }

    /** Long enough to be compiled while it runs. */
    private static void loop(int path) {
        int sum = 0;
        for (int i = 0; i < 20_000; i++) {
            sum += i ^ (sum << 1);
            if (i % 4_000 == 3_999) {
                sum += tick(path);
            }
        }
        kept = sum;
    }

    private static final class Calling {
        private final int value;

        Calling(int path) {
            value = tick(path);
        }
    }

    static int recurse(int depth, int path) {
        return depth == 0 ? tick(path) : recurse(depth - 1, path) + 1;
    }

    private static int even(int depth, int path) {
        return depth == 0 ? tick(path) : odd(depth - 1, path) - 1;
    }

    private static int odd(int depth, int path) {
        return depth == 0 ? tick(path) : even(depth - 1, path) + 1;
    }

    private static int compute(int rounds) {
        int sum = kept;
        for (int i = 0; i < rounds; i++) {
            // Nothing that a compiler could do in fewer steps.
            sum ^= sum << 13;
            sum ^= sum >>> 17;
            sum ^= (sum << 5) | 1;
        }
        return sum;
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass("targets.Passing", bytes, 0, bytes.length);
        }
    }

    /** Goes through a class that did not exist before and will not afterwards. */
    private static void passing(int path, int initializer) throws Exception {
        IntConsumer passing;
        synchronized (Loader.class) {
            initializing = initializer;
            passing = fresh();
        }
        if (initializer < 0) {
            passing.accept(path);
        }
    }

    /** Called by the initializer of such a class, which is in another package as far as the VM is concerned. */
    public static void initialized(Class<?> passing) {
        if (initializing >= 0) {
            tick(initializing);
        }
        CallerControl.bind(passing);
    }

    private static IntConsumer fresh() throws Exception {
        byte[] bytes;
        try (InputStream file = CallerPaths.class.getResourceAsStream("Passing.class")) {
            bytes = file.readAllBytes();
        }
        return (IntConsumer) new Loader().define(bytes).getConstructor().newInstance();
    }

    /** Uses such a class without a call to a native, and leaves garbage. */
    static void make() {
        try {
            synchronized (Loader.class) {
                initializing = -1;
                kept += fresh().hashCode();
            }
            byte[][] garbage = new byte[200][];
            for (int i = 0; i < garbage.length; i++) {
                garbage[i] = new byte[1_000];
            }
            kept += garbage[kept & 63].length;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
