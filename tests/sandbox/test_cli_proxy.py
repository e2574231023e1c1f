"""The command line, and the proxy that it starts: on real sockets, on both event loops."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from proto.policy.records import Refusal
from sandbox.cli import main as cli
from sandbox.cli import proxy
from sandbox.cli.flags import Flag, UsageError, describe, read_flags
from sandbox.cli.proxy import WireSettings, listen_address, run_wire, settings_of
from sandbox.errors import SandboxError

ROOT = Path(__file__).parents[2]
START = f"""
import sys
sys.path.append({str(ROOT)!r})
sys.argv[0] = "lnk"
from sandbox.cli.main import main
sys.exit(main())
"""
SOON_S = 110
SHELLS = ("uvloop", "trio")
SECRET = "abcdefghijklmnop0123456789"


def lnk(*words: str, python: tuple[str, ...] = ()) -> list[str]:
    """Return a command that runs `lnk <words>` from this tree."""
    return [sys.executable, "-I", *python, "-c", START, *words]


def ran(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lnk(*words), capture_output=True, text=True, timeout=SOON_S, check=False, **options
    )


class Proxy:
    """A running `lnk sandbox proxy`."""

    def __init__(self, *flags: str, listen: str = "127.0.0.1:0", **options: Any) -> None:
        self.process = subprocess.Popen(
            lnk("sandbox", "proxy", "--listen", listen, *flags),
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.PIPE),
            text=True,
            **options,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.stderr = ""
        if not self.line:
            self.end(signal.SIGKILL)
            raise AssertionError(self.stderr)
        self.port = int(self.line.rsplit(":", 1)[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SOON_S)

    def answer(self, request: bytes) -> bytes:
        """Return everything that is answered to a request on a connection of its own."""
        with self.connect() as sock:
            sock.sendall(request)
            parts = []
            while data := sock.recv(65536):
                parts.append(data)
        return b"".join(parts)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; return its status."""
        self.process.send_signal(number)
        _, self.stderr = self.process.communicate(timeout=SOON_S)
        return self.process.returncode

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def log_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module", params=SHELLS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Proxy, Path]]:
    """One proxy a shell, for all that it refuses; its log."""
    folder = tmp_path_factory.mktemp(request.param) / "log"
    flags = ("--hosts", "example.com", "--log", str(folder), "--shell", request.param)
    with Proxy(*flags, "--name", "w") as made:
        yield made, folder / "w.jsonl"


# -- the table of commands ----------------------------------------------------------------


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_has_a_module_and_an_example(name: str) -> None:
    row = cli.COMMANDS[name]
    assert callable(import_module(row.module).main)
    assert row.example.startswith(f"lnk sandbox {name}")
    assert row.example in cli.help_text()


def test_help_is_printed_for_whoever_asks(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["sandbox", "--help"], ["-h"], ["help"]):
        assert cli.run(words) == 0
        assert capsys.readouterr().out == cli.help_text() + "\n"


def test_no_command_at_all_is_a_mistake_that_shows_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == cli.help_text() + "\n"


def test_both_programs_are_the_one_entry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["scripts"]) == {"lnk", "lnk-sandbox"}
    for entry in project["scripts"].values():
        module, _, name = entry.partition(":")
        assert getattr(import_module(module), name) is cli.main


def test_the_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"lnk-sandbox {project['version']}\n"


@pytest.mark.parametrize("words", [["wrpa"], ["sandbox", "wrpa"], ["--frob"], ["\x1b[2J"]])
def test_an_unknown_command_is_one_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "is no command" in err
    assert "\x1b" not in err


def test_only_lnk_itself_needs_the_word_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["proxy", "--help"]) == 0
    assert cli.run(["sandbox", "proxy", "--help"], bare="lnk") == 0
    assert cli.run(["proxy", "--help"], bare="lnk") == 2
    assert "write lnk sandbox proxy" in capsys.readouterr().err


def test_an_error_is_one_sentence_and_its_own_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: list[str]) -> int:
        raise SandboxError("no such thing.", exit_code=126)

    monkeypatch.setattr(proxy, "main", fail)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lnk-sandbox", "proxy"])
    assert cli.main() == 126
    assert capsys.readouterr().err == "lnk sandbox: no such thing.\n"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(proxy, "main", interrupt)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lnk", "sandbox", "proxy"])
    assert cli.main() == 130


