"""`lnk sandbox mcp-remote URL`: a tool at a URL, as a stdio server of Link's (R53).

It stands outside, as any tool's server does.  Its token is sent to the URL's own origin
alone; a redirect is an error.  A bridge that starts it hands it its words by an environment
variable: a command line can be read by every user of the machine.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

from sandbox.cli.flags import Flag, Flags, UsageError, describe, read_flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proto.codecs.url import Url

FLAGS = (
    Flag("--header-file", "FILE", "fields that each request carries, a token say, a line each",
         many=True),
    Flag("--header", "'NAME: VALUE'", "one field, for what everybody may see", many=True),
    Flag("--help", "", "print this"),
)  # fmt: skip
WORDS = "LNK_MCP_REMOTE"
"""The variable that holds the words instead, and where what ours needs is imported from."""

CONNECT_S = 20.0
SILENT_S = 1800.0
"""A server that says nothing for so long has gone; streams send signs of life."""
PIECE_BYTES = 64 * 1024

HELP = f"""\
A tool at a URL, as an MCP server on standard input and output.

usage: lnk sandbox mcp-remote [flags] URL

{describe(FLAGS)}

The URL is https://, or http:// on this machine.  FILE is yours alone (chmod 600) and holds lines
of NAME: VALUE.  Define it as a tool's command, which keeps the fields in Link's settings (FILE
may be - there, for standard input):

  lnk sandbox tool add docs -- lnk-sandbox sandbox mcp-remote https://docs.example/mcp \\
      --header-file ~/docs.header"""


FILE_MAX_BYTES = 64 * 1024


def main(words: list[str]) -> int:
    """Serve until standard input ends."""
    handed = not words and WORDS in os.environ
    if handed:
        import json

        told = json.loads(os.environ.pop(WORDS))
        words = told["words"]
        sys.path += [folder for folder in told["imports"] if folder not in sys.path]
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    url, fields = read_words(words, handed=handed)
    for name in [name for name in os.environ if name not in ("HOME", "PATH")]:
        del os.environ[name]  # what OpenSSL and the resolver would read
    Server(url, fields).run()
    return 0


def read_words(
    words: list[str], *, handed: bool = False, stdin: bool = False
) -> tuple[Url, tuple[tuple[str, str], ...]]:
    """Return the URL and the fields that the words stand for; raises UsageError.

    handed: no command line has them, so none shows a secret.  stdin: a file `-` is standard
    input.
    """
    from proto.codecs.url import MalformedUrl
    from proto.verbs.mcp_remote import check_field, check_url

    flags, named = _taken_apart(words)
    if len(named) != 1:
        raise UsageError("write one URL: lnk sandbox mcp-remote https://….")
    try:
        url = check_url(named[0])
    except MalformedUrl as error:
        raise UsageError(f"the tool's URL is refused: {error}.") from None
    fields = [_field("--header", given, check_field) for given in flags.all("--header")]
    if not handed:
        _warn(name for name, _ in fields)
    for file in flags.all("--header-file"):
        lines = _from_stdin() if stdin and file == "-" else _from_file(file)
        fields += [
            _field(f"a line of --header-file {file}", line, check_field)
            for line in lines.splitlines()
            if line.strip()
        ]
    return url, tuple(fields)


def kept_words(words: list[str]) -> list[str]:
    """Return the words that a tool's definition keeps: with the fields that a file holds.

    So the definition is whole, in Link's settings, whatever becomes of the file.  Raises
    UsageError.
    """
    _, fields = read_words(words, stdin=True)
    flags, named = _taken_apart(words)
    if "--header-file" not in flags:
        return words
    return [*named, *(word for name, text in fields for word in ("--header", f"{name}: {text}"))]


def _taken_apart(words: list[str]) -> tuple[Flags, list[str]]:
    """Return the flags among words, and the rest."""
    flags_given, named, takes_value = [], [], False
    for word in words:
        if takes_value or word.startswith("--"):
            takes_value = word in ("--header", "--header-file")
            flags_given.append(word)
        else:
            named.append(word)
    return read_flags(FLAGS, flags_given), named


def _field(flag: str, text: str, check: Callable[[str, str], object]) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        # It isn't shown: who forgot the name may have written the token alone.
        cure = "--header 'NAME: VALUE'" if flag == "--header" else "NAME: VALUE"
        raise UsageError(f"{flag} has no colon: write {cure}.")
    try:
        check(name, value.strip())
    except ValueError as error:
        raise UsageError(f"{flag}: {error}.") from None
    return name, value.strip()


def _warn(names: Iterable[str]) -> None:
    """Say that a secret on a command line is none."""
    from proto.verbs.mcp_token import holds_secret

    for name in names:
        if holds_secret(name):
            print(
                f"lnk sandbox: everybody on this machine can read --header {name} while a command "
                "line has it: write it into a file (chmod 600), and --header-file FILE.",
                file=sys.stderr,
            )


def _from_stdin() -> str:
    return _text(sys.stdin.buffer.read(FILE_MAX_BYTES + 1), "-")


def _from_file(path: str) -> str:
    """Return the text of a file that is its user's alone; raises UsageError."""
    from sandbox.alone import NotAlone, read_alone

    try:
        return _text(read_alone(path, FILE_MAX_BYTES + 1), path)
    except OSError as error:
        raise UsageError(f"--header-file {path} can't be opened: {error.strerror}.") from None
    except NotAlone as error:
        raise UsageError(f"--header-file {path} {error}.") from None


