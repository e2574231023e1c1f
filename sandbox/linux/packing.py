"""Write a plan as a kept command carries it; `kept` has its form, and reads it."""

from __future__ import annotations

from sandbox.linux import bubblewrap
from sandbox.linux.kept import END, HEAD, LISTS, VALUES

PART_MAX = 120_000
"""Of a plan's text in one argument: the kernel takes 131,071 bytes (MAX_ARG_STRLEN)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.linux.own import Own
    from sandbox.linux.plan import Plan


def command(plan: Plan, own: Own, argv: list[str]) -> list[str]:
    """Return the command that runs `argv` in a sandbox of this plan."""
    text = packed(plan, own.imports)
    return [own.python, "-I", "-S", own.script, *parts(text), "--", *argv]


def parts(text: str) -> list[str]:
    """Cut a plan's text into arguments.  None of them is `--`: the last ends with a number."""
    return [text[at : at + PART_MAX] for at in range(0, len(text), PART_MAX)]


def packed(plan: Plan, imports: tuple[str, ...]) -> str:
    """Return a plan in its compact form."""
    return written(fields_of(plan, imports))


def written(fields: dict[str, object]) -> str:
    """Return the text of a plan's fields; what has no value is left out."""
    lines = [f"{name} {_escaped(value)}" for name, value in _values(fields)]
    whole = ";".join([HEAD, *lines])
    return f"{whole};{END} {len(whole)}"


def _values(fields: dict[str, object]) -> Iterable[tuple[str, str]]:
    import json  # here, for `run` writes no plan: it has the fields alone

    for name, value in fields.items():
        if name == "args":
            assert isinstance(value, list)
            for one in value:
                yield ("arg", one) if isinstance(one, str) else ("open", one[0])
        elif name in LISTS:
            assert isinstance(value, list)
            yield from ((name, one) for one in value)
        elif name in VALUES:
            if value is not None:
                yield name, json.dumps(value, separators=(",", ":"))
        else:
            yield name, str(int(value) if isinstance(value, bool) else value)


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii").replace(";", "\\x3b")


def fields_of(plan: Plan, imports: tuple[str, ...]) -> dict[str, object]:
    """Return what `Kept` is made of, as JSON has it; `run` makes one without the text."""
    arguments = [
        [str(one)] if isinstance(one, bubblewrap.Held) else one
        for one in bubblewrap.arguments(plan)
    ]
    return {
        "bwrap": plan.bubblewrap,
        "args": arguments,
        "copy": bubblewrap.copies(plan),
        "check": list(plan.checks),
        "bpf": plan.filter.hex(),
        "wire": plan.proxy,
        "port": plan.port,
        "home": plan.home,
        "path": list(imports),
        "state": plan.state,
        "uid": plan.uid,
        "dots": plan.dots and [list(plan.dots.closed), plan.dots.written, list(plan.dots.settings)],
        "scoped": plan.scoped and not _lists(plan),
        "sockets": list(plan.sockets),
        "inside": _inside_of(plan),
    }


def _lists(plan: Plan) -> bool:
    """Tell whether the stage inside lists programs, and so has a Landlock ruleset of its own."""
    return plan.inside is not None and plan.inside.programs is not None


def _inside_of(plan: Plan) -> dict[str, object] | None:
    if plan.inside is None:
        return None
    stage = plan.inside
    settings = {
        "only": None if stage.programs is None else list(stage.programs.files),
        "watch": stage.watch.hex(),
        "numbers": list(stage.numbers),
        "terminal": stage.terminal,
        "scoped": plan.scoped and _lists(plan),
        "reached": [list(one) for one in stage.reached],
    }
    return {
        "python": stage.python,
        "script": stage.script,
        "name": plan.name,
        "log": stage.log,
        "places": stage.places,
        "learns": None if stage.learns is None else list(stage.learns),
        "terminal": stage.terminal,
        "settings": settings,
    }
