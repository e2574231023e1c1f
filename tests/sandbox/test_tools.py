"""Tools that run outside, called from inside a sandbox, by way of the product alone (R53)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sandbox import route, tools
from sandbox.errors import SandboxError
from sandbox.state import State
from tests.sandbox import lnk, tool_server
from tests.sandbox.test_launcher import alive, wait_for

CLIENT = """\
import json, os, sys, urllib.request, urllib.error, threading

URL = os.environ.get("LNK_TOOL_NOTES", "")
HEAD = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

def post(message, session=None, url=URL, method=None, **more):
    head = dict(HEAD, **more)
    if session:
        head["mcp-session-id"] = session
    data = None if message is None else json.dumps({"jsonrpc": "2.0"} | message).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, head, method=method), timeout=100
        ) as answer:
            body = answer.read().decode()
            return answer.status, answer.headers, messages(body)
    except urllib.error.HTTPError as error:
        return error.code, error.headers, messages(error.read().decode())

def messages(body):
    if body.startswith("{"):
        return [json.loads(body)]
    return [json.loads(l[6:]) for l in body.splitlines() if l.startswith("data: ")]

def begin():
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
    status, headers, _ = post({"id": 0, "method": "initialize", "params": params})
    assert status == 200, status
    session = headers["mcp-session-id"]
    assert post({"method": "notifications/initialized"}, session)[0] == 202
    return session

made = iter(range(1, 1000))
def call(session, name, _meta=None, **arguments):
    params = {"name": name, "arguments": arguments}
    if _meta:
        params["_meta"] = _meta
    return post({"id": next(made), "method": "tools/call", "params": params}, session)[2]

def text(found):
    last = found[-1]
    return last["result"]["content"][0]["text"] if "result" in last else last["error"]
"""


class Person:
    """Whoever answers the questions that come: each by what `says` has for its call."""

    def __init__(self, installed: lnk.Installed, who: lnk.Account, says: dict[str, str]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._folder = f"{who.home}/.lnk/sandbox/questions"
        self._others = self._names()  # of a test that has failed, say
        self._installed, self._who, self._says = installed, who, says
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._answer)

    def __enter__(self) -> Person:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _names(self) -> set[str]:
        names = os.listdir(self._folder) if os.path.isdir(self._folder) else ()
        return {name for name in names if name.endswith(".json")}

    def _answer(self) -> None:
        while not self._done.wait(0.05):
            for name in self._names() - self._others:
                if any(f"{q['id']}.json" == name for q in self.asked):
                    continue
                try:
                    with open(f"{self._folder}/{name}") as file:
                        one = json.load(file)
                except FileNotFoundError:
                    continue
                self.asked.append(one)
                said = next((s for word, s in self._says.items() if word in one["text"]), None)
                if said is not None:
                    self._installed.run(self._who, "answer", one["id"], said)


class Box:
    """A sandbox that may call the tool `notes`, and what its server was told."""

    def __init__(self, installed: lnk.Installed, who: lnk.Account, folder: str) -> None:
        self.installed, self.who, self.folder = installed, who, folder
        self.notes = f"{folder}/notes.log"
        self.spec = f"{folder}/spec.toml"
        with open(self.spec, "w") as file:
            file.write('[tools]\nuse = ["notes"]\n')
        os.chown(self.spec, who.uid, who.gid)

    def define(self, *flags: str, name: str = "notes") -> None:
        server = f"{self.folder}/tool_server.py"
        with open(tool_server.__file__) as source, open(server, "w") as file:
            file.write(source.read())
        done = self.installed.run(
            self.who, "tool", "add", name, *flags, "--", "python3", server, self.notes
        )
        assert done.returncode == 0, done.stderr

    def run(self, script: str, *, spec: str | None = None) -> subprocess.CompletedProcess[str]:
        words = ["run", "--yes", "--spec", spec or self.spec, "--", "/usr/bin/python3", "-c"]
        return self.installed.run(self.who, *words, CLIENT + script)

    def got(self) -> list[dict[str, Any]]:
        """Return the messages that the server got."""
        if not os.path.exists(self.notes):
            return []
        with open(self.notes) as file:
            return [json.loads(line) for line in file]

    def calls(self) -> list[str]:
        return [m["params"]["name"] for m in self.got() if m.get("method") == "tools/call"]


@contextmanager
def a_box(installed: lnk.Installed, who: lnk.Account, folder: str, *flags: str) -> Iterator[Box]:
    made = Box(installed, who, folder)
    made.define(*flags)
    try:
        yield made
    finally:
        done = installed.run(who, "tool", "remove", "notes")
    assert done.returncode == 0, done.stderr


ALLOWED = [word for tool in tool_server.TOOLS for word in ("--allow", tool["name"])]


def test_calls_go_out_allowed_asked_about_and_refused(installed, who, folder):
    script = """
