#!/usr/bin/env python3
"""A bridge of another plugin's: a counter that a sandbox may raise and read, and nothing more.

It imports nothing of Link's.  All it does by README's "Bridges" is:

1.  Descriptor 3 is a listening unix socket; each connection is one call, in HTTP/1.1.
2.  Standard input is one line of JSON with the caller's key, and ends with the wire: then
    this ends too.
3.  A call without that key is refused.

A route mounts it: {"kind": "bridge", "name": "count", "argv": ["/…/counting_bridge.py"],
"env": {"COUNT_URL": "{url}"}, "needs_secret": true}.
"""

import hmac
import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler

COUNTED = 0


class Call(BaseHTTPRequestHandler):
    """One call: GET reads the counter, POST raises it by what the body says."""

    protocol_version = "HTTP/1.1"
    caller = ""

    def setup(self):
        """Have http.server answer a unix socket, whose peers have no address."""
        self.client_address = ("", 0)
        super().setup()

    def parse_request(self):
        """Refuse whoever doesn't tell the caller's key."""
        if not super().parse_request():
            return False
        told = self.headers.get("Link-Caller", "")
        if hmac.compare_digest(told.encode(), self.caller.encode()):
            return True
        self.answer(403, {"error": "this bridge serves its proxy alone"})
        return False

    def do_GET(self):
        """Read it."""
        self.answer(200, {"count": COUNTED, "path": self.path, "for": self.headers["Link-Sandbox"]})

    def do_POST(self):
        """Raise it, by one to ten."""
        global COUNTED
        body = self.rfile.read(min(int(self.headers.get("Content-Length", "0")), 1000))
        by = int(body) if body.isdigit() and len(body) < 3 else 0
        if not 1 <= by <= 10:
            self.answer(403, {"error": "by one to ten"}, refused="the counter is raised by 1 to 10")
            return
        COUNTED += by
        self.answer(200, {"count": COUNTED})

    def answer(self, status, value, refused=None):
        """Say it, and close; a refusal is named for the wire's log."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if refused is not None:
            self.send_header("Link-Refused", refused)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing on stderr: the wire has a log."""


def main():
    """Serve until the wire ends."""
    told = json.loads(sys.stdin.buffer.readline())
    Call.caller = told["caller"]
    threading.Thread(target=leave_with_the_wire, daemon=True).start()
    door = socket.socket(fileno=3)
    while True:
        call, _ = door.accept()
        threading.Thread(target=serve, args=(call,), daemon=True).start()


def serve(call):
    """Serve one call."""
    with call:
        call.settimeout(60)
        Call(call, None, None)


def leave_with_the_wire():
    """Wait for the end of standard input, and end."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
