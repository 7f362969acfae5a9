package targets;

import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntConsumer;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** The shapes of the stacks of {@link Stacks}: every way in which Java code can come to call a native. */
final class StackShapes {
    private StackShapes() {}

    static void addTo(Map<String, Stacks.Shape> shapes) throws Exception {
        shapes.put("direct", Stacks::park);
        shapes.put("recursion20", slot -> recurse(20, slot));
        shapes.put("recursion200", slot -> recurse(200, slot));
        shapes.put("recursion1500", slot -> recurse(1500, slot));
        shapes.put("mutual", slot -> even(40, slot));
        shapes.put("inlined", slot -> a(slot, 1));
        shapes.put("callback1", slot -> callBack(1, slot));
        shapes.put("callback3", slot -> callBack(3, slot));
        shapes.put("lambda", slot -> apply(x -> apply(y -> Stacks.park(y), x), slot));
        shapes.put("stream", slot -> IntStream.range(0, 3).map(x -> x + 1).filter(x -> x == 2)
            .forEach(x -> Stacks.park(slot)));
        shapes.put("flatMap", slot -> Stream.of(1, 2).flatMap(x -> Stream.of(x, x)).limit(1)
            .forEach(x -> Stacks.park(slot)));
        Method park = Stacks.class.getDeclaredMethod("park", int.class);
        shapes.put("reflection", slot -> park.invoke(null, slot));
        Method viaReflection = StackShapes.class.getDeclaredMethod("recurse", int.class, int.class);
        shapes.put("reflection2", slot -> viaReflection.invoke(null, 3, slot));
        MethodHandle handle = MethodHandles.lookup()
            .findStatic(Stacks.class, "park", MethodType.methodType(int.class, int.class));
        shapes.put("handle", slot -> handle.invoke(slot));
        shapes.put("handleGeneric", slot -> handle.invokeWithArguments(slot));
        shapes.put("synchronizedMethod", slot -> new Locked().park(slot));
        shapes.put("synchronizedBlock", StackShapes::lockAndPark);
        shapes.put("manyArguments", slot -> many(1, 2L, 3f, 4d, 5, 6L, 7f, 8d, 9, 10L, 11f, 12d, slot));
        shapes.put("loop", StackShapes::loop);
        shapes.put("treeMap", StackShapes::treeMap);
        shapes.put("sort", StackShapes::sort);
        shapes.put("interface", StackShapes::megamorphic);
        shapes.put("constructor", slot -> new Parking(slot));
        shapes.put("initializer", StackShapes::computed);
        shapes.put("exception", StackShapes::handler);
        shapes.put("deoptimised", StackShapes::deoptimised);
        if (Runtime.version().feature() >= 22) {
            long upcall = upcall();
            shapes.put("upcall", slot -> Stacks.callPointer(upcall, slot));
        }
        shapes.put("redefined", Redefined::run);
        shapes.put("fresh", slot -> fresh(1, slot));
        shapes.put("virtual", slot -> recurse(5, slot));
        shapes.put("virtualCallback", slot -> callBack(2, slot));
        shapes.put("virtualYielded", slot -> yieldBelow(12, slot));
        shapes.put("virtualYieldedAtOnce", slot -> yieldBelow(0, slot));
        shapes.put("virtualYieldedDeep", slot -> yieldBelow(300, slot));
        shapes.put("virtualYieldedOften", slot -> yieldOften(4, slot));
        shapes.put("virtualYieldedInStream", slot -> IntStream.range(0, 2).map(x -> x + 1).filter(x -> x == 2)
            .forEach(x -> yieldBelow(x, slot)));
        shapes.put("virtualYieldedCallback", slot -> yieldThenCallBack(6, slot));
    }

    /** What has to happen while all wait: a class that compiled code on the stacks has relied not to exist. */
    static void afterParking() {
        if (loaded == 0) {
            loaded = new Second().value();
        }
    }

    static int recurse(int depth, int slot) {
        return depth == 0 ? Stacks.park(slot) : recurse(depth - 1, slot) + 1;
    }

    private static int even(int depth, int slot) {
        return depth == 0 ? Stacks.park(slot) : odd(depth - 1, slot) - 1;
    }

    private static int odd(int depth, int slot) {
        return depth == 0 ? Stacks.park(slot) : even(depth - 1, slot) + 1;
    }

    private static void called(int slot) {
        a(slot, 4);
    }

    /**
     * The address of a C function that calls {@link #called}. Its parts are named by text: the sources are of a release
     * that does not have them.
     */
    private static long upcall() throws ReflectiveOperationException {
        Class<?> linker = Class.forName("java.lang.foreign.Linker");
        Object options = Array.newInstance(Class.forName("java.lang.foreign.Linker$Option"), 0);
        Object arguments = Array.newInstance(Class.forName("java.lang.foreign.MemoryLayout"), 1);
        Class<?> descriptor = Class.forName("java.lang.foreign.FunctionDescriptor");
        Class<?> arena = Class.forName("java.lang.foreign.Arena");
        Array.set(arguments, 0, Class.forName("java.lang.foreign.ValueLayout").getField("JAVA_INT").get(null));
        MethodHandle target = MethodHandles.lookup()
            .findStatic(StackShapes.class, "called", MethodType.methodType(void.class, int.class));
        Object stub = linker.getMethod("upcallStub", MethodHandle.class, descriptor, arena, options.getClass()).invoke(
            linker.getMethod("nativeLinker").invoke(null),
            target,
            descriptor.getMethod("ofVoid", arguments.getClass()).invoke(null, arguments),
            arena.getMethod("global").invoke(null),
            options);
        return (long) Class.forName("java.lang.foreign.MemorySegment").getMethod("address").invoke(stub);
    }

