/* MariaDB Connector/C's prepared statements through the gateway: one line a check of ./checks, see ../README.md. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mysql.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MOST_COLUMNS 16
#define LONGEST_VALUE 256
#define LONGEST_ANSWER 4096

/* A failed expectation leaves the check that runs. */
static jmp_buf end_of_check;
static enum { PASSED, FAILED, ABSENT } verdict;
static char why[1024];

static void leave(int as, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    for (char *c = why; *c; c++)
        if (*c == '\n') *c = ' ';
    verdict = as;
    longjmp(end_of_check, 1);
}

static void equal(const char *found, const char *expected, const char *what)
{
    if (strcmp(found, expected)) leave(FAILED, "%s: expected '%.300s', found '%.300s'", what, expected, found);
}

static void equal_number(unsigned long long found, unsigned long long expected, const char *what)
{
    if (found != expected) leave(FAILED, "%s: expected %llu, found %llu", what, expected, found);
}

/* The connection of the check that runs. */
static MYSQL *server;

static void connect_to_server(void)
{
    unsigned seconds = 30;
    my_bool off = 0;
    server = mysql_init(NULL);
    mysql_options(server, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_options(server, MYSQL_OPT_READ_TIMEOUT, &seconds);
    mysql_options(server, MYSQL_OPT_WRITE_TIMEOUT, &seconds);
    mysql_options(server, MYSQL_OPT_RECONNECT, &off);
    if (!mysql_real_connect(server, getenv("FOREBAY_HOST"), "app", "app secret", getenv("FOREBAY_DATABASE"),
                            atoi(getenv("FOREBAY_PORT")), NULL, CLIENT_MULTI_RESULTS))
        leave(FAILED, "connect: %u %s", mysql_errno(server), mysql_error(server));
}

static int is_mariadb(void) { return !strcmp(getenv("FOREBAY_SERVER"), "mariadb"); }

/* Rows as text: `1|two|NULL;` for each. */
static char answer[LONGEST_ANSWER];

static void add_value(const char *value, size_t length, int is_last)
{
    size_t used = strlen(answer);
    snprintf(answer + used, sizeof answer - used, "%.*s%c", (int)length, value, is_last ? ';' : '|');
}

/* The rows of a statement in the text protocol, which prepared ones are compared with. */
static const char *text(const char *sql)
{
    answer[0] = '\0';
    if (mysql_query(server, sql)) leave(FAILED, "%s: %u %s", sql, mysql_errno(server), mysql_error(server));
    MYSQL_RES *result = mysql_store_result(server);
    if (!result) return answer;
    unsigned columns = mysql_num_fields(result);
    for (MYSQL_ROW row; (row = mysql_fetch_row(result));) {
        unsigned long *lengths = mysql_fetch_lengths(result);
        for (unsigned i = 0; i < columns; i++)
            add_value(row[i] ? row[i] : "NULL", row[i] ? lengths[i] : 4, i + 1 == columns);
    }
    mysql_free_result(result);
    return answer;
}

static void must(MYSQL_STMT *statement, int failed, const char *what)
{
    if (failed) leave(FAILED, "%.60s: %u (%s) %s", what, mysql_stmt_errno(statement), mysql_stmt_sqlstate(statement),
                      mysql_stmt_error(statement));
}

static void refused(MYSQL_STMT *statement, int failed, unsigned code, const char *state)
{
    if (!failed) leave(FAILED, "expected error %u, but it succeeded", code);
    if (mysql_stmt_errno(statement) != code || strcmp(mysql_stmt_sqlstate(statement), state))
        leave(FAILED, "expected error %u (%s), found %u (%s) %s", code, state, mysql_stmt_errno(statement),
              mysql_stmt_sqlstate(statement), mysql_stmt_error(statement));
}

static MYSQL_STMT *prepare(const char *sql)
{
    MYSQL_STMT *statement = mysql_stmt_init(server);
    must(statement, mysql_stmt_prepare(statement, sql, strlen(sql)), sql);
    return statement;
}

static void execute(MYSQL_STMT *statement, MYSQL_BIND *parameters)
{
    if (parameters) must(statement, mysql_stmt_bind_param(statement, parameters), "bind");
    must(statement, mysql_stmt_execute(statement), "execute");
}

/* Reads at most that many rows of the result that is there, every value as text. */
static const char *rows(MYSQL_STMT *statement, unsigned at_most)
{
    static char values[MOST_COLUMNS][LONGEST_VALUE];
    unsigned long lengths[MOST_COLUMNS];
    my_bool nulls[MOST_COLUMNS];
    MYSQL_BIND binds[MOST_COLUMNS];
    unsigned columns = mysql_stmt_field_count(statement);
    int ended = 0;

    if (columns == 0 || columns > MOST_COLUMNS) leave(FAILED, "a result of %u columns", columns);
    memset(binds, 0, sizeof binds);
    for (unsigned i = 0; i < columns; i++)
        binds[i] = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_STRING, .buffer = values[i], .buffer_length = LONGEST_VALUE,
                                .length = &lengths[i], .is_null = &nulls[i]};
    must(statement, mysql_stmt_bind_result(statement, binds), "bind of the result");
    answer[0] = '\0';
    while (at_most-- && !(ended = mysql_stmt_fetch(statement)))
        for (unsigned i = 0; i < columns; i++)
            add_value(nulls[i] ? "NULL" : values[i], nulls[i] ? 4 : lengths[i], i + 1 == columns);
    must(statement, ended && ended != MYSQL_NO_DATA, "fetch");
    return answer;
}

