"""Endpoints and their DNS in a sandbox, with real clients, as root and as a user (R34)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.calls import Made, made
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import SERVERS_V4, Network
from tests.net.servers import Server, echo, on_network
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
DB, PATTERN = "db.example.com", "*.mongo.example.net"
TCP = [f"{DB}:5432", f"{PATTERN}:27017", "dbhost:5432", "printer.local:9100"]
PYTHON = "/usr/bin/python3"
NUMBERS = itertools.count()
"""Of the sandboxes, so that each has a log of its own."""


@dataclass
class Run:
    """What a program in a sandbox of these endpoints did, and the wire's log of it."""

    code: int
    out: str
    err: str
    log: list[dict[str, object]]


class Wire:
    """Sandboxes in the tests' network."""

    def __init__(self, installed: lnk.Installed, network: Network, who: lnk.Account) -> None:
        self.installed, self.network, self.who = installed, network, who

    def command(self, argv: list[str], **proxy: object) -> list[str]:
        """Return the kept command of a program, started where the servers are reached from."""
        self.name = f"endpoints-{os.getpid()}-{next(NUMBERS)}"
        ports = proxy.pop("ports", [])
        whole = {
            "upstream": "direct",
            "dir": f"{self.who.home}/wires/box",
            "hosts": [],
            "tcp": TCP,
            **proxy,
        }
        whole = {key: value for key, value in whole.items() if value is not None}
        net = {"proxied": {"proxy": whole, "ports": ports}}
        made = self.installed.wrap(self.who, argv, net=net, name=self.name)
        words = [f"{key}={value}" for key, value in made["env"].items()]
        who = self.who
        other = ["setpriv", "--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"]
        return self.network.argv(
            *(other if who.uid != os.geteuid() else []), "env", *words, *made["argv"]
        )

    def run(self, *argv: str, **proxy: object) -> Run:
        """Run a program to its end."""
        environ = {**self.who.environ, "PATH": f"/usr/sbin:/sbin:{lnk.PATH}"}
        done = subprocess.run(
            self.command(list(argv), **proxy), env=environ, cwd=self.who.home, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
        )  # fmt: skip
        return Run(done.returncode, done.stdout, done.stderr, self.log())

    def log(self) -> list[dict[str, object]]:
        """Return the wire's log of the last program."""
        path = f"{self.who.home}/.lnk/sandbox/log/{self.name}.jsonl"
        if not os.path.exists(path):
            return []  # it ended before its wire served
        with open(path) as lines:
            return [json.loads(line) for line in lines]


@pytest.fixture
def wire(installed: lnk.Installed, network: Network, dns: DnsDouble, who: lnk.Account) -> Wire:
    dns.names |= {DB: [SERVERS_V4[0]], "s0.mongo.example.net": [SERVERS_V4[1]]}
    dns.services = {
        "SRV _mongodb._tcp.cluster0.mongo.example.net": [
            (0, 0, 27017, "s0.mongo.example.net"), (1, 2, 27018, "s1.mongo.example.net"),
        ],
        "TXT cluster0.mongo.example.net": [b"authSource=admin&replicaSet=rs0"],
        "TXT long.mongo.example.net": [[b"x" * 250] * 8],
    }  # fmt: skip
    return Wire(installed, network, who)


@pytest.fixture
def database(network: Network) -> Iterator[Server]:
    with on_network(network, SERVERS_V4[0], 5432, echo) as made:
        yield made


def dig(wire: Wire, *words: str) -> Run:
    return wire.run("dig", "+time=30", "+tries=1", *words)


def digs(wire: Wire, *queries: str) -> tuple[list[str], Run]:
    """Ask one query after the other in one sandbox; return what each printed, and the run."""
    script = "; echo =====; ".join(f"dig +time=30 +tries=1 {query}" for query in queries)
    done = wire.run("sh", "-c", script)
    return done.out.split("=====\n"), done


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_dig_is_answered_by_udp_and_by_tcp(wire: Wire, dns: DnsDouble, transport: str) -> None:
    cluster = "cluster0.mongo.example.net"
    (a, aaaa, srv, txt), done = digs(
        wire, f"+short {transport} {DB} A", f"{transport} {DB} AAAA",
        f"+short {transport} _mongodb._tcp.{cluster} SRV", f"+short {transport} {cluster} TXT",
    )  # fmt: skip
    assert (a, done.code) == ("127.53.0.1\n", 0), done.err
    assert "status: NOERROR" in aaaa
    assert "ANSWER: 0" in aaaa
    assert sorted(srv.split("\n")) == [
        "", "0 0 27017 s0.mongo.example.net.", "1 2 27018 s1.mongo.example.net.",
    ]  # fmt: skip
    assert txt == '"authSource=admin&replicaSet=rs0"\n'
    assert dns.asked == [(f"_mongodb._tcp.{cluster}", "SRV"), (cluster, "TXT")]
    # A and AAAA are answered here, and pass nobody a byte; SRV and TXT what the resolver saw.
    (srv_up, srv_down), (txt_up, txt_down) = dns.carried
    assert made(done.log) == [
        Made("dns", DB, 53, 0, 0),
        Made("dns", DB, 53, 0, 0),
        Made("dns", f"_mongodb._tcp.{cluster}", 53, srv_up, srv_down),
        Made("dns", cluster, 53, txt_up, txt_down),
    ]
    assert txt_down > txt_up == len(cluster) + 18  # a header, the name, its type and its class