session = begin()
print(json.dumps([text(call(session, "echo", a=1)), text(call(session, "save", b=2)),
                  text(call(session, "save", c=3))]))
"""
    says = {'"b": 2': "yes", '"c": 3': "no"}
    with a_box(installed, who, folder, "--allow", "echo") as box:
        with Person(installed, who, says) as person:
            done = box.run(script)
        assert done.returncode == 0, done.stderr
        echoed, saved, refused = json.loads(done.stdout)
        assert (echoed, saved, refused["code"]) == ('{"a": 1}', '{"b": 2}', 403)
        assert "person refused" in refused["message"]
        assert box.calls() == ["echo", "save"]
        assert len(person.asked) == 2
        assert all(one["sandbox"].startswith("run-") for one in person.asked)
        assert "changes nothing" not in person.asked[0]["text"]


def log_of(box: Box, name: str, began: str) -> list[tuple[str, str]]:
    """Return the verdicts and reasons of the calls of a sandbox's tool, call by call."""
    shown = box.installed.run(box.who, "log", name, "--json")
    lines = lnk.logged_since(shown.stdout, began)
    calls: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        assert (line["verb"], line["host"]) == ("tool", "notes")
        calls.setdefault(line["call"], []).append(line)
    assert all(each[0]["verdict"] == "allowed" for each in calls.values())
    return [(each[-1]["verdict"], each[-1]["reason"]) for each in calls.values()]


def test_the_log_says_what_was_refused_and_what_nobody_answered(
    installed, ordinary, ordinary_folder
):
    # The second's answer begins as a stream before anybody has said no, and the third is taken
    # back before that.
    script = """
session = begin()
text(call(session, "save", a=1))
params = {"name": "save", "arguments": {"b": 2}}
head = dict(HEAD, **{"mcp-session-id": session})
for number in (100, 101):
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    waits = urllib.request.urlopen(
        urllib.request.Request(URL, json.dumps(message).encode(), head), timeout=100)
    print("begun", flush=True)
    if number == 101:
        post({"method": "notifications/cancelled", "params": {"requestId": 101}}, session)
    print(json.dumps(messages(waits.read().decode())), flush=True)
text(call(session, "echo", d=4))
"""
    began = lnk.now()
    with a_box(installed, ordinary, ordinary_folder, "--allow", "echo") as box:
        command = installed.argv("run", "--yes", "--spec", box.spec, "--", "/usr/bin/python3")
        says: dict[str, str] = {'"a": 1': "no"}
        with Person(installed, ordinary, says) as person:
            run = lnk.popen(ordinary, [*command, "-c", CLIENT + script], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)  # fmt: skip
            assert run.stdout
            assert run.stdout.readline() == "begun\n"
            (waits,) = [one for one in person.asked if '"b": 2' in one["text"]]
            installed.run(ordinary, "answer", waits["id"], "no")
            rest, told = run.communicate(timeout=lnk.LONG_S)
        assert run.returncode == 0, told
        (refused,), begun, nothing = [json.loads(line) if line.startswith("[") else line
                                      for line in rest.splitlines()]  # fmt: skip
        assert (refused["error"]["code"], begun, nothing) == (403, "begun", [])
        assert box.calls() == ["echo"]
        found = log_of(box, person.asked[0]["sandbox"], began)
        no = ("refused", "the person refused the call.")
        taken_back = "the program took the call back before anybody had answered."
        assert found[2:] == [no, no, ("refused", taken_back), ("ended", "done"), ("ended", "done")]
        assert all(each == ("ended", "done") for each in found[:2])
        said = "lnk sandbox: the tool notes: the person refused the call.\n"
        assert told.count(said) == told.count("the tool notes") == 1


