"""Probes are data, made from a plan; test_check runs them."""

from __future__ import annotations

import pytest

from sandbox.confinement import Host
from sandbox.linux import prober, probes, probing, probing_calls, probing_net, seccomp
from sandbox.linux.exec_list import MEMORY_GAP, ExecList, Inside
from sandbox.linux.probes import CLOSED, GAP, GRANTED, Guarded, Outside, Probe
from sandbox.linux.values import replaced
from tests.sandbox.test_plan import HOME, STATE, confined, planned, proxied

OUTSIDE = Outside(
    arch="x86_64", spaces={"net": "net:[1]"}, pid=77, command="check", marker="m", abstract="a",
    port=4000, addresses=("127.0.0.1", "198.51.100.7", "2001:db8::7"), nameservers=("9.9.9.9",),
    keys={"memory": 1, "semaphores": 2, "messages": 3}, queue="q", files=("/etc/shadow", "/srv/x"),
    home_files=(f"{HOME}/.bashrc",), temp_file="/tmp/t", shared_file="/dev/shm/s",
    devices=("/dev/kvm",), sockets=("/run/bus",), programs=("/usr/bin/true",), loader="/lib/ld.so",
    closed_variables=("LD_X",),
)  # fmt: skip


def made(confinement, outside: Outside = OUTSIDE, **more) -> dict[str, Probe]:
    found = probing.probes(planned(confinement), outside, **more)
    by_words = {probe.what: probe for probe in found}
    assert len(by_words) == len(found)
    return by_words


@pytest.mark.parametrize("net", [None, proxied(), Host(ports=(), localhost=True)])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_there_are_sixty_at_least_whatever_the_sandbox(net, arch):
    found = made(confined(net), replaced(OUTSIDE, arch=arch))
    assert len(found) >= 60
    for probe in found.values():
        assert probe.tries
        assert probe.due in (CLOSED, GRANTED, GAP)
        for verb, *_ in probe.tries:
            assert verb in prober.VERBS, verb


def test_every_mount_is_tried_by_what_it_should_do():
    found = made(
        confined(write=("/work", "/work/h/mine"), read=("/data", "/work/a/b"), hide=("/work/h",),
                 read_home=True)
    )  # fmt: skip
    due = {what: probe.due for what, probe in found.items()}
    assert due["write /work"] == due["write /work/h/mine"] == due["read /data"] == GRANTED
    for what in ("write /data", "write /work/a/b", "move /work/a away", "look into /work/h",
                 "write /work/h", f"look into {STATE}", f"write {STATE}", f"write {HOME}",
                 "read /proc/keys", "write /proc/sys", "write /usr"):  # fmt: skip
        assert due[what] == CLOSED, what
    assert due["write /work/a"] == GRANTED, "a pinned folder is written"
    assert found["look into /work/h"].tries == (("lists_more_than", "/work/h", "mine"),)


def test_what_a_key_shows_is_not_tried_as_closed():
    assert f"see {HOME}/.bashrc" in made(confined())
    assert f"see {HOME}/.bashrc" not in made(confined(read_home=True))
    assert "see /srv/x" not in made(confined(read=("/srv/x",)))


def test_every_call_of_the_filters_table_is_tried():
    for arch, at in (("x86_64", 0), ("aarch64", 1)):
        tried = {
            words[1] for probe in probing_calls.of_filter(arch) for words in probe.tries
            if words[0] == "calls"
        }  # fmt: skip
        assert tried >= {row[at] for row in seccomp.REFUSED.values() if row[at] is not None}
        assert {seccomp.CLONE[at], seccomp.CLONE3[at], seccomp.IOCTL[at]} <= tried
    assert {row[2] for row in seccomp.REFUSED.values()} == set(probing_calls.GROUPS)


def test_hosts_are_tried_through_the_proxy():
    found = made(confined(proxied()), hosts=("a.example", "*.b.example", "192.0.2.7"))
    assert found["reach a.example through the proxy"].tries == (
        ("asks_proxy", 40781, "a.example:443"),
    )
    assert not [what for what in found if "*" in what]
    assert "reach not-listed.lnk-check.test, which isn't listed, through the proxy" in found
    everything = made(confined(proxied()), hosts=None)
    assert not [what for what in everything if "isn't listed" in what]
    below = made(confined(proxied()), hosts=("*.lnk-check.test",))
    assert not [what for what in below if "not-listed.lnk-check.test" in what]
    many = made(confined(proxied()), hosts=tuple(f"h{n}.example" for n in range(50)))
    reached = [w for w in many if w.startswith("reach h") and w.endswith("through the proxy")]
    assert len(reached) == probing_net.HOSTS_TRIED


