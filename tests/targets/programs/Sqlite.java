package targets;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.PointerByReference;

/** SQLite through JNA: a native for each call, and several more for its arguments and results. */
final class Sqlite {
    /** What is called of SQLite. */
    public interface Api extends Library {
        int sqlite3_open(String file, PointerByReference database);

        int sqlite3_exec(Pointer database, String sql, Pointer callback, Pointer argument, Pointer error);

        int sqlite3_prepare_v2(
                Pointer database, String sql, int bytes, PointerByReference statement, PointerByReference tail);

        int sqlite3_bind_int64(Pointer statement, int place, long value);

        int sqlite3_bind_text(Pointer statement, int place, String text, int bytes, Pointer destructor);

        int sqlite3_step(Pointer statement);

        int sqlite3_reset(Pointer statement);

        long sqlite3_column_int64(Pointer statement, int column);

        Pointer sqlite3_column_text(Pointer statement, int column);
    }

    private static final Api API = Native.load("sqlite3", Api.class);
    private static final int ROW = 100;
    private static final int DONE = 101;
    private static final int ROWS = 10_000;
    /** SQLite copies the text. */
    private static final Pointer COPIED = new Pointer(-1);

    private final Pointer database;
    private final Pointer select;
    private final Pointer update;
    private long next;

    private Sqlite() {
        PointerByReference opened = new PointerByReference();
        must(API.sqlite3_open(":memory:", opened), 0);
        database = opened.getValue();
        execute("create table t (id integer primary key, number integer, name text)");
        execute("with recursive n(i) as (select 0 union all select i + 1 from n where i < " + (ROWS - 1) + ")"
                + " insert into t select i, i * 7, 'the name of ' || i from n");
        select = prepare("select number, name from t where id between ?1 and ?1 + 9");
        update = prepare("update t set number = number + 1, name = ?2 where id = ?1");
    }

    public static void main(String[] args) throws Exception {
        Program.run(1, () -> new Sqlite()::operate);
    }

    /** Reads ten rows and changes one. */
    private void operate() {
        long id = next;
        next = (next + 7919) % (ROWS - 10);
        must(API.sqlite3_bind_int64(select, 1, id), 0);
        long sum = 0;
        int code = API.sqlite3_step(select);
        for (; code == ROW; code = API.sqlite3_step(select)) {
            sum += API.sqlite3_column_int64(select, 0);
            sum += API.sqlite3_column_text(select, 1).getString(0).length();
        }
        must(code, DONE);
        must(API.sqlite3_reset(select), 0);
        must(API.sqlite3_bind_int64(update, 1, id), 0);
        must(API.sqlite3_bind_text(update, 2, "the sum was " + sum, -1, COPIED), 0);
        must(API.sqlite3_step(update), DONE);
        must(API.sqlite3_reset(update), 0);
    }

    private void execute(String sql) {
        must(API.sqlite3_exec(database, sql, null, null, null), 0);
    }

    private Pointer prepare(String sql) {
        PointerByReference prepared = new PointerByReference();
        must(API.sqlite3_prepare_v2(database, sql, -1, prepared, null), 0);
        return prepared.getValue();
    }

    private static void must(int code, int expected) {
        if (code != expected) {
            throw new IllegalStateException("SQLite answered " + code + ", not " + expected);
        }
    }
}