#define ALL (~0U)

/* The whole result is in the client before its first row is read; `rows` by itself reads rows as they arrive. */
static const char *stored_rows(MYSQL_STMT *statement)
{
    must(statement, mysql_stmt_store_result(statement), "store result");
    return rows(statement, ALL);
}

/* Prepares, executes, reads and closes. */
static const char *once(const char *sql, MYSQL_BIND *parameters)
{
    MYSQL_STMT *statement = prepare(sql);
    execute(statement, parameters);
    const char *found = mysql_stmt_field_count(statement) ? rows(statement, ALL) : "";
    must(statement, mysql_stmt_close(statement), "close");
    return found;
}

static MYSQL_BIND null(void) { return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_NULL}; }

static MYSQL_BIND number(int *value) { return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_LONG, .buffer = value}; }

static MYSQL_BIND string(char *value)
{
    return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_STRING, .buffer = value, .buffer_length = strlen(value)};
}

/* statements */

static void loop(void)
{
    for (int round = 1; round <= 100; round++) {
        signed char tiny = round - 50;
        short small = -300 * round;
        long long big = -9223372036854775807LL - 1 + round;
        unsigned long long huge = 18446744073709551615ULL - round;
        double real = round + 0.25;
        float single = round + 0.5F;
        char label[] = "h\xC3\xA9\xF0\x9F\x98\x80", amount[] = "-12345678901234567890.0123456789", bytes[] = "\x01\xFF'\\";
        MYSQL_TIME date = {.year = 2024, .month = 2, .day = 29, .time_type = MYSQL_TIMESTAMP_DATE};
        MYSQL_TIME time = {.hour = 34, .minute = 34, .second = 56, .second_part = 123456, .neg = 1,
                           .time_type = MYSQL_TIMESTAMP_TIME};
        MYSQL_TIME moment = {.year = 2024, .month = 2, .day = 29, .hour = 23, .minute = 59, .second = round % 60,
                             .second_part = 999999, .time_type = MYSQL_TIMESTAMP_DATETIME};
        MYSQL_BIND parameters[] = {
            number(&round),
            {.buffer_type = MYSQL_TYPE_TINY, .buffer = &tiny},
            {.buffer_type = MYSQL_TYPE_SHORT, .buffer = &small},
            {.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &big},
            {.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &huge, .is_unsigned = 1},
            {.buffer_type = MYSQL_TYPE_FLOAT, .buffer = &single},
            {.buffer_type = MYSQL_TYPE_DOUBLE, .buffer = &real},
            {.buffer_type = MYSQL_TYPE_NEWDECIMAL, .buffer = amount, .buffer_length = strlen(amount)},
            {.buffer_type = MYSQL_TYPE_DATE, .buffer = &date},
            {.buffer_type = MYSQL_TYPE_TIME, .buffer = &time},
            {.buffer_type = MYSQL_TYPE_DATETIME, .buffer = &moment},
            string(label),
            {.buffer_type = MYSQL_TYPE_BLOB, .buffer = bytes, .buffer_length = 4},
        };
        char expected[512];
        snprintf(expected, sizeof expected,
                 "%d|%d|%d|%lld|%llu|%g|%g|%s|2024-02-29|-34:34:56.123456|2024-02-29 23:59:%02d.999999|%s|01FF275C;",
                 round, tiny, small, big, huge, single, real, amount, round % 60, label);
        if (round % 3 == 0) { /* Every third row is nothing but NULLs. */
            for (size_t i = 1; i < COUNT(parameters); i++) parameters[i] = null();
            snprintf(expected, sizeof expected, "%d|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL;", round);
        }
        once("REPLACE INTO types (id, t, s, l, ul, f, d, dc, dt, tm, ts, c, bin) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
             parameters);
        equal(once("SELECT id, t, s, l, ul, f, d, dc, dt, tm, ts, c, HEX(bin) FROM types WHERE id = ?", parameters), expected,
              "prepared");
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT id, t, s, l, ul, f, d, dc, dt, tm, ts, c, HEX(bin) FROM types WHERE id = %d", round);
        equal(text(sql), expected, "as text");
    }
}

