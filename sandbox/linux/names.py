"""What the stage inside tells the launcher: programs refused, and that the program was stopped.

It comes by a pipe that the sandbox's first process alone holds, from a process of ours.  Still
a program inside chose the names, so they are bounded here and escaped, and nothing is ever
decided by them.  The pipe asks for no wait: the kernel sends the launcher SIGIO.
"""

import posix
import time
from fcntl import F_GETFL, F_SETFL, F_SETOWN, fcntl

from sandbox.linux.kept import Kept

O_ASYNC = 0o20000
READ_BYTES = 1 << 16
RECORD_MAX = 8192
"""Of what is kept until the rest comes: two paths and some bytes are the most that is sent."""
STOPPED, STARTED, PROGRAM = ord("s"), ord("p"), ord("x")

TOLD_MAX = 200
SHOWN_MAX = 1000
"""How many programs are told of, and how much of a path: a terminal's worth."""
LOG_MAX_BYTES = 16 << 20
"""At which size nothing is added to the log of a sandbox whose proxy doesn't turn it over."""
_APPEND = (
    posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
    | posix.O_NONBLOCK
)  # fmt: skip


class Names:
    """The launcher's end of the pipe.

    tell: what hears of programs.  inner: the end to hand over; close it once it is, for its
    holder inside must be the only one.
    """

    __slots__ = ("_end", "_said", "_tell", "inner", "program", "stopped")

    def __init__(self, tell: "Refused | Learned") -> None:
        self._end, self.inner = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        fcntl(self._end, F_SETOWN, posix.getpid())
        fcntl(self._end, F_SETFL, fcntl(self._end, F_GETFL) | O_ASYNC)
        self._tell = tell
        self._said = b""
        self.program = 0
        """The program's number inside, 0 until it was told."""
        self.stopped = False
        """Whether the program was stopped since one last looked; the one who looks resets it."""

    def close(self) -> None:
        """Close ours, in a process that isn't the launcher."""
        posix.close(self._end)

    def tell(self, called: bytes, real: bytes) -> None:
        """Pass one program on."""
        self._tell(called, real)

    def hear(self) -> None:
        """Take all that was told."""
        while True:
            try:
                data = posix.read(self._end, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self._said = heard(self._said + data, self)[-RECORD_MAX:]

    def end(self) -> None:
        """Take what is left: nothing more will come."""
        self.hear()
        self._tell.end()


def heard(said: bytes, names: "Hearing") -> bytes:
    """Act on each whole record; return what is left.

    `s` NUL: it was stopped.  `p`, its number, NUL: it was started.  `x` and two paths, each with
    its NUL: a program.  What is none of these is nothing of ours, and all behind it is dropped.
    """
    at = 0
    while at < len(said):
        kind, end = said[at], said.find(b"\0", at)
        first, second = said[at + 1 : end], end + 1
        if kind == PROGRAM and end >= 0:
            end = said.find(b"\0", second)
        if kind not in (STOPPED, STARTED, PROGRAM):
            return b""
        if end < 0:
            return said[at:]
        if kind == STOPPED:
            names.stopped = True
        elif kind == STARTED:
            names.program = int(first) if first.isdigit() and len(first) < 10 else 0
        else:
            names.tell(first, said[second:end])
        at = end + 1
    return b""


def teller(kept: Kept) -> "Refused | Learned":
    """Return what hears of a sandbox's programs.

    Each is called with a program's path as it was called, and without links.
    """
    if kept.inside is None or kept.inside["learns"] is None:
        return Refused(kept)
    from sandbox.linux.learned import Learned

    return Learned(kept.inside)


class Refused:
    """Says on stderr and in the log which programs were refused, each with what would allow it."""

    __slots__ = ("_kept", "_told")

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._told = 0

    def __call__(self, called: bytes, real: bytes) -> None:
        """Tell of one program."""
        self._told += 1
        if self._told > TOLD_MAX + 1:
            return
        sentence = "more programs are refused than are named here."
        if self._told <= TOLD_MAX:
            sentence = self.sentence(called, real)
        say(sentence)
        if self._kept.inside is not None:
            log(self._kept.inside, sentence)

    def end(self) -> None:
        """Have nothing more to say."""

    def sentence(self, called: bytes, real: bytes) -> str:
        """Return what to print of a program that was refused."""
        name = shown(called.rpartition(b"/")[2])
        refused = f"{name} isn't in [commands] only"
        written = replaceable(real, self._kept.inside["places"] if self._kept.inside else {})
        if written is not None:
            return f"{refused}, and can't be: the sandbox writes {shown(written.encode())}."
        return f"{refused}: add {quoted(called.decode(errors='surrogateescape'))} to let it run."


def replaceable(path: bytes, places: "dict[str, bool]") -> "str | None":
    """Return the folder in which the sandbox could replace a file, or None.

    places: `exec_list.Inside`'s; the nearest one decides.
    """
    here = path.decode(errors="surrogateescape")
    while here and here not in places:
        here = here.rpartition("/")[0]
    return here if places.get(here) else None


def shown(text: bytes) -> str:
    """Return a path as a terminal may print it: one line, what is no letter or sign escaped."""
    plain = text.decode("ascii", "backslashreplace")
    plain = plain if plain.isprintable() else plain.encode("unicode_escape").decode()
    return plain if len(plain) <= SHOWN_MAX else plain[:SHOWN_MAX] + "…"


def quoted(text: str) -> str:
    """Return a text as a basic string of TOML, in ASCII and cut short."""
    text = text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if " " <= char <= "~":
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def say(sentence: str) -> None:
    """Say a sentence on stderr, if somebody reads it: one who doesn't mustn't stop the launcher."""
    import select

    room = select.poll()
    room.register(2, select.POLLOUT)
    try:
        if room.poll(0):
            posix.write(2, f"lnk sandbox: {sentence}\n".encode(errors="replace"))
    except OSError:
        return  # nobody does


def log(inside: "dict[str, Any]", sentence: str) -> None:
    """Add a line to the sandbox's log, beside its proxy's, if it has a folder of ours.

    The proxy turns the file over where it grows; without one it is let be at that size.
    """
    from _json import encode_basestring_ascii as quoted

    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    line = (
        f'{{"time":"{stamp}","call":"","verb":"exec","host":"","port":0,"verdict":"refused",'
        f'"reason":{quoted(sentence)},"status":0}}\n'
    )
    try:
        fd = posix.open(f"{inside['log']}/{inside['name']}.jsonl", _APPEND, 0o600)
    except (OSError, TypeError):
        return  # it has no log, or none of ours: stderr has told
    try:
        about = posix.fstat(fd)
        if about.st_mode & 0o170000 == 0o100000 and about.st_size < LOG_MAX_BYTES:
            posix.write(fd, line.encode())
    except OSError:
        pass  # the disk is full
    finally:
        posix.close(fd)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from sandbox.linux.learned import Learned

    class Hearing(Protocol):
        """What records are acted on."""

        program: int
        stopped: bool

        def tell(self, called: bytes, real: bytes) -> None:
            """Hear of one program."""
