"""ssh's way out of a sandbox: a ProxyCommand that goes by the sandbox's proxy.

    python -I -S ssh_proxy.py HOST PORT

ssh reads no proxy variable, and what is usually named in its place (`nc -X connect`) is not
there on every machine, and knows no login.  This file runs inside, as the program does: it
holds no policy, and what it can't do the program can't do without it either.  A refused
host is told in the proxy's own words, which name the key that would allow it.

It imports the standard library's modules in C alone: git starts one ssh for each fetch.
"""

import posix
import sys

HEAD_MAX_BYTES = 65536
PIECE_BYTES = 65536
UNREACHED = 1


def main(words: "list[str]") -> int:
    """Join standard input and output to a host by way of HTTPS_PROXY; return the status."""
    if len(words) != 2:
        return _say("this is ssh's ProxyCommand: it takes a host and a port.")
    host, port = words
    name = f"[{host}]" if ":" in host else host
    if not f"{name}{port}".isascii() or not f"{name}{port}".isprintable() or " " in name + port:
        return _say("the host's name has letters that no host has.")
    try:
        proxy, login = _proxy()
        tunnel = _connected(proxy)
        tunnel.sendall(request(f"{name}:{port}", login))
        status, reason, early = _answer(tunnel)
    except (OSError, ValueError) as error:
        return _say(f"{host} isn't reached by the sandbox's proxy: {error}.")
    if status != b"200":
        return _say(f"{host}: {_shown(reason)} ({_shown(status)})")
    return _join(tunnel, early)


def request(authority: str, login: str) -> bytes:
    """Return the CONNECT for `host:port`; login: `user:password`, or empty."""
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if login:
        from binascii import b2a_base64

        word = b2a_base64(login.encode(), newline=False).decode()
        lines.append(f"Proxy-Authorization: Basic {word}")
    return "\r\n".join([*lines, "", ""]).encode()


def split_url(url: str) -> "tuple[tuple[str, int], str]":
    """Return the address and the login of `http://[user:password@]address:port[/]`.

    Raises ValueError, which doesn't show the login.
    """
    scheme, mark, rest = url.rstrip("/").partition("://")
    login, _, authority = rest.rpartition("@")
    host, colon, port = authority.rpartition(":")
    if scheme.lower() != "http" or not mark or not colon or not port.isdigit():
        raise ValueError("HTTPS_PROXY is no http://address:port")
    return (host, int(port)), login


def _proxy() -> "tuple[tuple[str, int], str]":
    for name in (b"https_proxy", b"HTTPS_PROXY"):
        value = posix.environ.get(name)
        if value:
            return split_url(value.decode())
    raise ValueError("HTTPS_PROXY isn't set")


def _connected(address: "tuple[str, int]") -> "_socket.socket":
    import _socket

    made = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    made.connect(address)
    return made


def _answer(tunnel: "_socket.socket") -> "tuple[bytes, bytes, bytes]":
    """Return the answer's status, its reason phrase, and what came behind its head."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = tunnel.recv(PIECE_BYTES)
        if not data or len(head) > HEAD_MAX_BYTES:
            raise ValueError("it gave no answer")
        head += data
    lines, _, early = head.partition(b"\r\n\r\n")
    words = lines.partition(b"\r\n")[0].split(b" ", 2)
    return words[1] if len(words) > 1 else b"", words[2] if len(words) > 2 else b"", early


def _join(tunnel: "_socket.socket", early: bytes) -> int:
    """Move bytes both ways until the host has ended; an end of ours is passed on."""
    import select

    _write(1, early)
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    waiting.register(tunnel, select.POLLIN)
    while True:
        for fd, _ in waiting.poll():
            if fd != 0:
                data = tunnel.recv(PIECE_BYTES)
                if not data:
                    return 0
                _write(1, data)
            elif data := posix.read(0, PIECE_BYTES):
                tunnel.sendall(data)
            else:
                waiting.unregister(0)
                tunnel.shutdown(1)  # SHUT_WR: what the host still says is passed on


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[posix.write(fd, data) :]


def _shown(text: bytes) -> str:
    """Return what may go to a terminal of bytes that came from elsewhere."""
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in text[:400])


def _say(sentence: str) -> int:
    _write(2, f"lnk sandbox: {sentence}\n".encode(errors="replace"))
    return UNREACHED


TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        sys.exit(UNREACHED)
