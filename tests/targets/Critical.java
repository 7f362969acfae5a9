package targets;

import java.io.PrintStream;
import java.util.Map;

/** Calls a native that has a critical function too. */
public final class Critical {
    private static final int[] VALUES = {1, 2, 3};

    private Critical() {}

    private static native int sum(int first, int[] values);

    /** How often the native's ordinary function was called, or its critical one. */
    private static native long counted(boolean critical);

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Target.serve(Map.of("sum", (a, out) -> sum(Integer.parseInt(a[0]), out)));
    }

    /** {@code CALLS}: makes so many, and prints how many reached each of the functions. */
    private static void sum(int calls, PrintStream out) {
        long ordinary = counted(false);
        long critical = counted(true);
        for (int i = 0; i < calls; i++) {
            if (sum(i, VALUES) != i + 6) {
                throw new AssertionError("a wrong sum");
            }
        }
        out.println("counted " + (counted(false) - ordinary) + " " + (counted(true) - critical));
    }
}
