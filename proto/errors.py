"""How a call can end badly.

The class carries the status to answer with, the message tells a person what to do.
Four words are kept apart: *malformed* (the peer's bytes), *refused* (our policy),
*failed* (the world), *cancelled* (us).  Messages hold host and port, never a path,
a header, a body or a secret.
"""

from __future__ import annotations

from proto.kinds import Cause


class ProxyError(Exception):
    """The root.  `status_hint` is the HTTP status to answer with, or None: say nothing."""

    status_hint: int | None = None
    phrase: str = "Error"
    """The reason phrase: few clients show the body of a refused CONNECT."""

    aside: str = ""
    """What is told to the client alone: a word of its own, which no log may hold."""

    told: tuple[bytes, bytes] | None = None
    """The media type and body of the answer, where a verb's clients read their own."""

    def __init__(self, message: str, *, phrase: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if phrase is not None:
            self.phrase = phrase


class MalformedRequest(ProxyError):
    """The client's bytes are not a request that two servers would read alike."""

    status_hint = 400
    phrase = "Bad Request"


class HeadTooLarge(MalformedRequest):
    """The head goes on past HEAD_MAX_BYTES."""

    status_hint = 431
    phrase = "Request Header Fields Too Large"


class VersionNotSupported(MalformedRequest):
    """An HTTP version that isn't 1.0 or 1.1 (RFC 9110 §15.6.6)."""

    status_hint = 505
    phrase = "HTTP Version Not Supported"


class WrongMediaType(MalformedRequest):
    """A body of a type or in a coding that isn't read here (RFC 9110 §15.5.16)."""

    status_hint = 415
    phrase = "Unsupported Media Type"


class NotImplementedHere(MalformedRequest):
    """A transfer coding or a scheme that this proxy doesn't speak (RFC 9112 §6.1)."""

    status_hint = 501
    phrase = "Not Implemented"


class ExpectationFailed(MalformedRequest):
    """An `Expect` other than `100-continue` (RFC 9110 §10.1.1)."""

    status_hint = 417
    phrase = "Expectation Failed"


class Refused(ProxyError):
    """Our policy says no; `key` names what would allow it, if anything would.

    `named`: what that key is called by whoever started the wire (`proto.policy.cures`).
    `metadata`: what was called is a cloud's metadata service.
    """

    status_hint: int | None = 403
    phrase = "Forbidden"
    looks_wrong = True
    """Whether many of these make the wire look wrong (`proto.policy.admission`)."""

    def __init__(
        self,
        message: str,
        *,
        phrase: str | None = None,
        key: str | None = None,
        named: str | None = None,
        metadata: bool = False,
    ) -> None:
        super().__init__(message, phrase=phrase)
        self.key = key
        self.named = named or key
        self.metadata = metadata


class NoSuchRoute(Refused):
    """An origin-form request for a path on which no verb is mounted."""

    status_hint = 404
    phrase = "Not Found"


class NoSuchMethod(Refused):
    """A path that is there, by a method that isn't (RFC 9110 §15.5.6)."""

    status_hint = 405
    phrase = "Method Not Allowed"


class WrongPlaceholder(Refused):
    """A call doesn't hold the placeholder that stands for a key, or holds another key."""

    status_hint = 401
    phrase = "Unauthorized"


class HelloRefused(Refused):
    """A tunnel doesn't begin with a ClientHello that names its host.

    It has no status: the 200 has gone, and what came now the client would take for the
    server's word.  The tunnel is logged and closed.
    """

    status_hint = None


class AuthenticationRequired(Refused):
    """The proxy's secret is missing or wrong; the connection is kept (RFC 9110 §11.7).

    Java and git send it only once they are asked, and anybody of this machine may come
    without it: neither says anything of the sandbox.
    """

    status_hint = 407
    phrase = "Proxy Authentication Required"
    looks_wrong = False


class RateLimited(Refused):
    """One call more than the policy's limit a minute; it may be made in `retry_after_s` seconds.

    The program does what its policy allows, only faster, so it doesn't look wrong.
    """

    status_hint = 429
    phrase = "Too Many Requests"
    looks_wrong = False

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message, key="network.per_minute")
        self.retry_after_s = retry_after_s


class WirePaused(Refused):
    """The kill switch, or a pause, closes the wire; `cause` says which."""

    status_hint = 503
    looks_wrong = False

    def __init__(self, cause: Cause) -> None:
        super().__init__(f"{cause.value}; {_CURES[cause]}.", phrase=cause.value.capitalize())
        self.cause = cause


_CURES = {
    Cause.STOPPED: "outside, `lnk sandbox start` opens it again",
    Cause.PAUSED: "outside, `lnk sandbox paused` says why, and `lnk sandbox resume` opens it",
    Cause.UNSEEN: "outside, `lnk sandbox paused` says what is wrong with Link's settings",
}


class ClientError(ProxyError):
    """The client left or broke its connection: there is nobody to answer."""


class RequestTimeout(ClientError):
    """The client didn't finish its request in time."""

    status_hint = 408
    phrase = "Request Timeout"


class UpstreamError(ProxyError):
    """The server could not be found, reached or understood."""

    status_hint = 502
    phrase = "Bad Gateway"


class UpstreamTimeout(UpstreamError):
    """The server didn't answer in time."""

    status_hint = 504
    phrase = "Gateway Timeout"


class WireBusy(ProxyError):
    """The proxy is out of descriptors or memory; it recovers by itself."""

    status_hint = 503
    phrase = "Service Unavailable"


class NotBound(ProxyError):
    """The proxy holds nothing of anybody's yet (`lnk sandbox proxy --blank`)."""

    status_hint = 503
    phrase = "Service Unavailable"


class CallCancelled(ProxyError):
    """We ended the call; `cause` says why."""

    status_hint = 503
    phrase = "Service Unavailable"

    def __init__(self, cause: Cause) -> None:
        super().__init__(f"{cause.value}.", phrase=cause.value.capitalize())
        self.cause = cause


class BadAnswer(UpstreamError):
    """The server's answer is not one that two readers would read alike."""


class ExitError(UpstreamError):
    """The proxy by which calls leave this machine could not be reached or understood."""


class ExitSilent(ExitError):
    """That proxy could not be reached in time."""

    status_hint = 504
    phrase = "Gateway Timeout"


class ExitRefused(ExitError):
    """That proxy could not, or would not, reach one address; another may do."""


class ExitTimeout(ExitRefused):
    """That proxy, or the server behind it, didn't answer in time."""

    status_hint = 504
    phrase = "Gateway Timeout"
