"""Official clients of hosted models in a sandbox that holds placeholders alone (R50)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.marks import start_of
from tests.e2e import model_clients
from tests.e2e.model_clients import Providers, Sdks
from tests.e2e.model_doubles import PIECES, TEXT, USAGE, Double
from tests.net.authority import Authority
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
HOSTS = {
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
    "google": "generativelanguage.googleapis.com",
    "mistral": "api.mistral.ai",
}


@pytest.fixture(scope="module")
def sdks(open_folder: str) -> Sdks:
    folder = os.path.join(open_folder, "sdks")
    os.mkdir(folder, 0o755)
    return model_clients.install(folder)


@pytest.fixture(scope="module")
def providers(authority: Authority) -> Iterator[Providers]:
    with model_clients.providers(authority) as made:
        yield made


class Run:
    """What a program of a client said, and what its provider's double got."""

    def __init__(self, done: subprocess.CompletedProcess[str], providers: Providers) -> None:
        assert done.returncode == 0, done.stderr
        assert not [key for key in providers.keys.values() if key in done.stdout + done.stderr]
        self.said: dict[str, Any] = json.loads(done.stdout)
        self.errors = done.stderr
        self._providers = providers

    def of(self, name: str) -> Double:
        """Return a provider's double, once it is held to what every call must be."""
        double = self._providers.doubles[HOSTS[name]]
        key = self._providers.keys[name].encode()
        assert double.calls
        for head, _ in double.calls:
            assert head.count(key) == 1
            assert head.count(b"sk-real-") == 1
            assert b"Accept-Encoding: identity" in head
            assert f"Host: {HOSTS[name]}\r\n".encode() in head
        return double


@pytest.fixture
def run(
    ordinary: lnk.Account,
    ordinary_folder: str,
    installed: lnk.Installed,
    providers: Providers,
    sdks: Sdks,
) -> Any:
    for double in providers.doubles.values():
        double.calls.clear()
        double.asked_for_models.clear()

    def run(name: str, *words: str, looks: Callable[[], None] | None = None, **spec: str) -> Run:
        providers.doubles[HOSTS["anthropic"]].on_models = looks
        argv = [*sdks.program(name), *words]
        done = providers.run(ordinary, installed, ordinary_folder, sdks, *argv, **spec)
        return Run(done, providers)

    return run


