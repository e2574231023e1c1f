"""The ClientHello reader: `proto/codecs/client_hello.py`."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies_hello import (
    ENCRYPTED_HELLO,
    PRE_SHARED_KEY,
    Extension,
    Hello,
    Stream,
    bent,
    cut,
    hello_for,
    message,
    points,
    record,
    server_name,
    sized,
    streams,
)
from proto.codecs.client_hello import HELLO_MAX_BYTES, RAW_MAX_BYTES, HelloReader
from proto.errors import HelloRefused

NAME = server_name(b"example.com")
HELLO = hello_for(b"example.com")


def read(pieces: Iterable[bytes]) -> tuple[str | None, bytes]:
    """Feed pieces as a shell does, never more than there is room for."""
    reader = HelloReader()
    for piece in pieces:
        while piece:
            part, piece = piece[: reader.room], piece[max(0, reader.room) :]
            assert part, "the reader has no room, and no verdict"
            name = reader.feed(part)
            if name is not None:
                return name, reader.raw
    return None, reader.raw


def verdict(pieces: Iterable[bytes]) -> str | None:
    """Return the name, None for "more", or "refused"."""
    try:
        return read(pieces)[0]
    except HelloRefused:
        return "refused"


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def refused(data: bytes) -> str:
    """Return the message of the refusal that `data` gets, whole and a byte at a time."""
    with pytest.raises(HelloRefused) as whole:
        read([data])
    with pytest.raises(HelloRefused):
        read(bytewise(data))
    return whole.value.message


def named(*extensions: Extension) -> bytes:
    return record(Hello(list(extensions)).message())


def test_the_name_is_read_in_small_letters() -> None:
    assert read([record(hello_for(b"EXAMPLE.com"))])[0] == "example.com"


def test_every_byte_is_kept_for_the_server() -> None:
    data = record(HELLO[:10]) + record(HELLO[10:]) + b"\x17\x03\x03\x00\x01x"
    assert read([data[:3], data[3:]]) == ("example.com", data)


def test_an_empty_piece_changes_nothing() -> None:
    reader = HelloReader()
    assert reader.feed(b"") is None
    assert reader.feed(record(HELLO)) == "example.com"


@pytest.mark.parametrize("size", [1, 3, 4, 50])
def test_a_hello_over_many_records_is_read(size: int) -> None:
    pieces = [HELLO[at : at + size] for at in range(0, len(HELLO), size)]
    data = b"".join(record(piece) for piece in pieces)
    assert read([data])[0] == read(bytewise(data))[0] == "example.com"


def test_a_part_of_a_hello_waits() -> None:
    data = record(HELLO[:50]) + record(HELLO[50:])
    assert all(verdict([data[:end]]) is None for end in range(len(data)))


def sent_by_openssl(newest: ssl.TLSVersion) -> bytes:
    """Return the record that OpenSSL's client sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="www.example.org")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


REAL = [sent_by_openssl(newest) for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)]


@pytest.mark.parametrize("data", REAL)
def test_what_a_real_client_sends_is_read(data: bytes) -> None:
    assert read(bytewise(data))[0] == "www.example.org"


@pytest.mark.parametrize("kind", [0, 20, 21, 23, 24, 128, 255])
def test_a_record_of_another_type_is_refused(kind: int) -> None:
    assert "TLS handshake" in refused(record(HELLO, kind=kind))
    assert "TLS handshake" in refused(record(HELLO[:9]) + record(HELLO[9:], kind=kind))


@pytest.mark.parametrize("major", [0, 2, 4, 254])
def test_a_record_of_no_tls_version_is_refused(major: int) -> None:
    assert "version" in refused(record(HELLO, version=bytes([major, 1])))


def test_a_record_with_nothing_in_it_is_refused() -> None:
    assert "length" in refused(record(b"") + record(HELLO))
    assert "length" in refused(record(HELLO[:9]) + record(b"") + record(HELLO[9:]))


def test_a_record_too_long_for_tls_is_refused_by_its_head() -> None:
    assert "length" in refused(b"\x16\x03\x01\x40\x01")


