"""System calls that Python 3.11 has no word for, without the 5 ms of `import ctypes`.

Imported where a sandbox starts and inside it, so it imports no `os`.
"""

import posix

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38

MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_HUGETLB, MFD_NOEXEC_SEAL, MFD_EXEC = 1, 2, 4, 8, 16
"""memfd_create(2)'s flags; Python 3.11 has no word for the last two."""


class Libc:
    """Functions of the C library that return -1 and errno; each is looked up once.

    An argument is an `int`, `bytes` (a pointer to them, read only), None (a null pointer), or
    what `array` returns (a pointer too).
    """

    __slots__ = (
        "_array",
        "_errno",
        "_functions",
        "_kind",
        "_library",
        "_long",
        "_symbol",
        "_texts",
    )

    def __init__(self) -> None:
        import _ctypes

        class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "l"

        class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "c"

        class Text(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "z"

        def texts(words: "list[bytes]") -> "Any":
            kind: Any = type(
                "Texts", (_ctypes.Array,), {"_type_": Text, "_length_": len(words) + 1}
            )
            return kind(*words, None)

        def array(buffer: bytearray) -> "Any":
            kind: Any = type("Array", (_ctypes.Array,), {"_type_": Char, "_length_": len(buffer)})
            return kind.from_buffer(buffer)

        class Function(_ctypes.CFuncPtr):
            _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
            _restype_ = Long

        self._library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        self._symbol = _ctypes.dlsym
        self._errno = _ctypes.get_errno
        self._kind = Function
        self._long = Long
        self._array = array
        self._texts = texts
        self._functions: dict[str, Callable[..., int]] = {}

    def call(self, name: str, *arguments: "Any") -> int:
        """Call a function that returns an `int`; raise OSError where it answers -1."""
        # An int leaves the upper half of a word on the stack as it was, and the kernel looks
        # at all of it.
        words = [self._long(one) if isinstance(one, int) else one for one in arguments]
        # A function that returns an int leaves the upper half of the register as it was.
        answer = self.function(name)(*words) & 0xFFFFFFFF
        if answer == 0xFFFFFFFF:
            raise self.error(name)
        return answer

    def function(self, name: str) -> "Callable[..., int]":
        """Return a function as it is, for calls that have to be fast: answers aren't judged."""
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self._kind(self._symbol(self._library, name))
        return found

    def error(self, name: str) -> OSError:
        """Return what the last call of this thread failed with."""
        number = self._errno()
        return OSError(number, f"{name}: {posix.strerror(number)}")

    def syscall(self, number: int, *arguments: "Any") -> int:
        """Make a system call by its number; raise OSError where it fails."""
        return self.call("syscall", number, *arguments)

    def array(self, buffer: bytearray) -> "Any":
        """Return a buffer as an argument that the kernel may write to."""
        return self._array(buffer)

    def texts(self, words: "list[bytes]") -> "Any":
        """Return texts as C has a list of them (`argv`), with its null pointer."""
        return self._texts(words)

    def address(self, buffer: bytearray) -> int:
        """Return where a buffer lies, for a structure that points to it.

        Keep the buffer, at its length, for as long as it is pointed to.
        """
        import _ctypes

        return int(_ctypes.addressof(self._array(buffer)))


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
