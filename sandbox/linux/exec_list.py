"""The list of programs as a part of the plan: which files may run, and what that can't hold (R63).

Pure: what each program is on this machine is looked up before (`commands`).  A file that is
listed may be run whatever it holds by then, so none may lie where the sandbox writes.
"""

from __future__ import annotations

from sandbox.errors import LaunchError, Unsupported
from sandbox.linux import environment, seccomp
from sandbox.linux.commands import Program
from sandbox.linux.facts import Facts
from sandbox.linux.values import Value, replaced
from sandbox.linux.walk import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Place = Callable[[str], tuple[str, str] | None]
    """Returns how a path stands inside, `read`, `written` or `own`, and by which folder's
    being shown; None where it isn't there."""

READ, WRITTEN, OWN = "read", "written", "own"

LOADER_GAP = "a listed program may have the loader run any file that it can read (ld.so FILE)"
PRELOAD_GAP = (
    "a listed program may have the loader put any file that it can read into another (LD_PRELOAD)"
)
LINK_GAP = (
    "a listed file that has a second name (a hard link) where the sandbox writes is written by it"
)
PASSED_GAP = "a memory file that a process outside passes in, by a socket in a folder, can be run"
REFER_GAP = "files can't be renamed or linked from one folder into another (Landlock before ABI 2)"
MEMORY_GAP = "a memory file can be run by /proc/self/fd (Linux before 6.3)"


class ExecList(Value):
    """Which files may run, all of them without links."""

    listed: tuple[str, ...]
    needed: tuple[tuple[str, str], ...]
    """Loaders and interpreters of those listed, each with why."""
    helpers: tuple[tuple[str, str], ...]
    """Link's own programs inside that count as listed, each with why."""
    gaps: tuple[str, ...]
    """What this list doesn't hold, on this machine's kernel or on any."""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that may run."""
        return tuple(dict.fromkeys([
            *self.listed, *(path for path, _ in (*self.needed, *self.helpers)),
        ]))  # fmt: skip


class Inside(Value):
    """The stage inside: what the sandbox's first process does (`sandbox.linux.inside`)."""

    python: str
    script: str
    programs: ExecList | None
    """None where any may run."""
    watch: bytes
    """The notifying filter; empty where nothing is watched."""
    numbers: tuple[int, ...]
    """Those of the calls that it watches, and of seccomp(2) (`exec_watch.Numbers`)."""
    terminal: bool
    """Whether the program keeps its terminal."""
    places: dict[str, bool]
    """Where the sandbox writes (True), and what in it is read only: no program that it could
    replace is ever listed."""
    log: str | None
    """The folder of the log in which refused programs are named."""
    reached: tuple[tuple[str, int], ...] = ()
    """The folders of proxies apart, each with its port inside (`sandbox.linux.relay`)."""
    learns: tuple[str, ...] | None = None
    """Where any program may run, and each that does is told in the end: those that are listed
    already.  None elsewhere."""


def exec_list(facts: Facts, place: Place, *, ssh: bool) -> ExecList:
    """Return the list of a confinement's programs (`facts.programs`).

    ssh: whether Link's ProxyCommand is to run where ssh is listed.  Raises LaunchError for a
    program that is missing, can't be run, isn't shown, or lies where the sandbox writes;
    Unsupported where the kernel has no Landlock.
    """
    if facts.landlock == 0:
        raise Unsupported(
            "Landlock",
            "[commands] only needs Landlock, which this kernel doesn't have or has switched off "
            "(it came with Linux 5.13): leave the list out, or start with lsm=landlock,… .",
        )
    needed: dict[str, str] = {}
    for program in facts.programs:
        _judge(program, place, needed)
    helpers = {}
    if ssh and has_ssh(facts.programs) and facts.interpreter is not None:
        _judge(facts.interpreter, place, needed)
        helpers[facts.interpreter.real] = "takes ssh out by the proxy; as Python it runs any code"
    return ExecList(
        listed=tuple(dict.fromkeys(program.real for program in facts.programs)),
        needed=tuple(needed.items()),
        helpers=tuple(helpers.items()),
        gaps=gaps(facts),
    )


