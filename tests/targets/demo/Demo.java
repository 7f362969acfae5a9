import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * A small busy program with nothing but the JDK in it, to have something to trace.
 *
 * <p>It archives made-up log files: writes them, compresses them, checks them, sends them over a loopback socket and
 * reads them back. About half of one core, until {@code --seconds N} have passed or it is stopped.
 */
final class Demo {
    private static final int DOCUMENT_BYTES = 64 * 1024;
    private static final long REPORT_EVERY_NANOS = 2_000_000_000L;
    /** How long the end waits for the document under way. */
    private static final long PATIENCE_MILLIS = 2_000;

    private static volatile boolean ending;

    private final Random random = new Random(42);
    private final Map<Object, Integer> seen = new IdentityHashMap<>();
    private final Path directory;
    private final Echo echo;
    private long documents;
    private long bytesIn;
    private long bytesOut;

    private Demo(Path directory, Echo echo) {
        this.directory = directory;
        this.echo = echo;
    }

    public static void main(String[] args) throws Exception {
        long seconds = secondsOf(args);
        Path directory = Files.createTempDirectory("nprof-demo");
        try (Echo echo = new Echo()) {
            System.out.printf("demo: pid %d, archiving made-up logs in %s%s%n",
                    ProcessHandle.current().pid(), directory, seconds < 0 ? "" : " for " + seconds + " s");
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> end(main, directory)));
            new Demo(directory, echo).run(seconds);
        }
    }

    /** Lets the current document pass: it needs the directory. */
    private static void end(Thread main, Path directory) {
        ending = true;
        try {
            main.join(PATIENCE_MILLIS);
        } catch (InterruptedException e) {
            // What is left of the directory goes now.
        }
        remove(directory);
    }

    private static long secondsOf(String[] args) {
        if (args.length == 0) {
            return -1;
        }
        if (args.length != 2 || !args[0].equals("--seconds")) {
            System.err.println("usage: Demo [--seconds N]");
            System.exit(2);
        }
        return Long.parseLong(args[1]);
    }

    /** Works and rests in equal parts, so that half a core stays free. */
    private void run(long seconds) throws Exception {
        long began = System.nanoTime();
        long reported = began;
        while (!ending && (seconds < 0 || System.nanoTime() - began < seconds * 1_000_000_000L)) {
            long roundBegan = System.nanoTime();
            archive();
            long now = System.nanoTime();
            if (now - reported >= REPORT_EVERY_NANOS) {
                reported = now;
                System.out.printf("demo: %,d documents, %,d bytes archived as %,d%n", documents, bytesIn, bytesOut);
            }
            Thread.sleep(Math.max(1, (now - roundBegan) / 1_000_000));
        }
    }

    /** One document through all the stations. */
    private void archive() throws IOException, DataFormatException {
        byte[] text = document();
        Path plain = directory.resolve("document-" + documents % 8 + ".log");
        Files.write(plain, text);
        byte[] packed = deflate(readSlowly(plain));
        Path archived = directory.resolve(plain.getFileName() + ".z");
        store(archived, packed);
        byte[] echoed = echo.send(load(archived));
        if (checksum(inflate(echoed, text.length)) != checksum(text)) {
            throw new IllegalStateException("the archive is damaged");
        }
        seen.put(echoed, (int) documents);
        if (seen.size() > 1000) {
            seen.clear();
        }
        documents++;
        bytesIn += text.length;
        bytesOut += packed.length;
        tidy();
    }

    private byte[] document() {
        StringBuilder text = new StringBuilder(DOCUMENT_BYTES);
        while (text.length() < DOCUMENT_BYTES - 100) {
            text.append("level=info request=").append(random.nextInt(1_000_000))
                    .append(" took=").append(random.nextInt(500)).append("us\n");
        }
        return text.toString().getBytes();
    }

    /** Through a small buffer, as much real code does it. */
    private static byte[] readSlowly(Path file) throws IOException {
        try (InputStream in = new BufferedInputStream(new java.io.FileInputStream(file.toFile()), 4096)) {
            return in.readAllBytes();
        }
    }

    private static byte[] deflate(byte[] plain) {
        Deflater deflater = new Deflater(Deflater.BEST_SPEED);
        byte[] room = new byte[plain.length + 64];
        deflater.setInput(plain);
        deflater.finish();
        int length = 0;
        while (!deflater.finished()) {
            length += deflater.deflate(room, length, Math.min(4096, room.length - length));
        }
        deflater.end();
        return java.util.Arrays.copyOf(room, length);
    }

    private static byte[] inflate(byte[] packed, int length) throws DataFormatException {
        Inflater inflater = new Inflater();
        byte[] plain = new byte[length];
        inflater.setInput(packed);
        int at = 0;
        while (at < length && !inflater.finished()) {
            at += inflater.inflate(plain, at, Math.min(8192, length - at));
        }
        inflater.end();
        return plain;
    }

    private static long checksum(byte[] bytes) {
        CRC32 sum = new CRC32();
        sum.update(bytes);
        return sum.getValue();
    }

    private static void store(Path file, byte[] bytes) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING)) {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            while (buffer.hasRemaining()) {
                channel.write(buffer);
            }
        }
    }

    private static byte[] load(Path file) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            ByteBuffer buffer = ByteBuffer.allocateDirect((int) channel.size());
            while (buffer.hasRemaining() && channel.read(buffer) >= 0) {
                // Until the file is read.
            }
            byte[] bytes = new byte[buffer.flip().remaining()];
            buffer.get(bytes);
            return bytes;
        }
    }

    private void tidy() throws IOException {
        try (var files = Files.list(directory)) {
            List<Path> all = files.collect(Collectors.toList());
            if (all.size() > 12) {
                Files.delete(all.get(random.nextInt(all.size())));
            }
        }
    }

    private static void remove(Path directory) {
        try (var files = Files.list(directory)) {
            for (Path file : files.collect(Collectors.toList())) {
                Files.deleteIfExists(file);
            }
            Files.deleteIfExists(directory);
        } catch (IOException e) {
            System.err.println("demo: " + directory + " could not be removed: " + e.getMessage());
        }
    }

    /** A server on the loopback interface that sends back what it gets, one connection per message. */
    private static final class Echo implements AutoCloseable {
        private final ServerSocket server = new ServerSocket(0, 4, InetAddress.getLoopbackAddress());

        Echo() throws IOException {
            Thread thread = new Thread(this::serve, "echo");
            thread.setDaemon(true);
            thread.start();
        }

        private void serve() {
            while (!server.isClosed()) {
                try (Socket client = server.accept()) {
                    client.getInputStream().transferTo(client.getOutputStream());
                } catch (IOException e) {
                    if (!server.isClosed()) {
                        System.err.println("demo: echo: " + e.getMessage());
                    }
                }
            }
        }

        byte[] send(byte[] message) throws IOException {
            try (Socket socket = new Socket(server.getInetAddress(), server.getLocalPort())) {
                Thread writer = new Thread(() -> write(socket, message), "sender");
                writer.start();
                return socket.getInputStream().readAllBytes();
            }
        }

        /** In a thread of its own: both directions have small buffers. */
        private static void write(Socket socket, byte[] message) {
            try {
                OutputStream out = socket.getOutputStream();
                out.write(message);
                socket.shutdownOutput();
            } catch (IOException e) {
                System.err.println("demo: sender: " + e.getMessage());
            }
        }

        @Override
        public void close() throws IOException {
            server.close();
        }
    }
}
