// mysql2 through the gateway: one line a check of ../checks, see ../README.md.
'use strict';

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const mysql = require('mysql2/promise');
const { authPlugins } = require('mysql2');

const { FOREBAY_HOST: host, FOREBAY_DATABASE: DATABASE, FOREBAY_SCRATCH: SCRATCH, FOREBAY_SERVER: SERVER } = process.env;
const port = Number(process.env.FOREBAY_PORT);
const CA = fs.readFileSync(process.env.FOREBAY_CA);
const WRONG_CA = fs.readFileSync(process.env.FOREBAY_WRONG_CA);
const LOGINS = new Map(process.env.FOREBAY_LOGINS.split(',').map((entry) => entry.split('=')));
const BIG = 'SELECT id, label FROM forebay_clients.numbers';
const BIG_ROWS = 200_000;
const BIG_SUM = 20_000_100_000;
const CHECK_TIMEOUT_MS = 60_000;

class Absent extends Error {}

const absent = (why) => async () => {
  throw new Absent(why);
};

function connect({ tls = false, ca = CA, ...options } = {}) {
  return mysql.createConnection({
    host,
    port,
    user: 'app',
    password: 'app secret',
    database: DATABASE,
    charset: 'utf8mb4',
    dateStrings: true,
    supportBigNumbers: true,
    jsonStrings: true,
    // A host name is what TLS checks; the address is looked up from it.
    ...(tls ? { host: 'localhost', ssl: { ca, rejectUnauthorized: true, verifyIdentity: true } } : {}),
    ...options,
  });
}

/** Runs `work` with a connection and closes it whatever happens. */
async function connected(options, work) {
  const connection = await connect(options);
  connection.connection.on('error', () => {}); // reported by the command that meets it
  try {
    return await work(connection);
  } finally {
    connection.destroy();
  }
}

async function rows(connection, sql, values) {
  const [found] = await connection.query({ sql, values, rowsAsArray: true });
  return found;
}

async function refused(errno, sqlState, action) {
  let error;
  try {
    await action();
  } catch (thrown) {
    error = thrown;
  }
  assert(error, `expected error ${errno}, but it succeeded`);
  assert.deepEqual([error.errno, error.sqlState], [errno, sqlState], `${error}`);
  return error;
}

// logins

function account(plugin) {
  if (!LOGINS.has(plugin)) throw new Absent(`this server has no account of ${plugin}`);
  return LOGINS.get(plugin);
}

