"""psql to a real PostgreSQL and redis-cli to a real Redis, through endpoints by their names.

A relay that counts stands in front of each, to which the wire's log is held.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.e2e.calls import Made, counts, made
from tests.e2e.test_endpoints import Run, Wire
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import SERVERS_V4, Network
from tests.net.relay import LOOPBACK, Relay
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
ADDRESS, NAME = SERVERS_V4[2], "data.example.com"
SERVED_S = 300
TCP = [f"{NAME}:5432", f"{NAME}:6379"]


def started(network: Network, argv: Sequence[str], account: str, stack: ExitStack) -> None:
    """Start a server at the network's server side, as an account of this machine's."""
    found = pwd.getpwnam(account)
    process = subprocess.Popen(
        ["ip", "netns", "exec", network.server, "setpriv", "--reuid", str(found.pw_uid),
         "--regid", str(found.pw_gid), "--clear-groups", *argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip

    def end() -> None:
        process.terminate()
        process.wait(SERVED_S)

    stack.callback(end)


def ready(network: Network, script: str) -> None:
    """Wait until a server says that it serves; the client itself waits and tries again."""
    argv = ["ip", "netns", "exec", network.server, "sh", "-c", script]
    subprocess.run(argv, check=True, capture_output=True, timeout=SERVED_S)


@pytest.fixture(scope="module")
def servers(network: Network) -> Iterator[None]:
    """Both servers, their data in memory or in a folder that goes with them."""
    with ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="lnk-data-", dir="/var/lib")
        stack.callback(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        owner = pwd.getpwnam("postgres")
        data = f"{folder}/postgres"
        os.mkdir(data, 0o700)
        os.chown(data, owner.pw_uid, owner.pw_gid)
        (initdb,) = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[-1:]
        subprocess.run(
            [initdb, "-D", data, "-U", "ann", "-A", "trust", "--no-sync"],
            user=owner.pw_uid, group=owner.pw_gid, extra_groups=[], check=True, cwd="/",
            capture_output=True, timeout=SERVED_S,
        )  # fmt: skip
        postgres = f"{os.path.dirname(initdb)}/postgres"
        settings = [f"listen_addresses={LOOPBACK}", f"unix_socket_directories={data}", "fsync=off"]
        words = [word for one in settings for word in ("-c", one)]
        started(network, [postgres, "-D", data, *words], "postgres", stack)
        redis = ["redis-server", "--bind", LOOPBACK, "--protected-mode", "no", "--save", ""]
        started(network, redis, "redis", stack)
        ready(network, f"until pg_isready -q -h {LOOPBACK} -t 5; do :; done")
        ready(network, 'until [ "$(redis-cli ping 2>/dev/null)" = PONG ]; do :; done')
        yield


@pytest.fixture
def postgres(network: Network, servers: None) -> Iterator[Relay]:
    with Relay(network, (ADDRESS, 5432), (LOOPBACK, 5432)) as relay:
        yield relay


@pytest.fixture
def redis(network: Network, servers: None) -> Iterator[Relay]:
    with Relay(network, (ADDRESS, 6379), (LOOPBACK, 6379)) as relay:
        yield relay


@pytest.fixture
def wire(installed: lnk.Installed, network: Network, dns: DnsDouble, who: lnk.Account) -> Wire:
    dns.names[NAME] = [ADDRESS]
    return Wire(installed, network, who)


def check_counts(done: Run, relay: Relay, port: int, calls: int) -> None:
    """Hold the log, one call after the other, to what passed through the relay.

    Beside those of the connections it has only the look-ups, of which nobody was asked.
    """
    assert counts(done.log) == relay.counts()
    assert len(relay.passed) == calls
    dns = [Made("dns", NAME, 53, 0, 0)]
    for call in made(done.log):
        assert call in dns or call[:3] == ("connect", NAME, port)


PSQL = ("psql", "-h", NAME, "-U", "ann", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-qtA")


def test_psql_reads_and_writes_by_the_databases_name(wire: Wire, postgres: Relay) -> None:
    table = f"notes_{wire.who.name}"
    done = wire.run(
        *PSQL,
        "-c", f"create table {table} (n int)",
        "-c", f"insert into {table} select generate_series(1, 100000)",
        "-c", f"select sum(n), pg_typeof(sum(n)) from {table}",
        "-c", f"select n from {table} order by n",
        tcp=TCP,
    )  # fmt: skip
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "5000050000|bigint"
    assert lines[-1] == "100000"
    assert len(lines) == 100_001
    check_counts(done, postgres, 5432, calls=1)
    assert postgres.passed[0].down > len(done.out)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (r"select 1; \q", 0),
        (r"\! kill -KILL $PPID", 137),
        ("select pg_terminate_backend(pg_backend_pid())", 2),
    ],
    ids=["quits", "is-killed", "is-ended-by-the-server"],
)
def test_a_psql_that_ends_however_is_counted_to_the_byte(
    wire: Wire, postgres: Relay, words: str, code: int
) -> None:
    script = 'printf "select 1;\\n%s\\n" "$2" | $1'
    done = wire.run("sh", "-c", script, "sh", " ".join(PSQL), words, tcp=TCP)
    assert done.out.splitlines()[0] == "1"
    assert done.code == code, done.err
    check_counts(done, postgres, 5432, calls=1)


def test_a_psql_that_breaks_off_has_said_what_the_log_says(wire: Wire, postgres: Relay) -> None:
    """Killed by its pipe with an answer of megabytes under way, of which nobody knows the rest."""
    query = "copy (select generate_series(1, 10000000)) to stdout"
    script = '$1 -c "$2" | head -n 1'
    done = wire.run("sh", "-c", script, "sh", " ".join(PSQL), query, tcp=TCP)
    assert done.out == "1\n", done.err
    ((up, down),) = counts(done.log)
    ((heard, said),) = postgres.counts()
    assert up == heard > len(query)
    assert len(done.out) < down <= said


def test_redis_cli_reads_and_writes_by_the_databases_name(wire: Wire, redis: Relay) -> None:
    script = (
        f"redis-cli -h {NAME} set who {wire.who.name} && redis-cli -h {NAME} get who && "
        f"head -c 300000 /dev/zero | tr '\\0' x | redis-cli -h {NAME} -x set big && "
        f"redis-cli -h {NAME} strlen big"
    )
    done = wire.run("sh", "-c", script, tcp=TCP)
    assert done.out.split() == ["OK", wire.who.name, "OK", "300000"], done.err
    check_counts(done, redis, 6379, calls=4)
    assert redis.passed[2].up > 300_000


@pytest.mark.parametrize("who_ends", ["the client, killed", "the server"])
def test_a_redis_cli_that_waits_and_is_ended_is_counted_to_the_byte(
    wire: Wire, redis: Relay, who_ends: str
) -> None:
    """One that is subscribed says nothing more; what ends it comes from another connection."""
    killed = "killed" in who_ends
    end = "kill -KILL $!" if killed else f"redis-cli -h {NAME} client kill type pubsub"
    script = (
        f"redis-cli -h {NAME} subscribe news > /tmp/heard & "
        "until grep -q subscribe /tmp/heard; do sleep 0.02; done; "
        f"redis-cli -h {NAME} publish news hello; "
        "until grep -q hello /tmp/heard; do sleep 0.02; done; "
        f"{end}; wait $!"
    )
    done = wire.run("sh", "-c", script, tcp=TCP)
    assert done.out.split()[0] == "1", done.err
    check_counts(done, redis, 6379, calls=2 if killed else 3)


def test_a_database_that_is_no_endpoint_is_not_found(wire: Wire, dns: DnsDouble) -> None:
    done = wire.run(*PSQL, "-c", "select 1", tcp=["db.example.com:5432"])
    assert done.code == 2
    assert "could not translate host name" in done.err
    assert dns.asked == []
