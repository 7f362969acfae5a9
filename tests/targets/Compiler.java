package targets;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** A whole application: the Java compiler in process, which compiles a tree of sources as often as it is told to. */
final class Compiler {
    private static final JavaCompiler COMPILER = ToolProvider.getSystemJavaCompiler();

    private final List<Path> sources;
    private final List<String> options;

    private Compiler(List<Path> sources, List<String> options) {
        this.sources = sources;
        this.options = options;
    }

    /** {@code SOURCES CLASSES OPTION...}: a directory to compile, one to write into, and options of the compiler. */
    public static void main(String[] args) throws Exception {
        try (Stream<Path> files = Files.walk(Path.of(args[0]))) {
            List<Path> sources = files.filter(file -> file.toString().endsWith(".java")).collect(Collectors.toList());
            Stream<String> usual = Stream.of("-proc:none", "-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-d", args[1]);
            List<String> options = Stream.concat(usual, Stream.of(args).skip(2)).collect(Collectors.toList());
            Compiler compiler = new Compiler(sources, options);
            Target.serve(Map.of("compile", (a, out) -> compiler.compile(Integer.parseInt(a[0]), out)));
        }
    }

    /** Compiles everything so many times, each time from nothing, as a tool that builds does; prints how long it took. */
    private void compile(int times, PrintStream out) throws IOException {
        long began = System.nanoTime();
        for (int i = 0; i < times; i++) {
            compile();
        }
        out.println("took " + (System.nanoTime() - began));
    }

    private void compile() throws IOException {
        DiagnosticCollector<JavaFileObject> said = new DiagnosticCollector<>();
        try (StandardJavaFileManager files = COMPILER.getStandardFileManager(said, null, StandardCharsets.UTF_8)) {
            Iterable<? extends JavaFileObject> units = files.getJavaFileObjectsFromPaths(sources);
            if (!COMPILER.getTask(null, files, said, options, null, units).call()) {
                throw new IllegalStateException("not compiled: " + errors(said));
            }
        }
    }

    private static String errors(DiagnosticCollector<?> said) {
        Stream<String> errors = said.getDiagnostics().stream()
                .filter(one -> one.getKind() == Diagnostic.Kind.ERROR)
                .map(one -> one.toString().lines().findFirst().orElse(""));
        return errors.limit(3).collect(Collectors.joining("; "));
    }
}
