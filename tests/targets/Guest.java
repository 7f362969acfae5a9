package guests;

/** A class that is loaded and unloaded by {@code targets.LateLibrary}, together with its library. */
public final class Guest {
    static native void visit();

    private Guest() {}

    public static void load(String library) {
        System.load(library);
    }

    public static void call(int times) {
        for (int i = 0; i < times; i++) {
            visit();
        }
    }
}