def test_the_program_agrees_to_nothing_in_its_persons_name(installed, ordinary, ordinary_folder):
    script = """
session = begin()
head = dict(HEAD, **{"mcp-session-id": session})
for content in ({"n": 1}, {"n": 2}):
    message = {"jsonrpc": "2.0", "id": next(made), "method": "tools/call",
               "params": {"name": "confirm", "arguments": {}}}
    waits = urllib.request.urlopen(
        urllib.request.Request(URL, json.dumps(message).encode(), head), timeout=100)
    while not (line := waits.readline()).startswith(b"data: "):
        pass
    asked = json.loads(line[6:])
    status, _, _ = post({"id": asked["id"], "result": {"action": "accept", "content": content}},
                        session)
    print(json.dumps([status, asked["params"]["message"], text(messages(waits.read().decode()))]))
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        with Person(installed, ordinary, {'"n": 1': "yes", '"n": 2': "no"}) as person:
            done = box.run(script)
        assert done.returncode == 0, done.stderr
        agreed, refused = [json.loads(line) for line in done.stdout.splitlines()]
        accepted = {"action": "accept", "content": {"n": 1}}
        assert agreed == [202, "Delete them all?", json.dumps(accepted)]
        assert refused == [202, "Delete them all?", json.dumps({"action": "decline"})]
        assert len(person.asked) == 2
        assert all('"message": "Delete them all?"' in one["text"] for one in person.asked)


def test_a_servers_hints_are_shown_once_it_has_listed(installed, ordinary, ordinary_folder):
    script = """
session = begin()
post({"id": "l", "method": "tools/list"}, session)
print(json.dumps(text(call(session, "save", b=2))))
"""
    with a_box(installed, ordinary, ordinary_folder) as box:
        with Person(installed, ordinary, {"save": "no"}) as person:
            assert box.run(script).returncode == 0
        assert "it may destroy" in person.asked[0]["text"]
        assert box.calls() == []


def test_a_server_runs_outside_with_nothing_of_the_sandboxs(installed, who, folder):
    script = """
session = begin()
print(text(call(session, "environ")))
"""
    with a_box(installed, who, folder, *ALLOWED) as box:
        done = box.run(script)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert set(found["environ"]) <= {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG",
                                         "LC_CTYPE"}  # fmt: skip
        assert found["cwd"] == f"{who.home}/.lnk/sandbox/work/notes"
        # Standard streams, and the listing itself: no descriptor of the bridge's or the proxy's.
        assert found["fds"] == ["0", "1", "2", "3"]
        wait_for(lambda: not alive({found["pid"]: "its server"}))  # it ends with the sandbox


def test_a_server_that_dies_is_there_for_the_next_call(installed, ordinary, ordinary_folder):
    script = """
session = begin()
print(json.dumps([text(call(session, "die")), text(call(session, "echo", a=1))]))
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        done = box.run(script)
        assert done.returncode == 0, done.stderr
        died, echoed = json.loads(done.stdout)
        assert (died["code"], echoed) == (-32603, '{"a": 1}')
        assert "the tool notes ended" in done.stderr
        assert "\\x1b" not in done.stderr


