package targets;

/** Java calls native calls Java calls native, as deep as asked. */
final class Nested {
    /** Calls {@link #step} until the depth is used up: makes {@code depth} native calls in all. */
    static native int descend(int depth);

    /** Called by the native. */
    static int step(int depth) {
        return depth > 0 ? descend(depth) : 0;
    }
}
