package targets;

import com.sun.jna.Callback;
import com.sun.jna.LastErrorException;
import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.Map;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.xxhash.StreamingXXHash64;
import net.jpountz.xxhash.XXHashFactory;
import org.sqlite.Function;
import org.xerial.snappy.Snappy;

/** Work for native libraries that others wrote. */
final class Libraries {
    private static final byte[] TEXT = "as often as you like, ".repeat(400).getBytes(StandardCharsets.UTF_8);

    /** What is called of the C library. */
    public interface C extends Library {
        long strlen(String text);

        double atof(String text);

        void qsort(Pointer base, long number, long size, Comparison comparison);

        int close(int file) throws LastErrorException;
    }

    /** Called back by native code. */
    public interface Comparison extends Callback {
        int compare(Pointer one, Pointer other);
    }

    private interface Work {
        void once() throws Exception;
    }

    private Libraries() {}

    /** Has an agent stand in front of all JNI functions, or puts the functions back ({@code table.c}). */
    static native void wrap(boolean wraps);

    /** The agent's library is the argument. */
    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Map<String, Work> all = Map.of(
                "lz4", Lz4::once, "snappy", Compressed::once, "jna", Called::once, "sqlite", Asked::once);
        Target.serve(Map.of(
                "wrap", (a, out) -> wrap(true),
                "work", (a, out) -> often(all.get(a[0]), Integer.parseInt(a[1])),
                "wrapped", (a, out) -> {
                    wrap(true);
                    often(all.get(a[0]), Integer.parseInt(a[1]));
                    wrap(false);
                }));
    }

    private static void often(Work work, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            work.once();
        }
    }

    private static void must(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    private static ByteBuffer direct(int bytes) {
        return ByteBuffer.allocateDirect(bytes);
    }

    /** Arrays are held while lz4 works; buffers are asked for their addresses. */
    private static final class Lz4 {
        private static final LZ4Factory FACTORY = LZ4Factory.nativeInstance();
        private static final XXHashFactory HASHES = XXHashFactory.nativeInstance();
        private static final ByteBuffer FROM = direct(TEXT.length).put(TEXT);
        private static final ByteBuffer TO = direct(2 * TEXT.length);

        static void once() {
            for (LZ4Compressor compressor : new LZ4Compressor[] {FACTORY.fastCompressor(), FACTORY.highCompressor()}) {
                byte[] small = compressor.compress(TEXT);
                byte[] back = FACTORY.fastDecompressor().decompress(small, TEXT.length);
                must(Arrays.equals(back, TEXT), "lz4 gives something else back");
                must(FACTORY.safeDecompressor().decompress(small, TEXT.length).length == TEXT.length, "or not all");
                FROM.clear();
                TO.clear();
                compressor.compress(FROM, TO);
            }
            StreamingXXHash64 stream = HASHES.newStreamingHash64(1);
            stream.update(TEXT, 0, TEXT.length);
            must(stream.getValue() == HASHES.hash64().hash(TEXT, 0, TEXT.length, 1), "two hashes of one text");
            stream.close();
        }
    }

    /** The same with snappy, which throws as well. */
    private static final class Compressed {
        private static final ByteBuffer FROM = direct(TEXT.length).put(TEXT);
        private static final ByteBuffer TO = direct(2 * TEXT.length);

        static void once() throws Exception {
            byte[] small = Snappy.compress(TEXT);
            must(Arrays.equals(Snappy.uncompress(small), TEXT), "snappy gives something else back");
            must(Snappy.uncompressedLength(small) == TEXT.length, "or not all");
            FROM.clear();
            TO.clear();
            must(Snappy.compress(FROM, TO) == small.length, "a buffer becomes something else");
            try {
                Snappy.uncompress(TEXT);
                throw new IllegalStateException("a text is not compressed");
            } catch (java.io.IOException expected) {
                must(Snappy.isValidCompressedBuffer(small), "what is valid is not");
            }
        }
    }

    /** Strings and memory for C, Java called back, and an exception. */
    private static final class Called {
        private static final C API = Native.load("c", C.class);
        private static final int NUMBERS = 20;
        private static final Memory MEMORY = new Memory(4 * NUMBERS);
        private static final Comparison COMPARISON = (one, other) -> Integer.compare(one.getInt(0), other.getInt(0));

        static void once() {
            must(API.strlen("seven letters") == 13 && API.atof("2.5") == 2.5, "C reads something else");
            for (int i = 0; i < NUMBERS; i++) {
                MEMORY.setInt(4L * i, i * 7 % NUMBERS);
            }
            API.qsort(MEMORY, NUMBERS, 4, COMPARISON);
            int[] sorted = MEMORY.getIntArray(0, NUMBERS);
            must(sorted[0] == 0 && sorted[NUMBERS - 1] == NUMBERS - 1, "not sorted");
            try {
                API.close(-1);
                throw new IllegalStateException("nothing can be closed");
            } catch (LastErrorException expected) {
                must(expected.getErrorCode() == 9, "another error");
            }
        }
    }

    /** SQLite, which calls Java back in the middle of a query. */
    private static final class Asked {
        private static final Connection CONNECTION = open();

        private static Connection open() {
            try {
                Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:");
                try (Statement statement = connection.createStatement()) {
                    statement.executeUpdate("create table t (number integer, name text)");
                }
                Function.create(connection, "twice", new Function() {
                    @Override
                    protected void xFunc() throws SQLException {
                        result(2 * value_int(0));
                    }
                });
                return connection;
            } catch (SQLException refused) {
                throw new IllegalStateException(refused);
            }
        }

        static void once() throws SQLException {
            try (PreparedStatement insert = CONNECTION.prepareStatement("insert into t values (?, ?)")) {
                insert.setInt(1, 21);
                insert.setString(2, "a name");
                insert.executeUpdate();
            }
            try (Statement select = CONNECTION.createStatement();
                    ResultSet rows = select.executeQuery("select twice(number), name from t limit 3")) {
                while (rows.next()) {
                    must(rows.getInt(1) == 42 && rows.getString(2).equals("a name"), "another row");
                }
            }
            try (Statement wrong = CONNECTION.createStatement()) {
                wrong.executeUpdate("insert into nothing values (1)");
                throw new IllegalStateException("there is no such table");
            } catch (SQLException expected) {
                must(expected.getMessage().contains("nothing"), expected.toString());
            }
        }
    }
}
