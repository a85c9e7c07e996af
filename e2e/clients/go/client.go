// go-sql-driver/mysql through the gateway: one line a check of ../checks, see ../README.md.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	bigRows      = 200_000
	bigSum       = 20_000_100_000
	big          = "SELECT id, label FROM forebay_clients.numbers"
	checkTimeout = 60 * time.Second
)

var (
	host     = os.Getenv("FOREBAY_HOST")
	port     = os.Getenv("FOREBAY_PORT")
	server   = os.Getenv("FOREBAY_SERVER")
	database = os.Getenv("FOREBAY_DATABASE")
	scratch  = os.Getenv("FOREBAY_SCRATCH")
	logins   = map[string]string{}
)

// absent says that the client or the server cannot do a check.
type absent string

func (why absent) Error() string { return string(why) }

// failure carries a failed expectation out of a check.
type failure struct {
	text string
}

func fail(format string, values ...any) {
	panic(failure{fmt.Sprintf(format, values...)})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, expected any, what string) {
	if !reflect.DeepEqual(found, expected) {
		fail("%s: expected %.200s, found %.200s", what, fmt.Sprintf("%#v", expected), fmt.Sprintf("%#v", found))
	}
}

func configure(change func(*mysql.Config)) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Passwd = "app", "app secret"
	config.Net, config.Addr, config.DBName = "tcp", host+":"+port, database
	config.Collation = "utf8mb4_unicode_ci"
	config.Logger = &mysql.NopLogger{}
	if change != nil {
		change(config)
	}
	return config
}

// connect gives one connection; open's pool never makes a second one behind its back.
func connect(change func(*mysql.Config)) (*sql.Conn, error) {
	connector, err := mysql.NewConnector(configure(change))
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(context.Background())
	if err != nil {
		pool.Close()
		return nil, err
	}
	// Not waited for: a failed check may leave a transaction open, which Close would wait for.
	closers = append(closers, func() { go conn.Close(); go pool.Close() })
	return conn, nil
}

// closers end the connections of the check that runs.
var closers []func()

func connected(change func(*mysql.Config)) *sql.Conn {
	conn, err := connect(change)
	must(err)
	return conn
}

func exec(conn *sql.Conn, statement string, args ...any) {
	_, err := conn.ExecContext(context.Background(), statement, args...)
	must(err)
}

// rows reads a whole result; a value is nil or a string.
func rows(conn *sql.Conn, query string, args ...any) [][]any {
	result, err := conn.QueryContext(context.Background(), query, args...)
	must(err)
	defer result.Close()
	found := scan(result)
	must(result.Err())
	return found
}

func scan(result *sql.Rows) [][]any {
	columns, err := result.Columns()
	must(err)
	found := [][]any{}
	for result.Next() {
		values := make([]sql.NullString, len(columns))
		pointers := make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		must(result.Scan(pointers...))
		row := make([]any, len(columns))
		for i, value := range values {
			if value.Valid {
				row[i] = value.String
			}
		}
		found = append(found, row)
	}
	return found
}

func refused(err error, number uint16, state string) *mysql.MySQLError {
	var refusal *mysql.MySQLError
	if !errors.As(err, &refusal) {
		fail("expected error %d, found %v", number, err)
	}
	equal([]string{fmt.Sprint(refusal.Number), string(refusal.SQLState[:])}, []string{fmt.Sprint(number), state}, "error")
	return refusal
}