static void anew(void)
{
    const char *in = "SELECT a, a IN (SELECT b FROM anew_2) FROM anew_1 ORDER BY a", *view = "SELECT * FROM anew_view";
    text("CREATE TABLE anew_1 (a INT)");
    text("CREATE TABLE anew_2 (b INT)");
    text("INSERT INTO anew_1 VALUES (1), (2)");
    for (int round = 0; round < 3; round++) {
        text("INSERT INTO anew_2 VALUES (1), (NULL)");
        text("CREATE OR REPLACE VIEW anew_view AS SELECT 'first' AS word");
        equal(once(in, NULL), "1|1;2|NULL;", "with rows");
        equal(once(view, NULL), "first;", "the first view");
        text("DELETE FROM anew_2");
        text("CREATE OR REPLACE VIEW anew_view AS SELECT 'second' AS word, 2 AS number");
        equal(once(in, NULL), "1|0;2|0;", "without rows");
        equal(once(view, NULL), "second|2;", "the second view");
        text("CREATE TEMPORARY TABLE anew_1 (a INT, b INT)");
        text("INSERT INTO anew_1 VALUES (8, 9)");
        equal(once("SELECT * FROM anew_1", NULL), "8|9;", "a temporary table");
        text("DROP TEMPORARY TABLE anew_1");
        equal(once("SELECT * FROM anew_1 ORDER BY a", NULL), "1;2;", "the table behind it");
    }
}

static void again(void)
{
    int count = 7;
    double real = 2.5;
    char label[] = "word";
    MYSQL_STMT *statement = prepare("SELECT CONCAT('<', ?, '>'), ? IS NULL");
    for (int round = 0; round < 3; round++) {
        execute(statement, (MYSQL_BIND[]){number(&count), null()});
        equal(rows(statement, ALL), "<7>|1;", "a number");
        execute(statement, (MYSQL_BIND[]){string(label), number(&count)});
        equal(rows(statement, ALL), "<word>|0;", "a string");
        execute(statement, (MYSQL_BIND[]){{.buffer_type = MYSQL_TYPE_DOUBLE, .buffer = &real}, null()});
        equal(rows(statement, ALL), "<2.5>|1;", "a double");
        execute(statement, (MYSQL_BIND[]){null(), string(label)});
        equal(rows(statement, ALL), "NULL|0;", "NULL");
        execute(statement, NULL);
        equal(rows(statement, ALL), "NULL|0;", "the same types");
    }
    must(statement, mysql_stmt_close(statement), "close");
}

