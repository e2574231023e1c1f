"""The relay inside, by itself: `proxy-inside` joins ports and sockets (R42)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.linux.relay import reached
from tests.sandbox import lnk

SOON_S = 110
START = (
    "import sys; sys.path.append({root!r})\n"
    "from sandbox.linux.relay import run\n"
    "run(sys.argv[1:], 1)\n"
)  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Relayed:
    """A running relay of one folder; `descriptors` counts its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.port = free_port()
        words = ["--also", f"{folder}={self.port}", *more]
        start = START.format(root=lnk.REPOSITORY)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", start, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.read(1) == b"r", self.process.stderr.read()

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), SOON_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def relay(folder: Path) -> Iterator[Relayed]:
    made = Relayed(folder)
    yield made
    made.process.kill()
    _, err = made.process.communicate(timeout=SOON_S)
    assert err == b""


@contextlib.contextmanager
def server(
    listener: socket.socket, handle: Callable[[socket.socket], None]
) -> Iterator[list[threading.Thread]]:
    threads: list[threading.Thread] = []

    def one(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.settimeout(SOON_S)
            handle(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                thread = threading.Thread(target=one, args=(sock,), daemon=True)
                thread.start()
                threads.append(thread)

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    yield threads
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    accepting.join(SOON_S)
    for thread in threads:
        thread.join(SOON_S)


def proxy(folder: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(folder / "out.sock"))
    made.listen(512)
    return made


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while data := sock.recv(1 << 18):
        parts.append(data)
    return b"".join(parts)


def settled(relay: Relayed, count: int) -> None:
    import time

    until = time.monotonic() + SOON_S
    while relay.descriptors > count:
        assert time.monotonic() < until, os.listdir(f"/proc/{relay.process.pid}/fd")
        time.sleep(0.02)


def test_a_port_inside_is_joined_to_the_folder_s_proxy(relay: Relayed, folder: Path) -> None:
    before = relay.descriptors
    with server(proxy(folder), echo):
        for _ in range(3):
            with relay.connect() as sock:
                sock.sendall(b"hello")
                assert sock.recv(9) == b"hello"
                sock.shutdown(socket.SHUT_WR)
                assert read_all(sock) == b""
        settled(relay, before)


def test_many_megabytes_pass_both_ways_unchanged(relay: Relayed, folder: Path) -> None:
    data = random.Random(1).randbytes(8 << 20)
    with server(proxy(folder), echo), relay.connect() as sock:
        got: list[bytes] = []
        reading = threading.Thread(target=lambda: got.append(read_all(sock)))
        reading.start()
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        reading.join(SOON_S)
        assert hashlib.sha256(got[0]).digest() == hashlib.sha256(data).digest()


def test_a_half_close_is_passed_on_and_a_late_answer_comes(relay: Relayed, folder: Path) -> None:
    def late(sock: socket.socket) -> None:
        assert read_all(sock) == b"question"
        sock.sendall(b"answer" * 100_000)

    with server(proxy(folder), late), relay.connect() as sock:
        sock.sendall(b"question")
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == b"answer" * 100_000


def test_a_reader_who_stands_still_holds_only_its_own_sender(relay: Relayed, folder: Path) -> None:
    with server(proxy(folder), echo), relay.connect() as still, relay.connect() as other:
        still.settimeout(2)
        with contextlib.suppress(TimeoutError):
            while True:
                still.sendall(b"x" * (1 << 20))  # it never reads what comes back
        other.sendall(b"hello")
        assert other.recv(9) == b"hello"
        memory = Path(f"/proc/{relay.process.pid}/status").read_text()
        assert int(memory.split("VmRSS:")[1].split()[0]) < 60_000


def test_a_reset_ends_both_and_gives_all_back(relay: Relayed, folder: Path) -> None:
    before = relay.descriptors
    ended = threading.Event()

    def wait(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.recv(1)  # the first byte
            sock.recv(1)
        ended.set()

    with server(proxy(folder), wait):
        sock = relay.connect()
        sock.sendall(b"x")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        assert ended.wait(SOON_S)
        settled(relay, before)


def test_without_a_proxy_a_connection_ends_and_with_one_it_goes_on(
    relay: Relayed, folder: Path
) -> None:
    # A reset may come before whoever connects has looked.
    with contextlib.suppress(ConnectionResetError), relay.connect() as sock:
        assert read_all(sock) == b""
    with server(proxy(folder), echo), relay.connect() as sock:
        sock.sendall(b"hello")
        assert sock.recv(9) == b"hello"


# -- inward -----------------------------------------------------------------------------------


@contextlib.contextmanager
def inward(folder: Path, line: bytes) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SOON_S)
        sock.connect(str(folder / "in.sock"))
        sock.sendall(line)
        yield sock


def test_a_call_from_outside_reaches_the_port_that_it_names(relay: Relayed, folder: Path) -> None:
    before = relay.descriptors
    assert os.stat(folder / "in.sock").st_mode & 0o777 == 0o600
    listener = socket.create_server(("127.0.0.1", 0))
    line = b"%d\n" % listener.getsockname()[1]
    with server(listener, echo):
        with inward(folder, line + b"early") as sock:
            assert sock.recv(9) == b"early"
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == b""
        with inward(folder, line[:1]) as sock:
            sock.sendall(line[1:] + b"cut")
            assert sock.recv(9) == b"cut"
        settled(relay, before)


@pytest.mark.parametrize(
    "line", [b"\n", b"0\n", b"65536\n", b"123456789\n", b"-1\n", b"x\n", b"8\r\n", b"\xff\n", b""]
)
def test_what_is_no_port_is_closed(relay: Relayed, folder: Path, line: bytes) -> None:
    with inward(folder, line) as sock:
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(9) == b""


def test_a_port_at_which_nobody_listens_is_closed(relay: Relayed, folder: Path) -> None:
    before = relay.descriptors
    with inward(folder, b"%d\n" % free_port()) as sock, contextlib.suppress(ConnectionResetError):
        assert sock.recv(9) == b""
    settled(relay, before)


def test_a_folder_of_a_group_has_a_socket_of_the_group(folder: Path) -> None:
    folder.chmod(0o2770)
    if os.geteuid() == 0:
        os.chown(folder, -1, 4242)
        folder.chmod(0o2770)
    made = Relayed(folder)
    about = os.stat(folder / "in.sock")
    assert about.st_mode & 0o777 == 0o660
    assert about.st_gid == folder.stat().st_gid
    made.process.kill()
    made.process.communicate(timeout=SOON_S)
    again = Relayed(folder)  # what was left behind is replaced
    with inward(folder, b"x\n") as sock, contextlib.suppress(ConnectionResetError):
        assert sock.recv(9) == b""
    again.process.kill()
    again.process.communicate(timeout=SOON_S)


# -- words ------------------------------------------------------------------------------------


def test_each_folder_has_its_port() -> None:
    words = ["--also", "/a/b=40781", "--also", "/c=d=1"]
    assert reached(words) == [("/a/b", 40781), ("/c=d", 1)]


@pytest.mark.parametrize(
    "words",
    [[], ["--also"], ["--also", "/a"], ["--also", "a=1"], ["--also", "/a=0"], ["--also", "/a=x"],
     ["--also", "/a=65536"], ["--also", "/a=²"], ["--dir", "/a=1"], ["/a=1"],
     ["--also", "/a=1", "x"]],
)  # fmt: skip
def test_what_names_none_is_one_sentence(words: list[str]) -> None:
    with pytest.raises(ValueError, match="proxy-inside"):
        reached(words)


@given(st.lists(st.text(max_size=9), max_size=4))
def test_any_words_are_folders_and_ports_or_one_sentence(words: list[str]) -> None:
    with contextlib.suppress(ValueError):
        assert all(0 < port < 65536 for _, port in reached(words))
