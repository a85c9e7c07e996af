#!/usr/bin/env python3
"""Records responses of a real server for tests/recorded_responses.rs.

    record.py SOCKET > NAME.trace

One line a response: what it is, the negotiated capabilities (hex), the command byte, and the bytes of the
server. The account is root without password. Needs nothing but Python and a server that may be filled with a
scratch database. Lines are recorded for every combination of the capabilities that change a response's shape.
"""
import itertools, socket, struct, sys

BASE = 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 18 | 1 << 19 | 1 << 7 | 1 << 2
SESSION_TRACK, DEPRECATE_EOF, OPTIONAL_METADATA = 1 << 23, 1 << 24, 1 << 25
PROGRESS, BULK, EXTENDED, CACHE, UNITS = 1 << 32, 1 << 34, 1 << 35, 1 << 36, 1 << 37


class Connection:
    def __init__(self, path, wanted):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(5)
        self.socket.connect(path)
        greeting = self.packet()[1]
        end = greeting.index(0, 1)
        low, charset, status, high = struct.unpack("<HBHH", greeting[end + 14:end + 21])
        server = low | high << 16
        if not server & 1:
            server |= struct.unpack("<I", greeting[end + 28:end + 32])[0] << 32
        self.caps = wanted & server
        login = struct.pack("<IIB19xI", self.caps & 0xFFFFFFFF, 1 << 24, 45, self.caps >> 32)
        self.send(login + b"root\0\0" + b"mysql_native_password\0", 1)
        while True:
            sequence, reply = self.packet()
            if reply[0] == 0:
                return
            if reply[0] == 0xFE:
                self.send(b"", sequence + 1)
            elif reply[0] == 0xFF:
                raise SystemExit(reply)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            part = self.socket.recv(n - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def packet(self):
        header = self.exactly(4)
        return header[3], self.exactly(int.from_bytes(header[:3], "little"))

    def send(self, payload, sequence=0):
        self.socket.sendall(len(payload).to_bytes(3, "little") + bytes([sequence]) + payload)

    def ask(self, what, payload, infile=None):
        """Sends one command and prints all that comes back until the server is silent."""
        self.send(payload)
        data, first = b"", True
        while True:
            self.socket.settimeout(60 if first else 3 if what == "progress" else 0.12)
            try:
                part = self.socket.recv(1 << 20)
            except TimeoutError:
                break
            if not part:
                break
            data, first = data + part, False
            if infile is not None and data[4:5] == b"\xfb":
                print(what + " request", f"{self.caps:#x}", payload[0], data.hex())
                self.send(infile, 2)
                self.send(b"", 3)
                data, infile = b"", None
                what += " result"
        print(what, f"{self.caps:#x}", payload[0], data.hex(), flush=True)
        return data

    def query(self, what, sql, infile=None):
        return self.ask(what, b"\x03" + sql.encode(), infile)

    def prepare(self, what, sql):
        return int.from_bytes(self.ask(what, b"\x16" + sql.encode())[5:9], "little")

    def execute(self, what, statement, parameters=b"", cursor=0):
        return self.ask(what, b"\x17" + struct.pack("<IBI", statement, cursor, 1) + parameters)


def setup(path):
    c = Connection(path, BASE)
    sys.stdout, out = open("/dev/null", "w"), sys.stdout
    for sql in (
        "CREATE DATABASE IF NOT EXISTS trace", "USE trace", "DROP TABLE IF EXISTS t", "DROP PROCEDURE IF EXISTS p",
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(300)) ENGINE=InnoDB",
        "INSERT INTO t VALUES (1, 'one'), (2, NULL), (3, REPEAT('x', 252))",
        "CREATE TABLE IF NOT EXISTS log (id INT, name VARCHAR(30)) ENGINE=InnoDB",
        "CREATE PROCEDURE p() BEGIN SELECT id FROM t; SELECT name FROM t; END",
        "DROP PROCEDURE IF EXISTS r",
        "CREATE PROCEDURE r() BEGIN DECLARE a INT; DECLARE c CURSOR FOR SELECT id FROM t; OPEN c; FETCH c INTO a; SELECT id FROM t; END",
        "DROP PROCEDURE IF EXISTS q", "CREATE PROCEDURE q(OUT a INT) BEGIN SELECT 1; SET a = 5; END",
    ):
        c.query("setup", sql)
    sys.stdout = out