def has_ssh(programs: tuple[Program, ...]) -> bool:
    """Tell whether ssh is listed: only then is its ProxyCommand of any use."""
    return any(program.real.rpartition("/")[2] == "ssh" for program in programs)


def opening_pages(programs: ExecList, facts: Facts) -> ExecList:
    """Return a list in which what asks for pages to be opened counts as listed."""
    opener = facts.opener
    assert opener is not None, "it was looked up, for programs are listed"
    why = "asks to open pages; as Python it runs any code"
    is_script = facts.own.browser == environment.OPEN_PAGE
    files = [environment.OPEN_PAGE if is_script else opener.real]
    files += [need.path for need in opener.needs]
    return replaced(programs, helpers=(*programs.helpers, *((path, why) for path in files)))


def gaps(facts: Facts) -> tuple[str, ...]:
    """Return what a list of programs doesn't hold, in words."""
    return (
        LOADER_GAP,
        PRELOAD_GAP,
        LINK_GAP,
        PASSED_GAP,
        *(() if facts.landlock >= 2 else (REFER_GAP,)),
        *(() if facts.seals_memory else (MEMORY_GAP,)),
    )


def watch_filter(facts: Facts) -> bytes:
    """Return the filter that hands execs to the watch, encoded."""
    return seccomp.encode(seccomp.watching(facts.arch, seals=facts.seals_memory))


def _judge(program: Program, place: Place, needed: dict[str, str]) -> None:
    """Refuse a program that can't be listed; add what it needs."""
    if program.lack:
        raise _refusal(program, program.lack)
    _judge_place(program, program.real, "", place)
    _judge_needs(program, program, place, needed)
    for way in program.ways:
        found = place(way)
        if found is not None and found[0] == WRITTEN:
            cure = f"; name {program.real} instead" if inside(program.named, way) else ""
            raise _refusal(
                program,
                f"is reached by way of {way}, which the sandbox writes: it could lead to any other "
                f"program the next time{cure}",
            )


def _judge_needs(listed: Program, program: Program, place: Place, needed: dict[str, str]) -> None:
    """Judge what a program needs that is listed, or that a listed one has `env` find."""
    for need in program.needs:
        _judge_place(listed, need.path, f"needs {need.path}, which ", place)
        needed.setdefault(need.path, need.why)
    if program.found:
        shown = [each for each in program.found if is_shown(place(each.real))]
        found = [*shown, *program.found][0]
        if found.lack:
            raise _refusal(listed, f"is a script for {found.named}, which {found.lack}")
        _judge_place(listed, found.real, f"needs {found.named}, which ", place)
        needed.setdefault(found.real, f"the interpreter of {program.named}")
        _judge_needs(listed, found, place, needed)


def is_shown(stands: tuple[str, str] | None) -> bool:
    """Tell whether a file outside is one inside too, by how it stands there."""
    return stands is not None and stands[0] != OWN


def _judge_place(program: Program, path: str, needs: str, place: Place) -> None:
    """Refuse a file that isn't shown, or that the sandbox could write; needs: by whom it is."""
    via = f" (it leads to {path})" if not needs and path != program.named else ""
    found = place(path)
    if found is None or not is_shown(found):
        raise _refusal(program, f"{needs}isn't shown in the sandbox{via}: name it in read too")
    if found[0] == WRITTEN:
        raise _refusal(
            program,
            f"{needs}lies in {found[1]}, which the sandbox writes{via}: it could put any program "
            "in its place",
        )


def _refusal(program: Program, why: str) -> LaunchError:
    said = f"[commands] only names {program.named}, which {why}."
    return LaunchError("commands", 0, said, about=("only", program.named))
