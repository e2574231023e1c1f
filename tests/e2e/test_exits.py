"""The real proxy behind a real exit: squid and a SOCKS5 server, with a login and without (R40)."""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import exits
from tests.e2e.exits import Exit
from tests.e2e.proxy import SHELLS, SOON_S, Proxy, read_all, read_head
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Connection, echo, http, ok, on_network

pytestmark = pytest.mark.netns
HOST = "203.0.113.10"
KINDS = {
    "squid": (exits.squid, False),
    "squid-login": (exits.squid, True),
    "socks5": (exits.microsocks, False),
    "socks5-login": (exits.microsocks, True),
}


@pytest.fixture(scope="module", params=KINDS)
def way(request: pytest.FixtureRequest, network: Network) -> Iterator[Exit]:
    """One exit of each kind for all tests of this file."""
    start, login = KINDS[request.param]
    with start(network, login=login) as made:
        yield made


@pytest.fixture(scope="module")
def squid(network: Network) -> Iterator[Exit]:
    with exits.squid(network, login=True) as made:
        yield made


@contextlib.contextmanager
def behind(
    network: Network, url: str, folder: Path, *flags: str, shell: str = "uvloop"
) -> Iterator[Proxy]:
    """Run the proxy behind an exit, whose URL comes from a file."""
    file = folder / "exit"
    file.write_text(f"{url}\n")
    file.chmod(0o600)
    hosts = ("--hosts", "example.com,both.example.com,inside.example.net,203.0.113.10")
    with Proxy(network, *hosts, "--upstream-file", str(file), *flags, shell=shell) as proxy:
        yield proxy


@pytest.fixture(params=SHELLS)
def proxy(
    request: pytest.FixtureRequest, network: Network, way: Exit, tmp_path: Path
) -> Iterator[Proxy]:
    with behind(network, way.url, tmp_path, shell=request.param) as made:
        yield made
        shown = Path(f"/proc/{made.pid()}/cmdline").read_bytes()
        shown += Path(f"/proc/{made.pid()}/environ").read_bytes()
        shown += made.stderr().encode() + repr(made.log()).encode()
        assert exits.PASSWORD.encode() not in shown


def hello(head: bytes, body: bytes) -> bytes:
    return ok(b"hello " + body, "X-Asked: " + head.decode("latin-1").replace("\r\n", "|"))


def test_curl_gets_a_page_by_the_exit_which_is_told_the_checked_address(
    network: Network, way: Exit, proxy: Proxy, dns: DnsDouble, authority: Authority
) -> None:
    context = authority.context("example.com")
    with on_network(network, HOST, 443, http(hello), context) as server:
        done = proxy.run(
            "curl", "-sS", "--cacert", str(authority.pem), "https://example.com/treasure"
        )
        assert done.stdout == "hello ", done.stderr
        assert server.accepted == 1
    assert dns.names_asked() == {"example.com"}
    if "http:" in way.url:
        assert "example.com" not in way.asked_for(f"CONNECT {HOST}:443")
    assert [line["verdict"] for line in proxy.ended_log()] == ["allowed", "ended"]


def test_a_plain_request_keeps_its_host_and_its_connection(
    network: Network, proxy: Proxy, dns: DnsDouble
) -> None:
    with on_network(network, HOST, 80, http(hello)) as server:
        done = proxy.run("curl", "-sSi", "http://example.com/a", "http://example.com/b")
        assert done.stdout.count("200 OK") == 2, done.stderr
        assert "|Host: example.com|" in done.stdout
        assert "Proxy-" not in done.stdout
        assert server.accepted == 1


def test_an_upload_and_an_upgrade_pass(network: Network, proxy: Proxy, dns: DnsDouble) -> None:
    def upgrade(connection: Connection) -> None:
        head = connection.until(b"\r\n\r\n")
        assert b"Upgrade: websocket" in head
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\n\r\nfirst"
        )
        echo(connection)

    asked = (
        b"GET http://example.com:9001/ HTTP/1.1\r\nHost: example.com:9001\r\n"
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )
    with on_network(network, HOST, 9001, upgrade), proxy.connect() as sock:
        sock.sendall(asked)
        got = b""
        while not got.endswith(b"first"):
            got += sock.recv(4096)
        sock.sendall(b"frame")
        assert sock.recv(64) == b"frame"  # before the end: squid passes no half-close on
    body = b"x" * 300_000
    with on_network(network, HOST, 9002, http(lambda _, body: ok(str(len(body)).encode()))):
        done = proxy.run("curl", "-sS", "--data-binary", body[:100_000].decode(),
                         "http://example.com:9002/")  # fmt: skip
        assert done.stdout == "100000", done.stderr


