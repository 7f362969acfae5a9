package targets;

/** What {@link Callers} needs of C beside the natives that it is about. */
final class CallerControl {
    private CallerControl() {}

    /** Whether the natives tell their stacks. */
    static native void learn(boolean learning);

    /** Calls since the last time, and of {@code work} the wall-clock and CPU time that it took, in nanoseconds. */
    static native long[] counted(int method, int path);

    /** Adds the CPU time of this thread to a sum, or reports that and starts over. */
    static native long cpu(boolean tell);

    /** Binds the native of a {@link Passing}, whoever has loaded it. */
    static native void bind(Class<?> passing);
}