def test_abstract_sockets_are_a_gap_where_no_wall_holds_them():
    what = "connect to the machine's abstract sockets"
    assert made(confined())[what].due == CLOSED
    host = confined(Host(ports=(), localhost=True))
    assert made(host)[what].due == CLOSED
    old = probing.probes(planned(host, landlock=5), OUTSIDE)
    assert next(probe for probe in old if probe.what == what).due == GAP


def test_a_list_of_programs_is_tried_from_both_sides():
    plan = planned(confined())
    lists = ExecList(listed=("/usr/bin/git",), needed=(), helpers=(), gaps=(MEMORY_GAP,))
    inside = Inside(**{**dict.fromkeys(Inside.FIELDS), "programs": lists, "reached": ()})
    found = {one.what: one for one in probing.probes(replaced(plan, inside=inside), OUTSIDE)}
    assert found["run /usr/bin/git, which is listed"].due == GRANTED
    for what in (
        "run /usr/bin/true, which isn't listed", "run a program that it made itself",
        "run a memory file by its descriptor", "run a program by a descriptor",
    ):  # fmt: skip
        assert found[what].due == CLOSED, what
    gaps = [what for what, probe in found.items() if probe.due == GAP]
    assert len(gaps) == 3
    assert "run a memory file by its path" in gaps, "Linux before 6.3"
    assert "LD_PRELOAD" in gaps[2]
    assert made(confined())["run a program that it made itself"].due == GRANTED


def test_dot_files_and_the_folders_above_are_tried():
    found = made(
        confined(write=("/work",)), dot_files=(Guarded("/work/.git"), Guarded("/work/a", True)),
        open_dot_files=("/work/.idea",),
    )  # fmt: skip
    assert found["write /work/.git"].due == found["move /work/.git away"].due == CLOSED
    assert "write /work/a" not in found
    assert found["move /work/a away"].due == CLOSED
    assert found["write /work/.idea"].due == GRANTED


def one(due: str, *answers: str, tries: int = 1, known: tuple[str, ...] = ()) -> tuple[str, str]:
    probe = Probe("x", due, tuple(("reads", str(n)) for n in range(tries)), answers=known)
    return probes.verdict(probe, list(answers))


@pytest.mark.parametrize(
    ("due", "answers", "known", "word"),
    [
        (CLOSED, ["EACCES"], (), "blocked"),
        (CLOSED, ["open"], (), "leaked"),
        (CLOSED, ["EACCES", "open"], (), "leaked"),
        (CLOSED, ["own"], (), "blocked"),
        (CLOSED, ["failed: x"], (), "failed"),
        (CLOSED, ["failed: x", "open"], (), "leaked"),
        (CLOSED, ["EINVAL"], ("EPERM",), "leaked"),
        (CLOSED, ["EPERM"], ("EPERM",), "blocked"),
        (CLOSED, ["failed: x"], ("EPERM",), "failed"),
        (CLOSED, ["502"], ("403",), "leaked"),
        (GRANTED, ["open", "open"], (), "allowed"),
        (GRANTED, ["open", "EACCES"], (), "missed"),
        (GRANTED, ["403"], (), "missed"),
        (GRANTED, ["504"], (), "failed"),
        (GRANTED, ["failed: x"], (), "failed"),
        (GAP, ["open"], (), "open"),
        (GAP, ["EPERM"], (), "blocked"),
    ],
)
def test_a_verdict_goes_by_what_was_due(due, answers, known, word):
    assert one(due, *answers, tries=len(answers), known=known)[0] == word


def test_every_probe_says_leaked_or_missed_where_it_should():
    for net in (None, proxied(), Host(ports=(), localhost=True)):
        for probe in made(confined(net), hosts=("a.example",)).values():
            through = ["open"] * len(probe.tries)
            refused = ["EACCES"] * len(probe.tries)
            word, other = (probes.verdict(probe, each)[0] for each in (through, refused))
            assert word == {CLOSED: "leaked", GRANTED: "allowed", GAP: "open"}[probe.due]
            if probe.due == GRANTED:
                assert other == "missed"


def test_which_try_it_was_is_told():
    assert one(CLOSED, "EACCES", "open", tries=2) == ("leaked", "reads 1: open")
    assert one(GRANTED, "open", "EROFS", tries=2) == ("missed", "reads 1: EROFS")
    assert one(CLOSED, "EACCES", "ENOENT", "EACCES", tries=3) == ("blocked", "EACCES, ENOENT")


def test_a_plan_without_its_own_session_is_not_tried_for_one():
    plan = planned(confined())
    kept = tuple(flag for flag in plan.namespaces if flag != "--new-session")
    found = [probe.what for probe in probing.probes(replaced(plan, namespaces=kept), OUTSIDE)]
    assert not [what for what in found if "terminal that it was" in what or "session" in what]
