"""A secret added to the calls of one service, by a rule that is data (R51).

    /_link/secret/telegram/bot<placeholder>/sendMessage
        -> https://api.telegram.org/bot<secret>/sendMessage

The rule says the one host, the shapes of the paths that a call may take, where the secret
goes, and which paths are refused though a shape has them.  A call has to hold the placeholder
just where the secret goes; everything else of it stays as it is.  Paths are compared as they
came: what is encoded, relative or doubled has no shape, so nothing of it is decoded.

On the way back the secret is taken out wherever the service repeats it, a redirect to the
service itself leads to the route again, and a cookie, which could stand for the secret
afterwards, goes nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from proto.codecs.fields import Field, print_fields
from proto.codecs.http1 import ResponseHead
from proto.errors import BadAnswer, MalformedRequest, NoSuchRoute, Refused
from proto.verbs.bridge import Outgoing, Request, onward_lines
from proto.verbs.spelled import Spelled, credentials

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""A TRACE would have the service say back what it was told."""

SECRET, NAME, PATH = "{secret}", "{name}", "{path}"
_PARTS = re.compile(r"(\{secret\}|\{name\}|\{path\})")

_NAME = rb"[A-Za-z0-9]++"
_SEGMENT = rb"(?!\.++(?:/|\Z))[A-Za-z0-9._~-]++"
_PATH = _SEGMENT + rb"(?:/" + _SEGMENT + rb")*"
"""A plain relative path: segments of unreserved characters (RFC 3986 §2.3), none of dots alone."""

_QUERY = re.compile(rb"[!-\"$-~]*+")
"""No "#": what follows one is no part of a query, and readers differ on whose it is."""

DROPPED = frozenset({b"accept-charset", b"accept-encoding", b"range", b"if-range"})
"""An answer that is encoded, or of which a program chooses parts, could have the secret in it
where nobody would find it: half of it in one part and half in the next."""
STEERING = frozenset(
    {
        b"forwarded",
        b"x_forwarded_host",
        b"x_forwarded_path",
        b"x_forwarded_prefix",
        b"x_forwarded_server",
        b"x_forwarded_uri",
        b"x_host",
        b"x_http_host_override",
        b"x_original_host",
        b"x_original_uri",
        b"x_original_url",
        b"x_rewrite_url",
    }
)
"""Fields, as variables, by which a service behind a gateway takes another path or host than the
request line's: a path that the rule refuses could be asked for in one."""
_NO_ASCII = re.compile(
    rb";\s*charset\s*=\s*[\"']?\s*(?:x-)?(?:cs)?"
    rb"(?:utf-?(?:7|16|32)|ucs|unicode|iso-10646|ebcdic|scsu|bocu"
    rb"|(?:ibm|cp)-?0?(?:37|500|1026|1047|114[0-9])\b)",
    re.IGNORECASE,
)
"""A charset in which letters aren't written as in ASCII: an encoding as good as any other."""
COOKIES = frozenset({b"set-cookie", b"set-cookie2"})
PLAIN_ENCODING = (b"Accept-Encoding", b"identity")
SHORT_CHARS = 8
"""Parts of a secret shorter than this are no secret by themselves, and are found anywhere."""


class Shape:
    """A path's shape, with a placeholder's or a secret's own text where `{secret}` stands."""

    __slots__ = ("_parts", "_pattern")

    def __init__(self, shape: str, placeholder: bytes, flags: int = 0) -> None:
        self._parts = [part for part in _PARTS.split(shape) if part]
        held = {SECRET: re.escape(placeholder), NAME: b"(%b)" % _NAME, PATH: b"(%b)" % _PATH}
        pattern = b"".join(held.get(p) or re.escape(p.encode("ascii")) for p in self._parts)
        self._pattern = re.compile(pattern, flags)

    def fits(self, path: bytes) -> bool:
        """Tell whether a path has this shape."""
        return self._pattern.fullmatch(path) is not None

    def filled(self, path: bytes, secret: bytes) -> bytes | None:
        """Return a path with the secret in the placeholder's stead; None if it hasn't the shape."""
        match = self._pattern.fullmatch(path)
        if match is None:
            return None
        found = iter(match.groups())
        return b"".join(
            secret if part == SECRET else next(found) if part in (NAME, PATH) else part.encode()
            for part in self._parts
        )


