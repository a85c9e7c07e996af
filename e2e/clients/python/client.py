"""PyMySQL through the gateway: one line a check of ../checks, see ../README.md."""

import datetime
import decimal
import hashlib
import os
import ssl
import sys
import threading
import time
import traceback

import pymysql
import pymysql._auth
import pymysql.cursors
from pymysql.constants import CLIENT

ENV = os.environ
HOST, PORT = ENV["FOREBAY_HOST"], int(ENV["FOREBAY_PORT"])
SERVER, DATABASE, SCRATCH = ENV["FOREBAY_SERVER"], ENV["FOREBAY_DATABASE"], ENV["FOREBAY_SCRATCH"]
CA, WRONG_CA = ENV["FOREBAY_CA"], ENV["FOREBAY_WRONG_CA"]
LOGINS = dict(entry.split("=", 1) for entry in ENV["FOREBAY_LOGINS"].split(","))
APP = "app", "app secret"
COM_RESET_CONNECTION = 0x1F
BIG_ROWS, BIG_SUM = 200_000, 20_000_100_000


class Absent(Exception):
    """The client or the server cannot do this."""


def connect(user=APP[0], password=APP[1], *, tls=False, ca=CA, **options):
    options.setdefault("database", DATABASE)
    link = {"ssl_ca": ca, "ssl_verify_cert": True, "ssl_verify_identity": True} if tls else {"ssl_disabled": True}
    return pymysql.connect(
        host=HOST, port=PORT, user=user, password=password, charset="utf8mb4", autocommit=True,
        read_timeout=60, write_timeout=60, **link, **options,
    )


def query(connection, sql, args=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, args)
        return cursor.fetchall()


def equal(found, expected, what="value"):
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r:.200}, found {found!r:.200}")


def refused(code, action):
    """Runs `action` and expects the server's error `code`."""
    try:
        action()
    except pymysql.MySQLError as error:
        equal(error.args[0], code, "error code")
        return error
    raise AssertionError(f"expected error {code}, but it succeeded")


# logins