static void error(void)
{
    int id = 77;
    MYSQL_STMT *statement = mysql_stmt_init(server);
    for (int round = 0; round < 3; round++) {
        const char *no_such_table = "SELECT * FROM no_such_table WHERE id = ?", *no_statement = "SELEC ?";
        refused(statement, mysql_stmt_prepare(statement, no_such_table, strlen(no_such_table)), 1146, "42S02");
        refused(statement, mysql_stmt_prepare(statement, no_statement, strlen(no_statement)), 1064, "42000");
    }
    mysql_stmt_close(statement);
    statement = prepare("INSERT INTO ledger VALUES (?, 1)");
    execute(statement, (MYSQL_BIND[]){number(&id)});
    refused(statement, mysql_stmt_execute(statement), 1062, "23000");
    id = 78;
    execute(statement, NULL);
    equal_number(mysql_stmt_affected_rows(statement), 1, "affected rows");
    mysql_stmt_close(statement);
    equal(once("SELECT id FROM ledger WHERE id BETWEEN 77 AND 78 ORDER BY id", NULL), "77;78;", "afterwards");
}

static void ask_for_cursor(MYSQL_STMT *statement, unsigned long rows_a_fetch)
{
    unsigned long kind = CURSOR_TYPE_READ_ONLY;
    must(statement, mysql_stmt_attr_set(statement, STMT_ATTR_CURSOR_TYPE, &kind), "cursor type");
    must(statement, mysql_stmt_attr_set(statement, STMT_ATTR_PREFETCH_ROWS, &rows_a_fetch), "prefetch rows");
}

static void reset(void)
{
    char label[] = "bound";
    MYSQL_STMT *statement = prepare("SELECT ?");
    MYSQL_BIND parameter = string(label);
    must(statement, mysql_stmt_bind_param(statement, &parameter), "bind");
    must(statement, mysql_stmt_send_long_data(statement, 0, "forgotten", 9), "long data");
    must(statement, mysql_stmt_reset(statement), "reset");
    execute(statement, &parameter);
    equal(rows(statement, ALL), "bound;", "after long data");
    mysql_stmt_close(statement);

    statement = prepare("SELECT id FROM forebay_clients.numbers WHERE id <= 10 ORDER BY id");
    ask_for_cursor(statement, 2);
    for (int round = 0; round < 2; round++) {
        execute(statement, NULL);
        equal(rows(statement, 3), "1;2;3;", "the beginning");
        must(statement, mysql_stmt_reset(statement), "reset of a cursor");
    }
    equal(text("SELECT 7"), "7;", "afterwards");
    mysql_stmt_close(statement);
}

static void long_data(void)
{
    static char piece[65536];
    int id = 1;
    MYSQL_STMT *statement = prepare("REPLACE INTO blobs VALUES (?, CONCAT(?, ?))");
    MYSQL_BIND parameters[] = {number(&id), {.buffer_type = MYSQL_TYPE_BLOB}, {.buffer_type = MYSQL_TYPE_BLOB}};
    must(statement, mysql_stmt_bind_param(statement, parameters), "bind");
    for (int round = 0; round < 3; round++) {
        id = round;
        for (int i = 0; i < 16; i++) { /* The two take turns: each is put together by itself. */
            memset(piece, 'a' + i, sizeof piece);
            must(statement, mysql_stmt_send_long_data(statement, 2, piece, sizeof piece), "long data");
            must(statement, mysql_stmt_send_long_data(statement, 1, piece, 10), "long data");
        }
        execute(statement, NULL);
        equal_number(mysql_stmt_affected_rows(statement), 1, "affected rows");
    }
    mysql_stmt_close(statement);
    /* What repeats one letter 10 or 65536 times, from a to p, is compared by the server's own making. */
    char sql[2048] = "SELECT COUNT(*) FROM blobs WHERE id < 3 AND body = CONCAT(", *end = sql + strlen(sql);
    for (int repeat = 10; repeat; repeat = repeat == 10 ? (int)sizeof piece : 0)
        for (int i = 0; i < 16; i++)
            end += sprintf(end, "%sREPEAT('%c', %d)", end[-1] == '(' ? "" : ", ", 'a' + i, repeat);
    strcpy(end, ")");
    equal(text(sql), "3;", "what arrived");
}

