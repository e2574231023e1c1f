"""Mistral's client as a program uses it: it reads no address from the environment by itself."""

import json
import os

from mistralai.client import Mistral
from mistralai.client.errors import MistralError

client = Mistral(api_key=os.environ["MISTRAL_API_KEY"], server_url=os.environ["MISTRAL_BASE_URL"])
ASK = {"messages": [{"role": "user", "content": "hi"}]}
WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}
said = {}

said["plain"] = client.chat.complete(model="plain", **ASK).choices[0].message.content
said["stream"] = [
    each.data.choices[0].delta.content for each in client.chat.stream(model="plain", **ASK)
]
called = client.chat.complete(
    model="tools", tools=[{"type": "function", "function": WEATHER}], tool_choice="any", **ASK
)
call = called.choices[0].message.tool_calls[0]
said["tool"] = [call.function.name, call.function.arguments]
found = client.embeddings.create(model="plain", inputs=["a", "b"])
said["embeddings"] = [len(each.embedding) for each in found.data]
for name in ("limited", "overloaded", "echo"):
    try:
        client.chat.complete(model=name, **ASK)
    except MistralError as error:
        said[name] = [error.status_code, str(error)]
try:
    said["cut"] = ["", len(list(client.chat.stream(model="cut", **ASK)))]
except Exception as error:
    said["cut"] = [type(error).__name__]
print(json.dumps(said))