def test_what_is_asked_outside_is_on_the_log_at_its_start_and_end(wire: Wire) -> None:
    log = dig(wire, "+short", "cluster0.mongo.example.net", "TXT").log
    assert [(one["verb"], one["host"], one["verdict"]) for one in log] == [
        ("dns", "cluster0.mongo.example.net", "allowed"),
        ("dns", "cluster0.mongo.example.net", "ended"),
    ]


def test_bytes_of_a_resolver_that_does_not_know_count_as_well(wire: Wire, dns: DnsDouble) -> None:
    unknown = "nothing.mongo.example.net"
    done = dig(wire, unknown, "TXT")
    assert "status: NXDOMAIN" in done.out
    (seen,) = dns.carried
    assert made(done.log) == [Made("dns", unknown, 53, *seen)]


def test_an_answer_that_does_not_fit_is_asked_for_by_tcp_on_both_sides(
    wire: Wire, dns: DnsDouble
) -> None:
    done = dig(wire, "+short", "+noedns", "long.mongo.example.net", "TXT")
    assert done.out.count("x" * 250) == 8, done.err
    assert dns.asked == [("long.mongo.example.net", "TXT")] * 4  # UDP and TCP, for UDP and TCP
    assert dns.carried[1] > (0, 2000)
    both = [sum(bytes_) for bytes_ in zip(*dns.carried[:2], strict=True)]
    assert made(done.log) == [Made("dns", "long.mongo.example.net", 53, *both)] * 2


def test_what_is_not_listed_is_refused_and_nobody_is_asked(wire: Wire, dns: DnsDouble) -> None:
    queries = (
        "evil.test A", "evil.test TXT", "x.db.example.com A", "example.com A",
        "_ipp._tcp.printer.local SRV", "dbhost TXT", f"{DB} MX", f"{DB} ANY",
    )  # fmt: skip
    answers, done = digs(wire, *queries)
    assert len(answers) == len(queries)
    for said in answers:
        assert "status: NXDOMAIN" in said or "status: REFUSED" in said, said
    assert [one["verdict"] for one in done.log] == ["refused"] * len(queries)
    assert len({one["call"] for one in done.log}) == len(queries)
    assert dns.asked == []


def test_a_program_that_knows_no_proxy_reaches_an_endpoint_by_its_name(
    wire: Wire, database: Server, dns: DnsDouble
) -> None:
    program = (
        "import socket\n"
        f"with socket.create_connection(('{DB}', 5432), 60) as made:\n"
        "    made.sendall(b'hello'); made.shutdown(socket.SHUT_WR)\n"
        "    print(made.getpeername()[0], made.makefile().read())\n"
    )
    done = wire.run(PYTHON, "-c", program)
    assert done.out == "127.53.0.1 hello\n", done.err
    calls = made(done.log)
    assert calls.count(Made("connect", DB, 5432, 5, 5)) == 1
    assert set(calls) == {Made("connect", DB, 5432, 5, 5), Made("dns", DB, 53, 0, 0)}
    assert {name for name, _ in dns.asked} == {DB}


def test_an_endpoint_is_reached_by_the_proxy_too(wire: Wire, database: Server) -> None:
    program = (
        "import os, socket\n"
        "with socket.create_connection(('127.0.0.1', 40781), 60) as made:\n"
        f"    made.sendall(b'CONNECT {DB}:5432 HTTP/1.1\\r\\nHost: {DB}:5432\\r\\n\\r\\nhello')\n"
        "    made.shutdown(socket.SHUT_WR)\n"
        "    print(made.makefile().read())\n"
    )
    done = wire.run(PYTHON, "-c", program)
    assert done.out.endswith("\n\nhello\n")
    assert made(done.log) == [Made("connect", DB, 5432, 5, 5)]