class Held:
    """One secret, its rule, and the placeholder that the program holds."""

    __slots__ = (
        "_header", "_refused", "_shapes", "_told", "host", "name", "placeholder", "secret",
        "spelled",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        host: str,
        paths: Iterable[str],
        refused: Iterable[str],
        header: tuple[str, str] | None,
        placeholder: str,
        secret: str,
    ) -> None:
        self.name, self.host = name.encode("ascii"), host.lower()
        self.placeholder, self.secret = placeholder.encode("ascii"), secret.encode("ascii")
        self._shapes = [Shape(each, self.placeholder) for each in paths]
        # Services read a method's name without its case.
        self._refused = [Shape(each, self.placeholder, re.IGNORECASE) for each in refused]
        self._header = None if header is None else header[0].encode("ascii")
        self._told = b"" if header is None else header[1].encode("ascii")
        self.spelled = Spelled(self.forms())

    def __repr__(self) -> str:
        return f"Held({self.name!r})"

    def path(self, path: bytes) -> bytes:
        """Return the path that goes to the service; Refused (403) for one that may not."""
        if any(each.fits(path) for each in self._refused):
            raise Refused("this call is one that the secret's rule refuses.")
        for shape in self._shapes:
            filled = shape.filled(path, self.secret)
            if filled is not None:
                return filled
        raise Refused(
            "this path has none of the shapes of the secret's rule, or not its placeholder."
        )

    def lines(self, request: Request) -> bytes:
        """Return the field lines that go to the service; Refused (403) without the placeholder."""
        names = {each.lower() for each, _ in request.head.fields}
        dropped = DROPPED | {each for each in names if _as_variable(each) in STEERING}
        if self._header is None:
            return onward_lines(request, dropped) + print_fields((PLAIN_ENCODING,))
        name = self._header.lower()
        # A gateway that hands fields on as variables takes `x_key` for `x-key` (RFC 3875 §4.1.18):
        # one beside it could be somebody else's key.
        alike = _as_variable(name)
        told = [
            (each.lower(), said)
            for each, said in request.head.fields
            if _as_variable(each) == alike
        ]
        if told != [(name, self._with(self.placeholder))]:
            raise Refused("the secret's header isn't there just once, with its placeholder.")
        ours = ((self._header, self._with(self.secret)), PLAIN_ENCODING)
        return onward_lines(request, dropped | {name}) + print_fields(ours)

    def _with(self, text: bytes) -> bytes:
        return self._told.replace(SECRET.encode(), text)

    def forms(self) -> list[bytes]:
        """Return what a service may repeat: the secret, and what Basic credentials are made of.

        Those are a user and a password (RFC 7617 §2), and the password alone is a secret too.
        """
        found = [self.secret]
        if self._told.lower().startswith(b"basic "):
            found += (each for each in credentials(self.secret) if len(each) >= SHORT_CHARS)
        return found


def _as_variable(name: bytes) -> bytes:
    return name.lower().replace(b"-", b"_")


class SecretVerb:
    """The verb: a wire's secrets by their names."""

    def __init__(self, secrets: Iterable[Held]) -> None:
        self._secrets = {each.name: each for each in secrets}

    def reads(self, request: Request) -> int:
        """Bodies pass as they come: the secret never goes into one."""
        return 0

    def call(self, request: Request, body: bytes) -> Outgoing:
        """Return the call to the service; NoSuchRoute (404), Refused (403)."""
        name, slash, rest = request.path[1:].partition(b"/")
        held = self._secrets.get(name)
        if held is None or not slash:
            raise NoSuchRoute("there is no such secret here.")
        if request.head.method not in METHODS:
            raise Refused(f"a secret's calls are {', '.join(sorted(METHODS))}.")
        if _QUERY.fullmatch(request.query) is None:
            raise MalformedRequest("a query ends where a # begins.")
        target = held.path(b"/" + rest) + request.question + request.query
        return Outgoing(held.host, target, held.lines(request), edit=Scrub(held))


class Scrub:
    """Takes a secret out of an answer, whose length stays what it was."""

    __slots__ = ("_held", "_kept", "_spelled")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._spelled = held.spelled
        self._kept = b""

    def head(self, head: ResponseHead) -> ResponseHead:
        """Take it out of the fields; BadAnswer (502) for a body that can't be looked through."""
        if head.status == 206:
            raise BadAnswer("the service answered with a part, which wasn't asked for.")
        if any(value.lower() != b"identity" for value in head.get_all(b"content-encoding")):
            raise BadAnswer("the service encoded its answer, which wasn't asked for.")
        if any(map(_NO_ASCII.search, head.get_all(b"content-type"))):
            raise BadAnswer("the service answered in a charset that can't be looked through.")
        fields = tuple(self._field(each) for each in head.fields if self._passes(each[0]))
        return ResponseHead(head.version, head.status, self._without(head.reason), fields)

    def _passes(self, name: bytes) -> bool:
        """Tell whether a field goes on: no cookie does, and no name that repeats the secret."""
        return name.lower() not in COOKIES and not self._spelled.stands_in(name)

    def _field(self, field: Field) -> Field:
        name, value = field
        if name.lower() == b"location":
            value = self._back(value)
        return name, self._without(value)

    def _back(self, place: bytes) -> bytes:
        """Return a redirect to the service itself as one to the route."""
        route = b"/_link/secret/" + self._held.name
        origin = b"https://" + self._held.host.encode("ascii")
        if place[: len(origin)].lower() == origin and place[len(origin) :][:1] in (b"/", b""):
            return route + (place[len(origin) :] or b"/")
        return route + place if place.startswith(b"/") and place[:2] != b"//" else place

    def _without(self, text: bytes) -> bytes:
        """Return a text with the placeholder in the secret's stead."""
        return self._spelled.replaced(text, self._held.placeholder)

    def body(self, data: bytes) -> bytes:
        """Take it out of a body that comes in pieces, wherever it is cut."""
        data = self._spelled.starred(self._kept + data)
        at = self._spelled.begun(data)
        self._kept = data[at:]
        return data[:at]

    def end(self) -> bytes:
        """Return what was held back: the body ended before it became the secret."""
        kept, self._kept = self._kept, b""
        return kept
