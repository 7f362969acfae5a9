package targets;

import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.ref.WeakReference;
import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Hidden classes, each with a loader of the VM's for it alone: as many as it is told to have. */
final class Hidden {
    /** What is defined again and again. */
    static final class Small {
        private Small() {}
    }

    /** The same with a native, which is never bound. */
    static final class WithNative {
        private WithNative() {}

        static native int late();
    }

    /** How often the collector is asked to unload what nobody holds any more. */
    private static final int COLLECTIONS = 50;

    private static List<Class<?>> classes = new ArrayList<>();

    private Hidden() {}

    public static void main(String[] args) throws Exception {
        Target.serve(Map.of(
                "define", (a, out) -> define("Small", Integer.parseInt(a[0])),
                "native", (a, out) -> define("WithNative", 1),
                "drop", (a, out) -> drop()));
    }

    /** Its parts are named by text: the sources are of a release that does not have hidden classes. */
    private static void define(String name, int count) throws IOException, ReflectiveOperationException {
        MethodHandles.Lookup lookup = MethodHandles.lookup();
        Object options = Array.newInstance(Class.forName("java.lang.invoke.MethodHandles$Lookup$ClassOption"), 0);
        Method define = MethodHandles.Lookup.class.getMethod(
                "defineHiddenClass", byte[].class, boolean.class, options.getClass());
        byte[] bytes;
        try (InputStream file = Hidden.class.getResourceAsStream("Hidden$" + name + ".class")) {
            bytes = file.readAllBytes();
        }
        for (int i = 0; i < count; i++) {
            classes.add(((MethodHandles.Lookup) define.invoke(lookup, bytes, true, options)).lookupClass());
        }
    }

    /** Has all of them unloaded. */
    private static void drop() {
        WeakReference<Class<?>> last = new WeakReference<>(classes.get(classes.size() - 1));
        classes = new ArrayList<>();
        for (int i = 0; i < COLLECTIONS && last.get() != null; i++) {
            System.gc();
        }
        if (last.get() != null) {
            throw new IllegalStateException("the classes are still loaded");
        }
    }
}
