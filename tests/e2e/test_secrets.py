"""Secrets on the wire: the program holds a placeholder, and nobody but the bridge the secret."""

from __future__ import annotations

import base64
import json
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import Logged
from tests.e2e.routes_stage import (
    BOT_RULE,
    FD,
    GIT_RULE,
    GITHUB,
    TELEGRAM,
    Outside,
    holds,
    outside,
    processes,
    python_packages,
    said,
    telegram,
)
from tests.net.authority import Authority
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]

TOKEN = f"123456789:AAH{secrets.token_hex(16)}"
GIT_TOKEN = f"ghp_{secrets.token_hex(16)}"
LOGIN = base64.b64encode(f"x-access-token:{GIT_TOKEN}".encode()).decode()
BOT = {
    "secret": {"name": "telegram", "rule": BOT_RULE, "secret": TOKEN},
    "url": "BOT_API",
    "placeholder": "BOT_TOKEN",
}
GIT = {
    "secret": {"name": "github", "rule": GIT_RULE, "secret": LOGIN},
    "url": "GITHUB_URL",
    "placeholder": "GITHUB_KEY",
    "git": True,
}
SECRETS = (TOKEN, GIT_TOKEN, LOGIN)


class GitHost:
    """github.com's double: git's own server program behind a login."""

    def __init__(self) -> None:
        self.root = ""

    def __call__(self, head: bytes, body: bytes) -> bytes:
        line, *rest = head.decode().split("\r\n")
        method, target, _ = line.split(" ")
        fields = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
        if fields.get("authorization") != f"Basic {LOGIN}":
            return said(f"no: {fields.get('authorization')}".encode(), "401 Unauthorized",
                        'WWW-Authenticate: Basic realm="git"')  # fmt: skip
        path, _, query = target.partition("?")
        if path.startswith("/old/"):
            return said(
                b"", "301 Moved", f"Location: https://{GITHUB}{target.replace('/old/', '/org/', 1)}"
            )
        environ = {
            "PATH": lnk.PATH, "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method,
            "CONTENT_TYPE": fields.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": fields.get("content-encoding", ""),
            "GIT_PROTOCOL": fields.get("git-protocol", ""), "REMOTE_USER": "x",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*", "HOME": self.root,
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True,
                              timeout=150)  # fmt: skip
        told, _, data = done.stdout.partition(b"\r\n\r\n")
        lines = [each for each in told.decode().split("\r\n") if not each.startswith("Status:")]
        status = next((each[8:] for each in told.decode().split("\r\n")
                       if each.startswith("Status:")), "200 OK")  # fmt: skip
        return said(data, status, *lines)


GIT_HOST = GitHost()


@pytest.fixture(scope="module")
def away(authority: Authority) -> Iterator[Outside]:
    with outside(authority, "s", telegram=telegram(TOKEN), github=GIT_HOST) as made:
        yield made


@pytest.fixture
def quiet(away: Outside) -> Outside:
    for service in away.services.values():
        service.calls.clear()
    return away


@pytest.fixture(scope="module")
def bot_packages(open_folder: str) -> str:
    folder = os.path.join(open_folder, "bots")
    os.mkdir(folder, 0o755)
    return python_packages(folder, "python-telegram-bot")


def run_argv(installed: lnk.Installed, *words: str, flags: tuple[str, ...] = ()) -> list[str]:
    return installed.argv("run", "--yes", *flags, "--with-fd", FD, "--", *words)


def assert_nothing_of_a_secret(*texts: str) -> None:
    for text in texts:
        for each in SECRETS:
            assert each not in text


def assert_nothing_is_left(who: lnk.Account) -> None:
    """No file of Link's holds a secret, whoever was told of one."""
    for above, _, names in os.walk(f"{who.home}/.lnk"):
        for name in names:
            with suppress(OSError):  # it has just gone, or is a socket
                data = Path(above, name).read_bytes()
                assert not any(each.encode() in data for each in SECRETS), name


