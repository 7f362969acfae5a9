package targets;

import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.WriteOptions;

/** RocksDB as a stream processor uses it: values are read, changed and written again. */
final class Rocks {
    private static final int KEYS = 100_000;

    private final RocksDB database;
    private final WriteOptions writing = new WriteOptions().setDisableWAL(true);
    private final Random random = new Random(1);

    private Rocks(RocksDB database) {
        this.database = database;
    }

    /** {@code DIRECTORY}: an empty one. */
    public static void main(String[] args) throws Exception {
        RocksDB.loadLibrary();
        RocksDB database = RocksDB.open(new Options().setCreateIfMissing(true), args[0]);
        Program.run(2, () -> new Rocks(database)::operate);
    }

    private void operate() throws RocksDBException {
        byte[] key = String.format("key-%08d", random.nextInt(KEYS)).getBytes(StandardCharsets.UTF_8);
        byte[] old = database.get(key);
        byte[] value = old == null ? new byte[100] : old;
        value[0]++;
        database.put(writing, key, value);
    }
}