def test_a_server_that_says_what_would_fill_the_memory_is_ended(
    installed, ordinary, ordinary_folder
):
    script = """
session = begin()
found = [text(call(session, "parts", bytes=60 << 20)), text(call(session, "echo", a=1))]
print(json.dumps(found))
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        done = box.run(script)
        assert done.returncode == 0, done.stderr
        ended, echoed = json.loads(done.stdout)
        assert ended == {"code": -32603, "message": "the tool's server said more than is read."}
        assert echoed == '{"a": 1}'
        told = "lnk sandbox: the tool notes is ended, and the next call starts it again: the tool's"
        assert done.stderr.count(told) == 1


def test_progress_big_results_and_many_clients(installed, ordinary, ordinary_folder):
    script = """
session, other = begin(), begin()
found = call(session, "slow", _meta={"progressToken": 7})
print(json.dumps([m.get("params") for m in found[:-1]]))
print(len(text(call(session, "big", size=5_000_000))))
results = {}
def one(number):
    mine = (session, other)[number % 2]
    message = {"id": number // 2, "method": "tools/call",
               "params": {"name": "echo", "arguments": {"n": number}}}
    results[number] = text(post(message, mine)[2])
threads = [threading.Thread(target=one, args=(number,)) for number in range(100, 130)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(all(results[n] == json.dumps({"n": n}) for n in range(100, 130)), len(results))
print(post(None, session, method="DELETE")[0], post({"id": 1, "method": "ping"}, session)[0])
print(text(call(other, "echo", ok=1)))
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        done = box.run(script)
        assert done.returncode == 0, done.stderr
        progress, size, all_right, deleted, echoed = done.stdout.splitlines()
        assert [one["progress"] for one in json.loads(progress)] == [0, 1, 2]
        assert all(one["progressToken"] == 7 for one in json.loads(progress))
        assert (size, all_right, deleted) == ("5000000", "True 30", "204 404")
        assert echoed == '{"ok": 1}'
        assert [m["method"] for m in box.got()].count("initialize") == 1


def test_only_the_route_itself_leads_to_a_tool(installed, ordinary, ordinary_folder):
    script = """
session = begin()
where, _, name = URL.rpartition("/mcp/")
found = []
for url in (f"{where}/mcp/other", f"{where}x/mcp/notes", f"{where}/MCP/notes", f"{URL}/",
            f"{URL}/x", f"{where}/mcp/note%73", URL.replace("/s/", "/s//"), f"{URL}?x=1"):
    found.append(post({"id": 1, "method": "ping"}, session, url=url)[0])
found.append(post({"id": 1, "method": "ping"}, session, origin="http://localhost")[0])
print(found)
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        done = box.run(script)
        assert done.stdout == f"{[404] * 8 + [403]}\n", done.stderr
        assert [m["method"] for m in box.got()] == ["initialize", "notifications/initialized"]


def test_a_client_that_leaves_takes_its_question_back(installed, ordinary, ordinary_folder):
    script = """
import socket, time
session = begin()
host, port = URL.split("/")[2].split(":")
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                   "params": {"name": "save", "arguments": {}}}).encode()
sock = socket.create_connection((host, int(port)))
sock.sendall(f"POST {URL[7 + len(host) + 1 + len(port):]} HTTP/1.1\\r\\nHost: x\\r\\n"
             f"Mcp-Session-Id: {session}\\r\\nContent-Type: application/json\\r\\n"
             f"Content-Length: {len(body)}\\r\\n\\r\\n".encode() + body)
sys.stdin.readline()
sock.close()
time.sleep(60)
"""
    with a_box(installed, ordinary, ordinary_folder) as box:
        command = installed.argv("run", "--yes", "--spec", box.spec, "--", "/usr/bin/python3")
        run = lnk.popen(ordinary, [*command, "-c", CLIENT + script], stdin=subprocess.PIPE)
        try:
            until_waiting(ordinary, 1)
            assert run.stdin
            run.stdin.write("\n")
            run.stdin.flush()
            until_waiting(ordinary, 0)
        finally:
            run.terminate()
            run.wait()
            run.stdin.close()
        assert box.calls() == []


def test_a_program_that_asks_on_is_answered_for_its_person(installed, ordinary, ordinary_folder):
    script = """
