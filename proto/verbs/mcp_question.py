"""What the person is shown of a call to a tool: all of it, in plain text.

Each value is printed as JSON in ASCII, so nothing in it can end a line, turn its
direction, or look like a letter that it isn't.  A dialog that reads markup finds none.
"""

from __future__ import annotations

from collections.abc import Iterator

from proto.codecs.jsonrpc import Object, Request, Value, text_of
from proto.verbs.mcp_rules import INPUTS, META, NAMED, name_of

QUESTION_MAX_CHARS = 64 << 10
"""Nobody reads more; a call that is longer is refused, never cut."""
HINT_MAX_CHARS = 200
TOLD = frozenset(
    {
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/logLevel",
    }
)
"""What of `_meta` only tells who calls and where answers go; it isn't shown."""

HINTS = {
    "readOnlyHint": ("it changes nothing", "it changes something"),
    "destructiveHint": ("it may destroy", "it destroys nothing"),
    "idempotentHint": ("doing it twice is doing it once", "doing it twice does more"),
    "openWorldHint": ("it reaches others", "it stays on this machine"),
}
"""A server's hints (MCP's tool annotations), said where true and where false."""


def question(tool: str, request: Request, hint: Object | None) -> str | None:
    """Return the question about a request, None where it is too long to be read.

    `hint` is what the tool's server said of the call in its list (`hint_of`), if it did.
    """
    # As a tree it is longer, and what is nested deeply takes long to be made one.
    if len(text_of(request.params or {})) > QUESTION_MAX_CHARS:
        return None
    text = "\n".join(_lines(tool, request, hint))
    return text if len(text) <= QUESTION_MAX_CHARS else None


def _lines(tool: str, request: Request, hint: Object | None) -> Iterator[str]:
    name = name_of(request)
    what = "call" if request.method == "tools/call" else plain(request.method)
    yield f"{what} {plain(name)}" if request.method in NAMED else what
    yield f"of the tool {plain(tool)}, which runs outside the sandbox"
    params = {
        key: value
        for key, value in (request.params or {}).items()
        if key != META and key != NAMED.get(request.method)
    }
    arguments = params.pop("arguments", None) if request.method in NAMED else None
    inputs = params.pop(INPUTS, None)
    if arguments:
        yield from ("", "with:", *_tree(arguments, "  "))
    elif request.method in NAMED:
        yield "with no arguments"
    meta = _meta_shown(request)
    if meta:
        params[META] = meta
    if params:
        yield from ("", "and beside them:", *_tree(params, "  "))
    if inputs:
        yield from ("", "and, as your answers to what its server asked:", *_tree(inputs, "  "))
    if hint:
        yield from ("", "Its server says of it, which nobody has checked:", *_said(hint))


def consent(tool: str, asked: Request, result: Value) -> str | None:
    """Return the question whether the program may answer for the person what a server asks them.

    None where it is too long to be read.
    """
    params: Object = asked.params or {}
    if len(text_of(params)) + len(text_of(result)) > QUESTION_MAX_CHARS:
        return None
    lines = (
        "answer, in your name, what the server of a tool asks you",
        f"of the tool {plain(tool)}, which runs outside the sandbox",
        "",
        "It asks:",
        *_tree({key: value for key, value in params.items() if key != META}, "  "),
        "",
        "and the program's answer is:",
        *_tree(result, "  "),
    )
    text = "\n".join(lines)
    return text if len(text) <= QUESTION_MAX_CHARS else None


def _meta_shown(request: Request) -> Object:
    meta = (request.params or {}).get(META)
    assert meta is None or isinstance(meta, dict), "check_request has seen to it"
    return {key: value for key, value in (meta or {}).items() if key not in TOLD}


def plain(value: Value) -> str:
    """Print a value as JSON that holds only what can be printed, and no markup's sign."""
    return text_of(value).replace("\x7f", "\\u007f").replace("<", "\\u003c")


def _tree(value: Value, indent: str) -> Iterator[str]:
    """Print a value over as many lines as it has parts."""
    if isinstance(value, dict) and value:
        yield f"{indent}{{"
        for key, inner in value.items():
            first, *rest = _tree(inner, f"{indent}  ")
            yield f"{indent}  {plain(key)}: {first.lstrip(' ')}"
            yield from rest
        yield f"{indent}}}"
    elif isinstance(value, list) and value:
        yield f"{indent}["
        for inner in value:
            yield from _tree(inner, f"{indent}  ")
        yield f"{indent}]"
    else:
        yield f"{indent}{plain(value)}"


def hint_of(tool: Object) -> Object:
    """Return what of a server's word on a call is ever shown, and no longer than it is."""
    annotations = tool.get("annotations")
    annotations = annotations if isinstance(annotations, dict) else {}
    title = annotations.get("title", tool.get("title"))
    kept: Object = {key: said for key in HINTS if isinstance(said := annotations.get(key), bool)}
    return kept | ({"title": title[:HINT_MAX_CHARS]} if isinstance(title, str) else {})


def _said(hint: Object) -> Iterator[str]:
    """Say a server's hints in words."""
    if "title" in hint:
        yield f"  its title: {plain(hint['title'])}"
    for key, (yes, no) in HINTS.items():
        if key in hint:
            yield f"  {yes if hint[key] else no}"
