package targets;

import java.io.PrintStream;
import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** The target for natives that appear while it is traced: a library loaded late, and classes that come and go. */
final class LateLibrary {
    private static final long UNLOAD_TIMEOUT_NANOS = 20_000_000_000L;

    private static URLClassLoader loader;
    private static Method guest;

    static native int late(int value);

    private LateLibrary() {}

    /** Arguments: the late library, the directory of the guest's class, the guest's library. */
    public static void main(String[] args) throws Exception {
        Target.serve(Map.of(
                "load", (a, out) -> System.load(args[0]),
                "late", (a, out) -> callLate(Integer.parseInt(a[0]), out),
                "welcome", (a, out) -> welcome(Path.of(args[1]), args[2]),
                "guest", (a, out) -> callGuest(Integer.parseInt(a[0]), out),
                "dismiss", (a, out) -> dismiss(args[2])));
    }

    private static void callLate(int times, PrintStream out) {
        for (int i = 0; i < times; i++) {
            late(i);
        }
        out.println("made targets.LateLibrary late (I)I " + times + " 0 " + times);
    }

    /** Loads the guest's class and library by a class loader of their own. */
    private static void welcome(Path classes, String library) throws Exception {
        loader = new URLClassLoader(new URL[] {classes.toUri().toURL()}, null);
        guest = loader.loadClass("guests.Guest").getMethod("call", int.class);
        loader.loadClass("guests.Guest").getMethod("load", String.class).invoke(null, library);
    }

    private static void callGuest(int times, PrintStream out) throws Exception {
        guest.invoke(null, times);
        out.println("made guests.Guest visit ()V " + times + " 1 " + times);
    }

    /**
     * Drops the class loader and returns when the VM has unmapped its library. That happens some time after the
     * loader was collected, and nothing tells.
     */
    private static void dismiss(String library) throws Exception {
        ReferenceQueue<Object> collected = new ReferenceQueue<>();
        PhantomReference<Object> ghost = new PhantomReference<>(loader, collected);
        loader.close();
        loader = null;
        guest = null;
        long deadline = System.nanoTime() + UNLOAD_TIMEOUT_NANOS;
        while (Files.readString(Path.of("/proc/self/maps")).contains(library)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(library + " is still mapped; " + ghost);
            }
            System.gc();
            collected.remove(100);
        }
    }
}
