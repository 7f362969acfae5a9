package targets;

/** A native that stays inside until it is told to leave. */
final class Blocking {
    static native void block();

    /** Waits until as many threads are inside {@link #block}. */
    static native void awaitInside(int threads);

    /** Lets all threads leave that are inside. */
    static native void release();
}
