"""`lnk sandbox wrap` and the requests it refuses: one line, exit 2, nothing else (R10)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox import routes_file
from sandbox.cli import main as cli
from sandbox.confinement import WrapRequest
from sandbox.kinds import ARGUMENT_MAX_BYTES
from sandbox.state import State
from sandbox.table import keys_of
from tests.sandbox.malformed import ROOT, cases, reached

CASES = list(cases())
SAMPLED = CASES[:: len(CASES) // 24]

PLAIN: dict[str, Any] = {
    "name": "box",
    "write": [],
    "read": [],
    "commands": "any",
    "net": "closed",
}


class Input(io.StringIO):
    """A standard input of bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.buffer = io.BytesIO(data)  # type: ignore[misc]


@pytest.fixture
def lnk_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LNK_HOME", str(tmp_path / "lnk"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "lnk"


def run(
    data: bytes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *flags: str,
) -> tuple[int, str, str]:
    """Run the command in this process; return its status, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["lnk", "sandbox", "wrap", *flags])
    monkeypatch.setattr(sys, "stdin", Input(data))
    status = cli.main()
    told = capsys.readouterr()
    return status, told.out, told.err


def started(data: bytes, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a program."""
    return subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", "wrap", *flags],
        input=data,
        capture_output=True,
        cwd=ROOT,
        timeout=110,
        check=False,
        env=os.environ,
    )  # type: ignore[return-value]


def held(path: str, told: str) -> bool:
    """Tell whether a refusal is one short line of ASCII that begins with a key's path."""
    line = told.removesuffix("\n")
    return (
        line.startswith(f"lnk sandbox: {path}: ")
        and line.isascii()
        and line.isprintable()
        and len(line) < 400
    )


def test_the_malformed_requests_are_many_and_reach_every_table():
    assert len(CASES) > 1000
    assert len({text for _, text, _ in CASES}) > 900
    reached_tables = {made.__name__ for made, _, _ in reached()}
    assert reached_tables >= {
        "WrapRequest", "Confinement", "Loopback", "Proxied", "Reaching", "Reached", "Host",
        "Proxy", "Unwalled", "Model", "Secret", "Local", "Tool", "Open", "Bridge", "Rule", "Header",
    }  # fmt: skip


