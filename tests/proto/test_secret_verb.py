"""A secret by its rule; what each path and header becomes is tried by the cases too."""

from __future__ import annotations

import base64
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import target_secret_answer, target_secret_rule
from proto.codecs.http1 import RequestReader, ResponseHead, request_framing
from proto.errors import BadAnswer, Refused
from proto.verbs.bridge import Request, provider_verb
from proto.verbs.secret import Held, Scrub, SecretVerb
from shells.sim_world import Cut, Say, Step, Transcript
from tests.proto.wires import CALLER, answers, bridge, fields, heard, request, said

CORPORA = Path(__file__).parents[2] / "fuzz" / "corpus"
SECRET, HOLDER = "7:AAH/not-plain+secret", "7:lnkPlaceholder"
PATH_SECRET = "7:AAHreal-secret"
LOGIN = base64.b64encode(b"x-access-token:ghp_REALTOKEN").decode()
TELEGRAM = Held(
    "telegram", "api.telegram.org", ["/bot{secret}/{name}", "/file/bot{secret}/{path}"],
    ["/bot{secret}/setWebhook", "/bot{secret}/logOut", "/bot{secret}/close"], None,
    HOLDER, PATH_SECRET,
)  # fmt: skip
GITHUB = Held(
    "github", "github.com", ["/{path}"], ["/admin/{name}"], ("Authorization", "Basic {secret}"),
    "lnkPlaceholder", LOGIN,
)  # fmt: skip
TOKEN = Held(
    "token", "api.example.com", ["/", "/v1/{name}.json"], [], ("X-Token", "{secret}"),
    "lnkPlaceholder", SECRET,
)  # fmt: skip
HOSTS = {"telegram": "api.telegram.org", "github": "github.com"}
SERVE = provider_verb(SecretVerb([TELEGRAM, GITHUB, TOKEN]))


def call(
    target: str, *provider: Step, method: str = "GET", cut: Cut = Cut.WHOLE, **more: str
) -> Transcript:
    told = {"Link_Caller": CALLER, **more}
    host = HOSTS.get(target.split("/")[1], "api.example.com")
    return bridge(request(target, method, **told), SERVE, *provider, host=host, cut=cut)


def test_the_secret_takes_the_placeholders_place_in_a_path() -> None:
    seen = call(f"/telegram/bot{HOLDER}/getMe?x={HOLDER}", said())
    assert heard(seen)[0].words[1] == f"/bot{PATH_SECRET}/getMe?x={HOLDER}".encode()
    assert fields(heard(seen)[0])["accept-encoding"] == "identity"


def test_the_secret_takes_the_placeholders_place_in_a_header() -> None:
    seen = call("/github/a/b.git/info/refs?service=x", said(), AUTHORIZATION="Basic lnkPlaceholder")
    got = heard(seen)[0]
    assert got.words[1] == b"/a/b.git/info/refs?service=x"
    assert fields(got)["authorization"] == f"Basic {LOGIN}"
    assert [name for name, _ in got.fields].count("authorization") == 1


@pytest.mark.parametrize("name", ["X_Token", "x_token", "X-TOKEN"])
def test_no_field_stands_beside_that_a_gateway_takes_for_the_secrets(name: str) -> None:
    other = f"{name}: other\r\n"
    mine = "X-Token: lnkPlaceholder\r\n"
    for told in (other + mine, mine + other, other, f"{name}: lnkPlaceholder\r\n" + mine):
        found = RequestReader().feed(f"GET / HTTP/1.1\r\nHost: a\r\n{told}\r\n".encode())
        assert found is not None
        head = found[0]
        with pytest.raises(Refused):
            TOKEN.lines(Request(head, request_framing(head), b"/", b"", b""))