def test_a_name_under_a_pattern_gets_its_address_as_it_is_looked_up(
    wire: Wire, network: Network
) -> None:
    program = (
        "import socket\n"
        "for name in ('s0.mongo.example.net', 's1.mongo.example.net', 's0.mongo.example.net'):\n"
        "    print(socket.gethostbyname(name))\n"
        "with socket.create_connection(('s0.mongo.example.net', 27017), 60) as made:\n"
        "    made.sendall(b'ping'); made.shutdown(socket.SHUT_WR)\n"
        "    print(made.makefile().read())\n"
    )
    with on_network(network, SERVERS_V4[1], 27017, echo):
        done = wire.run(PYTHON, "-c", program)
    first, second, again, said = done.out.split()
    assert first == again != second
    assert first.startswith("127.53."), done.err
    assert said == "ping"


def test_a_port_that_the_program_has_itself_is_a_failure_and_no_other_name(wire: Wire) -> None:
    program = (
        "import socket\n"
        "mine = socket.create_server(('0.0.0.0', 27017))\n"
        "try:\n"
        "    print(socket.gethostbyname('s0.mongo.example.net'))\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
        "mine.close()\n"
        "print(socket.gethostbyname('s0.mongo.example.net'))\n"
    )
    done = wire.run(PYTHON, "-c", program)
    failed, address = done.out.splitlines()
    assert "emporary failure" in failed
    assert address.startswith("127.53.")


def test_a_resolver_that_asks_for_both_families_is_answered_at_once(wire: Wire) -> None:
    """glibc and musl send A and AAAA together; an error for the one would be for both."""
    program = (
        "import socket\n"
        f"found = socket.getaddrinfo('{DB}', 5432, type=socket.SOCK_STREAM)\n"
        "print([each[4] for each in found])\n"
        "try:\n"
        "    socket.getaddrinfo('evil.test', 80)\n"
        "except socket.gaierror as error:\n"
        "    print(error.errno == socket.EAI_NONAME)\n"
    )
    done = wire.run(PYTHON, "-c", program)
    assert done.out.splitlines() == ["[('127.53.0.1', 5432)]", "True"], done.err


def test_both_questions_on_one_socket_are_answered_without_an_error(wire: Wire) -> None:
    """As musl asks: one socket, both questions, and whatever isn't an answer fails the name."""
    program = (
        "import socket, struct\n"
        f"name = b''.join(bytes([len(x)]) + x.encode() for x in '{DB}'.split('.')) + b'\\0'\n"
        "ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); ask.settimeout(60)\n"
        "for ident, kind in ((1, 1), (2, 28)):\n"
        "    query = struct.pack('!6H', ident, 0x100, 1, 0, 0, 0) + name\n"
        "    ask.sendto(query + struct.pack('!HH', kind, 1), ('127.0.0.1', 53))\n"
        "for _ in range(2):\n"
        "    ident, flags, _, count = struct.unpack('!4H', ask.recv(512)[:8])\n"
        "    print(ident, flags & 15, count)\n"
    )
    assert sorted(wire.run(PYTHON, "-c", program).out.splitlines()) == ["1 0 1", "2 0 0"]


def test_only_where_there_are_endpoints_is_there_a_resolver(wire: Wire) -> None:
    script = "cat /etc/resolv.conf"
    assert wire.run("sh", "-c", script).out.endswith("nameserver 127.0.0.1\n")
    none = wire.run("sh", "-c", script, tcp=[])
    assert (none.out, none.code) == ("", 1)
    assert dig(wire, "@127.0.0.1", DB).code == 0
    nobody = wire.run("dig", "+time=10", "+tries=1", "@127.0.0.1", DB, tcp=[])
    assert "connection refused" in nobody.out
    closed = wire.run("sh", "-c", script, no_internet=True, tcp=TCP)
    assert closed.code == 1


def test_an_address_that_an_endpoint_leads_to_is_guarded(wire: Wire, dns: DnsDouble) -> None:
    """The owner of a listed name may say 127.0.0.1: the machine's own is reached by no name."""
    dns.names[DB] = ["127.0.0.1"]
    program = (
        "import socket\n"
        f"with socket.create_connection(('{DB}', 5432), 60) as made:\n"
        "    print(made.recv(10))\n"
    )
    done = wire.run(PYTHON, "-c", program)
    assert done.out == "b''\n", done.err
    refusal = done.log[-1]
    assert (refusal["verdict"], refusal["host"]) == ("refused", DB)
    assert "net.proxied.ports" in str(refusal["reason"])


C_ARES = """
const dns = require('dns').promises;
const told = (what) => what.then((got) => JSON.stringify(got), (error) => error.code);
(async () => {
  console.log(await told(dns.resolveSrv('_mongodb._tcp.cluster0.mongo.example.net')));
  console.log(await told(dns.resolveTxt('cluster0.mongo.example.net')));
  console.log(await told(dns.resolve4('db.example.com')));
  console.log(await told(dns.resolve6('db.example.com')));
  console.log(await told(dns.resolve4('evil.test')));
  console.log(await told(dns.resolveMx('db.example.com')));
})();
"""


