"""A tool at a URL: `lnk sandbox mcp-remote` against real servers, with a token (R53)."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from proto.codecs.url import read_url
from sandbox.cli.flags import UsageError
from sandbox.cli.mcp_remote import Server, read_words
from tests.sandbox import lnk
from tests.sandbox.test_tools import CLIENT, Person

TOKEN = "tok-REAL-0123456789"
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "far"}}


class Far(BaseHTTPRequestHandler):
    """A server of MCP over HTTP, in a session, that wants a token; what it saw is on the server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append(("GET", dict(self.headers)))  # type: ignore[attr-defined]
        if self.headers.get("Last-Event-ID") == "begun":
            self._stream("later")
            return
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.loads(body)
        self.server.seen.append((message.get("method"), dict(self.headers)))  # type: ignore[attr-defined]
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._say(401, b"no", "text/plain")
            return
        method, id_ = message.get("method"), message.get("id")
        if id_ is None:
            self._say(202, b"", "text/plain")
        elif method == "initialize":
            begun = sum(method == "initialize" for method, _ in self.server.seen)  # type: ignore[attr-defined]
            self._answer(id_, WELCOME, session="far-session" if begun == 1 else "another")
        elif method == "tools/call" and message["params"]["name"] == "later":
            self._begin_stream()
            self.wfile.write(b"id: begun\nretry: 1\ndata:\n\n")
        elif (
            method == "tools/call"
            and message["params"]["name"] == "forgot"
            and self.headers["Mcp-Session-Id"] != "another"
        ):
            self._say(404, b"who?", "text/plain")
        elif method == "tools/call" and message["params"]["name"] == "moved":
            self._say(307, b"", "text/plain", location=self.server.elsewhere)  # type: ignore[attr-defined]
        elif method == "tools/call" and message["params"]["name"] == "stream":
            self._stream(id_)
        else:
            text = json.dumps(message["params"].get("arguments", {}))
            self._answer(id_, {"content": [{"type": "text", "text": text}]})

    def _answer(self, id_: object, result: object, session: str | None = None) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()
        more = {} if session is None else {"mcp_session_id": session}
        self._say(200, body, "application/json", **more)

    def _say(self, status: int, body: bytes, kind: str, **fields: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _stream(self, id_: object) -> None:
        self._begin_stream()
        told: list[dict[str, Any]] = [
            {"method": "notifications/message", "params": {"level": "info", "data": "x"}},
            {"id": id_, "result": {"content": [{"type": "text", "text": "streamed"}]}},
        ]
        for message in told:
            self.wfile.write(f"data: {json.dumps({'jsonrpc': '2.0'} | message)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def far(elsewhere: str = "") -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Far)
    server.seen = []  # type: ignore[attr-defined]
    server.elsewhere = elsewhere  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def link(ordinary: lnk.Account, ordinary_folder: str) -> str:
    """A program of Link's name, as one is installed; the bridge starts its own."""
    path = f"{ordinary_folder}/lnk-sandbox"
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 9\n")
    os.chmod(path, 0o755)
    return path


@contextmanager
def defined(installed: lnk.Installed, who: lnk.Account, link: str, *words: str) -> Iterator[str]:
    spec = f"{who.home}/far.toml"
    with open(spec, "w") as file:
        file.write('[tools]\nuse = ["notes"]\n')
    argv = [link, "sandbox", "mcp-remote", *words]
    flags = ["--allow", "near", "--allow", "stream", "--allow", "moved"]
    done = installed.run(who, "tool", "add", "notes", *flags, "--", *argv)
    assert done.returncode == 0, done.stderr
    try:
        yield spec
    finally:
        installed.run(who, "tool", "remove", "notes")


def test_a_tool_at_a_url_is_called_with_a_token_that_stays_outside(installed, ordinary, link):
    script = """
session = begin()
print(json.dumps([text(call(session, "near", a=1)), text(call(session, "far", b=2)),
                  text(call(session, "far", c=3)), text(call(session, "stream")),
                  text(call(session, "moved")), text(call(session, "near", d=4))]))
found = " ".join(f"{k}={v}" for k, v in os.environ.items())
for folder, _, files in os.walk("/proc"):
    for name in files:
        if name in ("environ", "cmdline"):
            try:
                found += open(f"{folder}/{name}", errors="replace").read()
            except OSError:
                pass
print("tok-REAL-0123456789" in found.replace("tok-REAL-0123456789\\"", ""))
"""
    header = f"Authorization: Bearer {TOKEN}"
    says = {'"b": 2': "yes", '"c": 3': "no"}
    with far() as there, far(f"http://127.0.0.1:{there.server_port}/mcp") as server:
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        with (
            defined(installed, ordinary, link, url, "--header", header) as spec,
            Person(installed, ordinary, says) as person,
        ):
            words = ["run", "--yes", "--spec", spec, "--", "/usr/bin/python3", "-c"]
            done = installed.run(ordinary, *words, CLIENT + script)
        assert done.returncode == 0, done.stderr
        near, yes, no, streamed, moved, after = json.loads(done.stdout.splitlines()[0])
        assert (near, yes, streamed, after) == ('{"a": 1}', '{"b": 2}', "streamed", '{"d": 4}')
        assert no["code"] == 403
        assert "redirects (307)" in moved["message"]
        assert len(person.asked) == 2
        seen = server.seen  # type: ignore[attr-defined]
        assert there.seen == []  # type: ignore[attr-defined]
    assert all(head["Authorization"] == f"Bearer {TOKEN}" for _, head in seen)
    assert [head.get("Mcp-Session-Id") for method, head in seen if method == "tools/call"] == [
        "far-session"
    ] * 5
    assert ("GET", "text/event-stream") in [(m, head.get("Accept")) for m, head in seen]


def started(installed: lnk.Installed, who: lnk.Account, *words: str) -> subprocess.Popen[str]:
    return lnk.popen(
        who, installed.argv("mcp-remote", *words), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_stream_that_ends_and_a_session_that_is_forgotten_end_no_call(installed, ordinary):
    with far() as server:
        url = f"http://localhost:{server.server_port}/mcp"
        run = started(installed, ordinary, url, "--header", f"Authorization: Bearer {TOKEN}")
        assert run.stdin
        assert run.stdout
        lines = [
            {"id": "begin", "method": "initialize", "params": {}},
            {"id": "later", "method": "tools/call", "params": {"name": "later"}},
            {"id": "forgot", "method": "tools/call", "params": {"name": "forgot"}},
        ]
        answers = {}
        for line in lines:
            run.stdin.write(json.dumps({"jsonrpc": "2.0"} | line) + "\n")
            run.stdin.flush()
            while line["id"] not in answers:
                said = json.loads(run.stdout.readline())
                answers[said.get("id")] = said
        assert run.communicate(timeout=lnk.LONG_S)[0] == ""
        assert run.returncode == 0
        seen = server.seen  # type: ignore[attr-defined]
    assert answers["later"]["result"]["content"][0]["text"] == "streamed"
    assert answers["forgot"]["result"]["content"][0]["text"] == "{}"
    calls = [(m, head.get("Mcp-Session-Id")) for m, head in seen if m != "GET"]
    assert [each for each in calls if each[0] != "notifications/initialized"] == [
        ("initialize", None), ("tools/call", "far-session"), ("tools/call", "far-session"),
        ("initialize", None), ("tools/call", "another"),
    ]  # fmt: skip


def test_it_is_a_stdio_server_by_itself(installed, ordinary):
    with far() as server:
        url = f"http://localhost:{server.server_port}/mcp"
        file = f"{ordinary.home}/header"
        with open(file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write("\nAuthorization: wrong\nX-Team: blue\n")
        os.chown(file, ordinary.uid, ordinary.gid)
        run = started(installed, ordinary, url, "--header-file", file, "--header", "X-More: 1")
        assert run.stdin
        assert run.stdout
        for id_ in (1, 2):
            run.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"}) + "\n")
        run.stdin.flush()
        found = [json.loads(run.stdout.readline()) for _ in (1, 2)]
        assert sorted(one["id"] for one in found) == [1, 2]
        assert all("401" in one["error"]["message"] for one in found)
        sent = server.seen[0][1]  # type: ignore[attr-defined]
        assert (sent["Authorization"], sent["X-Team"], sent["X-More"]) == ("wrong", "blue", "1")
        _, errors = run.communicate(timeout=lnk.LONG_S)
        assert (run.returncode, errors) == (0, "")


def test_a_server_that_isnt_there_is_an_error_and_no_end(installed, ordinary):
    with far() as server:
        port = server.server_port
    run = started(installed, ordinary, f"http://127.0.0.1:{port}/")
    assert run.stdin
    assert run.stdout
    run.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    run.stdin.flush()
    assert "could not be reached" in json.loads(run.stdout.readline())["error"]["message"]
    run.communicate(timeout=lnk.LONG_S)
    assert run.returncode == 0


def test_nothing_is_kept_of_a_call_that_has_ended(capfdbinary):
    with far() as there:
        server = Server(read_url(f"http://127.0.0.1:{there.server_port}/"), ())
        server._remote.line(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        server._perform()
        for thread in threading.enumerate():
            if thread.name.endswith("(_call)"):
                thread.join()
    assert b"401" in capfdbinary.readouterr().out
    assert [kept for kept in vars(server).values() if isinstance(kept, dict | set) and kept] == []


def test_a_call_that_was_taken_back_meanwhile_opens_no_connection(monkeypatch):
    server = Server(read_url("http://127.0.0.1:9/"), ())
    monkeypatch.setattr(Server, "_connect", lambda _: pytest.fail("it connected"))
    server._call(1, b"", 0.0)


@pytest.mark.parametrize(
    "words", [[], ["http://tools.example.com/"], ["--header", "a"], ["a", "b"]]
)
def test_what_cant_be_served_is_refused(installed, ordinary, words):
    done = installed.run(ordinary, "mcp-remote", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o600, "secret-token", "a line of --header-file"),
        (0o640, "A: secret-token", "isn't a file of yours alone: chmod 600 it"),
        (0o600, "A: secr\u00e9t", "holds no fields"),
        (0o600, "A: b\n" * 20_000, "holds no fields"),
        (0o600, "Host: secret-token", "no name"),
        (0o600, "Bearer secret-token:more", "no name"),
    ],
)
def test_a_file_of_fields_is_its_user_s_alone_and_is_never_shown(tmp_path, mode, text, why):
    file = tmp_path / "header"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(UsageError) as raised:
        read_words(["--header-file", str(file), "https://tools.example.com/mcp"])
    assert why in raised.value.message
    assert "secr" not in raised.value.message
    (tmp_path / "link").symlink_to(file)
    for path in (tmp_path / "link", tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="--header-file"):
            read_words(["--header-file", str(path), "https://tools.example.com/mcp"])


@pytest.mark.parametrize(
    ("field", "is_warned_of"),
    [("Authorization: Bearer secret-x", True), ("X-API-Key: secret-x", True), ("X-Team: b", False)],
)
def test_a_secret_on_a_command_line_is_warned_of(capsys, field, is_warned_of):
    words = ["--header", field, "https://tools.example.com/mcp"]
    _, fields = read_words(words)
    assert fields == (tuple(field.split(": ")),)
    said = capsys.readouterr().err
    assert ("--header-file FILE" in said) is is_warned_of
    assert "secret-x" not in said
    read_words(words, handed=True)  # a bridge hands them over, and no command line has them
    assert capsys.readouterr().err == ""


def test_help_is_printed(installed, ordinary):
    assert "lnk sandbox tool add docs" in installed.run(ordinary, "mcp-remote", "--help").stdout


def test_a_header_without_a_name_is_refused_and_not_shown():
    with pytest.raises(UsageError) as raised:
        read_words(["--header", "secret-token", "https://tools.example.com/mcp"])
    assert raised.value.message == "--header has no colon: write --header 'NAME: VALUE'."