session = begin()
print(json.dumps([text(call(session, "save", n=n)) for n in range(12)]))
"""
    with a_box(installed, ordinary, ordinary_folder) as box:
        with Person(installed, ordinary, {"save": "no"}) as person:
            done = box.run(script)
        found = json.loads(done.stdout)
        assert len(person.asked) == 10
        assert all(one["code"] == 403 for one in found)
        assert "too many" in found[11]["message"]
        assert box.calls() == []


def test_a_tool_that_a_sandbox_writes_is_refused(installed, ordinary, ordinary_folder):
    with a_box(installed, ordinary, ordinary_folder) as box:
        with open(box.spec, "a") as file:
            file.write(f'[files]\nwrite = ["{ordinary_folder}"]\n')
        done = box.run("")
        assert done.returncode == 125
        assert "whoever writes it would run outside" in done.stderr


def test_a_tool_that_isnt_defined_is_refused_by_name(installed, ordinary, ordinary_folder):
    spec = f"{ordinary_folder}/other.toml"
    with open(spec, "w") as file:
        file.write('[tools]\nuse = ["nobody"]\n')
    done = installed.run(ordinary, "run", "--yes", "--spec", spec, "--", "/bin/true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "tools.use" in done.stderr
    assert "lnk sandbox tool add nobody" in done.stderr


def test_a_program_that_reads_none_of_its_answers_fills_no_memory(
    installed, ordinary, ordinary_folder
):
    script = """
import socket
session = begin()
host, port = URL.split("/")[2].split(":")
socks = []
for number in range(24):
    body = json.dumps({"jsonrpc": "2.0", "id": f"b{number}", "method": "tools/call",
                       "params": {"name": "big", "arguments": {"size": 8_000_000}}}).encode()
    sock = socket.create_connection((host, int(port)))
    sock.sendall(f"POST {URL[7 + len(host) + 1 + len(port):]} HTTP/1.1\\r\\nHost: x\\r\\n"
                 f"Mcp-Session-Id: {session}\\r\\nContent-Type: application/json\\r\\n"
                 f"Content-Length: {len(body)}\\r\\n\\r\\n".encode() + body)
    socks.append(sock)
print(text(call(session, "echo", still=1)), flush=True)
sys.stdin.readline()
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        command = installed.argv("run", "--yes", "--spec", box.spec, "--", "/usr/bin/python3")
        run = lnk.popen(
            ordinary, [*command, "-c", CLIENT + script], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert run.stdout
            assert run.stdout.readline() == '{"still": 1}\n'
            assert memory_of(b"bridge\0tool", ordinary.uid) < 450 << 20
        finally:
            run.terminate()
            run.wait()
            for stream in (run.stdin, run.stdout):
                if stream:
                    stream.close()


def memory_of(words: bytes, uid: int) -> int:
    """Return the most that a process with these words in its command line has held, in bytes."""
    found = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}/cmdline").st_uid not in (uid, 0):
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if words not in file.read():
                    continue
            with open(f"/proc/{pid}/status") as file:
                status = dict(line.split(":", 1) for line in file)
            if int(status["Uid"].split()[0]) == uid:
                found = max(found, int(status["VmHWM"].split()[0]) * 1024)
    assert found, "no such process"
    return found


def test_a_tool_whose_program_has_gone_is_an_error(installed, ordinary, ordinary_folder):
    script = """
status, _, found = post({"id": 1, "method": "initialize", "params": {}})
print(json.dumps([status, found[0]["error"]["code"]]))
"""
    with a_box(installed, ordinary, ordinary_folder, *ALLOWED) as box:
        gone = f"{ordinary_folder}/gone"
        with open(gone, "w") as file:
            file.write("#!/bin/sh\n")
        os.chmod(gone, 0o755)
        installed.run(ordinary, "tool", "remove", "notes")
        added = installed.run(ordinary, "tool", "add", "notes", "--", gone)
        assert added.returncode == 0, added.stderr
        os.unlink(gone)
        done = box.run(script)
        assert json.loads(done.stdout) == [200, -32603]
        assert "can't be started" in done.stderr


