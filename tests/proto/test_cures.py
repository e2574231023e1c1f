"""What a refusal tells a person to change: `proto/policy/cures.py`, wherever it is said."""

from __future__ import annotations

import pytest

from proto.calls.refuse import answer_for
from proto.errors import ProxyError, RateLimited, Refused
from proto.kinds import Place
from proto.policy.addresses import reachable
from proto.policy.admission import Admission
from proto.policy.cures import BIND, CURES, HELD, PROXY, RUN, SPEC, UNWALLED, WRAP, Cures
from proto.policy.endpoints import no_endpoint
from proto.policy.exits import Exit
from proto.policy.hosts import Policy
from proto.policy.target import Scope, Target

NOT_LISTED = "evil.test:443 is not among this sandbox's hosts; "
CLOSED = "evil.test:443 is on the internet, which is closed to this sandbox; "
PRIVATE = "10.0.0.1:80 is an address of a private network; "
OURS = "localhost:80 is this machine, which the proxy never reaches; "
MOVED = "nas.test:80 is an address of the internet, not of the local network; "


def refused(policy: Policy, host: str, port: int = 443) -> Refused:
    with pytest.raises(Refused) as raised:
        policy.admit(host, port)
    return raised.value


def moved(cures: Cures) -> Refused:
    """Return the refusal of a machine of the local network whose name leads elsewhere."""
    target = Target("nas.test", 80, Scope.LAN, literal=False, reads_hello=False)
    with pytest.raises(Refused) as raised:
        reachable(("203.0.113.9",), (Place.ELSEWHERE,), target, cures)
    return raised.value


@pytest.mark.parametrize(
    ("cures", "said", "short"),
    [
        (
            SPEC,
            'add "evil.test" to [internet] hosts (--internet-host evil.test).',
            "add evil.test to internet.hosts",
        ),
        (RUN, "add --internet-host evil.test.", "add --internet-host evil.test"),
        (PROXY, "add --hosts evil.test.", "add --hosts evil.test"),
        (WRAP, 'add "evil.test" to proxy.hosts.', "add evil.test to proxy.hosts"),
        (UNWALLED, 'add "evil.test" to proxy.hosts.', "add evil.test to proxy.hosts"),
        (HELD, 'add "evil.test" to proxy.hosts.', "add evil.test to proxy.hosts"),
        (BIND, 'add "evil.test" to host.', "add evil.test to host"),
    ],
)
def test_an_unlisted_host_is_refused_in_the_words_of_who_started_the_wire(
    cures: Cures, said: str, short: str
) -> None:
    error = refused(Policy.of(["example.com"], cures=cures), "evil.test")
    assert error.message == NOT_LISTED + said
    assert error.phrase == f"Forbidden: {short}"
    assert error.key == "internet.hosts", "the rest of us knows it by the spec's key"


@pytest.mark.parametrize(
    ("cures", "said"),
    [
        (PROXY, "drop --no-internet and add --hosts evil.test."),
        (WRAP, 'take proxy.no_internet out and add "evil.test" to proxy.hosts.'),
        (BIND, 'take no_internet out and add "evil.test" to host.'),
        (SPEC, 'add "evil.test" to [internet] hosts (--internet-host evil.test).'),
    ],
)
def test_what_closes_the_internet_is_named_where_they_wrote_it(cures: Cures, said: str) -> None:
    error = refused(Policy.of([], no_internet=True, cures=cures), "evil.test")
    assert error.message == CLOSED + said