CURLS = """
curl -s "$BOT_API/bot$BOT_TOKEN/getMe"; echo
curl -s "$BOT_API/bot$BOT_TOKEN/setWebhook?url=https://evil.test/"; echo
curl -s "$BOT_API/bot$BOT_TOKEN/echo"; echo
curl -s -L "$BOT_API/bot$BOT_TOKEN/moved"; echo
curl -s -i "$BOT_API/bot$BOT_TOKEN/moved"
curl -s "$BOT_API/bot$BOT_TOKEN/nothing/else"; echo
env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'
ls -l /proc/self/fd
"""


def test_a_secret_is_added_outside_and_is_nowhere_inside(
    quiet: Outside, installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    given = {"env": {"GREETING": "hi"}, "secrets": [BOT]}
    logged = Logged(who)
    done = quiet.run(who, run_argv(installed, "sh", "-c", CURLS), given, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert_nothing_of_a_secret(done.stdout, done.stderr)
    lines = [line for line in done.stdout.splitlines() if line]
    assert json.loads(lines[0])["result"]["username"] == "b_bot"
    assert "refuses" in lines[1]
    assert json.loads(lines[2])["error_code"] == 404
    assert "link-" not in lines[2].lower()
    assert json.loads(lines[3])["result"]["username"] == "b_bot"  # a redirect leads to the route
    assert "GREETING=hi" in lines
    heads = [head.split(b"\r\n")[0] for head, _ in quiet.services[TELEGRAM].calls]
    assert heads[0] == f"GET /bot{TOKEN}/getMe HTTP/1.1".encode()
    assert not [head for head in heads if b"ebhook" in head or b"nothing" in head]
    assert_nothing_is_left(who)
    lines = logged.lines()
    assert (TELEGRAM, 443) in {(line["host"], line["port"]) for line in lines}
    assert "getMe" not in json.dumps(lines)


@contextmanager
def ended(started: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Have a command ended, whatever a test finds."""
    try:
        yield started
    finally:
        started.kill()  # and with its launcher ends all of the sandbox
        started.communicate(timeout=150)


def wait_for(path: Path, started: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 150
    while not path.exists():
        assert started.poll() is None, started.stderr.read()  # type: ignore[union-attr]
        assert time.monotonic() < until
        select_nothing()


def select_nothing() -> None:
    select.select([], [], [], 0.02)


@pytest.mark.parametrize("named", ["by a descriptor", "by a spec"])
def test_no_process_but_the_bridge_ever_holds_a_secret(
    quiet: Outside, installed: lnk.Installed, who: lnk.Account, folder: str, named: str
) -> None:
    script = 'curl -s "$1/bot$2/getMe" && touch called && while [ ! -e go ]; do sleep 0.1; done'
    words = ["sh", "-c", script, "sh"]
    if named == "by a spec":
        os.mkdir(f"{folder}/spec")
        os.mkdir(f"{folder}/work")
        spec = Path(folder, "spec", "box.toml")
        spec.write_text(
            '[secrets.telegram]\nkey = "env:REAL_TOKEN"\nhost = "api.telegram.org"\n'
            'paths = ["/bot{secret}/{name}"]\n[files]\nwrite = ["../work"]\n'
        )
        for path in (f"{folder}/spec", f"{folder}/work", str(spec)):
            os.chown(path, who.uid, who.gid)
        work = f"{folder}/work"
        words[2] = script.replace("$1", "$LNK_SECRET_TELEGRAM").replace(
            "$2", "$LNK_SECRET_TELEGRAM_PLACEHOLDER"
        )
        argv = installed.argv("run", "--yes", "--spec", str(spec), "--", *words)
        started = quiet.start(who, argv, environ={"REAL_TOKEN": TOKEN}, cwd=work)
    else:
        work = folder
        words[2] = script.replace("$1", "$BOT_API").replace("$2", "$BOT_TOKEN")
        argv = run_argv(installed, *words, flags=("--write", folder))
        started = quiet.start(who, argv, {"secrets": [BOT]}, cwd=folder)
    with ended(started):
        wait_for(Path(work, "called"), started)
        every = processes(started.pid)
        found = {pid: line for pid, line in every.items() if holds(pid, TOKEN.encode())}
        lines = list(every.values())
        Path(work, "go").touch()
        out, err = started.communicate(timeout=150)
    assert started.returncode == 0, err
    assert len(found) == 1, found
    assert " bridge secret" in next(iter(found.values()))
    assert len(lines) > 4  # launcher, keeper, proxy, bubblewrap, the program, and the bridge
    assert_nothing_of_a_secret(out, err, *lines)


def kept(
    installed: lnk.Installed,
    who: lnk.Account,
    argv: list[str],
    *routes: dict[str, Any],
    **more: Any,
) -> dict[str, Any]:
    proxy = {"upstream": "direct", "dir": f"{who.home}/.lnk/wires/box", "hosts": [],
             "routes": list(routes), "caller": "callers-key-0123456789", **more}  # fmt: skip
    return installed.wrap(who, argv, net={"proxied": {"proxy": proxy, "ports": []}})


ROUTE = {
    "kind": "secret", "name": "telegram", "rule": BOT_RULE, "secret": TOKEN,
    "placeholder": "123456789:lnkPlaceholder",
}  # fmt: skip


def test_a_kept_command_finds_its_routes_in_a_file_of_links(
    quiet: Outside, installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    script = "curl -s $LNK_SECRET_TELEGRAM/bot123456789:lnkPlaceholder/getMe"
    made = kept(installed, who, ["sh", "-c", script], ROUTE)
    assert_nothing_of_a_secret(json.dumps(made))
    file = Path(f"{who.home}/.lnk/sandbox/box.routes.json")
    assert json.loads(file.read_text())["routes"][0]["secret"] == TOKEN
    assert file.stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        done = quiet.run(who, made["argv"], environ=made["env"], cwd=folder)
        assert json.loads(done.stdout)["ok"], done.stderr
    file.chmod(0o640)
    done = quiet.run(who, made["argv"], environ=made["env"], cwd=folder)
    assert done.returncode == 125
    assert "isn't its user's alone; make the command anew with wrap" in done.stderr
    file.unlink()
    done = quiet.run(who, made["argv"], environ=made["env"], cwd=folder)
    assert done.returncode == 125
    assert "make the command anew" in done.stderr


@pytest.mark.parametrize("pointed", [True, False])
def test_a_program_without_a_wall_has_its_routes_too(
    quiet: Outside, installed: lnk.Installed, who: lnk.Account, folder: str, *, pointed: bool
) -> None:
    proxy = {"upstream": "direct", "dir": f"{who.home}/.lnk/wires/box", "hosts": [],
             "routes": [ROUTE], "caller": "callers-key-0123456789"}  # fmt: skip
    if not pointed:
        proxy["listen"] = 40781
    script = (
        "curl -s --noproxy '*' $LNK_SECRET_TELEGRAM/bot123456789:lnkPlaceholder/getMe; echo; env"
    )
    unwalled = {"name": "box", "proxy": proxy, "pointed": pointed}
    request = json.dumps({"unwalled": unwalled, "argv": ["sh", "-c", script]})
    made = json.loads(installed.run(who, "wrap", input=request).stdout)
    done = quiet.run(who, made["argv"], environ=made["env"], cwd=folder)
    answer, _, environ = done.stdout.partition("\n")
    assert json.loads(answer)["ok"], done
    assert_nothing_of_a_secret(json.dumps(made), done.stdout, done.stderr)
    assert "LNK_SECRET_TELEGRAM=http://127.0.0.1:" in environ
    Path(f"{who.home}/.lnk/sandbox/box.routes.json").unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_was_given_is_gone_with_a_signal(
    quiet: Outside, installed: lnk.Installed, who: lnk.Account, folder: str, number: int
) -> None:
    script = 'curl -s "$BOT_API/bot$BOT_TOKEN/getMe"; touch called; exec sleep 100'
    argv = run_argv(installed, "sh", "-c", script, flags=("--write", folder))
    with ended(quiet.start(who, argv, {"secrets": [BOT]}, cwd=folder)) as started:
        wait_for(Path(folder, "called"), started)
        below = list(processes(started.pid))
        os.kill(started.pid, number)
        _, err = started.communicate(timeout=150)
    assert started.returncode in (128 + number, -number), err
    until = time.monotonic() + 150
    while any(os.path.exists(f"/proc/{pid}") for pid in below):
        assert time.monotonic() < until
        select_nothing()
    assert_nothing_is_left(who)


def test_a_bridge_that_is_killed_is_started_again_and_its_call_is_a_502(
    quiet: Outside, installed: lnk.Installed, ordinary: lnk.Account, ordinary_folder: str
) -> None:
    folder = ordinary_folder
    script = """
    ask() { curl -s -o out -w '%{http_code}' "$BOT_API/bot$BOT_TOKEN/$1"; }
    ask getMe; touch called; while [ ! -e go ]; do sleep 0.1; done
    ask getMe; echo " again"
    (ask slow; echo " slow") & while [ ! -e gone ]; do sleep 0.1; done; wait
    ask getMe
    """
    hold: list[bytes] = []
    service = quiet.services[TELEGRAM]
    plain = service.answer

    def slowly(head: bytes, body: bytes) -> bytes:
        if b"/slow" in head:
            hold.append(head)
            while not Path(folder, "gone").exists():
                select_nothing()
        return plain(head, body)

    service.answer = slowly
    argv = run_argv(installed, "sh", "-c", script, flags=("--write", folder))
    try:
        with ended(quiet.start(ordinary, argv, {"secrets": [BOT]}, cwd=folder)) as started:
            wait_for(Path(folder, "called"), started)
            kill_bridge_of(started.pid)
            Path(folder, "go").touch()
            while not hold:
                select_nothing()
                assert started.poll() is None
            kill_bridge_of(started.pid)
            Path(folder, "gone").touch()
            out, err = started.communicate(timeout=150)
    finally:
        service.answer = plain
    assert out == "200200 again\n502 slow\n200", err
    assert err.count("the bridge secret ended; it is started again") == 2


def kill_bridge_of(pid: int) -> None:
    """Kill the bridge below a process, and wait until it is dead: until then it may be called."""
    (found,) = [pid for pid, line in processes(pid).items() if " bridge secret" in line]
    with open(os.pidfd_open(found)) as bridge:
        os.kill(found, signal.SIGKILL)
        assert select.select([bridge], [], [], 60)[0]


def test_a_proxy_by_itself_is_handed_its_routes(
    quiet: Outside, installed: lnk.Installed, who: lnk.Account, folder: str
) -> None:
    given = {"routes": [ROUTE], "caller": "callers-key-0123456789"}
    argv = installed.argv("proxy", "--listen", "127.0.0.1:0", "--no-internet", "--name", "alone",
                          "--log", folder, "--routes-handed", "ROUTES")  # fmt: skip
    command = ["sh", "-c", 'ROUTES="$0" exec "$@"', FD, *argv]
    with ended(quiet.start(who, command, given, cwd=folder)) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        assert line.startswith("listening on "), started.stderr.read()  # type: ignore[union-attr]
        url = f"http://{line.split()[-1]}/_link/secret/telegram/bot123456789:lnkPlaceholder/getMe"
        done = quiet.run(who, ["curl", "-s", "--noproxy", "*", url])
        assert json.loads(done.stdout)["ok"], done.stdout
        every = processes(started.pid)
        found = [line for pid, line in every.items() if holds(pid, TOKEN.encode())]
        started.terminate()
        assert started.wait(150) == 0
    assert len(found) == 1
    assert " bridge secret" in found[0]
    assert len(every) == 2


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (None, 2, "there is no such variable with a descriptor's number"),
        ({"routes": [{"kind": "open"}], "caller": "c" * 16}, 2, "secret: is missing"),
        ({"routes": [], "hots": 1}, 2, "hots: unknown key"),
        ({"routes": [ROUTE]}, 2, "caller: is missing"),
    ],
)
def test_routes_that_are_none_are_refused_and_not_shown(
    quiet: Outside,
    installed: lnk.Installed,
    ordinary: lnk.Account,
    given: object,
    code: int,
    told: str,
) -> None:
    argv = installed.argv("proxy", "--listen", "127.0.0.1:0", "--no-internet",
                          "--routes-handed", "ROUTES")  # fmt: skip
    command = ["sh", "-c", 'ROUTES="$0" exec "$@"', FD, *argv] if given else argv
    done = quiet.run(ordinary, command, given)
    assert done.returncode == code
    assert told in done.stderr
    assert_nothing_of_a_secret(done.stderr)


# Real programs.

BOT_PROGRAM = """
import asyncio, io, json, os, telegram
async def main():
    base, token = os.environ["BOT_API"], os.environ["BOT_TOKEN"]
    bot = telegram.Bot(token, base_url=base + "/bot", base_file_url=base + "/file/bot")
    async with bot:
        me = await bot.get_me()
        updates = await bot.get_updates(offset=1, timeout=1)
        sent = await bot.send_message(5, "hello " + "x" * 1000)
        document = await bot.send_document(5, io.BytesIO(b"data"), filename="a.txt")
        file = await bot.get_file("f")
        data = await file.download_as_bytearray()
        try:
            await bot.set_webhook("https://evil.test/")
            refused = "no"
        except telegram.error.TelegramError as error:
            refused = type(error).__name__
        print(json.dumps([me.username, updates[0].message.text, sent.message_id,
                          document.message_id, bytes(data).decode(), refused, str(file.file_path)]))
asyncio.run(main())
"""


def test_a_telegram_bot_works_with_its_token_outside(
    quiet: Outside,
    installed: lnk.Installed,
    ordinary: lnk.Account,
    ordinary_folder: str,
    bot_packages: str,
) -> None:
    words = ["env", f"PYTHONPATH={bot_packages}", lnk.public_python(), "-B", "-c", BOT_PROGRAM]
    argv = run_argv(installed, *words, flags=("--read", bot_packages))
    done = quiet.run(ordinary, argv, {"secrets": [BOT]}, cwd=ordinary_folder)
    assert done.returncode == 0, done.stderr
    assert_nothing_of_a_secret(done.stdout, done.stderr)
    told = json.loads(done.stdout)
    assert told[:5] == ["b_bot", "hello", 2, 3, "the file's bytes"]
    assert told[5] in ("Forbidden", "InvalidToken", "BadRequest")
    lines = [head.split(b"\r\n")[0] for head, _ in quiet.services[TELEGRAM].calls]
    assert all(TOKEN.encode() in line for line in lines)
    assert not [line for line in lines if b"ebhook" in line]


@pytest.fixture
def repository(ordinary_folder: str) -> str:
    """A bare repository on github.com's double."""
    root = os.path.join(ordinary_folder, "host")
    bare = os.path.join(root, "org", "repo.git")
    quiet = {"PATH": lnk.PATH, "HOME": root, "GIT_CONFIG_NOSYSTEM": "1"}
    os.makedirs(bare)
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", bare], env=quiet, check=True)
    subprocess.run(["git", "config", "http.receivepack", "true"], cwd=bare, env=quiet, check=True)
    GIT_HOST.root = root
    return bare


def test_git_clones_and_pushes_with_its_token_outside(
    quiet: Outside,
    installed: lnk.Installed,
    ordinary: lnk.Account,
    ordinary_folder: str,
    repository: str,
) -> None:
    work = os.path.join(ordinary_folder, "work")
    os.mkdir(work)
    os.chown(work, ordinary.uid, ordinary.gid)
    names = {f"GIT_{who}_{what}": "tests@example.com"
             for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    script = f"""set -e
    git clone -q https://{GITHUB}/org/repo.git repo && cd repo
    head -c 3000000 /dev/urandom > big && echo hi > small && git add . && git commit -q -m first
    git push -q origin HEAD:main
    cd .. && git clone -q https://{GITHUB}/old/repo.git again && cmp repo/big again/big
    git -C again log --format=%s; git -C again remote -v
    ! git -C again push -q https://{GITHUB}/../etc/passwd HEAD:main 2> said
    cat said; git config --list
    """
    given = {"env": names, "secrets": [GIT]}
    argv = run_argv(installed, "sh", "-c", script, flags=("--write", work))
    done = quiet.run(ordinary, argv, given, cwd=work)
    assert done.returncode == 0, done.stderr
    assert "first\n" in done.stdout
    assert_nothing_of_a_secret(done.stdout, done.stderr)
    shown = subprocess.run(["git", "log", "--format=%s", "main"], cwd=repository, check=True,
                           env={"PATH": lnk.PATH, "HOME": "/", "GIT_CONFIG_COUNT": "1",
                                "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
                           capture_output=True, text=True)  # fmt: skip
    assert shown.stdout == "first\n"
    heads = [head for head, _ in quiet.services[GITHUB].calls]
    assert heads
    assert all(f"Authorization: Basic {LOGIN}".encode() in head for head in heads)
