"""The tables of a confinement, their reader and what they print back."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import confinement, handed, route, spec
from sandbox.built import NOT_BUILT
from sandbox.confinement import (
    Closed,
    Confinement,
    Host,
    Loopback,
    Proxied,
    Proxy,
    Reached,
    Reaching,
    WrapRequest,
)
from sandbox.errors import SpecError
from sandbox.place import Place
from sandbox.strict_json import read_json
from sandbox.table import dump_table, keys_of, read_table, refuse_unbuilt

PLAIN: dict[str, Any] = {
    "name": "box",
    "write": ["/srv/work"],
    "read": [],
    "commands": "any",
    "net": "closed",
}
PROXY: dict[str, Any] = {"upstream": "direct", "dir": "/run/user/1000/box"}
WHOLE: dict[str, Any] = {
    "name": "box",
    "write": ["/srv/work", "/srv/more"],
    "write_dot_files": ["/srv/work"],
    "read": ["/home/u/.gitconfig"],
    "read_home": True,
    "hide": ["/home/u/agents"],
    "tmp_prefix": "agent-",
    "terminal": True,
    "commands": {"only": ["/usr/bin/git"]},
    "developer_tools": True,
    "net": {
        "proxied": {
            "proxy": {
                **PROXY,
                "serve": [3000],
                "hosts": ["example.com", "*.example.org"],
                "tcp": ["db.example.com:5432"],
                "listen": 40781,
                "per_minute": 600,
                "routes": [{"kind": "local", "port": 11434}],
                "caller": "caller-key-0123456789",
                "secret": "abcdefghijklmnop0123",
                "lan": ["192.0.2.20:8080"],
            },
            "ports": [5432],
        }
    },
}


def read(value: object) -> Confinement:
    return Confinement.read_json(value)


def refusal(value: object) -> str:
    with pytest.raises(SpecError) as refused:
        read(value)
    return str(refused.value)


def unbuilt(value: object) -> str:
    made = read(value)
    with pytest.raises(SpecError) as refused:
        refuse_unbuilt(made, Place(("confinement",)))
    return str(refused.value)


def test_a_missing_optional_key_is_the_least():
    assert read(PLAIN) == Confinement(
        name="box", write=("/srv/work",), read=(), commands=None, net=Closed()
    )


def test_every_key_of_the_interface_is_read():
    made = read(WHOLE)
    assert set(keys_of(Confinement)) == set(WHOLE)
    assert made.write_dot_files == ("/srv/work",)
    assert made.commands == ("/usr/bin/git",)
    assert made.tmp_prefix == "agent-"
    assert isinstance(made.net, Proxied)
    proxy = made.net.proxy
    assert set(keys_of(Proxy)) == {*WHOLE["net"]["proxied"]["proxy"], "no_internet", "hold"}
    assert proxy.hosts == ("example.com", "*.example.org")
    assert proxy.routes == (route.Local(port=11434),)
    assert proxy.per_minute == 600


def test_what_is_read_is_printed_back():
    assert read(WHOLE).as_json() == WHOLE
    assert json.loads(json.dumps(read(WHOLE).as_json())) == WHOLE


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("closed", Closed()),
        ({"loopback": {"ports": [5432], "dir": "/d"}}, Loopback(ports=(5432,), dir="/d")),
        (
            {"proxied": {"proxy": PROXY, "ports": []}},
            Proxied(proxy=Proxy(upstream="direct", dir=PROXY["dir"]), ports=()),
        ),
        (
            {"reaching": {"reached": [{"dir": "/d", "port": 40781}], "ports": []}},
            Reaching(reached=(Reached(dir="/d", port=40781),), ports=()),
        ),
        ({"host": {"ports": [], "localhost": True}}, Host(ports=(), localhost=True)),
    ],
)
def test_a_net_is_one_mode_with_its_own_keys(written: object, made: object):
    assert read({**PLAIN, "net": written}).net == made


def test_a_net_of_two_modes_is_refused():
    two = {"host": {"ports": [], "localhost": True}, "loopback": {"ports": [], "dir": "/d"}}
    assert refusal({**PLAIN, "net": two}).startswith("confinement.net: names 2 modes")


def test_a_key_of_another_mode_is_refused():
    net = {"loopback": {"ports": [], "dir": "/d", "proxy": PROXY}}
    assert refusal({**PLAIN, "net": net}).startswith("confinement.net.loopback.proxy: unknown key")


def test_an_unknown_key_is_named_by_its_full_path_with_the_near_one():
    net = {"proxied": {"proxy": {**PROXY, "hots": []}, "ports": []}}
    assert refusal({**PLAIN, "net": net}) == (
        "confinement.net.proxied.proxy.hots: unknown key; did you mean hosts?"
    )


def test_absent_hosts_and_a_star_are_any_host_and_an_empty_list_is_none():
    def hosts(proxy: dict[str, Any]) -> object:
        net = read({**PLAIN, "net": {"proxied": {"proxy": {**PROXY, **proxy}, "ports": []}}}).net
        assert isinstance(net, Proxied)
        return net.proxy.hosts

    assert hosts({}) is None
    assert hosts({"hosts": ["*"]}) is None
    assert hosts({"hosts": []}) == ()
    net = {"proxied": {"proxy": {**PROXY, "hosts": None}, "ports": []}}
    assert "null isn't a list" in refusal({**PLAIN, "net": net})


def test_hosts_are_always_printed():
    proxy = Proxy(upstream="direct", dir="/d")
    assert dump_table(proxy)["hosts"] == ["*"]
    assert read_table(Proxy, dump_table(proxy), Place()) == proxy


def test_a_star_beside_other_hosts_is_refused():
    net = {"proxied": {"proxy": {**PROXY, "hosts": ["example.com", "*"]}, "ports": []}}
    assert refusal({**PLAIN, "net": net}).startswith("confinement.net.proxied.proxy.hosts[1]: ")


def test_no_internet_beside_hosts_is_refused():
    net = {
        "proxied": {"proxy": {**PROXY, "hosts": ["a.example"], "no_internet": True}, "ports": []}
    }
    assert "no_internet: closes what hosts opens" in refusal({**PLAIN, "net": net})


def test_a_port_that_would_be_two_is_refused():
    served = {"proxied": {"proxy": {**PROXY, "serve": [3000]}, "ports": [80, 3000]}}
    assert "proxied.ports[1]: 3000 is also in proxy.serve" in refusal({**PLAIN, "net": served})
    twice = {
        "reaching": {
            "reached": [{"dir": "/a", "port": 8001}, {"dir": "/b", "port": 8001}],
            "ports": [],
        }
    }
    assert "reached[1].port: 8001 is taken" in refusal({**PLAIN, "net": twice})
    both = {"reaching": {"reached": [{"dir": "/a", "port": 8001}], "ports": [8001]}}
    assert "reached[0].port: 8001 is taken" in refusal({**PLAIN, "net": both})


def test_routes_without_a_caller_are_refused():
    proxy = {**PROXY, "routes": [{"kind": "open"}]}
    assert "proxy.caller: is missing" in refusal(
        {**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}}
    )


def test_dot_files_of_a_folder_it_does_not_write_are_refused():
    told = refusal({**PLAIN, "write_dot_files": ["/srv/other"]})
    assert told.startswith("confinement.write_dot_files[0]: ")


@pytest.mark.parametrize(
    ("written", "kept"),
    [("/srv/work/", "/srv/work"), ("//srv//work", "/srv/work"), ("/a b/é", "/a b/é")],
)
def test_a_path_is_kept_in_one_form(written: str, kept: str):
    assert read({**PLAIN, "write": [written]}).write == (kept,)


@pytest.mark.parametrize("path", ["work", "", "~/w", "/a/../b", "/a/.", "/", "//", "/" + "a" * 256])
def test_a_path_that_leads_elsewhere_or_nowhere_is_refused(path: str):
    assert refusal({**PLAIN, "write": [path]}).startswith("confinement.write[0]: ")


def test_a_path_as_long_as_the_kernel_takes_is_taken_and_no_longer_one():
    longest = "/" + "/".join(["a" * 127] * 32)[:4094]
    assert len(longest) == 4095
    assert read({**PLAIN, "read": [longest]}).read == (longest,)
    assert "longer than 4095 bytes" in refusal({**PLAIN, "read": [longest + "a"]})


def test_a_name_of_255_bytes_is_counted_in_bytes():
    assert "longer than 255 bytes" in refusal({**PLAIN, "read": ["/" + "é" * 128]})


@pytest.mark.parametrize("name", ["", "-x", ".x", "a/b", "a b", "x" * 65, "a\n", "é"])
def test_a_name_that_is_no_file_name_is_refused(name: str):
    assert refusal({**PLAIN, "name": name}).startswith("confinement.name: ")


def test_a_secret_is_never_shown():
    for key_, value in (("secret", "hunter2-hunter2-"), ("caller", "hunter2 hunter2 hunter2")):
        proxy = {**PROXY, key_: value}
        told = refusal({**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}})
        assert f"proxy.{key_}: " in told
        assert "hunter2" not in told
    proxy = {**PROXY, "upstream": "ftp://lnk:hunter2@example.com"}
    assert "hunter2" not in refusal({**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}})


def test_a_refused_value_is_shown_short_escaped_and_on_one_line():
    told = refusal({**PLAIN, "net": "x\n\x1b[31m\u202e" + "y" * 500})
    assert told.startswith('confinement.net: "x\\n\\u001b[31m\\u202eyyyy')
    assert len(told) < 160
    assert told.isascii()
    assert told.isprintable()


def test_an_unknown_key_is_shown_short_escaped_and_on_one_line():
    told = refusal({**PLAIN, "\x1b\n" + "k" * 500: 1})
    assert told.startswith('confinement["\\u001b\\nkkk')
    assert told.isascii()
    assert len(told) < 300


# What isn't built.


def test_a_key_whose_wall_is_not_built_is_refused_by_name():
    told = unbuilt({**PLAIN, "developer_tools": True})
    assert told == (
        "confinement.developer_tools: isn't built yet in this version (the wall on macOS); "
        "leave it out"
    )


def test_a_relay_listens_at_no_privileged_port():
    net = {"reaching": {"reached": [{"dir": "/d", "port": 1023}], "ports": []}}
    said = refusal({**PLAIN, "net": net})
    assert said.startswith("confinement.net.reaching.reached[0].port: 1023 is for a privileged")
    assert "take one from 1024 up" in said


def test_a_wall_that_linux_has_not_is_refused_with_its_cure():
    said = refusal({**PLAIN, "net": {"host": {"ports": [5432], "localhost": False}}})
    assert said.startswith("confinement.net.host.localhost: false can't be held on Linux")
    assert "write true, or take proxied or loopback" in said


def test_keys_that_ask_for_nothing_are_taken_though_they_are_not_built():
    proxy = {**PROXY, "serve": [], "tcp": [], "routes": [], "hold": False, "hosts": ["a.example"]}
    idle = {
        **PLAIN,
        "write_dot_files": [],
        "terminal": False,
        "developer_tools": False,
        "net": {"proxied": {"proxy": proxy, "ports": []}},
    }
    refuse_unbuilt(read(idle), Place())
    refuse_unbuilt(read({**PLAIN, "net": {"host": {"ports": [], "localhost": True}}}), Place())


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"tcp": ["db.example.com:5432"]}, "confinement.net.proxied.proxy.tcp: needs DNS"),
        ({"ports": [5432]}, "confinement.net.proxied.ports: are opened in"),
    ],
)
def test_a_proxy_apart_has_no_network_of_a_sandbox(keys: dict[str, Any], path: str):
    proxy = {**PROXY, "hold": True, "tcp": keys.get("tcp", [])}
    net = {"proxied": {"proxy": proxy, "ports": keys.get("ports", [])}}
    assert refusal({**PLAIN, "net": net}).startswith(path)


@pytest.mark.parametrize("taken", [{"ports": [40781]}, {"serve": [40781]}])
def test_a_proxy_s_port_inside_is_no_other_one_too(taken: dict[str, Any]):
    proxy = {**PROXY, "listen": 40781, "serve": taken.get("serve", [])}
    net = {"proxied": {"proxy": proxy, "ports": taken.get("ports", [])}}
    said = refusal({**PLAIN, "net": net})
    assert said.startswith("confinement.net.proxied.proxy.listen: 40781 is also among")


def test_an_unwalled_program_has_no_exit():
    proxy = {**PROXY, "upstream": "socks5://u:hunter2@exit.example:1080"}
    request = {"unwalled": {"name": "a", "proxy": proxy, "pointed": True}, "argv": ["x"]}
    with pytest.raises(SpecError, match='write "direct"') as caught:
        read_table(WrapRequest, request, Place())
    assert caught.value.key == "unwalled.proxy.upstream"
    assert "hunter2" not in str(caught.value)


def test_every_entry_of_what_is_not_built_names_a_key():
    tables = {
        made.__name__: made
        for module in (confinement, handed, route, spec)
        for made in vars(module).values()
        if isinstance(made, type) and made.__module__ == module.__name__
    }
    for entry in NOT_BUILT:
        name, _, key_ = entry.partition(".")
        assert key_ in keys_of(tables[name]), entry


# Requests as a whole.


def request(value: object) -> WrapRequest:
    return read_table(WrapRequest, value, Place())


def test_a_request_is_a_confinement_and_its_argv():
    made = request({"confinement": PLAIN, "argv": ["make", "", "-j2"]})
    assert made.argv == ("make", "", "-j2")
    assert made.confinement == read(PLAIN)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"policy": {}, "argv": ["true"]}, "policy: policies became confinements"),
        ({"argv": ["true"]}, "confinement: is missing"),
        ({"confinement": PLAIN}, "argv: is missing"),
        ({"confinement": PLAIN, "argv": []}, "argv: is an empty list"),
        ({"confinement": PLAIN, "argv": [""]}, "argv[0]: is empty"),
        ({"confinement": PLAIN, "argv": "true"}, "argv: "),
        ({"confinement": PLAIN, "argv": ["a", "b\0c"]}, "argv[1]: what stands here holds a NUL"),
        ({"confinement": PLAIN, "argv": ["a" * 131_072]}, "argv[0]: is 131072 characters long"),
        ({"confinement": PLAIN, "argv": ["é" * 70_000]}, "argv[0]: is longer than 131071 bytes"),
        ([], "request: a list isn't an object"),
        ("confinement", "request: "),
    ],
)
def test_a_request_that_is_none_is_refused(value: object, told: str):
    with pytest.raises(SpecError) as refused:
        request(value)
    assert str(refused.value).startswith(told)


def test_a_request_for_two_sandboxes_is_refused():
    both = {
        "confinement": PLAIN,
        "unwalled": {"name": "a", "proxy": PROXY, "pointed": False},
        "argv": ["true"],
    }
    with pytest.raises(SpecError, match=r"^unwalled: stands beside confinement"):
        request(both)


@pytest.mark.parametrize(
    ("net", "said"),
    [
        ("open", "isn't a network mode; there are closed, host, loopback, proxied, reaching"),
        ("hots", "isn't a network mode; did you mean host?"),
        ("proxied", 'has keys of its own; write {"proxied": {...}}'),
    ],
)
def test_a_word_that_is_no_mode_is_refused_with_those_there_are(net: str, said: str):
    assert refusal({**PLAIN, "net": net}) == f'confinement.net: "{net}" {said}'


# JSON.


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "request: is empty"),
        (b" \n", "request: is empty"),
        (b"{", "request: isn't JSON: "),
        (b"{}{}", "request: isn't JSON: Extra data (line 1, column 3)"),
        (b"{'a': 1}", "request: isn't JSON: "),
        (b"\xff", "request: isn't UTF-8 (byte 1)"),
        (b"\xef\xbb\xbf{}", "request: begins with a byte order mark; "),
        (b"[" * 200_000, "request: is nested too deeply"),
        (b'{"a":' * 200_000, "request: is nested too deeply"),
        (b'"' + b"a" * 100 + b'"', "request: is longer than 100 bytes"),
    ],
)
def test_bytes_that_are_no_json_are_refused(data: bytes, told: str):
    with pytest.raises(SpecError) as refused:
        read_json(data, 100 if b"aaa" in data else 1 << 22)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "1.0"])
def test_a_number_that_is_no_port_is_refused_by_its_path(number: str):
    value = read_json(b'{"ports": [%s], "dir": "/d"}' % number.encode(), 1 << 20)
    with pytest.raises(SpecError, match=r"^ports\[0\]: .{1,120}$"):
        read_table(Loopback, value, Place())


def test_the_deepest_key_given_twice_is_refused_by_its_path():
    text = json.dumps({"confinement": PLAIN, "argv": ["true"]})
    twice = text.replace('"name": "box"', '"name": "box", "name": "other"')
    with pytest.raises(SpecError, match=r"^confinement\.name: is given twice"):
        request(read_json(twice.encode(), 1 << 20))


def outcome(make: Callable[[], object]) -> str:
    """Return the refusal, or nothing; any other error is a fault."""
    try:
        make()
    except SpecError as error:
        return str(error)
    return ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_any_json_is_a_request_or_is_refused(value: object):
    told = outcome(lambda: request(read_json(json.dumps(value).encode(), 1 << 22)))
    assert told.isascii()
    assert "\n" not in told


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_are_refused(data: bytes):
    with pytest.raises(SpecError):
        request(read_json(data, 1 << 22))


names = st.sampled_from([*WHOLE, "proxied", "proxy", "ports", "dir", "kind", "routes", "hosts"])


@given(
    st.recursive(
        st.sampled_from(["/srv", "closed", "any", "box", True, 80, None, "direct"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    ),
    names,
)
def test_any_value_at_any_known_key_is_read_or_refused(value: object, key_: str):
    told = outcome(lambda: read({**PLAIN, key_: value}))
    assert not told or told.startswith("confinement")


# Tables as Python's own values.


def test_a_table_is_made_of_its_fields_by_name_and_of_no_other():
    with pytest.raises(TypeError, match="Host needs ports"):
        Host(localhost=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Closed has no ports"):
        Closed(ports=())  # type: ignore[call-arg]


def test_a_table_never_changes_and_is_compared_by_value():
    made = Host(ports=(80,), localhost=True)
    with pytest.raises(AttributeError):
        made.ports = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del made.ports
    assert made == Host(ports=(80,), localhost=True)
    assert made != Host(ports=(), localhost=True)
    assert made != Closed()
    assert len({made, Host(ports=(80,), localhost=True), Closed()}) == 2
    assert copy.copy(made) == made == pickle.loads(pickle.dumps(made))
    assert repr(made) == "Host(ports=(80,), localhost=True)"


def test_a_tables_repr_shows_no_secret():
    proxy = Proxy(upstream="direct", dir="/d", secret="hunter2hunter2hunter2", caller="hunter2" * 3)
    route_ = route.Model(provider="openai", secret_key="hunter2", placeholder="hunter2-")
    bridge = route.Bridge(name="a", argv=("/b",), env={"A": "hunter2"})
    handed_ = handed.RunWith(env={"A": "hunter2"})
    assert "hunter2" not in f"{proxy!r} {route_!r} {bridge!r} {handed_!r}"


def test_two_tables_share_no_dictionary():
    one, other = handed.RunWith(), handed.RunWith()
    assert one.env is not other.env


def test_a_secret_of_the_wrong_kind_is_not_shown_either():
    proxy = {**PROXY, "secret": 1234567890123456}
    told = refusal({**PLAIN, "net": {"proxied": {"proxy": proxy, "ports": []}}})
    assert told.endswith("proxy.secret: what stands here isn't a secret; write it as a text")
