package targets;

/** Holds a nested class: the dollar sign is escaped in its JNI names. */
final class Outer {
    static final class Inner {
        static native int inner(int value);
    }
}
