"""The import rules (R1, R4), read off the syntax tree of every file: an allow-list.

Imports inside functions count as those on top do.  What is not on a list is not allowed:
whoever needs one more module says so here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PURE = frozenset(
    {
        "__future__",
        "binascii",
        "bisect",
        "collections.abc",
        "enum",
        "functools",
        "hmac",
        "itertools",
        "json",
        "json.encoder",
        "re",
        "struct",
        "typing",
        "unicodedata",
    }
)
"""All of the standard library that `proto` uses: no clock, no chance, no descriptor."""

PROTO_PACKAGES = frozenset({"h11", "wsproto", "dnslib", "msgspec"})

SEAM = frozenset({"proto.commands", "proto.events", "proto.script", "proto.policy.records"})
"""What a shell knows of the core."""

ROOMS: dict[str, frozenset[str]] = {
    # A codec knows no policy, but for the one form of a host, which is read and judged alike.
    "proto.codecs": frozenset({"proto.codecs", "proto.errors", "proto.policy.hosts"}),
    # A policy knows no codec's bytes.
    "proto.policy": frozenset({"proto.policy", "proto.errors", "proto.kinds"}),
    "proto.calls": frozenset({"proto"}),
    "proto.verbs": frozenset({"proto"}),
    "proto": frozenset(
        {"proto.commands", "proto.events", "proto.errors", "proto.kinds", "proto.policy.records"}
    ),
}
"""Which rooms of `proto` each room may use; arrows run down the folder map only."""

FORBIDDEN_NAMES = frozenset(
    {"open", "print", "input", "eval", "exec", "compile", "__import__", "breakpoint", "globals"}
)

SHELLS = ("uvloop", "trio", "sim")
LOOPS = {"asyncio": "uvloop", "uvloop": "uvloop", "trio": "trio", "random": "sim"}
"""Modules that belong to one shell alone."""

SHELL_PACKAGES = frozenset({"uvloop", "trio", "msgspec"})

SANDBOX_OF_PROTO = frozenset(
    {
        "proto.errors",
        "proto.kinds",
        "proto.policy.addresses",
        "proto.policy.cures",
        "proto.policy.endpoints",
        "proto.policy.hosts",
        "proto.policy.exits",
        "proto.policy.records",
    }
)
"""`proto`'s data types and pure checks, open to any file of `sandbox`."""

STARTS_A_SHELL = frozenset(
    {
        "sandbox/cli/proxy.py",
        "sandbox/cli/serving.py",
        "sandbox/cli/blank.py",
        "sandbox/cli/inward.py",
        "sandbox/cli/bridge.py",
        "sandbox/cli/bridge_parts.py",
        "sandbox/cli/callback.py",
        "sandbox/cli/doors.py",
        "sandbox/cli/mcp_remote.py",
        "sandbox/cli/page_bridge.py",
        "sandbox/cli/tool_bridge.py",
        "sandbox/cli/tool_ends.py",
        "sandbox/cli/wire_routes.py",
    }
)
"""Only here does a command start a shell, and so gets to know shells and calls."""

FINDS_BY_NAME = frozenset(
    {
        "sandbox/cli/blank.py",
        "sandbox/cli/kept.py",
        "sandbox/cli/main.py",
        "sandbox/cli/serving.py",
    }
)
"""Only here is a module imported by a name that a table or a flag chooses."""

ALONE = ("sandbox.client", "sandbox.route")
"""What other programs import: these and all they import are the standard library's or ours."""


def files(package: str) -> list[Path]:
    """Return a package's files."""
    return sorted((ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    """Return the name that a file is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str = "") -> set[str]:
    """Return every module that a source imports anywhere, relative ones made absolute.

    `from package import name` may import a module `package.name`: where there is such
    a file it is that.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *filter(None, [base])])
            found |= {_deepest(base, alias.name) for alias in node.names}
    return found


def _deepest(base: str, name: str) -> str:
    inner = ROOT.joinpath(*base.split("."), name)
    return f"{base}.{name}" if inner.with_suffix(".py").exists() or inner.is_dir() else base


def imports_of(path: Path) -> set[str]:
    return imports(path.read_text(encoding="utf-8"), module_of(path))


