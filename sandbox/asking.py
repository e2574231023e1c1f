"""How Link asks the person (R57): a dialog, else the terminal, else a question that waits.

A question comes from a sandbox and its answer never may.  So whatever shows it stands
outside, what is shown is plain ASCII, and:

- A dialog is drawn by a program that was found in the system's own folders.  Nothing inside
  reaches the display.
- On a terminal the program may write and read, and the terminal may be made to type (it
  answers some of what is written to it).  So the program is stopped meanwhile; a yes is a code
  typed back, which it never sees; what was typed before is thrown away; and the question
  stands on a screen of its own, all that could hide it undone.
- A question that waits is a file in Link's settings, and so is its answer.

One question is asked at a time on a machine, whoever asks.  Two minutes without an answer
is no, and so is everything that goes wrong.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from sandbox.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from sandbox.state import State

ANSWER_S = 120.0
"""Silence for so long is no."""
WAITING_MAX = 64
"""So many questions wait on a machine; one more is refused."""
CODE_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without those that look alike."""
CODE_CHARS = 5
TRIES = 3
"""The program may take some of what is typed, so a code may be typed again."""
CTRL_C = b"\x03"
STEP_S = 0.2
"""Between two looks for an answer that waits in a file."""
FOLDERS = ("/usr/bin", "/usr/local/bin", "/bin")
"""Where a dialog's program is looked for: never where a PATH leads."""

OWN_SCREEN = "\x1b[!p\x1b(B\x0f\x1b[0m\x1b[?1049h\x1b[r\x1b[2J\x1b[H\x1b[?25h"
"""Undo what the program may have done to the terminal (letters drawn as lines, white on
white, a window of one line), and turn to the other screen."""
THEIR_SCREEN = "\x1b[0m\x1b[?1049l"

KDIALOG_MAX_LINES, KDIALOG_MAX_CHARS = 30, 2000
"""What fits a dialog that doesn't scroll."""
KDIALOG_YES = b"read\nallow\n"
"""What it prints where both lines of its list were ticked."""
DIALOG_COLUMNS = 80
PAGE_COLUMNS, PAGE_ROWS = 80, 24
"""What a terminal that doesn't say how large it is shows at least."""
ASKS_SIZE = "\x1b[9999;9999H\x1b[6n\x1b[H"
"""Go as far as the screen goes, and say where that is (ECMA-48's CPR)."""
SIZE_S = 0.5
"""How long it may take to say so."""
SAYS_SIZE = rb"\x1b\[([0-9]{1,4});([0-9]{1,4})R"
SOON_S = 1.0
"""How long a terminal that takes nothing is given, where nobody waits for an answer."""
GOES_ON = "> "
"""Before what goes on the line above it."""
NO_DISPLAY = (b"cannot open display", b"Failed to open display", b"could not connect to display")


class Question:
    """One question.

    text: what is asked, plain ASCII, of one or more lines.  sandbox: who asks.  until: the
    time (monotonic) at which silence is no.  desktop: the environment that leads to the person's
    screen.  front: the process group of the run, whose terminal may be asked on while that is
    in front.  launcher: the process whose program is stopped meanwhile, 0 for none.
    """

    __slots__ = ("desktop", "front", "is_to_end", "launcher", "sandbox", "text", "until")

    def __init__(
        self,
        sandbox: str,
        text: str,
        desktop: dict[str, str],
        seconds: float,
        front: int = 0,
        launcher: int = 0,
    ) -> None:
        if not text.isascii() or not text.replace("\n", "").isprintable() or not text:
            raise LaunchError("asking", 0, "a question must be plain text.")
        self.sandbox = "".join(c if c.isascii() and c.isprintable() else "?" for c in sandbox)
        self.text = text
        self.until = time.monotonic() + min(seconds, ANSWER_S)
        self.desktop = desktop
        self.front = front
        self.launcher = launcher
        self.is_to_end: Callable[[], bool] = bool
        """Whether the program was told to end meanwhile: then nobody waits for an answer."""

    @property
    def whole(self) -> str:
        """The question with who asks it."""
        return f"The sandbox {self.sandbox} asks to\n\n{self.text}\n"

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return max(0.0, self.until - time.monotonic())


class Withdrawn(Exception):
    """Nobody waits for the answer any more."""


def ask(question: Question, state: State, life: int, say: Callable[[str], None]) -> str:
    """Ask; return "yes", "no" or "silence".

    life: a descriptor whose end takes the question back, raising Withdrawn.  say: tells the
    person that a question waits.
    """
    lock = _lock(question, state, life)
    if lock is None:
        return "silence"
    try:
        for way in (_by_dialog, _on_terminal):
            answer = way(question, life)
            if answer is not None:
                return answer
    finally:
        os.close(lock)
    return _waiting(question, state, life, say)