def test_a_full_disk_is_no_traceback() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sandbox.cli.main", "--help"], stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=SOON_S,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "lnk sandbox: what it prints finds no space left: make room.\n"


@pytest.mark.parametrize(("words", "code"), [(["nope"], 2), (["log", "a", "b"], 2), ([], 2)])
def test_what_nobody_can_read_changes_no_status(words: list[str], code: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sandbox.cli.main", *words], stderr=full, timeout=SOON_S
        )
    assert done.returncode == code


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_s_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([name, "--help"]) == 0
    told = capsys.readouterr().out.split("usage: ")[1]
    # A wrap request goes in by a pipe; a tool at a URL is a tool's command.
    starts = {"wrap": "  echo ", "mcp-remote": "  lnk sandbox tool add "}
    begins = starts.get(name, f"  lnk sandbox {name}")
    assert any(line.startswith(begins) for line in told.splitlines()), told


def test_a_reader_who_has_left_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "sandbox.cli.main", "--help"], stdout=closed,
            stderr=subprocess.PIPE, text=True, timeout=SOON_S,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (141, "")


def test_a_program_without_the_dashes_before_it_is_told_where_it_goes() -> None:
    said = "'curl' is not one of its flags: write the program and its arguments after --."
    with pytest.raises(UsageError) as refused:
        read_flags(FLAGS, ["--on", "curl", "https://example.com/"], takes_rest=True)
    assert refused.value.message == said


def test_a_terminal_of_few_letters_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", "run", "--help"], capture_output=True,
        text=True, timeout=SOON_S, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "[ARGUMENT\\u2026]" in done.stdout


def test_the_proxys_help_names_every_flag_of_the_readme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert proxy.main(["--help"]) == 0
    told = capsys.readouterr().out
    for flag in ("--blank", "--control SOCKET", "--binder UID", "--hold", "--help"):
        assert f"\n  {flag} " in told


def test_help_imports_no_event_loop() -> None:
    words = lnk("sandbox", "proxy", "--help", python=("-X", "importtime"))
    done = subprocess.run(words, capture_output=True, text=True, timeout=SOON_S, check=True)
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "sandbox.cli.flags" in imported
    heavy = {"asyncio", "uvloop", "trio", "ssl", "msgspec", "argparse", "proto", "shells"}
    assert not heavy & imported
    assert "lnk sandbox proxy --listen" in done.stdout


# -- flags --------------------------------------------------------------------------------

FLAGS = (
    Flag("--one", "X", "one value"),
    Flag("--many", "Y", "some", many=True),
    Flag("--on", "", ""),
)


def test_flags_take_their_value_beside_or_behind_an_equals_sign() -> None:
    flags = read_flags(FLAGS, ["--one", "1", "--many=a,b", "--many", "c", "--on"])
    assert flags.one("--one") == "1"
    assert flags.items("--many") == ["a", "b", "c"]
    assert "--on" in flags
    assert flags.rest is None
    assert flags.one("--absent", "default") == "default"
    assert flags.items("--absent") is None


def test_an_empty_value_is_the_empty_list() -> None:
    assert read_flags(FLAGS, ["--many", ""]).items("--many") == []
    assert read_flags(FLAGS, ["--many="]).items("--many") == []


def test_what_follows_two_hyphens_is_the_programs() -> None:
    flags = read_flags(FLAGS, ["--on", "--", "ls", "--one"], takes_rest=True)
    assert flags.rest == ["ls", "--one"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on=1"], "--on takes no value: write --on alone."),
        (["--one"], "--one needs a value: write --one X."),
        (["--one", "--on"], "--one needs a value: write --one X."),
        (["--one", "1", "--one", "2"], "--one is given twice: give it once."),
        (["--on", "--on"], "--on is given twice: give it once."),
        (["--onl"], "'--onl' is not one of its flags (did you mean --on?): --help lists them."),
        (["stray"], "'stray' is not one of its flags: --help lists them."),
        (["--"], "'--' is not one of its flags: --help lists them."),
    ],
)
def test_a_flag_that_cannot_be_followed_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_flags(FLAGS, words)
    assert refused.value.message == said
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("value", ["a,,b", ",a", "a,", ","])
def test_an_empty_item_among_others_is_a_mistake(value: str) -> None:
    with pytest.raises(UsageError, match="empty item"):
        read_flags(FLAGS, ["--many", value]).items("--many")


