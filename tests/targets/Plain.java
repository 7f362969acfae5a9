package targets;

/** Natives bound by their exported names: static, instance, overloaded, and with arguments on the stack. */
final class Plain {
    static native int add(int a, int b);

    native long twice(long value);

    static native int over(int value);

    static native long over(long value);

    static native int over(String text, int[] values);

    static native double many(
            int a, long b, float c, double d, byte e, short f, char g, boolean h,
            int i, long j, float k, double l, Object m, int n);
}
