package targets;

/** Names that JNI escapes: letters beyond ASCII, one beyond 16 bits, underscores, and a digit that looks escaped. */
final class Été {
    static native int under_score();

    static native int _1();

    static native int compté();

    static native int 日本();

    static native int 𝒳();
}