def _lock(question: Question, state: State, life: int) -> int | None:
    """Wait for this question's turn; None when its time is over first."""
    import fcntl

    folder = state.folder("questions")
    lock = os.open(f"{folder}/.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    while question.left:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait(life, STEP_S)
        else:
            return lock
    os.close(lock)
    return None


def _wait(life: int, seconds: float, *fds: int) -> list[int]:
    """Wait for one of some descriptors; return which can be read.  Raises Withdrawn."""
    ready, _, _ = select.select([life, *fds], [], [], max(0.0, seconds))
    if life in ready and not os.read(life, 1):
        raise Withdrawn
    return [fd for fd in ready if fd != life]


# A dialog.


def _by_dialog(question: Question, life: int) -> str | None:
    """Ask by a dialog; None where there is no screen, or nothing that draws on it."""
    if not ("DISPLAY" in question.desktop or "WAYLAND_DISPLAY" in question.desktop):
        return None
    for argv, stdin in dialogs(question):
        program = find(argv[0])
        if program is not None:
            answer = _run_dialog([program, *argv[1:]], stdin, question, life)
            if answer is not None:
                return answer
    return None


def find(name: str) -> str | None:
    """Return the absolute path of one of the system's own programs, None where it has none."""
    paths = (f"{folder}/{name}" for folder in FOLDERS)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def dialogs(question: Question) -> Iterator[tuple[list[str], str]]:
    """Yield the command lines that show a question whole, and what each reads.

    A yes takes more than a key that was meant for another window: zenity's is closed until
    a box is ticked, of kdialog's list two lines have to be.  None of kdialog's own buttons
    would do: it tells a window that was closed, and a screen that went away, as it tells No.
    """
    whole = folded(question.whole, DIALOG_COLUMNS)
    yield [
        "zenity", "--text-info", "--title=lnk sandbox", "--width=720", "--height=480",
        "--font=monospace", "--ok-label=Allow", "--cancel-label=Refuse",
        "--checkbox=I have read all of it",
    ], whole  # fmt: skip
    if whole.count("\n") <= KDIALOG_MAX_LINES and len(whole) <= KDIALOG_MAX_CHARS:
        # It makes a line's end of a backslash and an n, as an argument may have them.
        text = whole.replace("\\", "\\\\")
        yield [
            "kdialog", "--title", "lnk sandbox", "--separate-output", "--checklist", text,
            "read", "I have read all of it", "off", "allow", "Allow it", "off",
        ], ""  # fmt: skip


def _run_dialog(argv: list[str], stdin: str, question: Question, life: int) -> str | None:
    """Run a dialog's program until it is answered; None where it couldn't be drawn."""
    import tempfile

    with (
        tempfile.TemporaryFile() as shown,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as errors,
    ):
        shown.write(stdin.encode())
        shown.seek(0)
        pid = os.posix_spawn(
            argv[0],
            argv,
            question.desktop | {"PATH": ":".join(FOLDERS), "HOME": "/"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, shown.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, said.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, errors.fileno(), 2),
            ],
            setpgroup=0,
            setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGTTOU),
        )
        try:
            process = os.pidfd_open(pid)
            try:
                ended = bool(_wait(life, question.left, process))
            finally:
                os.close(process)
        finally:
            _kill(pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not ended:
            return "silence"
        errors.seek(0)
        complained = errors.read(4096)
        drawn = not any(words in complained for words in NO_DISPLAY)
        said.seek(0)
        if code == 0 and os.path.basename(argv[0]) == "kdialog" and said.read(64) != KDIALOG_YES:
            return "no"
    if code == 0:
        return "yes"
    return "no" if code == 1 and drawn else None


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


# The terminal.


def _on_terminal(question: Question, life: int) -> str | None:
    """Ask on the terminal; None where there is none, or somebody else has it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(terminal) != question.front:
            return None  # the run is in the background: who is in front has asked for nothing
        return _stopped_meanwhile(terminal, question, life)
    except OSError:
        return None
    finally:
        os.close(terminal)


def _stopped_meanwhile(terminal: int, question: Question, life: int) -> str | None:
    """Ask while the program is stopped; None where it can't be."""
    if not question.launcher:
        return _in_front(terminal, question, life)
    from sandbox.linux.freezing import Frozen

    frozen = Frozen.of(question.launcher)
    if frozen is None:
        return None
    question.is_to_end = frozen.is_to_end
    try:
        return _in_front(terminal, question, life)
    finally:
        frozen.thaw()
        os.kill(question.launcher, signal.SIGWINCH)  # which it hands on: its screen is drawn anew


def _in_front(terminal: int, question: Question, life: int) -> str:
    """Bring this process to the terminal's front, ask, and give it back."""
    import termios

    before, modes = os.tcgetpgrp(terminal), termios.tcgetattr(terminal)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    # What is typed is then ours alone, of all in its session.  Ctrl-C ends a line, a no.
    os.setpgid(0, 0)
    os.tcsetpgrp(terminal, os.getpid())
    plain = list(modes)
    plain[0] = termios.ICRNL
    plain[1] = termios.OPOST | termios.ONLCR
    plain[3] = termios.ICANON | termios.ECHO | termios.ECHOE
    plain[6] = list(plain[6])
    plain[6][termios.VEOL] = CTRL_C
    try:
        # The program may have stopped what is written to the terminal, as Ctrl-S does: whoever
        # writes there then, or waits until all is written, waits for good.
        termios.tcflow(terminal, termios.TCOON)
        _set_modes(terminal, plain)
        _write(terminal, OWN_SCREEN, question, life)
        return _by_code(terminal, question, life)
    finally:
        try:
            _write_soon(terminal, THEIR_SCREEN)
        finally:
            _set_modes(terminal, modes)
            os.tcsetpgrp(terminal, before)


def _set_modes(terminal: int, modes: list[Any]) -> None:
    """Set a terminal's modes, and forget what was typed; what is still to be written may wait."""
    import termios

    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    termios.tcflush(terminal, termios.TCIFLUSH)


def _by_code(terminal: int, question: Question, life: int) -> str:
    """Show a question, page by page, and take the code that allows it."""
    *pages, last = pages_of(question.whole, *size_of(terminal))
    for number, page in enumerate(pages):
        more = f"({number + 1} of {len(pages) + 1}: Enter for more, n to refuse) "
        answer = _line(terminal, f"{page}\n{more}", question, life)
        if answer is None or answer:
            return "silence" if answer is None else "no"
    _write(terminal, f"{last}\n", question, life)
    for _ in range(TRIES):
        code = new_code()
        prompt = f"To allow it, type {code} and Enter. Enter alone refuses: "
        answer = _line(terminal, prompt, question, life)
        if answer is None:
            return "silence"
        if answer == code:
            return "yes"
        if answer in ("", "n", "no") or CTRL_C.decode() in answer:
            return "no"
        _write(terminal, "That is not the code.\n", question, life)
    return "no"


def size_of(terminal: int) -> tuple[int, int]:
    """Return how many columns and rows a terminal shows.

    The kernel's word alone won't do: any program that has the terminal may set it
    (TIOCSWINSZ), and of a page that is longer than the screen only the end is seen.  So the
    terminal is asked itself, and the smaller counts.
    """
    import re
    import termios

    modes = termios.tcgetattr(terminal)
    raw = list(modes)
    raw[3] = 0  # its answer ends in no line's end, and is not to be seen
    raw[6] = list(raw[6])
    raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
    _set_modes(terminal, raw)
    try:
        _write_soon(terminal, ASKS_SIZE)
        said, until = b"", time.monotonic() + SIZE_S
        while (found := re.search(SAYS_SIZE, said)) is None:
            left = until - time.monotonic()
            if left <= 0 or not select.select([terminal], [], [], left)[0]:
                break
            said = (said + os.read(terminal, 256))[-1024:]
    finally:
        _set_modes(terminal, modes)
    most = (int(found[2]), int(found[1])) if found else (PAGE_COLUMNS, PAGE_ROWS)
    columns, rows = os.get_terminal_size(terminal)
    return min(columns or most[0], most[0]), min(rows or most[1], most[1])


def new_code() -> str:
    """Return a code that nobody can guess."""
    letters = CODE_LETTERS
    found = ""
    while len(found) < CODE_CHARS:
        byte = os.urandom(1)[0]
        if byte < 256 // len(letters) * len(letters):  # each letter is as likely
            found += letters[byte % len(letters)]
    return found


def pages_of(text: str, columns: int, rows: int) -> list[str]:
    """Cut a text into pages that a terminal shows whole, its long lines folded."""
    rows = max(6, rows) - 4
    lines = folded(text, max(20, columns)).split("\n")
    return ["\n".join(lines[at : at + rows]) for at in range(0, len(lines), rows)]


def folded(text: str, columns: int) -> str:
    """Fold a text's long lines; what goes on a line begins with a mark that no other line has.

    Unmarked, the end of a long argument would look like a line of the question's own.
    """
    lines = []
    for line in text.split("\n"):
        lines.append(line[:columns])
        room = columns - len(GOES_ON)
        lines += [GOES_ON + line[at : at + room] for at in range(columns, len(line), room)]
    return "\n".join(lines)


def _line(terminal: int, prompt: str, question: Question, life: int) -> str | None:
    """Read a line that is typed behind a prompt; None when nobody typed one in time."""
    import re
    import termios

    termios.tcflush(terminal, termios.TCIFLUSH)  # what was typed before answers nothing
    _write(terminal, prompt, question, life)
    line = b""
    while not line.endswith((b"\n", CTRL_C)):
        if not question.left:
            return None
        if question.is_to_end():
            return "no"
        if not _wait(life, min(STEP_S, question.left), terminal):
            continue
        piece = os.read(terminal, 256)
        if not piece:
            return ""  # Ctrl-D
        line = (line + piece)[-1024:]
    line = re.sub(SAYS_SIZE, b"", line)  # a terminal far away says it late
    return line.decode("ascii", "replace").strip(" \t\r\n").lower()


def _write(terminal: int, text: str, question: Question, life: int) -> None:
    """Write to a terminal as it takes it; raise TimeoutError where it takes nothing in time."""
    data = text.encode("ascii")
    while data:
        try:
            data = data[os.write(terminal, data) :]
        except BlockingIOError:
            if not question.left or question.is_to_end():
                raise TimeoutError from None
            select.select([], [terminal], [], STEP_S)
            _wait(life, 0)


def _write_soon(terminal: int, text: str) -> None:
    """Write what a terminal takes soon: one that stands still mustn't hold whoever has it."""
    data, until = text.encode("ascii"), time.monotonic() + SOON_S
    while data and (left := until - time.monotonic()) > 0:
        try:
            data = data[os.write(terminal, data) :]
        except BlockingIOError:
            select.select([], [terminal], [], left)


# A question that waits.


def _waiting(question: Question, state: State, life: int, say: Callable[[str], None]) -> str:
    """Leave a question where `lnk sandbox answer` finds it, and wait for what it says."""
    import json

    sweep(state)
    if len(waiting(state)) >= WAITING_MAX:
        return "silence"
    name = new_code()
    told = {
        "id": name,
        "sandbox": question.sandbox,
        "text": question.text,
        "asked": time.time(),
        "until": time.time() + question.left,
        "pid": os.getpid(),
        "launcher": question.launcher,
    }
    state.write(json.dumps(told).encode(), "questions", f"{name}.json")
    try:
        say(f"the sandbox {question.sandbox} asks something: lnk sandbox answer {name}")
        while question.left:
            found = state.read("questions", f"{name}.answer")
            if found is not None:
                return "yes" if found == b"yes" else "no"
            _wait(life, min(STEP_S, question.left))
        return "silence"
    finally:
        state.remove("questions", f"{name}.json")
        state.remove("questions", f"{name}.answer")


def waiting(state: State) -> list[dict[str, Any]]:
    """Return the questions that wait, the oldest first.

    One whose asker was killed waits no more, though its file is still there.
    """
    names = [name for name in state.names("questions") if name.endswith(".json")]
    found = [one for name in names if (one := _question(state, name)) is not None]
    alive = [one for one in found if os.path.exists(f"/proc/{one['pid']}")]
    return sorted(alive, key=lambda one: one["asked"])


def _question(state: State, name: str) -> dict[str, Any] | None:
    """Return what a question's file says; None where it is gone, or holds no question."""
    import json

    try:
        one = json.loads(state.read("questions", name) or b"")
    except (ValueError, RecursionError, LaunchError):
        return None
    match one:
        case {
            "id": str(), "sandbox": str(), "text": str(), "pid": int(), "launcher": int(),
            "asked": int() | float(), "until": int() | float(),
        }:  # fmt: skip
            return dict(one)
    return None


def sweep(state: State) -> None:
    """Take away questions that nobody asks any more, which a killed process left."""
    names = set(state.names("questions"))
    alive = {f"{one['id']}.json" for one in waiting(state) if one["until"] >= time.time()}
    for name in [name for name in names if name.endswith(".json") and name not in alive]:
        state.remove("questions", name)
        names.discard(name)
    for name in names:
        if name.endswith(".answer") and f"{name.removesuffix('.answer')}.json" not in names:
            state.remove("questions", name)


def answer(state: State, name: str, *, yes: bool) -> bool:
    """Answer a question that waits; False where none of that name does."""
    if all(one["id"] != name for one in waiting(state)):
        return False
    state.write(b"yes" if yes else b"no", "questions", f"{name}.answer")
    return True


def asker(told: dict[str, Any], life: int) -> str:
    """Ask what a bridge wants asked, as it is told; the answer of its own process."""
    from sandbox.state import State

    question = Question(
        told["sandbox"],
        told["text"],
        told["desktop"],
        told["seconds"],
        told["front"],
        told["launcher"],
    )

    def say(sentence: str) -> None:
        sys.stderr.write(f"lnk sandbox: {sentence}\n")
        sys.stderr.flush()

    return ask(question, State(told["state"]), life, say)
