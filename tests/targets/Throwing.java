package targets;

/** Natives that are left with an exception pending. */
final class Throwing {
    /** Throws the exception itself. */
    static native void thrown();

    /** Calls {@link #fail} and returns with its exception. */
    static native void pending();

    /** Called by the native. */
    static void fail() {
        throw new IllegalStateException("raised in a callback");
    }
}
