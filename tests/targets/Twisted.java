package targets;

import java.util.Map;

/** The target that binds a native into the middle of an instruction of a library that others use too. */
final class Twisted {
    static native void bind(boolean twist);

    static native int value();

    static native int twisted();

    /** Has the process run another program. */
    static native void become();

    private Twisted() {}

    /** Arguments: the library, and {@code twist} to bind what ought not to be bound. */
    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        bind(args.length > 1 && args[1].equals("twist"));
        Target.serve(Map.of(
                "value", (a, out) -> out.println(Integer.toHexString(value())),
                "become", (a, out) -> become()));
    }
}
