"""Routes: their tables, and which can be mounted together."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from sandbox.errors import SpecError
from sandbox.place import Place
from sandbox.route import (
    ROUTES,
    Bridge,
    Header,
    Local,
    Model,
    Open,
    Rule,
    Secret,
    Tool,
    check_routes,
    dump_route,
    read_route,
)
from tests.sandbox.malformed import ROOT, sample_table

RULE = Rule(
    host="api.telegram.org",
    paths=("/bot{secret}/{name}", "/file/bot{secret}/{path}"),
    refused=("/bot{secret}/setWebhook",),
)
ONE_OF_EACH = (
    Model(provider="anthropic", secret_key="sk-real", placeholder="placeholder-1"),
    Secret(name="telegram", rule=RULE, secret="123:REAL", placeholder="placeholder-2"),
    Local(port=11434),
    Tool(name="notes", argv=("/usr/bin/notes",), ask="all", allow=("read",)),
    Open(),
    Bridge(name="calendar", argv=("/usr/bin/bridge",), env={"CALENDAR": "{url}"}),
)


def refusal(value: object) -> str:
    with pytest.raises(SpecError) as refused:
        read_route(value, Place(("routes", 0)))
    return str(refused.value)


def test_a_route_of_each_kind_is_printed_and_read_back():
    assert {made.kind for made in ONE_OF_EACH} == set(ROUTES)
    for made in ONE_OF_EACH:
        assert read_route(dump_route(made), Place()) == made


@pytest.mark.parametrize("kind", ROUTES)
def test_a_route_of_its_required_keys_alone_is_read(kind: str):
    value: dict[str, Any] = {"kind": kind, **sample_table(ROUTES[kind])}
    if kind == "bridge":
        value["socket"] = "/run/bridge.sock"
    assert read_route(value, Place()).kind == kind


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "routes[0].kind: is missing"),
        ({"kind": "modle"}, 'routes[0].kind: "modle" isn\'t'),
        ({"kind": ["model"]}, "routes[0].kind: a list isn't"),
        ({"kind": "open", "port": 1}, "routes[0].port: unknown key"),
        ({"kind": "local", "port": "1"}, "routes[0].port: "),
        ("open", "routes[0]: "),
    ],
)
def test_a_route_that_is_none_is_refused_by_its_path(value: object, told: str):
    assert refusal(value).startswith(told)


def test_a_provider_that_is_not_known_gets_no_key():
    value = dump_route(ONE_OF_EACH[0]) | {"provider": "evil.example"}
    assert refusal(value).startswith("routes[0].provider: ")


def test_no_secret_of_a_route_is_ever_shown():
    for made, key_ in ((ONE_OF_EACH[0], "key"), (ONE_OF_EACH[1], "secret")):
        for wrong in ("hunter2\nhunter2", "hunter2\0", "hunter2" * 2000):
            told = refusal(dump_route(made) | {key_: wrong})
            assert told.startswith(f"routes[0].{key_}: ")
            assert "hunter2" not in told


def test_a_rule_that_leaves_the_secret_no_place_is_refused():
    rule = {"host": "a.example", "paths": ["/{path}"]}
    value = dump_route(ONE_OF_EACH[1]) | {"rule": rule}
    assert refusal(value).startswith("routes[0].rule.paths[0]: has no {secret}")
    headed = rule | {"header": {"name": "Authorization", "value": "Bearer {secret}"}}
    made = read_route(dump_route(ONE_OF_EACH[1]) | {"rule": headed}, Place())
    assert isinstance(made, Secret)
    assert made.rule.header == Header(name="Authorization", value="Bearer {secret}")


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (
            "/repos/{owner}",
            'has the step "{owner}", which is no plain letters with {secret}, {name}',
        ),
        ("/{name}{secret}", 'has the step "{name}{secret}"'),
        (
            "/simple/{name}/",
            'has an empty step, or one of dots alone, in "/simple/{name}/"; write it',
        ),
        ("/a/../b", 'has an empty step, or one of dots alone, in "/a/../b"'),
    ],
)
def test_a_shape_that_is_none_is_refused_with_what_is_wrong_in_it(shape: str, told: str):
    header = {"name": "X", "value": "{secret}"}
    rule = {"host": "a.example", "paths": ["/{path}", shape], "header": header}
    value = dump_route(ONE_OF_EACH[1]) | {"rule": rule}
    assert refusal(value).startswith(f"routes[0].rule.paths[1]: {told}")


@pytest.mark.parametrize("value", ["Bearer hunter2", "Bearer {secret}\r\nX: hunter2", ""])
def test_a_header_that_would_be_two_or_hold_no_secret_is_refused(value: str):
    rule = {"host": "a.example", "paths": ["/{path}"], "header": {"name": "X", "value": value}}
    told = refusal(dump_route(ONE_OF_EACH[1]) | {"rule": rule})
    assert told.startswith("routes[0].rule.header.value: ")
    assert "hunter2" not in told


@pytest.mark.parametrize("name", ["model", "secret", "s", "local", "mcp", "open"])
def test_a_bridge_over_one_of_links_own_verbs_is_refused(name: str):
    assert refusal({"kind": "bridge", "name": name, "argv": ["/b"]}).startswith("routes[0].name: ")


def test_a_bridge_is_one_program_or_one_socket():
    assert refusal({"kind": "bridge", "name": "a"}).startswith("routes[0].argv: is missing")
    both = {"kind": "bridge", "name": "a", "argv": ["/b"], "socket": "/s"}
    assert refusal(both).startswith("routes[0].socket: ")


@pytest.mark.parametrize("program", ["t", "./t", "bin/t", "lnk-sandbox"])
@pytest.mark.parametrize("kind", [{"kind": "tool", "ask": "all", "allow": []}, {"kind": "bridge"}])
def test_what_runs_outside_is_named_by_an_absolute_path(kind: dict[str, Any], program: str):
    said = refusal(kind | {"name": "a", "argv": [program, "x"]})
    assert said == "routes[0].argv[0]: isn't an absolute path; write it in full, from /"


def test_links_own_way_to_a_tool_at_a_url_is_looked_for_nowhere():
    far = ["lnk-sandbox", "sandbox", "mcp-remote", "https://a.example/"]
    tool = {"kind": "tool", "name": "a", "argv": far, "ask": "all", "allow": []}
    assert read_route(tool, Place(("routes",))).argv == tuple(far)


def test_one_of_each_can_be_mounted_together():
    check_routes(ONE_OF_EACH)


@pytest.mark.parametrize("made", ONE_OF_EACH, ids=lambda made: made.kind)
def test_two_of_the_same_cannot_be_mounted_together(made: Any):
    with pytest.raises(SpecError, match=r"^routes\[1\].*routes\[0\]'s already"):
        check_routes((made, made))


def test_two_tools_in_one_variable_cannot_be_mounted_together():
    def tool(name: str) -> Tool:
        return Tool(name=name, argv=("/t",), ask="all", allow=())

    with pytest.raises(SpecError, match=r"^routes\[1\]\.name: LNK_TOOL_A_B is routes\[0\]'s"):
        check_routes((tool("a-b"), tool("a_b")))


def test_two_bridges_in_one_variable_cannot_be_mounted_together():
    one = Bridge(name="one", argv=("/b",), env={"URL": "{url}"})
    two = Bridge(name="two", argv=("/b",), env={"URL": "{url}"})
    with pytest.raises(SpecError, match=r"^routes\[1\]\.env: URL is routes\[0\]'s already"):
        check_routes((one, two))


def secret_named(name: str) -> Secret:
    rule = Rule(host="api.example.com", paths=("/bot{secret}",))
    return Secret(name=name, rule=rule, secret="s" * 16, placeholder="p" * 16)


@pytest.mark.parametrize(
    ("first", "second", "claim"),
    [
        (secret_named("a-b"), secret_named("a_b"), "name: LNK_SECRET_A_B"),
        (secret_named("a"), secret_named("a_placeholder"), "name: LNK_SECRET_A_PLACEHOLDER"),
        (
            Model(provider="openai", secret_key="k", placeholder="p" * 16),
            Bridge(name="one", argv=("/b",), env={"OPENAI_BASE_URL": "{url}"}),
            "env: OPENAI_BASE_URL",
        ),
        (Local(port=1), Bridge(name="one", argv=("/b",), env={"LNK_LOCAL_MODEL_1": "x"}), "env: "),
        (Open(), Bridge(name="one", argv=("/b",), env={"BROWSER": "x"}), "env: BROWSER"),
    ],
)
def test_two_kinds_in_one_variable_cannot_be_mounted_together(first: Any, second: Any, claim: str):
    with pytest.raises(SpecError, match=rf"^routes\[1\]\.{claim}.*routes\[0\]'s already"):
        check_routes((first, second))


def imported(*modules: str) -> set[str]:
    """Return every module that these import, in an interpreter of their own."""
    found = subprocess.run(
        [
            sys.executable, "-I", "-S", "-c",
            "import sys; sys.path.append(sys.argv[1])\n"
            "for name in sys.argv[2:]: __import__(name)\n"
            "print(*sys.modules)",
            ROOT, *modules,
        ],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return set(found.stdout.split())


@pytest.mark.parametrize("module", ["sandbox.route", "sandbox.client", "sandbox.confinement"])
def test_other_programs_need_the_standard_library_alone(module: str):
    tops = {name.partition(".")[0] for name in imported(module)}
    assert {top for top in tops if not top.startswith("_")} - sys.stdlib_module_names == {"sandbox"}


def test_the_tables_import_nothing_that_costs_more_than_a_sandbox():
    heavy = {"dataclasses", "enum", "functools", "inspect", "json", "re", "tomllib", "typing"}
    tables = ("sandbox.confinement", "sandbox.route", "sandbox.spec", "sandbox.spec_file")
    assert heavy.isdisjoint(imported(*tables, "sandbox.state"))
