"""A small MCP server over stdio, for tests: it does what its calls say, and notes them.

Run as `python tool_server.py NOTES`; each message that it gets is a line of that file.
"""

import json
import os
import sys
import time


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
    sys.stdout.flush()


TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object"}, "annotations": hints}
    for name, hints in (
        ("echo", {"readOnlyHint": True}),
        ("save", {"destructiveHint": True}),
        ("big", {}),
        ("slow", {}),
        ("die", {}),
        ("environ", {}),
        ("parts", {}),
        ("confirm", {}),
    )
]


def call(message, params):
    name, arguments = params["name"], params.get("arguments", {})
    text = ""
    match name:
        case "echo" | "save":
            text = json.dumps(arguments)
        case "big":
            text = "x" * int(arguments["size"])
        case "slow":
            token = params.get("_meta", {}).get("progressToken")
            for step in range(3):
                if token is not None:
                    say(
                        {
                            "method": "notifications/progress",
                            "params": {"progressToken": token, "progress": step, "total": 3},
                        }
                    )
                time.sleep(0.05)
            text = "done"
        case "die":
            sys.stderr.write("dying\x1b[2J now\n")
            sys.exit(3)
        case "parts":
            id_ = json.dumps(message["id"])
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{id_},"result":[')
            sys.stdout.write("[]," * (int(arguments["bytes"]) // 3) + "[]]}\n")
            sys.stdout.flush()
            return
        case "confirm":
            asks = {"message": "Delete them all?", "requestedSchema": {"type": "object"}}
            say({"id": "sure", "method": "elicitation/create", "params": asks})
            text = json.dumps(json.loads(sys.stdin.readline())["result"])
        case "environ":
            found = {
                "environ": dict(os.environ),
                "cwd": os.getcwd(),
                "pid": os.getpid(),
                "fds": sorted(os.listdir("/proc/self/fd")),
            }
            text = json.dumps(found)
    say({"id": message["id"], "result": {"content": [{"type": "text", "text": text}]}})


def main():
    for line in sys.stdin:
        with open(sys.argv[1], "a") as notes:
            notes.write(line)
        message = json.loads(line)
        answer(message, message.get("params") or {})


def answer(message, params):
    match message.get("method"):
        case "initialize":
            say(
                {
                    "id": message["id"],
                    "result": {
                        "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                        "serverInfo": {"name": "tests", "version": "1"},
                    },
                }
            )
        case "tools/list":
            say({"id": message["id"], "result": {"tools": TOOLS}})
        case "tools/call":
            call(message, params)
        case "ping" | "logging/setLevel":
            say({"id": message["id"], "result": {}})
        case method if "id" in message and method is not None:
            say({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})


if __name__ == "__main__":
    main()
