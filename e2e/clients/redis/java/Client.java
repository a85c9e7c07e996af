// Checks Jedis against a listener of the Redis protocol: see ../run.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;

public final class Client {
    private interface Test {
        void run() throws Exception;
    }

    private static void check(String name, Test test) {
        try {
            test.run();
            System.out.println("ok " + name);
        } catch (Throwable error) {
            System.out.println("FAILED " + name + ": " + error);
        }
    }

    private static void same(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    private static Jedis connect(String password, RedisProtocol protocol) {
        HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(System.getenv("REDIS_PORT")));
        return new Jedis(address, DefaultJedisClientConfig.builder().user("app").password(password)
            .protocol(protocol).socketTimeoutMillis(10_000).build());
    }

    private static void sql(String statement) throws Exception {
        Process sql = new ProcessBuilder("sh", "-c", System.getenv("REDIS_SQL")).inheritIO()
            .redirectInput(ProcessBuilder.Redirect.PIPE).start();
        sql.getOutputStream().write(statement.getBytes(StandardCharsets.UTF_8));
        sql.getOutputStream().close();
        same(sql.waitFor(), 0);
    }

    public static void main(String[] args) {
        Jedis client = connect("secret", RedisProtocol.RESP3);
        check("connect", () -> same(client.ping(), "PONG"));
        check("auth.wrong", () -> {
            try {
                connect("wrong", RedisProtocol.RESP3).ping();
            } catch (JedisAccessControlException error) {
                return;
            }
            throw new AssertionError("a wrong password was let in");
        });
        check("resp2", () -> same(connect("secret", RedisProtocol.RESP2).hgetAll("user@2"), Map.of("id", "2", "name", "Bob")));
        check("resp3", () -> same(client.hgetAll("user@2"), Map.of("id", "2", "name", "Bob")));
        check("get", () -> same(client.get("name@1"), "Ada"));
        check("get.missing", () -> same(client.get("name@999"), null));
        check("mget", () -> same(client.mget("name@1", "name@999", "name@2"), Arrays.asList("Ada", null, "Bob")));
        check("hget", () -> same(client.hget("user@1", "city"), "London"));
        check("hgetall", () -> same(client.hgetAll("user@1"), Map.of("id", "1", "name", "Ada", "city", "London")));
        check("pipeline", () -> {
            Pipeline pipeline = client.pipelined();
            List<Response<String>> replies = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                replies.add(pipeline.get("name@1"));
            }
            pipeline.sync();
            same(replies.stream().map(Response::get).toList(), Collections.nCopies(1000, "Ada"));
        });
        check("transaction", () -> {
            Transaction transaction = client.multi();
            transaction.get("name@1");
            transaction.hget("user@2", "name");
            same(transaction.exec(), List.of("Ada", "Bob"));
        });
        check("scan", () -> {
            ScanParams pattern = new ScanParams().match("number@*");
            String cursor = ScanParams.SCAN_POINTER_START;
            int count = 0;
            do {
                ScanResult<String> page = client.scan(cursor, pattern);
                count += page.getResult().size();
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            same(count, 1000);
        });
        check("write.refused", () -> {
            try {
                client.set("name@1", "x");
            } catch (JedisDataException error) {
                same(error.getMessage().contains("SQL"), true);
                return;
            }
            throw new AssertionError("a write was taken");
        });
        check("flush", () -> {
            Object reply = client.sendCommand(() -> "FLUSH".getBytes(StandardCharsets.UTF_8));
            same(new String((byte[]) reply, StandardCharsets.UTF_8), "OK");
        });
        check("fresh", () -> {
            for (int i = 0; i < 10; i++) {
                sql("UPDATE item SET name = 'java-" + i + "' WHERE id = 3");
                same(client.get("name@3"), "java-" + i);
            }
        });
        check("tracking", () -> {
            HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(System.getenv("REDIS_PORT")));
            try (JedisPooled keeping = new JedisPooled(address, DefaultJedisClientConfig.builder().user("app").password("secret")
                .protocol(RedisProtocol.RESP3).socketTimeoutMillis(10_000).build(), CacheConfig.builder().maxSize(100).build())) {
                for (int i = 0; i < 10; i++) {
                    sql("UPDATE item SET name = 'kept-" + i + "' WHERE id = 3");
                    long deadline = System.nanoTime() + 10_000_000_000L;
                    while (!keeping.get("name@3").equals("kept-" + i)) {
                        same(System.nanoTime() < deadline, true);
                    }
                }
                keeping.get("name@1");
                long hits = keeping.getCache().getStats().getHitCount();
                for (int i = 0; i < 1000; i++) {
                    same(keeping.get("name@1"), "Ada");
                }
                same(keeping.getCache().getStats().getHitCount() - hits, 1000L);
            }
        });
        System.out.println("absent redirect: its subscriptions take texts only");
        System.out.println("absent tls: it takes certificates from Java's own kind of files only");
        System.out.println("absent tls.refused: it takes certificates from Java's own kind of files only");
    }
}
