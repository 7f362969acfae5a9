package targets;

/** Natives that go on to other natives' functions, or to their own, without the VM. */
final class Onward {
    static native int leaf();

    /** Calls {@link #leaf}'s function. */
    static native int call();

    /** Jumps to {@link #leaf}'s function. */
    static native int jump();

    /** Calls its own function, so that there are {@code depth} calls in all. */
    static native int again(int depth);
}
