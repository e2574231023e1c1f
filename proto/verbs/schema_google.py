"""Google's Gemini API: what of a request's body is understood.

Its reader (ProtoJSON) takes each field in two spellings, `fileData` and `file_data`; both are
one field here, and both at once are refused.  It takes one content, part or tool for a list of
it, as an example of Google's own is written, and as some clients send tools.
"""

from __future__ import annotations

import re

from proto.verbs.shapes import (
    ANY,
    PLAIN,
    Each,
    Inline,
    Known,
    ModelName,
    Refused,
    Schema,
    Shape,
    ToolsByKey,
    known,
    spelt_twice,
)

KEPT_FILE = re.compile(
    r"(?:https://generativelanguage\.googleapis\.com/v1(?:beta)?/)?files/[a-z0-9-]{1,64}"
)
"""The address of a file that is kept with the key's own account; nothing is fetched for it."""


def _both(names: str = "", /, **shapes: Shape) -> Known:
    return spelt_twice(known(names, **shapes))


_FILE = _both("mimeType displayName", fileUri=Inline(kept=KEPT_FILE))
_BLOB = _both("mimeType displayName", data=Inline(bare=True))
_SAID_OF_MEDIA = (
    "videoMetadata mediaResolution mediaProcessing documentMetadata spreadsheetMetadata"
    " audioMetadata"
)
_PART = _both(
    "text thought thoughtSignature functionCall executableCode codeExecutionResult toolCall"
    f" toolResponse partMetadata audioTranscription speechMetadata {_SAID_OF_MEDIA}",
    inlineData=_BLOB,
    fileData=_FILE,
    functionResponse=_both(
        "id name response willContinue scheduling",
        parts=Each(_both(_SAID_OF_MEDIA, inlineData=_BLOB, fileData=_FILE)),
    ),
)
_CONTENT = _both("role", parts=Each(_PART, or_one=True))
_DECLARATION = _both(
    "name description behavior",
    parameters=Schema(),
    parametersJsonSchema=Schema(),
    response=Schema(),
    responseJsonSchema=Schema(),
)
_GENERATION = _both(
    "temperature topP topK candidateCount maxOutputTokens stopSequences responseLogprobs logprobs"
    " presencePenalty frequencyPenalty seed responseMimeType responseModalities mediaResolution"
    " speechConfig thinkingConfig imageConfig enableEnhancedCivicAnswers audioTimestamp"
    " audioTranscriptionConfig",
    responseSchema=Schema(),
    responseJsonSchema=Schema(),
    _responseJsonSchema=Schema(),
)

_FIELDS: dict[str, Shape] = {
    "model": ModelName(),
    "contents": Each(_CONTENT, or_one=True),
    "systemInstruction": _CONTENT,
    "tools": ToolsByKey(_both(functionDeclarations=Each(_DECLARATION, or_one=True))),
    "toolConfig": _both("functionCallingConfig retrievalConfig includeServerSideToolInvocations"),
    "generationConfig": _GENERATION,
    "safetySettings": ANY,
    "labels": ANY,
    "serviceTier": ANY,
    "continuationToken": PLAIN,
    "store": ANY,
    "cachedContent": Refused("content that is kept at the provider can bring tools with it"),
}
GENERATE = _both(**_FIELDS)
COUNT = _both(**_FIELDS, generateContentRequest=GENERATE)
EMBED = _both(
    "taskType title outputDimensionality embedContentConfig", model=ModelName(), content=_CONTENT
)
EMBED_MANY = _both(requests=Each(EMBED))
