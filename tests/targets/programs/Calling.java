package targets;

import java.lang.reflect.Method;
import java.util.function.Supplier;

/** Calls of every kind, for the search of what a method may call. */
public final class Calling {
    /** Something with two implementations, one of them inherited from a class that does not know of it. */
    interface Worker {
        int work(int depth);

        default int rest() {
            return leaf();
        }
    }

    /** Does not name the interface. */
    static class Plain {
        public int work(int depth) {
            return deeper(depth);
        }
    }

    /** Inherits what the interface asks for. */
    static final class Inheriting extends Plain implements Worker {}

    /** Implements it. */
    static class Own implements Worker {
        @Override
        public int work(int depth) {
            return depth + rest();
        }
    }

    private Calling() {}

    static int entry(Worker worker) throws ReflectiveOperationException {
        int sum = worker.work(1);
        Supplier<Integer> made = () -> leaf() + 1;
        Supplier<Worker> reference = Own::new;
        sum += made.get() + reference.get().rest();
        Method method = Calling.class.getDeclaredMethod("leaf");
        sum += (Integer) method.invoke(null);
        System.arraycopy(new int[1], 0, new int[1], 0, 1);
        sum += worker.hashCode();
        return sum + entry(sum);
    }

    private static int entry(int depth) {
        return depth < 0 ? entry(depth + 1) : deeper(depth);
    }

    private static int deeper(int depth) {
        return deepest(depth);
    }

    private static int deepest(int depth) {
        return leaf() + depth;
    }

    static int leaf() {
        return 1;
    }

    public static void main(String[] args) {}
}
