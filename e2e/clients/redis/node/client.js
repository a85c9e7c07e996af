// Checks node-redis or ioredis against a listener of the Redis protocol: see ../run.
'use strict';
const { execSync } = require('child_process');
const { readFileSync } = require('fs');
const { isDeepStrictEqual, inspect } = require('util');

const port = (tls) => Number(tls ? process.env.REDIS_TLS_PORT : process.env.REDIS_PORT);

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
    const connect = async (password, version, tls, more) => {
      const socket = { host: '127.0.0.1', port: port(tls), reconnectStrategy: false, ...tls, tls: Boolean(tls) };
      const client = createClient({ socket, username: 'app', password, RESP: version, ...more });
      client.on('error', () => {});
      await client.connect();
      return client;
    };
    return {
      connect,
      keeping: () => connect('secret', 3, undefined, { clientSideCache: { ttl: 0, maxEntries: 0, evictPolicy: 'LRU' } }),
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
      id: (client) => client.sendCommand(['CLIENT', 'ID']),
      subscribe: (client, channel, told) => client.subscribe(channel, told),
      redirect: (client, id) => client.sendCommand(['CLIENT', 'TRACKING', 'ON', 'REDIRECT', String(id)]),
      set: (client) => client.set('name@1', 'x'),
      flush: (client) => client.sendCommand(['FLUSH']),
      end: (client) => client.close(),
    };
  },
  async ioredis() {
    const Redis = require('ioredis');
    const connect = async (password, version, tls) => {
      const client = new Redis({
        host: '127.0.0.1', port: port(tls), tls, username: 'app', password, retryStrategy: null, maxRetriesPerRequest: 0, lazyConnect: true,
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
      id: (client) => client.client('ID'),
      async subscribe(client, channel, told) {
        client.on('message', (of, keys) => told(keys, of));
        await client.subscribe(channel);
      },
      redirect: (client, id) => client.call('CLIENT', 'TRACKING', 'ON', 'REDIRECT', id),
      set: (client) => client.set('name@1', 'x'),
      flush: (client) => client.call('FLUSH'),
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
  await check('flush', async () => same(await is.flush(client), 'OK'));
  await check('fresh', async () => {
    for (let i = 0; i < 10; i++) {
      sql(`UPDATE item SET name = 'node-${i}' WHERE id = 3`);
      same(await is.get(client, 'name@3'), `node-${i}`);
    }
  });
  if (is.keeping) {
    await check('tracking', async () => {
      const keeping = await is.keeping();
      for (let i = 0; i < 10; i++) {
        sql(`UPDATE item SET name = 'kept-${i}' WHERE id = 3`);
        const deadline = Date.now() + 10000;
        while ((await is.get(keeping, 'name@3')) !== `kept-${i}`) {
          if (Date.now() > deadline) throw new Error('an old value is kept');
          await new Promise((resolve) => setImmediate(resolve));
        }
      }
      await is.get(keeping, 'name@1');
      const before = await commands(client);
      for (let i = 0; i < 1000; i++) same(await is.get(keeping, 'name@1'), 'Ada');
      if ((await commands(client)) - before > 500) throw new Error('nothing is kept');
      await is.end(keeping);
    });
  } else {
    console.log('absent tracking: it keeps no values');
  }
  await check('redirect', async () => {
    const [told, reads] = [await is.connect('secret', 2), await is.connect('secret', 2)];
    const id = await is.id(told);
    let heard;
    const message = new Promise((resolve, reject) => {
      heard = (keys, channel) => resolve([String(keys), channel]);
      setTimeout(reject, 10000, new Error('nothing is heard')).unref();
    });
    await is.subscribe(told, '__redis__:invalidate', heard);
    same(await is.redirect(reads, id), 'OK');
    await is.mget(reads, ['name@2', 'name@3']);
    sql("UPDATE item SET name = 'redirected' WHERE id = 3");
    same(await message, ['name@3', '__redis__:invalidate']);
    await is.end(reads);
    told.disconnect?.();
  });
  const file = (name) => readFileSync(`${process.env.REDIS_TLS}/${name}.pem`);
  const trusted = { ca: file('ca'), servername: 'localhost' };
  await check('tls', async () => {
    const secure = await is.connect('secret', 3, { ...trusted, cert: file('client-cert'), key: file('client-key') });
    same(await is.get(secure, 'name@1'), 'Ada');
    await is.end(secure);
  });
  await check('tls.refused', async () => {
    try {
      await is.ping(await is.connect('secret', 3, trusted));
    } catch {
      return;
    }
    throw new Error('nobody asked for a certificate');
  });
  await is.end(client);
}

async function commands(client) {
  return Number(/total_commands_processed:(\d+)/.exec(await client.info('stats'))[1]);
}

main().then(() => process.exit(0), (error) => {
  console.log(`FAILED all: ${error.stack}`);
  process.exit(1);
});
