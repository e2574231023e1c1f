"""What a run is handed beside its spec: what of it can't stand there (R21, R22)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli.handing import told_of
from sandbox.client import Confinement, Proxied, Proxy, Unwalled
from sandbox.errors import SandboxError
from sandbox.handed import RunWith
from sandbox.route import Model, Secret
from sandbox.routes_file import text_of
from sandbox.spec import Spec
from sandbox.state import State

SPEC = """\
[models]
anthropic = { key = "env:MODEL_KEY" }
local = [11434]
[secrets.github]
key = "env:LOGIN"
host = "github.com"
paths = ["/{path}"]
header = { name = "Authorization", value = "Basic {secret}" }
"""


def secret(name: str, url: str = "SERVICE_URL", placeholder: str = "SERVICE_KEY") -> object:
    rule = {"host": "api.example.com", "paths": ["/bot{secret}/{name}"]}
    given = {"name": name, "rule": rule, "secret": "hunter2hunter2"}
    return {"secret": given, "url": url, "placeholder": placeholder}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.setenv("MODEL_KEY", "sk-hunter2")
    monkeypatch.setenv("LOGIN", "hunter2")
    file = tmp_path / "box.toml"
    file.write_text(SPEC)
    return Spec.read(str(file))


def told(spec: Spec, given: object) -> dict[str, object]:
    return told_of(spec, RunWith.read(json.dumps(given).encode()), "/state", 9)[0]


def refusal(spec: Spec, given: object) -> str:
    with pytest.raises(SandboxError) as refused:
        told(spec, given)
    assert refused.value.exit_code == 2
    assert "hunter2" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"])
def test_a_variable_that_run_sets_for_the_spec_is_not_a_callers(spec: Spec, name: str) -> None:
    said = f"{name} is one that run sets itself, for the spec"
    assert refusal(spec, {"env": {name: "x"}}).startswith(f"--with-fd 9: env.{name}: {said}")
    url = refusal(spec, {"secrets": [secret("service", url=name)]})
    assert url.startswith(f"--with-fd 9: secrets[0].url: {said}")
    key = refusal(spec, {"secrets": [secret("service", placeholder=name)]})
    assert key.startswith(f"--with-fd 9: secrets[0].placeholder: {said}")


def test_a_variable_that_holds_a_key_of_the_spec_reaches_no_program(spec: Spec) -> None:
    said = refusal(spec, {"env": {"MODEL_KEY": "x"}})
    assert said.startswith("--with-fd 9: env.MODEL_KEY: MODEL_KEY holds a key of the spec")


def test_a_secret_under_a_name_that_is_taken_is_refused_by_its_key(spec: Spec) -> None:
    said = "/_link/secret/github/ is another's already"
    assert refusal(spec, {"secrets": [secret("github")]}).startswith(
        f"--with-fd 9: secrets[0].secret.name: {said}"
    )
    two = [secret("service"), secret("service", url="OTHER_URL", placeholder="OTHER_KEY")]
    assert refusal(spec, {"secrets": two}).startswith("--with-fd 9: secrets[1].secret.name: ")


def test_another_variable_and_another_secret_stand_beside_the_spec(spec: Spec) -> None:
    made = told(spec, {"env": {"OPENAI_BASE_URL": "x"}, "secrets": [secret("service")]})
    assert made["env"] == {"OPENAI_BASE_URL": "x"}
    variables = made["variables"]
    assert isinstance(variables, dict)
    assert {"SERVICE_URL", "SERVICE_KEY", "ANTHROPIC_BASE_URL", "LNK_SECRET_GITHUB"} <= {*variables}


def test_a_confinement_of_a_name_has_the_placeholders_that_its_kept_commands_have(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LNK_HOME", str(tmp_path / "lnk"))

    def made(name: str) -> Proxy:
        net = Confinement.of(spec, name=name).net
        assert isinstance(net, Proxied)
        return net.proxy

    first = made("box")
    assert first != made("box"), "nothing is kept yet"
    assert first.caller is not None
    kept = text_of(first.caller, first.routes)
    State(str(tmp_path / "lnk")).write(kept, "box.routes.json")
    assert made("box") == first == Unwalled.of(spec, name="box").proxy
    assert not {*placeholders(made("other"))} & {*placeholders(first)}
    for damaged in (b"", b"{", kept.replace(placeholders(first)[0].encode(), b"short-one")):
        State(str(tmp_path / "lnk")).write(damaged, "box.routes.json")
        assert placeholders(made("box"))[0] != placeholders(first)[0]


def placeholders(proxy: Proxy) -> list[str]:
    return [route.placeholder for route in proxy.routes if isinstance(route, Model | Secret)]
