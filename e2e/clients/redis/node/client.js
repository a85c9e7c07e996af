// Checks node-redis or ioredis against a listener of the Redis protocol: see ../run.
'use strict';
const { execSync } = require('child_process');
const { isDeepStrictEqual, inspect } = require('util');

const port = Number(process.env.REDIS_PORT);

async function check(name, test) {
  try {
    await test();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}: ${error.message}`);
  }
}

function same(found, expected) {
  if (!isDeepStrictEqual(found, expected)) throw new Error(`found ${inspect(found)}, expected ${inspect(expected)}`);
}

async function refused(call, word) {
  try {
    await call();
  } catch (error) {
    if (!error.message.includes(word)) throw error;
    return;
  }
  throw new Error(`an error with ${word} was expected`);
}

function sql(statement) {
  execSync(process.env.REDIS_SQL, { input: statement });
}

// What the two clients call differently.
const flavors = {
  async 'node-redis'() {
    const { createClient } = require('redis');
    const connect = async (password, version) => {
      const options = { socket: { host: '127.0.0.1', port, reconnectStrategy: false }, username: 'app', password };
      const client = createClient({ ...options, RESP: version });
      client.on('error', () => {});
      await client.connect();
      return client;
    };
    return {
      connect,
      versions: [2, 3],
      ping: (client) => client.ping(),
      get: (client, key) => client.get(key),
      mget: (client, keys) => client.mGet(keys),
      hget: (client, key, field) => client.hGet(key, field),
      hgetall: async (client, key) => ({ ...(await client.hGetAll(key)) }),
      pipeline: (client, count) => Promise.all(Array.from({ length: count }, () => client.get('name@1'))),
      transaction: (client) => client.multi().get('name@1').hGet('user@2', 'name').exec(),
      async scan(client, pattern) {
        const keys = [];
        for await (const some of client.scanIterator({ MATCH: pattern })) keys.push(...[].concat(some));
        return keys.length;
      },
      set: (client) => client.set('name@1', 'x'),
      end: (client) => client.close(),
    };
  },
  async ioredis() {
    const Redis = require('ioredis');
    const connect = async (password) => {
      const client = new Redis({
        host: '127.0.0.1', port, username: 'app', password, retryStrategy: null, maxRetriesPerRequest: 0, lazyConnect: true,
      });
      let said;
      client.on('error', (error) => { said = error; });
      try {
        await client.connect();
        await client.ping();
      } catch (error) {
        throw said ?? error; // what the server said comes as an event only
      }
      return client;
    };
    return {
      connect,
      versions: [2],
      ping: (client) => client.ping(),
      get: (client, key) => client.get(key),
      mget: (client, keys) => client.mget(keys),
      hget: (client, key, field) => client.hget(key, field),
      hgetall: (client, key) => client.hgetall(key),
      async pipeline(client, count) {
        const pipeline = client.pipeline();
        for (let i = 0; i < count; i++) pipeline.get('name@1');
        return values(await pipeline.exec());
      },
      transaction: async (client) => values(await client.multi().get('name@1').hget('user@2', 'name').exec()),
      async scan(client, pattern) {
        let count = 0;
        for await (const keys of client.scanStream({ match: pattern })) count += keys.length;
        return count;
      },
      set: (client) => client.set('name@1', 'x'),
      end: (client) => client.quit(),
    };
  },
};

function values(replies) {
  return replies.map(([error, value]) => {
    if (error) throw error;
    return value;
  });
}

async function main() {
  const is = await flavors[process.argv[2]]();
  const client = await is.connect('secret', 3);
  await check('connect', async () => same(await is.ping(client), 'PONG'));
  await check('auth.wrong', () => refused(() => is.connect('wrong', 3), 'WRONGPASS'));
  for (const version of [2, 3]) {
    if (!is.versions.includes(version)) {
      console.log(`absent resp${version}: the client has no RESP${version}`);
      continue;
    }
    await check(`resp${version}`, async () => {
      const other = await is.connect('secret', version);
      same(await is.hgetall(other, 'user@2'), { id: '2', name: 'Bob' });
      await is.end(other);
    });
  }
  await check('get', async () => same(await is.get(client, 'name@1'), 'Ada'));
  await check('get.missing', async () => same(await is.get(client, 'name@999'), null));
  await check('mget', async () => same(await is.mget(client, ['name@1', 'name@999', 'name@2']), ['Ada', null, 'Bob']));
  await check('hget', async () => same(await is.hget(client, 'user@1', 'city'), 'London'));
  await check('hgetall', async () => same(await is.hgetall(client, 'user@1'), { id: '1', name: 'Ada', city: 'London' }));
  await check('pipeline', async () => same(await is.pipeline(client, 1000), Array(1000).fill('Ada')));
  await check('transaction', async () => same(await is.transaction(client), ['Ada', 'Bob']));
  await check('scan', async () => same(await is.scan(client, 'number@*'), 1000));
  await check('write.refused', () => refused(() => is.set(client), 'SQL'));
  await check('fresh', async () => {
    for (let i = 0; i < 10; i++) {
      sql(`UPDATE item SET name = 'node-${i}' WHERE id = 3`);
      same(await is.get(client, 'name@3'), `node-${i}`);
    }
  });
  await is.end(client);
}

main().then(() => process.exit(0), (error) => {
  console.log(`FAILED all: ${error.stack}`);
  process.exit(1);
});
