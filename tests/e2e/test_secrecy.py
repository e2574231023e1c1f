"""What programs send through a real proxy is in nothing that it leaves behind or shows."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests.e2e.proxy import SHELLS, Proxy, read_all
from tests.markers import every
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Connection, on_network

pytestmark = [pytest.mark.netns, pytest.mark.parametrize("shell", SHELLS)]
HOST = "203.0.113.10"
SECRET = "s3cr3ts3cr3ts3cr3t"
LOGIN = "l0ginl0ginl0gin"


def answer(connection: Connection) -> None:
    connection.recv()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


def left_by(proxy: Proxy) -> list[bytes]:
    """Return all that a proxy shows of itself to others, and all that it writes."""
    shown = [Path(f"/proc/{proxy.pid()}/cmdline").read_bytes()]
    files = [data for path in proxy.state.rglob("*") if (data := content(path))]
    logs = [path.read_bytes() for path in proxy.logs.iterdir()]
    names = [str(path).encode() for path in (*proxy.state.rglob("*"), *proxy.logs.iterdir())]
    printed = [proxy.lnk(*words).encode() for words in (
        ("paused",), ("paused", "--json"), ("traffic", "--json"))]  # fmt: skip
    return [*shown, *files, *logs, *names, *printed, proxy.stderr().encode()]


def content(path: Path) -> bytes:
    """Return what a file holds: nothing, where it is a folder or was just written anew."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        return path.read_bytes()
    return b""


@pytest.mark.parametrize("pointed", [False, True])
def test_nothing_of_a_request_is_left_anywhere(
    shell: str, pointed: bool, network: Network, dns: DnsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--hosts", "example.com,*.example.com"]
    if pointed:
        monkeypatch.setenv("POINTED", f"http://lnk:{SECRET}@127.0.0.1:0")
        flags += ["--pointed-by", "POINTED"]
    with (
        on_network(network, HOST, 80, answer),
        on_network(network, HOST, 443, answer),
        Proxy(network, *flags, shell=shell) as proxy,
    ):
        requests = []
        for host, port in (("example.com", "80"), ("example.com", "443"), ("evil.test", "80"),
                           ("missing.example.com", "80"), ("169.254.169.254", "80")):  # fmt: skip
            for request in every(host, port):
                requests.append(request)
                with contextlib.suppress(OSError), proxy.connect() as sock:
                    sock.settimeout(60)
                    sock.sendall(request.request)
                    sock.shutdown(socket.SHUT_WR)
                    assert not request.found_in(read_all(sock)), request.part
        texts = left_by(proxy)
        assert len(proxy.log()) > 100
        assert pointed or "test is paused" in proxy.lnk("paused")
    for request in requests:
        assert not request.found_in(*texts), request.part
    assert all(SECRET.encode() not in text for text in texts)


def test_the_login_of_an_exit_is_left_nowhere(
    shell: str, network: Network, dns: DnsDouble, tmp_path: Path
) -> None:
    """An exit that talks nonsense, and one that isn't there: no message names its login."""

    def nonsense(connection: Connection) -> None:
        connection.recv()
        connection.send(b"what?\r\n\r\n")

    file = tmp_path / "exit"
    with on_network(network, HOST, 3128, nonsense):
        for exit_ in (f"http://user:{LOGIN}@{HOST}:3128", f"socks5://user:{LOGIN}@{HOST}:3128",
                      f"http://user:{LOGIN}@{HOST}:9"):  # fmt: skip
            file.touch(0o600)
            file.write_text(exit_)
            flags = ("--hosts", "example.com", "--upstream-file", str(file))
            with Proxy(network, *flags, shell=shell) as proxy:
                for authority in ("example.com:80", "evil.test:80"):
                    sock, head = proxy.tunnel(authority)
                    with sock:
                        assert head.startswith(b"HTTP/1.1 ")
                        assert LOGIN.encode() not in head + read_all(sock)
                texts = left_by(proxy)
                assert any(line["verdict"] == "ended" for line in proxy.log())
            assert all(LOGIN.encode() not in text for text in texts), exit_