func secured(caFile string) func(*mysql.Config) {
	return func(config *mysql.Config) {
		pem, err := os.ReadFile(caFile)
		must(err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		config.TLS = &tls.Config{RootCAs: roots, ServerName: "localhost"}
	}
}

var withTLS = secured(os.Getenv("FOREBAY_CA"))

// logins

func account(plugin string) string {
	user, known := logins[plugin]
	if !known {
		panic(absent("this server has no account of " + plugin))
	}
	return user
}

func login(plugin string, changes ...func(*mysql.Config)) {
	user := account(plugin)
	conn := connected(func(config *mysql.Config) {
		config.User, config.Passwd, config.DBName = user, user+" secret", ""
		for _, change := range changes {
			change(config)
		}
	})
	equal(rows(conn, "SELECT SUBSTRING_INDEX(USER(), '@', 1)"), [][]any{{user}}, "user")
}

// forgetCachedPassword makes the next login of the account a full one: the server drops it from its cache, and a gateway that
// knows the server's accounts reads it again within FOREBAY_ACCOUNTS_DELAY_MS.
func forgetCachedPassword(plugin string) {
	user := account(plugin)
	exec(connected(nil), fmt.Sprintf("ALTER USER %s@'%%' IDENTIFIED WITH %s BY '%s secret'", user, plugin, user))
	delay, _ := time.ParseDuration(os.Getenv("FOREBAY_ACCOUNTS_DELAY_MS") + "ms")
	time.Sleep(delay)
}

// spy keeps what the server sent on a plain link.
type spy struct {
	net.Conn
	received *bytes.Buffer
}

func (link spy) Read(into []byte) (int, error) {
	n, err := link.Conn.Read(into)
	link.received.Write(into[:n])
	return n, err
}

// sha2Login logs in over a plain link and checks whether the server sent its public key, that is, wanted full authentication.
func sha2Login(full bool) {
	received := &bytes.Buffer{}
	login("caching_sha2_password", func(config *mysql.Config) {
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return spy{conn, received}, err
		}
	})
	equal(bytes.Contains(received.Bytes(), []byte("BEGIN PUBLIC KEY")), full, "the server sent its public key")
}

func loginEmptyPassword() {
	conn := connected(func(config *mysql.Config) { config.User, config.Passwd, config.DBName = "nopass", "", "" })
	equal(rows(conn, "SELECT 1"), [][]any{{"1"}}, "value")
}

func loginWrongPassword() {
	_, err := connect(func(config *mysql.Config) { config.Passwd = "not the secret" })
	refusal := refused(err, 1045, "28000")
	if !strings.HasPrefix(refusal.Message, "Access denied for user 'app'@") {
		fail("not the server's message: %s", refusal.Message)
	}
}

func loginUnknownDatabase() {
	_, err := connect(func(config *mysql.Config) { config.DBName = "no_such_database" })
	refused(err, 1049, "42000")
}

func tlsVerified() {
	handshakes := 0
	conn := connected(func(config *mysql.Config) {
		withTLS(config)
		config.TLS.VerifyConnection = func(state tls.ConnectionState) error {
			handshakes += len(state.VerifiedChains)
			return nil
		}
	})
	equal(handshakes, 1, "verified chains")
	equal(rows(conn, "SELECT 1"), [][]any{{"1"}}, "value")
}

func tlsWrongCa() {
	_, err := connect(secured(os.Getenv("FOREBAY_WRONG_CA")))
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		fail("expected an unknown authority, found %v", err)
	}
}

func attributes() {
	conn := connected(func(config *mysql.Config) { config.ConnectionAttributes = "program_name:forebay go" })
	found := rows(conn, "SELECT ATTR_VALUE FROM performance_schema.session_connect_attrs"+
		" WHERE PROCESSLIST_ID = CONNECTION_ID() AND ATTR_NAME IN ('program_name', '_client_name') ORDER BY ATTR_NAME")
	equal(found, [][]any{{"Go-MySQL-Driver"}, {"forebay go"}}, "attributes")
}

// data

const utf8 = "naïve 東京 Ωμέγα 😀👩‍🚀 \\ ' \" %"

func textUTF8MB4() {
	conn := connected(func(config *mysql.Config) { config.InterpolateParams = true })
	equal(rows(conn, "SELECT ?, CHAR_LENGTH('😀é')", utf8), [][]any{{utf8, "2"}}, "text")
}

func bytesUpTo255() string {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return string(all)
}

var types = [][]any{
	{
		"1", "-128", "-32768", "-8388608", "-2147483648", "-9223372036854775808", "18446744073709551615", "1.5", "2.25e-300",
		"-12345678901234567890.0123456789", "2024-02-29", "12:34:56.123456", "2024-02-29 23:59:59.999999", "2024", "héllo 😀",
		"\x00\x01\xff'\\", strings.Repeat("t", 3000), strings.Repeat(bytesUpTo255(), 4), `{"a": [1, null]}`, "\x02\x01", "two", "x,z",
	},
	append([]any{"2"}, make([]any, 21)...),
	{
		"3", "127", "32767", "8388607", "2147483647", "9223372036854775807", "0", "0", "-1.5", "0.0000000001", "1000-01-01",
		"00:00:00.000000", "1970-01-01 00:00:00.000000", "1901", "", "", "", "", "[]", "\x00\x00", "one", "",
	},
}