static void long_text(void)
{
    enum { ROWS = 5000 };
    const char *head = "INSERT INTO batch VALUES ", *row = "(?, CONCAT('label', ' ', ?)), ";
    static int ids[ROWS];
    static MYSQL_BIND parameters[2 * ROWS];
    char *sql = malloc(strlen(head) + ROWS * strlen(row) + 1), *end = stpcpy(sql, head);
    for (int i = 0; i < ROWS; i++) {
        ids[i] = i;
        parameters[2 * i] = parameters[2 * i + 1] = number(&ids[i]);
        end = stpcpy(end, row);
    }
    end[-2] = '\0';
    text("DELETE FROM batch");
    once(sql, parameters);
    free(sql);
    equal(text("SELECT COUNT(*), SUM(id), SUM(label = CONCAT('label ', id)) FROM batch"), "5000|12497500|5000;", "the rows");
}

/* cursors */

static void cursor_fetch(void)
{
    int last = 10000, id, read = 0, end;
    char label[LONGEST_VALUE], expected[LONGEST_VALUE];
    unsigned long length;
    MYSQL_BIND columns[] = {number(&id), {.buffer_type = MYSQL_TYPE_STRING, .buffer = label, .buffer_length = sizeof label - 1,
                                          .length = &length}};
    MYSQL_STMT *statement = prepare("SELECT id, label FROM forebay_clients.numbers WHERE id <= ? ORDER BY id");
    ask_for_cursor(statement, 100);
    execute(statement, (MYSQL_BIND[]){number(&last)});
    must(statement, mysql_stmt_bind_result(statement, columns), "bind of the result");
    while (!(end = mysql_stmt_fetch(statement))) {
        label[length] = '\0';
        snprintf(expected, sizeof expected, "row %d \xC3\xA9\xF0\x9F\x98\x80", ++read);
        equal_number(id, read, "id");
        equal(label, expected, "label");
    }
    must(statement, end != MYSQL_NO_DATA, "fetch");
    equal_number(read, last, "rows");
    must(statement, mysql_stmt_close(statement), "close");
}

static void cursor_two(void)
{
    MYSQL_STMT *up = prepare("SELECT id FROM forebay_clients.numbers WHERE id <= 6 ORDER BY id");
    MYSQL_STMT *down = prepare("SELECT id FROM forebay_clients.numbers WHERE id <= 6 ORDER BY id DESC");
    ask_for_cursor(up, 1);
    ask_for_cursor(down, 2);
    execute(up, NULL);
    execute(down, NULL);
    equal(rows(up, 2), "1;2;", "up");
    equal(rows(down, 2), "6;5;", "down");
    equal(text("SELECT 7"), "7;", "a statement in between");
    equal(once("SELECT 8", NULL), "8;", "a prepared one in between");
    equal(rows(up, 1), "3;", "up");
    must(up, mysql_stmt_close(up), "close in the middle");
    equal(rows(down, ALL), "4;3;2;1;", "down");
    must(down, mysql_stmt_close(down), "close");
    equal(text("SELECT 9"), "9;", "afterwards");
}

static void cursor_update(void)
{
    int id = 90;
    MYSQL_STMT *statement = prepare("INSERT INTO ledger VALUES (?, 1)");
    ask_for_cursor(statement, 10);
    execute(statement, (MYSQL_BIND[]){number(&id)});
    equal_number(mysql_stmt_affected_rows(statement), 1, "affected rows");
    must(statement, mysql_stmt_close(statement), "close");
    equal(text("SELECT COUNT(*) FROM ledger WHERE id = 90"), "1;", "afterwards");
}

/* procedures */

/* Goes through what follows the results: the OK of the CALL, which has no columns. */
static void end_of_call(MYSQL_STMT *statement)
{
    int more;
    while (!(more = mysql_stmt_next_result(statement)))
        if (mysql_stmt_field_count(statement)) leave(FAILED, "one more result: %s", rows(statement, ALL));
    must(statement, more > 0, "next result");
}

