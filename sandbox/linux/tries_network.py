"""Tries at sockets and the network (see `prober`)."""

from __future__ import annotations

import errno
import socket

from sandbox.linux.tries import CONNECT_S, PROBE_S, number_of, syscall

SOCKETPAIR = (53, 199)


def makes_socket(family: int, kind: int, protocol: int) -> None:
    """Make a socket."""
    socket.socket(family, kind, protocol).close()


def makes_pair(family: int, kind: int, protocol: int) -> None:
    """Make a pair of sockets; a family without pairs says so, and was let through."""
    syscall(number_of(SOCKETPAIR), family, kind, protocol, bytes(8))


def connects(host: str, port: int) -> None:
    """Connect to a port by TCP."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.settimeout(CONNECT_S)
        made.connect((host, port))


def joins(host: str, port: int) -> None:
    """Connect to what is joined to a place outside; that nobody may be there resets it."""
    try:
        connects(host, port)
    except ConnectionResetError:
        return


def connects_unix(path: str) -> None:
    """Connect to a unix socket, of any of the three kinds; a first `@` stands for an abstract name.

    (One further on is of the path: OpenSSH's sockets are named by user and host.)
    """
    address = f"\0{path[1:]}" if path.startswith("@") else path
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as made:
            made.settimeout(CONNECT_S)
            try:
                made.connect(address)
            except OSError as error:
                if error.errno != errno.EPROTOTYPE:
                    raise
            else:
                return


def uses_loopback() -> None:
    """Serve at a port of its own loopback, and connect to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(CONNECT_S)
        with socket.create_connection(server.getsockname(), CONNECT_S):
            server.accept()[0].close()


def serves(port: int) -> None:
    """Listen at a port of its own loopback."""
    socket.create_server(("127.0.0.1", port)).close()


def has_route(host: str) -> None:
    """Tell whether there is a way to an address: a UDP socket is connected, nothing is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.connect((host, 53))


def looks_up(name: str) -> str:
    """Look a name up."""
    try:
        socket.getaddrinfo(name, 443)
    except socket.gaierror:
        return "unknown"
    return "open"


def asks_proxy(port: int, host: str) -> str:
    """Ask the proxy for a tunnel; return "open", or the status of its refusal."""
    return _asks(port, f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")


def asks_plain(port: int, host: str) -> str:
    """Ask the proxy for a page by plain http."""
    lines = f"Host: {host}\r\nConnection: close\r\n\r\n"
    return _asks(port, f"HEAD http://{host}/ HTTP/1.1\r\n{lines}")


def asks_path(port: int, path: str) -> str:
    """Ask the proxy itself for a path; 404 is for what isn't mounted."""
    return _asks(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")


def _asks(port: int, head: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.settimeout(PROBE_S - 2)
        made.connect(("127.0.0.1", port))
        made.sendall(head.encode())
        return _answer(made)


def _answer(made: socket.socket) -> str:
    said = b""
    while b"\r\n" not in said:
        data = made.recv(4096)
        if not data:
            return "closed"
        said += data
    number = said.split()[1].decode()
    return "open" if number < "400" else number
