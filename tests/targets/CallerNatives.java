package targets;

/** The natives that are called by {@link Callers}: each counts its calls by path, and may tell the stack that it has. */
class CallerNatives {
    /** In the order of the C code's counters. */
    static final String[] NAMES = {"tick", "own", "many", "locked", "raise", "callBack", "work", "passing"};

    private long value = 1;

    /** As short as a native can be. */
    static native int tick(int path);

    /** A method of an object. */
    final native int own(int path);

    /** Arguments on the stack. */
    static native double many(int path, long a, float b, double c, int d, long e, float f, double g, int h, long i);

    /** One thread at a time. */
    static synchronized native int locked(int path);

    /** Ends with an exception. */
    static native void raise(int path);

    /** Calls {@code callback.run()}. */
    static native void callBack(int path, Runnable callback);

    /**
     * Computes for so many rounds in {@code churn_cpu}, or in {@code churn_blindly} if they are negative, then sleeps for so
     * many nanoseconds in {@code take_a_nap}.
     */
    static native void work(int path, long rounds, long nanos);

    long value() {
        return value++;
    }
}
