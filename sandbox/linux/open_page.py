#!/usr/bin/python3 -IS
"""$BROWSER of a sandbox: asks its proxy to have a page opened in the person's browser (R54).

    open_page.py URL

This file runs inside, as the program does: it holds no policy.  The person is asked, outside;
it waits for their answer, and ends with 0 once the page is opened.  Why it wasn't is said in
the proxy's own words.

It imports the standard library's modules in C alone, as `ssh_proxy.py` does.
"""

import posix
import sys

ANSWER_MAX_BYTES = 65536
NOT_OPENED = 1


def main(words: "list[str]") -> int:
    """Have a page opened; return the status."""
    pages = [word for word in words if word != "%s"]
    if len(pages) != 1:
        return _say("this opens one page: write its URL.")
    try:
        status, words_back = ask(pages[0])
    except (OSError, ValueError) as error:
        return _say(f"the page can't be asked about: {error}.")
    return 0 if status == 200 else _say(words_back)


def ask(page: str) -> "tuple[int, str]":
    """Send a page to the proxy; return the status of its answer, and its words."""
    import _socket

    url = posix.environ.get(b"LNK_SANDBOX_OPEN", b"").decode()
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, _, port = authority.rpartition(":")
    if scheme != "http" or not slash or not port.isdigit():
        raise ValueError("LNK_SANDBOX_OPEN isn't set as it was")
    body = page.encode("utf-8", "surrogateescape")
    head = (
        f"POST /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    sock.connect((host, int(port)))
    sock.sendall(head.encode() + body)
    answer = b""
    while len(answer) < ANSWER_MAX_BYTES and (piece := sock.recv(4096)):
        answer += piece
    sock.close()
    first, _, _ = answer.partition(b"\r\n")
    words = answer.partition(b"\r\n\r\n")[2].decode("ascii", "replace").strip()
    status = first.split(b" ")[1:2]
    if not status or not status[0].isdigit():
        raise ValueError("the proxy gave no answer")
    return int(status[0]), "".join(c if c.isprintable() else "?" for c in words)


def _say(sentence: str) -> int:
    posix.write(2, f"lnk sandbox: {sentence}\n".encode())
    return NOT_OPENED


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(NOT_OPENED)
