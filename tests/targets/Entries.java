package targets;

/** Natives written in assembler, so that their first instructions are what their names say. */
final class Entries {
    static native int pushFirst();

    static native int movFirst();

    static native int movThenPush();

    static native int movThenLoop();

    static native int testThenBranch(boolean branch);

    static native int endbrFirst();

    static native int subThenCall();

    static native int lockFirst();
}
