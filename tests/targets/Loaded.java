package targets;

import java.net.URI;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** Has as many classes as a large program: those of the JDK, loaded and linked. */
public final class Loaded {
    private Loaded() {}

    private static final List<Class<?>> CLASSES = new ArrayList<>();

    private static void load(int most) throws Exception {
        FileSystem modules = FileSystems.getFileSystem(URI.create("jrt:/"));
        try (Stream<Path> files = Files.walk(modules.getPath("/modules"))) {
            Iterator<Path> classes = files.filter(file -> file.toString().endsWith(".class")).iterator();
            while (CLASSES.size() < most && classes.hasNext()) {
                Path file = classes.next();
                String name = file.subpath(2, file.getNameCount()).toString().replace('/', '.');
                load(name.substring(0, name.length() - ".class".length()));
            }
        }
    }

    /** Naming its methods links a class, without running any of its code. */
    private static void load(String name) {
        try {
            Class<?> loaded = Class.forName(name, false, ClassLoader.getSystemClassLoader());
            loaded.getDeclaredMethods();
            CLASSES.add(loaded);
        } catch (ClassNotFoundException | LinkageError notHere) {
            // Of a module that is not part of this JVM, or in need of one.
        }
    }

    public static void main(String[] args) throws Exception {
        Target.serve(Map.of("load", (a, out) -> {
            load(Integer.parseInt(a[0]));
            out.println(CLASSES.size());
        }));
    }
}