@pytest.mark.parametrize("kind", [0, 2, 4, 11, 16, 254])
def test_another_message_is_refused_by_its_first_byte(kind: int) -> None:
    assert "no ClientHello" in refused(b"\x16\x03\x01\x00\x05" + bytes([kind]))


def padded_to(size: int) -> bytes:
    """Return a hello of `size` bytes, in one message."""
    bare = len(Hello([NAME, (21, b"")]).message())
    return Hello([NAME, (21, bytes(size - bare))]).message()


def test_the_longest_hello_is_read_and_one_byte_more_is_refused() -> None:
    assert read([record(padded_to(HELLO_MAX_BYTES))])[0] == "example.com"
    over = padded_to(HELLO_MAX_BYTES + 1)
    assert "longer" in refused(record(over[:9]) + record(over[9:]))


def test_a_length_over_the_limit_is_refused_before_the_message_comes() -> None:
    assert "longer" in refused(record(b"\x01\xff\xff\xff"))


def test_a_hello_in_too_many_records_is_refused_and_memory_stays_bounded() -> None:
    data = b"".join(record(byte) for byte in bytewise(padded_to(HELLO_MAX_BYTES)))
    assert len(data) > RAW_MAX_BYTES
    reader = HelloReader()
    fed = 0
    with pytest.raises(HelloRefused, match="too many bytes"):  # noqa: PT012
        while piece := data[fed : fed + min(reader.room, 1000)]:
            fed += len(piece)
            reader.feed(piece)
    assert fed == len(reader.raw) == RAW_MAX_BYTES


def test_a_hello_that_ends_past_the_limit_is_refused_also_when_it_comes_at_once() -> None:
    # Bytes that came behind a CONNECT's head are fed whole, whatever room there is.
    small = padded_to(11000)
    data = b"".join(record(byte) for byte in bytewise(small))
    assert len(data) > RAW_MAX_BYTES
    with pytest.raises(HelloRefused, match="too many bytes"):
        HelloReader().feed(data)


def test_anything_behind_the_hello_in_its_record_is_refused() -> None:
    assert "behind" in refused(record(HELLO + HELLO))
    assert "behind" in refused(record(HELLO + b"\x00"))
    assert "behind" in refused(record(HELLO[:20]) + record(HELLO[20:] + b"\x00"))


def test_it_is_refused_as_soon_as_the_lengths_tell() -> None:
    assert "behind" in refused(record(HELLO + b"\x00")[:9])


def test_a_second_handshake_record_that_has_come_is_refused() -> None:
    data = record(HELLO) + record(hello_for(b"evil.test"))
    with pytest.raises(HelloRefused, match="second handshake record"):
        read([data])


def test_a_change_of_ciphers_or_early_data_behind_the_hello_goes_on() -> None:
    for kind in (20, 23):
        assert read([record(HELLO) + record(b"\x01", kind=kind)])[0] == "example.com"


def body(**fields: bytes) -> bytes:
    """Print a whole stream of a hello with other fields than usual."""
    return record(Hello([NAME], **fields).message())  # type: ignore[arg-type]


def test_a_hello_of_no_tls_version_is_refused() -> None:
    assert "version" in refused(body(version=b"\x02\x00"))


def test_a_session_id_of_32_bytes_is_read_and_of_33_refused() -> None:
    assert read([body(session_id=b"i" * 32)])[0] == "example.com"
    assert "session id" in refused(body(session_id=b"i" * 33))


@pytest.mark.parametrize("suites", [b"", b"\x13", b"\x13\x01\x13"])
def test_cipher_suites_that_are_no_list_are_refused(suites: bytes) -> None:
    assert "suites" in refused(body(suites=suites))


def test_no_compression_method_is_refused() -> None:
    assert "compression" in refused(body(compression=b""))


def test_a_hello_without_extensions_names_no_server() -> None:
    bare = Hello().message()[4:-2]
    assert "no server" in refused(record(message(bare)))
    assert "no server" in refused(named())
    assert "no server" in refused(named((16, b"h2")))