def test_the_flags_are_described_in_columns() -> None:
    assert describe(FLAGS[:2]) == "  --one X   one value\n  --many Y  some"


# -- the proxy's flags --------------------------------------------------------------------

BAD = [
    ([], "--listen", "127.0.0.1:8080"),
    (["--listen", "0.0.0.0:1"], "'0.0.0.0:1'", "127.0.0.1:1"),
    (["--listen", "192.168.1.1:80"], "'192.168.1.1:80'", "127.0.0.1:80"),
    (["--listen", "[::]:80"], "'[::]:80'", "[::1]:80"),
    (["--listen", "::1:80"], "'::1:80'", "[::1]:80"),
    (["--listen", "localhost:80"], "'localhost:80'", "127.0.0.1:80"),
    (["--listen", "127.1:80"], "'127.1:80'", "127.0.0.1:80"),
    (["--listen", "127.0.0.1\0:80"], "127.0.0.1", "127.0.0.1:80"),
    (["--listen", "8080"], "'8080'", "127.0.0.1:8080"),
    (["--listen", "127.0.0.1:"], "'127.0.0.1:'", "port"),
    (["--listen", "127.0.0.1:65536"], "'127.0.0.1:65536'", "65535"),
    (["--listen", "127.0.0.1:080"], "'127.0.0.1:080'", "port"),
    (["--listen", "127.0.0.1:٨٠"], "port", "127.0.0.1:8080"),
    (["--hosts", "a.b"], "--listen", "127.0.0.1:8080"),
    (["--listen", "127.0.0.1:0"], "--hosts is missing", "--any-host"),
    (["--listen", "127.0.0.1:0", "--lan", "printer.local:631"], "--hosts", "--any-host"),
    (["--listen", "127.0.0.1:0", "--hosts", "*"], "'*'", "--any-host"),
    (["--listen", "127.0.0.1:0", "--hosts", "a.b", "--any-host"], "--any-host", "--hosts"),
    (["--listen", "127.0.0.1:0", "--no-internet", "--any-host"], "--no-internet", "--any-host"),
    (["--listen", "127.0.0.1:0", "--no-internet", "--hosts", "a.b"], "--no-internet", "--hosts"),
    (["--listen", "127.0.0.1:0", "--hosts", "a.b,http://c"], "--hosts", "'http://c'"),
    (["--listen", "127.0.0.1:0", "--hosts", "a.b:443"], "--hosts", "--tcp"),
    (["--listen", "127.0.0.1:0", "--hosts", "0x7f.1"], "--hosts", "'0x7f.1'"),
    (["--listen", "127.0.0.1:0", "--any-host", "--lan", "printer"], "--lan", "host:port"),
    (["--listen", "127.0.0.1:0", "--any-host", "--lan", "*.local:1"], "--lan", "pattern"),
    (["--listen", "127.0.0.1:0", "--any-host", "--tcp", "db:0"], "--tcp", "'db:0'"),
    (["--listen", "127.0.0.1:0", "--any-host", "--name", "../x"], "--name", "'../x'"),
    (["--listen", "127.0.0.1:0", "--any-host", "--name", ""], "--name", "letters"),
    (["--listen", "127.0.0.1:0", "--any-host", "--log", ""], "--log", "FOLDER"),
    (["--listen", "127.0.0.1:0", "--any-host", "--shell", "curio"], "'curio'", "uvloop or trio"),
    (["--listen", "127.0.0.1:0", "--any-host", "--pointed-by", "NOT_SET"], "'NOT_SET'", "set it"),
    (["--listen", "127.0.0.1:0", "--any-host", "--pointed-by", ""], "--pointed-by", "set it"),
]


