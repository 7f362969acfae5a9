package targets;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Locale;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/** Asks {@link TlsServer} for its page, on several connections, without a pause. */
final class TlsClient {
    /** Of the key store, which is made for one run. */
    static final String PASSWORD = "nothing-secret";

    private static final int CONNECTIONS = 4;
    /** So many requests go through a connection. */
    private static final int REQUESTS = 500;
    static final byte[] REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    private static final String LENGTH = "content-length: ";

    private final SSLContext tls;
    private final int port;

    private TlsClient(SSLContext tls, int port) {
        this.tls = tls;
        this.port = port;
    }

    /** {@code KEYS PORT}: the server's key store, which is trusted. */
    public static void main(String[] args) throws Exception {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        keys.load(Files.newInputStream(Path.of(args[0])), PASSWORD.toCharArray());
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("server", keys.getCertificate("server"));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(null, trust.getTrustManagers(), null);
        Program.run(CONNECTIONS, () -> new TlsClient(tls, Integer.parseInt(args[1]))::operate);
    }

    /** One connection, from handshake to end. */
    private void operate() throws IOException {
        InetAddress here = InetAddress.getLoopbackAddress();
        try (SSLSocket socket = (SSLSocket) tls.getSocketFactory().createSocket(here, port)) {
            OutputStream out = socket.getOutputStream();
            DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
            for (int i = 0; i < REQUESTS; i++) {
                out.write(REQUEST);
                answer(in);
            }
        }
    }

    static void answer(DataInputStream in) throws IOException {
        int length = -1;
        for (String line = line(in); !line.isEmpty(); line = line(in)) {
            if (line.toLowerCase(Locale.ROOT).startsWith(LENGTH)) {
                length = Integer.parseInt(line.substring(LENGTH.length()));
            }
        }
        if (length < 0 || in.readNBytes(length).length < length) {
            throw new IOException("the server sent no page");
        }
    }

    private static String line(DataInputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            if (c < 0) {
                throw new IOException("the server hung up");
            }
            if (c != '\r') {
                line.append((char) c);
            }
        }
        return line.toString();
    }
}
