import java.io.PrintWriter;
import javax.tools.ToolProvider;

/**
 * A compiler that is called again and again in one JVM, for docs/tree.md: that of the JDK, or that of Eclipse if it is in the class path.
 *
 * <pre>
 * java docs/examples/Compile.java -d /tmp/classes docs/examples/Shop.java
 * java -cp /usr/share/java/eclipse-jdt-core.jar docs/examples/Compile.java -17 -proc:none -d /tmp/classes docs/examples/Shop.java
 * </pre>
 */
public final class Compile {
    private static final String ECLIPSE = "org.eclipse.jdt.core.compiler.";

    public static void main(String[] args) throws ReflectiveOperationException {
        while (compiles(args)) {
            continue;
        }
    }

    private static boolean compiles(String[] args) throws ReflectiveOperationException {
        Class<?> eclipse;
        try {
            eclipse = Class.forName(ECLIPSE + "batch.BatchCompiler");
        } catch (ClassNotFoundException missing) {
            return ToolProvider.getSystemJavaCompiler().run(null, null, null, args) == 0;
        }
        Class<?> progress = Class.forName(ECLIPSE + "CompilationProgress");
        PrintWriter out = new PrintWriter(System.out, true);
        return (Boolean) eclipse.getMethod("compile", String.class, PrintWriter.class, PrintWriter.class, progress)
                .invoke(null, String.join(" ", args), out, out, null);
    }
}