@pytest.mark.parametrize(("words", "named", "cure"), BAD)
def test_a_bad_flag_is_one_sentence_that_names_it_and_its_cure(
    words: list[str], named: str, cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = dict(os.environ)
    with pytest.raises(UsageError) as refused:
        proxy.main(words)
    said = refused.value.message
    assert refused.value.exit_code == 2
    assert named in said
    assert cure in said
    assert "\n" not in said
    assert "\0" not in said
    assert capsys.readouterr() == ("", "")
    assert dict(os.environ) == environment  # refused before anything was done


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("127.9.8.7:0", ("127.9.8.7", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_every_loopback_address_can_be_listened_on(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


def settings(*words: str, port: int = 8080) -> WireSettings:
    return settings_of(read_flags(proxy.FLAGS, list(words)), port)


def test_hosts_left_out_and_hosts_left_empty_are_kept_apart() -> None:
    assert settings("--any-host").hosts is None
    assert settings("--hosts", "").hosts == []
    assert settings("--no-internet").hosts == []
    assert settings("--no-internet").no_internet
    made = settings("--hosts", "a.b,*.c.d", "--hosts", "e", "--lan", "p:1", "--tcp", "q:2,r:3")
    assert (made.hosts, made.lan, made.tcp) == (["a.b", "*.c.d", "e"], ["p:1"], ["q:2", "r:3"])
    assert (made.log, made.name, made.secret) == (None, "proxy", None)


def test_the_log_folder_is_kept_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings("--any-host", "--log", "log").log == str(tmp_path / "log")


@pytest.mark.parametrize("port", [0, 8080])
def test_the_secret_is_taken_out_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://lnk:{SECRET}@127.0.0.1:{port}")
    assert settings("--any-host", "--pointed-by", "HTTPS_PROXY").secret == SECRET
    assert "HTTPS_PROXY" not in os.environ


@pytest.mark.parametrize(
    "value",
    [
        "http://lnk:short@127.0.0.1:8080",
        f"http://lnk:{'a' * 65}@127.0.0.1:8080",
        f"http://lnk:{SECRET}-@127.0.0.1:8080",
        f"http://lnk:{SECRET}é@127.0.0.1:8080",
        f"http://lnk:{SECRET}@127.0.0.1:8081",
        f"http://lnk:{SECRET}@127.0.0.2:8080",
        f"http://lnk:{SECRET}@example.com:8080",
        f"https://lnk:{SECRET}@127.0.0.1:8080",
        f"http://{SECRET}@127.0.0.1:8080",
        f"http://lnk:{SECRET}@127.0.0.1:8080/path",
        f"http://lnk:{SECRET}@127.0.0.1:8080\n",
        "http://127.0.0.1:8080",
        "",
    ],
)
def test_a_proxy_url_that_is_not_ours_is_refused_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(UsageError) as refused:
        settings("--any-host", "--pointed-by", "HTTPS_PROXY")
    assert "HTTPS_PROXY" in refused.value.message
    assert SECRET not in refused.value.message
    assert "short" not in refused.value.message


# -- starting and ending ------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, shell: str, number: int) -> None:
    log = tmp_path / "log"
    with Proxy("--hosts", "", "--log", str(log), "--shell", shell) as made:
        assert made.line == f"listening on 127.0.0.1:{made.port}\n"
        with made.connect() as kept, made.connect() as half:
            half.sendall(b"CONNECT exam")
            kept.sendall(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
            assert kept.recv(12) == b"HTTP/1.1 400"
            assert made.end(number) == 0
            answer = half.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503 The proxy is shutting down\r\n")
        assert made.stderr == ""
        with pytest.raises(ConnectionRefusedError):
            made.connect()
    assert [line["status"] for line in log_lines(log / "proxy.jsonl")] == [400, 503]


def test_a_signal_that_its_parent_ignores_is_ignored(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Proxy("--hosts", "", "--log", str(tmp_path / "log"), preexec_fn=ignore) as made:
        made.process.send_signal(signal.SIGHUP)
        assert made.answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 404")
        assert made.end() == 0


def test_it_listens_on_the_ipv6_loopback() -> None:
    with Proxy("--hosts", "", listen="[::1]:0") as made:
        assert made.line == f"listening on [::1]:{made.port}\n"
        with socket.create_connection(("::1", made.port), SOON_S) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 404"
        assert made.end() == 0


def test_a_taken_port_is_one_sentence_and_status_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ran("sandbox", "proxy", "--listen", f"127.0.0.1:{port}", "--hosts", "")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"port {port} of 127.0.0.1 is taken" in done.stderr


@pytest.mark.parametrize(
    ("make", "status", "said"),
    [
        (lambda folder: folder.mkdir(0o777) or folder.chmod(0o777), 2, "others can write"),
        (lambda folder: folder.symlink_to("/tmp"), 2, "link"),
        (lambda folder: folder.touch(), 2, "no folder"),
        (lambda folder: None, 1, "can't be begun"),
    ],
)
def test_a_log_that_is_not_safe_or_cannot_be_made_keeps_it_from_starting(
    tmp_path: Path, make: Any, status: int, said: str
) -> None:
    folder = tmp_path / "log"
    make(folder)
    where = folder if status == 2 else folder / "deeper"
    words = ("--listen", "127.0.0.1:0", "--hosts", "", "--log", str(where))
    done = ran("sandbox", "proxy", *words)
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_without_a_log_folder_lines_go_to_stderr() -> None:
    with Proxy("--hosts", "") as made:
        made.answer(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
        assert made.end() == 0
        (line,) = made.stderr.splitlines()
    assert json.loads(line)["host"] == "evil.test"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_call_that_cannot_be_logged_is_answered_503_and_dials_nobody(shell: str) -> None:
    with (
        open("/dev/full", "wb") as full,  # every write to it says that the disk is full
        Proxy("--hosts", "203.0.113.10", "--shell", shell, stderr=full) as made,
    ):
        request = b"CONNECT 203.0.113.10:9 HTTP/1.1\r\nHost: 203.0.113.10:9\r\n\r\n"
        answer = made.answer(request)
        assert answer.startswith(b"HTTP/1.1 503 The log can't be written\r\n")
        assert made.end() == 0


def test_closed_standard_streams_are_never_a_socket(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def close() -> None:
        os.close(0)
        os.close(2)

    with Proxy("--hosts", "", "--log", str(log), preexec_fn=close) as made:
        held = Path(f"/proc/{made.process.pid}/fd")
        assert [os.readlink(held / name) for name in ("0", "2")] == ["/dev/null"] * 2
        assert made.end() == 0


def test_nothing_of_the_environment_or_the_working_folder_is_kept(tmp_path: Path) -> None:
    # In a child: what is shut out there stays shut out.
    code = f"""
import ctypes, os, sys
sys.path.append({str(ROOT)!r})
from sandbox.cli.proxy import shut_out_environment
shut_out_environment()
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(dict(os.environ), libc.getenv(b"HOSTALIASES"), os.getcwd())
"""
    hostile = {"HOSTALIASES": "/tmp/x", "OPENSSL_CONF": "/tmp/y", "HOME": "/tmp", "LNK_HOME": "/z"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env=hostile,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=True,
    )
    assert done.stdout == "{} None /\n"


def test_modules_in_the_working_folder_and_python_variables_are_never_imported(
    tmp_path: Path,
) -> None:
    for name in ("json", "proto", "msgspec", "encodings", "uvloop"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the clone')")
    hostile = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere", "HOME": str(tmp_path)}
    with Proxy("--hosts", "", cwd=tmp_path, env=hostile) as made:
        assert os.readlink(f"/proc/{made.process.pid}/cwd") == "/"
        assert made.end() == 0


# -- what it answers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_head", "status", "named"),
    [
        (
            b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
            403,
            b"--hosts evil.test",
        ),
        (b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, b"--hosts evil.test"),
        (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n", 403, b"this machine"),
        (b"CONNECT [::1]:22 HTTP/1.1\r\nHost: [::1]:22\r\n\r\n", 403, b"this machine"),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, b"this machine"),
        (b"CONNECT 127.1:22 HTTP/1.1\r\nHost: 127.1:22\r\n\r\n", 400, b""),
        (b"GET http://evil.test/ HTTP/1.1\nHost: evil.test\n\n", 400, b""),
        (b"GET /treasure HTTP/1.1\r\nHost: x\r\n\r\n", 404, b""),
        (b"GET /treasure HTTP/2.0\r\nHost: x\r\n\r\n", 505, b""),
    ],
)
def test_what_is_refused_says_so_to_the_client_and_in_the_log(
    running: tuple[Proxy, Path], request_head: bytes, status: int, named: bytes
) -> None:
    made, log = running
    before = len(log_lines(log)) if log.exists() else 0
    answer = made.answer(request_head)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert named in head.partition(b"\r\n")[0]
    assert body.strip()
    (line,) = log_lines(log)[before:]
    for told in (body.decode(), str(line["reason"])):
        assert "internet" not in told
        assert named != b"--hosts evil.test" or "add --hosts evil.test." in told
    assert (line["verdict"], line["status"]) == ("refused", status)
    assert "treasure" not in json.dumps(line)
    assert set(line) == {
        "time",
        "call",
        "verb",
        "host",
        "port",
        "verdict",
        "reason",
        "status",
    }


def test_each_call_has_an_id_of_its_own(running: tuple[Proxy, Path]) -> None:
    made, log = running
    for _ in range(3):
        made.answer(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
    calls = [line["call"] for line in log_lines(log)]
    assert len(set(calls)) == len(calls)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("shell", SHELLS)
def test_a_secret_is_asked_for_and_the_connection_is_kept(tmp_path: Path, shell: str) -> None:
    log = tmp_path / "log"
    environment = {"HTTPS_PROXY": f"http://lnk:{SECRET}@127.0.0.1:0"}
    flags = ("--hosts", "", "--pointed-by", "HTTPS_PROXY", "--log", str(log), "--shell", shell)
    request = b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n"
    right = b"Proxy-Authorization: Basic " + base64.b64encode(f"any:{SECRET}".encode()) + b"\r\n"
    wrong = b"Proxy-Authorization: Basic " + base64.b64encode(b"any:x" * 4) + b"\r\n"
    with Proxy(*flags, env=environment) as made, made.connect() as sock:
        for header in (b"", wrong):
            sock.sendall(request + header + b"\r\n")
            answer = b""
            while not answer.endswith(b"as it is set.\n"):
                data = sock.recv(4096)
                assert data, answer
                answer += data
            assert answer.startswith(b"HTTP/1.1 407 ")
            assert b"Proxy-Authenticate: Basic" in answer
        sock.sendall(request + right + b"\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 403 ")
        assert made.end() == 0
        assert SECRET not in made.stderr
    assert [line["status"] for line in log_lines(log / "proxy.jsonl")] == [407, 407, 403]
    assert SECRET not in (log / "proxy.jsonl").read_text()


# -- for the launcher ---------------------------------------------------------------------


@contextlib.contextmanager
def answered(made: WireSettings, target: str, **more: Any) -> Iterator[bytes]:
    """Serve a wire in this process, ask for a tunnel, and give what was answered."""
    ready = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    readable, writable = os.pipe()
    given = {"shell": "trio", "stop_fd": readable, "on_ready": ready.set, **more}
    thread = threading.Thread(target=run_wire, args=(made, [listener]), kwargs=given)
    address = listener.getsockname()
    thread.start()
    try:
        assert ready.wait(SOON_S)
        with socket.create_connection(address, SOON_S) as sock:
            sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            yield sock.recv(4096)
    finally:
        os.write(writable, b"x")
        thread.join(SOON_S)
        os.close(readable)
        os.close(writable)


def test_a_wire_is_served_in_process_and_tells_what_it_refuses(tmp_path: Path) -> None:
    refused: list[Refusal] = []
    made = WireSettings(["example.com"], log=str(tmp_path / "log"), name="box")
    with answered(made, "evil.test:443", tell=refused.append) as said:
        assert said.startswith(b"HTTP/1.1 403")
    (refusal,) = refused
    assert (refusal.host, refusal.key) == ("evil.test", "internet.hosts")
    (line,) = log_lines(tmp_path / "log" / "box.jsonl")
    assert line["host"] == "evil.test"


def test_a_pause_of_a_wire_is_shown_on_the_desktop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, str]] = []
    monkeypatch.setattr("sandbox.notify.notify", lambda *words: shown.append(words))
    made = WireSettings(["example.com"], state=str(tmp_path / "lnk"), name="box")
    with answered(made, "169.254.169.254:80") as said:
        assert said.startswith(b"HTTP/1.1 403")
    ((title, text),) = shown
    assert title == "The wire of box is paused"
    assert "lnk sandbox resume box" in text


@pytest.mark.parametrize(
    "bad",
    [
        WireSettings(["a b"]),
        WireSettings([], secret="short"),
        WireSettings([], log="/tmp", name="box"),
        WireSettings([], log="/tmp/nobody-made-this", name="a/b"),
    ],
)
def test_settings_that_are_no_good_are_refused_before_anything_is_served(
    bad: WireSettings,
) -> None:
    ready = threading.Event()
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        with pytest.raises(UsageError) as refused:
            run_wire(bad, [listener], shell="trio", on_ready=ready.set)
        assert "\n" not in refused.value.message
        assert not ready.is_set()