func insertTypes(conn *sql.Conn) {
	for _, row := range types {
		values := append([]any{}, row...)
		for _, binary := range []int{15, 17, 19} {
			if text, ok := values[binary].(string); ok {
				values[binary] = []byte(text)
			}
		}
		exec(conn, "INSERT INTO types VALUES (?"+strings.Repeat(", ?", 21)+")", values...)
	}
}

func textTypes() {
	conn := connected(func(config *mysql.Config) { config.InterpolateParams = true })
	insertTypes(conn)
	equal(rows(conn, "SELECT * FROM types ORDER BY id"), types, "rows")
	exec(conn, "DELETE FROM types")
}

func preparedTypes() {
	conn := connected(nil)
	insertTypes(conn)
	equal(rows(conn, "SELECT * FROM types WHERE id >= ? ORDER BY id", 1), types, "rows")
	counter := rows(conn, "SHOW SESSION STATUS LIKE 'Com_stmt_execute'")
	equal(counter[0][1], "4", "statements that the server executed as prepared")
	exec(conn, "DELETE FROM types")
}

func preparedRepeat() {
	conn := connected(nil)
	statement, err := conn.PrepareContext(context.Background(), "SELECT ? + 1, ?")
	must(err)
	for n := range 500 {
		if n == 250 {
			_, err := conn.PrepareContext(context.Background(), "SELEKT 1")
			refused(err, 1064, "42000")
		}
		var sum int
		var text string
		must(statement.QueryRow(n, fmt.Sprintf("text %d", n)).Scan(&sum, &text))
		equal([]any{sum, text}, []any{n + 1, fmt.Sprintf("text %d", n)}, "row")
	}
	must(statement.Close())
	equal(rows(conn, "SELECT 1"), [][]any{{"1"}}, "after closing")
}

func preparedLongData() {
	conn := connected(func(config *mysql.Config) { config.MaxAllowedPacket = 64 * 1024 })
	body := strings.Repeat(bytesUpTo255(), 4096)
	digest := sha256.Sum256([]byte(body))
	exec(conn, "REPLACE INTO blobs VALUES (?, ?)", 2, []byte(body))
	found := rows(conn, "SELECT SHA2(body, 256), LENGTH(body) FROM blobs WHERE id = 2")
	equal(found, [][]any{{hex.EncodeToString(digest[:]), fmt.Sprint(len(body))}}, "as the server has it")
	counter := rows(conn, "SHOW SESSION STATUS LIKE 'Com_stmt_send_long_data'")
	if counter[0][1] == "0" {
		fail("the server saw no COM_STMT_SEND_LONG_DATA")
	}
}

func checkBig(result *sql.Rows, err error) {
	must(err)
	defer result.Close()
	count, sum := 0, 0
	for result.Next() {
		var id int
		var label string
		must(result.Scan(&id, &label))
		if label != fmt.Sprintf("row %d é😀", id) {
			fail("label %q of id %d", label, id)
		}
		count++
		sum += id
	}
	must(result.Err())
	equal([]int{count, sum}, []int{bigRows, bigSum}, "rows and sum of ids")
}

func resultBig() {
	conn := connected(nil)
	checkBig(conn.QueryContext(context.Background(), big))
	checkBig(conn.QueryContext(context.Background(), big+" WHERE id > ?", 0))
}

func resultStream() {
	conn := connected(nil)
	result, err := conn.QueryContext(context.Background(), big+" ORDER BY id")
	must(err)
	var id int
	var label string
	result.Next()
	must(result.Scan(&id, &label))
	equal(id, 1, "first row")
	must(result.Close())
	equal(rows(conn, "SELECT 7"), [][]any{{"7"}}, "after stopping early")
	checkBig(conn.QueryContext(context.Background(), big))
}