static void call_open_cursor(void)
{
    text("CREATE PROCEDURE opens() BEGIN DECLARE v INT; DECLARE c CURSOR FOR SELECT id FROM forebay_clients.numbers"
         " WHERE id <= 3 ORDER BY id; OPEN c; FETCH c INTO v; SELECT v, 'open'; FETCH c INTO v; SELECT v; END");
    for (int round = 0; round < 3; round++) {
        MYSQL_STMT *statement = prepare("CALL opens()");
        execute(statement, NULL);
        equal(rows(statement, ALL), "1|open;", "the first result");
        must(statement, mysql_stmt_next_result(statement), "next result");
        equal(rows(statement, ALL), "2;", "the second result");
        end_of_call(statement);
        must(statement, mysql_stmt_close(statement), "close");
        equal(once("SELECT 7", NULL), "7;", "afterwards");
    }
}

static void call_results(void)
{
    MYSQL_STMT *statement = prepare("CALL forebay_clients.two_results()");
    for (int round = 0; round < 2; round++) {
        execute(statement, NULL);
        equal(stored_rows(statement), "1|first;", "the first result");
        must(statement, mysql_stmt_next_result(statement), "next result");
        equal(stored_rows(statement),
              "1|row 1 \xC3\xA9\xF0\x9F\x98\x80;2|row 2 \xC3\xA9\xF0\x9F\x98\x80;3|row 3 \xC3\xA9\xF0\x9F\x98\x80;", "the second result");
        end_of_call(statement);
    }
    must(statement, mysql_stmt_close(statement), "close");
}

/* Connector/C does not look at the status behind rows that it reads as they arrive: the one before them says whether another
   result follows. */
static void call_stream(void)
{
    text("CREATE PROCEDURE streams() BEGIN SELECT id FROM forebay_clients.numbers WHERE id <= 3 ORDER BY id;"
         " SELECT id FROM forebay_clients.numbers WHERE id <= 2 ORDER BY id; END");
    MYSQL_STMT *statement = prepare("CALL streams()");
    for (int round = 0; round < 2; round++) {
        execute(statement, NULL);
        equal(rows(statement, ALL), "1;2;3;", "the first result");
        must(statement, mysql_stmt_next_result(statement) != 0, "next result");
        equal(rows(statement, ALL), "1;2;", "the second result");
        end_of_call(statement);
    }
    must(statement, mysql_stmt_close(statement), "close");
}

static void call_out(void)
{
    int in = 21, out = 0;
    MYSQL_STMT *statement = prepare("CALL forebay_clients.double_it(?, ?)");
    for (; in < 24; in++) {
        char expected[16];
        execute(statement, (MYSQL_BIND[]){number(&in), number(&out)});
        if (!(server->server_status & SERVER_PS_OUT_PARAMS)) leave(FAILED, "the result is not said to be of OUT parameters");
        snprintf(expected, sizeof expected, "%d;", 2 * in);
        equal(rows(statement, ALL), expected, "y");
        end_of_call(statement);
    }
    must(statement, mysql_stmt_close(statement), "close");
}

/* what MariaDB adds */

