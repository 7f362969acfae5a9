package targets;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** The Java compiler in process, as a tool uses it that builds a few sources at a time. */
final class Javac {
    private static final JavaCompiler COMPILER = ToolProvider.getSystemJavaCompiler();

    private final List<Path> sources;
    private final List<String> options;
    private int next;

    private Javac(List<Path> sources, List<String> options) {
        this.sources = sources;
        this.options = options;
    }

    /** {@code SOURCES CLASSES}: a directory with files, and one to write into. */
    public static void main(String[] args) throws Exception {
        try (Stream<Path> files = Files.list(Path.of(args[0]))) {
            List<Path> sources = files.sorted().collect(Collectors.toList());
            List<String> options =
                    List.of("-proc:none", "-nowarn", "-Xlint:none", "-d", args[1], "-cp", args[1], "-sourcepath", args[1]);
            Javac javac = new Javac(sources, options);
            // Each can be compiled alone when the others are there.
            javac.compile(sources);
            Program.run(1, () -> javac::operate);
        }
    }

    /** Compiles one file from nothing. */
    private void operate() throws Exception {
        compile(List.of(sources.get(next++ % sources.size())));
    }

    private void compile(List<Path> paths) throws Exception {
        try (StandardJavaFileManager files = COMPILER.getStandardFileManager(null, null, StandardCharsets.UTF_8)) {
            if (!COMPILER.getTask(null, files, null, options, null, files.getJavaFileObjectsFromPaths(paths)).call()) {
                throw new IllegalStateException("does not compile");
            }
        }
    }
}
