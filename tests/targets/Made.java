package targets;

/** A native whose code is made at run time, as that of some libraries' callbacks is: no file holds it. */
final class Made {
    /** Makes the code of {@link #made} and binds it. */
    static native void make();

    static native int made();
}
