package targets;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Has classes changed by whoever reads its output: of the JDK ({@code jdk PART PARTS}, one of so many parts), or of all jars in a directory
 * ({@code jars DIRECTORY}). A class is changed soon after it is loaded: with each that changes some VMs go through all that are loaded.
 *
 * <p>It writes {@code C}, and a class file with its length in front, as the VM has it; and reads the new one, or nothing. {@code E} and a text is a class that
 * the VM did not take, {@code S} how many classes it took, and how many could not be loaded without their
 * neighbours, or retransformed as they are.
 */
public final class Transformed implements ClassFileTransformer {
    private static final int TOGETHER = 500;
    private static final String SUFFIX = ".class";

    private static Instrumentation instrumentation;

    private final DataOutputStream out =
            new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 20));
    private final DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(FileDescriptor.in), 1 << 20));
    private final List<Class<?>> classes = new ArrayList<>();
    private int taken;
    private int unusable;
    private boolean leaves;

    public static void premain(String arguments, Instrumentation given) {
        instrumentation = given;
    }

    public static void main(String[] args) throws Exception {
        Transformed transformed = new Transformed();
        if (args[0].equals("jdk")) {
            transformed.loadJdk(Integer.parseInt(args[1]), Integer.parseInt(args[2]));
        } else {
            transformed.loadJars(Path.of(args[1]));
        }
        transformed.finish();
    }

    private void finish() throws IOException {
        transformLoaded();
        out.writeByte('S');
        out.writeInt(taken);
        out.writeInt(unusable);
        out.flush();
    }

    private void transformLoaded() throws IOException {
        instrumentation.addTransformer(this, true);
        taken += transform(classes);
        instrumentation.removeTransformer(this);
        classes.clear();
    }

    /** Those that the VM refuses are found by halves. */
    private int transform(List<Class<?>> some) throws IOException {
        try {
            instrumentation.retransformClasses(some.toArray(new Class<?>[0]));
            return some.size();
        } catch (UncheckedIOException e) {
            throw e.getCause();
        } catch (Exception | LinkageError | InternalError e) {
            if (some.size() == 1 && isRefusedAsItIs(some.get(0))) {
                unusable++;
                return 0;
            }
            if (some.size() == 1) {
                out.writeByte('E');
                out.writeUTF(some.get(0).getName() + ": " + shortened(e.toString()));
                return 0;
            }
            int half = some.size() / 2;
            return transform(some.subList(0, half)) + transform(some.subList(half, some.size()));
        }
    }

    /** Whether the VM does not even take a class unchanged: events of JFR, which it writes itself. */
    private boolean isRefusedAsItIs(Class<?> some) {
        leaves = true;
        try {
            instrumentation.retransformClasses(some);
            return false;
        } catch (Exception | LinkageError | InternalError e) {
            return true;
        } finally {
            leaves = false;
        }
    }

    private static String shortened(String text) {
        return text.substring(0, Math.min(text.length(), 2_000));
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> changed, ProtectionDomain domain, byte[] file) {
        if (changed == null || leaves) {
            return null;
        }
        try {
            out.writeByte('C');
            out.writeInt(file.length);
            out.write(file);
            out.flush();
            byte[] answer = in.readNBytes(in.readInt());
            return answer.length == 0 ? null : answer;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void loadJdk(int part, int parts) throws IOException {
        Path modules = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules");
        List<Path> all;
        // To the end first: whoever walks is among the classes that change.
        try (Stream<Path> files = Files.walk(modules)) {
            all = files.filter(file -> file.getNameCount() > 2 && isClass(file.toString())).collect(Collectors.toList());
        }
        ModuleLayer boot = ModuleLayer.boot();
        for (Path file : all.subList(all.size() * part / parts, all.size() * (part + 1) / parts)) {
            String name = className(file.subpath(2, file.getNameCount()).toString());
            boot.findModule(file.getName(1).toString()).ifPresent(module -> use(name, n -> add(Class.forName(module, n))));
            transformIfMany();
        }
    }

    private void loadJars(Path directory) throws IOException {
        Set<Path> jars = new TreeSet<>();
        try (Stream<Path> files = Files.list(directory)) {
            for (Path file : files.filter(file -> file.toString().endsWith(".jar")).collect(Collectors.toList())) {
                jars.add(file.toRealPath());
            }
        }
        List<URL> urls = new ArrayList<>();
        for (Path jar : jars) {
            urls.add(jar.toUri().toURL());
        }
        ClassLoader loader = new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        for (Path path : jars) {
            List<String> names;
            try (JarFile jar = new JarFile(path.toFile())) {
                names = jar.stream().map(entry -> entry.getName()).filter(name -> isClass(name) && !name.startsWith("META-INF/"))
                        .map(Transformed::className).collect(Collectors.toList());
            }
            for (String file : names) {
                use(file, name -> add(Class.forName(name, false, loader)));
                transformIfMany();
            }
        }
    }

    private void transformIfMany() throws IOException {
        if (classes.size() == TOGETHER) {
            transformLoaded();
        }
    }

    private static boolean isClass(String file) {
        return file.endsWith(SUFFIX) && !file.endsWith("module-info.class");
    }

    private static String className(String file) {
        return file.substring(0, file.length() - SUFFIX.length()).replace('/', '.');
    }

    /** What may not work with a class. */
    private interface Use {
        void with(String name) throws ClassNotFoundException;
    }

    private void use(String name, Use use) {
        try {
            use.with(name);
        } catch (ClassNotFoundException | LinkageError e) {
            unusable++;
        }
    }

    private void add(Class<?> loaded) {
        // This links it, which is when it is verified as it is.
        Consumer<Class<?>> link = Class::getDeclaredMethods;
        link.accept(loaded);
        if (instrumentation.isModifiableClass(loaded)) {
            classes.add(loaded);
        }
    }
}
