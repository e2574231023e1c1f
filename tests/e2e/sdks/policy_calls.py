"""A call to a model that searches by nature, and one with the provider's own tools."""

import http.client
import json
import os
from urllib.parse import urlsplit

URL = urlsplit(os.environ["OPENAI_BASE_URL"])
FIELDS = {
    "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
    "content-type": "application/json",
}
said = {}
for name, path, body in (
    ("searches", "/chat/completions", {"model": "gpt-4o-search-preview", "messages": []}),
    ("tools", "/responses", {"model": "m", "input": "x", "tools": [{"type": "web_search"}]}),
):
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=60)
    connection.request("POST", URL.path + path, json.dumps(body), FIELDS)
    answer = connection.getresponse()
    answer.read()
    said[name] = answer.status
print(json.dumps(said))
