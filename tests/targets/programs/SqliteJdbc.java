package targets;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** SQLite through its JDBC driver. */
final class SqliteJdbc {
    private static final int ROWS = 10_000;

    private final PreparedStatement select;
    private final PreparedStatement update;
    private int next;

    private SqliteJdbc() throws SQLException {
        Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:");
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("create table t (id integer primary key, number integer, name text)");
            statement.executeUpdate("with recursive n(i) as (select 0 union all select i + 1 from n where i < "
                    + (ROWS - 1) + ") insert into t select i, i * 7, 'the name of ' || i from n");
        }
        select = connection.prepareStatement("select number, name from t where id between ? and ? + 9");
        update = connection.prepareStatement("update t set number = number + 1, name = ? where id = ?");
    }

    public static void main(String[] args) throws Exception {
        Program.run(1, () -> new SqliteJdbc()::operate);
    }

    /** Reads ten rows and changes one. */
    private void operate() throws SQLException {
        next = (next + 7919) % (ROWS - 10);
        select.setInt(1, next);
        select.setInt(2, next);
        long sum = 0;
        try (ResultSet rows = select.executeQuery()) {
            while (rows.next()) {
                sum += rows.getLong(1) + rows.getString(2).length();
            }
        }
        update.setString(1, "the sum was " + sum);
        update.setInt(2, next);
        update.executeUpdate();
    }
}