func blob(change func(*mysql.Config)) {
	body := make([]byte, 0, 20<<20)
	for n := 0; len(body) < cap(body); n++ {
		digest := sha256.Sum256([]byte(fmt.Sprint(n)))
		body = append(body, digest[:]...)
	}
	expected := sha256.Sum256(body)
	for _, interpolate := range []bool{true, false} {
		conn := connected(func(config *mysql.Config) {
			config.InterpolateParams = interpolate
			if change != nil {
				change(config)
			}
		})
		exec(conn, "REPLACE INTO blobs VALUES (?, ?)", 1, body)
		found := rows(conn, "SELECT LENGTH(body), SHA2(body, 256) FROM blobs WHERE id = ?", 1)
		equal(found, [][]any{{fmt.Sprint(len(body)), hex.EncodeToString(expected[:])}}, "as the server has it")
		var back []byte
		must(conn.QueryRowContext(context.Background(), "SELECT body FROM blobs WHERE id = ?", 1).Scan(&back))
		equal(sha256.Sum256(back), expected, "as it came back")
	}
}

func errorNoSuchTable() {
	conn := connected(nil)
	_, err := conn.QueryContext(context.Background(), "SELECT * FROM no_such_table")
	refused(err, 1146, "42S02")
	_, err = conn.PrepareContext(context.Background(), "SELECT * FROM no_such_table")
	refused(err, 1146, "42S02")
	equal(rows(conn, "SELECT 1"), [][]any{{"1"}}, "after the error")
}

// transactions

func transactionCommit() {
	writer, reader := connected(nil), connected(nil)
	transaction, err := writer.BeginTx(context.Background(), nil)
	must(err)
	_, err = transaction.Exec("INSERT INTO ledger VALUES (?, ?)", 1, 100)
	must(err)
	equal(rows(reader, "SELECT * FROM ledger WHERE id = 1"), [][]any{}, "before the commit")
	must(transaction.Commit())
	equal(rows(reader, "SELECT * FROM ledger WHERE id = 1"), [][]any{{"1", "100"}}, "after the commit")
}

func transactionRollback() {
	conn := connected(nil)
	transaction, err := conn.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	must(err)
	_, err = transaction.Exec("INSERT INTO ledger VALUES (?, ?)", 2, 100)
	must(err)
	must(transaction.Rollback())
	equal(rows(conn, "SELECT * FROM ledger WHERE id = 2"), [][]any{}, "after the rollback")
}

// several results, files

func infileLoad() {
	var text strings.Builder
	for n := range 10_000 {
		fmt.Fprintf(&text, "%d\tlabel %d é😀\n", n, n)
	}
	mysql.RegisterReaderHandler("rows", func() io.Reader { return strings.NewReader(text.String()) })
	conn := connected(nil)
	exec(conn, "LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE loaded CHARACTER SET utf8mb4")
	found := rows(conn, "SELECT COUNT(*), SUM(id), MAX(label) FROM loaded")
	equal(found, [][]any{{"10000", "49995000", "label 9999 é😀"}}, "loaded")
}

func infileRefused() {
	conn := connected(func(config *mysql.Config) { config.AllowAllFiles = true })
	_, err := conn.ExecContext(context.Background(), "LOAD DATA LOCAL INFILE '"+scratch+"/no-such-file' INTO TABLE loaded")
	if !errors.Is(err, os.ErrNotExist) {
		fail("expected a missing file, found %v", err)
	}
	equal(rows(conn, "SELECT 1"), [][]any{{"1"}}, "after the refusal")
}

func results(result *sql.Rows, err error) [][][]any {
	must(err)
	defer result.Close()
	all := [][][]any{scan(result)}
	for result.NextResultSet() {
		all = append(all, scan(result))
	}
	must(result.Err())
	return all
}

func multiStatements() {
	conn := connected(func(config *mysql.Config) { config.MultiStatements = true })
	found := results(conn.QueryContext(context.Background(), "SELECT 1; DO 0; SELECT 2 UNION SELECT 3; SET @x = 5; SELECT @x"))
	equal(found, [][][]any{{{"1"}}, {{"2"}, {"3"}}, {{"5"}}}, "results")
}

func multiError() {
	conn := connected(func(config *mysql.Config) { config.MultiStatements = true })
	result, err := conn.QueryContext(context.Background(), "SELECT 1; SELECT * FROM no_such_table; SET @never = 1")
	must(err)
	scan(result)
	if result.NextResultSet() {
		fail("the second statement had a result")
	}
	refused(result.Err(), 1146, "42S02")
	result.Close()
	equal(rows(conn, "SELECT @never"), [][]any{{nil}}, "the third statement")
}

