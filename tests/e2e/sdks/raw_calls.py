"""Calls as an attacker makes them, who looks for the key everywhere that can be read inside.

The key's own letters aren't known in here either: what is looked for is their hash.
"""

import glob
import hashlib
import http.client
import json
import os
import sys
from urllib.parse import urlsplit

DIGEST, LENGTH, BEGINS = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
URL = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
HELD = os.environ["ANTHROPIC_API_KEY"]
said = {"raw": {}, "found": []}


def look(place: str, data: bytes) -> None:
    """Note a place in whose bytes the key stands."""
    at = data.find(BEGINS)
    while at >= 0:
        if hashlib.sha256(data[at : at + LENGTH]).hexdigest() == DIGEST:
            said["found"].append(place)
        at = data.find(BEGINS, at + 1)


def call(name: str, model: str, **more: object) -> None:
    """Make a call and keep what came: status, fields and body, as they came."""
    body = {"model": model, "max_tokens": 64, "messages": [], **more}
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=60)
    fields = {"x-api-key": HELD, "content-type": "application/json"}
    connection.request("POST", f"{URL.path}/v1/messages", json.dumps(body), fields)
    answer = connection.getresponse()
    try:
        data = answer.read()
    except http.client.IncompleteRead as error:
        data = error.partial
        said["raw"][f"{name}.cut"] = True
    fields = [list(each) for each in answer.getheaders()]
    said["raw"][name] = [answer.status, fields, data.decode("latin-1")]
    look(f"the answer of {name}", repr(fields).encode() + answer.reason.encode() + data)


for model in ("plain", "echo", "redirect", "slips", "coded", "cut"):
    call(model, model)
call("stream", "plain", stream=True)
call("cut stream", "cut", stream=True)

for place in (
    "/proc/*/environ",
    "/proc/*/cmdline",
    "/proc/*/maps",
    "/proc/*/task/*/environ",
    "/proc/*/mounts",
    "/proc/*/fd/*",
    "/etc/*",
    "/tmp/*",
    f"{os.getcwd()}/*",
    f"{os.path.expanduser('~')}/*",
    f"{os.path.expanduser('~')}/.*",
):
    for path in glob.glob(place):
        try:
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    look(path, file.read(1 << 20))
        except OSError:
            continue
look("the environment", repr(dict(os.environ)).encode())
said["looked"] = True
print(json.dumps(said))