def test_a_kept_command_has_its_tools_and_pages(installed, who, folder):
    box = Box(installed, who, folder)
    box.define(*ALLOWED)
    listed = installed.run(who, "tool", "list", "--json")
    route = {"kind": "tool"} | json.loads(listed.stdout)
    installed.run(who, "tool", "remove", "notes")
    proxy = {"upstream": "direct", "dir": f"{who.home}/wire", "hosts": [], "caller": "c" * 32,
             "routes": [route, {"kind": "open"}]}  # fmt: skip
    script = """
session = begin()
print(text(call(session, "echo", a=1)), "open_page.py" in os.environ["BROWSER"])
"""
    made = installed.wrap(
        who, ["/usr/bin/python3", "-c", CLIENT + script],
        net={"proxied": {"proxy": proxy, "ports": []}},
    )  # fmt: skip
    # No command line holds what a tool is started with, and each start has its own server.
    assert box.notes not in json.dumps(made)
    for _ in range(2):
        done = lnk.run(who, made["argv"], environ=made["env"])
        assert done.stdout == '{"a": 1} True\n', done.stderr


def until_waiting(who: lnk.Account, count: int) -> None:
    """Wait until so many questions wait."""
    folder = f"{who.home}/.lnk/sandbox/questions"
    until = time.monotonic() + lnk.LONG_S
    while True:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        if sum(name.endswith(".json") for name in names) == count:
            return
        assert time.monotonic() < until, names
        time.sleep(0.05)


# The definitions.


def test_tools_are_added_listed_and_removed(installed, who, folder):
    with a_box(installed, who, folder, "--allow", "echo", "--allow", "a.b/c"):
        assert "but echo, a.b/c" in installed.run(who, "tool", "list").stdout
    with a_box(installed, who, folder, "--allow", "echo", "--ask", "none"):
        listed = installed.run(who, "tool", "list", "--json")
        one = json.loads(listed.stdout)
        assert one["name"] == "notes"
        assert (one["ask"], one["allow"]) == ("none", ["echo"])
        assert one["argv"][0] == "/usr/bin/python3"
        assert list(one) == ["name", "argv", "ask", "allow"]
        file = f"{who.home}/.lnk/sandbox/tools/notes.json"
        assert os.stat(file).st_mode & 0o777 == 0o600
        assert "notes: /usr/bin/python3" in installed.run(who, "tool", "list").stdout
        again = installed.run(who, "tool", "add", "notes", "--", "true")
        assert (again.returncode, "already" in again.stderr) == (2, True)
    assert "No tool is defined" in installed.run(who, "tool", "list").stdout
    assert installed.run(who, "tool", "list", "--json").stdout == ""
    gone = installed.run(who, "tool", "remove", "notes")
    assert (gone.returncode, "lnk sandbox tool list names them" in gone.stderr) == (1, True)