@pytest.mark.parametrize(
    ("cures", "lan", "ports", "elsewhere"),
    [
        (SPEC, 'add "10.0.0.1:80" to [lan] hosts.', "add 80 to [localhost] ports.",
         'add "nas.test:80" to [internet] tcp.'),
        (RUN, 'add "10.0.0.1:80" to [lan] hosts of a spec (--spec).',
         "add 80 to [localhost] ports of a spec (--spec).",
         'add "nas.test:80" to [internet] tcp of a spec (--spec).'),
        (PROXY, "add --lan 10.0.0.1:80.", "nothing opens it.", "add --tcp nas.test:80."),
        (WRAP, 'add "10.0.0.1:80" to proxy.lan.', "add 80 to net.proxied.ports.",
         'add "nas.test:80" to proxy.tcp.'),
        (UNWALLED, 'add "10.0.0.1:80" to proxy.lan.', "nothing opens it.",
         'add "nas.test:80" to proxy.tcp.'),
        (HELD, 'add "10.0.0.1:80" to proxy.lan.', "nothing opens it.",
         'add "nas.test" to proxy.hosts.'),
        (BIND, 'add "10.0.0.1:80" to lan.', "nothing opens it.", 'add "nas.test" to host.'),
    ],
)  # fmt: skip
def test_so_are_machines_of_the_local_network_and_this_one(
    cures: Cures, lan: str, ports: str, elsewhere: str
) -> None:
    policy = Policy.of([], cures=cures)
    assert refused(policy, "10.0.0.1", 80).message == PRIVATE + lan
    assert refused(policy, "localhost", 80).message == OURS + ports
    assert refused(policy, "127.0.0.1", 80).message.endswith(ports)
    assert moved(cures).message == MOVED + elsewhere


@pytest.mark.parametrize("cures", CURES.values())
def test_no_refusal_names_another_s_flag_or_table(cures: Cures) -> None:
    policy = Policy.of([], cures=cures)
    told = [
        text
        for host in ("evil.test", "10.0.0.1", "localhost", "127.0.0.1", "169.254.169.254")
        for error in [refused(policy, host)]
        for text in (error.message, error.phrase)
    ]
    theirs = "".join(told)
    assert ("--internet-host" in theirs) is (cures in (SPEC, RUN))
    assert ("[lan]" in theirs) is (cures in (SPEC, RUN))
    assert ("--hosts" in theirs) is (cures == PROXY)
    assert ("proxy.hosts" in theirs) is (cures in (WRAP, UNWALLED, HELD))


def test_a_phrase_that_is_too_long_names_the_key_as_they_do() -> None:
    host = "a." * 60 + "test"
    answer = answer_for(refused(Policy.of([], cures=PROXY), host))
    assert answer.startswith(b"HTTP/1.1 403 Forbidden: see --hosts\r\n")
    answer = answer_for(refused(Policy.of([]), host))
    assert answer.startswith(b"HTTP/1.1 403 Forbidden: see internet.hosts\r\n")


@pytest.mark.parametrize(
    ("cures", "named"), [(SPEC, "[internet] tcp"), (WRAP, "proxy.tcp"), (PROXY, "--tcp")]
)
def test_a_name_that_is_no_endpoint_is_pointed_at_the_endpoints(cures: Cures, named: str) -> None:
    assert no_endpoint("db.test", cures).message.endswith(f'others need "db.test:PORT" in {named}.')


def test_a_limit_and_an_exit_are_named_as_they_were_given() -> None:
    admission = Admission(1, PROXY.per_minute)
    admission.count(0.0)
    with pytest.raises(RateLimited, match=r"\(--per-minute sets how many\)"):
        admission.count(0.0)
    exit_ = Exit.of("http://127.0.0.1:3128", WRAP.upstream)
    assert exit_ is not None
    assert exit_.named == "proxy.upstream"


@pytest.mark.parametrize(
    ("cures", "entry", "said"),
    [
        (PROXY, "a.test:443", "and --hosts opens every port: write 'a.test' there, or the whole in "
         "--tcp."),
        (WRAP, "a.test:443", "and proxy.hosts opens every port: write 'a.test' there, or the whole "
         "in proxy.tcp."),
        (BIND, "a.test:443", "and host opens every port: write 'a.test' there."),
        (RUN, "a b", "'a b' in --internet-host is no host."),
    ],
)  # fmt: skip
def test_an_entry_is_refused_by_the_name_of_its_list(cures: Cures, entry: str, said: str) -> None:
    with pytest.raises(ValueError, match="a") as raised:
        Policy.of([entry], cures=cures)
    assert said in str(raised.value)


def test_an_error_without_a_key_has_no_name() -> None:
    assert answer_for(Refused("no.", phrase="x" * 200)).startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert isinstance(Refused("no.", key="a.b"), ProxyError)
