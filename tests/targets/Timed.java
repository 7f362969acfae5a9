package targets;

/** Natives that time themselves with CLOCK_MONOTONIC, from their first statement to their last. */
final class Timed {
    /** Sleeps until {@code nanos} have passed. */
    static native void sleep(long nanos);

    /** Computes; about a nanosecond per iteration. */
    static native long work(long iterations);

    /** What the natives have measured so far: total and longest of sleep, total and longest of work, in ns. */
    static native long[] measured();

    /** Sets {@link #measured} back to zero. */
    static native void reset();
}
