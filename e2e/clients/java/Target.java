import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/** Where to connect, taken from the environment, and how each of the two drivers is told about it. */
final class Target {
    enum Driver {
        MYSQL,
        MARIADB
    }

    final Driver driver;
    final String database = env("FOREBAY_DATABASE");
    final String scratch = env("FOREBAY_SCRATCH");
    final boolean mysqlServer = env("FOREBAY_SERVER").equals("mysql");
    /** Plugin name to account. */
    final Map<String, String> logins = new LinkedHashMap<>();

    Target(Driver driver) {
        this.driver = driver;
        for (String login : env("FOREBAY_LOGINS").split(",")) {
            String[] parts = login.split("=", 2);
            logins.put(parts[0], parts[1]);
        }
    }

    /** Connects over a plain link as `app`; `options` are `name=value` properties of the driver and win. */
    Connection connect(String... options) throws SQLException {
        Properties properties = new Properties();
        properties.put("user", "app");
        properties.put("password", "app secret");
        properties.put("socketTimeout", "60000");
        properties.put("yearIsDateType", "false");
        properties.put("allowPublicKeyRetrieval", "true");
        switch (driver) {
            case MYSQL -> properties.put("sslMode", "DISABLED");
            case MARIADB -> properties.put("sslMode", "disable");
        }
        String base = database;
        for (String option : options) {
            String[] parts = option.split("=", 2);
            if (parts[0].equals("database")) {
                base = parts[1];
            } else {
                properties.put(parts[0], parts[1]);
            }
        }
        String kind = driver == Driver.MYSQL ? "mysql" : "mariadb";
        String host = options.length > 0 && options[0].startsWith("sslMode=") ? "localhost" : env("FOREBAY_HOST");
        return DriverManager.getConnection(
                "jdbc:" + kind + "://" + host + ":" + env("FOREBAY_PORT") + "/" + base, properties);
    }

    /** The options of a link inside TLS that checks the certificate against the CA in `variable` and the host name. */
    String[] tls(String variable, String... more) throws Exception {
        String store = trustStore(variable);
        String[] own = driver == Driver.MYSQL
                ? new String[] {
                    "sslMode=VERIFY_IDENTITY",
                    "trustCertificateKeyStoreUrl=file:" + store,
                    "trustCertificateKeyStoreType=PKCS12",
                    "trustCertificateKeyStorePassword=forebay",
                    "fallbackToSystemTrustStore=false",
                }
                : new String[] {
                    "sslMode=verify-full",
                    "trustStore=" + store,
                    "trustStoreType=PKCS12",
                    "trustStorePassword=forebay",
                    "fallbackToSystemTrustStore=false",
                };
        String[] all = Arrays.copyOf(own, own.length + more.length);
        System.arraycopy(more, 0, all, own.length, more.length);
        return all;
    }

    private String trustStore(String variable) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (var pem = new FileInputStream(env(variable))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        String path = scratch + "/" + driver + "-" + variable + ".p12";
        try (var file = new FileOutputStream(path)) {
            store.store(file, "forebay".toCharArray());
        }
        return path;
    }

    static String env(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException(name + " is not set");
        }
        return value;
    }
}