def test_another_resolver_looks_up_what_a_mongodb_driver_asks_first(wire: Wire) -> None:
    """Node's own is c-ares, which its MongoDB driver uses for `mongodb+srv://`."""
    done = wire.run("node", "-e", C_ARES)
    srv, txt, four, six, none, refused = done.out.splitlines()
    assert sorted(each["name"] for each in json.loads(srv)) == [
        "s0.mongo.example.net", "s1.mongo.example.net",
    ]  # fmt: skip
    assert json.loads(txt) == [["authSource=admin&replicaSet=rs0"]]
    assert json.loads(four) == ["127.53.0.1"]
    assert (six, none, refused) == ("ENODATA", "ENOTFOUND", "EREFUSED")


MUSL = """
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        struct addrinfo hint, *found, *each;
        memset(&hint, 0, sizeof hint);
        hint.ai_socktype = SOCK_STREAM;
        int failed = getaddrinfo(names[at], "5432", &hint, &found);
        printf("%s", names[at]);
        for (each = failed ? NULL : found; each; each = each->ai_next)
            printf(" %s", inet_ntoa(((struct sockaddr_in *)each->ai_addr)->sin_addr));
        printf(" %s\\n", failed ? gai_strerror(failed) : "ok");
    }
}
"""


@pytest.fixture(scope="module")
def musl(open_folder: str) -> str:
    """A program whose resolver is musl's, which fails a name for an error of either family."""
    source, program = f"{open_folder}/musl.c", f"{open_folder}/musl-names"
    with open(source, "w") as file:
        file.write(MUSL)
    subprocess.run(["musl-gcc", "-static", "-O1", "-o", program, source], check=True, timeout=150)
    return program


def test_musls_own_resolver_finds_an_endpoint_and_is_told_at_once_of_what_is_none(
    wire: Wire, musl: str
) -> None:
    command = [musl, DB, "s0.mongo.example.net", "evil.test", DB]
    name = f"musl-{next(NUMBERS)}"
    mode = {"proxied": {"proxy": {"upstream": "direct", "dir": f"{wire.who.home}/wires/{name}",
                                  "hosts": [], "tcp": TCP}, "ports": []}}  # fmt: skip
    kept = wire.installed.wrapped(wire.who, command, net=mode, read=[musl], name=name)
    done = lnk.run(wire.who, kept)
    first, second, refused, again = done.stdout.splitlines()
    assert (first, again) == (f"{DB} 127.53.0.1 ok",) * 2
    assert second.startswith("s0.mongo.example.net 127.53.")
    assert refused == "evil.test Name does not resolve"


REACHES = """
import socket, sys
for target in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", 40781), 60) as made:
        made.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\nhello".encode())
        made.shutdown(socket.SHUT_WR)
        print(made.makefile().read().replace("\\n", " ").strip())
"""


def test_the_local_networks_machines_are_reached_by_the_proxy_and_no_others(
    wire: Wire, network: Network, dns: DnsDouble
) -> None:
    """`lan` opens what it lists, with the internet closed too; never this machine."""
    near, other = "10.77.0.1", "10.77.0.2"
    for address in (near, other):
        for namespace, what in (
            (network.server, ["address", "replace", f"{address}/32", "dev", "s0"]),
            (network.client, ["route", "replace", f"{address}/32", "dev", "c0"]),
        ):
            subprocess.run(["ip", "-n", namespace, *what], check=True, timeout=60)
    dns.names |= {"printer.lan.example": [near], "moved.lan.example": [SERVERS_V4[0]]}
    lan = [f"{near}:8080", "printer.lan.example:8080", "moved.lan.example:5432", "127.0.0.1:8080"]
    targets = [f"{near}:8080", "printer.lan.example:8080", f"{near}:8081", f"{other}:8080",
               "moved.lan.example:5432", "127.0.0.1:8080", f"{DB}:5432"]  # fmt: skip
    with (
        on_network(network, near, 8080, echo) as server,
        on_network(network, SERVERS_V4[0], 5432, echo) as far,
    ):
        for closed in (False, True):
            hosts = None if closed else [DB]  # left out they are any, but for `no_internet`
            done = wire.run(
                PYTHON, "-c", REACHES, *targets, lan=lan, no_internet=closed, hosts=hosts, tcp=[]
            )
            said = done.out.splitlines()
            assert said[0].endswith("established  hello"), done.err
            assert said[1].endswith("established  hello")
            assert all(" 403 " in line[:20] for line in said[2:6]), said
            assert "proxy.lan" in said[2]
            assert "net.proxied.ports" in said[5]
            assert (" 403 " in said[6][:20]) is closed
        assert server.accepted == 4
        assert far.accepted == 1
