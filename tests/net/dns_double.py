"""A resolver double that answers from a table and counts what it was asked."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

from dnslib import AAAA, QTYPE, RCODE, RR, SRV, TXT, A, DNSRecord

from tests.net.namespaces import DNS_V4, Network

CATCH_UP_S = 60.0
"""Longer than any answer takes: only a fault waits for it."""


class DnsDouble:
    """Answers on port 53, UDP and TCP; `asked` holds (name, type) in the order they came.

    `carried` has the bytes of each question and of its answer, as they were on the socket.
    `services` has the SRV and TXT records by type and name ("SRV _x._tcp.example.com").
    """

    def __init__(self, network: Network, names: dict[str, list[str]]) -> None:
        self.names = dict(names)
        self.services: dict[str, list[Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.carried: list[tuple[int, int]] = []
        self._network = network
        self._socket = network.on_server_side(self._bind)
        self._socket.settimeout(0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._door = network.on_server_side(lambda: socket.create_server((DNS_V4, 53)))
        self._answering = threading.Thread(target=self._serve_tcp, daemon=True)
        self._answering.start()

    @staticmethod
    def _bind() -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind((DNS_V4, 53))
        return listener

    def names_asked(self) -> set[str]:
        """Return the names asked for since the last `forget`, whatever the type."""
        return {name for name, _ in self.asked}

    def forget(self) -> None:
        """Start counting anew, with what comes from now on."""
        self._catch_up()
        self.asked.clear()
        self.carried.clear()

    def _catch_up(self) -> None:
        """Wait until every datagram that has come is answered, by way of one more."""
        with self._network.on_server_side(
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ) as last:
            last.settimeout(CATCH_UP_S)
            last.sendto(DNSRecord.question("last.invalid").pack(), (DNS_V4, 53))
            last.recv(512)

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                query, peer = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            except OSError:
                return
            answer = self.answer(query)
            if len(answer) > 512:
                cut = DNSRecord.parse(query).reply()
                cut.header.tc = 1
                answer = cut.pack()
            self.carried.append((len(query), len(answer)))
            self._socket.sendto(answer, peer)

    def _serve_tcp(self) -> None:
        while True:
            try:
                sock, _ = self._door.accept()
            except OSError:
                return
            with sock, suppress(OSError):  # who asked has left
                sock.settimeout(CATCH_UP_S)
                query = _whole(sock)
                if len(query) < 2:
                    continue
                answer = self.answer(query[2:])
                framed = len(answer).to_bytes(2, "big") + answer
                self.carried.append((len(query), len(framed)))
                sock.sendall(framed)

    def answer(self, query: bytes) -> bytes:
        """Return the answer to one query, as a datagram."""
        asked = DNSRecord.parse(query)
        name, kind = str(asked.q.qname).rstrip("."), QTYPE[asked.q.qtype]
        self.asked.append((name, kind))
        reply = asked.reply()
        addresses = self.names.get(name.lower())
        for one in self.services.get(f"{kind} {name.lower()}", ()):
            data = SRV(*one) if kind == "SRV" else TXT(one)
            reply.add_answer(RR(asked.q.qname, getattr(QTYPE, kind), rdata=data, ttl=1))
            addresses = addresses or []
        if addresses is None:
            reply.header.rcode = RCODE.NXDOMAIN
        for address in addresses or ():
            if kind == "A" and ":" not in address:
                reply.add_answer(RR(asked.q.qname, QTYPE.A, rdata=A(address), ttl=1))
            if kind == "AAAA" and ":" in address:
                reply.add_answer(RR(asked.q.qname, QTYPE.AAAA, rdata=AAAA(address), ttl=1))
        packed: bytes = reply.pack()
        return packed

    def close(self) -> None:
        """Stop answering."""
        self._stop.set()
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._answering.join(CATCH_UP_S)
        self._thread.join(CATCH_UP_S)
        self._socket.close()


def _whole(sock: socket.socket) -> bytes:
    """Read one message with its length before it, which may come in pieces; less at an end."""
    query = b""
    while len(query) < 2 or len(query) < 2 + int.from_bytes(query[:2], "big"):
        if not (data := sock.recv(4096)):
            return b""
        query += data
    return query
