package targets;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;

/** Asks {@link HttpPages} for its page at a steady pace, on connections that stay open, and times the answers. */
final class HttpLoad {
    private static final int CONNECTIONS = 4;
    /** From one request of a connection to the next: fewer than the server could answer, so that it is not the queue that is timed. */
    private static final long PACE_NS = 1_000_000;

    private final OutputStream out;
    private final DataInputStream in;

    private HttpLoad(int port) throws IOException {
        Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
        socket.setTcpNoDelay(true);
        out = socket.getOutputStream();
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
    }

    /** {@code PORT}. Told {@code ask N}, each connection asks so often; answered is {@code p99 NANOSECONDS} of all of them. */
    public static void main(String[] args) throws Exception {
        List<HttpLoad> connections = new ArrayList<>();
        for (int i = 0; i < CONNECTIONS; i++) {
            connections.add(new HttpLoad(Integer.parseInt(args[0])));
        }
        ExecutorService threads = Executors.newFixedThreadPool(CONNECTIONS);
        Target.serve(Map.of("ask", (a, out) -> ask(connections, threads, Integer.parseInt(a[0]), out)));
    }

    private static void ask(List<HttpLoad> connections, ExecutorService threads, int requests, PrintStream out)
            throws Exception {
        List<Future<long[]>> running = new ArrayList<>();
        for (int i = 0; i < CONNECTIONS; i++) {
            HttpLoad connection = connections.get(i);
            long first = System.nanoTime() + i * PACE_NS / CONNECTIONS;
            running.add(threads.submit(() -> connection.ask(requests, first)));
        }
        long[] times = new long[CONNECTIONS * requests];
        for (int i = 0; i < CONNECTIONS; i++) {
            System.arraycopy(running.get(i).get(), 0, times, i * requests, requests);
        }
        Arrays.sort(times);
        out.println("p99 " + times[times.length * 99 / 100]);
    }

    /** A request that is late because the one before took long has waited since its own time: that is part of its answer's. */
    private long[] ask(int requests, long first) throws IOException {
        long[] times = new long[requests];
        for (int i = 0; i < requests; i++) {
            long due = first + i * PACE_NS;
            boolean isLate = System.nanoTime() > due;
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            // What the client overslept is not the server's.
            long begun = isLate ? due : System.nanoTime();
            out.write(TlsClient.REQUEST);
            TlsClient.answer(in);
            times[i] = System.nanoTime() - begun;
        }
        return times;
    }
}
