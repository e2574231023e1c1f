"""Google's client as a program uses it: nothing here tells it of the sandbox or the wire."""

import json

from google import genai
from google.genai import errors, types

client = genai.Client()
said = {}

plain = client.models.generate_content(model="plain", contents="hi")
said["plain"] = plain.text
said["usage"] = plain.usage_metadata.total_token_count
said["stream"] = [
    each.text for each in client.models.generate_content_stream(model="plain", contents="hi")
]
declared = types.FunctionDeclaration(
    name="get_weather", parameters_json_schema={"type": "object", "properties": {}}
)
tools = [
    types.Tool(function_declarations=[declared]),
    types.Tool(google_search=types.GoogleSearch()),
]
called = client.models.generate_content(
    model="tools",
    contents=["hi", types.Part.from_bytes(data=b"hi", mime_type="image/png")],
    config=types.GenerateContentConfig(
        tools=tools,
        system_instruction="s",
        temperature=0.5,
        response_modalities=["TEXT"],
        thinking_config=types.ThinkingConfig(thinking_budget=0),
    ),
)
said["tool"] = [called.function_calls[0].name, called.function_calls[0].args]
said["counted"] = client.models.count_tokens(model="plain", contents="hi").total_tokens
found = client.models.embed_content(model="plain", contents=["a", "b"])
said["embeddings"] = [len(each.values) for each in found.embeddings]

for name in ("limited", "overloaded", "echo"):
    try:
        client.models.generate_content(model=name, contents="hi")
    except errors.APIError as error:
        said[name] = [error.code, str(error)]
try:
    part = types.Part.from_uri(file_uri="https://example.com/x.png", mime_type="image/png")
    client.models.generate_content(model="plain", contents=[part])
except errors.APIError as error:
    said["url"] = [error.code, str(error)]
try:
    pieces = list(client.models.generate_content_stream(model="cut", contents="hi"))
    said["cut"] = ["", len(pieces)]
except Exception as error:
    said["cut"] = [type(error).__name__]
print(json.dumps(said))
