"""`sandbox.client`: what other Python programs import, and that it asks the real `wrap`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox import client
from sandbox.client import (
    Closed,
    Confinement,
    LaunchError,
    Proxied,
    Proxy,
    RunWith,
    SandboxError,
    Spec,
    SpecError,
    Unwalled,
    wrap,
)
from sandbox.handed import APART, ProxyBind
from sandbox.place import Place
from sandbox.spec import Network
from sandbox.table import dump_table, keys_of, read_table
from tests.sandbox.malformed import sample_table


@pytest.fixture(autouse=True)
def lnk_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LNK_HOME", str(tmp_path / "lnk"))
    return tmp_path / "lnk"


def box(**rest: Any) -> Confinement:
    return Confinement(
        **{"name": "box", "write": (), "read": (), "commands": None, "net": Closed(), **rest}
    )


def test_a_wrapped_program_is_a_command_and_what_to_add_to_its_environment():
    net = Proxied(proxy=Proxy(upstream="direct", dir="/run/box", hosts=("a.example",)), ports=())
    made = wrap(box(net=net), ["/bin/true", "", "é"])
    assert made.argv[-4:] == ("--", "/bin/true", "", "é")
    assert os.path.isabs(made.argv[0])
    assert made.env["HTTPS_PROXY"].startswith("http://")


def test_a_wrapped_program_runs_confined(tmp_path: Path):
    made = wrap(box(write=(str(tmp_path),)), ["/bin/sh", "-c", "echo in > $0; ls ..", "made"])
    done = subprocess.run(made.argv, env=made.env, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made").read_text() == "in\n"


def test_a_spec_is_wrapped_by_what_it_opens(tmp_path: Path):
    file = tmp_path / "box.toml"
    file.write_text('[files]\nwrite = ["."]\n')
    made = wrap(Confinement.of(Spec.read(str(file))), ["/bin/true"])
    assert str(tmp_path) in "".join(made.argv)


def test_what_wrap_refuses_is_raised_with_its_sentence_and_status():
    with pytest.raises(SandboxError) as refused:
        wrap(box(developer_tools=True), ["/bin/true"])
    assert refused.value.message.startswith("confinement.developer_tools: isn't built yet")
    assert refused.value.exit_code == 2
    with pytest.raises(SandboxError) as refused:
        wrap(box(), [])
    assert refused.value.message.startswith("argv: is an empty list")
    with pytest.raises(SandboxError) as refused:
        wrap(box(write=("/no/such/folder",)), ["/bin/true"])
    assert refused.value.exit_code == 125


def test_unwalled_is_sent_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LNK_HOME", str(tmp_path / "lnk"))
    wrapped = wrap(Unwalled.of(Spec(), name="a", proxy_dir="/d"), ["/bin/true"])
    assert "--pointed-by" in wrapped.argv
    assert wrapped.argv[-2:] == ("--", "/bin/true")
    assert wrapped.env["HTTPS_PROXY"].endswith("@127.0.0.1:0")
    exit_ = Spec(network=Network(mode="proxy", upstream="socks5://u:p@h:1"))
    with pytest.raises(SandboxError, match=r"^unwalled.proxy.upstream: is an exit"):
        wrap(Unwalled.of(exit_, name="a", proxy_dir="/d"), ["/bin/true"])


def test_an_interpreter_that_is_gone_is_a_launch_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(LaunchError):
        wrap(box(), ["/bin/true"])


def test_wrap_runs_nothing_of_the_working_folder_or_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("json", "os", "sandbox", "proto", "encodings", "msgspec", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile')")
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "hostile.so"))
    monkeypatch.syspath_prepend(str(tmp_path / "inner"))
    assert wrap(box(), ["/bin/true"]).argv


def test_of_the_packages_own_folder_only_its_packages_are_imported(tmp_path: Path):
    for name in ("sandbox", "proto"):
        (tmp_path / name).symlink_to(Path(client.__file__).parent.parent / name)
    (tmp_path / "msgspec.py").write_text("raise SystemExit('hostile')")
    command = client._command()
    command[-1] = str(tmp_path)
    command[-2] = command[-2].replace(
        "from sandbox.cli.main import main", "import sandbox\ntry: import msgspec\n"
        "except ImportError: sys.exit(7)",
    )  # fmt: skip
    assert subprocess.run(command, capture_output=True, check=False).returncode == 7


def test_everything_offered_is_there():
    for name in client.__all__:
        assert getattr(client, name) is not None


# What is handed to a run.


def handed(value: object) -> RunWith:
    return RunWith.read(json.dumps(value).encode())


def refusal(value: object) -> str:
    with pytest.raises(SpecError) as refused:
        handed(value)
    return str(refused.value)


def test_what_is_handed_to_a_run_is_read():
    made = handed({"env": {"GREETING": "hé\nllo", "EMPTY": ""}, "write": ["/srv/w/"]})
    assert made.env == {"GREETING": "hé\nllo", "EMPTY": ""}
    assert made.write == ("/srv/w",)
    assert handed({}) == RunWith()
    assert handed({"env": {}, "secrets": [], "serve": [], "write": []}) == RunWith()


@pytest.mark.parametrize(
    "name",
    [
        "HOME", "PATH", "TERM", "LC_ALL", "LC_CTYPE", "TZ", "LNK_HOME", "LNK_TOOL_X", "BROWSER",
        "GIT_SSH_COMMAND", "LD_PRELOAD", "LD_AUDIT", "LD_ANYTHING", "DYLD_INSERT_LIBRARIES",
        "HTTPS_PROXY", "https_proxy", "No_Proxy", "NPM_CONFIG_PROXY", "BASH_ENV", "ENV",
        "NODE_OPTIONS", "NODE_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PERL5OPT",
        "PERL5LIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS", "GCONV_PATH", "LOCPATH", "GLIBC_TUNABLES", "BASH_FUNC_x",
        "OPENSSL_CONF", "HOSTALIASES", "path", "bash_env", "NODE_EXTRA_CA_CERTS", "UV_NATIVE_TLS",
        "UV_SYSTEM_CERTS", "PYTHONUSERBASE", "PYTHONWARNINGS", "CLASSPATH", "LUA_INIT_5_4",
        "PYTHONPYCACHEPREFIX", "BASH_LOADABLES_PATH", "OPENJ9_JAVA_OPTIONS", "MAKEFILES",
        "npm_config_node_options", "DOTNET_ADDITIONAL_DEPS", "ERL_LIBS", "JULIA_LOAD_PATH",
    ],
)  # fmt: skip
def test_a_variable_that_is_runs_own_or_would_be_code_is_refused_by_name(name: str):
    told = refusal({"env": {name: "hunter2"}})
    assert told.startswith(f"env.{name}: ")
    assert "hunter2" not in told


def test_a_key_in_the_place_of_the_list_of_secrets_is_not_shown():
    told = refusal({"secrets": "hunter2"})
    assert told.startswith("secrets: what stands here isn't a list")
    assert "hunter2" not in told


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "A\0", "É", "BASH_FUNC_x%%"])
def test_a_name_that_is_no_variables_is_refused(name: str):
    assert refusal({"env": {name: "x"}}).startswith("env")


@pytest.mark.parametrize("name", ["GREETING", "_X", "PATHS", "GIT_AUTHOR_NAME", "PROXY", "ENVIRON"])
def test_another_variable_is_taken(name: str):
    assert handed({"env": {name: "x"}}).env == {name: "x"}


def test_a_variables_value_is_never_shown():
    for value in ("hunter2\0", 7, ["hunter2"], "hunter2" * 20_000):
        told = refusal({"env": {"TOKEN": value}})
        assert told.startswith("env.TOKEN: ")
        assert "hunter2" not in told


def given(**changed: object) -> dict[str, object]:
    rule = {"host": "api.example.com", "paths": ["/bot{secret}/{name}"]}
    secret = {"name": "service", "rule": rule, "secret": "hunter2hunter2"}
    one: dict[str, object] = {"secret": secret, "url": "SERVICE_URL", "placeholder": "SERVICE_KEY"}
    return one | changed


def headed() -> dict[str, object]:
    header = {"name": "Authorization", "value": "Basic {secret}"}
    rule = {"host": "github.com", "paths": ["/{path}"], "header": header}
    return {"kind": "secret", "name": "github", "rule": rule, "secret": "aGk6aHVudGVyMg=="}


def test_a_secret_of_a_run_has_no_placeholder_of_the_callers():
    made = handed({"secrets": [given()]})
    assert made.secrets[0].secret.secret == "hunter2hunter2"
    secret = {**given()["secret"], "placeholder": "p" * 16}  # type: ignore[dict-item]
    assert refusal({"secrets": [given(secret=secret)]}).startswith("secrets[0].secret.placeholder:")


@pytest.mark.parametrize("name", ["PATH", "LNK_X", "LD_PRELOAD", "HTTPS_PROXY", "NODE_OPTIONS"])
def test_a_secrets_variables_are_held_to_the_same(name: str):
    assert refusal({"secrets": [given(url=name)]}).startswith("secrets[0].url: ")
    assert refusal({"secrets": [given(placeholder=name)]}).startswith("secrets[0].placeholder: ")


def test_two_values_for_one_variable_are_refused():
    same = given(placeholder="SERVICE_URL")
    assert refusal({"secrets": [same]}).startswith("secrets[0].placeholder: SERVICE_URL is given")
    env = {"SERVICE_KEY": "x"}
    assert refusal({"env": env, "secrets": [given()]}).startswith("secrets[0].placeholder: ")


def test_gits_settings_are_for_a_secret_in_a_header_alone():
    assert refusal({"secrets": [given(git=True)]}).startswith("secrets[0].git: is for a secret in")
    assert handed({"secrets": [given(secret=headed(), git=True)]}).secrets[0].git


def test_gits_settings_do_not_stand_beside_the_callers():
    one = given(secret=headed(), git=True)
    for name in ("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_PARAMETERS"):
        assert refusal({"env": {name: "1"}, "secrets": [one]}).startswith(f"env.{name}: ")
        assert handed({"env": {name: "1"}, "secrets": [given()]}).env == {name: "1"}


def test_a_secret_that_would_end_its_path_is_refused_and_not_shown():
    for wrong in ("hunter2/../x", "hunter2?x", "hunter2#", "hunter2%2f", "hunter2 x", "hunter2\\"):
        secret = {**given()["secret"], "secret": wrong}  # type: ignore[dict-item]
        told = refusal({"secrets": [given(secret=secret)]})
        assert told.startswith("secrets[0].secret.secret: ")
        assert "hunter2" not in told


def test_a_run_writes_no_relative_folder():
    assert refusal({"write": ["out"]}).startswith("write[0]: ")


def test_a_binding_is_printed_and_read_back():
    whole = sample_table(ProxyBind, whole=True)
    whole["routes"] = [{"kind": "local", "port": 11434}]
    apart = {"no_internet", *(name for name, _ in APART)}  # what can't stand with the rest
    for name in apart:
        del whole[name]
    made = read_table(ProxyBind, whole, Place())
    assert dump_table(made) == whole
    assert set(whole) | apart == set(keys_of(ProxyBind))