def record(path, wanted, seen):
    c = Connection(path, BASE | wanted)
    if c.caps in seen:
        return
    seen.add(c.caps)
    c.ask("init_db", b"\x02trace")
    if c.caps & OPTIONAL_METADATA:
        record_without_metadata(c)
    c.query("set", "SET @x = 1, sql_mode = ''")
    c.query("select", "SELECT id, name FROM t ORDER BY id")
    c.query("select_nothing", "SELECT id FROM t WHERE id > 9")
    c.query("null_first", "SELECT NULL, 1")
    c.query("error", "SELECT nothing FROM nowhere")
    c.query("error_in_rows", "SELECT id, (SELECT 1 UNION SELECT id) FROM t")
    c.query("multi", "SELECT 1; SET @y = 2; SELECT id FROM t; DO 0")
    c.query("multi_error", "SELECT 1; SELECT nothing; SELECT 3")
    c.query("call", "CALL p()")
    c.query("infile", "LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE t FIELDS TERMINATED BY ','", b"1,one\n3,%b\n" % (b"x" * 252))
    c.query("analyze", "ANALYZE TABLE t")
    if c.caps & PROGRESS:
        c.query("set", "SET progress_report_time = 1")
        c.query("progress", "INSERT INTO log SELECT seq, REPEAT('y', 20) FROM seq_1_to_100000; ALTER TABLE log ENGINE=InnoDB, ADD INDEX (name)")
        c.query("truncate", "TRUNCATE log")
    c.ask("field_list", b"\x04t\0%")
    c.ask("field_list_error", b"\x04nowhere\0%")
    c.ask("statistics", b"\x09")
    c.ask("process_info", b"\x0a")
    c.ask("debug", b"\x0d")
    c.ask("ping", b"\x0e")
    c.ask("set_option", b"\x1b\0\0")
    c.ask("set_option", b"\x1b\1\0")
    c.ask("unknown", b"\x55")
    s = c.prepare("prepare", "SELECT id, name FROM t ORDER BY id")
    c.execute("execute", s)
    c.execute("execute_again", s)
    c.execute("execute_cursor", s, cursor=1)
    c.ask("fetch", b"\x1c" + struct.pack("<II", s, 2))
    c.ask("fetch_last", b"\x1c" + struct.pack("<II", s, 2))
    c.ask("fetch_closed", b"\x1c" + struct.pack("<II", s, 2))
    c.ask("reset", b"\x1a" + struct.pack("<I", s))
    s = c.prepare("prepare_parameters", "SELECT id FROM t WHERE id = ? OR name = ?")
    s = c.prepare("prepare_insert", "INSERT INTO t VALUES (?, ?)")
    s = c.prepare("prepare_no_result", "DO 1")
    c.execute("execute_no_result", s, cursor=1)
    c.prepare("prepare_error", "SELECT FROM")
    s = c.prepare("prepare_call", "CALL p()")
    c.execute("execute_call", s)
    c.execute("execute_call_cursor", s, cursor=1)
    s = c.prepare("prepare_out", "CALL q(?)")
    c.execute("execute_out", s, b"\1\1\6\0")  # one parameter, NULL, types follow
    s = c.prepare("prepare_delete", "DELETE FROM t WHERE id = ?")
    if c.caps & BULK:
        c.ask("bulk", b"\xfa" + struct.pack("<IHH", s, 128, 3) + b"\0" + struct.pack("<i", 77) + b"\0" + struct.pack("<i", 78))
    if c.caps & UNITS:
        c.query("auto", "CREATE TEMPORARY TABLE auto (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
        s = c.prepare("prepare_bulk", "INSERT INTO auto (v) VALUES (?)")
        units = b"\0" + struct.pack("<i", 77) + b"\0" + struct.pack("<i", 78)
        c.ask("bulk_unit_results", b"\xfa" + struct.pack("<IHH", s, 128 | 64, 3) + units)
        s = c.prepare("prepare_returning", "INSERT INTO auto (v) VALUES (?) RETURNING id, v")
        c.ask("bulk_returning", b"\xfa" + struct.pack("<IHH", s, 128, 3) + units)
    s = c.prepare("prepare_call_open", "CALL r()")
    c.execute("execute_call_open", s)
    c.execute("execute_call_open_cursor", s, cursor=1)
    c.ask("reset_connection", b"\x1f")
    c.ask("binlog_dump_error", b"\x12" + struct.pack("<IHI", 4, 0, 999) + b"nothing.000099")


def record_without_metadata(c):
    c.query("metadata_none", "SET resultset_metadata = NONE")
    c.query("select_no_metadata", "SELECT id, name FROM t ORDER BY id")
    c.query("call_no_metadata", "CALL p()")
    s = c.prepare("prepare_no_metadata", "SELECT id FROM t WHERE 1 = ?")
    s = c.prepare("prepare_no_metadata", "SELECT id FROM t")
    c.execute("execute_no_metadata", s)
    c.execute("execute_cursor_no_metadata", s, cursor=1)
    c.ask("field_list_no_metadata", b"\x04t\0%")
    c.ask("reset_connection", b"\x1f")
    c.ask("init_db", b"\x02trace")


if __name__ == "__main__":
    path, seen = sys.argv[1], set()
    setup(path)
    optional = (DEPRECATE_EOF, OPTIONAL_METADATA, CACHE, SESSION_TRACK | PROGRESS | BULK | EXTENDED | UNITS)
    for n in range(len(optional) + 1):
        for chosen in itertools.combinations(optional, n):
            record(path, sum(chosen), seen)