async function login(plugin, options) {
  const user = account(plugin);
  await connected({ user, password: `${user} secret`, database: undefined, ...options }, async (connection) => {
    assert.deepEqual(await rows(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1)"), [[user]]);
  });
}

/**
 * Makes the next login of the account a full one: the server drops it from its cache, and a gateway that knows the server's
 * accounts reads it again within FOREBAY_ACCOUNTS_DELAY_MS.
 */
async function forgetCachedPassword(plugin) {
  const user = account(plugin);
  await connected({}, (connection) => rows(connection, `ALTER USER ${user}@'%' IDENTIFIED WITH ${plugin} BY '${user} secret'`));
  await new Promise((done) => setTimeout(done, Number(process.env.FOREBAY_ACCOUNTS_DELAY_MS)));
}

/** caching_sha2_password that tells whether the server sent its public key, that is, wanted full authentication. */
async function sha2Login(keysSeen) {
  let keys = 0;
  const plugin = authPlugins.caching_sha2_password({ onServerPublicKey: () => (keys += 1) });
  await login('caching_sha2_password', { authPlugins: { caching_sha2_password: plugin } });
  assert.equal(keys, keysSeen, 'times the server sent its public key');
}

async function wrongPassword() {
  const error = await refused(1045, '28000', () => connected({ password: 'not the secret' }, () => {}));
  assert.match(error.message, /^Access denied for user 'app'@/);
}

async function tlsVerified() {
  await connected({ tls: true }, async (connection) => {
    const socket = connection.connection.stream;
    assert(socket.encrypted && socket.authorized, 'the link is not verified TLS');
    assert.deepEqual(await rows(connection, 'SELECT 1'), [[1]]);
  });
}

async function tlsWrongCa() {
  let error;
  await connected({ tls: true, ca: WRONG_CA }, () => {}).catch((thrown) => (error = thrown));
  assert(error, 'a certificate of another CA was accepted');
  assert.match(`${error.code} ${error.message}`, /CERT|certificate|SELF_SIGNED|UNABLE_TO/);
}

async function attributes() {
  await connected({ connectAttributes: { program_name: 'forebay node' } }, async (connection) => {
    const found = await rows(
      connection,
      'SELECT ATTR_NAME, ATTR_VALUE FROM performance_schema.session_connect_attrs WHERE PROCESSLIST_ID = CONNECTION_ID()',
    );
    const attrs = new Map(found);
    assert.equal(attrs.get('program_name'), 'forebay node');
    assert.equal(attrs.get('_client_name'), 'Node-MySQL-2');
  });
}

// data

const TEXT = "naïve 東京 Ωμέγα 😀👩‍🚀 \\ ' \" %";

const TYPES = [
  [
    1, -128, -32768, -8388608, -2147483648, '-9223372036854775808', '18446744073709551615', 1.5, 2.25e-300,
    '-12345678901234567890.0123456789', '2024-02-29', '12:34:56.123456', '2024-02-29 23:59:59.999999', 2024, 'héllo 😀',
    Buffer.from([0, 1, 255, 39, 92]), 't'.repeat(3000), Buffer.alloc(1024, Buffer.from(Array.from({ length: 256 }, (_, n) => n))),
    '{"a": [1, null]}', Buffer.from([2, 1]), 'two', 'x,z',
  ],
  [2, ...Array(21).fill(null)],
  [
    3, 127, 32767, 8388607, 2147483647, '9223372036854775807', 0, 0, -1.5, '0.0000000001', '1000-01-01', '00:00:00.000000',
    '1970-01-01 00:00:00.000000', 1901, '', Buffer.alloc(0), '', Buffer.alloc(0), '[]', Buffer.from([0, 0]), 'one', '',
  ],
];
const INSERT_TYPES = `INSERT INTO types VALUES (${Array(22).fill('?').join(', ')})`;

async function textTypes() {
  await connected({}, async (connection) => {
    for (const row of TYPES) await connection.query(INSERT_TYPES, row);
    assert.deepEqual(await rows(connection, 'SELECT * FROM types ORDER BY id'), TYPES);
    await connection.query('DELETE FROM types');
  });
}

async function preparedTypes() {
  await connected({}, async (connection) => {
    for (const row of TYPES) await connection.execute(INSERT_TYPES, row);
    const select = { sql: 'SELECT * FROM types WHERE id >= ? ORDER BY id', values: [1], rowsAsArray: true };
    const [found] = await connection.execute(select);
    // The binary protocol leaves out microseconds that are zero.
    const whole = found.map((row) => row.map((value) => (value === '00:00:00' || value === '1970-01-01 00:00:00' ? `${value}.000000` : value)));
    assert.deepEqual(whole, TYPES);
    await connection.query('DELETE FROM types');
  });
}

async function preparedRepeat() {
  await connected({}, async (connection) => {
    const statement = await connection.prepare('SELECT ? + 1, ?');
    for (let n = 0; n < 500; n += 1) {
      if (n === 250) await refused(1064, '42000', () => connection.prepare('SELEKT 1'));
      const [[row]] = await statement.execute([n, `text ${n}`]);
      assert.deepEqual(Object.values(row).map(String), [String(n + 1), `text ${n}`]);
    }
    await statement.close();
    assert.deepEqual(await rows(connection, 'SELECT 1'), [[1]]);
  });
}

function checkBig(found) {
  let sum = 0;
  for (const [id, label] of found) {
    if (label !== `row ${id} é😀`) assert.fail(`label ${label} of id ${id}`);
    sum += id;
  }
  assert.deepEqual([found.length, sum], [BIG_ROWS, BIG_SUM]);
}

async function resultBig() {
  await connected({}, async (connection) => {
    checkBig(await rows(connection, BIG));
    const [found] = await connection.execute({ sql: BIG, rowsAsArray: true });
    checkBig(found);
  });
}

async function resultStream() {
  await connected({}, async (connection) => {
    const stream = () => connection.connection.query({ sql: `${BIG} ORDER BY id`, rowsAsArray: true }).stream();
    const all = [];
    for await (const row of stream()) all.push(row);
    checkBig(all);
    for await (const row of stream()) {
      assert.deepEqual(row, [1, 'row 1 é😀']);
      break;
    }
    assert.deepEqual(await rows(connection, 'SELECT 7'), [[7]], 'after stopping early');
  });
}

function bigBody() {
  const parts = [];
  for (let n = 0; n < (20 * 1024 * 1024) / 32; n += 1) parts.push(crypto.createHash('sha256').update(`${n}`).digest());
  return Buffer.concat(parts);
}
const sha256 = (buffer) => crypto.createHash('sha256').update(buffer).digest('hex');

async function blob(options) {
  const body = bigBody();
  await connected(options, async (connection) => {
    for (const way of ['query', 'execute']) {
      await connection[way]('REPLACE INTO blobs VALUES (1, ?)', [body]);
      const [[server]] = await connection[way]('SELECT LENGTH(body) AS length, SHA2(body, 256) AS hash FROM blobs WHERE id = 1');
      assert.deepEqual([server.length, server.hash], [body.length, sha256(body)], `${way}: as the server has it`);
      const [[back]] = await connection[way]('SELECT body FROM blobs WHERE id = 1');
      assert.equal(sha256(back.body), sha256(body), `${way}: as it came back`);
    }
  });
}

async function noSuchTable() {
  await connected({}, async (connection) => {
    await refused(1146, '42S02', () => connection.query('SELECT * FROM no_such_table'));
    await refused(1146, '42S02', () => connection.execute('SELECT * FROM no_such_table'));
    assert.deepEqual(await rows(connection, 'SELECT 1'), [[1]]);
  });
}

// transactions

async function transactionCommit() {
  await connected({}, (writer) =>
    connected({}, async (reader) => {
      await writer.beginTransaction();
      await writer.execute('INSERT INTO ledger VALUES (1, 100)');
      assert.deepEqual(await rows(reader, 'SELECT * FROM ledger WHERE id = 1'), [], 'before the commit');
      await writer.commit();
      assert.deepEqual(await rows(reader, 'SELECT * FROM ledger WHERE id = 1'), [[1, 100]], 'after the commit');
    }),
  );
}

async function transactionRollback() {
  await connected({}, async (writer) => {
    await writer.beginTransaction();
    await writer.execute('INSERT INTO ledger VALUES (2, 100)');
    await writer.rollback();
    assert.deepEqual(await rows(writer, 'SELECT * FROM ledger WHERE id = 2'), []);
  });
}

// several results, files

async function infileLoad() {
  const file = path.join(SCRATCH, 'node.tsv');
  fs.writeFileSync(file, Array.from({ length: 10_000 }, (_, n) => `${n}\tlabel ${n} é😀\n`).join(''));
  await connected({}, async (connection) => {
    const sql = `LOAD DATA LOCAL INFILE '${file}' INTO TABLE loaded CHARACTER SET utf8mb4`;
    await connection.query({ sql, infileStreamFactory: (name) => fs.createReadStream(name) });
    const found = await rows(connection, 'SELECT COUNT(*), CAST(SUM(id) AS SIGNED), MAX(label) FROM loaded');
    assert.deepEqual(found, [[10_000, 49_995_000, 'label 9999 é😀']]);
  });
}

async function infileRefused() {
  await connected({}, async (connection) => {
    // Without a stream factory mysql2 sends an empty file and reports its own error.
    await assert.rejects(connection.query("LOAD DATA LOCAL INFILE 'no-such-file' INTO TABLE loaded"), /streamFactory/);
    assert.deepEqual(await rows(connection, 'SELECT 1'), [[1]], 'after the refusal');
  });
}

const plain = (results) => results.map((result) => (Array.isArray(result) ? result : 'OK'));

async function multiStatements() {
  await connected({ multipleStatements: true }, async (connection) => {
    const found = await rows(connection, 'SELECT 1; DO 0; SELECT 2 UNION SELECT 3; SET @x = 5; SELECT @x');
    assert.deepEqual(plain(found), [[[1]], 'OK', [[2], [3]], 'OK', [[5]]]);
  });
}

async function multiError() {
  await connected({ multipleStatements: true }, async (connection) => {
    await refused(1146, '42S02', () => connection.query('SELECT 1; SELECT * FROM no_such_table; SET @never = 1'));
    assert.deepEqual(await rows(connection, 'SELECT @never'), [[null]], 'the third statement');
  });
}

async function callResults() {
  await connected({}, async (connection) => {
    const expected = [[[1, 'first']], [1, 2, 3].map((n) => [n, `row ${n} é😀`]), 'OK'];
    assert.deepEqual(plain(await rows(connection, 'CALL forebay_clients.two_results()')), expected);
    const [found] = await connection.execute({ sql: 'CALL forebay_clients.two_results()', rowsAsArray: true });
    assert.deepEqual(plain(found), expected, 'prepared');
  });
}

async function callOut() {
  await connected({}, async (connection) => {
    await connection.query('CALL forebay_clients.double_it(21, @y)');
    assert.deepEqual(await rows(connection, 'SELECT @y'), [[42]]);
  });
}

async function compressed() {
  await connected({ compress: true }, async (connection) => {
    const [[, on]] = await rows(connection, "SHOW SESSION STATUS LIKE 'Compression'");
    checkBig(await rows(connection, BIG));
    if (on !== 'ON') console.log(`note compression.zlib: on the server's own link it is ${on}`);
    assert(connection.connection.config.compress, 'not compressed');
  });
  await blob({ compress: true });
}

// the session

async function changeUser() {
  const [plugin] = ['mysql_native_password', 'caching_sha2_password'].filter((name) => LOGINS.has(name));
  const user = account(plugin);
  await connected({}, async (connection) => {
    await rows(connection, 'SET @mine = 1');
    await connection.changeUser({ user, password: `${user} secret`, database: 'forebay_clients' });
    assert.deepEqual(await rows(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1), @mine"), [[user, null]]);
    await connection.changeUser({ user: 'app', password: 'app secret', database: DATABASE });
    assert.deepEqual(await rows(connection, "SELECT SUBSTRING_INDEX(USER(), '@', 1), DATABASE()"), [['app', DATABASE]]);
    await refused(1045, '28000', () => connection.changeUser({ user, password: 'not the secret' }));
  });
}

async function reset() {
  await connected({}, async (connection) => {
    await connection.query('SET @mine = 1');
    await connection.query('CREATE TEMPORARY TABLE mine (id INT)');
    await connection.reset();
    assert.deepEqual(await rows(connection, 'SELECT @mine'), [[null]]);
    await refused(1146, '42S02', () => connection.query('SELECT * FROM mine'));
  });
}

async function ping() {
  await connected({}, async (connection) => {
    for (let n = 0; n < 100; n += 1) await connection.ping();
  });
}

/** Starts a statement of 30 seconds and expects `KILL QUERY id(connection)` to end it at once. */
async function cancel(id) {
  await connected({}, (connection) =>
    connected({}, async (other) => {
      const [[identity]] = await rows(connection, 'SELECT CONNECTION_ID()');
      const ended = rows(connection, "SELECT SLEEP(30), 'forebay cancel node'").catch((error) => error.errno);
      const running = 'SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE ?';
      const deadline = Date.now() + 10_000;
      while ((await rows(other, running, ['SELECT SLEEP(30), _forebay cancel node%']))[0][0] !== 1) {
        assert(Date.now() < deadline, 'the statement never ran');
      }
      const killed = Date.now();
      await other.query(`KILL QUERY ${id(connection, identity)}`);
      const result = await ended;
      assert(Date.now() - killed < 15_000, 'the statement went on after the kill');
      assert(result === 1317 || result[0][0] === 1, `ended with ${result}`);
      assert.deepEqual(await rows(connection, 'SELECT 1'), [[1]], 'after the kill');
    }),
  );
}

const batchRows = Array.from({ length: 2_000 }, (_, n) => [n, `label ${n} é😀`]);

async function checkBatch(connection) {
  const found = await rows(connection, 'SELECT COUNT(*), CAST(SUM(id) AS SIGNED), MAX(label) FROM batch');
  assert.deepEqual(found, [[2_000, 1_999_000, 'label 999 é😀']]);
  await connection.query('DELETE FROM batch');
}

async function batchInsert() {
  await connected({}, async (connection) => {
    // Queued at once; mysql2 sends each when the one before is answered.
    await connection.beginTransaction();
    await Promise.all(batchRows.map((row) => connection.execute('INSERT INTO batch VALUES (?, ?)', row)));
    await connection.commit();
    await checkBatch(connection);
  });
}

async function batchRewritten() {
  await connected({}, async (connection) => {
    await connection.query('INSERT INTO batch VALUES ?', [batchRows]);
    await checkBatch(connection);
  });
}

async function queryAttributes() {
  if (SERVER !== 'mysql') throw new Absent('MariaDB has no query attributes');
  await connected({}, async (connection) => {
    const sql = "SELECT mysql_query_attribute_string('color') AS color";
    const [[row]] = await connection.query({ sql, attributes: { color: 'blue é' } });
    assert.equal(String(row.color), 'blue é');
    const [[none]] = await connection.query(sql);
    assert.equal(none.color, null, 'without attributes');
  });
}

async function use() {
  await connected({ database: undefined }, async (connection) => {
    await connection.query(`USE ${DATABASE}`);
    assert.deepEqual(await rows(connection, 'SELECT DATABASE()'), [[DATABASE]]);
  });
}

const CHECKS = {
  'login.mysql_native_password': () => login('mysql_native_password'),
  'login.caching_sha2_password.rsa': () => forgetCachedPassword('caching_sha2_password').then(() => sha2Login(1)),
  'login.caching_sha2_password.tls': () => forgetCachedPassword('caching_sha2_password').then(() => login('caching_sha2_password', { tls: true })),
  'login.caching_sha2_password.fast': () => login('caching_sha2_password', { tls: true }).then(() => sha2Login(0)),
  'login.sha256_password.rsa': () => login('sha256_password'),
  'login.sha256_password.tls': () => login('sha256_password', { tls: true }),
  'login.client_ed25519': absent('mysql2 has no client_ed25519'),
  'login.parsec': absent('mysql2 has no parsec'),
  'login.dialog': absent('mysql2 has no dialog'),
  'login.mysql_clear_password': () => login('mysql_clear_password', { tls: true, enableCleartextPlugin: true }),
  'login.empty_password': () => connected({ user: 'nopass', password: '', database: undefined }, (connection) => rows(connection, 'SELECT 1')),
  'login.wrong_password': wrongPassword,
  'login.unknown_database': () => refused(1049, '42000', () => connected({ database: 'no_such_database' }, () => {})),
  'tls.verified': tlsVerified,
  'tls.wrong_ca': tlsWrongCa,
  attributes,
  'text.utf8mb4': () => connected({}, async (c) => assert.deepEqual(await rows(c, "SELECT ?, CHAR_LENGTH('😀é')", [TEXT]), [[TEXT, 2]])),
  'text.types': textTypes,
  'prepared.types': preparedTypes,
  'prepared.repeat': preparedRepeat,
  'prepared.long_data': absent('mysql2 sends every parameter whole'),
  'result.big': resultBig,
  'result.stream': resultStream,
  'result.cursor': absent('mysql2 opens no server-side cursor'),
  'blob.20mb': () => blob({}),
  'error.no_such_table': noSuchTable,
  'transaction.commit': transactionCommit,
  'transaction.rollback': transactionRollback,
  'infile.load': infileLoad,
  'infile.refused': infileRefused,
  'multi.statements': multiStatements,
  'multi.error': multiError,
  'call.results': callResults,
  'call.out': callOut,
  'compression.zlib': compressed,
  'compression.zstd': absent('mysql2 has zlib only'),
  'session.change_user': changeUser,
  'session.reset': reset,
  'session.use': use,
  'session.ping': ping,
  'cancel.by_connection_id': () => cancel((_, identity) => identity),
  'cancel.by_client': () => cancel((connection) => connection.threadId),
  'batch.insert': batchInsert,
  'batch.rewritten': batchRewritten,
  'batch.bulk': absent('mysql2 has no COM_STMT_BULK_EXECUTE'),
  pipeline: absent('mysql2 waits for every answer'),
  query_attributes: queryAttributes,
  'tool.status': absent('a library, no tools'),
  'tool.dump': absent('a library, no tools'),
  'tool.binlog': absent('a library, no tools'),
};

async function limited(check) {
  let timer;
  const timeout = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${CHECK_TIMEOUT_MS} ms`)), CHECK_TIMEOUT_MS);
  });
  try {
    await Promise.race([check(), timeout]);
  } finally {
    clearTimeout(timer);
  }
}

async function main() {
  let failed = 0;
  for (const [name, check] of Object.entries(CHECKS)) {
    try {
      await limited(check);
      console.log(`ok ${name}`);
    } catch (error) {
      if (error instanceof Absent) {
        console.log(`absent ${name}: ${error.message}`);
        continue;
      }
      failed += 1;
      const text = `${error.message} ${error.code ?? ''}`.replace(/\s+/g, ' ').slice(0, 600);
      const place = /client\.js:(\d+)/.exec(error.stack ?? '')?.[1] ?? '?';
      console.log(`FAILED ${name}: ${text} (line ${place})`);
    }
  }
  process.exit(failed ? 1 : 0);
}

main();
