package targets;

import java.util.function.IntConsumer;

/** Loaded again and again, each time by another loader that is soon forgotten, with a native of its own. */
public final class Passing implements IntConsumer {
    static {
        CallerPaths.initialized(Passing.class);
    }

    static native int passing(int path);

    @Override
    public void accept(int path) {
        IntConsumer deeper = x -> deeper(x, 4);
        deeper.accept(path);
    }

    private int deeper(int path, int depth) {
        return depth == 0 ? passing(path) : deeper(path, depth - 1) + 1;
    }
}
