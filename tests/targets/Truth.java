package targets;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** The target for the inventory: binds natives of several libraries, then lets the agent write down what is true. */
final class Truth {
    private Truth() {}

    /** Writes every native method and what it is bound to; implemented by the agent (truth_agent.c). */
    static native void dump(String path);

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Shapes.register(Registered.class);
        for (Native n : Native.values()) {
            Class.forName(n.owner);
        }
        exercise();
        Target.serve(Map.of("dump", (a, out) -> dump(a[0])));
    }

    /** Leaves natives of each sort behind: called, registered, and never called. */
    private static void exercise() throws Exception {
        Plain.add(1, 2);
        Registered.hidden(1);
        Path file = Files.createTempFile("nprof-truth", ".tmp");
        Files.write(file, new byte[] {1, 2, 3});
        CRC32 sum = new CRC32();
        sum.update(Files.readAllBytes(file));
        Files.delete(file);
        Deflater deflater = new Deflater();
        deflater.setInput(new byte[1000]);
        deflater.finish();
        deflater.deflate(new byte[1000]);
        deflater.end();
    }
}