@pytest.mark.parametrize("writes", [False, True])
def test_the_folder_of_a_removed_tool_goes_but_what_its_server_wrote_stays(
    installed, who, folder, writes
):
    work = f"{who.home}/.lnk/sandbox/work/kept"
    installed.run(who, "tool", "remove", "kept")  # which a try before may have left
    done = installed.run(who, "tool", "add", "kept", "--", "/usr/bin/true")
    assert done.returncode == 0, done.stderr
    for path in (os.path.dirname(work), work, f"{work}/notes" if writes else ""):
        if path and not os.path.exists(path):
            os.mkdir(path, 0o700)
            os.chown(path, who.uid, who.gid)
    done = installed.run(who, "tool", "remove", "kept")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.path.exists(work) is writes
    told = f"kept: removed; what its server wrote stays in {work}.\n"
    assert done.stdout == (told if writes else "")
    if writes:
        os.rmdir(f"{work}/notes")
        os.rmdir(work)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["add"], "which tool?"),
        (["add", "a"], "no program"),
        (["add", "A", "--", "true"], "tool.name"),
        (["add", "../a", "--", "true"], "tool.name"),
        (["add", "a", "--", "no-such-program"], "no program here"),
        (["add", "a", "--", "/etc/passwd"], "can't be run"),
        (["add", "a", "--", "/usr/bin"], "no program here"),
        (["add", "a", "--ask", "some", "--", "true"], "tool.ask"),
        (["add", "a", "--allow", "x\ty", "--", "true"], "tool.allow"),
        (["add", "a", "--unknown", "--", "true"], "--unknown"),
        (["remove"], "which tool?"),
        (["rename", "a"], "add, list or remove"),
        ([], "add, list or remove"),
    ],
)
def test_a_tool_that_cant_be_defined_is_refused_in_one_sentence(installed, ordinary, words, why):
    done = installed.run(ordinary, "tool", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--help"], ["add", "--help"], ["list", "--help"], ["remove", "--help"]]
)
def test_help_is_printed(installed, ordinary, words):
    done = installed.run(ordinary, "tool", *words)
    assert done.returncode == 0
    assert "lnk sandbox tool add notes" in done.stdout