def test_each_malformed_request_is_refused_by_its_keys_path_and_nothing_is_written(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    wrong = []
    for said, text, path in CASES:
        status, out, err = run(text.encode(), capsys, monkeypatch)
        if status != 2 or out or not held(path, err):
            wrong.append((said, path, status, out, err[:200]))
    assert wrong == []
    assert not lnk_home.exists()
    assert list(lnk_home.parent.iterdir()) == []


@pytest.mark.parametrize(("said", "text", "path"), SAMPLED, ids=[said for said, _, _ in SAMPLED])
def test_the_program_itself_refuses_a_malformed_request(
    lnk_home: Path, said: str, text: str, path: str
):
    done = started(text.encode())
    assert done.returncode == 2
    assert done.stdout == b""
    assert held(path, done.stderr.decode())
    assert not lnk_home.exists()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"", "request"),
        (b"null", "request"),
        (b'"\\ud800"', "request"),
        (b"[]", "request"),
        (b"\xff\xfe", "request"),
        (b"{" * 100_000, "request"),
        (b" " * (4 << 20) + b"{}", "request"),
        (b'{"policy": {}, "argv": ["true"]}', "policy"),
        (b'{"confinement": {}, "policy": {}, "argv": ["true"]}', "policy"),
        (b'{"confinement": {"name": NaN}}', "confinement.name"),
        (b'{"argv": ["true"], "argv": ["false"]}', "argv"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_no_request_is_refused(
    data: bytes,
    path: str,
    lnk_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    status, out, err = run(data, capsys, monkeypatch)
    assert (status, out) == (2, "")
    assert held(path, err)
    assert not lnk_home.exists()


@pytest.mark.parametrize(
    ("lists", "path"),
    [
        ({"hosts": ["example.com", "127.1"]}, "hosts[1]"),
        ({"hosts": ["exam|ple.com"]}, "hosts[0]"),
        ({"hosts": ["example.com:443"]}, "hosts[0]"),
        ({"hosts": ["https://example.com"]}, "hosts[0]"),
        ({"hosts": ["a." * 150]}, "hosts[0]"),
        ({"hosts": ["*.*.example.com"]}, "hosts[0]"),
        ({"hosts": [], "lan": ["printer"]}, "lan[0]"),
        ({"hosts": [], "lan": ["printer:631", "*.local:80"]}, "lan[1]"),
        ({"hosts": [], "lan": ["printer:65536"]}, "lan[0]"),
    ],
)
def test_a_host_the_proxy_could_not_read_is_refused_by_its_path(
    lists: dict[str, Any],
    path: str,
    lnk_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    proxy = {"upstream": "direct", "dir": "/run/box", **lists}
    net = {"proxied": {"proxy": proxy, "ports": []}}
    text = json.dumps({"confinement": {**PLAIN, "net": net}, "argv": ["true"]})
    status, out, err = run(text.encode(), capsys, monkeypatch)
    assert (status, out) == (2, "")
    assert held(f"confinement.net.proxied.proxy.{path}", err)
    assert not lnk_home.exists()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--json"], "--json says how --explain prints"),
        (["--explian"], "'--explian' is not one of its flags"),
        (["now"], "'now' is not one of its flags"),
    ],
)
def test_a_flag_that_is_none_is_refused(
    flags: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    status, out, err = run(b"{}", capsys, monkeypatch, *flags)
    assert (status, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_help_says_what_is_read_and_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    status, out, err = run(b"", capsys, monkeypatch, "--help")
    assert (status, err) == (0, "")
    assert '{"argv", "env"}' in out
    assert "--explain" in out


# What is taken.


def wrapped(
    confinement: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *flags: str,
    argv: list[str] | None = None,
) -> str:
    text = json.dumps({"confinement": confinement, "argv": argv or ["/bin/true", "", "-x"]})
    status, out, err = run(text.encode(), capsys, monkeypatch, *flags)
    assert (status, err) == (0, "")
    return out


@pytest.mark.parametrize("late", [False, True])
def test_wraps_that_make_a_names_secret_at_once_print_the_same(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, late: bool
):
    """Neither finds one as it begins.  late: nor just before it writes its own."""
    proxy = {"upstream": "direct", "dir": "/srv/wire", "hosts": [], "caller": "c" * 32,
             "routes": [{"kind": "local", "port": 11434}]}  # fmt: skip
    confinement = {**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}}
    first = json.loads(wrapped(confinement, capsys, monkeypatch))["env"]
    file = lnk_home / "sandbox" / "box.url-secret"
    kept, looks = routes_file.kept_secret, iter([None, None] if late else [None])

    def looked(state: State, name: str) -> str | None:
        return next(looks, kept(state, name))

    monkeypatch.setattr(routes_file, "kept_secret", looked)
    if late:
        secret, there = file.read_text(), os.path.lexists
        monkeypatch.setattr("os.path.lexists", lambda path: path != str(file) and there(path))
    assert json.loads(wrapped(confinement, capsys, monkeypatch))["env"] == first
    if late:
        assert file.read_text() == secret


def test_a_request_is_answered_by_one_object_of_argv_and_env(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    out = wrapped(PLAIN, capsys, monkeypatch)
    made = json.loads(out)
    assert out.count("\n") == 1
    assert set(made) == {"argv", "env"}
    assert made["argv"][-4:] == ["--", "/bin/true", "", "-x"]
    assert os.path.isabs(made["argv"][0])
    assert all(isinstance(value, str) for value in made["env"].values())
    assert not lnk_home.exists()


def test_a_proxied_request_points_its_program_at_the_proxy(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    proxy = {"upstream": "direct", "dir": "/run/box", "hosts": ["example.com"]}
    net = {"proxied": {"proxy": proxy, "ports": []}}
    made = json.loads(wrapped({**PLAIN, "net": net}, capsys, monkeypatch))
    assert made["env"]["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    assert made["env"]["https_proxy"] == made["env"]["HTTPS_PROXY"]
    assert "127.0.0.1" in made["env"]["NO_PROXY"]
    assert (lnk_home / "sandbox" / "log").is_dir()


def test_a_plan_is_explained_for_a_person_and_as_json(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    text = wrapped(PLAIN, capsys, monkeypatch, "--explain")
    assert "/usr" in text
    assert "namespaces" in text
    plan = json.loads(wrapped(PLAIN, capsys, monkeypatch, "--explain", "--json"))
    assert plan["name"] == "box"
    assert bytes.fromhex(plan["filter"])
    assert not lnk_home.exists()


def test_settings_inside_a_written_folder_are_made_so_that_they_can_be_closed(
    tmp_path: Path,
    lnk_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    text = wrapped({**PLAIN, "write": [str(tmp_path)]}, capsys, monkeypatch, "--explain")
    assert f"closed     {lnk_home}" in text
    assert lnk_home.stat().st_mode & 0o777 == 0o700


def test_what_is_not_on_this_machine_is_said_and_nothing_is_printed(
    tmp_path: Path,
    lnk_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    confinement = {**PLAIN, "write": [str(tmp_path / "none")]}
    text = json.dumps({"confinement": confinement, "argv": ["true"]})
    status, out, err = run(text.encode(), capsys, monkeypatch)
    assert (status, out) == (125, "")
    assert "none, which does not exist" in err
    assert err.count("\n") == 1
    assert not lnk_home.exists()


def test_settings_in_a_links_place_are_refused_before_anything_is_printed(
    tmp_path: Path,
    lnk_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    (tmp_path / "real").mkdir()
    lnk_home.symlink_to("real")
    proxy = {"upstream": "direct", "dir": "/run/box", "hosts": []}
    confinement = {**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}}
    text = json.dumps({"confinement": confinement, "argv": ["true"]})
    status, out, err = run(text.encode(), capsys, monkeypatch)
    assert (status, out) == (125, "")
    assert "is a link to one" in err
    assert list((tmp_path / "real").iterdir()) == []


def test_no_word_of_a_printed_command_is_longer_than_the_kernel_takes(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    longest = "x" * ARGUMENT_MAX_BYTES
    made = json.loads(wrapped(PLAIN, capsys, monkeypatch, argv=["/bin/true", longest]))
    assert max(map(len, made["argv"])) == ARGUMENT_MAX_BYTES
    status, out, _ = run(many_hosts(3000), capsys, monkeypatch)
    assert status == 0
    words = json.loads(out)["argv"]
    assert sum(map(len, words)) > 2 * ARGUMENT_MAX_BYTES
    assert all(len(word.encode()) <= ARGUMENT_MAX_BYTES for word in words)


def many_hosts(count: int) -> bytes:
    hosts = [f"{'h' * 60}.{'i' * 60}.{at}.example" for at in range(count)]
    proxy = {"upstream": "direct", "dir": "/run/box", "hosts": hosts}
    confinement = {**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}}
    return json.dumps({"confinement": confinement, "argv": ["true"]}).encode()


def test_a_plan_that_no_command_line_takes_is_refused(
    lnk_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    status, out, err = run(many_hosts(12_000), capsys, monkeypatch)
    assert (status, out) == (2, "")
    assert held("confinement", err)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.sampled_from(["closed", "any", "/srv", "box", "direct"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.text() | st.sampled_from(list(keys_of(WrapRequest))), inner, max_size=3
            )
        ),
        max_leaves=15,
    )
)
def test_any_json_is_refused_in_one_line(
    lnk_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    value: object,
):
    status, out, err = run(json.dumps(value).encode(), capsys, monkeypatch)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.isascii()


# What it costs to start.

HEAVY = {
    "argparse", "asyncio", "cryptography", "ctypes", "difflib", "ipaddress", "msgspec", "socket",
    "ssl", "subprocess", "tempfile", "threading", "tomllib", "trio", "uvloop",
}  # fmt: skip


@pytest.mark.parametrize("net", ["closed", "proxied"])
def test_wrap_imports_nothing_it_does_not_use(net: str, lnk_home: Path):
    proxy = {"upstream": "direct", "dir": "/run/box", "hosts": ["example.com"]}
    told: Any = {"proxied": {"proxy": proxy, "ports": []}} if net == "proxied" else net
    text = json.dumps({"confinement": {**PLAIN, "net": told}, "argv": ["/bin/true"]})
    done = subprocess.run(
        [
            sys.executable, "-I", "-S", "-c",
            "import sys; sys.path.append(sys.argv[1]); sys.argv[1:] = ['wrap']\n"
            "from sandbox.cli.main import main\n"
            "status = main(); print(*sys.modules, file=sys.stderr); sys.exit(status)",
            ROOT,
        ],
        input=text.encode(), capture_output=True, timeout=110, check=True, env=os.environ,
    )  # fmt: skip
    assert HEAVY.isdisjoint(done.stderr.decode().split())


def test_what_no_sandbox_can_be_made_of_leaves_no_settings_in_a_folder_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """They are made where they are to be covered: but not for a request that is refused."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("LNK_HOME", str(tmp_path / "home/.lnk"))
    asked = {"name": "box", "read": [], "commands": "any", "net": "closed"}
    write = [str(tmp_path / "home"), str(tmp_path / "nope")]
    request = json.dumps({"confinement": {**asked, "write": write}, "argv": ["id"]})
    status, out, err = run(request.encode(), capsys, monkeypatch)
    assert (status, out) == (125, "")
    assert f"write names {write[1]}, which does not exist" in err
    assert os.listdir(write[0]) == []
    (tmp_path / "home/.lnk").mkdir(0o700)
    assert run(request.encode(), capsys, monkeypatch)[0] == 125
    assert os.listdir(write[0]) == [".lnk"]
    assert os.listdir(tmp_path / "home/.lnk") == []
