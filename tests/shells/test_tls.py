"""TLS over a raw socket: what the contract's conversations can't show."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
import trustme

from shells.reasons import Untrusted
from shells.tls import Tls, machine_context, new_context

HOST = "secure.example.com"
WAIT_S = 60.0
CA = trustme.CA()


class Talk:
    """A client's TLS, and the server's plain socket on a thread's far side."""

    def __init__(self, serve: Callable[[ssl.SSLSocket], None], stack: ExitStack) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(WAIT_S)
        self.failed: list[BaseException] = []
        self._serve, self._raw = serve, theirs
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        stack.callback(self.thread.join, WAIT_S)
        context = new_context()
        CA.configure_trust(context)
        self.tls = Tls(ours, HOST, context)
        stack.callback(self.tls.close)
        self.retry(self.tls.handshake)

    def _run(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CA.issue_cert(HOST).configure_cert(context)
        try:
            with self._raw, context.wrap_socket(self._raw, server_side=True) as sock:
                self._serve(sock)
        except BaseException as error:
            self.failed.append(error)

    def retry(self, act: Callable[[], Any]) -> Any:
        """Do what a shell does: try, and wait for what is lacking."""
        while True:
            try:
                return act()
            except BlockingIOError:
                waiting = select.poll()
                full = self.tls.is_full
                waiting.register(self.tls.fileno(), select.POLLOUT if full else select.POLLIN)
                assert waiting.poll(WAIT_S * 1000), "nothing comes"


@pytest.fixture
def talk() -> Iterator[Callable[[Callable[[ssl.SSLSocket], None]], Talk]]:
    with ExitStack() as stack:
        yield lambda serve: Talk(serve, stack)


def test_a_close_in_tls_is_an_end(talk: Callable[..., Talk]) -> None:
    def serve(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"all")
        with suppress(OSError):
            sock.unwrap()

    one = talk(serve)
    assert one.retry(lambda: one.tls.recv(100)) == b"all"
    assert one.retry(lambda: one.tls.recv(100)) == b""


def test_an_end_without_one_is_a_reset_and_stays_one(talk: Callable[..., Talk]) -> None:
    one = talk(lambda sock: sock.sendall(b"cut sh"))
    assert one.retry(lambda: one.tls.recv(100)) == b"cut sh"
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            one.retry(lambda: one.tls.recv(100))
    assert one.tls.ready()


def test_a_short_read_has_met_the_kernels_end_of_bytes(talk: Callable[..., Talk]) -> None:
    said = threading.Event()

    def serve(sock: ssl.SSLSocket) -> None:
        for _ in range(5):
            sock.sendall(b"x" * 10_000)
        said.set()
        sock.recv(1)

    one = talk(serve)
    assert said.wait(WAIT_S)
    assert one.retry(lambda: one.tls.recv(64 * 1024)) == b"x" * 50_000
    with pytest.raises(BlockingIOError):
        one.tls.recv(1)
    one.retry(lambda: one.tls.send(b"."))


def test_what_is_asked_for_is_the_most_that_comes(talk: Callable[..., Talk]) -> None:
    one = talk(lambda sock: sock.sendall(b"abcdef"))
    assert one.retry(one.tls.ready) in (True, False)
    assert one.retry(lambda: one.tls.recv(4)) == b"abcd"
    buffer = bytearray(9)
    assert one.retry(lambda: one.tls.recv_into(memoryview(buffer))) == 2
    assert buffer.startswith(b"ef")


def test_only_what_is_inside_makes_it_ready(talk: Callable[..., Talk]) -> None:
    go = threading.Event()

    def serve(sock: ssl.SSLSocket) -> None:
        assert go.wait(WAIT_S)  # its session tickets have come by themselves
        sock.sendall(b"!")

    one = talk(serve)
    assert not one.tls.ready()
    go.set()
    while not one.tls.ready():
        pass
    assert one.tls.recv(1) == b"!"


def test_a_write_counts_once_its_records_have_gone_whole(talk: Callable[..., Talk]) -> None:
    data, go, heard = bytes(range(256)) * 8192, threading.Event(), bytearray()

    def serve(sock: ssl.SSLSocket) -> None:
        assert go.wait(WAIT_S)
        while piece := sock.recv(65536):
            heard.extend(piece)

    one = talk(serve)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += one.tls.send(data[sent:])
    assert one.tls.is_full
    assert sent < len(data)
    go.set()
    while sent < len(data):
        sent += one.retry(partial(one.tls.send, data[sent:]))
    one.tls.shutdown(socket.SHUT_WR)
    one.tls.close()
    one.thread.join(WAIT_S)
    assert bytes(heard) == data


def test_no_old_version_and_no_other_protocol_is_offered() -> None:
    context = new_context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.get_ca_certs()


def test_the_machine_trusts_what_it_trusts_and_no_more() -> None:
    assert machine_context() is machine_context()
    assert machine_context().cert_store_stats()["x509_ca"] > 10


def test_a_certificate_of_nobody_is_not_trusted_by_the_machine() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CA.issue_cert(HOST).configure_cert(context)

        def serve() -> None:
            with suppress(OSError):
                context.wrap_socket(theirs, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Untrusted):
            Tls(ours, HOST).handshake()
        thread.join(WAIT_S)