def models_asked(double: Double, path: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    return [call for call in double.calls if path in call[0].split(b"\r\n")[0]]


def test_anthropics_client(run: Any) -> None:
    made = run("anthropic_calls.py")
    said = made.said
    assert said["plain"] == said["answered"] == TEXT
    assert said["usage"] == [USAGE["input_tokens"], USAGE["output_tokens"]]
    assert said["stream"] == said["waited"] == list(PIECES)
    assert said["models"] == ["plain"]
    assert said["tool"] == ["tool_use", "get_weather", {"city": "x"}]
    assert said["counted"] == 3
    assert said["limited"][:2] == [429, "RateLimitError"]
    assert "slow down" in said["limited"][2]
    assert said["overloaded"][0] == 529
    assert "overloaded" in said["overloaded"][2]
    assert said["refused"][:2] == [401, "AuthenticationError"]
    assert said["echo"][0] == 401
    assert "anthropic-version" in said["echo"][2]  # the request, but for its key
    assert said["url"][0] == 403
    assert "would fetch it from its URL" in said["url"][1]
    assert said["cut"][0]
    double = made.of("anthropic")
    (with_tools,) = [body for _, body in double.calls if body.get("model") == "tools"]
    assert [tool["name"] for tool in with_tools["tools"]] == ["get_weather"]
    assert all("image" not in json.dumps(body) for _, body in double.calls)
    without = [head for head, _ in double.calls if b"anthropic-version:" not in head.lower()]
    assert not without
    assert "would fetch it from its URL" in made.errors  # the person is told too


def test_openais_client(run: Any) -> None:
    made = run("openai_calls.py")
    said = made.said
    assert said["plain"] == said["response"] == TEXT
    assert said["stream"] == [*PIECES, ""]
    assert said["usage"] == 15
    assert said["tool"] == ["get_weather", '{"city": "x"}']
    assert said["events"][0] == "response.created"
    assert said["events"][-1] == "response.completed"
    assert said["embeddings"] == [2, 2]
    assert said["models"] == ["plain"]
    assert said["limited"][0] == 429
    assert said["overloaded"][0] == 529
    assert said["gpt-4o-search-preview"][0] == 403
    assert "searches the web" in said["gpt-4o-search-preview"][1]
    assert said["echo"][0] == 401
    assert said["cut"][0]
    double = made.of("openai")
    (asked, _) = [body for _, body in models_asked(double, b"/v1/responses")]
    assert [tool["type"] for tool in asked["tools"]] == ["function"]
    assert all(body.get("model") != "gpt-4o-search-preview" for _, body in double.calls)


def test_what_the_answers_took_is_published_while_the_wire_lives(
    run: Any, ordinary: lnk.Account
) -> None:
    """The provider reads the counters when it is asked for its models: the program runs still."""
    folder = Path(ordinary.environ["LNK_HOME"], "sandbox", "traffic")
    seen: list[dict[str, Any]] = []

    def living() -> list[dict[str, Any]]:
        """Read the files of bridges that run: one that was killed leaves its own to be swept."""
        told = [json.loads(file.read_text()) for file in folder.glob("*.tokens.json")]
        return [each for each in told if start_of(each["pid"]) == each["start"]]

    def look() -> None:
        seen.extend(living())

    made = run("usage_calls.py", looks=look)
    assert made.said == {"asked": 5}
    (told,) = seen
    counts = {name: told[name] for name in ("requests", "unmetered", "input", "output", "cached")}
    # Two answers of Anthropic's, and three of OpenAI's.
    assert counts == {"requests": 5, "unmetered": 0, "input": 2 * 60 + 3 * 11, "output": 22,
                      "cached": 2 * 30 + 3 * 8}  # fmt: skip
    assert told["written"] == 2 * 20
    with contextlib.suppress(ProcessLookupError), open(os.pidfd_open(told["pid"])) as ended:
        assert select.select([ended], [], [], 60)[0], "the bridge outlives its wire"
    assert living() == []


def test_googles_client(run: Any) -> None:
    made = run("google_calls.py")
    said = made.said
    assert said["plain"] == TEXT
    assert said["usage"] == 15
    assert said["stream"] == list(PIECES)
    assert said["tool"] == ["get_weather", {"city": "x"}]
    assert said["counted"] == 3
    assert said["embeddings"] == [2, 2]
    assert said["limited"][0] == 429
    assert said["overloaded"][0] == 529
    assert said["echo"][0] == 401
    assert said["url"][0] == 403
    assert said["cut"][0]
    (called,) = [body for _, body in models_asked(made.of("google"), b"/models/tools:")]
    assert [list(tool) for tool in called["tools"]] == [["functionDeclarations"]]


def test_mistrals_client(run: Any) -> None:
    made = run("mistral_calls.py")
    said = made.said
    assert said["plain"] == TEXT
    assert said["stream"] == [*PIECES, ""]
    assert said["tool"] == ["get_weather", '{"city": "x"}']
    assert said["embeddings"] == [2, 2]
    assert said["limited"][0] == 429
    assert said["overloaded"][0] == 529
    assert said["echo"][0] == 401
    assert said["cut"][0]
    made.of("mistral")


def test_both_of_nodes_clients(run: Any) -> None:
    made = run("calls.mjs")
    said = made.said
    assert said["a.plain"] == said["o.plain"] == said["o.response"] == TEXT
    assert said["a.stream"] == said["o.stream"] == list(PIECES)
    assert said["a.tool"] == said["o.tool"] == "get_weather"
    for name in "ao":
        assert said[f"{name}.limited"][0] == 429
        assert said[f"{name}.overloaded"][0] == 529
        assert said[f"{name}.echo"][0] == 401
        assert said[f"{name}.cut"][0] != PIECES[0]  # an error, not three pieces
    (asked,) = [body for _, body in made.of("anthropic").calls if body.get("model") == "tools"]
    assert [tool["name"] for tool in asked["tools"]] == ["get_weather"]
    made.of("openai")


def test_the_real_key_is_nowhere_inside_whatever_the_provider_says(
    run: Any, providers: Providers
) -> None:
    key = providers.keys["anthropic"]
    digest = hashlib.sha256(key.encode()).hexdigest()
    made = run("raw_calls.py", digest, str(len(key)), "sk-real-")
    assert made.said["looked"]
    assert made.said["found"] == []
    raw = made.said["raw"]
    hidden = "*" * len(key)
    assert raw["echo"][0] == 401
    assert hidden in raw["echo"][2]
    assert any(hidden in value for _, value in raw["echo"][1])
    assert raw["slips"][2] == json.dumps({"key": hidden})
    assert raw["redirect"][0] == raw["coded"][0] == 502
    for status, fields, _ in (each for each in raw.values() if isinstance(each, list)):
        assert not {name.lower() for name, _ in fields} & {"set-cookie", "location"}, status
    # Byte for byte: what the double says, as it says it.
    double = made.of("anthropic")
    said = b"".join(double._speak("/v1/messages", "plain", True))
    assert raw["stream"][2].encode("latin-1") == said
    assert raw["cut"][0] == 200
    assert raw["cut.cut"]
    assert raw["cut stream.cut"]
    events = list(double._speak("/v1/messages", "cut", True))
    assert raw["cut stream"][2].encode("latin-1") == b"".join(events[:2])


@pytest.mark.parametrize(
    ("spec", "searches", "tools"),
    [
        ({}, 403, None),
        ({"hosts": "[]"}, 403, None),
        ({"hosts": '["*"]'}, 200, None),
        ({"server_tools": "true"}, 200, [{"type": "web_search"}]),
    ],
)
def test_what_a_spec_says_of_hosts_and_tools_decides(
    run: Any, spec: dict[str, str], searches: int, tools: object
) -> None:
    made = run("policy_calls.py", **spec)
    assert made.said == {"searches": searches, "tools": 200}
    (asked,) = [body for _, body in models_asked(made.of("openai"), b"/v1/responses")]
    assert asked.get("tools") == tools


def test_a_kept_command_reaches_its_models_with_the_callers_placeholders(
    ordinary: lnk.Account,
    ordinary_folder: str,
    installed: lnk.Installed,
    providers: Providers,
    sdks: Sdks,
) -> None:
    held = {"anthropic": "held-by-the-program-a", "openai": "held-by-the-program-o"}
    routes = [
        {"kind": "model", "provider": name, "key": providers.keys[name], "placeholder": held[name]}
        for name in held
    ]
    proxy = {"upstream": "direct", "dir": f"{ordinary_folder}/wire", "hosts": [],
             "routes": routes, "caller": "c" * 32}  # fmt: skip
    argv = sdks.program("usage_calls.py")
    net = {"proxied": {"proxy": proxy, "ports": []}}
    made = installed.wrap(ordinary, argv, net=net, read=[sdks.folder])
    assert "sk-real-" not in json.dumps(made)
    assert made["env"]["OPENAI_API_KEY"] == held["openai"]
    providers.doubles[HOSTS["anthropic"]].on_models = None
    done = providers.start(ordinary, made["argv"], made["env"], ordinary_folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"asked": 5}
