package targets;

/** A thread that ends inside a native, with Java and native frames on its stack. */
final class Dying {
    /** Starts one native thread that attaches itself, calls {@link #inside}, and waits for its end. */
    static native void spawn();

    /** Never returns: ends the thread. */
    static native void die();

    /** Called by the native thread. */
    static void inside() {
        die();
    }
}
