import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Connector/J (argument `mysql`) or MariaDB Connector/J (argument `mariadb`) through the gateway: one line a check of
 * ../checks, see ../README.md.
 */
public final class Client {
    private static final int BIG_ROWS = 200_000;
    private static final long BIG_SUM = 20_000_100_000L;
    private static final String BIG = "SELECT id, label FROM forebay_clients.numbers";
    private static final String TEXT = "naïve 東京 Ωμέγα 😀👩‍🚀 \\ ' \" %";
    private static final String PREPARED = "useServerPrepStmts=true";

    private final Target target;
    private final Map<String, Check> checks = new LinkedHashMap<>();

    interface Check {
        void run() throws Exception;
    }

    /** The client or the server cannot do this. */
    static final class Absent extends RuntimeException {
        private static final long serialVersionUID = 1;

        Absent(String why) {
            super(why);
        }
    }

    public static void main(String[] arguments) {
        Client client = new Client(new Target(Target.Driver.valueOf(arguments[0].toUpperCase())));
        client.list();
        System.exit(client.run() ? 0 : 1);
    }

    private Client(Target target) {
        this.target = target;
    }

    private boolean run() {
        boolean passed = true;
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            try {
                check.getValue().run();
                System.out.println("ok " + check.getKey());
            } catch (Absent why) {
                System.out.println("absent " + check.getKey() + ": " + why.getMessage());
            } catch (Exception | AssertionError error) {
                passed = false;
                String place = Arrays.stream(error.getStackTrace())
                        .filter(frame -> frame.getClassName().startsWith("Client"))
                        .findFirst()
                        .map(frame -> " (line " + frame.getLineNumber() + ")")
                        .orElse("");
                String cause = error.getCause() == null ? "" : " because " + error.getCause();
                System.out.println(("FAILED " + check.getKey() + ": " + error + cause).replaceAll("\\s+", " ") + place);
            }
        }
        return passed;
    }

    private void list() {
        boolean mysql = target.driver == Target.Driver.MYSQL;
        checks.put("login.mysql_native_password", () -> login("mysql_native_password"));
        checks.put("login.caching_sha2_password.rsa", this::loginSha2Rsa);
        checks.put("login.caching_sha2_password.tls", this::loginSha2Tls);
        checks.put("login.caching_sha2_password.fast", this::loginSha2Fast);
        checks.put("login.sha256_password.rsa", mysql ? () -> login("sha256_password") : absent("no sha256_password"));
        checks.put("login.sha256_password.tls",
                mysql ? () -> login("sha256_password", target.tls("FOREBAY_CA")) : absent("no sha256_password"));
        checks.put("login.client_ed25519", mysql ? absent("no client_ed25519") : () -> login("client_ed25519"));
        checks.put("login.parsec", mysql ? absent("no parsec") : () -> login("parsec"));
        checks.put("login.dialog", mysql ? absent("no dialog") : () -> login("dialog", target.tls("FOREBAY_CA")));
        checks.put("login.mysql_clear_password", () -> login("mysql_clear_password", target.tls("FOREBAY_CA")));
        checks.put("login.empty_password", this::loginEmptyPassword);
        checks.put("login.wrong_password", this::loginWrongPassword);
        checks.put("login.unknown_database",
                () -> refused(1049, "42000", () -> target.connect("database=no_such_database").close()));
        checks.put("tls.verified", this::tlsVerified);
        checks.put("tls.wrong_ca", this::tlsWrongCa);
        checks.put("attributes", this::attributes);
        checks.put("text.utf8mb4", this::textUtf8mb4);
        checks.put("text.types", () -> types("useServerPrepStmts=false"));
        checks.put("prepared.types", () -> types(PREPARED));
        checks.put("prepared.repeat", this::preparedRepeat);
        checks.put("prepared.long_data", this::preparedLongData);
        checks.put("result.big", this::resultBig);
        checks.put("result.stream", this::resultStream);
        checks.put("result.cursor", mysql ? this::resultCursor : absent("MariaDB Connector/J streams, without a cursor"));
        checks.put("blob.20mb", () -> blob(20 << 20));
        checks.put("error.no_such_table", this::errorNoSuchTable);
        checks.put("transaction.commit", this::transactionCommit);
        checks.put("transaction.rollback", this::transactionRollback);
        checks.put("infile.load", this::infileLoad);
        checks.put("infile.refused", this::infileRefused);
        checks.put("multi.statements", this::multiStatements);
        checks.put("multi.error", this::multiError);
        checks.put("call.results", this::callResults);
        checks.put("call.out", this::callOut);
        checks.put("compression.zlib", this::compressed);
        checks.put("compression.zstd", absent("zlib only"));
        checks.put("session.change_user", mysql ? this::changeUser : absent("MariaDB Connector/J has no COM_CHANGE_USER"));
        checks.put("session.reset", this::reset);
        checks.put("session.use", this::use);
        checks.put("session.ping", this::ping);
        checks.put("cancel.by_connection_id", this::cancelByConnectionId);
        checks.put("cancel.by_client", this::cancelByClient);
        checks.put("batch.insert", () -> batch("useServerPrepStmts=false"));
        checks.put("batch.rewritten", this::batchRewritten);
        checks.put("batch.bulk", mysql ? absent("Connector/J has no COM_STMT_BULK_EXECUTE") : this::batchBulk);
        checks.put("pipeline", mysql ? absent("Connector/J waits for every answer") : this::pipeline);
        checks.put("query_attributes",
                mysql ? this::queryAttributes : absent("MariaDB Connector/J has no query attributes"));
        for (String tool : List.of("tool.status", "tool.dump", "tool.binlog")) {
            checks.put(tool, absent("a library, no tools"));
        }
    }

    private static Check absent(String why) {
        return () -> {
            throw new Absent(why);
        };
    }

    private static void equal(Object found, Object expected, String what) {
        if (!Objects.deepEquals(found, expected)) {
            throw new AssertionError(what + ": expected " + shorten(expected) + ", found " + shorten(found));
        }
    }

    private static String shorten(Object value) {
        String text = value instanceof Object[] array ? Arrays.deepToString(array) : String.valueOf(value);
        return text.length() > 200 ? text.substring(0, 200) + "…" : text;
    }

    private static SQLException refused(int code, String state, Check action) throws Exception {
        try {
            action.run();
        } catch (SQLException error) {
            equal(error.getErrorCode() + " " + error.getSQLState(), code + " " + state, "error " + error.getMessage());
            return error;
        }
        throw new AssertionError("expected error " + code + ", but it succeeded");
    }

    /** All values of the first result as text. */
    private static List<List<String>> rows(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(sql)) {
            return read(result);
        }
    }

    private static List<List<String>> read(ResultSet result) throws SQLException {
        List<List<String>> found = new ArrayList<>();
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
            List<String> row = new ArrayList<>();
            for (int column = 1; column <= columns; column++) {
                row.add(result.getString(column));
            }
            found.add(row);
        }
        return found;
    }

    private static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    // logins

    private String account(String plugin) {
        String user = target.logins.get(plugin);
        if (user == null) {
            throw new Absent("this server has no account of " + plugin);
        }
        return user;
    }

    private void login(String plugin, String... options) throws Exception {
        String user = account(plugin);
        String[] all = Arrays.copyOf(options, options.length + 3);
        all[options.length] = "user=" + user;
        all[options.length + 1] = "password=" + user + " secret";
        all[options.length + 2] = "database=";
        try (Connection connection = target.connect(all)) {
            equal(rows(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1)"), List.of(List.of(user)), "user");
        }
    }

    /**
     * Makes the next login of the account a full one: the server drops it from its cache, and a gateway that knows the
     * server's accounts reads it again within FOREBAY_ACCOUNTS_DELAY_MS.
     */
    private void forgetCachedPassword() throws Exception {
        String user = account("caching_sha2_password");
        try (Connection connection = target.connect()) {
            execute(connection,
                    "ALTER USER " + user + "@'%' IDENTIFIED WITH caching_sha2_password BY '" + user + " secret'");
        }
        Thread.sleep(Long.parseLong(System.getenv("FOREBAY_ACCOUNTS_DELAY_MS")));
    }

    private void loginSha2Rsa() throws Exception {
        forgetCachedPassword();
        login("caching_sha2_password");
    }

    private void loginSha2Tls() throws Exception {
        forgetCachedPassword();
        login("caching_sha2_password", target.tls("FOREBAY_CA"));
    }

    private void loginSha2Fast() throws Exception {
        login("caching_sha2_password", target.tls("FOREBAY_CA"));
        // Full authentication would now need the key, which may not be fetched.
        login("caching_sha2_password", "allowPublicKeyRetrieval=false");
    }

    private void loginEmptyPassword() throws Exception {
        try (Connection connection = target.connect("user=nopass", "password=", "database=")) {
            equal(rows(connection, "SELECT 1"), List.of(List.of("1")), "value");
        }
    }

    private void loginWrongPassword() throws Exception {
        SQLException error = refused(1045, "28000", () -> target.connect("password=not the secret").close());
        if (!error.getMessage().contains("Access denied for user 'app'@")) {
            throw new AssertionError("not the server's message: " + error.getMessage());
        }
    }

    private void tlsVerified() throws Exception {
        try (Connection connection = target.connect(target.tls("FOREBAY_CA"))) {
            equal(rows(connection, "SELECT 1"), List.of(List.of("1")), "value");
        }
    }

    private void tlsWrongCa() throws Exception {
        try {
            target.connect(target.tls("FOREBAY_WRONG_CA")).close();
        } catch (SQLException error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (cause instanceof java.security.cert.CertificateException
                        || cause instanceof java.security.cert.CertPathValidatorException
                        || cause instanceof javax.net.ssl.SSLHandshakeException) {
                    return;
                }
            }
            throw error;
        }
        throw new AssertionError("a certificate of another CA was accepted");
    }

    private void attributes() throws Exception {
        try (Connection connection = target.connect("connectionAttributes=program_name:forebay java")) {
            String sql = "SELECT ATTR_VALUE FROM performance_schema.session_connect_attrs"
                    + " WHERE PROCESSLIST_ID = CONNECTION_ID() AND ATTR_NAME = '%s'";
            equal(rows(connection, String.format(sql, "program_name")), List.of(List.of("forebay java")), "program_name");
            equal(rows(connection, String.format(sql, "_client_name")).size(), 1, "number of _client_name");
        }
    }

    // data

    private void textUtf8mb4() throws Exception {
        for (String prepared : List.of("useServerPrepStmts=false", PREPARED)) {
            try (Connection connection = target.connect(prepared);
                    PreparedStatement statement = connection.prepareStatement("SELECT ?, CHAR_LENGTH('😀é')")) {
                statement.setString(1, TEXT);
                equal(read(statement.executeQuery()), List.of(List.of(TEXT, "2")), prepared);
            }
        }
    }

    private static byte[] bytes(int count) {
        byte[] all = new byte[count];
        for (int i = 0; i < count; i++) {
            all[i] = (byte) i;
        }
        return all;
    }

    private static final Object[][] TYPES = {
        {
            1, -128, -32768, -8388608, -2147483648, Long.MIN_VALUE, new BigDecimal("18446744073709551615"), 1.5f, 2.25e-300,
            new BigDecimal("-12345678901234567890.0123456789"), LocalDate.of(2024, 2, 29), LocalTime.of(12, 34, 56, 123456000),
            LocalDateTime.of(2024, 2, 29, 23, 59, 59, 999999000), 2024, "héllo 😀", new byte[] {0, 1, -1, 39, 92},
            "t".repeat(3000), bytes(1024), "{\"a\": [1, null]}", new byte[] {2, 1}, "two", "x,z",
        },
        {
            2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
            null, null,
        },
        {
            3, 127, 32767, 8388607, 2147483647, Long.MAX_VALUE, new BigDecimal("0"), 0f, -1.5, new BigDecimal("0.0000000001"),
            LocalDate.of(1000, 1, 1), LocalTime.of(0, 0), LocalDateTime.of(1970, 1, 1, 0, 0), 1901, "", new byte[0], "",
            new byte[0], "[]", new byte[] {0, 0}, "one", "",
        },
    };

    private void types(String prepared) throws Exception {
        try (Connection connection = target.connect(prepared)) {
            execute(connection, "DELETE FROM types");
            try (PreparedStatement insert =
                    connection.prepareStatement("INSERT INTO types VALUES (?" + ", ?".repeat(21) + ")")) {
                for (Object[] row : TYPES) {
                    for (int i = 0; i < row.length; i++) {
                        insert.setObject(i + 1, sendable(row[i]));
                    }
                    insert.executeUpdate();
                }
            }
            try (PreparedStatement select = connection.prepareStatement("SELECT * FROM types WHERE id >= ? ORDER BY id")) {
                select.setInt(1, 1);
                ResultSet result = select.executeQuery();
                for (Object[] expected : TYPES) {
                    equal(result.next(), true, "a row more");
                    for (int i = 0; i < expected.length; i++) {
                        String what = "row " + expected[0] + " column " + result.getMetaData().getColumnName(i + 1);
                        equal(typed(result, i + 1, TYPES[0][i].getClass()), expected[i], what);
                    }
                }
                equal(result.next(), false, "a row more");
            }
        }
    }

    /**
     * What the drivers cannot send to the other product's server goes as text: Connector/J takes MariaDB for version
     * 5.5.5, by its greeting, and leaves out the fractions of a time; MySQL 9 finds the binary date of MariaDB
     * Connector/J malformed.
     */
    private Object sendable(Object value) {
        boolean foreign = target.mysqlServer != (target.driver == Target.Driver.MYSQL);
        if (!foreign) {
            return value;
        }
        if (target.mysqlServer) {
            return value instanceof LocalDate ? value.toString() : value;
        }
        boolean fraction = value instanceof LocalTime || value instanceof LocalDateTime;
        return fraction ? value.toString().replace('T', ' ') : value;
    }

    private static Object typed(ResultSet result, int column, Class<?> type) throws SQLException {
        Object value = type == byte[].class ? result.getBytes(column) : result.getObject(column, type);
        return result.wasNull() ? null : value;
    }

    private static long status(Connection connection, String name) throws SQLException {
        return Long.parseLong(rows(connection, "SHOW SESSION STATUS LIKE '" + name + "'").get(0).get(1));
    }

    private void preparedRepeat() throws Exception {
        try (Connection connection = target.connect(PREPARED)) {
            try (PreparedStatement statement = connection.prepareStatement("SELECT ? + 1, ?")) {
                for (int n = 0; n < 500; n++) {
                    if (n == 250) {
                        refused(1064, "42000", () -> connection.prepareStatement("SELEKT 1").execute());
                    }
                    statement.setInt(1, n);
                    statement.setString(2, "text " + n);
                    try (ResultSet result = statement.executeQuery()) {
                        result.next();
                        equal(result.getInt(1) + result.getString(2), n + 1 + "text " + n, "row");
                    }
                }
            }
            if (status(connection, "Com_stmt_execute") < 500) {
                throw new AssertionError("the statements were not executed as prepared ones");
            }
        }
    }

    private void preparedLongData() throws Exception {
        byte[] body = bytes(1 << 20);
        try (Connection connection = target.connect(PREPARED);
                PreparedStatement statement = connection.prepareStatement("REPLACE INTO blobs VALUES (?, ?)")) {
            statement.setInt(1, 2);
            statement.setBinaryStream(2, new ByteArrayInputStream(body));
            statement.executeUpdate();
            equal(rows(connection, "SELECT SHA2(body, 256) FROM blobs WHERE id = 2"), List.of(List.of(sha256(body))), "hash");
            if (status(connection, "Com_stmt_send_long_data") == 0) {
                throw new Absent("this version sends streams whole");
            }
        }
    }

    private static void checkBig(ResultSet result) throws SQLException {
        int count = 0;
        long sum = 0;
        while (result.next()) {
            int id = result.getInt(1);
            if (!result.getString(2).equals("row " + id + " é😀")) {
                throw new AssertionError("label " + result.getString(2) + " of id " + id);
            }
            count++;
            sum += id;
        }
        equal(List.of((long) count, sum), List.of((long) BIG_ROWS, BIG_SUM), "rows and sum of ids");
    }

    private void resultBig() throws Exception {
        for (String prepared : List.of("useServerPrepStmts=false", PREPARED)) {
            try (Connection connection = target.connect(prepared);
                    PreparedStatement statement = connection.prepareStatement(BIG)) {
                checkBig(statement.executeQuery());
            }
        }
    }

    private void resultStream() throws Exception {
        int fetch = target.driver == Target.Driver.MYSQL ? Integer.MIN_VALUE : 100;
        try (Connection connection = target.connect()) {
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(fetch);
                checkBig(statement.executeQuery(BIG));
                try (ResultSet result = statement.executeQuery(BIG + " ORDER BY id")) {
                    result.next();
                    equal(result.getInt(1), 1, "first row");
                }
            }
            equal(rows(connection, "SELECT 7"), List.of(List.of("7")), "after stopping early");
        }
    }

    private void resultCursor() throws Exception {
        try (Connection connection = target.connect(PREPARED, "useCursorFetch=true")) {
            try (PreparedStatement statement = connection.prepareStatement(BIG)) {
                statement.setFetchSize(5000);
                checkBig(statement.executeQuery());
            }
            if (status(connection, "Com_stmt_fetch") < BIG_ROWS / 5000) {
                throw new AssertionError("rows were not fetched from a cursor");
            }
        }
    }

    private static String sha256(byte[] body) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    }

    private static byte[] bigBody(int size) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        ByteArrayOutputStream body = new ByteArrayOutputStream(size);
        for (int n = 0; body.size() < size; n++) {
            body.write(digest.digest(Integer.toString(n).getBytes(StandardCharsets.UTF_8)));
        }
        return body.toByteArray();
    }

    private void blob(int size, String... options) throws Exception {
        byte[] body = bigBody(size);
        for (String prepared : List.of("useServerPrepStmts=false", PREPARED)) {
            String[] all = Arrays.copyOf(options, options.length + 1);
            all[options.length] = prepared;
            try (Connection connection = target.connect(all);
                    PreparedStatement write = connection.prepareStatement("REPLACE INTO blobs VALUES (1, ?)");
                    PreparedStatement back = connection.prepareStatement(
                            "SELECT LENGTH(body), SHA2(body, 256), body FROM blobs WHERE id = 1")) {
                write.setBytes(1, body);
                write.executeUpdate();
                ResultSet result = back.executeQuery();
                result.next();
                equal(result.getInt(1) + " " + result.getString(2), body.length + " " + sha256(body), "as the server has it");
                equal(sha256(result.getBytes(3)), sha256(body), "as it came back");
            }
        }
    }

    private void errorNoSuchTable() throws Exception {
        for (String prepared : List.of("useServerPrepStmts=false", PREPARED)) {
            try (Connection connection = target.connect(prepared)) {
                refused(1146, "42S02", () -> connection.prepareStatement("SELECT * FROM no_such_table").executeQuery());
                equal(rows(connection, "SELECT 1"), List.of(List.of("1")), "after the error");
            }
        }
    }

    // transactions

    private void transactionCommit() throws Exception {
        try (Connection writer = target.connect(); Connection reader = target.connect()) {
            writer.setAutoCommit(false);
            execute(writer, "INSERT INTO ledger VALUES (1, 100)");
            equal(rows(reader, "SELECT * FROM ledger WHERE id = 1"), List.of(), "before the commit");
            writer.commit();
            equal(rows(reader, "SELECT * FROM ledger WHERE id = 1"), List.of(List.of("1", "100")), "after the commit");
        }
    }

    private void transactionRollback() throws Exception {
        try (Connection connection = target.connect()) {
            connection.setAutoCommit(false);
            execute(connection, "INSERT INTO ledger VALUES (2, 100)");
            var before = connection.setSavepoint("before_the_third");
            execute(connection, "INSERT INTO ledger VALUES (3, 100)");
            connection.rollback(before);
            equal(rows(connection, "SELECT id FROM ledger WHERE id > 1"), List.of(List.of("2")), "after the savepoint");
            connection.rollback();
            equal(rows(connection, "SELECT id FROM ledger WHERE id > 1"), List.of(), "after the rollback");
        }
    }

    // several results, files

    private static final String[] INFILE = {"allowLoadLocalInfile=true", "allowLocalInfile=true"};

    private void infileLoad() throws Exception {
        StringBuilder text = new StringBuilder();
        for (int n = 0; n < 10_000; n++) {
            text.append(n).append("\tlabel ").append(n).append(" é😀\n");
        }
        Path file = Path.of(target.scratch, target.driver + ".tsv");
        Files.writeString(file, text);
        try (Connection connection = target.connect(INFILE)) {
            execute(connection, "LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE loaded CHARACTER SET utf8mb4");
            equal(rows(connection, "SELECT COUNT(*), SUM(id), MAX(label) FROM loaded"),
                    List.of(List.of("10000", "49995000", "label 9999 é😀")), "loaded");
        }
    }

    private void infileRefused() throws Exception {
        try (Connection connection = target.connect(INFILE)) {
            try {
                execute(connection, "LOAD DATA LOCAL INFILE '" + target.scratch + "/no-such-file' INTO TABLE loaded");
                throw new AssertionError("a file that does not exist was loaded");
            } catch (SQLException expected) {
                equal(expected.getErrorCode() != 1045, true, expected.getMessage());
            }
            equal(rows(connection, "SELECT 1"), List.of(List.of("1")), "after the refusal");
        }
    }

    /** Every result of a statement; an update count is shown as `OK`. */
    private static List<Object> results(Statement statement, boolean hasResult) throws SQLException {
        List<Object> found = new ArrayList<>();
        boolean more = hasResult;
        while (more || statement.getUpdateCount() != -1) {
            found.add(more ? read(statement.getResultSet()) : "OK");
            more = statement.getMoreResults();
        }
        return found;
    }

    private void multiStatements() throws Exception {
        try (Connection connection = target.connect("allowMultiQueries=true");
                Statement statement = connection.createStatement()) {
            List<Object> found = results(statement,
                    statement.execute("SELECT 1; DO 0; SELECT 2 UNION SELECT 3; SET @x = 5; SELECT @x"));
            equal(found, List.of(List.of(List.of("1")), "OK", List.of(List.of("2"), List.of("3")), "OK",
                    List.of(List.of("5"))), "results");
        }
    }

    private void multiError() throws Exception {
        try (Connection connection = target.connect("allowMultiQueries=true")) {
            refused(1146, "42S02", () -> {
                try (Statement statement = connection.createStatement()) {
                    results(statement, statement.execute("SELECT 1; SELECT * FROM no_such_table; SET @never = 1"));
                }
            });
            List<String> nothing = new ArrayList<>();
            nothing.add(null);
            equal(rows(connection, "SELECT @never"), List.of(nothing), "the third statement");
        }
    }

    private void callResults() throws Exception {
        List<Object> second = new ArrayList<>();
        for (int n = 1; n <= 3; n++) {
            second.add(List.of(Integer.toString(n), "row " + n + " é😀"));
        }
        for (String prepared : List.of("useServerPrepStmts=false", PREPARED)) {
            try (Connection connection = target.connect(prepared);
                    CallableStatement call = connection.prepareCall("{call forebay_clients.two_results()}")) {
                List<Object> found = results(call, call.execute());
                equal(found.subList(0, 2), List.of(List.of(List.of("1", "first")), second), prepared);
            }
        }
    }

    private void callOut() throws Exception {
        for (String prepared : List.of("useServerPrepStmts=false", PREPARED)) {
            try (Connection connection = target.connect(prepared, "database=forebay_clients");
                    CallableStatement call = connection.prepareCall("{call double_it(?, ?)}")) {
                call.setInt(1, 21);
                call.registerOutParameter(2, Types.INTEGER);
                call.execute();
                equal(call.getInt(2), 42, prepared);
            }
        }
    }

    private void compressed() throws Exception {
        try (Connection connection = target.connect("useCompression=true"); Statement statement = connection.createStatement()) {
            checkBig(statement.executeQuery(BIG));
        }
        // Neither driver can write a packet of 16 MiB and more compressed: the servers cannot uncompress what comes.
        blob(15 << 20, "useCompression=true");
    }

    // the session

    private void changeUser() throws Exception {
        String user = account(target.mysqlServer ? "caching_sha2_password" : "mysql_native_password");
        try (Connection connection = target.connect("database=forebay_clients")) {
            execute(connection, "SET @mine = 1");
            var own = connection.unwrap(com.mysql.cj.jdbc.JdbcConnection.class);
            own.changeUser(user, user + " secret");
            equal(rows(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1), IFNULL(@mine, 'none')"),
                    List.of(List.of(user, "none")), "after the change");
            own.changeUser("app", "app secret");
            equal(rows(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1)"), List.of(List.of("app")), "back");
        }
    }

    private void reset() throws Exception {
        if (target.mysqlServer && target.driver == Target.Driver.MARIADB) {
            throw new Absent("MariaDB Connector/J resets connections to MariaDB only");
        }
        try (Connection connection = target.connect("useResetConnection=true")) {
            execute(connection, "SET @mine = 1");
            execute(connection, "CREATE TEMPORARY TABLE mine (id INT)");
            switch (target.driver) {
                case MYSQL -> connection.unwrap(com.mysql.cj.jdbc.JdbcConnection.class).resetServerState();
                case MARIADB -> connection.unwrap(org.mariadb.jdbc.Connection.class).reset();
            }
            equal(rows(connection, "SELECT IFNULL(@mine, 'none')"), List.of(List.of("none")), "variable");
            refused(1146, "42S02", () -> execute(connection, "SELECT * FROM " + target.database + ".mine"));
        }
    }

    private void use() throws Exception {
        try (Connection connection = target.connect("database=")) {
            connection.setCatalog(target.database);
            equal(rows(connection, "SELECT DATABASE()"), List.of(List.of(target.database)), "database");
        }
    }

    private void ping() throws Exception {
        try (Connection connection = target.connect()) {
            for (int n = 0; n < 100; n++) {
                equal(connection.isValid(10), true, "valid");
            }
        }
    }

    private interface Kill {
        void now(Statement running, String id, Connection other) throws Exception;
    }

    private void cancel(Kill kill) throws Exception {
        try (Connection connection = target.connect();
                Connection other = target.connect();
                Statement statement = connection.createStatement()) {
            String id = rows(connection, "SELECT CONNECTION_ID()").get(0).get(0);
            CompletableFuture<String> ended = CompletableFuture.supplyAsync(() -> {
                try (ResultSet result = statement.executeQuery("SELECT SLEEP(30), 'forebay cancel java'")) {
                    return "slept " + read(result).get(0).get(0);
                } catch (SQLException error) {
                    return "error " + error.getErrorCode();
                }
            });
            String running = "SELECT COUNT(*) FROM information_schema.processlist "
                    + "WHERE info LIKE 'SELECT SLEEP(30), _forebay cancel java%'";
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (!rows(other, running).equals(List.of(List.of("1")))) {
                equal(System.nanoTime() < deadline, true, "the statement runs");
            }
            kill.now(statement, id, other);
            String how = ended.get(15, TimeUnit.SECONDS);
            equal(List.of("slept 1", "error 1317", "error 0").contains(how), true, "ended with " + how);
            equal(rows(connection, "SELECT 1"), List.of(List.of("1")), "after the kill");
        }
    }

    private void cancelByConnectionId() throws Exception {
        cancel((statement, id, other) -> execute(other, "KILL QUERY " + id));
    }

    /** Statement.cancel, then a time limit on a statement. Both end it by KILL QUERY of the id in the greeting. */
    private void cancelByClient() throws Exception {
        cancel((statement, id, other) -> statement.cancel());
        try (Connection connection = target.connect(); Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            long started = System.nanoTime();
            try (ResultSet result = statement.executeQuery("SELECT SLEEP(20)")) {
                equal(read(result), List.of(List.of("1")), "an interrupted sleep");
            } catch (SQLException expected) {
                equal(expected instanceof java.sql.SQLTimeoutException, true, "a timeout: " + expected);
            }
            equal(System.nanoTime() - started < TimeUnit.SECONDS.toNanos(15), true, "ended in time");
            statement.setQueryTimeout(0);
            equal(rows(connection, "SELECT 1"), List.of(List.of("1")), "after the time limit");
        }
    }

    // batches

    /** Writes 2 000 rows as one batch and gives the number of statements that the server counted for it. */
    private long batch(String... options) throws Exception {
        try (Connection connection = target.connect(options)) {
            connection.setAutoCommit(false);
            long before = status(connection, "Questions");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batch VALUES (?, ?)")) {
                for (int n = 0; n < 2_000; n++) {
                    insert.setInt(1, n);
                    insert.setString(2, "label " + n + " é😀");
                    insert.addBatch();
                }
                equal(insert.executeBatch().length, 2_000, "counts");
            }
            long questions = status(connection, "Questions") - before;
            connection.commit();
            equal(rows(connection, "SELECT COUNT(*), SUM(id), MAX(label) FROM batch"),
                    List.of(List.of("2000", "1999000", "label 999 é😀")), "batch");
            execute(connection, "DELETE FROM batch");
            connection.commit();
            return questions;
        }
    }

    private void batchRewritten() throws Exception {
        long questions = batch("rewriteBatchedStatements=true", "useServerPrepStmts=false");
        equal(questions < 100, true, questions + " statements for 2 000 rows: rewritten");
    }

    private void batchBulk() throws Exception {
        if (target.mysqlServer) {
            throw new Absent("MySQL has no COM_STMT_BULK_EXECUTE");
        }
        long questions = batch(PREPARED, "useBulkStmts=true", "useBulkStmtsForInserts=true");
        equal(questions < 100, true, questions + " statements for 2 000 rows: bulk");
    }

    /** Without bulk, MariaDB Connector/J sends all executions of a batch before it reads the first answer. */
    private void pipeline() throws Exception {
        long questions = batch(PREPARED, "useBulkStmts=false", "useBulkStmtsForInserts=false", "disablePipeline=false");
        equal(questions >= 2_000, true, questions + " statements for 2 000 rows: one each");
        batch("useServerPrepStmts=false", "useBulkStmts=false", "useBulkStmtsForInserts=false", "disablePipeline=false");
    }

    private void queryAttributes() throws Exception {
        if (!target.mysqlServer) {
            throw new Absent("MariaDB has no query attributes");
        }
        String sql = "SELECT mysql_query_attribute_string('color')";
        try (Connection connection = target.connect(PREPARED); Statement statement = connection.createStatement();
                PreparedStatement prepared = connection.prepareStatement(sql)) {
            statement.unwrap(com.mysql.cj.jdbc.JdbcStatement.class).setAttribute("color", "blue");
            equal(read(statement.executeQuery(sql)), List.of(List.of("blue")), "text protocol");
            prepared.unwrap(com.mysql.cj.jdbc.JdbcStatement.class).setAttribute("color", "green");
            equal(read(prepared.executeQuery()), List.of(List.of("green")), "binary protocol");
        }
    }
}