func callResults() {
	conn := connected(nil)
	second := [][]any{}
	for n := 1; n <= 3; n++ {
		second = append(second, []any{fmt.Sprint(n), fmt.Sprintf("row %d é😀", n)})
	}
	expected := [][][]any{{{"1", "first"}}, second}
	equal(results(conn.QueryContext(context.Background(), "CALL forebay_clients.two_results()")), expected, "text")
	statement, err := conn.PrepareContext(context.Background(), "CALL forebay_clients.two_results()")
	must(err)
	equal(results(statement.Query()), expected, "prepared")
}

func callOut() {
	conn := connected(nil)
	exec(conn, "CALL forebay_clients.double_it(21, @y)")
	equal(rows(conn, "SELECT @y"), [][]any{{"42"}}, "out")
}

func compressed() {
	compress := func(config *mysql.Config) { must(config.Apply(mysql.EnableCompression(true))) }
	checkBig(connected(compress).QueryContext(context.Background(), big))
	blob(compress)
}

// the session

func sessionPing() {
	conn := connected(nil)
	for range 100 {
		must(conn.PingContext(context.Background()))
	}
}

func sessionUse() {
	conn := connected(func(config *mysql.Config) { config.DBName = "" })
	exec(conn, "USE "+database)
	equal(rows(conn, "SELECT DATABASE()"), [][]any{{database}}, "database")
}

const sleeper = "SELECT SLEEP(30), 'forebay cancel go'"

func identity(conn *sql.Conn) string { return rows(conn, "SELECT CONNECTION_ID()")[0][0].(string) }

// awaitCount polls until the process list holds `count` sleepers. Its numbers are not those of CONNECTION_ID() where the gateway
// shares connections.
func awaitCount(other *sql.Conn, count, what string) {
	query := "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30), _forebay cancel go%'"
	for deadline := time.Now().Add(20 * time.Second); rows(other, query)[0][0] != count; {
		if time.Now().After(deadline) {
			fail("%s", what)
		}
	}
}

func cancelByConnectionID() {
	conn, other := connected(nil), connected(nil)
	id := identity(conn)
	ended := make(chan error, 1)
	go func() {
		var slept int
		var tag string
		err := conn.QueryRowContext(context.Background(), sleeper).Scan(&slept, &tag)
		if err == nil && slept != 1 {
			err = errors.New("slept to the end")
		}
		ended <- err
	}()
	awaitCount(other, "1", "the statement never ran")
	exec(other, "KILL QUERY "+id)
	select {
	case err := <-ended:
		if err != nil {
			refused(err, 1317, "70100")
		}
	case <-time.After(15 * time.Second):
		fail("the statement went on after the kill")
	}
	equal(rows(conn, "SELECT 1"), [][]any{{"1"}}, "after the kill")
}

// cancelByClient: the driver's answer to a cancelled context is to close the connection.
func cancelByClient() {
	conn, other := connected(nil), connected(nil)
	limited, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	started := time.Now()
	_, err := conn.QueryContext(limited, sleeper)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 15*time.Second {
		fail("expected the deadline, found %v after %v", err, time.Since(started))
	}
	if server == "mysql" { // MariaDB notices only when it next writes to the connection
		awaitCount(other, "0", "the statement still runs 20 s after its connection was closed")
	}
}

func checkBatch(conn *sql.Conn) {
	found := rows(conn, "SELECT COUNT(*), SUM(id), MAX(label) FROM batch")
	equal(found, [][]any{{"2000", "1999000", "label 999 é😀"}}, "batch")
	exec(conn, "DELETE FROM batch")
}

func notIn(why string) func() { return func() { panic(absent(why)) } }

func cleartext(config *mysql.Config) { config.AllowCleartextPasswords = true }

