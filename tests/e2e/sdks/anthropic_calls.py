"""Anthropic's client as a program uses it: nothing here tells it of the sandbox or the wire."""

import json

import anthropic

client = anthropic.Anthropic(max_retries=0)
ASK = {"max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
WEATHER = {
    "name": "get_weather",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
said = {}

plain = client.messages.create(model="plain", **ASK)
said["plain"] = plain.content[0].text
said["usage"] = [plain.usage.input_tokens, plain.usage.output_tokens]

with client.messages.stream(model="plain", **ASK) as stream:
    said["stream"] = list(stream.text_stream)

with client.messages.stream(model="waits", **ASK) as stream:
    pieces = iter(stream.text_stream)
    first = next(pieces)  # the provider says the rest once it is asked for its models
    said["models"] = [each.id for each in client.models.list()]
    said["waited"] = [first, *pieces]

called = client.messages.create(model="tools", tools=[WEATHER, SEARCH], **ASK)
said["tool"] = [called.stop_reason, called.content[0].name, called.content[0].input]
answered = client.messages.create(
    model="plain",
    max_tokens=64,
    tools=[WEATHER],
    messages=[
        *ASK["messages"],
        {"role": "assistant", "content": called.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": called.content[0].id, "content": "7"}
            ],
        },
    ],
)
said["answered"] = answered.content[0].text
said["counted"] = client.messages.count_tokens(model="plain", messages=ASK["messages"]).input_tokens

for name in ("limited", "overloaded", "refused", "echo"):
    try:
        client.messages.create(model=name, **ASK)
    except anthropic.APIStatusError as error:
        said[name] = [error.status_code, type(error).__name__, str(error)]
try:
    client.messages.create(
        model="plain",
        max_tokens=64,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/x.png"}}
                ],
            }
        ],
    )
except anthropic.APIStatusError as error:
    said["url"] = [error.status_code, str(error)]
try:
    with client.messages.stream(model="cut", **ASK) as stream:
        said["cut"] = ["", list(stream.text_stream)]
except Exception as error:
    said["cut"] = [type(error).__name__]
print(json.dumps(said))