def _text(data: bytes, path: str) -> str:
    if len(data) > FILE_MAX_BYTES or not data.isascii():
        raise UsageError(f"--header-file {path} holds no fields: lines of NAME: VALUE, in ASCII.")
    return data.decode()


class Server:
    """Standard input and output on one side, a thread a connection on the other.

    The machine between them (`proto.verbs.mcp_remote`) is entered by one thread at a time.
    """

    def __init__(self, url: Url, fields: tuple[tuple[str, str], ...]) -> None:
        from proto.verbs.mcp_remote import Remote

        self._url = url
        self._remote = Remote(url, fields)
        self._lock = threading.Lock()
        self._sockets: dict[int, socket.socket | None] = {}
        """One for each call that hasn't ended; None while it connects."""
        self._context = None
        if url.scheme == "https":
            import ssl

            self._context = ssl.create_default_context()

    def run(self) -> None:
        """Take lines until there are no more, and answer what is open then."""
        from proto.codecs.jsonrpc import LineReader

        reader = LineReader()
        while data := os.read(0, PIECE_BYTES):
            for line in reader.feed(data):
                with self._lock:
                    self._remote.line(line)
                    self._perform()
            if reader.overlong:
                break
        os._exit(0)  # threads that wait for a server end with their client

    def _perform(self) -> None:
        """Do what the machine wants done; under the lock."""
        from proto.verbs.mcp_remote import Drop, Line, Open

        for effect in self._remote.take():
            match effect:
                case Open(call=call, data=data, after_s=after_s):
                    self._sockets[call] = None
                    told = (call, data, after_s)
                    threading.Thread(target=self._call, args=told, daemon=True).start()
                case Line(data=data):
                    sys.stdout.buffer.write(data)
                    sys.stdout.buffer.flush()
                case Drop(call=call):
                    sock = self._sockets.pop(call, None)
                    if sock is not None:
                        _shut(sock)

    def _call(self, call: int, data: bytes, after_s: float) -> None:
        """Carry one call over a connection of its own."""
        time.sleep(after_s)
        with self._lock:
            if call not in self._sockets:
                return  # it was dropped meanwhile
        try:
            sock = self._connect()
        except OSError as error:
            self._failed(call, f"it could not be reached: {error.strerror or error}.")
            return
        with sock:
            with self._lock:
                if call not in self._sockets:
                    return  # it was dropped meanwhile
                self._sockets[call] = sock
            try:
                sock.sendall(data)
                while piece := sock.recv(PIECE_BYTES):
                    self._hear(call, piece)
                self._hear(call, b"")
            except OSError as error:
                self._failed(call, f"its connection failed: {error.strerror or error}.")

    def _connect(self) -> socket.socket:
        """Connect to the URL's own origin, and nowhere else."""
        sock = socket.create_connection((self._url.host, self._url.port), CONNECT_S)
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_hostname=self._url.host)
        sock.settimeout(SILENT_S)
        return sock

    def _hear(self, call: int, data: bytes) -> None:
        with self._lock:
            self._remote.hear(call, data)
            self._perform()

    def _failed(self, call: int, why: str) -> None:
        with self._lock:
            self._remote.failed(call, why)
            self._perform()


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself
