"""Calls whose answers tell of usage, by the standard library alone; then the list of models."""

import http.client
import json
import os
from urllib.parse import urlsplit


def call(name: str, path: str, fields: dict[str, str], body: object = None) -> None:
    """Make a call and read its answer to the end."""
    url = urlsplit(os.environ[f"{name}_BASE_URL"])
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    fields["content-type"] = "application/json"
    data = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", url.path + path, data, fields)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()


ASK = {"model": "plain", "messages": [{"role": "user", "content": "hi"}]}
ANTHROPIC = {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
OPENAI = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
call("ANTHROPIC", "/v1/messages", ANTHROPIC, {**ASK, "max_tokens": 9})
call("ANTHROPIC", "/v1/messages", ANTHROPIC, {**ASK, "max_tokens": 9, "stream": True})
call("OPENAI", "/chat/completions", OPENAI, ASK)
call("OPENAI", "/chat/completions", OPENAI, {**ASK, "stream": True})
call("OPENAI", "/responses", OPENAI, {"model": "plain", "input": "hi", "stream": True})
call("ANTHROPIC", "/v1/models", ANTHROPIC)
print(json.dumps({"asked": 5}))