def test_a_remote_tools_url_is_judged_when_it_is_added(installed, ordinary, ordinary_folder):
    link = f"{ordinary_folder}/lnk-sandbox"
    with open(link, "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod(link, 0o755)
    for words, why in (
        (["http://tools.example.com/"], "this machine"),
        (["https://u:p@tools.example.com/"], "password"),
        (["https://tools.example.com/", "--header", "Host: x"], "no name"),
        (["https://tools.example.com/", "--header", "Authorization"], "colon"),
        (["https://tools.example.com/", "https://b.example/"], "one URL"),
        ([], "one URL"),
    ):
        done = installed.run(
            ordinary, "tool", "add", "far", "--", link, "sandbox", "mcp-remote", *words
        )
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    good = ["https://tools.example.com/", "--header", "Authorization: Bearer x"]
    done = installed.run(ordinary, "tool", "add", "far", "--", link, "mcp-remote", *good)
    assert done.returncode == 0, done.stderr
    assert "lnk sandbox: everybody on this machine can read --header Authorization" in done.stderr
    installed.run(ordinary, "tool", "remove", "far")


def test_a_tool_s_token_comes_from_standard_input_or_a_file_and_is_kept(
    installed, ordinary, ordinary_folder
):
    link, file = f"{ordinary_folder}/lnk-sandbox", f"{ordinary_folder}/header"
    for path, text in ((link, "#!/bin/sh\n"), (file, "X-Token: t\n")):
        with open(path, "w") as opened:
            opened.write(text)
        os.chown(path, ordinary.uid, ordinary.gid)
    os.chmod(link, 0o755)
    os.chmod(file, 0o600)
    words = [link, "sandbox", "mcp-remote", "https://tools.example.com/", "--header-file", "-",
             "--header-file", file, "--header", "X-Team: blue"]  # fmt: skip
    done = installed.run(
        ordinary, "tool", "add", "far", "--", *words, input="Authorization: Bearer x\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    os.unlink(file)
    url = [link, "sandbox", "mcp-remote", "https://tools.example.com/"]
    with open(f"{ordinary.home}/.lnk/sandbox/tools/far.json") as opened:
        assert json.load(opened)["argv"] == [
            *url, "--header", "X-Team: blue",
            "--header", "Authorization: Bearer x", "--header", "X-Token: t",
        ]  # fmt: skip
    listed = json.loads(installed.run(ordinary, "tool", "list", "--json").stdout)
    assert listed["argv"] == [
        *url, "--header", "X-Team: …", "--header", "Authorization: …", "--header", "X-Token: …",
    ]  # fmt: skip
    installed.run(ordinary, "tool", "remove", "far")


def test_a_route_of_what_is_listed_has_its_fields_again(installed, ordinary, ordinary_folder):
    link = f"{ordinary_folder}/lnk-sandbox"
    with open(link, "w") as opened:
        opened.write("#!/bin/sh\n")
    os.chmod(link, 0o755)
    words = [link, "sandbox", "mcp-remote", "https://tools.example.com/", "--header-file", "-"]
    token = "Authorization: Bearer x-token-4d0c8f"
    installed.run(ordinary, "tool", "add", "far", "--", *words, input=f"{token}\n")
    listed = json.loads(installed.run(ordinary, "tool", "list", "--json").stdout)
    proxy = {"upstream": "direct", "dir": f"{ordinary.home}/wire", "hosts": [],
             "caller": "c" * 32, "routes": [{"kind": "tool", **listed}]}  # fmt: skip
    confined = {"name": "box", "write": [], "read": [], "commands": "any",
                "net": {"proxied": {"proxy": proxy, "ports": []}}}  # fmt: skip
    unwalled = {"name": "bare", "proxy": proxy, "pointed": True}
    asked = {"confinement.net.proxied": ("box", {"confinement": confined, "argv": ["true"]}),
             "unwalled": ("bare", {"unwalled": unwalled, "argv": ["true"]})}  # fmt: skip
    for name, request in asked.values():
        done = installed.run(ordinary, "wrap", input=json.dumps(request))
        assert done.returncode == 0, done.stderr
        assert "4d0c8f" not in done.stdout
        with open(f"{ordinary.home}/.lnk/sandbox/{name}.routes.json") as routes:
            assert json.load(routes)["routes"][0]["argv"][-1] == token
    installed.run(ordinary, "tool", "remove", "far")
    for another in ([], [*words[:3], "https://other.example.com/", *words[4:]]):
        if another:
            installed.run(ordinary, "tool", "add", "far", "--", *another, input=f"{token}\n")
        for place, (_, request) in asked.items():
            done = installed.run(ordinary, "wrap", input=json.dumps(request))
            said = f"{place}.proxy.routes[0].argv: isn't how far is defined by now; take it anew"
            assert (done.returncode, done.stdout) == (2, "")
            assert said in done.stderr
    installed.run(ordinary, "tool", "remove", "far")


def test_a_command_is_found_as_a_shell_finds_it(tmp_path):
    program = tmp_path / "p"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(SandboxError):
        tools.found("p", f":{tmp_path}")
    program.chmod(0o755)
    assert tools.found("p", f"relative:/nowhere:{tmp_path}") == str(program)
    assert tools.found(str(program), "") == str(program)


def test_a_tools_file_is_read_strictly(tmp_path):
    state = State(str(tmp_path / "lnk"))
    assert tools.load(state, "../x") is None
    state.write(
        b'{"name":"a","argv":["/bin/true"],"ask":"all","allow":[],"x":1}', "tools", "a.json"
    )
    with pytest.raises(SandboxError, match="unknown key"):
        tools.load(state, "a")
    state.write(b'{"name":"b","argv":["true"],"ask":"all","allow":[]}', "tools", "b.json")
    with pytest.raises(SandboxError, match=r"argv\[0\]: isn't an absolute path.*remove b takes"):
        tools.load(state, "b")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/usr/bin/lnk", "sandbox", "mcp-remote", "https://a/"], ["https://a/"]),
        (["/x/lnk-sandbox", "mcp-remote", "u", "--header", "a: b"], ["u", "--header", "a: b"]),
        (["/x/lnk-sandbox", "sandbox", "run"], None),
        (["/usr/bin/npx", "mcp-remote", "https://a/"], None),
    ],
)
def test_links_own_mcp_remote_is_known(argv, words):
    assert route.remote_words(argv) == words
    assert sys.version_info
