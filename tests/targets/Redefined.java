package targets;

/** Replaced by another version of itself while it waits; see {@code Stacks.redefine}. */
final class Redefined {
    /** Two bytes that the bytecode holds as they are. */
    static final int VERSION = 0x5a17;

    private Redefined() {}

    static int run(int slot) {
        return version(slot, VERSION) - VERSION;
    }

    private static int version(int slot, int version) {
        return Stacks.park(slot) + version;
    }
}
