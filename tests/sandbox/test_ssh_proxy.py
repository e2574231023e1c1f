"""ssh's helper inside: what it says to the proxy, what it passes on, what it refuses."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sandbox.linux import environment, ssh_proxy

HELPER = [sys._base_executable, "-I", "-S", ssh_proxy.__file__]  # type: ignore[attr-defined]


@contextmanager
def proxy(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener on loopback that serves one connection; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with listener.accept()[0] as made:
                serve(made)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(20)


def head_of(sock: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    return head


def helped(url: str | None, *words: str, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environ = {} if url is None else {"https_proxy": url}
    return subprocess.run([*HELPER, *words], env=environ, input=said, capture_output=True,
                          timeout=110, check=False)  # fmt: skip


def test_bytes_go_both_ways_and_a_half_close_is_passed_on():
    heads = []
    big = bytes(range(256)) * 8192

    def serve(sock: socket.socket) -> None:
        heads.append(head_of(sock))
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0-early")
        heard = b""
        while data := sock.recv(65536):
            heard += data
        sock.sendall(heard[::-1])  # only once the client has ended

    with proxy(serve) as port:
        done = helped(f"http://127.0.0.1:{port}", "host.example", "2222", said=big)
    assert heads == [b"CONNECT host.example:2222 HTTP/1.1\r\nHost: host.example:2222\r\n\r\n"]
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"SSH-2.0-early" + big[::-1]


def test_the_proxys_secret_goes_with_the_request_and_nowhere_else():
    heads = []

    def serve(sock: socket.socket) -> None:
        heads.append(head_of(sock))
        sock.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    with proxy(serve) as port:
        done = helped(f"http://lnk:0123456789abcdef@127.0.0.1:{port}/", "h.example", "22")
    assert b"Proxy-Authorization: Basic bG5rOjAxMjM0NTY3ODlhYmNkZWY=\r\n" in heads[0]
    assert done.returncode == 1
    assert b"0123456789abcdef" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 h.example isn't listed\r\n\r\n", b"h.example isn't listed (403)"),
        (b"HTTP/1.1 403 \x1b]0;x\x07\r\n\r\n", b"?]0;x? (403)"),
        (b"HTTP/1.1 403 cut", b"it gave no answer"),
        (b"x" * 70_000, b"it gave no answer"),
        (b"", b"it gave no answer"),
    ],
)
def test_a_refusal_is_one_plain_sentence(answer, said):
    def serve(sock: socket.socket) -> None:
        head_of(sock)
        sock.sendall(answer)

    with proxy(serve) as port:
        done = helped(f"http://127.0.0.1:{port}", "h.example", "22")
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (None, ("h.example", "22")),
        ("socks5://127.0.0.1:1", ("h.example", "22")),
        ("http://user:pass-word@127.0.0.1", ("h.example", "22")),
        ("http://127.0.0.1:1", ("h.example", "22")),  # nobody listens
        ("http://127.0.0.1:1", ("h.example",)),
        ("http://127.0.0.1:1", ("h.example\r\nX: y", "22")),
        ("http://127.0.0.1:1", ("h example", "22")),
        ("http://127.0.0.1:1", ("hé.example", "22")),
    ],
)
def test_what_can_not_be_reached_is_one_sentence_that_shows_no_login(url, words):
    done = helped(url, *words)
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"lnk sandbox: ")
    assert done.stderr.count(b"\n") == 1
    assert b"pass-word" not in done.stderr


def test_an_address_of_ipv6_stands_in_brackets():
    assert ssh_proxy.request("[2001:db8::1]:22", "").startswith(b"CONNECT [2001:db8::1]:22 HTTP")
    heads = []

    def serve(sock: socket.socket) -> None:
        heads.append(head_of(sock))

    with proxy(serve) as port:
        helped(f"http://127.0.0.1:{port}", "2001:db8::1", "22")
    assert heads[0].startswith(b"CONNECT [2001:db8::1]:22 HTTP/1.1\r\n")


@pytest.mark.parametrize("python", ["/usr/bin/python3.11", "/opt/it's 100% mine/python3"])
def test_shells_take_the_command_apart_as_it_was_meant(python):
    command = environment.by_ssh(python)["GIT_SSH_COMMAND"]
    ssh, flag, option = shlex.split(command)
    assert (ssh, flag) == ("ssh", "-o")
    helper = option.removeprefix("ProxyCommand=").replace("%%", "%")
    assert shlex.split(helper) == [python, "-I", "-S", environment.SSH_PROXY, "%h", "%p"]
