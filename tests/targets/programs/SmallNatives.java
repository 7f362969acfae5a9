package targets;

/** An empty native in a loop with some work: two million calls a second. */
final class SmallNatives {
    private static final int CALLS = 1_000;

    private long state = 1;

    private SmallNatives() {}

    /** {@code LIBRARY}: the one with the natives of {@link Many}. */
    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Program.run(1, () -> new SmallNatives()::operate);
    }

    private void operate() {
        for (int call = 0; call < CALLS; call++) {
            work();
            Many.m0();
        }
    }

    /** Some hundred nanoseconds. */
    private void work() {
        long x = state;
        for (int i = 0; i < 150; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        state = x;
    }
}
