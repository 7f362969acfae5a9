package targets;

import java.util.Map;

/** Calls a native from the bottom of a stack, so many times a second. */
public final class Deep {
    private Deep() {}

    public static void main(String[] args) throws Exception {
        Target.serve(Map.of(
                "calls", (a, out) -> out.println(
                        "called " + calls(Integer.parseInt(a[0]), Integer.parseInt(a[1]), Double.parseDouble(a[2])))));
    }

    /** Makes some calls every millisecond, for some seconds. */
    private static long calls(int depth, int perMillisecond, double seconds) throws InterruptedException {
        long calls = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            for (int i = 0; i < perMillisecond; i++) {
                down(depth);
                calls++;
            }
            Thread.sleep(1);
        }
        return calls;
    }

    private static long down(int depth) {
        return depth == 0 ? Runtime.getRuntime().freeMemory() : down(depth - 1) + 1;
    }
}
