"""OpenAI's client as a program uses it: nothing here tells it of the sandbox or the wire."""

import json

import openai

client = openai.OpenAI(max_retries=0)
ASK = {"messages": [{"role": "user", "content": "hi"}]}
WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}
said = {}

plain = client.chat.completions.create(model="plain", **ASK)
said["plain"] = plain.choices[0].message.content
stream = client.chat.completions.create(
    model="plain", stream=True, stream_options={"include_usage": True}, **ASK
)
pieces = list(stream)
said["stream"] = [each.choices[0].delta.content for each in pieces if each.choices]
said["usage"] = pieces[-1].usage.total_tokens

called = client.chat.completions.create(
    model="tools", tools=[{"type": "function", "function": WEATHER}], **ASK
)
call = called.choices[0].message.tool_calls[0]
said["tool"] = [call.function.name, call.function.arguments]

answer = client.responses.create(
    model="plain", input="hi", tools=[{"type": "web_search"}, {"type": "function", **WEATHER}]
)
said["response"] = answer.output_text
with client.responses.stream(model="plain", input="hi") as events:
    said["events"] = [event.type for event in events]
found = client.embeddings.create(model="plain", input=["a", "b"])
said["embeddings"] = [len(each.embedding) for each in found.data]
said["models"] = [each.id for each in client.models.list()]

for name in ("limited", "overloaded", "gpt-4o-search-preview", "echo"):
    try:
        client.chat.completions.create(model=name, **ASK)
    except openai.APIStatusError as error:
        said[name] = [error.status_code, str(error)]
try:
    cut = client.chat.completions.create(model="cut", stream=True, **ASK)
    said["cut"] = ["", len(list(cut))]
except Exception as error:
    said["cut"] = [type(error).__name__]
print(json.dumps(said))