    /** In a virtual thread, the frames below the innermost are in the heap when the native is called. */
    private static int yieldBelow(int depth, int slot) {
        if (depth == 0) {
            Thread.yield();
            return Stacks.park(slot);
        }
        return yieldBelow(depth - 1, slot) + 1;
    }

    /** Yields deeper and deeper, so that what is frozen no longer fits where it was frozen before. */
    private static int yieldOften(int times, int slot) {
        if (times == 0) {
            return yieldBelow(1, slot);
        }
        Thread.yield();
        return descend(25, times, slot) + 1;
    }

    private static int descend(int depth, int times, int slot) {
        return depth == 0 ? yieldOften(times - 1, slot) : descend(depth - 1, times, slot) - 1;
    }

    /** Frames below native ones stay on the stack, those that were frozen before stay in the heap. */
    private static int yieldThenCallBack(int depth, int slot) {
        if (depth > 0) {
            return yieldThenCallBack(depth - 1, slot) + 1;
        }
        Thread.yield();
        callBack(2, slot);
        return 0;
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass("targets.Fresh", bytes, 0, bytes.length);
        }
    }

    /** Runs methods of a class that did not exist before and will not afterwards. */
    static void fresh(int times, int slot) throws Exception {
        byte[] bytes;
        try (InputStream file = StackShapes.class.getResourceAsStream("Fresh.class")) {
            bytes = file.readAllBytes();
        }
        IntUnaryOperator park = Stacks::park;
        Class<?> fresh = new Loader().define(bytes);
        IntConsumer shape = (IntConsumer) fresh.getConstructor(IntUnaryOperator.class).newInstance(park);
        for (int i = 1; i < times; i++) {
            shape.accept(0);
        }
        shape.accept(slot);
    }

    private static int a(int slot, int x) {
        return b(slot, x + 1)
            + 1;
    }

    private static int b(int slot, int x) {
        int y = x * 3;
        return c(slot, y) + y;
    }

    private static int c(int slot, int x) {
        if (x < 0) {
            return 0;
        }

        return Stacks.park(
            slot) + x;
    }

    private static void callBack(int levels, int slot) {
        Stacks.callBack(() -> {
            if (levels == 1) {
                a(slot, 2);
            } else {
                callBack(levels - 1, slot);
            }
        });
    }

    private static int apply(IntUnaryOperator operator, int x) {
        return operator.applyAsInt(x);
    }

    private static final class Locked {
        synchronized int park(int slot) {
            return Stacks.park(slot);
        }
    }

    private static void lockAndPark(int slot) {
        Object lock = new Object();
        synchronized (lock) {
            a(slot, 3);
        }
    }

    private static double many(int a, long b, float c, double d, int e, long f, float g, double h, int i, long j,
                               float k, double l, int slot) {
        return a + b + c + d + e + f + g + h + i + j + k + l + recurse(2, slot);
    }

    /** Compiled while it runs. */
    private static void loop(int slot) {
        int sum = 0;
        int turns = slot == 0 ? 1 : 200_000;
        for (int i = 0; i < turns; i++) {
            sum += i ^ (sum << 1);
            if (i == turns - 1) {
                sum += Stacks.park(slot);
            }
        }
        kept = sum;
    }

    private static void treeMap(int slot) {
        boolean[] once = new boolean[1];
        Comparator<Integer> comparator = (x, y) -> {
            if (!once[0] && x == 7) {
                once[0] = true;
                Stacks.park(slot);
            }
            return Integer.compare(x, y);
        };
        TreeMap<Integer, Integer> map = new TreeMap<>(comparator);
        for (int i = 0; i < 10; i++) {
            map.put(i, i);
        }
    }

    private static void sort(int slot) {
        boolean[] once = new boolean[1];
        Integer[] numbers = {5, 3, 9, 1, 7, 2};
        Arrays.sort(numbers, Comparator.comparing(x -> {
            if (!once[0] && x == 7) {
                once[0] = true;
                Stacks.park(slot);
            }
            return x;
        }));
    }

    private interface Step {
        int go(int slot, int left, Step[] steps);
    }

    private static void megamorphic(int slot) {
        Step[] steps = {
            (s, left, all) -> left == 0 ? Stacks.park(s) : all[left % 3].go(s, left - 1, all),
            (s, left, all) -> left == 0 ? Stacks.park(s) : all[left % 3].go(s, left - 1, all) + 1,
            new Step() {
                @Override
                public int go(int s, int left, Step[] all) {
                    return left == 0 ? Stacks.park(s) : all[left % 3].go(s, left - 1, all) + 2;
                }
            },
        };
        steps[0].go(slot, 12, steps);
    }

    private static final class Parking {
        private final int value;

        Parking(int slot) {
            value = Stacks.park(slot);
            kept = value;
        }
    }

    private static void computed(int slot) {
        Map<Integer, Integer> map = new java.util.HashMap<>();
        map.computeIfAbsent(slot, x -> a(x, 1));
    }

    private static void handler(int slot) {
        try {
            throw new IllegalStateException();
        } catch (IllegalStateException e) {
            recurse(1, slot);
        } finally {
            kept++;
        }
    }

    private abstract static class Base {
        abstract int value();
    }

    private static final class First extends Base {
        @Override
        int value() {
            return 1;
        }
    }

    /** Loaded only by {@link #afterParking}. */
    private static final class Second extends Base {
        @Override
        int value() {
            return 2;
        }
    }

    private static Base base = new First();
    private static int loaded;
    static volatile int kept;

    /** Inlines what only holds as long as {@link First} is the only {@link Base}. */
    private static void deoptimised(int slot) {
        Base here = base;
        kept = here.value() + parkBelow(here, slot);
    }

    private static int parkBelow(Base here, int slot) {
        int before = here.value();
        return before + Stacks.park(slot) + here.value();
    }
}