@pytest.mark.parametrize(
    "name", ["X-Original-URL", "x_rewrite_url", "X-Forwarded-Host", "FORWARDED", "X-Host"]
)
@pytest.mark.parametrize("target", ["/github/a/b", f"/telegram/bot{HOLDER}/getMe"])
def test_no_field_goes_on_that_names_another_path_or_host(name: str, target: str) -> None:
    """A gateway in front of the service may heed one: it would get around the rule's paths."""
    told = {name: "/admin/keys", "X-Note": "stays", "X-Forwarded-For": "192.0.2.1"}
    told |= {"AUTHORIZATION": "Basic lnkPlaceholder"} if "github" in target else {}
    got = fields(heard(call(target, said(), **told))[0])
    assert "/admin/keys" not in got.values()
    assert (got["x-note"], got["x-forwarded-for"]) == ("stays", "192.0.2.1")


def test_a_shape_may_be_one_path_alone_and_have_letters_about_a_name() -> None:
    assert heard(call("/token/", said(), X_Token="lnkPlaceholder"))[0].words[1] == b"/"
    seen = call("/token/v1/users.json", said(), X_Token="lnkPlaceholder")
    assert heard(seen)[0].words[1] == b"/v1/users.json"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/slack/x", 404), ("/telegram", 404), ("/", 404), ("/telegramx/botx", 404),
        (f"/telegram/bot{HOLDER}/SETWEBHOOK", 403), (f"/telegram/bot{HOLDER.upper()}/close", 403),
        (f"/telegram/bot{HOLDER}/getMe/", 403), (f"/telegram/bot{HOLDER}/get.Me", 403),
        (f"/telegram/file/bot{HOLDER}/a/../b", 403), (f"/telegram/file/bot{HOLDER}/...", 403),
        (f"/telegram/file/bot{HOLDER}/a/.", 403), (f"/telegram/file/bot{HOLDER}//a", 403),
        (f"/telegram/bot{HOLDER}/getMe?a#b", 400), (f"/telegram/bot{PATH_SECRET}/getMe", 403),
        ("/github/a/b", 403), ("/token/v1/a/b.json", 403),
    ],
)  # fmt: skip
def test_everything_else_goes_nowhere(target: str, status: int) -> None:
    seen = call(target, said())
    assert answers(seen)[0].status == status
    assert not seen.asked


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "PROPFIND", "get"])
def test_a_method_that_has_the_service_say_things_back_is_refused(method: str) -> None:
    assert answers(call(f"/telegram/bot{HOLDER}/getMe", said(), method=method))[0].status == 403


def test_a_refused_path_may_have_words_of_its_own() -> None:
    seen = call("/github/ADMIN/x", said(), Authorization="Basic lnkPlaceholder")
    assert answers(seen)[0].status == 403


def test_a_path_may_begin_with_a_dot() -> None:
    seen = call("/github/a/.github/x", said(), Authorization="Basic lnkPlaceholder")
    assert answers(seen)[0].status == 200


# What comes back.


@pytest.mark.parametrize("cut", Cut)
def test_the_secret_never_comes_back_in_any_of_its_forms(cut: Cut) -> None:
    told = f"{PATH_SECRET} {quote(PATH_SECRET, safe='')} {quote(PATH_SECRET, safe='').lower()}"
    for seed in range(5):
        body = "".join(Random(seed).choices("7:A", k=2000)) + told
        seen = call(f"/telegram/bot{HOLDER}/getMe", said(body.encode(), X_Echo=told), cut=cut)
        (back,) = answers(seen)
        assert PATH_SECRET.encode() not in seen.client.data
        assert b"AAHreal" not in seen.client.data
        assert len(back.body) == len(body)
        assert back.complete


def test_nor_do_the_credentials_that_a_basic_secret_holds() -> None:
    body = f"no user x-access-token:ghp_REALTOKEN, token ghp_REALTOKEN ({LOGIN})".encode()
    seen = call("/github/a", said(body), Authorization="Basic lnkPlaceholder")
    assert b"REALTOKEN" not in seen.client.data
    assert LOGIN.encode() not in seen.client.data


