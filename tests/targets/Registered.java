package targets;

/** Natives that the library binds itself, to functions that it does not export. */
final class Registered {
    static native int hidden(int value);

    /** Bound to the same function as {@link #secondAlias}. */
    static native int firstAlias();

    static native int secondAlias();
}
