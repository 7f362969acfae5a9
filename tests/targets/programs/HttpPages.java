package targets;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Executors;

/** The JDK's own HTTP server with a page of two kilobytes. {@link HttpLoad} asks it. */
final class HttpPages {
    private static final int THREADS = 4;
    private static final byte[] PAGE = "nprof ".repeat(300).getBytes(StandardCharsets.US_ASCII);

    private HttpPages() {}

    /** {@code PORT}. */
    public static void main(String[] args) throws IOException {
        InetAddress here = InetAddress.getLoopbackAddress();
        HttpServer server = HttpServer.create(new InetSocketAddress(here, Integer.parseInt(args[0])), 0);
        server.createContext("/", HttpPages::answer);
        server.setExecutor(Executors.newFixedThreadPool(THREADS));
        server.start();
        Target.serve(Map.of());
    }

    private static void answer(HttpExchange exchange) throws IOException {
        exchange.sendResponseHeaders(200, PAGE.length);
        exchange.getResponseBody().write(PAGE);
        exchange.close();
    }
}