static void bulk(void)
{
    if (!is_mariadb()) leave(ABSENT, "MySQL has no COM_STMT_BULK_EXECUTE");
    enum { ROWS = 2000 };
    static int ids[ROWS];
    static char labels[ROWS][32], *values[ROWS], indicators[ROWS];
    static unsigned long lengths[ROWS];
    unsigned rows_at_once = ROWS;
    for (int i = 0; i < ROWS; i++) {
        ids[i] = i;
        lengths[i] = sprintf(labels[i], "label %d", i);
        values[i] = labels[i];
        indicators[i] = i % 4 == 1 ? STMT_INDICATOR_NULL : i % 4 == 2 ? STMT_INDICATOR_DEFAULT : STMT_INDICATOR_NONE;
    }
    text("CREATE TABLE bulk (id INT NOT NULL PRIMARY KEY, label VARCHAR(60) DEFAULT 'default')");
    MYSQL_BIND parameters[] = {number(ids), {.buffer_type = MYSQL_TYPE_STRING, .buffer = values, .length = lengths,
                                             .u.indicator = indicators}};
    MYSQL_STMT *statement = prepare("INSERT INTO bulk VALUES (?, ?)");
    must(statement, mysql_stmt_attr_set(statement, STMT_ATTR_ARRAY_SIZE, &rows_at_once), "array size");
    for (int round = 0; round < 2; round++) {
        execute(statement, parameters);
        equal_number(mysql_stmt_affected_rows(statement), ROWS, "affected rows");
        equal(text("SELECT COUNT(*), SUM(id), SUM(label = CONCAT('label ', id)), SUM(label IS NULL), SUM(label = 'default') FROM bulk"),
              "2000|1999000|1000|500|500;", "the rows");
        refused(statement, mysql_stmt_execute(statement), 1062, "23000");
        text("DELETE FROM bulk");
    }
    must(statement, mysql_stmt_close(statement), "close");
}

static void direct(void)
{
    for (int round = 0; round < 20; round++) {
        const char *write = "REPLACE INTO ledger VALUES (?, ?)", *read = "SELECT id, amount FROM ledger WHERE id = ?";
        int id = 100 + round, amount = 3 * round;
        char expected[32];
        MYSQL_BIND parameters[] = {number(&id), number(&amount)};
        MYSQL_STMT *statement = mysql_stmt_init(server);
        unsigned count = 2;
        mysql_stmt_attr_set(statement, STMT_ATTR_PREBIND_PARAMS, &count);
        mysql_stmt_bind_param(statement, parameters);
        must(statement, mariadb_stmt_execute_direct(statement, write, strlen(write)), write);
        equal_number(mysql_stmt_affected_rows(statement), 1, "affected rows");
        must(statement, mysql_stmt_close(statement), "close");

        statement = mysql_stmt_init(server);
        count = 1;
        mysql_stmt_attr_set(statement, STMT_ATTR_PREBIND_PARAMS, &count);
        mysql_stmt_bind_param(statement, parameters);
        must(statement, mariadb_stmt_execute_direct(statement, read, strlen(read)), read);
        snprintf(expected, sizeof expected, "%d|%d;", id, amount);
        equal(rows(statement, ALL), expected, "the row");
        execute(statement, parameters);
        equal(rows(statement, ALL), expected, "executed again by its ID");
        must(statement, mysql_stmt_close(statement), "close");
    }
}

static void direct_error(void)
{
    for (int round = 0; round < 3; round++) {
        MYSQL_STMT *statement = mysql_stmt_init(server);
        refused(statement, mariadb_stmt_execute_direct(statement, "SELECT * FROM no_such_table", -1), 1146, "42S02");
        mysql_stmt_close(statement);
        equal(text("SELECT 7"), "7;", "afterwards");
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {
    {"statement.loop", loop},
    {"statement.anew", anew},
    {"statement.again", again},
    {"statement.error", error},
    {"statement.reset", reset},
    {"statement.long_data", long_data},
    {"statement.long_text", long_text},
    {"cursor.fetch", cursor_fetch},
    {"cursor.two", cursor_two},
    {"cursor.update", cursor_update},
    {"call.open_cursor", call_open_cursor},
    {"call.results", call_results},
    {"call.stream", call_stream},
    {"call.out", call_out},
    {"bulk.insert", bulk},
    {"direct.execute", direct},
    {"direct.error", direct_error},
};

int main(void)
{
    volatile int failed = 0;
    for (volatile size_t i = 0; i < COUNT(checks); i++) {
        verdict = PASSED;
        server = NULL;
        if (!setjmp(end_of_check)) {
            connect_to_server();
            checks[i].run();
        }
        if (server) mysql_close(server);
        if (verdict == PASSED) printf("ok %s\n", checks[i].name);
        else printf("%s %s: %s\n", verdict == ABSENT ? "absent" : "FAILED", checks[i].name, why);
        fflush(stdout);
        failed += verdict == FAILED;
    }
    return failed ? 1 : 0;
}