def test_a_server_that_speaks_first_is_heard(
    network: Network, proxy: Proxy, dns: DnsDouble
) -> None:
    def greet(connection: Connection) -> None:
        connection.send(b"SSH-2.0-test\r\n")
        echo(connection)

    with on_network(network, HOST, 22, greet):
        sock, head = proxy.tunnel("example.com:22")
        with sock:
            assert head.startswith(b"HTTP/1.1 200 ")
            got = b""
            while not got.endswith(b"\n"):
                got += sock.recv(64)
            assert got == b"SSH-2.0-test\r\n"
            sock.sendall(b"back")
            assert sock.recv(64) == b"back"


def test_the_second_family_is_tried_where_the_exit_does_not_reach_the_first(
    network: Network, proxy: Proxy, dns: DnsDouble
) -> None:
    with on_network(network, "203.0.113.11", 9003, echo):  # nothing listens at its IPv6 address
        sock, head = proxy.tunnel("both.example.com:9003")
        with sock:
            assert head.startswith(b"HTTP/1.1 200 ")
            sock.sendall(b"hi")
            assert sock.recv(9) == b"hi"


def test_what_is_refused_here_never_reaches_the_exit(
    network: Network, way: Exit, proxy: Proxy, dns: DnsDouble
) -> None:
    for authority, key in (
        ("evil.test:443", "--hosts evil.test"),
        ("inside.example.net:443", "this machine"),
        (f"127.0.0.1:{way.port}", "this machine"),
        ("169.254.169.254:80", ""),
    ):
        sock, head = proxy.tunnel(authority)
        with sock:
            assert head.startswith(b"HTTP/1.1 403 "), head
            assert key.encode() in head
    if "http:" in way.url:
        asked = way.asked_for(ask_directly(network, way))  # which comes after all of theirs
        for what in ("evil.test", "inside.example.net", "127.0.0.1", "169.254.169.254"):
            assert f"CONNECT {what}:" not in asked
    assert "evil.test" not in dns.names_asked()


def ask_directly(network: Network, way: Exit) -> str:
    """Ask squid for a server that isn't there; return what it logs of that, in time."""
    login = base64.b64encode(f"{exits.USER}:{exits.PASSWORD}".encode()).decode()
    asked = f"CONNECT {HOST}:7"
    sock = network.on_client_side(lambda: socket.create_connection(("127.0.0.1", way.port), SOON_S))
    with sock:
        sock.sendall(f"{asked} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode())
        assert b" 503 " in read_head(sock)
    return asked


def test_a_server_that_is_not_there_is_a_502(proxy: Proxy, dns: DnsDouble) -> None:
    sock, head = proxy.tunnel("example.com:9")
    with sock:
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"the upstream proxy could not reach the server" in read_all(sock)


# -- exits that fail ------------------------------------------------------------------------


def fails(network: Network, url: str, folder: Path, shell: str) -> str:
    """Return the 502 or 504 that a call gets behind an exit, in whole."""
    with behind(network, url, folder, shell=shell) as proxy:
        sock, head = proxy.tunnel("203.0.113.10:443")
        with sock:
            said = (head + read_all(sock)).decode()
        (_, ending) = proxy.log()
        assert ending["reason"].startswith(said.split()[1])
        assert exits.PASSWORD not in said + repr(proxy.log()) + proxy.stderr()
        assert "127.0.0.1" not in said
    return said


@pytest.mark.parametrize("shell", SHELLS)
def test_a_wrong_login_is_told(network: Network, squid: Exit, tmp_path: Path, shell: str) -> None:
    wrong = squid.url.replace(exits.PASSWORD, f"{exits.PASSWORD}x")
    assert "wants another login" in fails(network, wrong, tmp_path, shell)
    none = squid.url.replace(f"{exits.USER}:{exits.PASSWORD}@", "")
    assert "wants a login" in fails(network, none, tmp_path, shell)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_an_exit_that_is_not_there_is_told(
    network: Network, tmp_path: Path, shell: str, scheme: str
) -> None:
    url = f"{scheme}://{exits.USER}:{exits.PASSWORD}@127.0.0.1:{exits.free_port(network)}"
    said = fails(network, url, tmp_path, shell)
    assert said.startswith("HTTP/1.1 502 ")
    assert "could not be reached: connection refused; see --upstream." in said


def test_a_socks5_server_that_closes_or_speaks_another_language_is_told(
    network: Network, tmp_path: Path
) -> None:
    def said_by(handler: Callable[[Connection], None]) -> str:
        with on_network(network, "203.0.113.12", 1080, handler):
            return fails(network, "socks5://203.0.113.12:1080", tmp_path, "uvloop")

    assert "closed the connection" in said_by(lambda c: c.recv())
    assert "doesn't speak SOCKS5" in said_by(lambda c: c.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
