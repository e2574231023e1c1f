"""Real servers that write down each request as they read it: Node, nginx and Go.

Each is started on a loopback port of its own and writes one line a request, before it
answers, from which `seen` tells what it saw by the address that the client came from: each
exchange has a loopback address of its own (ports come round again).
"""

from __future__ import annotations

import getpass
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from fuzz.strategies_http import Seen

NODE = r"""
const server = require('http').createServer((request, answer) => {
  const pieces = [], peer = request.socket.remoteAddress
  request.on('data', piece => pieces.push(piece))
  request.on('end', () => {
    console.log(JSON.stringify({peer, method: request.method, target: request.url,
      host: request.headers.host, body: Buffer.concat(pieces).toString('hex')}))
    answer.end()
  })
})
server.listen({fd: 0})
"""

GO = r"""
package main

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, _ := net.FileListener(os.NewFile(0, ""))
	http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(400)
			return
		}
		peer, _, _ := net.SplitHostPort(r.RemoteAddr)
		line, _ := json.Marshal(map[string]any{"peer": peer, "method": r.Method,
			"target": r.RequestURI, "host": r.Host, "body": hex.EncodeToString(body)})
		os.Stdout.Write(append(line, '\n'))
	}))
}
"""

NGINX = r"""
daemon off;
user {user};
worker_processes 1;
pid nginx.pid;
error_log error.log;
events {{}}
http {{
  log_format seen '$remote_addr $status "$request_method" "$request_uri"'
    ' "$http_host" "$request_body"';
  large_client_header_buffers 4 64k;
  client_body_buffer_size 1m;
  client_body_in_single_buffer on;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port};
    access_log seen.log seen;
    location / {{ proxy_pass http://unix:{sink}:/; proxy_http_version 1.1; }}
  }}
  server {{ listen unix:{sink}; access_log off; return 204; }}
}}
"""

LAST = b"GET /last HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
WRITTEN_S = 60.0
_NGINX_LINE = re.compile(r'(\S+) (\d+) "(.*?)" "(.*?)" "(.*?)" "(.*?)"')
_HEX = re.compile(rb"\\x([0-9A-F]{2})")


class RealReader:
    """A server's process, the port it listens on, and what it writes down."""

    def __init__(
        self,
        listener: socket.socket,
        argv: list[str],
        environment: dict[str, str],
        lines: Callable[[bytes], list[tuple[str, Seen]]],
        log: Path,
    ) -> None:
        self.address = listener.getsockname()
        self._lines, self._log = lines, log
        self._numbers = itertools.count(1)
        with listener, log.open("wb") as output, (log.parent / "errors").open("wb") as errors:
            # The socket listens already: whoever connects waits until the server is up.
            self._process = subprocess.Popen(
                argv,
                stdin=listener.fileno(),
                stdout=output,
                stderr=errors,
                pass_fds=[listener.fileno()],
                cwd=log.parent,
                env=environment,
            )

    def exchange(self, data: bytes, *, whole: bool) -> tuple[str, list[int]]:
        """Send bytes on a connection of their own; return our address and the answers' statuses.

        `whole`: they hold a whole request, so that an answer is waited for.
        """
        number = next(self._numbers)
        ours = f"127.1.{number >> 8}.{number & 255}"
        with socket.create_connection(self.address, 60, (ours, 0)) as sock:
            sock.sendall(data)
            answer = b""
            # A request behind the first would have come with it, and is answered too before
            # our end, sent only now, makes the server close.
            while whole and not statuses_of(answer) and (piece := sock.recv(65536)):
                answer += piece
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                answer += piece
        return ours, statuses_of(answer)

    def seen(self) -> dict[str, list[Seen]]:
        """Return what the server has seen, by the client's address.

        nginx may write a line after it has answered and closed.  A last request of ours is
        behind all of them; once that is there, they are.
        """
        last, _ = self.exchange(LAST, whole=True)
        until = monotonic() + WRITTEN_S
        while True:
            seen: dict[str, list[Seen]] = {}
            whole, _, _ = self._log.read_bytes().rpartition(b"\n")
            for peer, request in self._lines(whole):
                seen.setdefault(peer, []).append(request)
            if last in seen:
                return seen
            assert monotonic() < until, "the last request is never written down"
            sleep(0.02)

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait(timeout=60)


def statuses_of(answer: bytes) -> list[int]:
    """Return the status of each final answer whose head is whole; none has a text for a body."""
    heads = re.findall(rb"HTTP/1\.[01] (\d{3}) [^\r]*\r\n(?:[^\r]+\r\n)*\r\n", answer)
    return [int(status) for status in heads if status != b"100"]


def start(name: str, folder: Path) -> RealReader:
    """Start one of the readers in a folder of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    log = folder / "seen.log"
    if name == "nginx":
        port = listener.getsockname()[1]
        (folder / "nginx.conf").write_text(
            NGINX.format(user=getpass.getuser(), port=port, sink=folder / "sink")
        )
        argv = [_found("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        return RealReader(listener, argv, {"NGINX": f"{listener.fileno()};"}, _nginx_lines, log)
    if name == "go":
        return RealReader(listener, [_built(folder)], {}, _json_lines, log)
    flags = ["--insecure-http-parser"] if name == "node, lenient" else []
    return RealReader(listener, [_found("node"), *flags, "-e", NODE], {}, _json_lines, log)


def _found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None, f"{program} is needed for this test"
    return path


def _built(folder: Path) -> str:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go: its toolchain isn't installed")
    (folder / "main.go").write_text(GO)
    environment = {**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "CGO_ENABLED": "0"}
    subprocess.run(
        [go, "build", "-o", "reader", "main.go"], cwd=folder, env=environment, check=True
    )
    return str(folder / "reader")


def _json_lines(text: bytes) -> list[tuple[str, Seen]]:
    seen = []
    for line in text.splitlines():
        each = json.loads(line)
        method, target, host = (each[key].encode() for key in ("method", "target", "host"))
        seen.append((each["peer"], Seen(method, target, host, bytes.fromhex(each["body"]))))
    return seen


def _nginx_lines(text: bytes) -> list[tuple[str, Seen]]:
    seen = []
    for line in text.decode().splitlines():
        match = _NGINX_LINE.fullmatch(line)
        assert match is not None, line
        peer, status, *values = match.groups()
        method, target, host, body = (
            _HEX.sub(lambda code: bytes.fromhex(code[1].decode()), value.encode())
            for value in values
        )
        if status != "400":
            seen.append((peer, Seen(method, target, host, body if body != b"-" else b"")))
    return seen