@pytest.mark.parametrize("end", [4, 5, 37, 38, 39, 60, 71, 73, 76, 78, 79])
def test_a_hello_that_ends_inside_a_field_is_refused(end: int) -> None:
    assert refused(record(message(Hello([NAME]).message()[4:end])))


def test_extensions_that_tell_another_length_are_refused() -> None:
    plain = Hello([NAME]).message()[4:]
    at = len(plain) - len(Hello([NAME]).block())
    block = plain[at + 2 :]
    for off in (-1, 1):
        assert "don't end" in refused(record(message(plain[:at] + sized(2, block, off=off))))
    assert "don't end" in refused(record(message(plain + b"\x00")))


def test_an_extension_that_runs_past_the_end_is_refused() -> None:
    plain = Hello().message()[4:-2]
    assert "runs past" in refused(record(message(plain + sized(2, b"\x00\x10\x00\x09h2"))))
    assert "inside one" in refused(record(message(plain + sized(2, b"\x00\x10\x00"))))


def test_one_extension_twice_is_refused() -> None:
    assert "twice" in refused(named(NAME, NAME))
    assert "twice" in refused(named(server_name(b"evil.test"), NAME))
    assert "twice" in refused(named((16, b"h2"), NAME, (16, b"h2")))


def test_the_pre_shared_key_must_be_last() -> None:
    key = (PRE_SHARED_KEY, b"key")
    assert read([named(NAME, key)])[0] == "example.com"
    assert "pre-shared key" in refused(named(key, NAME))


def test_an_outer_encrypted_hello_is_read_by_its_outer_name() -> None:
    assert read([named((ENCRYPTED_HELLO, b"\x00rest"), NAME)])[0] == "example.com"
    assert "no server" in refused(named((ENCRYPTED_HELLO, b"\x00rest")))


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02x"])
def test_an_encrypted_hello_that_is_no_outer_one_is_refused(data: bytes) -> None:
    assert "outer" in refused(named(NAME, (ENCRYPTED_HELLO, data)))
    assert "outer" in refused(named((ENCRYPTED_HELLO, data), NAME))


ENTRY = b"\x00" + sized(2, b"example.com")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "as a server answers it"),
        (b"\x00", "half a length"),
        (sized(2, b""), "an empty list"),
        (sized(2, b"\x00\x00\x00"), "an empty name"),
        (sized(2, ENTRY + ENTRY), "two names"),
        (sized(2, ENTRY + b"\x01" + sized(2, b"x")), "a name of another kind behind it"),
        (sized(2, b"\x01" + sized(2, b"x") + ENTRY), "a name of another kind before it"),
        (sized(2, b"\x01" + ENTRY[1:]), "a name of another kind"),
        (sized(2, ENTRY + b"\x00"), "a byte behind the name"),
        (sized(2, ENTRY) + b"\x00", "a byte behind the list"),
        (sized(2, ENTRY, off=1), "the list says one more"),
        (sized(2, ENTRY, off=-1), "the list says one less"),
        (sized(2, b"\x00" + sized(2, b"example.com", off=1)), "the name says one more"),
        (sized(2, b"\x00" + sized(2, b"example.com", off=-1)), "the name says one less"),
    ],
)
def test_a_list_of_names_that_is_not_one_host_name_is_refused(data: bytes, what: str) -> None:
    assert "one host name" in refused(named((0, data))), what


@pytest.mark.parametrize(
    "name",
    [
        b"example.com.",
        b".example.com",
        b"a..example.com",
        b"*.example.com",
        b"example.com:443",
        b"example.com/",
        b"example.com\x00",
        b"\x00",
        b"example.com ",
        b"example.com\r\n",
        b"ex%61mple.com",
        b"a,b",
        "bücher.example".encode(),
        b"\xffexample.com",
        b"203.0.113.10",
        b"127.1",
        b"0x7f.1",
        b"2001:db8::1",
        b"[2001:db8::1]",
        b"a" * 64 + b".com",
        b"a." * 126 + b"co",
        b"x" * 5000,
    ],
)
def test_what_is_no_dns_name_is_refused(name: bytes) -> None:
    assert "no DNS name" in refused(named(server_name(name)))