def test_jsons_own_way_to_write_a_slash_is_known() -> None:
    body = b'{"said": "' + SECRET.replace("/", "\\/").encode() + b'"}'
    assert b"not-plain" not in call("/token/", said(body), X_Token="lnkPlaceholder").client.data


@pytest.mark.parametrize("secret", ["not base64!", base64.b64encode(b"a:b").decode()])
def test_a_basic_secret_that_is_no_login_or_a_short_one_stands_for_itself(secret: str) -> None:
    held = Held("a", "a.example", ["/{path}"], [], ("Authorization", "Basic {secret}"), "x", secret)
    assert secret.encode() in held.forms()
    assert b"b" not in held.forms()


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 3))
def test_wherever_an_answer_is_cut_the_same_comes_out(cuts: list[int], times: int) -> None:
    body = b"7:7:AA" + PATH_SECRET.encode() * times + b"..7:AAHreal-secre"
    whole = Scrub(TELEGRAM)
    due = whole.body(body) + whole.end()
    scrub, out = Scrub(TELEGRAM), b""
    for at in sorted(cuts):
        piece, body = body[:at], body[at:]
        out += scrub.body(piece)
    assert out + scrub.body(body) + scrub.end() == due
    assert PATH_SECRET.encode() not in due


def test_only_what_could_become_the_secret_waits() -> None:
    scrub = Scrub(TELEGRAM)
    assert scrub.body(b"data: 7") == b"data: "
    assert scrub.body(b"8\n\n") == b"78\n\n"
    assert scrub.end() == b""


def location(place: str) -> str:
    (back,) = answers(call(f"/telegram/bot{HOLDER}/getMe", said(b"", "302 Found", Location=place)))
    return fields(back)["location"]


def test_a_redirect_to_the_service_leads_to_the_route() -> None:
    there = f"/bot{PATH_SECRET}/getMe/"
    here = f"/_link/secret/telegram/bot{HOLDER}/getMe/"
    assert location(f"https://api.telegram.org{there}") == here
    assert location(f"https://API.TELEGRAM.ORG{there}") == here
    assert location(there) == here
    assert location("https://api.telegram.org") == "/_link/secret/telegram/"


@pytest.mark.parametrize(
    "place",
    ["https://evil.test/", "https://api.telegram.org.evil.test/", "//evil.test/", "other", "?x"],
)
def test_a_redirect_elsewhere_stays_what_it_is(place: str) -> None:
    assert location(place) == place
    assert PATH_SECRET not in location(f"https://evil.test/{PATH_SECRET}")


def test_a_cookie_goes_nowhere() -> None:
    seen = call(f"/telegram/bot{HOLDER}/getMe", said(Set_Cookie="session=1", X_A="b"))
    assert b"session" not in seen.client.data
    assert fields(answers(seen)[0])["x-a"] == "b"


@pytest.mark.parametrize(
    "kind",
    [b"text/plain; charset=utf-16", b'text/html;charset="UTF-16LE"', b"text/plain; charset=utf-32",
     b"text/plain; x=y; CHARSET = utf-7", b"text/plain;charset=csUnicode",
     b"text/plain; charset=IBM037", b"text/plain; charset=cp1140"],
)  # fmt: skip
def test_an_answer_whose_letters_are_no_ascii_is_refused(kind: bytes) -> None:
    with pytest.raises(BadAnswer, match="charset"):
        Scrub(TELEGRAM).head(ResponseHead((1, 1), 200, b"", ((b"Content-Type", kind),)))


