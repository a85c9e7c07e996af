"""Checks redis-py against a listener of the Redis protocol: see ../run."""

import os
import subprocess
import time

import redis
from redis.cache import CacheConfig


def check(name):
    def run(test):
        try:
            test()
            print("ok", name)
        except Exception as error:  # whatever it is, the check has failed
            print(f"FAILED {name}: {error!r}")

    return run


def same(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


def connect(password="secret", protocol=3, port="REDIS_PORT", **options):
    return redis.Redis(
        host="127.0.0.1", port=int(os.environ[port]), username="app", password=password,
        protocol=protocol, decode_responses=True, socket_timeout=10, retry=None, **options,
    )


def connect_tls(**options):
    folder = os.environ["REDIS_TLS"]
    return connect(port="REDIS_TLS_PORT", ssl=True, ssl_ca_certs=f"{folder}/ca.pem", **options)


def sql(statement):
    subprocess.run(os.environ["REDIS_SQL"], shell=True, check=True, input=statement.encode())


client = connect()


@check("connect")
def _():
    same(client.ping(), True)


@check("auth.wrong")
def _():
    try:
        connect("wrong").ping()
    except redis.AuthenticationError:
        return
    raise AssertionError("a wrong password was let in")


@check("resp2")
def _():
    same(connect(protocol=2).hgetall("user@2"), {"id": "2", "name": "Bob"})


@check("resp3")
def _():
    same(client.hgetall("user@2"), {"id": "2", "name": "Bob"})


@check("get")
def _():
    same(client.get("name@1"), "Ada")


@check("get.missing")
def _():
    same(client.get("name@999"), None)


@check("mget")
def _():
    same(client.mget("name@1", "name@999", "name@2"), ["Ada", None, "Bob"])


@check("hget")
def _():
    same(client.hget("user@1", "city"), "London")


@check("hgetall")
def _():
    same(client.hgetall("user@1"), {"id": "1", "name": "Ada", "city": "London"})


@check("pipeline")
def _():
    pipe = client.pipeline(transaction=False)
    for _ in range(1000):
        pipe.get("name@1")
    same(pipe.execute(), ["Ada"] * 1000)


@check("transaction")
def _():
    same(client.pipeline().get("name@1").hget("user@2", "name").execute(), ["Ada", "Bob"])


@check("scan")
def _():
    same(len(list(client.scan_iter("number@*"))), 1000)


@check("write.refused")
def _():
    try:
        client.set("name@1", "x")
    except redis.ResponseError as error:
        assert "SQL" in str(error), error
        return
    raise AssertionError("a write was taken")


@check("flush")
def _():
    same(client.execute_command("FLUSH"), "OK")


@check("fresh")
def _():
    for i in range(10):
        sql(f"UPDATE item SET name = 'python-{i}' WHERE id = 3")
        same(client.get("name@3"), f"python-{i}")


def commands():
    return client.info("stats")["total_commands_processed"]


@check("tracking")
def _():
    keeps = connect(cache_config=CacheConfig())
    for i in range(10):
        sql(f"UPDATE item SET name = 'kept-{i}' WHERE id = 3")
        deadline = time.monotonic() + 10
        while keeps.get("name@3") != f"kept-{i}":
            assert time.monotonic() < deadline, f"{keeps.get('name@3')} is kept"
    keeps.get("name@1")
    before = commands()
    same({keeps.get("name@1") for _ in range(1000)}, {"Ada"})
    assert commands() - before < 500, "nothing is kept"


@check("redirect")
def _():
    told = connect(protocol=2).pubsub()
    told.execute_command("CLIENT", "ID")
    told_id = told.connection.read_response()
    told.subscribe("__redis__:invalidate")
    same(told.get_message(timeout=10)["type"], "subscribe")
    reads = connect(protocol=2, single_connection_client=True)
    same(reads.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", told_id), "OK")
    reads.mget("name@2", "name@3")
    sql("UPDATE item SET name = 'redirected' WHERE id = 3")
    message = told.get_message(timeout=10)
    same((message["channel"], message["data"]), ("__redis__:invalidate", ["name@3"]))


@check("tls")
def _():
    folder = os.environ["REDIS_TLS"]
    secure = connect_tls(ssl_certfile=f"{folder}/client-cert.pem", ssl_keyfile=f"{folder}/client-key.pem")
    same(secure.get("name@1"), "Ada")


@check("tls.refused")
def _():
    for stranger in [connect_tls(), connect(port="REDIS_TLS_PORT")]:
        try:
            stranger.get("name@1")
        except redis.ConnectionError:
            continue
        raise AssertionError("nobody asked for a certificate")
