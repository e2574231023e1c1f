"""What a run is handed beside its spec: what of it can't stand there (R21, R22)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli.handing import told_of
from sandbox.errors import SandboxError
from sandbox.handed import RunWith
from sandbox.spec import Spec

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
