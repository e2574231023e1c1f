"""What a call's last line counts where a reset ends it: `shells/unsent.py`."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress

from msgspec.structs import replace

from proto.policy.records import Ending
from shells.sides import hang_up, prepare
from shells.unsent import hold_back, is_under_way, unsent, without_unsent

ENDING = Ending("connect", "example.com", 22, 100_000_000, 10, 1.0, "the wire is stopped")


def connected() -> tuple[socket.socket, socket.socket]:
    """Return a connection over loopback, ours first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    prepare(ours)
    theirs.settimeout(60)
    return ours, theirs


def fill(sock: socket.socket) -> int:
    """Send until there is no more room and nothing leaves; return how much went in."""
    count, still, left = 0, 0, -1
    while still < 5:
        with suppress(BlockingIOError):
            while True:
                count += sock.send(bytes(1 << 16))
        still, left = (still + 1, left) if unsent(sock) == left else (0, unsent(sock))
        threading.Event().wait(0.01)
    return count


def test_a_reset_destroys_what_was_not_sent_and_that_alone() -> None:
    ours, theirs = connected()
    with theirs:
        assert unsent(ours) == 0
        sent = fill(ours)
        kept = unsent(ours)
        assert hang_up(ours, reset=True) == kept
        got = 0
        with suppress(ConnectionResetError):
            while data := theirs.recv(1 << 16):
                got += len(data)
    assert 0 < got == sent - kept < sent


def test_the_end_of_a_direction_is_no_byte_of_it() -> None:
    ours, theirs = connected()
    with ours, theirs:
        fill(ours)
        kept = unsent(ours)
        ours.shutdown(socket.SHUT_WR)
        assert 0 < unsent(ours) == kept
    ours, theirs = connected()
    with ours, theirs:
        ours.shutdown(socket.SHUT_WR)
        assert unsent(ours) == 0


def test_who_is_held_back_sends_no_more_though_there_is_room_again() -> None:
    ours, theirs = connected()
    with ours, theirs:
        fill(ours)
        kept = unsent(ours)
        hold_back(ours)
        while select.select([theirs], [], [], 0.2)[0]:
            theirs.recv(1 << 20)
        assert unsent(ours) > kept // 2


def test_who_closes_in_order_keeps_nothing_from_leaving() -> None:
    ours, theirs = connected()
    with theirs:
        sent = fill(ours)
        assert hang_up(ours, reset=False) == 0
        got = 0
        while data := theirs.recv(1 << 16):
            got += len(data)
    assert got == sent


def test_the_last_line_counts_less_by_what_lies_on_either_side() -> None:
    assert without_unsent(ENDING, 7, 3) == replace(ENDING, up=ENDING.up - 7, down=7)
    assert without_unsent(ENDING, 0, 11).down == 0  # an earlier call's are there too


def test_of_what_is_no_tcp_nothing_is_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        fill(ours)
        assert unsent(ours) == 0


def test_what_is_under_way_is_so_until_the_peer_has_it_or_has_gone() -> None:
    ours, theirs = connected()
    with ours, theirs:
        assert not is_under_way(ours)
        fill(ours)
        ours.shutdown(socket.SHUT_RD)
        assert is_under_way(ours)
        hang_up(theirs, reset=True)
        assert not is_under_way(ours)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        fill(ours)
        assert not is_under_way(ours)  # what a unix socket has taken its peer has