def names_used(source: str) -> set[str]:
    """Return every bare name that a source reads."""
    tree = ast.parse(source)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def top(module: str) -> str:
    return module.partition(".")[0]


def within(module: str, rooms: frozenset[str]) -> bool:
    """Tell whether a module is one of these or lies in one of them."""
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def is_standard(module: str) -> bool:
    return top(module) in sys.stdlib_module_names


def loaded_by_name(source: str) -> bool:
    return bool(names_used(source) & {"import_module", "__import__"}) or "importlib" in {
        top(each) for each in imports(source)
    }


def proto_breaks(source: str, module: str) -> Iterator[str]:
    """Name each rule that a module of `proto` breaks."""
    room = module.rpartition(".")[0] or module
    for each in sorted(imports(source, module)):
        if top(each) == "proto":
            if not within(each, ROOMS[room]):
                yield f"{module} imports {each}, which lies above it"
        elif each not in PURE and top(each) not in PROTO_PACKAGES:
            yield f"{module} imports {each}"
    for name in sorted(names_used(source) & FORBIDDEN_NAMES):
        yield f"{module} uses {name}"


def shell_breaks(source: str, module: str) -> Iterator[str]:
    """Name each rule that a module of `shells` breaks."""
    mine = module.partition(".")[2].partition("_")[0]
    for each in sorted(imports(source, module)):
        other = each.partition(".")[2].partition("_")[0]
        if top(each) == "shells":
            if other in SHELLS and other != mine:
                yield f"{module} imports another shell's {each}"
        elif top(each) == "proto":
            if each not in SEAM:
                yield f"{module} imports {each}, which is behind the seam"
        elif not is_standard(each) and top(each) not in SHELL_PACKAGES:
            yield f"{module} imports {each}"
        if top(each) in LOOPS and LOOPS[top(each)] != mine:
            yield f"{module} imports {each}, which is {LOOPS[top(each)]}'s"
    if loaded_by_name(source):
        yield f"{module} imports modules by name"


def sandbox_breaks(source: str, path: str) -> Iterator[str]:
    """Name each rule that a file of `sandbox` breaks."""
    module = path.removesuffix(".py").replace("/", ".")
    for each in sorted(imports(source, module)):
        ours = top(each) in ("proto", "shells")
        if ours and path not in STARTS_A_SHELL and each not in SANDBOX_OF_PROTO:
            yield f"{path} imports {each}"
        if not ours and top(each) != "sandbox" and not is_standard(each):
            yield f"{path} imports {each}"
    if path not in FINDS_BY_NAME and loaded_by_name(source):
        yield f"{path} imports modules by name"


def closure(module: str) -> dict[str, set[str]]:
    """Return each of our modules that one reaches, with what it imports."""
    reached: dict[str, set[str]] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = ROOT.joinpath(*name.split("."))
        path = file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"
        if name in reached or not path.exists():
            continue
        reached[name] = imports_of(path)
        waiting += reached[name]
    return reached


# -- the rules hold -------------------------------------------------------------------------


@pytest.mark.parametrize("path", files("proto"), ids=module_of)
def test_the_core_imports_pure_modules_alone_and_down_the_map(path: Path) -> None:
    assert not list(proto_breaks(path.read_text(encoding="utf-8"), module_of(path)))


@pytest.mark.parametrize("path", files("shells"), ids=module_of)
def test_a_shell_knows_the_seam_and_no_other_shell(path: Path) -> None:
    assert not list(shell_breaks(path.read_text(encoding="utf-8"), module_of(path)))