@pytest.mark.parametrize(
    "kind",
    [b"text/plain", b"text/plain; charset=utf-8", b"text/html; charset=iso-8859-1",
     b"text/plain; charset=ibm850", b"text/plain; charset=shift_jis", b"x/ucs; y=utf-16"],
)  # fmt: skip
def test_any_other_charset_passes_and_none_is_asked_for(kind: bytes) -> None:
    fields_in = ((b"Content-Type", kind),)
    assert Scrub(TELEGRAM).head(ResponseHead((1, 1), 200, b"", fields_in)).fields == fields_in
    seen = call(f"/telegram/bot{HOLDER}/getMe", said(), Accept_Charset="utf-16")
    assert "accept-charset" not in fields(heard(seen)[0])


def test_an_answer_that_cannot_be_looked_through_is_a_502() -> None:
    seen = call(f"/telegram/bot{HOLDER}/getMe", said(b"\x1f\x8b", Content_Encoding="gzip"))
    assert answers(seen)[0].status == 502
    plain = call(f"/telegram/bot{HOLDER}/getMe", said(b"x", Content_Encoding="identity"))
    assert answers(plain)[0].status == 200
    with pytest.raises(BadAnswer):
        Scrub(TELEGRAM).head(ResponseHead((1, 1), 200, b"", ((b"Content-Encoding", b"br"),)))


def test_a_secret_is_not_had_in_parts() -> None:
    seen = call(f"/telegram/bot{HOLDER}/getMe", said(), RANGE="bytes=0-9", IF_RANGE="x")
    assert {"range", "if-range"}.isdisjoint(fields(heard(seen)[0]))
    with pytest.raises(BadAnswer):
        Scrub(TELEGRAM).head(ResponseHead((1, 1), 206, b"", ()))


def test_a_reason_phrase_is_looked_through_too() -> None:
    answer = Say(f"HTTP/1.1 404 no {PATH_SECRET}\r\nContent-Length: 0\r\n\r\n".encode())
    assert PATH_SECRET.encode() not in call(f"/telegram/bot{HOLDER}/getMe", answer).client.data


@pytest.mark.parametrize("name", [PATH_SECRET[2:], f"x-{PATH_SECRET[2:].lower()}"])
def test_a_fields_name_that_repeats_the_secret_goes_nowhere(name: str) -> None:
    held = Held("a", "a.example", ["/{path}"], [], ("X-Token", "{secret}"), "x", PATH_SECRET[2:])
    fields = ((name.encode(), b"1"), (b"x-other", b"2"))
    assert Scrub(held).head(ResponseHead((1, 1), 200, b"", fields)).fields == (fields[1],)


def test_no_secret_shows_in_what_is_held() -> None:
    assert PATH_SECRET not in repr(TELEGRAM)


# The fuzz targets.


@given(
    st.sampled_from(["/telegram/botlnkPlaceholder/", "/telegram/file/botlnkPlaceholder/",
                     "/github/", "/"]),
    st.text("aA0./%~?#;:\\ ", max_size=12) | st.sampled_from(["CLOSE", "setwebhook", "x/Delete"]),
    st.sampled_from(["", "Authorization: Basic lnkPlaceholder\r\n", "Connection: host\r\n"]),
)  # fmt: skip
def test_a_program_asks_what_it_likes(mount: str, path: str, more: str) -> None:
    target_secret_rule.one_input(f"GET {mount}{path}\n{more}".encode())


@given(st.integers(1, 255), st.lists(st.sampled_from(target_secret_answer.FORMS) | st.binary()))
def test_a_service_says_what_it_likes(step: int, said: list[bytes]) -> None:
    target_secret_answer.one_input(bytes([step]) + b"".join(said))


@pytest.mark.parametrize("path", sorted((CORPORA / "secret_rule").iterdir()), ids=lambda p: p.name)
def test_the_corpus_of_calls_holds(path: Path) -> None:
    target_secret_rule.one_input(path.read_bytes())


@pytest.mark.parametrize(
    "path", sorted((CORPORA / "secret_answer").iterdir()), ids=lambda p: p.name
)
def test_the_corpus_of_answers_holds(path: Path) -> None:
    target_secret_answer.one_input(path.read_bytes())