def login(plugin, *, tls=False, user=None, password=None, **options):
    if plugin not in LOGINS:
        raise Absent(f"this server has no account of {plugin}")
    user = user or LOGINS[plugin]
    with connect(user, f"{user} secret" if password is None else password, tls=tls, database=None, **options) as connection:
        equal(query(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1)"), ((user,),), "user")


def forget_cached_password(plugin):
    """
    Makes the next login of the account a full one: the server drops it from its cache, and a gateway that knows the
    server's accounts reads it again within FOREBAY_ACCOUNTS_DELAY_MS.
    """
    if plugin not in LOGINS:
        raise Absent(f"this server has no account of {plugin}")
    user = LOGINS[plugin]
    with connect() as connection:
        query(connection, f"ALTER USER {user}@'%' IDENTIFIED WITH {plugin} BY '{user} secret'")
    time.sleep(int(os.environ["FOREBAY_ACCOUNTS_DELAY_MS"]) / 1000)


def login_caching_sha2_rsa():
    forget_cached_password("caching_sha2_password")
    login("caching_sha2_password")


def login_caching_sha2_tls():
    forget_cached_password("caching_sha2_password")
    login("caching_sha2_password", tls=True)


def login_caching_sha2_fast():
    login("caching_sha2_password", tls=True)
    seal = pymysql._auth.sha2_rsa_encrypt

    def no_full_authentication(*_):
        raise AssertionError("the server asked for full authentication")

    pymysql._auth.sha2_rsa_encrypt = no_full_authentication
    try:
        login("caching_sha2_password")
    finally:
        pymysql._auth.sha2_rsa_encrypt = seal


class Dialog:
    """Answers the questions of the `dialog` plugin."""

    def __init__(self, connection):
        self.connection = connection

    def prompt(self, echo, question):
        return self.connection.password


def login_dialog():
    login("dialog", tls=True, auth_plugin_map={b"dialog": Dialog})


def login_empty_password():
    with connect("nopass", "", database=None) as connection:
        equal(query(connection, "SELECT 1"), ((1,),))


def login_wrong_password():
    error = refused(1045, lambda: connect("app", "not the secret"))
    if "Access denied for user 'app'@" not in error.args[1]:
        raise AssertionError(f"not the server's message: {error.args[1]}")


def login_unknown_database():
    refused(1049, lambda: connect(database="no_such_database"))


def tls_verified():
    with connect(tls=True) as connection:
        cipher = connection._sock.cipher()
        if not cipher:
            raise AssertionError("the link is not encrypted")
        equal(query(connection, "SELECT 1"), ((1,),))


def tls_wrong_ca():
    try:
        connect(tls=True, ca=WRONG_CA)
    except pymysql.OperationalError as error:
        if not isinstance(error.__context__, ssl.SSLCertVerificationError) and "CERTIFICATE_VERIFY" not in str(error):
            raise
        return
    raise AssertionError("a certificate of another CA was accepted")


def attributes():
    with connect(program_name="forebay python") as connection:
        rows = query(
            connection,
            "SELECT ATTR_NAME, ATTR_VALUE FROM performance_schema.session_connect_attrs"
            " WHERE PROCESSLIST_ID = CONNECTION_ID()",
        )
        attrs = dict(rows)
        equal(attrs.get("program_name"), "forebay python", "program_name")
        equal(attrs.get("_client_name"), "pymysql", "_client_name")


# data

TEXT = "naïve 東京 Ωμέγα 😀👩‍🚀 \\ ' \" %"


def text_utf8mb4():
    with connect() as connection:
        equal(query(connection, "SELECT %s, CHAR_LENGTH('😀é')", (TEXT,)), ((TEXT, 2),))


COLUMNS = "id t s m i l ul f d dc dt tm ts y c bin tx bl js bt en st".split()
ROWS = [
    (
        1, -128, -32768, -8388608, -2147483648, -9223372036854775808, 18446744073709551615, 1.5, 2.25e-300,
        decimal.Decimal("-12345678901234567890.0123456789"), datetime.date(2024, 2, 29),
        datetime.timedelta(hours=12, minutes=34, seconds=56, microseconds=123456),
        datetime.datetime(2024, 2, 29, 23, 59, 59, 999999), 2024, "héllo 😀", b"\x00\x01\xff'\\", "t" * 3000,
        bytes(range(256)) * 4, '{"a": [1, null]}', b"\x02\x01", "two", "x,z",
    ),
    (2,) + (None,) * 21,
    (
        3, 127, 32767, 8388607, 2147483647, 9223372036854775807, 0, 0.0, -1.5, decimal.Decimal("0.0000000001"),
        datetime.date(1000, 1, 1), datetime.timedelta(0), datetime.datetime(1970, 1, 1, 0, 0, 0), 1901, "", b"", "", b"",
        "[]", b"\x00\x00", "one", "",
    ),
]  # fmt: skip


def text_types():
    with connect() as connection:
        marks = ", ".join(["%s"] * len(COLUMNS))
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO types VALUES ({marks})", ROWS)
        found = query(connection, "SELECT * FROM types ORDER BY id")
        for row, expected in zip(found, ROWS, strict=True):
            for column, value, wanted in zip(COLUMNS, row, expected, strict=True):
                equal(value, wanted, f"row {expected[0]} column {column}")


def no_binary_protocol():
    raise Absent("PyMySQL has no binary protocol")


def check_big(rows):
    count = total = 0
    for number, label in rows:
        if label != f"row {number} é😀":
            raise AssertionError(f"row {count}: label {label!r} of id {number}")
        count += 1
        total += number
    equal((count, total), (BIG_ROWS, BIG_SUM), "rows and sum of ids")


def result_big():
    with connect() as connection:
        check_big(query(connection, "SELECT id, label FROM forebay_clients.numbers"))


def result_stream():
    with connect() as connection:
        with connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute("SELECT id, label FROM forebay_clients.numbers")
            check_big(cursor)
            cursor.execute("SELECT id, label FROM forebay_clients.numbers ORDER BY id")
            equal(cursor.fetchone(), (1, "row 1 é😀"), "first row")
        equal(query(connection, "SELECT 7"), ((7,),), "after stopping early")


def blob_20mb():
    body = b"".join(hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(20 * 1024 * 1024 // 32))
    with connect() as connection:
        query(connection, "REPLACE INTO blobs VALUES (1, _binary %s)", (body,))
        ((length, server_hash),) = query(connection, "SELECT LENGTH(body), SHA2(body, 256) FROM blobs WHERE id = 1")
        equal((length, server_hash), (len(body), hashlib.sha256(body).hexdigest()), "as the server has it")
        ((back,),) = query(connection, "SELECT body FROM blobs WHERE id = 1")
        equal(hashlib.sha256(back).digest(), hashlib.sha256(body).digest(), "as it came back")


def error_no_such_table():
    with connect() as connection:
        error = refused(1146, lambda: query(connection, "SELECT * FROM no_such_table"))
        equal(type(error), pymysql.ProgrammingError, "class of 42S02")
        equal(query(connection, "SELECT 1"), ((1,),), "after the error")


# transactions


def transaction_commit():
    with connect() as writer, connect() as reader:
        writer.begin()
        query(writer, "INSERT INTO ledger VALUES (1, 100)")
        equal(query(reader, "SELECT * FROM ledger WHERE id = 1"), (), "before the commit")
        writer.commit()
        equal(query(reader, "SELECT * FROM ledger WHERE id = 1"), ((1, 100),), "after the commit")


def transaction_rollback():
    with connect() as writer, connect() as reader:
        writer.begin()
        query(writer, "INSERT INTO ledger VALUES (2, 100)")
        writer.rollback()
        equal(query(writer, "SELECT * FROM ledger WHERE id = 2"), (), "after the rollback")
        equal(query(reader, "SELECT * FROM ledger WHERE id = 2"), (), "elsewhere")


# several results, files


def infile_load():
    path = os.path.join(SCRATCH, "rows.tsv")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{n}\tlabel {n} é😀\n" for n in range(10_000))
    with connect(local_infile=True) as connection:
        query(connection, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE loaded CHARACTER SET utf8mb4")
        equal(query(connection, "SELECT COUNT(*), SUM(id), MAX(label) FROM loaded"), ((10_000, 49_995_000, "label 9999 é😀"),))


def infile_refused():
    with connect(local_infile=True) as connection:
        refused(1017, lambda: query(connection, f"LOAD DATA LOCAL INFILE '{SCRATCH}/no-such-file' INTO TABLE loaded"))
        equal(query(connection, "SELECT 1"), ((1,),), "after the refusal")


def results(connection, sql):
    found = []
    with connection.cursor() as cursor:
        cursor.execute(sql)
        found.append(tuple(cursor.fetchall()))
        while cursor.nextset():
            found.append(tuple(cursor.fetchall()))
    return found


def multi_statements():
    with connect(client_flag=CLIENT.MULTI_STATEMENTS) as connection:
        found = results(connection, "SELECT 1; DO 0; SELECT 2 UNION SELECT 3; SET @x = 5; SELECT @x")
        equal(found, [((1,),), (), ((2,), (3,)), (), ((5,),)])


def multi_error():
    with connect(client_flag=CLIENT.MULTI_STATEMENTS) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1; SELECT * FROM no_such_table; SET @never = 1")
            refused(1146, cursor.nextset)
        equal(query(connection, "SELECT @never"), ((None,),), "the third statement")


def call_results():
    with connect() as connection:
        found = results(connection, "CALL forebay_clients.two_results()")
        equal(found, [((1, "first"),), tuple((n, f"row {n} é😀") for n in (1, 2, 3)), ()])


def call_out():
    with connect(database="forebay_clients") as connection:
        with connection.cursor() as cursor:
            cursor.callproc("double_it", (21, 0))
            cursor.nextset()
            cursor.execute("SELECT @_double_it_1")
            equal(cursor.fetchall(), ((42,),))


def no_compression():
    raise Absent("PyMySQL has no compressed protocol")


# the session


def session_change_user():
    raise Absent("PyMySQL has no COM_CHANGE_USER")


def session_reset():
    with connect() as connection:
        query(connection, "SET @mine = 1")
        connection._execute_command(COM_RESET_CONNECTION, "")
        connection._read_ok_packet()
        equal(query(connection, "SELECT @mine"), ((None,),), "after the reset")


def session_use():
    with connect(database=None) as connection:
        connection.select_db(DATABASE)
        equal(query(connection, "SELECT DATABASE()"), ((DATABASE,),))
        refused(1049, lambda: connection.select_db("no_such_database"))


def session_ping():
    with connect() as connection:
        for _ in range(100):
            connection.ping(reconnect=False)


def cancel(kill):
    """Starts a statement of 30 seconds and expects `kill(connection)` to end it at once."""
    with connect() as connection:
        ended = []

        def sleeper():
            try:
                ended.append(query(connection, "SELECT SLEEP(30), 'forebay cancel python'"))
            except pymysql.MySQLError as error:
                ended.append(error.args[0])

        identity = query(connection, "SELECT CONNECTION_ID()")[0][0]
        thread = threading.Thread(target=sleeper, daemon=True)
        thread.start()
        with connect() as other:
            deadline = time.monotonic() + 10
            running = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30), _forebay cancel python%'"
            while query(other, running) != ((1,),):
                if time.monotonic() > deadline:
                    raise AssertionError("the statement never ran")
            kill(other, connection, identity)
        thread.join(15)
        if thread.is_alive():
            raise AssertionError("the statement still runs 15 s after the kill")
        if ended[0] not in (1317, ((1, "forebay cancel python"),)):
            raise AssertionError(f"ended with {ended[0]!r}")
        equal(query(connection, "SELECT 1"), ((1,),), "after the kill")


def cancel_by_connection_id():
    cancel(lambda other, _, identity: query(other, f"KILL QUERY {identity}"))


def cancel_by_client():
    cancel(lambda other, connection, _: query(other, f"KILL QUERY {connection.thread_id()}"))


def batch_rows():
    return [(n, f"label {n} é😀") for n in range(2_000)]


def check_batch(connection):
    equal(query(connection, "SELECT COUNT(*), SUM(id), MAX(label) FROM batch"), ((2_000, 1_999_000, "label 999 é😀"),))
    query(connection, "DELETE FROM batch")


def batch_insert():
    with connect() as connection:
        with connection.cursor() as cursor:
            # The comment hides the VALUES clause from PyMySQL's rewriting: one statement a row.
            cursor.executemany("INSERT INTO batch SELECT %s, %s", batch_rows())
        check_batch(connection)


def batch_rewritten():
    with connect() as connection:
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO batch VALUES (%s, %s)", batch_rows())
        check_batch(connection)


def absent(why):
    def check():
        raise Absent(why)

    return check


CHECKS = {
    "login.mysql_native_password": lambda: login("mysql_native_password"),
    "login.caching_sha2_password.rsa": login_caching_sha2_rsa,
    "login.caching_sha2_password.tls": login_caching_sha2_tls,
    "login.caching_sha2_password.fast": login_caching_sha2_fast,
    "login.sha256_password.rsa": lambda: login("sha256_password"),
    "login.sha256_password.tls": lambda: login("sha256_password", tls=True),
    "login.client_ed25519": lambda: login("client_ed25519"),
    "login.parsec": absent("PyMySQL has no parsec"),
    "login.dialog": login_dialog,
    "login.mysql_clear_password": lambda: login("mysql_clear_password", tls=True),
    "login.empty_password": login_empty_password,
    "login.wrong_password": login_wrong_password,
    "login.unknown_database": login_unknown_database,
    "tls.verified": tls_verified,
    "tls.wrong_ca": tls_wrong_ca,
    "attributes": attributes,
    "text.utf8mb4": text_utf8mb4,
    "text.types": text_types,
    "prepared.types": no_binary_protocol,
    "prepared.repeat": no_binary_protocol,
    "prepared.long_data": no_binary_protocol,
    "result.big": result_big,
    "result.stream": result_stream,
    "result.cursor": no_binary_protocol,
    "blob.20mb": blob_20mb,
    "error.no_such_table": error_no_such_table,
    "transaction.commit": transaction_commit,
    "transaction.rollback": transaction_rollback,
    "infile.load": infile_load,
    "infile.refused": infile_refused,
    "multi.statements": multi_statements,
    "multi.error": multi_error,
    "call.results": call_results,
    "call.out": call_out,
    "compression.zlib": no_compression,
    "compression.zstd": no_compression,
    "session.change_user": session_change_user,
    "session.reset": session_reset,
    "session.use": session_use,
    "session.ping": session_ping,
    "cancel.by_connection_id": cancel_by_connection_id,
    "cancel.by_client": cancel_by_client,
    "batch.insert": batch_insert,
    "batch.rewritten": batch_rewritten,
    "batch.bulk": no_binary_protocol,
    "pipeline": absent("PyMySQL waits for every answer"),
    "query_attributes": absent("PyMySQL does not send query attributes"),
    "tool.status": absent("a library, no tools"),
    "tool.dump": absent("a library, no tools"),
    "tool.binlog": absent("a library, no tools"),
}


def main():
    failed = 0
    for name, check in CHECKS.items():
        try:
            check()
            print(f"ok {name}", flush=True)
        except Absent as why:
            print(f"absent {name}: {why}", flush=True)
        except Exception as error:
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"FAILED {name}: {type(error).__name__}: {error} ({place.name}:{place.lineno})".replace("\n", " "), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