var checks = []struct {
	name string
	run  func()
}{
	{"login.mysql_native_password", func() { login("mysql_native_password") }},
	{"login.caching_sha2_password.rsa", func() {
		forgetCachedPassword("caching_sha2_password")
		sha2Login(true)
	}},
	{"login.caching_sha2_password.tls", func() {
		forgetCachedPassword("caching_sha2_password")
		login("caching_sha2_password", withTLS)
	}},
	{"login.caching_sha2_password.fast", func() {
		login("caching_sha2_password", withTLS)
		sha2Login(false)
	}},
	{"login.sha256_password.rsa", func() { login("sha256_password") }},
	{"login.sha256_password.tls", func() { login("sha256_password", withTLS) }},
	{"login.client_ed25519", func() { login("client_ed25519") }},
	{"login.parsec", notIn("go-sql-driver/mysql has no parsec")},
	{"login.dialog", notIn("go-sql-driver/mysql has no dialog")},
	{"login.mysql_clear_password", func() { login("mysql_clear_password", withTLS, cleartext) }},
	{"login.empty_password", loginEmptyPassword},
	{"login.wrong_password", loginWrongPassword},
	{"login.unknown_database", loginUnknownDatabase},
	{"tls.verified", tlsVerified},
	{"tls.wrong_ca", tlsWrongCa},
	{"attributes", attributes},
	{"text.utf8mb4", textUTF8MB4},
	{"text.types", textTypes},
	{"prepared.types", preparedTypes},
	{"prepared.repeat", preparedRepeat},
	{"prepared.long_data", preparedLongData},
	{"result.big", resultBig},
	{"result.stream", resultStream},
	{"result.cursor", notIn("go-sql-driver/mysql opens no server-side cursor")},
	{"blob.20mb", func() { blob(nil) }},
	{"error.no_such_table", errorNoSuchTable},
	{"transaction.commit", transactionCommit},
	{"transaction.rollback", transactionRollback},
	{"infile.load", infileLoad},
	{"infile.refused", infileRefused},
	{"multi.statements", multiStatements},
	{"multi.error", multiError},
	{"call.results", callResults},
	{"call.out", callOut},
	{"compression.zlib", compressed},
	{"compression.zstd", notIn("go-sql-driver/mysql has zlib only")},
	{"session.change_user", notIn("go-sql-driver/mysql has no COM_CHANGE_USER")},
	{"session.reset", notIn("go-sql-driver/mysql has no COM_RESET_CONNECTION")},
	{"session.use", sessionUse},
	{"session.ping", sessionPing},
	{"cancel.by_connection_id", cancelByConnectionID},
	{"cancel.by_client", cancelByClient},
	{"batch.insert", func() {
		conn := connected(nil)
		transaction, err := conn.BeginTx(context.Background(), nil)
		must(err)
		statement, err := transaction.Prepare("INSERT INTO batch VALUES (?, ?)")
		must(err)
		for n := range 2000 {
			_, err := statement.Exec(n, fmt.Sprintf("label %d é😀", n))
			must(err)
		}
		must(transaction.Commit())
		checkBatch(conn)
	}},
	{"batch.rewritten", notIn("go-sql-driver/mysql rewrites no batches")},
	{"batch.bulk", notIn("go-sql-driver/mysql has no COM_STMT_BULK_EXECUTE")},
	{"pipeline", notIn("go-sql-driver/mysql waits for every answer")},
	{"query_attributes", notIn("go-sql-driver/mysql has no query attributes")},
	{"tool.status", notIn("a library, no tools")},
	{"tool.dump", notIn("a library, no tools")},
	{"tool.binlog", notIn("a library, no tools")},
}

// outcome runs one check and says how it ended.
func outcome(run func()) (result any) {
	defer func() {
		result = recover()
		if os.Getenv("FOREBAY_TRACE") != "" && result != nil {
			debug.PrintStack()
		}
		for _, close := range closers {
			close()
		}
		closers = nil
	}()
	run()
	return nil
}

func main() {
	for _, entry := range strings.Split(os.Getenv("FOREBAY_LOGINS"), ",") {
		plugin, user, _ := strings.Cut(entry, "=")
		logins[plugin] = user
	}
	failed := 0
	for _, check := range checks {
		ended := make(chan any, 1)
		go func() { ended <- outcome(check.run) }()
		var result any
		select {
		case result = <-ended:
		case <-time.After(checkTimeout):
			fmt.Printf("FAILED %s: no end after %v\n", check.name, checkTimeout)
			os.Exit(1) // the goroutine still holds its connections; nothing after it would be trustworthy
		}
		switch why := result.(type) {
		case nil:
			fmt.Printf("ok %s\n", check.name)
		case absent:
			fmt.Printf("absent %s: %s\n", check.name, why)
		case failure:
			failed++
			fmt.Printf("FAILED %s: %s\n", check.name, oneLine(why.text))
		default:
			failed++
			fmt.Printf("FAILED %s: %s\n", check.name, oneLine(fmt.Sprint(why)))
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }
