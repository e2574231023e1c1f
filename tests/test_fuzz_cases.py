"""The case runner: the real files hold, and what is wrong is told, whatever it is."""

from __future__ import annotations

import base64
import copy
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fuzz import case_http_head, cases
from fuzz.case_files import Case, Suite, load, segments, ways
from fuzz.cases import SUITES, main, suite_of, try_case
from proto.calls import serve
from proto.policy.target import Target

HERE = Path(__file__).parent
COPIES = HERE / "cases"
SHARED = HERE.parent.parent / "shared" / "cases"
HTTP, HOSTS, HELLO, MCP, MODEL, SECRET, LOCAL, DNS, *_ = SUITES


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def real_files() -> Iterator[Path]:
    """The copies, our own `more_…`, and beside a clone the originals that have changed."""
    for copied in sorted(COPIES.glob("*.jsonl")):
        yield copied
        original = SHARED / copied.name
        if original.exists() and original.read_bytes() != copied.read_bytes():
            yield original


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "path", list(real_files()), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_case_of_the_files_holds(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    differ = main(["--seeds", "2", str(path)])
    assert not differ, capsys.readouterr().out


def refused_heads() -> Iterator[Case]:
    """The heads of all files that are refused by themselves, alone on their connection."""
    for path in sorted(COPIES.glob("*http_head.jsonl")):
        for case in load(path):
            expect, config = case["expect"], case["config"]
            alone = expect["verdict"] == "refuse" and not expect.keys() & {"stage", "also_ok"}
            listed = config["hosts"] is None or "example.com" in config["hosts"]
            short = sum(map(len, segments(case))) <= 20_000
            if alone and listed and short and not {"pointed_secret"} & config.keys():
                yield case


def test_what_is_refused_alone_is_refused_behind_a_good_request() -> None:
    good = b"GET http://example.com/first HTTP/1.1\r\nHost: example.com\r\n\r\n"
    request = {"form": "absolute", "method": "GET", "host": "example.com", "port": 80}
    differing = []
    alone = list(refused_heads())
    assert len(alone) > 500
    for case in alone:
        behind = {key: case[key] for key in ("id", "kind", "config", "why", "source")}
        behind["input_b64"] = b64(good + b"".join(segments(case)))
        behind["expect"] = {
            "verdict": "accept",
            "request": request,
            "upstream": {"target": "/first"},
            "after": "refuse_or_close",
        }
        report = try_case(HTTP, behind, 1)
        differing += [(case["id"], report.differing)] if report.differing else []
    assert differing == []


# Small cases that are right, and for each field of an outcome what makes them wrong.

TUNNEL: Case = {
    "id": "t-1",
    "kind": "after_head",
    "input_b64": b64(b"CONNECT example.com:22 HTTP/1.1\r\nHost: example.com:22\r\n\r\nabc"),
    "config": {"hosts": ["example.com"]},
    "expect": {
        "verdict": "accept",
        "request": {"form": "connect", "method": "CONNECT", "host": "example.com", "port": 22},
        "tunnel_b64": b64(b"abc"),
        "never_dials": ["evil.test"],
    },
    "why": "a tunnel",
    "source": "here",
}
POST: Case = {
    "id": "t-2",
    "kind": "valid",
    "input_b64": b64(
        b"POST http://example.com:8080/x HTTP/1.1\r\nHost: example.com:8080\r\nX-A: 1\r\n"
        b"Content-Length: 5\r\n\r\nhello"
    ),
    "config": {"hosts": ["example.com"]},
    "expect": {
        "verdict": "accept",
        "request": {"form": "absolute", "method": "POST", "host": "example.com", "port": 8080},
        "upstream": {
            "method": "POST",
            "target": "/x",
            "host": ["example.com:8080"],
            "has": {"x-a": "1"},
            "lacks": ["proxy-connection"],
        },
        "body": {"framing": "length", "data_b64": b64(b"hello"), "length": 5},
        "client": {"status": 200, "body_b64": b64(b"ok"), "content_length": 2, "lacks": ["x-b"]},
        "after": "close",
    },
    "why": "a plain request",
    "source": "here",
}
REFUSED: Case = {
    "id": "t-3",
    "kind": "proxy_auth",
    "input_b64": b64(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"),
    "config": {"hosts": ["example.com"], "pointed_secret": "s3cretS3cretS3cret"},
    "expect": {
        "verdict": "refuse",
        "status": [407],
        "or_close": False,
        "answer_has": ["proxy-authenticate"],
    },
    "why": "no secret",
    "source": "here",
}
HALF_BODY: Case = {
    "id": "t-4",
    "kind": "chunk",
    "input_b64": b64(
        b"POST http://example.com/x HTTP/1.1\r\nHost: example.com\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel"
    ),
    "eof": True,
    "config": {"hosts": ["example.com"]},
    "expect": {
        "verdict": "refuse",
        "stage": "body",
        "status": [400],
        "or_close": False,
        "upstream_complete": False,
    },
    "why": "a chunk that isn't whole",
    "source": "here",
}
BAD_ANSWER: Case = {
    "id": "t-5",
    "kind": "response",
    "input_b64": b64(b"GET http://example.com/r HTTP/1.1\r\nHost: example.com\r\n\r\n"),
    "upstream_b64": b64(b"SSH-2.0\r\n"),
    "upstream_closes": True,
    "config": {"hosts": None},
    "expect": {"verdict": "refuse", "stage": "response", "status": [502], "or_close": True},
    "why": "no HTTP",
    "source": "here",
}
CUT_SHORT: Case = BAD_ANSWER | {
    "id": "t-6",
    "upstream_b64": b64(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"),
    "expect": {"verdict": "accept", "client": {"status": 200, "complete": False}},
}
SAME_STATUS: Case = BAD_ANSWER | {
    "id": "t-15",
    "upstream_b64": b64(b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
}
SERVERS_ERROR: Case = BAD_ANSWER | {
    "id": "t-16",
    "upstream_b64": b64(b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\nhello"),
    "expect": {"verdict": "accept", "client": {"status": 502, "body_b64": b64(b"hello")}},
}
PIPELINED: Case = {
    "id": "t-7",
    "kind": "after_head",
    "input_b64": b64(
        b"GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n"
        b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    ),
    "config": {"hosts": ["example.com"]},
    "expect": {
        "verdict": "accept",
        "request": {"form": "absolute", "method": "GET", "host": "example.com", "port": 80},
        "after": "refuse_or_close",
        "never_dials": ["evil.test"],
    },
    "why": "two requests",
    "source": "here",
}
TWO_SERVED: Case = PIPELINED | {
    "id": "t-8",
    "config": {"hosts": ["example.com", "evil.test"]},
    "expect": {"verdict": "accept", "after": "own_connection_or_close"},
}
SAME_HOST: Case = PIPELINED | {
    "id": "t-8a",
    "input_b64": b64(b"GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n" * 2),
    "expect": {"verdict": "accept", "after": "own_connection_or_close"},
}
TUNNEL_BEHIND: Case = PIPELINED | {
    "id": "t-8b",
    "input_b64": b64(
        b"GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n"
        b"CONNECT example.com:22 HTTP/1.1\r\nHost: example.com:22\r\n\r\nSSH-2.0-x\n\n"
    ),
    "expect": {"verdict": "accept", "after": "own_connection_or_close"},
}
ASKED_AGAIN: Case = REFUSED | {
    "id": "t-8c",
    "input_b64": b64(
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n"
        b"Proxy-Authorization: Basic bG5rOnMzY3JldFMzY3JldFMzY3JldA==\r\n\r\n"
    ),
    "expect": {
        "verdict": "refuse",
        "status": [407],
        "answer_has": ["Proxy-Authenticate"],
        "after": "own_connection_or_close",
    },
}
SWITCHED: Case = {
    "id": "t-8d",
    "kind": "response",
    "input_b64": b64(
        b"GET http://example.com/ws HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\n\r\nframe"
    ),
    "config": {"hosts": ["example.com"]},
    "upstream_b64": b64(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi"
    ),
    "expect": {"verdict": "accept", "client": {"status": 101, "body_b64": b64(b"hi")}},
    "why": "both sides agree to a WebSocket",
    "source": "here",
}
AN_ADDRESS_OF_V6: Case = TUNNEL | {
    "id": "t-8e",
    "input_b64": b64(b"CONNECT [2001:DB8:0::10]:22 HTTP/1.1\r\nHost: [2001:db8::10]:22\r\n\r\n"),
    "config": {"hosts": ["2001:db8::10"]},
    "expect": {"verdict": "accept", "request": {"host": "2001:db8:0:0::10", "port": 22}},
}
TARGET: Case = {
    "id": "t-9",
    "kind": "rebinding",
    "input": "listed.test:8080",
    "config": {
        "hosts": ["listed.test"],
        "dns": {"listed.test": {"cname": "other.test", "addresses": ["10.0.0.5", "203.0.113.10"]}},
    },
    "expect": {
        "verdict": "accept",
        "host": "listed.test",
        "port": 8080,
        "asks": ["listed.test"],
        "dials": ["203.0.113.10"],
        "never_dials": ["10.0.0.5"],
    },
    "why": "one address of two",
    "source": "here",
}
ANY_HOST: Case = TARGET | {
    "id": "t-9a",
    "config": {"hosts": ["*"], "dns": {"listed.test": ["::ffff:203.0.113.10"]}},
    "expect": {"verdict": "accept", "dials": ["::ffff:203.0.113.10"]},
}
SECOND_ANSWERS: Case = TARGET | {
    "id": "t-9c",
    "config": {
        "hosts": ["listed.test"],
        "dns": {"listed.test": ["203.0.113.9", "203.0.113.10"]},
        "connect_fails": ["203.0.113.9"],
    },
    "expect": {"verdict": "accept", "dials": ["203.0.113.10"]},
}
NO_ENTRY: Case = TARGET | {
    "id": "t-9b",
    "config": {"hosts": ["*listed.test"], "lan": ["listed.test"], "tcp": ["*:8080"]},
    "expect": {"verdict": "refuse", "status": [403], "asks": []},
}
UNLISTED: Case = TARGET | {
    "id": "t-10",
    "kind": "list_match",
    "input": "other.test:443",
    "expect": {"verdict": "refuse", "status": [403], "asks": []},
}
HELLO_BYTES = next(segments(case)[0] for case in load(COPIES / "client_hello.jsonl"))
HELLO_CASE: Case = {
    "id": "t-11",
    "kind": "real",
    "input_b64": b64(HELLO_BYTES),
    "config": {"connect": "example.com:443", "hosts": ["example.com"]},
    "expect": {"verdict": "accept", "sni": "example.com"},
    "why": "a hello",
    "source": "here",
}
NO_HELLO: Case = HELLO_CASE | {
    "id": "t-12",
    "kind": "not_tls",
    "input_b64": b64(b"SSH-2.0-x\r\n"),
    "expect": {"verdict": "refuse"},
}
HALF_HELLO: Case = HELLO_CASE | {
    "id": "t-13",
    "kind": "cut",
    "input_b64": b64(HELLO_BYTES[:40]),
    "expect": {"verdict": "wait"},
}
NOT_READ: Case = NO_HELLO | {
    "id": "t-14",
    "kind": "not_read",
    "config": {"connect": "example.com:22", "hosts": ["example.com"]},
    "expect": {"verdict": "accept", "sni": None},
}

SILENT: Case = NOT_READ | {"id": "t-14a", "input_b64": ""}
ENDED: Case = SILENT | {"id": "t-14b", "eof": True}
OTHER_LETTERS: Case = TARGET | {
    "id": "t-9d",
    "config": {"hosts": ["listed.test"], "dns": {"Listed.TEST.": ["203.0.113.10"]}},
    "expect": {"verdict": "accept", "asks": ["Listed.test."], "dials": ["203.0.113.10"]},
}
BEYOND_ASCII: Case = POST | {
    "id": "t-2a",
    "input_b64": b64(
        b"GET http://example.com/x HTTP/1.1\r\nHost: example.com\r\n"
        b"X-A: \xc3\xa9\r\nX-B: \xe9\r\n\r\n"
    ),
    "expect": {
        "verdict": "accept",
        "request": {"host": "example.com", "port": 80},
        "upstream": {"has": {"x-a": "\u00e9", "x-b": "\u00e9"}},
        "asks": ["example.com"],
    },
}
A_LENGTH: Case = BAD_ANSWER | {
    "id": "t-5a",
    "input_b64": b64(b"HEAD http://example.com/r HTTP/1.1\r\nHost: example.com\r\n\r\n"),
    "upstream_b64": b64(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    "expect": {"verdict": "accept", "client": {"status": 200, "content_length": "5"}},
}
NO_LENGTH: Case = A_LENGTH | {
    "id": "t-5b",
    "upstream_b64": b64(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "expect": {"verdict": "accept", "client": {"status": 204, "content_length": None}},
}

A_MODELS: Case = {
    "id": "t-h1",
    "kind": "plain",
    "input": {
        "method": "POST",
        "path": "/v1/messages?beta=true",
        "headers": [["x-api-key", "lnk-placeholder"], ["content-type", "application/json"]],
        "body": '{"model":"m","messages":[],"tools":[{"type":"web_search_20250305","name":"w"}]}',
    },
    "config": {
        "provider": "anthropic",
        "placeholder": "lnk-placeholder",
        "key": "sk-real-key",
        "hosts": ["example.com"],
        "server_tools": False,
    },
    "answer": {"status": 401, "headers": [["x-echo", "sk-real-key"]], "body": "no sk-real-key"},
    "expect": {
        "verdict": "accept",
        "upstream": {
            "host": "api.anthropic.com",
            "method": "POST",
            "path": "/v1/messages?beta=true",
            "has": {"x-api-key": "sk-real-key"},
            "lacks": ["authorization"],
            "nowhere": ["lnk-placeholder"],
        },
        "bodies": [{"model": "m", "messages": [], "tools": []}, {"model": "m", "messages": []}],
        "body_lacks": ["sk-real-key"],
        "client": {"status_any": [401], "body": "no ***********", "nowhere": ["sk-real-key"]},
        "never_dials": ["evil.test"],
    },
    "why": "a call to a hosted model",
    "source": "here",
}
NO_MODELS: Case = A_MODELS | {
    "id": "t-h2",
    "kind": "path",
    "input": A_MODELS["input"] | {"path": "/v1/files"},
    "expect": {"verdict": "refuse", "status": [404]},
}

NO_ANSWER: Case = A_MODELS | {
    "id": "t-h3",
    "kind": "redirect",
    "answer": {"status": 302, "headers": [["location", "https://evil.test/"]], "body": ""},
    "expect": {"verdict": "refuse", "stage": "response", "status": [502]},
}

ANY_MODEL: Case = A_MODELS | {
    "id": "t-h4",
    "kind": "search_model",
    "input": {
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [
            ["authorization", "Bearer lnk-placeholder"],
            ["content-type", "application/json"],
            ["transfer-encoding", "chunked"],
            ["host", "localhost"],
        ],
        "body_b64": b64(b'{"model":"gpt-4o-search-preview","messages":[]}'),
    },
    "config": A_MODELS["config"] | {"provider": "openai", "hosts": ["*"]},
    "answer": {"status": 200, "headers": [["content-length", "2"]], "body_b64": b64(b"{}")},
    "expect": {"verdict": "accept", "client": {"status_any": [200], "body": "{}"}},
    "why": "any host, and what the case frames itself",
}
BARE_ANSWER: Case = A_MODELS | {
    "id": "t-h5",
    "kind": "plain",
    "answer": {"status": 204},
    "expect": {"verdict": "accept", "client": {"status_any": [204], "body": ""}},
    "why": "an answer of a status alone",
}

A_SECRETS: Case = {
    "id": "t-s1",
    "kind": "valid",
    "input": {
        "method": "POST",
        "target": "/_link/secret/bot/bot7:lnkPlaceholder/send?x=1",
        "headers": [["content-type", "text/plain"]],
        "body": "hi",
    },
    "config": {
        "secrets": {
            "bot": {
                "rule": {
                    "host": "api.example.com",
                    "paths": ["/bot{secret}/{name}"],
                    "refused": ["/bot{secret}/close"],
                },
                "placeholder": "7:lnkPlaceholder",
                "secret": "7:a-real-secret",
            }
        }
    },
    "answer": {"status": 404, "headers": [], "body": "no /bot7:a-real-secret/send"},
    "expect": {
        "verdict": "accept",
        "upstream": {
            "host": "api.example.com",
            "method": "POST",
            "path": "/bot7:a-real-secret/send?x=1",
            "has": {"content-type": "text/plain"},
            "lacks": ["link-caller"],
            "nowhere": ["lnkPlaceholder"],
            "body": "hi",
        },
        "body_lacks": ["real"],
        "client": {"status_any": [404], "nowhere": ["a-real-secret"]},
        "never_dials": ["evil.test"],
    },
    "why": "a call with a secret",
    "source": "here",
}
NO_SECRETS: Case = A_SECRETS | {
    "id": "t-s2",
    "kind": "refused_name",
    "input": A_SECRETS["input"] | {"target": "/_link/secret/bot/bot7:lnkPlaceholder/CLOSE"},
    "expect": {"verdict": "refuse", "status": [403]},
}
A_RULE: Case = {
    "id": "t-s3",
    "kind": "rule",
    "input": {"rule": {"host": "a.example", "paths": ["/{path}"]}},
    "expect": {"verdict": "refuse", "at": "wrap"},
    "why": "a rule without a place for its secret",
    "source": "here",
}
A_LOCAL: Case = {
    "id": "t-l1",
    "kind": "inference",
    "way": "relay",
    "input": "POST /api/chat HTTP/1.1\r\nHost: localhost:11434\r\nX-A: 1\r\n"
    "Content-Length: 2\r\n\r\n{}GET /api/tags HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "config": {"local_ports": [11434], "url_secret": "s" * 20},
    "expect": {
        "verdict": "accept",
        "port": 11434,
        "upstream": {
            "method": "POST",
            "target": "/api/chat",
            "host": ["localhost:11434"],
            "has": {"X-A": "1"},
            "lacks": ["X-B"],
        },
        "body": {"framing": "length", "data_b64": b64(b"{}")},
        "after": "close",
        "never_dials": ["evil.test"],
    },
    "why": "a call to a local model, and another behind it",
    "source": "here",
}
BY_THE_PROXY: Case = A_LOCAL | {
    "id": "t-l2",
    "kind": "proxy_path",
    "way": "proxy",
    "input": f"GET /_link/s/{'s' * 20}/local/11434/api/tags HTTP/1.1\r\nHost: a\r\n\r\n",
    "expect": {
        "verdict": "accept",
        "port": 11434,
        "upstream": {"method": "GET", "target": "/api/tags"},
        "body": {"framing": "none"},
    },
}
HALF_LOCAL: Case = A_LOCAL | {
    "id": "t-l3",
    "kind": "request",
    "input": "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{}",
    "eof": True,
    "expect": {"verdict": "refuse", "stage": "body", "status": [400], "upstream_complete": False},
}
NO_LOCAL: Case = A_LOCAL | {
    "id": "t-l4",
    "kind": "admin",
    "input": "DELETE /api/delete HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "expect": {"verdict": "refuse", "status": [403], "or_close": False},
}

A_CALL: Case = {
    "id": "t-m1",
    "kind": "plain",
    "input": {
        "method": "POST",
        "target": "/_link/s/0123456789abcdef/mcp/notes",
        "headers": [["content-type", "application/json"]],
        "body": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}',
    },
    "config": {
        "tools": {"notes": {"ask": "all", "allow": ["read"]}},
        "named": ["notes"],
        "url_secret": "0123456789abcdef",
        "answer": "no",
    },
    "expect": {
        "verdict": "accept",
        "status": [200],
        "asks": False,
        "to_tool": [
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read"}}
        ],
        "lines": 1,
        "client": {"result": {}},
        "answer_lacks": ["access-control-allow-origin"],
    },
    "why": "an allowed call",
    "source": "here",
}
A_DENIAL: Case = json.loads(json.dumps(A_CALL)) | {
    "config": A_CALL["config"] | {"tools": {"notes": {"ask": "all", "allow": []}}},
    "expect": {"verdict": "denied", "status": [200], "asks": True, "to_tool": []},
}
A_STREAM: Case = A_CALL | {
    "id": "t-m3",
    "kind": "http",
    "input": {
        "method": "GET",
        "target": A_CALL["input"]["target"],
        "headers": [["accept", "text/event-stream"]],
    },
    "expect": {"verdict": "accept", "status": [200], "asks": False, "to_tool": []},
    "why": "a stream that a session opens, and that stays open",
}
AN_END: Case = A_STREAM | {
    "id": "t-m4",
    "input": A_STREAM["input"] | {"method": "DELETE"},
    "expect": {"verdict": "refuse", "status": [204, 405], "asks": False, "to_tool": []},
    "why": "a session's end, which some servers don't let a client say",
}
IN_CHUNKS: Case = A_CALL | {
    "id": "t-m5",
    "kind": "http",
    "input": A_CALL["input"]
    | {
        "headers": [
            ["content-type", "application/json"],
            ["transfer-encoding", "chunked"],
            ["host", "localhost"],
        ]
    },
    "why": "a case's own framing and host",
}
TWO_HOSTS: Case = A_CALL | {
    "id": "t-m6",
    "kind": "http",
    "input": A_CALL["input"]
    | {"headers": [["content-type", "application/json"], ["host", "a"], ["Host", "b"]]},
    "expect": {"verdict": "refuse", "status": [400], "asks": False, "to_tool": []},
    "why": "what the proxy refuses never comes to the tool",
}
UNREAD: Case = json.loads(json.dumps(A_CALL)) | {
    "id": "t-m7",
    "kind": "tool_output",
    "config": A_CALL["config"]
    | {"tool_writes_b64": b64(b'{"jsonrpc":"2.0","id":1,"result":{"x":"\\ud800"}}\n')},
    "expect": A_CALL["expect"] | {"client": {"error": "any"}},
    "why": "an answer that isn't read",
}
A_REDIRECT: Case = {
    "id": "t-m2",
    "kind": "remote_redirect",
    "input": {"answer": {"status": 302, "headers": [["location", "https://evil.test/"]]}},
    "config": {"url": "https://tools.example.com/mcp", "token": "tok"},
    "expect": {
        "verdict": "refuse",
        "token_goes_to": ["tools.example.com:443"],
        "never_dials": ["evil.test"],
    },
    "why": "a redirect",
    "source": "here",
}

DNS_HEAD = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0"
DNS_NAME = b"\x02Db\x07example\x03com\0"
AN_ADDRESS: Case = {
    "id": "dns-1",
    "kind": "address",
    "transport": "udp",
    "input_b64": b64(DNS_HEAD + DNS_NAME + b"\0\1\0\1"),
    "config": {"tcp": ["db.example.com:5432"], "outside": {}},
    "expect": {
        "verdict": "answer",
        "rcode": ["NOERROR"],
        "answer": "own_address",
        "asks": [],
        "echo": True,
        "tc": False,
        "never_dials": ["db.example.com"],
    },
    "why": "an endpoint's address",
    "source": "here",
}
A_TEXT: Case = AN_ADDRESS | {
    "id": "dns-2",
    "kind": "service",
    "input_b64": b64(DNS_HEAD + DNS_NAME + b"\0\x10\0\1"),
    "config": {"tcp": ["db.example.com:5432"], "outside": {"TXT db.example.com": ["x"]}},
    "expect": {
        "verdict": "answer",
        "rcode": ["NOERROR"],
        "answer": ["x"],
        "asks": ["TXT db.example.com"],
        "outside_lacks_b64": b64(b"Db"),
    },
}
IN_CAPITALS: Case = A_TEXT | {
    "id": "dns-2a",
    "config": {"tcp": ["db.example.com:5432"], "outside": {"TXT DB.Example.com.": ["x"]}},
    "expect": A_TEXT["expect"] | {"asks": ["TXT DB.Example.com."]},
}
NO_NAME: Case = AN_ADDRESS | {
    "id": "dns-3",
    "kind": "not_listed",
    "config": {"tcp": ["other.example.com:5432"], "outside": {}},
    "expect": {"verdict": "refuse", "rcode": ["NXDOMAIN", "REFUSED"], "asks": []},
}
NO_QUERY: Case = AN_ADDRESS | {
    "id": "dns-4",
    "kind": "header",
    "input_b64": b64(DNS_HEAD[:2] + b"\x81" + DNS_HEAD[3:] + DNS_NAME + b"\0\1\0\1"),
    "expect": {"verdict": "drop", "asks": []},
}
TWO_QUERIES: Case = AN_ADDRESS | {
    "id": "dns-5",
    "kind": "tcp",
    "transport": "tcp",
    "input_b64": b64(
        b"\0\x20"
        + DNS_HEAD
        + DNS_NAME
        + b"\0\1\0\1\0\x20\x12\x35"
        + DNS_HEAD[2:]
        + DNS_NAME
        + b"\0\x0f\0\1"
    ),
    "expect": {
        "verdict": "answers",
        "each": [
            {"verdict": "answer", "rcode": ["NOERROR"], "answer": "own_address", "asks": []},
            {"verdict": "refuse", "rcode": ["REFUSED"], "asks": []},
        ],
    },
}
TWO_ANSWERS = TWO_QUERIES["expect"]["each"]
THEN_AN_ANSWER: Case = TWO_QUERIES | {
    "id": "dns-6",
    "input_b64": b64(
        (b"\0\x20" + DNS_HEAD + DNS_NAME + b"\0\1\0\1") * 2
        + b"\0\x20\x12\x36\x81"
        + DNS_HEAD[3:]
        + DNS_NAME
        + b"\0\1\0\1"
    ),
    "expect": {
        "verdict": "answers",
        "each": [TWO_ANSWERS[0], TWO_ANSWERS[0], {"verdict": "drop", "asks": []}],
    },
}

EITHER: Case = TWO_QUERIES | {
    "id": "dns-7",
    "expect": {
        "verdict": "answers",
        "each": [
            {"verdict": "drop", "also_ok": [{"verdict": "refuse"}, TWO_ANSWERS[0]]},
            {"verdict": "drop", "asks": [], "also_ok": [TWO_ANSWERS[1]]},
        ],
        "never_dials": ["other.example.com"],
    },
}

RIGHT: list[tuple[Suite, Case]] = [
    *((DNS, case) for case in (AN_ADDRESS, A_TEXT, NO_NAME, NO_QUERY, TWO_QUERIES, THEN_AN_ANSWER)),
    *((DNS, case) for case in (IN_CAPITALS, EITHER)),
    *((HTTP, case) for case in (TUNNEL, POST, REFUSED, HALF_BODY, BAD_ANSWER, CUT_SHORT)),
    *((HTTP, case) for case in (PIPELINED, TWO_SERVED, SAME_STATUS, SERVERS_ERROR)),
    *((HTTP, case) for case in (SAME_HOST, TUNNEL_BEHIND, ASKED_AGAIN, SWITCHED)),
    *((HTTP, case) for case in (AN_ADDRESS_OF_V6, BEYOND_ASCII, A_LENGTH, NO_LENGTH)),
    *((HOSTS, case) for case in (TARGET, ANY_HOST, NO_ENTRY, SECOND_ANSWERS, UNLISTED)),
    (HOSTS, OTHER_LETTERS),
    *((HELLO, case) for case in (HELLO_CASE, NO_HELLO, HALF_HELLO, NOT_READ)),
    *((HELLO, case) for case in (SILENT, ENDED)),
    *((MCP, case) for case in (A_CALL, A_DENIAL, A_REDIRECT)),
    *((MCP, case) for case in (A_STREAM, AN_END, IN_CHUNKS, TWO_HOSTS, UNREAD)),
    *((MODEL, case) for case in (A_MODELS, NO_MODELS, NO_ANSWER, ANY_MODEL, BARE_ANSWER)),
    *((SECRET, case) for case in (A_SECRETS, NO_SECRETS, A_RULE)),
    *((LOCAL, case) for case in (A_LOCAL, BY_THE_PROXY, HALF_LOCAL, NO_LOCAL)),
]

WRONG: list[tuple[Suite, Case, str, Any]] = [
    (DNS, AN_ADDRESS, "expect.verdict", "refuse"),
    (DNS, AN_ADDRESS, "expect.verdict", "drop"),
    (DNS, AN_ADDRESS, "expect.rcode", ["NXDOMAIN"]),
    (DNS, AN_ADDRESS, "expect.answer", "none"),
    (DNS, AN_ADDRESS, "expect.answer", ["127.53.0.2"]),
    (DNS, AN_ADDRESS, "expect.asks", ["A db.example.com"]),
    (DNS, AN_ADDRESS, "expect.tc", True),
    (DNS, AN_ADDRESS, "config.tcp", ["other.example.com:1"]),
    (DNS, AN_ADDRESS, "transport", "tcp"),
    (DNS, AN_ADDRESS, "transport", "quic"),
    (DNS, A_TEXT, "expect.answer", ["y"]),
    (DNS, A_TEXT, "expect.answer", ["x", "x"]),
    (DNS, A_TEXT, "expect.answer", [["x", "x"]]),
    (DNS, A_TEXT, "expect.answer", "own_address"),
    (DNS, A_TEXT, "expect.answer", "none"),
    (DNS, A_TEXT, "expect.answer", "perhaps"),
    (DNS, A_TEXT, "expect.asks", []),
    (DNS, A_TEXT, "expect.asks", ["TXT db.example.com", "TXT db.example.com"]),
    (DNS, A_TEXT, "expect.outside_lacks_b64", b64(b"example")),
    (DNS, A_TEXT, "expect.never_dials", ["db.example.com"]),
    (DNS, A_TEXT, "config.outside", {}),
    (DNS, A_TEXT, "config.outside", {"TXT db.example.com": "silence"}),
    (DNS, NO_NAME, "expect.verdict", "drop"),
    (DNS, NO_NAME, "expect.rcode", ["SERVFAIL"]),
    (DNS, NO_QUERY, "expect.verdict", "answer"),
    (DNS, NO_QUERY, "expect", {"verdict": "refuse", "rcode": ["FORMERR"], "asks": []}),
    (DNS, TWO_QUERIES, "expect.each", TWO_ANSWERS[:1]),
    (DNS, TWO_QUERIES, "expect.each", TWO_ANSWERS[::-1]),
    (DNS, TWO_QUERIES, "expect.each", [*TWO_ANSWERS, {"verdict": "drop"}]),
    (DNS, THEN_AN_ANSWER, "expect.each", [TWO_ANSWERS[0], {"verdict": "drop"}]),
    (SECRET, A_SECRETS, "expect.verdict", "refuse"),
    (SECRET, A_SECRETS, "expect.upstream.host", "b.example.com"),
    (SECRET, A_SECRETS, "expect.upstream.method", "GET"),
    (SECRET, A_SECRETS, "expect.upstream.path", "/bot7:a-real-secret/send"),
    (SECRET, A_SECRETS, "expect.upstream.has", {"content-type": "text/html"}),
    (SECRET, A_SECRETS, "expect.upstream.lacks", ["Content-Type"]),
    (SECRET, A_SECRETS, "expect.upstream.nowhere", ["send"]),
    (SECRET, A_SECRETS, "expect.upstream.body", "ho"),
    (SECRET, A_SECRETS, "expect.upstream.unknown", 1),
    (SECRET, A_SECRETS, "expect.body_lacks", ["hi"]),
    (SECRET, A_SECRETS, "expect.client.status_any", [200]),
    (SECRET, A_SECRETS, "expect.client.body", "no /bot7:a-real-secret/send"),
    (SECRET, A_SECRETS, "expect.client.nowhere", ["/send"]),
    (SECRET, A_SECRETS, "expect.never_dials", ["api.example.com"]),
    (SECRET, A_SECRETS, "expect.unknown", 1),
    (SECRET, A_SECRETS, "config.secrets.bot.placeholder", "8:lnkPlaceholder"),
    (SECRET, A_SECRETS, "config.secrets.bot.rule.host", "127.0.0.1"),
    (SECRET, A_SECRETS, "config.secrets.bot.hots", 1),
    (SECRET, A_SECRETS, "input.target", "/_link/secret/bot/bot7:lnkPlaceholder/send/x"),
    (SECRET, A_SECRETS, "input.unknown", 1),
    (SECRET, NO_SECRETS, "expect.verdict", "accept"),
    (SECRET, NO_SECRETS, "expect.status", [404]),
    (SECRET, A_RULE, "expect.verdict", "accept"),
    (SECRET, A_RULE, "expect.at", "start"),
    (SECRET, A_RULE, "input.rule.paths", ["/{secret}"]),
    (LOCAL, A_LOCAL, "expect.verdict", "refuse"),
    (LOCAL, A_LOCAL, "expect.port", 11435),
    (LOCAL, A_LOCAL, "expect.upstream.method", "GET"),
    (LOCAL, A_LOCAL, "expect.upstream.target", "/api/tags"),
    (LOCAL, A_LOCAL, "expect.upstream.host", ["localhost"]),
    (LOCAL, A_LOCAL, "expect.upstream.has", {"X-A": "2"}),
    (LOCAL, A_LOCAL, "expect.upstream.lacks", ["X-A"]),
    (LOCAL, A_LOCAL, "expect.upstream.unknown", 1),
    (LOCAL, A_LOCAL, "expect.body.data_b64", b64(b"[]")),
    (LOCAL, A_LOCAL, "expect.body.framing", "none"),
    (LOCAL, A_LOCAL, "expect.body.unknown", 1),
    (LOCAL, A_LOCAL, "expect.after", "perhaps"),
    (LOCAL, A_LOCAL, "expect.never_dials", ["127.0.0.1"]),
    (LOCAL, A_LOCAL, "expect.unknown", 1),
    (LOCAL, A_LOCAL, "way", "another"),
    (LOCAL, BY_THE_PROXY, "config.url_secret", "t" * 20),
    (LOCAL, BY_THE_PROXY, "config.local_ports", []),
    (LOCAL, HALF_LOCAL, "expect.status", [403]),
    (LOCAL, HALF_LOCAL, "expect.upstream_complete", True),
    (LOCAL, HALF_LOCAL, "expect.stage", "head"),
    (LOCAL, NO_LOCAL, "expect.status", [404]),
    (LOCAL, NO_LOCAL, "expect.verdict", "accept"),
    (MODEL, A_MODELS, "expect.verdict", "refuse"),
    (MODEL, A_MODELS, "expect.upstream.host", "api.openai.com"),
    (MODEL, A_MODELS, "expect.upstream.method", "GET"),
    (MODEL, A_MODELS, "expect.upstream.path", "/v1/messages"),
    (MODEL, A_MODELS, "expect.upstream.has", {"x-api-key": "lnk-placeholder"}),
    (MODEL, A_MODELS, "expect.upstream.lacks", ["X-Api-Key"]),
    (MODEL, A_MODELS, "expect.upstream.nowhere", ["v1/messages"]),
    (MODEL, A_MODELS, "expect.upstream.unknown", 1),
    (MODEL, A_MODELS, "expect.bodies", [{"model": "m"}]),
    (MODEL, A_MODELS, "expect.body_lacks", ["messages"]),
    (MODEL, A_MODELS, "expect.client.status_any", [200, 502]),
    (MODEL, A_MODELS, "expect.client.body", "no sk-real-key"),
    (MODEL, A_MODELS, "expect.client.nowhere", ["x-echo"]),
    (MODEL, A_MODELS, "expect.client.unknown", 1),
    (MODEL, A_MODELS, "expect.never_dials", ["api.anthropic.com"]),
    (MODEL, A_MODELS, "expect.unknown", 1),
    (MODEL, A_MODELS, "config.provider", "openai"),
    (MODEL, A_MODELS, "config.placeholder", "another"),
    (MODEL, A_MODELS, "config.server_tools", True),
    (MODEL, A_MODELS, "input.path", "/v1/files"),
    (MODEL, A_MODELS, "input.unknown", 1),
    (MODEL, A_MODELS, "answer.unknown", 1),
    (MODEL, NO_MODELS, "expect.verdict", "accept"),
    (MODEL, NO_MODELS, "expect.stage", "response"),
    (MODEL, NO_ANSWER, "expect.stage", "body"),
    (MODEL, NO_ANSWER, "expect.status", [403]),
    (HELLO, HELLO_CASE, "expect.never_dials", ["example.com"]),
    (MODEL, NO_MODELS, "expect.status", [403]),
    (MCP, A_CALL, "expect.verdict", "refuse"),
    (MCP, A_CALL, "expect.status", [202]),
    (MCP, A_CALL, "expect.asks", True),
    (MCP, A_CALL, "expect.to_tool", [{}]),
    (MCP, A_CALL, "expect.lines", 2),
    (MCP, A_CALL, "expect.client.result", {"x": 1}),
    (MCP, A_CALL, "expect.answer_lacks", ["content-length"]),
    (MCP, A_CALL, "expect.client", {"error": "any"}),
    (MCP, A_CALL, "expect.unknown", 1),
    (MCP, A_CALL, "config.tools.notes.unknown", 1),
    (MCP, A_CALL, "input.unknown", 1),
    (MCP, A_CALL, "config.answer", "perhaps"),
    (MCP, A_STREAM, "expect.verdict", "denied"),
    (MCP, A_STREAM, "expect.status", [405]),
    (MCP, AN_END, "expect.status", [405]),
    (MCP, TWO_HOSTS, "expect.status", [404]),
    (MCP, UNREAD, "expect.client", {"result": {}}),
    (MODEL, ANY_MODEL, "config.hosts", []),
    (MCP, A_DENIAL, "expect.verdict", "accept"),
    (MCP, A_REDIRECT, "expect.token_goes_to", ["evil.test:443"]),
    (MCP, A_REDIRECT, "expect.never_dials", ["tools.example.com"]),
    (MCP, A_REDIRECT, "input.unknown", 1),
    (HTTP, TUNNEL, "expect.verdict", "refuse"),
    (HTTP, TUNNEL, "expect.request.form", "absolute"),
    (HTTP, TUNNEL, "expect.request.method", "GET"),
    (HTTP, TUNNEL, "expect.request.host", "www.example.com"),
    (HTTP, TUNNEL, "expect.request.port", 443),
    (HTTP, TUNNEL, "expect.tunnel_b64", b64(b"ab")),
    (HTTP, TUNNEL, "expect.tunnel_b64", b64(b"abcd")),
    (HTTP, TUNNEL, "expect.never_dials", ["EXAMPLE.com."]),
    (HTTP, TUNNEL, "expect.never_dials", ["203.0.113.10"]),
    (HTTP, TUNNEL, "expect.upstream", {"method": "GET"}),
    (HTTP, TUNNEL, "expect.body", {"framing": "none"}),
    (HTTP, TUNNEL, "expect.client", {"status": 200}),
    (HTTP, TUNNEL, "config.hosts", []),
    (HTTP, TUNNEL, "config.pointed_secret", "s3cretS3cretS3cret"),
    (HTTP, POST, "expect.verdict", "refuse"),
    (HTTP, POST, "expect.request.form", "connect"),
    (HTTP, POST, "expect.request.method", "GET"),
    (HTTP, POST, "expect.request.port", 80),
    (HTTP, POST, "expect.upstream.method", "GET"),
    (HTTP, POST, "expect.upstream.target", "/"),
    (HTTP, POST, "expect.upstream.host", ["example.com"]),
    (HTTP, POST, "expect.upstream.has", {"x-a": "2"}),
    (HTTP, POST, "expect.upstream.has", {"x-b": "1"}),
    (HTTP, POST, "expect.upstream.lacks", ["X-A"]),
    (HTTP, POST, "expect.body.framing", "none"),
    (HTTP, POST, "expect.body.data_b64", b64(b"hell")),
    (HTTP, POST, "expect.body.length", 4),
    (HTTP, POST, "expect.client.status", 204),
    (HTTP, POST, "expect.client.body_b64", b64(b"")),
    (HTTP, POST, "expect.client.content_length", 3),
    (HTTP, POST, "expect.client.lacks", ["content-length"]),
    (HTTP, POST, "expect.client.complete", False),
    (HTTP, POST, "expect.answer_has", ["proxy-authenticate"]),
    (HTTP, POST, "expect.tunnel_b64", ""),
    (HTTP, POST, "upstream_b64", b64(b"HTTP/1.1 204 No Content\r\n\r\n")),
    (HTTP, REFUSED, "expect.verdict", "accept"),
    (HTTP, REFUSED, "expect.status", [403]),
    (HTTP, REFUSED, "expect.answer_has", ["retry-after"]),
    (HTTP, HALF_BODY, "expect.verdict", "accept"),
    (HTTP, HALF_BODY, "expect.status", [413]),
    (HTTP, HALF_BODY, "expect.stage", None),
    (HTTP, HALF_BODY, "expect.upstream_complete", True),
    (HTTP, BAD_ANSWER, "expect.status", [504]),
    (HTTP, BAD_ANSWER, "expect.stage", "body"),
    (HTTP, BAD_ANSWER, "expect.verdict", "accept"),
    (HTTP, BAD_ANSWER, "upstream_b64", b64(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
    (HTTP, HALF_BODY, "eof", False),
    (HTTP, SAME_STATUS, "expect.verdict", "accept"),
    (HTTP, SERVERS_ERROR, "expect.verdict", "refuse"),
    (HTTP, CUT_SHORT, "expect.client.complete", True),
    (HTTP, CUT_SHORT, "expect.verdict", "refuse"),
    (HTTP, PIPELINED, "expect.after", "close"),
    (HTTP, PIPELINED, "config.hosts", None),
    (HTTP, TWO_SERVED, "expect.after", "refuse_or_close"),
    (HTTP, TWO_SERVED, "expect.after", "close"),
    (HTTP, SAME_HOST, "expect.after", "close"),
    (HTTP, TUNNEL_BEHIND, "expect.after", "refuse_or_close"),
    (HTTP, ASKED_AGAIN, "expect.after", "refuse_or_close"),
    (HTTP, ASKED_AGAIN, "expect.verdict", "accept"),
    (HTTP, SWITCHED, "expect.verdict", "refuse"),
    (HTTP, SWITCHED, "expect.client.status", 200),
    (HTTP, SWITCHED, "expect.client.body_b64", b64(b"ho")),
    (HTTP, AN_ADDRESS_OF_V6, "expect.request.host", "2001:db8::11"),
    (HOSTS, ANY_HOST, "config.hosts", ["*", "other.test"]),
    (HOSTS, ANY_HOST, "expect.dials", ["::ffff:203.0.113.11"]),
    (HOSTS, NO_ENTRY, "config.hosts", ["*.test"]),
    (HOSTS, SECOND_ANSWERS, "expect.dials", ["203.0.113.9"]),
    (HOSTS, SECOND_ANSWERS, "expect.never_dials", ["203.0.113.9"]),
    (HOSTS, NO_ENTRY, "config.tcp", ["*.test:8080"]),
    (HOSTS, TARGET, "expect.verdict", "refuse"),
    (HOSTS, TARGET, "expect.host", "other.test"),
    (HOSTS, TARGET, "expect.port", 443),
    (HOSTS, TARGET, "expect.asks", []),
    (HOSTS, TARGET, "expect.asks", ["listed.test", "listed.test"]),
    (HOSTS, TARGET, "expect.dials", ["203.0.113.11"]),
    (HOSTS, TARGET, "expect.never_dials", ["listed.test"]),
    (HOSTS, TARGET, "expect.never_dials", ["203.0.113.10"]),
    (HOSTS, TARGET, "config.hosts", ["other.test"]),
    (HOSTS, TARGET, "config.dns", {}),
    (HOSTS, TARGET, "config.dns_turns", {"listed.test": [["10.0.0.5"], ["203.0.113.10"]]}),
    (HOSTS, TARGET, "config.no_internet", True),
    (HOSTS, TARGET, "config.own_addresses", ["203.0.113.10"]),
    (HOSTS, TARGET, "config.own_networks", ["203.0.113.0/24"]),
    (HOSTS, TARGET, "config.connect_fails", ["203.0.113.10"]),
    (HOSTS, TARGET, "config.lan", ["listed.test:8080"]),
    (HOSTS, UNLISTED, "expect.verdict", "accept"),
    (HOSTS, UNLISTED, "expect.status", [400]),
    (HOSTS, UNLISTED, "expect.asks", ["other.test"]),
    (HOSTS, UNLISTED, "config.tcp", ["other.test:443"]),
    (HOSTS, UNLISTED, "config.hosts", None),
    (HELLO, HELLO_CASE, "expect.verdict", "refuse"),
    (HELLO, HELLO_CASE, "expect.verdict", "wait"),
    (HELLO, HELLO_CASE, "expect.sni", "www.example.com"),
    (HELLO, HELLO_CASE, "expect.sni", None),
    (HELLO, HELLO_CASE, "config.connect", "www.example.com:443"),
    (HELLO, HELLO_CASE, "config.hosts", None),
    (HELLO, NO_HELLO, "expect.verdict", "accept"),
    (HELLO, NO_HELLO, "expect.verdict", "wait"),
    (HELLO, HALF_HELLO, "expect.verdict", "refuse"),
    (HELLO, HALF_HELLO, "expect.verdict", "accept"),
    (HELLO, HALF_HELLO, "eof", True),
    (HTTP, BEYOND_ASCII, "expect.upstream.has", {"x-a": "\u00c3"}),
    (HTTP, BEYOND_ASCII, "expect.asks", []),
    (HTTP, A_LENGTH, "expect.client.content_length", None),
    (HTTP, A_LENGTH, "expect.client.content_length", "6"),
    (HTTP, NO_LENGTH, "expect.client.content_length", 0),
    (HOSTS, OTHER_LETTERS, "expect.asks", ["other.test"]),
    (DNS, EITHER, "expect.each", [{"verdict": "drop", "also_ok": TWO_ANSWERS}, TWO_ANSWERS[0]]),
    (DNS, EITHER, "expect.asks", ["TXT db.example.com"]),
    (DNS, IN_CAPITALS, "expect.asks", []),
    (DNS, IN_CAPITALS, "config.outside", {"TXT x.example.com": ["x"]}),
    (HELLO, SILENT, "expect.verdict", "wait"),
    (HELLO, SILENT, "config.connect", "example.com:443"),
    (HELLO, ENDED, "expect.verdict", "refuse"),
    (HELLO, NOT_READ, "expect.sni", "example.com"),
    (HELLO, NOT_READ, "expect.verdict", "refuse"),
]

UNKNOWN: list[tuple[Suite, Case, str, Any]] = [
    (suite, case, path, value)
    for suite, case in ((HTTP, TUNNEL), (HOSTS, TARGET), (HELLO, HELLO_CASE))
    for path, value in (
        ("kind", "no such kind"),
        ("config.hots", []),
        ("config.hosts", ["not a host"]),
        ("expect.verdict", "perhaps"),
        ("expect.colour", "red"),
        ("nonsense", 1),
        ("segments_b64", []),
    )
] + [
    (DNS, AN_ADDRESS, "kind", "no such kind"),
    (DNS, AN_ADDRESS, "config.hots", []),
    (DNS, AN_ADDRESS, "config.tcp", ["no port"]),
    (DNS, AN_ADDRESS, "expect.verdict", "perhaps"),
    (DNS, AN_ADDRESS, "expect.colour", "red"),
    (DNS, AN_ADDRESS, "nonsense", 1),
    (HTTP, PIPELINED, "expect.after", "perhaps"),
    (HTTP, HALF_BODY, "expect.stage", "perhaps"),
    (HTTP, POST, "expect.body.framing", "perhaps"),
    (HTTP, POST, "expect.body.colour", "red"),
    (HTTP, POST, "expect.client.colour", "red"),
    (HTTP, POST, "expect.upstream.colour", "red"),
    (HOSTS, TARGET, "config.dns", {"listed.test": {"addresses": ["203.0.113.10"], "mx": []}}),
    (MODEL, A_MODELS, "kind", "no such kind"),
    (MODEL, A_MODELS, "config.hots", []),
    (MODEL, A_MODELS, "config.provider", "another"),
    (MODEL, A_MODELS, "expect.verdict", "perhaps"),
    (MODEL, NO_MODELS, "expect.stage", "perhaps"),
    (MODEL, A_MODELS, "nonsense", 1),
]


def changed(case: Case, path: str, value: Any) -> Case:
    """Return a case with another value at a dotted path."""
    made = copy.deepcopy(case)
    *folders, last = path.split(".")
    inner = made
    for folder in folders:
        inner = inner[folder]
    inner[last] = value
    return made


def named(suite: Suite, case: Case, path: str, value: Any) -> str:
    return f"{case['id']}-{path}-{json.dumps(value)[:30]}"


@pytest.mark.parametrize(("suite", "case"), RIGHT, ids=[case["id"] for _, case in RIGHT])
def test_a_case_that_is_right_holds(suite: Suite, case: Case) -> None:
    assert try_case(suite, case).differing == {}


@pytest.mark.parametrize(
    ("suite", "case", "path", "value"), WRONG, ids=[named(*each) for each in WRONG]
)
def test_a_case_that_is_wrong_is_reported_every_way(
    suite: Suite, case: Case, path: str, value: Any
) -> None:
    wrong = changed(case, path, value)
    report = try_case(suite, wrong)
    assert set(report.differing) == {way.name for way in ways(wrong, cases.SEEDS)}


@pytest.mark.parametrize(
    ("suite", "case", "path", "value"), UNKNOWN, ids=[named(*each) for each in UNKNOWN]
)
def test_what_is_not_known_fails_its_case(suite: Suite, case: Case, path: str, value: Any) -> None:
    assert try_case(suite, changed(case, path, value)).differing


def test_any_right_outcome_will_do() -> None:
    wrong = {"verdict": "refuse", "status": [400]}
    right = UNLISTED["expect"]
    either = changed(UNLISTED, "expect", wrong | {"asks": [], "also_ok": [right]})
    assert not try_case(HOSTS, either).differing
    neither = changed(UNLISTED, "expect", wrong | {"also_ok": [wrong]})
    assert try_case(HOSTS, neither).differing


def test_what_is_never_dialled_holds_for_other_right_outcomes_too() -> None:
    expect = {"verdict": "refuse", "status": [403], "never_dials": ["203.0.113.10"]}
    accepted = {key: value for key, value in TARGET["expect"].items() if key != "never_dials"}
    assert try_case(HOSTS, changed(TARGET, "expect", expect | {"also_ok": [accepted]})).differing


def test_addresses_are_compared_as_addresses() -> None:
    case = changed(TARGET, "config.dns", {"listed.test": ["2001:db8:0:0::10"]})
    case["expect"] |= {"dials": ["2001:0DB8::10"]}
    assert not try_case(HOSTS, case).differing
    case["expect"] |= {"never_dials": ["2001:0DB8::10"]}
    assert try_case(HOSTS, case).differing


def test_a_refusal_after_an_address_that_does_not_answer_opened_nothing() -> None:
    case = changed(TARGET, "config.connect_fails", ["203.0.113.10"])
    case["expect"] = {"verdict": "refuse", "status": [504], "asks": ["listed.test"]}
    assert not try_case(HOSTS, case).differing


def test_an_exception_in_the_product_fails_the_case_and_names_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(serve, "admit", broken)
    report = try_case(HTTP, TUNNEL, seeds=1)
    assert "RuntimeError: a bug (simulation: seed 1" in report.differing["cut at random, seed 1"][0]


def test_a_product_that_reads_without_end_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.case_calls.HELD_MAX_BYTES", 1024)
    assert "bytes are held" in try_case(HTTP, TUNNEL).differing["whole"][0]


def test_a_case_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(cases, "CASE_MAX_S", 0.1)
    monkeypatch.setattr(serve, "admit", endless)
    said = try_case(HTTP, TUNNEL, seeds=0).differing["whole"][0]
    assert "TimeoutError: no end after 0.1 s of the processor's time" in said


def test_a_case_that_waits_for_ever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "WAIT_MAX_S", 0.1)
    monkeypatch.setattr(serve, "admit", lambda *_: Event().wait(60))
    said = try_case(HTTP, TUNNEL, seeds=0).differing["whole"][0]
    assert "TimeoutError: no end after 0.1 s by the clock" in said


def test_a_case_is_judged_by_the_processors_time_and_not_by_a_busy_machines_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admit = serve.admit

    def slowly(*args: Any) -> Target:
        Event().wait(0.3)
        return admit(*args)

    monkeypatch.setattr(cases, "CASE_MAX_S", 0.2)
    monkeypatch.setattr(serve, "admit", slowly)
    assert not try_case(HTTP, TUNNEL, seeds=0).differing


def test_a_case_leaves_the_time_limit_of_whoever_runs_it_as_it_was() -> None:
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    signal.setitimer(signal.ITIMER_REAL, before or 500)  # under pytest-timeout it is its own
    try:
        try_case(HTTP, TUNNEL, seeds=0)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)


def test_a_status_line_that_ends_with_its_status_is_read() -> None:
    """RFC 9112 §4 wants a space there, and many servers leave it out."""
    case = copy.deepcopy(POST) | {
        "upstream_b64": b64(b"HTTP/1.1 204\r\n\r\n"),
        "upstream_closes": False,
    }
    case["expect"]["client"] = {"status": 204, "body_b64": ""}
    assert not try_case(HTTP, case).differing


def test_an_untidy_request_to_the_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare LF in what goes out is two fields to a lenient server."""
    plain = case_http_head.serve

    def printed(*args: object) -> object:
        transcript = plain(*args)
        return _with_server_bytes(transcript, b"GET / HTTP/1.1\r\nHost: example.com\nX: 1\r\n\r\n")

    monkeypatch.setattr(case_http_head, "serve", printed)
    assert "lenient reader" in try_case(HTTP, POST, seeds=0).differing["whole"][0]


def test_bytes_behind_a_request_to_the_server_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = case_http_head.serve
    case = changed(POST, "expect", {"verdict": "accept"})
    assert not try_case(HTTP, case, seeds=0).differing

    def smuggled(*args: object) -> object:
        transcript = plain(*args)
        (dial,) = transcript.opened
        return _with_server_bytes(transcript, dial.saw.data + b"GET /more")

    monkeypatch.setattr(case_http_head, "serve", smuggled)
    assert "behind the request" in try_case(HTTP, case, seeds=0).differing["whole"][0]


def _with_server_bytes(transcript: Any, data: bytes) -> Any:
    (dial,) = transcript.dials
    return replace(transcript, dials=(replace(dial, saw=replace(dial.saw, data=data)),))


def test_a_file_is_known_by_its_name_and_else_by_its_cases() -> None:
    for suite in SUITES:
        mine = [case for which, case in RIGHT if which is suite]
        assert suite_of(Path(f"{suite.name}.jsonl"), []) is suite
        assert suite_of(Path("held_back.jsonl"), mine) is suite
    assert (
        suite_of(Path("other.jsonl"), [{"id": "x", "kind": "no such kind", "config": {}}]) is None
    )
    assert suite_of(Path("other.jsonl"), []) is None


def test_every_real_file_is_known_without_its_name() -> None:
    for suite in SUITES:
        assert suite_of(Path("x.jsonl"), list(load(COPIES / f"{suite.name}.jsonl"))) is suite


def test_every_piece_of_an_input_is_kept_apart_once() -> None:
    case = {"segments_b64": [b64(b"a"), {"repeat_b64": b64(b"bc"), "times": 2}]}
    assert segments(case) == [b"a", b"bcbc"]
    assert [way.name for way in ways(case, 1)] == [
        "whole",
        "a byte at a time",
        "in the case's own pieces",
        "cut at random, seed 1",
    ]
    assert segments({"input": "ü"}) == [b"\xc3\xbc"]
    with pytest.raises(ValueError, match="no bytes"):
        segments({"input": {}})


def written(tmp_path: Path, *lines: Case, name: str = "http_head.jsonl") -> str:
    path = tmp_path / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    return str(path)


def test_the_command_prints_what_differs_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = changed(TUNNEL, "expect.request.port", 2222)
    assert main([written(tmp_path, TUNNEL, wrong)]) == 1
    said = capsys.readouterr().out
    assert "t-1 (after_head): a tunnel\n" in said
    assert "whole: request.port: came 22, due 2222" in said
    assert '"host": "example.com"' in said
    assert "2 cases, 1 differ" in said


def test_the_command_exits_0_when_all_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, TUNNEL, POST)]) == 0
    assert capsys.readouterr().out.endswith("(http_head): 2 cases, 0 differ\n")


def test_a_file_may_hold_the_cases_of_several_suites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = TUNNEL, POST, TARGET, HELLO_CASE, AN_ADDRESS
    assert main([written(tmp_path, *several, name="mixed.jsonl")]) == 0
    assert main([written(tmp_path, TUNNEL, TARGET, name="as_many_of_each.jsonl")]) == 0
    assert main([written(tmp_path, *several)]) == 1  # named as one suite's
    assert "5 cases, 3 differ" in capsys.readouterr().out


def test_the_command_fails_on_a_file_that_no_suite_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, changed(TUNNEL, "kind", "odd"), name="odd.jsonl")
    assert main([path]) == 1
    assert "(unknown): 1 cases, 1 differ" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_a_failure_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("\nnope\n")
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    for name, why in (
        ("none", "No such file or directory"),
        (".", "Is a directory"),
        ("text", "line 2 isn't JSON: Expecting value"),
        ("bytes", "line 1 isn't JSON: 'utf-8' codec can't decode"),
    ):
        assert main([str(tmp_path / name)]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"{tmp_path / name} can't be read: {why}")
        assert err.count("\n") == 1


def test_outcomes_are_json_lines_also_without_expect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = {key: value for key, value in POST.items() if key != "expect"}
    path = written(tmp_path, bare, changed(TUNNEL, "kind", "odd"))
    assert main(["--outcomes", path]) == 1  # the second can't be run
    did, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert did["id"] == "t-2"
    assert did["outcome"]["upstream"]["target"] == "/x"
    assert "unknown kind" in str(failed["error"])
    assert main(["--outcomes", written(tmp_path, bare)]) == 0


def test_a_long_difference_is_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = b"CONNECT example.com:22 HTTP/1.1\r\nHost: example.com:22\r\n\r\n" + b"x" * 5000
    case = changed(TUNNEL, "input_b64", b64(data))
    assert main([written(tmp_path, case), "--seeds", "0"]) == 1
    assert max(map(len, capsys.readouterr().out.splitlines())) < 25_000


def test_a_key_that_comes_back_or_goes_elsewhere_fails_its_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = changed(A_MODELS, "expect", {"verdict": "accept"})
    assert not try_case(MODEL, bare, seeds=0).differing
    with monkeypatch.context() as patched:
        patched.setattr("proto.verbs.masking.Mask.whole", lambda _, data: data)
        said = try_case(MODEL, bare, seeds=0).differing["whole"][0]
        assert "the program got the key" in said
    holds_it = changed(bare, "input.headers", [*bare["input"]["headers"], ["x-app", "sk-real-key"]])
    said = try_case(MODEL, holds_it, seeds=0).differing["whole"][0]
    assert "the key isn't in one place" in said
