package targets;

/** A native function that is left by longjmp: its return is never executed. */
final class Jumping {
    /** Calls the C function of {@link #inner} directly, which jumps back. */
    static native int outer();

    static native void inner();
}
