"""Pages that a sandbox asks to be opened, and a login's answer that comes in (R54)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, urlsplit

import pytest

import sandbox.linux
from tests.sandbox import lnk
from tests.sandbox.test_apart import Standing, held
from tests.sandbox.test_launcher import wait_for
from tests.sandbox.test_tools import Person

OPENED = """\
import json, os, subprocess, sys
found = []
for page in sys.argv[1:]:
    done = subprocess.run([*os.environ["BROWSER"].replace(" %s", "").split(), page],
                          capture_output=True, text=True)
    found.append([done.returncode, done.stderr.strip()])
print(json.dumps(found))
"""

LOGIN = """\
import json, os, socket, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
seen = []
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        seen.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>done</title>logged in")
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
server.timeout = 100
opener = subprocess.Popen([*os.environ["BROWSER"].replace(" %s", "").split(), sys.argv[1]])
server.handle_request()
print(json.dumps([opener.wait(), seen]), flush=True)
server.timeout = 2
server.handle_request()
print(json.dumps(seen), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def spec(ordinary: lnk.Account, ordinary_folder: str) -> str:
    path = f"{ordinary_folder}/pages.toml"
    with open(path, "w") as file:
        file.write("[desktop]\nopen = true\n")
    return path


def browser(who: lnk.Account, folder: str, script: str) -> dict[str, str]:
    """Return the environment of somebody whose browser is a script, which notes its pages."""
    path = f"{folder}/browser"
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\necho "$1" >>{folder}/opened\n{script}\n')
    os.chmod(path, 0o755)
    return who.environ | {"BROWSER": path}


def opened(folder: str) -> list[str]:
    path = f"{folder}/opened"
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().split()


def test_each_page_is_asked_about_whole_and_what_is_shown_opens(
    installed, ordinary, ordinary_folder, spec
):
    pages = ["https://bücher.example/ü?q=<b>", "https://other.example/", "file:///etc/passwd",
             "https://a:b@c.example/"]  # fmt: skip
    words = installed.argv("run", "--yes", "--spec", spec, "--", "/usr/bin/python3", "-c", OPENED)
    environ = browser(ordinary, ordinary_folder, f"ls /proc/self/fd >{ordinary_folder}/fds")
    with Person(installed, ordinary, {"xn--bcher": "yes", "other": "no"}) as person:
        done = lnk.run(ordinary, [*words, *pages], environ=environ)
    assert done.returncode == 0, done.stderr
    yes, no, file, login = json.loads(done.stdout)
    shown = "https://xn--bcher-kva.example/%C3%BC?q=%3Cb%3E"
    assert yes == [0, ""]
    assert no[0] == 1
    assert "refused to open the page" in no[1]
    assert "no http" in file[1]
    assert "password" in login[1]
    assert [one["text"].split("\n")[2].strip() for one in person.asked] == [
        shown, "https://other.example/",
    ]  # fmt: skip
    wait_for(lambda: opened(ordinary_folder) != [])
    assert opened(ordinary_folder) == [shown]
    fds = f"{ordinary_folder}/fds"
    wait_for(lambda: os.path.exists(fds) and os.path.getsize(fds) > 0)
    with open(fds) as file:
        assert file.read().split() == ["0", "1", "2", "3"], "the last one is the listing's own"


def test_without_the_key_there_is_no_way_to_open_a_page(installed, ordinary):
    script = "import os; print(os.environ.get('BROWSER'), os.environ.get('LNK_SANDBOX_OPEN'))"
    done = installed.run(ordinary, "run", "--yes", "--", "/usr/bin/python3", "-c", script)
    assert done.stdout == "None None\n"


def test_a_sandbox_that_reaches_a_held_proxy_asks_for_pages_by_it(
    installed, ordinary, ordinary_folder
):
    wire, page = f"{ordinary_folder}/wire", "https://xn--bcher-kva.example/"
    routes = {"routes": [{"kind": "open"}], "caller": "caller-key-0123456789"}
    proxy, led = held(installed, ordinary, wire, listen=40790, **routes)
    net = {"reaching": {"reached": [{"dir": wire, "port": 40790}], "ports": []}}
    made = installed.wrap(ordinary, ["/usr/bin/python3", "-c", OPENED, page], net=net)
    environ = browser(ordinary, ordinary_folder, "")
    with (
        Standing(ordinary, proxy, env=environ),
        Person(installed, ordinary, {"xn--bcher": "yes"}),
    ):
        done = lnk.run(ordinary, made["argv"], environ={**led, **made["env"]})
    assert json.loads(done.stdout) == [[0, ""]], done.stderr
    wait_for(lambda: opened(ordinary_folder) != [])
    assert opened(ordinary_folder) == [page]


def test_an_unwalled_program_asks_for_pages_by_its_proxy(installed, ordinary, ordinary_folder):
    page = "https://xn--bcher-kva.example/"
    ask = f"curl -sS -o /dev/null -w '%{{http_code}}' --data-binary {page} $LNK_SANDBOX_OPEN"
    proxy = {"upstream": "direct", "dir": "/unread", "hosts": [], "routes": [{"kind": "open"}],
             "caller": "caller-key-0123456789"}  # fmt: skip
    asked = {"unwalled": {"name": "bare", "proxy": proxy, "pointed": False},
             "argv": ["sh", "-c", ask]}  # fmt: skip
    made = json.loads(installed.run(ordinary, "wrap", input=json.dumps(asked)).stdout)
    environ = {**browser(ordinary, ordinary_folder, ""), **made["env"]}
    with Person(installed, ordinary, {"xn--bcher": "yes"}):
        done = lnk.run(ordinary, made["argv"], environ=environ)
    assert done.stdout == "200", done.stderr
    wait_for(lambda: opened(ordinary_folder) != [])
    assert opened(ordinary_folder) == [page]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class LoginPage(BaseHTTPRequestHandler):
    """A login that is done at once: it sends the browser back with a code."""

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "redirect_uri" not in asked:
            self.send_error(404)
            return
        self.send_response(302)
        self.send_header("Location", f"{asked['redirect_uri'][0]}?code=real-code&state=s")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@contextlib.contextmanager
def login_page() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), LoginPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/login?client_id=x&redirect_uri="
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def logging_in(
    installed: lnk.Installed, who: lnk.Account, spec: str, environ: dict[str, str], port: int,
    page: str,
) -> Iterator[subprocess.Popen[str]]:  # fmt: skip
    words = installed.argv("run", "--yes", "--spec", spec, "--", "/usr/bin/python3", "-c", LOGIN)
    run = lnk.popen(
        who, [*words, page, str(port)], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield run
    finally:
        run.terminate()
        run.wait()
        for stream in (run.stdin, run.stdout):
            if stream:
                stream.close()


def test_a_real_browser_logs_a_program_in_once(installed, ordinary, ordinary_folder, spec):
    flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    profile = f"--user-data-dir={ordinary_folder}/profile"
    command = f"chromium {flags} {profile} --timeout=90000 --dump-dom"
    if shutil.which("chromium") is None:
        command = "curl -sSL"  # a distribution that has no Chromium as a package
    environ = browser(ordinary, ordinary_folder, f'exec {command} "$1" >{ordinary_folder}/page')
    port = free_port()
    back = f"http://localhost:{port}/cb"
    with (
        login_page() as login,
        Person(installed, ordinary, {"open a page": "yes"}) as person,
        logging_in(installed, ordinary, spec, environ, port, login + quote(back, safe="")) as run,
    ):
        assert run.stdout
        status, seen = json.loads(run.stdout.readline())
        assert (status, seen) == (0, ["/cb?code=real-code&state=s"])
        assert f"localhost:{port}" in person.asked[0]["text"]
        # A second request doesn't arrive: nobody listens any more.
        until = time.monotonic() + lnk.LONG_S
        while (status := get(f"{back}?code=forged")) and time.monotonic() < until:
            assert status == 404
        assert status == 0
        assert json.loads(run.stdout.readline()) == seen
    until = time.monotonic() + lnk.LONG_S
    while "logged in" not in page_of(ordinary_folder) and time.monotonic() < until:
        time.sleep(0.1)
    assert "logged in" in page_of(ordinary_folder), "the program's answer reached the browser"


def page_of(folder: str) -> str:
    with contextlib.suppress(FileNotFoundError), open(f"{folder}/page") as file:
        return file.read()
    return ""


def get(url: str, **fields: str) -> int:
    """Return the status of a request, 0 where nobody listens."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=fields), timeout=lnk.LONG_S
        ) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def test_only_the_logins_own_answer_comes_in(installed, ordinary, ordinary_folder, spec):
    environ = browser(ordinary, ordinary_folder, "")
    port = free_port()
    at = f"http://localhost:{port}"
    page = f"https://login.example/?redirect_uri={quote(f'{at}/cb', safe='')}"
    with (
        Person(installed, ordinary, {"open a page": "yes"}),
        logging_in(installed, ordinary, spec, environ, port, page) as run,
    ):
        until = time.monotonic() + lnk.LONG_S
        while (status := get(f"{at}/favicon.ico")) == 0 and time.monotonic() < until:
            time.sleep(0.05)
        assert status == 404
        assert get(f"{at}/cb/../x?code=1") == 404
        assert get(f"{at}/cb?code=cors", **{"Sec-Fetch-Mode": "cors"}) == 404
        assert get(f"{at}/cb?code=rebound", Host="evil.test") == 404
        assert get(f"{at}/cb?code=good", **{"Sec-Fetch-Mode": "navigate"}) == 200
        assert get(f"{at}/cb?code=second") == 0
        assert run.stdout
        assert json.loads(run.stdout.readline()) == [0, ["/cb?code=good"]]
        assert json.loads(run.stdout.readline()) == ["/cb?code=good"]


def test_a_port_that_is_taken_is_refused_unasked(installed, ordinary, ordinary_folder, spec):
    environ = browser(ordinary, ordinary_folder, "")
    words = installed.argv("run", "--yes", "--spec", spec, "--", "/usr/bin/python3", "-c", OPENED)
    with contextlib.ExitStack() as stack:
        pages = []
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            sock = stack.enter_context(socket.socket(family))
            sock.bind((address, 0))
            uri = quote(f"http://localhost:{sock.getsockname()[1]}/", safe="")
            pages.append(f"https://login.example/?redirect_uri={uri}")
        person = stack.enter_context(Person(installed, ordinary, {}))
        done = lnk.run(ordinary, [*words, *pages], environ=environ)
    for status, said in json.loads(done.stdout):
        assert status == 1
        assert "is taken" in said
    assert person.asked == []
    assert opened(ordinary_folder) == []


def test_a_refused_page_holds_no_port(installed, ordinary, ordinary_folder, spec):
    environ = browser(ordinary, ordinary_folder, "")
    port = free_port()
    page = f"https://login.example/?redirect_uri=http://localhost:{port}/"
    words = installed.argv("run", "--yes", "--spec", spec, "--", "/usr/bin/python3", "-c", OPENED)
    with Person(installed, ordinary, {"open a page": "no"}) as person:
        done = lnk.run(ordinary, [*words, page, page], environ=environ)
    assert [status for status, _ in json.loads(done.stdout)] == [1, 1]
    assert len(person.asked) == 2
    assert opened(ordinary_folder) == []
    assert get(f"http://localhost:{port}/") == 0


def test_an_interrupt_while_it_waits_is_no_traceback() -> None:
    program = os.path.join(os.path.dirname(sandbox.linux.__file__), "open_page.py")
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        url = f"http://127.0.0.1:{proxy.getsockname()[1]}/_link/open"
        asks = subprocess.Popen(
            [sys.executable, "-I", "-S", program, "https://example.com/"],
            env={"LNK_SANDBOX_OPEN": url}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with asks:
            peer, _ = proxy.accept()
            with peer:
                peer.recv(1)  # it has asked, and waits
                asks.send_signal(signal.SIGINT)
                assert asks.communicate(timeout=lnk.LONG_S)[1] == ""
        assert asks.returncode == 1
