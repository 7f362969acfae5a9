package targets;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Map;
import java.util.Random;

/** Has the C library sort numbers, by a downcall, with a comparison in Java, by upcalls. */
@SuppressWarnings("restricted")
final class Upcalls {
    private static final int NUMBERS = 1 << 14;
    private static final MemoryLayout POINTER =
            ValueLayout.ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(1, ValueLayout.JAVA_INT));

    private Upcalls() {}

    /** Answers {@code sort ROUNDS}. */
    public static void main(String[] args) throws Exception {
        MethodHandle sort = sort();
        MemorySegment comparison = comparison();
        MemorySegment numbers = Arena.global().allocate(ValueLayout.JAVA_INT, NUMBERS);
        Target.serve(Map.of("sort", (words, out) -> {
            for (int round = 0; round < Integer.parseInt(words[0]); round++) {
                fill(numbers, round);
                sorted(sort, numbers, comparison);
            }
        }));
    }

    private static void fill(MemorySegment numbers, int seed) {
        Random random = new Random(seed);
        for (int i = 0; i < NUMBERS; i++) {
            numbers.setAtIndex(ValueLayout.JAVA_INT, i, random.nextInt());
        }
    }

    private static void sorted(MethodHandle sort, MemorySegment numbers, MemorySegment comparison) {
        try {
            sort.invokeExact(numbers, (long) NUMBERS, 4L, comparison);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    static int compare(MemorySegment a, MemorySegment b) {
        return Integer.compare(a.get(ValueLayout.JAVA_INT, 0), b.get(ValueLayout.JAVA_INT, 0));
    }

    private static MethodHandle sort() {
        Linker linker = Linker.nativeLinker();
        return linker.downcallHandle(
                linker.defaultLookup().find("qsort").orElseThrow(),
                FunctionDescriptor.ofVoid(
                        ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS));
    }

    private static MemorySegment comparison() throws ReflectiveOperationException {
        MethodType type = MethodType.methodType(int.class, MemorySegment.class, MemorySegment.class);
        MethodHandle compare = MethodHandles.lookup().findStatic(Upcalls.class, "compare", type);
        FunctionDescriptor descriptor = FunctionDescriptor.of(ValueLayout.JAVA_INT, POINTER, POINTER);
        return Linker.nativeLinker().upcallStub(compare, descriptor, Arena.global());
    }
}