@pytest.mark.parametrize("path", files("sandbox"), ids=module_of)
def test_the_launcher_knows_neither_shells_nor_calls(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    assert not list(sandbox_breaks(path.read_text(encoding="utf-8"), name))


@pytest.mark.parametrize("package", ["proto", "shells", "sandbox"])
def test_nothing_that_ships_imports_what_does_not(package: str) -> None:
    for path in files(package):
        assert not {top(each) for each in imports_of(path)} & {"fuzz", "bench", "tests"}, path


@pytest.mark.parametrize("module", ALONE)
def test_what_other_programs_import_is_the_standard_library_and_ours(module: str) -> None:
    reached = closure(module)
    assert module in reached
    assert {top(name) for name in reached} == {"sandbox"}
    for name, found in reached.items():
        strange = {each for each in found if top(each) != "sandbox" and not is_standard(each)}
        assert not strange, f"{name} imports {strange}"


def test_the_list_of_pure_modules_is_as_short_as_can_be() -> None:
    used = {each for path in files("proto") for each in imports_of(path)}
    assert used >= PURE


def test_no_pure_module_reads_a_clock_or_opens_anything() -> None:
    banned = {"asyncio", "logging", "os", "random", "secrets", "socket", "ssl", "subprocess"}
    assert not PURE & (banned | {"threading", "time", "datetime", "pathlib", "io"})


# -- patterns mean the same on every Python ------------------------------------------------


def test_no_group_of_a_pattern_is_possessive() -> None:
    """Before Python 3.11.5 its last, failing turn keeps what it had taken."""
    for path in (each for room in ("proto", "sandbox") for each in (ROOT / room).rglob("*.py")):
        assert not re.search(r"\)[*?+]\+", path.read_text()), path.name


# -- starts are fast (R4) -------------------------------------------------------------------

LOOPS_AND_TLS = frozenset(
    {"asyncio", "uvloop", "trio", "ssl", "_ssl", "cryptography", "h11", "wsproto", "dnslib"}
)
SLOW = LOOPS_AND_TLS | {"msgspec", "argparse", "logging", "inspect", "ast", "pathlib", "ipaddress"}
NO_LIBRARY = SLOW | {"dataclasses", "typing", "subprocess", "hashlib", "_hashlib", "threading"}
"""Each costs a millisecond or more, beside a bubblewrap that takes eight."""

STARTS: dict[str, tuple[str, frozenset[str]]] = {
    "the entry": ("import sandbox.cli.main", NO_LIBRARY),
    "--version": ("from sandbox.cli.main import run; run(['--version'])", NO_LIBRARY),
    "--help": ("from sandbox.cli.main import run; run(['--help'])", NO_LIBRARY),
    "the client": ("import sandbox.client", NO_LIBRARY),
    "the routes": ("import sandbox.route", NO_LIBRARY | {"re", "json"}),
    "wrap": ("import sandbox.cli.wrap", NO_LIBRARY),
    "a kept command": ("import sandbox.cli.kept", NO_LIBRARY | {"re", "json", "enum"}),
    "the launcher": (
        "import sandbox.linux.launcher, sandbox.linux.running, sandbox.linux.etc_closed",
        NO_LIBRARY | {"re", "json", "enum"},
    ),
    "a plan's fields": ("import sandbox.linux.packing", NO_LIBRARY | {"re", "json", "enum"}),
    "the stage inside": (
        "import sandbox.linux.inside, sandbox.linux.exec_watch, sandbox.linux.landlock",
        NO_LIBRARY | {"re", "json", "enum", "os", "socket"},
    ),
    "dot files": ("import sandbox.linux.dot_files", NO_LIBRARY | {"re", "json", "enum", "os"}),
    "run": ("import sandbox.cli.run", NO_LIBRARY),
    "ready": ("import sandbox.cli.ready", NO_LIBRARY),
    "paused": ("from sandbox.cli.main import run; run(['paused'])", NO_LIBRARY),
    "stop": ("import sandbox.cli.stop", NO_LIBRARY),
    "the proxy's flags": ("import sandbox.cli.proxy", SLOW),
    "the uvloop shell": (
        "import shells.uvloop_shell",
        frozenset({"trio", "cryptography", "h11", "dataclasses"}),
    ),
    "the trio shell": ("import shells.trio_shell", frozenset({"uvloop", "asyncio", "h11"})),
    "the core": (
        "import proto.calls.serve",
        LOOPS_AND_TLS | {"socket", "logging", "random", "dataclasses"},
    ),
}


def loaded_after(code: str, stdin: str = "") -> set[str]:
    """Return the modules that a fresh interpreter has once it has run some code."""
    start = (
        "import sys; sys.path.append({root!r}); before = set(sys.modules)\n"
        "sys.path.extend({site!r})\n"
        "import atexit\n"
        "atexit.register(lambda: print('\\n@', *sorted(set(sys.modules) - before)))\n"
    )
    site = [each for each in sys.path if each.endswith("site-packages")]
    script = start.format(root=str(ROOT), site=site) + code
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "\n@" in done.stdout, done.stderr
    return set(done.stdout.rpartition("\n@")[2].split())


@pytest.mark.parametrize(("code", "banned"), STARTS.values(), ids=STARTS)
def test_nothing_is_imported_that_a_start_does_not_need(code: str, banned: frozenset[str]) -> None:
    loaded = {top(name) for name in loaded_after(code)}
    assert not loaded & banned


@pytest.mark.parametrize("request_", ["", "{}", '{"confinement": {}, "argv": ["/bin/true"]}'])
def test_wrap_starts_no_loop_and_no_tls_whatever_it_is_asked(request_: str) -> None:
    loaded = loaded_after("from sandbox.cli.main import run; run(['wrap'])", request_)
    assert "sandbox.cli.wrap" in loaded
    assert not {top(name) for name in loaded} & (LOOPS_AND_TLS | {"shells", "msgspec"})


# -- the checks can fail --------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "import socket",
        "import os.path",
        "import time as t",
        "from asyncio import sleep",
        "def f():\n    import random",
        "class A:\n    def f(self):\n        from os import environ",
        "if False:\n    import logging",
        "from collections import deque",
        "import requests",
        "import shells.sides",
        "from sandbox import spec",
        "open('x')",
        "x = print",
        "__import__('os')",
        "from importlib import import_module",
    ],
)
def test_an_impure_core_is_noticed(source: str) -> None:
    assert list(proto_breaks(source, "proto.calls.x"))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("proto.codecs.x", "from proto.policy.addresses import reachable"),
        ("proto.codecs.x", "import proto.calls.serve"),
        ("proto.codecs.x", "from ..calls import serve"),
        ("proto.policy.x", "from proto.codecs import http1"),
        ("proto.policy.x", "import proto.script"),
        ("proto.events", "from proto.calls.limits import Limits"),
    ],
)
def test_an_arrow_up_the_map_is_noticed(module: str, source: str) -> None:
    assert list(proto_breaks(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("shells.uvloop_call", "from shells.trio_shell import serve"),
        ("shells.trio_call", "from shells import uvloop_shell"),
        ("shells.trio_call", "from . import uvloop_shell"),
        ("shells.sim_shell", "import shells.trio_jobs"),
        ("shells.sides", "from shells.sim_world import World"),
        ("shells.sides", "def f():\n    import trio"),
        ("shells.trio_call", "import asyncio"),
        ("shells.uvloop_call", "import trio"),
        ("shells.splice", "from proto.policy.hosts import Policy"),
        ("shells.splice", "from proto.calls.serve import serve_connection"),
        ("shells.splice", "import sandbox.spec"),
        ("shells.splice", "import requests"),
        ("shells.splice", "from importlib import import_module"),
    ],
)
def test_a_shell_that_knows_too_much_is_noticed(module: str, source: str) -> None:
    assert list(shell_breaks(source, module))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sandbox/spec.py", "from shells.env import Env"),
        ("sandbox/spec.py", "def f():\n    import proto.calls.serve"),
        ("sandbox/spec.py", "from proto.script import Call"),
        ("sandbox/spec.py", "import msgspec"),
        ("sandbox/spec.py", "from importlib import import_module"),
        ("sandbox/cli/run.py", "import shells.uvloop_shell"),
        ("sandbox/cli/proxy.py", "import requests"),
    ],
)
def test_a_launcher_that_knows_too_much_is_noticed(path: str, source: str) -> None:
    assert list(sandbox_breaks(source, path))


def test_a_start_that_imports_too_much_is_noticed() -> None:
    assert "asyncio" in loaded_after("import asyncio")


def test_a_name_from_a_package_is_the_module_it_is() -> None:
    assert imports("from proto.policy import hosts, nothing") == {
        "proto.policy.hosts",
        "proto.policy",
    }
