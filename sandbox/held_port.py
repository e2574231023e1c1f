"""A port of this machine's loopback, held from its choice until a proxy serves it.

    with HeldPort() as held:
        unwalled = Unwalled(name="box", pointed=True, proxy=Proxy(listen=held.port, …))
        wrapped = wrap(unwalled, ["make"])
        subprocess.run(wrapped.argv, env={**mine, **wrapped.env, **held.env}, pass_fds=[held.fd])

Whoever only chose a free port, and let the proxy bind it later, could find it taken by
another program, which would then be given every call and the secret in it.  So the
listening socket itself is handed over, and served as it is.
"""

from __future__ import annotations

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import MutableMapping

VARIABLE = "LNK_PROXY_LISTENER_FD"
"""Names the descriptor of a handed listener."""
LOOPBACK = "127.0.0.1"
BACKLOG = 4096
DESCRIPTOR_MAX = 1 << 24
TCP = 6


class HeldPort:
    """A listening socket on 127.0.0.1; `port` 0 takes a free one."""

    def __init__(self, port: int = 0) -> None:
        """Bind and listen; raises OSError where the port can't be had."""
        import socket

        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((LOOPBACK, port))
            self._listener.listen(BACKLOG)
        except BaseException:
            self._listener.close()
            raise
        self.port: int = self._listener.getsockname()[1]

    @property
    def fd(self) -> int:
        """The descriptor, to be inherited by the wrapped command under this number."""
        return self._listener.fileno()

    @property
    def env(self) -> dict[str, str]:
        """What tells the command of it."""
        return {VARIABLE: str(self.fd)}

    def close(self) -> None:
        """Let the port go; a proxy that was handed it holds it on."""
        self._listener.close()

    def __enter__(self) -> HeldPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def take_over(environ: MutableMapping[str, str], port: int) -> socket.socket | None:
    """Return the listener that a caller handed over, None where it handed none.

    It must listen at 127.0.0.1:`port`, or nothing is served: whoever handed another would be
    given calls that were meant for this proxy, or this proxy calls meant for another.
    The variable is taken out, and the listener won't reach a program that is started.
    Raises SandboxError (2) with one sentence.
    """
    text = environ.pop(VARIABLE, None)
    if text is None:
        return None
    fd = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not 2 < fd < DESCRIPTOR_MAX:
        raise _refused("a value", "is no descriptor above 2")
    if port == 0:
        raise _refused(f"descriptor {fd}", "has a port, and listen names none: name its port")
    listener = _opened(fd)
    try:
        why = _why_not(listener, port)
    except OSError as error:
        why = f"can't be looked at ({error.strerror})"
    if why:
        listener.detach()
        raise _refused(f"descriptor {fd}", why)
    listener.set_inheritable(False)
    return listener


def _opened(fd: int) -> socket.socket:
    import os
    import socket
    import stat

    try:
        is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        raise _refused(f"descriptor {fd}", "isn't open") from None
    if not is_socket:
        raise _refused(f"descriptor {fd}", "is no socket")
    return socket.socket(fileno=fd)


def _why_not(listener: socket.socket, port: int) -> str:
    """Say why a socket isn't the one that was meant, or nothing."""
    import socket

    if listener.family != socket.AF_INET or listener.type != socket.SOCK_STREAM:
        return "is no TCP socket of IPv4"
    if listener.proto not in (0, TCP):  # MPTCP's, say: another kernel path than was looked at
        return "is no TCP socket of IPv4"
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "doesn't listen"
    if listener.getsockname() != (LOOPBACK, port):
        return f"doesn't listen on {LOOPBACK}:{port}, as listen has it"
    return ""


def _refused(what: str, why: str) -> SandboxError:
    return SandboxError(
        f"{VARIABLE}: {what} {why}; hand over a socket that listens on {LOOPBACK}, its port "
        "named by listen (sandbox.client.HeldPort), or leave the variable out.",
        exit_code=2,
    )
