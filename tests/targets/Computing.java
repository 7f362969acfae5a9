package targets;

import java.io.IOException;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;

/**
 * A thread that only computes, and notes how far it has come. {@code run begin} starts it; {@code run notes} prints what it has noted since the
 * last time, {@code noted NS PIECES WAITED_NS}: when, the work that was done by then, and how long it has waited for a CPU. Beside it are
 * the two thousand natives of {@code Many}, which nobody calls.
 */
final class Computing {
    /** From one note to the next. */
    private static final long STEP_NS = 5_000_000;
    /** Iterations of a piece of work, some microseconds. */
    private static final int PIECE = 4_000;
    private static final int NUMBERS = 3;

    private static final long[] NOTES = new long[NUMBERS * 20_000];
    private static int noted;
    private static volatile long sink;

    private Computing() {}

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Class.forName("targets.Many");
        Target.serve(Map.of("begin", (a, out) -> begin(), "notes", (a, out) -> print(out)));
    }

    private static void begin() {
        Thread thread = new Thread(Computing::compute, "computing");
        thread.setDaemon(true);
        thread.start();
    }

    private static void compute() {
        try (RandomAccessFile schedule = new RandomAccessFile("/proc/thread-self/schedstat", "r")) {
            byte[] line = new byte[100];
            long pieces = 0;
            while (true) {
                for (long end = System.nanoTime() + STEP_NS; System.nanoTime() < end; pieces++) {
                    piece();
                }
                schedule.seek(0);
                int length = schedule.read(line);
                note(System.nanoTime(), pieces, second(line, length));
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void piece() {
        long x = sink | 1;
        for (int i = 0; i < PIECE; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        sink = x;
    }

    /** The second number of a line. */
    private static long second(byte[] line, int length) {
        int at = 0;
        while (line[at] != ' ') {
            at++;
        }
        long number = 0;
        for (at++; at < length && line[at] != ' '; at++) {
            number = 10 * number + line[at] - '0';
        }
        return number;
    }

    /** The last ones are missing where nobody asks for too long. */
    private static synchronized void note(long ns, long pieces, long waited) {
        if (noted + NUMBERS <= NOTES.length) {
            NOTES[noted++] = ns;
            NOTES[noted++] = pieces;
            NOTES[noted++] = waited;
        }
    }

    private static void print(PrintStream out) {
        long[] notes = taken();
        for (int at = 0; at < notes.length; at += NUMBERS) {
            out.println("noted " + notes[at] + " " + notes[at + 1] + " " + notes[at + 2]);
        }
    }

    /** Nobody waits while they are printed. */
    private static synchronized long[] taken() {
        long[] notes = Arrays.copyOf(NOTES, noted);
        noted = 0;
        return notes;
    }
}