def test_the_longest_name_is_read() -> None:
    assert len(longest := b"a." * 126 + b"c") == 253
    assert read([named(server_name(longest))])[0] == longest.decode()


def test_a_refusal_has_no_status_since_the_200_has_gone() -> None:
    with pytest.raises(HelloRefused) as raised:
        read([b"GET / HTTP/1.1\r\n"])
    assert raised.value.status_hint is None
    assert "GET" not in raised.value.message


@given(streams(), points)
def test_any_cut_of_a_hello_gives_its_name_and_keeps_its_bytes(
    stream: Stream, where: list[int]
) -> None:
    name, raw = read(cut(stream.hello, where))
    assert (name, raw) == (stream.name, stream.hello)
    # What came in the same segment as the hello's end goes on too.
    assert read([stream.data]) == (stream.name, stream.data)


@given(streams(), st.integers(0, 1 << 20))
def test_every_beginning_of_a_hello_waits(stream: Stream, end: int) -> None:
    assert verdict([stream.hello[: end % len(stream.hello)]]) is None


@given(bent(), points)
def test_any_cut_of_anything_gives_the_same_verdict(data: bytes, where: list[int]) -> None:
    whole = verdict([data])
    # A second record is refused only when it came with the first: the cut that sees
    # less may let the first hello through, never another name.
    assert verdict(cut(data, where)) in (whole, *second_record(data))
    assert verdict(bytewise(data)) in (whole, *second_record(data))


def second_record(data: bytes) -> list[str]:
    """Return the name of the first hello where a second handshake record is what is refused."""
    try:
        read([data])
    except HelloRefused as error:
        if "second handshake record" in error.message:
            return [name for name in [verdict(bytewise(data))] if name]
    return []


@given(st.binary(max_size=200), st.booleans())
def test_noise_raises_nothing_but_a_refusal(noise: bytes, framed: bool) -> None:
    verdict([record(message(noise)) if framed and noise else noise])


@given(bent())
def test_a_name_that_is_read_stands_in_the_bytes_as_one_entry(data: bytes) -> None:
    """A reader that looks for the entry alone, wherever it stands, finds the same name."""
    name = verdict([data])
    if name not in (None, "refused"):
        assert isinstance(name, str)
        payload = b"".join(payloads(data))
        # Both in small letters: a length may be the code of a capital.
        assert (b"\x00" + sized(2, name.encode())).lower() in payload.lower()


def payloads(data: bytes) -> Iterable[bytes]:
    while len(data) >= 5:
        size = int.from_bytes(data[3:5], "big")
        yield data[5 : 5 + size]
        data = data[5 + size :]


def names_openssl_sees(data: bytes) -> list[str | None]:
    """Return the name that a real TLS server takes from a stream; empty: it took none of it."""
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLError):
        server.do_handshake()
    return seen


@pytest.mark.parametrize("data", REAL)
def test_a_real_server_sees_a_name_where_a_hello_is_whole(data: bytes) -> None:
    assert names_openssl_sees(data) == ["www.example.org"]


@st.composite
def real_hellos(draw: st.DrawFn) -> bytes:
    """Draw what OpenSSL's client sends, some of it changed, most of that near the name."""
    hello = bytearray(draw(st.sampled_from(REAL)))[5:]
    at = hello.find(b"www.example.org")
    for _ in range(draw(st.integers(0, 3))):
        near = draw(st.integers(at - 12, at + 20) | st.integers(0, len(hello) - 1))
        hello[near : near + 1] = draw(st.binary(max_size=2))
    hello[1:4] = (len(hello) - 4).to_bytes(3, "big")
    return b"".join(record(piece) for piece in cut(bytes(hello), draw(points)))


@given(real_hellos())
def test_a_real_server_never_sees_another_name_than_ours(data: bytes) -> None:
    name = verdict([data])
    if name not in (None, "refused"):
        assert [each and each.lower() for each in names_openssl_sees(data)] in ([name], [])
