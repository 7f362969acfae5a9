package targets;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.core.AprLifecycleListener;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import org.apache.tomcat.util.net.openssl.OpenSSLImplementation;

/** Tomcat that answers by TLS of OpenSSL, through its native library. {@link TlsClient} asks it. */
final class TlsServer extends HttpServlet {
    private static final long serialVersionUID = 1;
    private static final byte[] PAGE = "nprof ".repeat(300).getBytes(StandardCharsets.US_ASCII);

    private TlsServer() {}

    /** {@code DIRECTORY KEYS PORT}: an empty directory, and a key store. */
    public static void main(String[] args) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(args[0]);
        tomcat.getServer().addLifecycleListener(new AprLifecycleListener());
        tomcat.setConnector(connector(args[1], Integer.parseInt(args[2])));
        Context context = tomcat.addContext("", new File(args[0]).getAbsolutePath());
        Tomcat.addServlet(context, "page", new TlsServer());
        context.addServletMappingDecoded("/", "page");
        tomcat.start();
        if (!AprLifecycleListener.isAprAvailable()) {
            throw new IllegalStateException("Tomcat's native library is not there");
        }
        Program.serve();
    }

    private static Connector connector(String keys, int port) {
        SSLHostConfig host = new SSLHostConfig();
        SSLHostConfigCertificate certificate = new SSLHostConfigCertificate(host, SSLHostConfigCertificate.Type.RSA);
        certificate.setCertificateKeystoreFile(Path.of(keys).toString());
        certificate.setCertificateKeystoreType("PKCS12");
        certificate.setCertificateKeystorePassword(TlsClient.PASSWORD);
        host.addCertificate(certificate);
        Connector connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
        connector.setPort(port);
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("SSLEnabled", "true");
        connector.setProperty("sslImplementationName", OpenSSLImplementation.class.getName());
        connector.setProperty("maxKeepAliveRequests", "-1");
        connector.addSslHostConfig(host);
        return connector;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentLength(PAGE.length);
        response.getOutputStream().write(PAGE);
        Program.DONE.increment();
    }
}
