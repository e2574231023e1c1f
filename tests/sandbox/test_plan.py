"""The plan is data, and is compared as data; test_walls tries to get through it."""

from __future__ import annotations

import contextlib
import site
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.confinement import (
    Closed,
    Confinement,
    Host,
    Loopback,
    Proxied,
    Proxy,
    Reached,
    Reaching,
)
from sandbox.errors import LaunchError, Unsupported
from sandbox.linux import bubblewrap, environment, etc_files, facts, kept, packing, seccomp
from sandbox.linux import plan as p
from sandbox.linux import view as v
from sandbox.linux.own import Own, find_own, places_of, searched_by
from sandbox.linux.values import Value, plain, replaced

HOME = "/home/ann"
STATE = "/home/ann/.lnk"
PACKAGE = "/usr/lib/python3/dist-packages"


def machine(paths=(), files=(), **changes) -> facts.Facts:
    """Return a machine on which `paths` are folders and `files` files."""
    found = {path: facts.Found(facts.FOLDER, path) for path in (HOME, STATE, *paths)}
    found |= {path: facts.Found(facts.FILE, path) for path in files}
    made = facts.Facts(
        arch="x86_64",
        uid=1000,
        home=HOME,
        state=STATE,
        bubblewrap=facts.Bubblewrap("/usr/bin/bwrap", holds_folders=True, disables_userns=True),
        own=Own(
            python="/usr/bin/python3.11",
            script=f"{PACKAGE}/sandbox/cli/kept_start.py",
            imports=(PACKAGE,),
            guarded=("/usr/bin/python3.11", "/usr/lib/python3.11", f"{PACKAGE}/sandbox"),
            environment=None,
            node_proxy=f"{PACKAGE}/sandbox/linux/node_proxy.cjs",
            resolv_conf=f"{PACKAGE}/sandbox/linux/resolv.conf",
            ssh_proxy=f"{PACKAGE}/sandbox/linux/ssh_proxy.py",
            open_page=f"{PACKAGE}/sandbox/linux/open_page.py",
            browser=environment.OPEN_PAGE,
        ),
        system=(("/usr", None), ("/bin", "usr/bin"), ("/opt", None)),
        etc=(
            ("/etc/passwd", etc_files.COPY, ""),
            ("/etc/localtime", etc_files.LINK, "/usr/share/zoneinfo/UTC"),
            ("/etc/ssl/certs", etc_files.BIND, ""),
        ),
        proc_closed=(),
        proc_masked=("/proc/keys", "/proc/timer_list"),
        authorities="",
        userns_limit_writable=True,
        landlock=7,
        paths=found,
    )
    return replaced(made, **changes)


def confined(net=None, **keys) -> Confinement:
    given = {"name": "box", "write": (), "read": (), "net": net or Closed(), **keys}
    return Confinement(commands=None, **given)


def proxied(**keys) -> Proxied:
    given = {"upstream": "direct", "dir": "/home/ann/wires", "hosts": ("example.com",), **keys}
    return Proxied(proxy=Proxy(**given), ports=())


def named(confinement: Confinement) -> list[str]:
    return [*confinement.write, *confinement.read, *confinement.hide]


def planned(confinement: Confinement, **changes) -> p.Plan:
    return p.plan(confinement, machine(named(confinement), **changes))


def view(made: p.Plan) -> dict[str, str]:
    """Return what a plan shows beside the system's own entries."""
    usual = {"/usr", "/bin", "/opt", "/proc", "/proc/sys", "/proc/keys", "/dev", "/tmp",
             *v.FIRST_MEMORY}  # fmt: skip
    return {
        mount.at: mount.how
        for mount in made.mounts
        if mount.at not in usual and not mount.at.startswith("/etc")
    }


def refusal(confinement: Confinement, **changes) -> str:
    with pytest.raises(LaunchError) as caught:
        planned(confinement, **changes)
    assert caught.value.exit_code == 125
    return str(caught.value)


def test_a_closed_sandbox_is_all_walls():
    made = planned(confined())
    assert made.namespaces == (
        "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
        "--unshare-net", "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL",
        "--new-session",
    )  # fmt: skip
    assert [(mount.how, mount.at) for mount in made.mounts] == [
        ("copy", "/etc/passwd"), ("link", "/etc/localtime"), ("link", "/bin"), ("dev", "/dev"),
        ("system", "/opt"), ("proc", "/proc"), ("own", "/tmp"), ("system", "/usr"),
        ("own", HOME), ("nothing", "/proc/keys"), ("system", "/proc/sys"),
        ("system", "/etc/ssl/certs"), ("nothing", "/proc/1/mem"),
        ("nothing", "/proc/1/task/1/mem"),
    ]  # fmt: skip
    assert made.filter == seccomp.encode(seccomp.assemble("x86_64"))
    assert made.proxy is None
    assert made.port == 0
    assert made.descriptors == ("args", "seccomp", "info", "status", "block")


def test_the_arguments_end_with_the_root_read_only():
    arguments = bubblewrap.arguments(planned(confined(write=("/work/a",))))
    assert arguments[-2:] == ["--remount-ro", "/"]
    assert ["--bind-fd", bubblewrap.Held("/work/a"), "/work/a"] in windows(arguments, 3)
    assert ["--perms", "0700", "--tmpfs", HOME] in windows(arguments, 4)
    assert ["--ro-bind", "/proc/sys", "/proc/sys"] in windows(arguments, 3)
    assert arguments.index("/proc") < arguments.index("/proc/sys")


def windows(items: list, length: int) -> list[list]:
    return [items[at : at + length] for at in range(len(items) - length + 1)]


def test_a_home_that_is_reached_by_a_link_is_there_by_its_name():
    links = (("/data", "/mnt/data"), ("/u/ann", "../home/ann"))
    made = view(planned(confined(write=("/work/a",)), home_links=links))
    assert made == {HOME: "own", "/work/a": "write", "/data": "link", "/u/ann": "link"}
    arguments = bubblewrap.arguments(planned(confined(), home_links=links))
    assert ["--symlink", "../home/ann", "/u/ann"] in windows(arguments, 3)


@pytest.mark.parametrize("link", ["/bin", "/usr/ann", "/work/a/ann", HOME])
def test_a_link_is_made_only_where_nothing_is_shown(link):
    usual = planned(confined(write=("/work/a",)))
    assert planned(confined(write=("/work/a",)), home_links=((link, "/x"),)) == usual


def test_settings_in_the_home_are_closed_where_others_are_used():
    other = {"state": "/srv/lnk"}
    paths = {"/srv/lnk": facts.Found(facts.FOLDER, "/srv/lnk")}
    usual = machine([])
    made = p.plan(
        confined(read_home=True), replaced(usual, **other, paths={**usual.paths, **paths})
    )
    assert view(made) == {HOME: "read", STATE: "mask"}
    gone = {STATE: facts.Found(facts.MISSING, STATE)}
    made = p.plan(
        confined(read_home=True), replaced(usual, **other, paths={**usual.paths, **paths, **gone})
    )
    assert view(made) == {HOME: "read"}


def test_a_written_folder_holds_no_link_to_the_settings():
    said = refusal(confined(write=("/work",)), state_links=("/work/a",))
    assert said == (
        "write names /work, and a link in /work/a leads to Link's settings: have LNK_HOME and HOME "
        "name their folders themselves."
    )
    planned(confined(read=("/work",)), state_links=("/work/a",))
    planned(confined(write=("/work",), hide=("/work/a",)), state_links=("/work/a",))


def test_an_older_bubblewrap_mounts_by_path_what_was_looked_at():
    old = facts.Bubblewrap("/usr/bin/bwrap", holds_folders=False, disables_userns=False)
    made = planned(confined(write=("/work/a",), read=("/work/b",)), bubblewrap=old)
    arguments = bubblewrap.arguments(made)
    assert ["--bind", "/work/a", "/work/a"] in windows(arguments, 3)
    assert ["--ro-bind", "/work/b", "/work/b"] in windows(arguments, 3)
    assert not [one for one in arguments if isinstance(one, bubblewrap.Held)]
    assert "--disable-userns" not in arguments
    assert set(made.checks) == {"/work/a", "/work/b"}


def test_user_namespaces_stay_to_the_filter_where_their_limit_cannot_be_written():
    assert "--disable-userns" not in planned(confined(), userns_limit_writable=False).namespaces


def test_host_mode_shares_the_network_and_its_resolver_alone():
    made = planned(confined(Host(ports=(), localhost=True)))
    assert "--unshare-net" not in made.namespaces
    assert "/etc/resolv.conf" in bubblewrap.copies(made)
    assert made.proxy is None
    assert made.environment == environment.NEUTRAL


def test_abstract_sockets_are_scoped_where_the_network_is_the_machines():
    host = confined(Host(ports=(), localhost=True))
    made = planned(host)
    assert made.scoped
    assert kept.Kept(packing.fields_of(made, ())).scoped
    assert "abstract sockets of the machine are closed" in bubblewrap.explain(made)
    assert not planned(host, landlock=5).scoped, "ABI 6 brought scopes"
    for net in (Closed(), proxied()):
        assert not planned(confined(net)).scoped, "its own network has its own"


def test_a_long_plan_is_cut_into_arguments_and_put_together_again():
    hosts = tuple(f"host-{at}.example.com" for at in range(10_000))
    made = planned(confined(proxied(hosts=hosts)))
    command = packing.command(made, machine().own, ["prog", "--", "x"])
    assert max(map(len, command)) <= packing.PART_MAX
    assert len(command) > 10
    text, argv = kept.taken_apart(command[4:])
    assert argv == ["prog", "--", "x"]
    assert kept.unpacked(text).wire["hosts"] == list(hosts)
    for words in ([], ["--"], ["x"], ["x", "--"], ["--", "x"]):
        assert kept.taken_apart(words) is None


def test_closed_and_proxied_have_no_resolver_to_ask():
    for net in (Closed(), proxied()):
        assert "/etc/resolv.conf" not in bubblewrap.copies(planned(confined(net)))


def test_a_proxied_sandbox_is_pointed_at_its_proxy():
    made = p.plan(confined(proxied(lan=("10.0.0.8:631",))), machine(), log="/home/ann/.lnk/log")
    assert "--unshare-net" in made.namespaces
    assert made.proxy == {
        "name": "box", "hosts": ["example.com"], "lan": ["10.0.0.8:631"], "tcp": [],
        "no_internet": False, "upstream": "direct", "login": "", "log": "/home/ann/.lnk/log",
        "routes": None, "inside": [], "serve": [], "dir": "/home/ann/wires",
        "state": "/home/ann/.lnk", "per_minute": None, "by": "wrap",
    }  # fmt: skip
    assert made.environment["HTTPS_PROXY"] == f"http://127.0.0.1:{made.port}"
    assert made.environment["https_proxy"] == made.environment["HTTPS_PROXY"]
    assert made.environment["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert made.environment["NODE_USE_ENV_PROXY"] == "1"
    assert made.environment["LD_PRELOAD"] == ""


def test_what_teaches_node_its_proxy_is_shown_where_there_is_one_and_loaded_first():
    made = planned(confined(proxied()))
    shown = [m for m in made.mounts if m.how == v.OURS]
    assert [(m.at, m.target) for m in shown] == [
        (environment.NODE_PROXY, f"{PACKAGE}/sandbox/linux/node_proxy.cjs"),
        (environment.SSH_PROXY, f"{PACKAGE}/sandbox/linux/ssh_proxy.py"),
    ]
    arguments = bubblewrap.arguments(made)
    assert arguments[arguments.index(environment.NODE_PROXY) - 2] == "--ro-bind"
    assert made.environment["NODE_OPTIONS"] == f"--require {environment.NODE_PROXY}"
    assert environment.NODE_PROXY in bubblewrap.explain(made)
    for net in (Closed(), Host(ports=(), localhost=True)):
        made = planned(confined(net))
        assert not [m for m in made.mounts if m.how == v.OURS]
        assert "NODE_OPTIONS" not in made.environment
        assert "GIT_SSH_COMMAND" not in made.environment


def test_ssh_goes_out_by_the_proxy_where_the_interpreter_is_shown():
    made = planned(confined(proxied()))
    assert "ProxyCommand=/usr/bin/python3.11 -I -S" in made.environment["GIT_SSH_COMMAND"]
    own = replaced(machine().own, python="/home/ann/.pyenv/bin/python3.11")
    made = planned(confined(proxied()), own=own)
    assert "GIT_SSH_COMMAND" not in made.environment


def test_a_machines_own_authorities_are_trusted_by_programs_that_bring_their_own_list():
    names = {"NODE_EXTRA_CA_CERTS", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"}
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    for net in (proxied(), Host(ports=(), localhost=True)):
        made = planned(confined(net), authorities=bundle)
        assert names <= made.environment.keys()
        assert made.environment["NODE_EXTRA_CA_CERTS"] == bundle
        assert not names & planned(confined(net)).environment.keys()
    assert not names & planned(confined(), authorities=bundle).environment.keys()


@pytest.mark.parametrize(
    ("bundle", "listed", "own"),
    [
        (3, "# a comment\n\nmozilla/A.crt\n!mozilla/B.crt\nmozilla/C.crt\n", True),
        (2, "# a comment\n\nmozilla/A.crt\n!mozilla/B.crt\nmozilla/C.crt\n", False),
        (1, None, True),
        (None, "mozilla/A.crt\n", False),
    ],
)
def test_authorities_are_the_machines_own_where_the_distribution_lists_fewer(
    monkeypatch, tmp_path, bundle, listed, own
):
    missing, path, names = (str(tmp_path / name) for name in ("missing", "bundle", "names"))
    if bundle is not None:
        one = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
        (tmp_path / "bundle").write_text(one * bundle)
    if listed is not None:
        (tmp_path / "names").write_text(listed)
    monkeypatch.setattr(facts, "BUNDLES", (missing, path))
    monkeypatch.setattr(facts, "BUNDLE_LIST", names)
    assert facts.own_authorities() == (path if own else "")


def test_any_host_is_kept_apart_from_none():
    assert planned(confined(proxied(hosts=None))).proxy["hosts"] is None
    assert planned(confined(proxied(hosts=()))).proxy["hosts"] == []


def test_the_home_of_its_own_gives_way_to_what_shows_the_real_one():
    assert view(planned(confined(read_home=True))) == {HOME: "read", STATE: "mask"}
    assert view(planned(confined(write=(HOME,)))) == {HOME: "write", STATE: "mask"}
    assert view(planned(confined(write=(f"{HOME}/a",)))) == {HOME: "own", f"{HOME}/a": "write"}


def test_links_settings_are_closed_whatever_is_open():
    for keys in ({"read_home": True}, {"write": (HOME,)}, {"read": (HOME,)}):
        made = planned(confined(**keys))
        assert view(made)[STATE] == "mask"
        arguments = bubblewrap.arguments(made)
        assert ["--perms", "0000", "--tmpfs", STATE] in windows(arguments, 4)
        assert ["--remount-ro", STATE] in windows(arguments, 2)


def test_settings_deep_in_a_written_folder_have_their_parents_pinned():
    state = "/work/a/b/c/lnk"
    made = p.plan(
        confined(write=("/work",)),
        machine(("/work", state), state=state),
    )
    found = view(made)
    assert found == {
        HOME: "own", "/work": "write", "/work/a": "pin", "/work/a/b": "pin",
        "/work/a/b/c": "pin", state: "mask",
    }  # fmt: skip
    order = [mount.at for mount in made.mounts if mount.at in found]
    assert order.index("/work") < order.index("/work/a") < order.index(state)


@pytest.mark.parametrize("key", ["read", "write"])
def test_nothing_names_links_settings_or_what_is_in_them(key):
    for path in (STATE, f"{STATE}/sandbox/log"):
        said = refusal(confined(**{key: (path,)}))
        assert path in said
        assert "Link's settings stay closed" in said


def test_settings_named_by_a_link_are_closed_where_they_are():
    here = machine(("/work",))
    here.paths[STATE] = facts.Found(facts.LINK, "/work/lnk")
    assert view(p.plan(confined(write=("/work",)), here))["/work/lnk"] == "mask"


def test_settings_that_are_missing_in_an_open_folder_are_no_settings_to_close():
    found = machine((HOME,)).paths | {STATE: facts.Found(facts.MISSING, STATE)}
    with pytest.raises(LaunchError, match=r"Link.s settings .* are missing"):
        p.plan(confined(write=(HOME,)), replaced(machine(), paths=found))


def test_a_hidden_folder_is_closed_but_for_what_is_named_in_it():
    made = planned(
        confined(read_home=True, hide=(f"{HOME}/agents",), write=(f"{HOME}/agents/mine",))
    )
    assert view(made) == {
        HOME: "read", f"{HOME}/agents": "hidden", f"{HOME}/agents/mine": "write", STATE: "mask",
    }  # fmt: skip
    arguments = bubblewrap.arguments(made)
    assert ["--perms", "0755", "--tmpfs", f"{HOME}/agents"] in windows(arguments, 4)
    assert arguments.index("--remount-ro") > arguments.index(f"{HOME}/agents/mine")


def test_what_is_written_in_a_hidden_folder_is_reopened_though_its_parent_is_written_too():
    made = planned(confined(write=("/work", "/work/agents/mine"), hide=("/work/agents",)))
    assert view(made)["/work/agents/mine"] == "write"
    assert view(made)["/work/agents"] == "hidden"


def test_a_hidden_folder_that_nothing_shows_costs_no_mount():
    assert f"{HOME}/agents" not in view(planned(confined(hide=(f"{HOME}/agents",))))


def test_hidden_in_hidden_is_one_wall():
    made = planned(confined(read_home=True, hide=(f"{HOME}/a", f"{HOME}/a/b")))
    assert view(made) == {HOME: "read", f"{HOME}/a": "hidden", STATE: "mask"}


def test_hiding_what_is_opened_by_name_is_a_contradiction():
    said = refusal(confined(write=("/work",), hide=("/work",)))
    assert "hide names /work, which read or write opens" in said


@pytest.mark.parametrize("way", ["/work", "/srv"])
def test_what_is_hidden_is_named_by_no_link_that_the_sandbox_could_lead_elsewhere(way):
    confinement = confined(write=("/work",), read=("/data",), hide=(f"{way}/link/a",))
    here = machine(named(confinement))
    here.paths[f"{way}/link/a"] = facts.Found(facts.FOLDER, "/data/a", (way,))
    if way == "/work":
        with pytest.raises(LaunchError, match="by a link in /work, which the sandbox writes: name"):
            p.plan(confinement, here)
    else:
        assert view(p.plan(confinement, here))["/data/a"] == v.HIDDEN


def test_a_missing_folder_cannot_be_hidden_in_one_that_is_shown():
    confinement = confined(read_home=True, hide=(f"{HOME}/later",))
    found = machine().paths | {f"{HOME}/later": facts.Found(facts.MISSING, f"{HOME}/later")}
    with pytest.raises(LaunchError, match="hide names /home/ann/later, which is missing"):
        p.plan(confinement, replaced(machine(), paths=found))


def test_a_read_folder_in_a_written_one_stays_read_only_and_in_its_place():
    assert view(planned(confined(write=("/work",), read=("/work/tools/bin",)))) == {
        HOME: "own", "/work": "write", "/work/tools": "pin", "/work/tools/bin": "read",
    }  # fmt: skip


def test_what_is_shown_already_costs_no_mount():
    made = planned(
        confined(read=("/data", "/data/a", "/usr/share/b"), write=("/work", "/work/a/b"))
    )
    assert view(made) == {HOME: "own", "/data": "read", "/work": "write"}


def test_the_virtual_environment_in_a_written_folder_is_read_only_and_pinned():
    venv = "/work/tools/venv"
    own = replaced(
        machine().own,
        guarded=("/usr/bin/python3.11", f"{venv}/lib/python3.11/site-packages"),
        environment=venv,
    )
    assert view(planned(confined(write=("/work",)), own=own)) == {
        HOME: "own", "/work": "write", "/work/tools": "pin", venv: "read",
    }  # fmt: skip


def test_links_package_and_bubblewrap_in_a_written_folder_are_read_only():
    own = replaced(machine().own, guarded=("/work/clone/sandbox", "/work/clone/proto"))
    wrapper = facts.Bubblewrap("/work/bin/bwrap", holds_folders=True, disables_userns=True)
    assert view(planned(confined(write=("/work",)), own=own, bubblewrap=wrapper)) == {
        HOME: "own", "/work": "write", "/work/bin": "pin", "/work/bin/bwrap": "read",
        "/work/clone": "pin", "/work/clone/proto": "read", "/work/clone/sandbox": "read",
    }  # fmt: skip


def test_where_another_bubblewrap_could_be_put_is_not_written():
    places = ("/work/bin", "/opt/tools", HOME)
    wrapper = facts.Bubblewrap(
        "/opt/bwrap", holds_folders=True, disables_userns=True, places=places
    )
    assert view(planned(confined(write=("/work",)), bubblewrap=wrapper))["/work/bin"] == v.READ
    assert "a sandbox that wrote it would run outside" in refusal(
        confined(write=("/opt/tools",)), bubblewrap=wrapper
    )


@pytest.mark.parametrize("folder", ["/srv/py/lib", "/srv/py/lib/python3.11/json"])
def test_a_folder_of_links_own_code_is_never_written(folder):
    own = replaced(machine().own, guarded=("/srv/py/lib",))
    assert "Link runs or imports from there" in refusal(confined(write=(folder,)), own=own)


def test_where_the_interpreter_stands_nothing_is_put_beside_it():
    """A `python3` made anew, a `pyvenv.cfg` or a `python311.zip` would run outside."""
    own = replaced(machine().own, places=("/srv/py/bin", "/srv/py"))
    assert view(planned(confined(write=("/srv",)), own=own))["/srv/py"] == v.READ
    assert "Link runs or imports from there" in refusal(confined(write=("/srv/py",)), own=own)
    assert "Link runs or imports from there" in refusal(confined(write=("/srv/py/bin",)), own=own)
    assert (
        view(planned(confined(write=("/srv/py/share/x",)), own=own))["/srv/py/share/x"] == v.WRITE
    )


def test_the_places_of_an_interpreter_are_those_of_every_link_to_it(tmp_path):
    real, home = tmp_path / "v3" / "bin", tmp_path / "home" / "bin"
    real.mkdir(parents=True)
    home.mkdir(parents=True)
    (real / "python3.11").touch()
    (real / "python3").symlink_to("python3.11")
    (home / "python").symlink_to(real / "python3")
    found = places_of(str(home / "python"))
    assert found == tuple(str(f) for f in (home, home.parent, real, real.parent))


def test_a_package_beside_those_that_link_imports_is_not_written():
    packages = "/srv/venv/lib/python3.11/site-packages"
    own = replaced(machine().own, environment="/srv/venv", imports=(packages,),
                   guarded=(packages,), places=(packages,))  # fmt: skip
    said = refusal(confined(write=(f"{packages}/msgspec",)), own=own)
    assert "Link runs or imports from there" in said
    assert view(planned(confined(write=("/srv/venv/src",)), own=own))["/srv/venv/src"] == "write"


def test_a_folder_beside_the_code_in_a_virtual_environment_may_be_written():
    own = replaced(machine().own, environment="/srv/venv")
    assert view(planned(confined(write=("/srv/venv/src",)), own=own))["/srv/venv/src"] == "write"
    assert "Link runs or imports from there" in refusal(confined(write=("/srv/venv",)), own=own)


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize("path", ["/", "/etc", "/home", "/tmp", "/var"])
def test_what_is_the_machines_is_never_opened_whole(key, path):
    assert f"{key} names {path}, which no sandbox opens whole" in refusal(
        confined(**{key: (path,)})
    )


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize("path", ["/run", "/run/user/1000", "/proc/1", "/sys", "/dev/shm"])
def test_what_is_the_kernels_or_a_services_is_never_opened(key, path):
    place = f"/{path.split('/')[1]}"
    assert f"{key} names {path}, and no sandbox shows anything of {place}: " in refusal(
        confined(**{key: (path,)})
    )


def test_the_system_may_be_named_as_read_and_not_as_written():
    assert view(planned(confined(read=("/usr",)))) == {HOME: "own"}
    assert "/usr" in refusal(confined(write=("/usr",)))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (facts.Found(facts.MISSING, "/work/x"), "which does not exist"),
        (facts.Found(facts.UNREADABLE, "/work/x"), "which you may not look at"),
        (facts.Found(facts.LINK, "/secret"), "a link to /secret"),
        (facts.Found(facts.FOLDER, "/secret/x"), "a link to /secret/x"),
        (facts.Found(facts.OTHER, "/work/x"), "neither a file nor a folder"),
    ],
)
@pytest.mark.parametrize("key", ["read", "write"])
def test_a_path_that_is_not_what_it_says_is_refused_before_anything_starts(key, found, words):
    paths = {**machine().paths, "/work/x": found}
    with pytest.raises(LaunchError) as caught:
        p.plan(confined(**{key: ("/work/x",)}), replaced(machine(), paths=paths))
    assert str(caught.value).startswith(f"{key} names /work/x")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_and_not_written():
    paths = {**machine().paths, "/work/x": facts.Found(facts.FILE, "/work/x")}
    here = replaced(machine(), paths=paths)
    assert view(p.plan(confined(read=("/work/x",)), here))["/work/x"] == "read"
    with pytest.raises(LaunchError, match="which is a file"):
        p.plan(confined(write=("/work/x",)), here)


def test_what_of_proc_acts_on_the_machine_or_tells_of_others_is_closed():
    found = {m.at: m.how for m in planned(confined(), uid=0).mounts}
    assert found["/proc/timer_list"] == "nothing"
    found = {m.at: m.how for m in planned(confined(), proc_closed=("/proc/mtrr",)).mounts}
    assert found["/proc/mtrr"] == "system"
    assert "/proc/timer_list" not in found
    assert found["/proc/keys"] == "nothing"


def test_a_proxys_folder_is_never_shown():
    confinement = confined(proxied(dir="/work/wires"), write=("/work",))
    assert "the proxy's dir /work/wires lies in /work" in refusal(confinement)


def test_a_home_that_is_the_root_is_left_alone():
    made = p.plan(confined(), machine(("/",), home="/"))
    assert "/" not in {mount.at for mount in made.mounts}


def test_a_home_reached_by_a_link_stands_where_it_is():
    found = {**machine().paths, HOME: facts.Found(facts.FOLDER, "/var/home/ann")}
    made = p.plan(confined(), replaced(machine(), paths=found))
    assert view(made) == {"/var/home/ann": "own"}
    assert made.home == "/var/home/ann"


def test_a_reached_folder_is_shown_and_its_relay_is_told_of_it():
    reaching = Reaching(reached=(Reached(dir="/srv/a", port=40791),), ports=())
    made = p.plan(confined(reaching), machine(["/srv/a"]))
    assert view(made)["/srv/a"] == "write"
    assert made.inside is not None
    assert made.inside.reached == (("/srv/a", 40791),)
    assert "--unshare-net" in made.namespaces
    assert made.proxy is None
    ports = replaced(reaching, ports=(5432,))
    wire = p.plan(confined(ports), machine(["/srv/a"])).proxy
    assert wire is not None
    assert wire["inside"] == [["tcp", "127.0.0.1", 5432, "port"], ["tcp", "::1", 5432, "port"]]
    with pytest.raises(LaunchError, match="lies in /srv, which is shown"):
        p.plan(confined(reaching, read=("/srv",)), machine(["/srv/a", "/srv"]))


def test_a_reached_folder_in_links_settings_is_reached_through_their_mask():
    inner = f"{STATE}/sandbox/proxy/a"
    reaching = Reaching(reached=(Reached(dir=inner, port=40791),), ports=())
    made = p.plan(confined(reaching, read_home=True), machine([inner]))
    masks = [mount for mount in made.mounts if mount.at == STATE]
    assert [mount.perms for mount in masks] == ["0711"]
    assert view(made)[inner] == "write"


def test_machines_whose_calls_are_not_known_are_refused():
    with pytest.raises(Unsupported, match="no system call filter for riscv64"):
        planned(confined(), arch="riscv64")


def test_a_plan_is_printed_with_a_reason_for_every_mount():
    text = bubblewrap.explain(planned(confined(proxied(dir="/srv/wires"), write=(HOME,))))
    assert f"writable   {HOME}  (write)" in text
    assert f"closed     {STATE}  (Link's settings)" in text
    assert "hosts: ['example.com']" in text
    assert "104 instructions" in text
    assert "  none" in bubblewrap.explain(planned(confined()))


def test_a_kept_plan_is_read_back_as_it_was():
    made = planned(confined(proxied(), write=("/work",)))
    text = packing.packed(made, ("/usr/lib/a",))
    assert "\n" not in text
    assert text.isascii()
    read = kept.unpacked(text)
    assert read.filter == made.filter
    assert read.wire == made.proxy
    assert read.port == made.port
    assert read.imports == ["/usr/lib/a"]
    assert ["/work"] in read.arguments
    flat = [one if isinstance(one, str) else one[0] for one in read.arguments]
    assert flat == [str(one) for one in bubblewrap.arguments(made)]


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", '{"v":2}', "x" * 99, "null", "plan 3", "plan 2;end 6", "plan 3;end 6",
     "plan 3;end", ";end 0", "plan 3;end 06", "plan 3;end 6 ", "plan 3;end \u0666"],
)  # fmt: skip
def test_a_command_kept_by_another_version_is_refused(text):
    with pytest.raises(LaunchError, match="another version"):
        kept.unpacked(text)


def test_a_plan_that_was_cut_or_has_something_twice_is_refused():
    text = packing.packed(planned(confined(proxied(), write=("/work",))), ("/usr/lib/a",))
    whole, end = text.rpartition(";")[::2]
    home = whole.index(";home ")
    for wrong in (
        *(text[:at] for at in range(len(text))), text + ";end", text + "x", ";" + text,
        text + f";{end}", f"{text};end {len(text) + 1}",
        *map(ended, (
            whole.replace(";home ", ";hone "), whole.replace(";uid ", ";uid x"),
            whole[:home] + ";home /other" + whole[home:], whole[:home] + ";odd" + whole[home:],
            whole.replace(";wire ", ";wire x"), whole.replace(";wire ", ";wire [1] "),
            whole.replace(";wire ", ";wire " + "[" * 100_000), whole + ";run 7", whole + ";dots {}",
            whole + ";dots [[],[],[]]", whole + ";dots [[]]", whole + ";inside []",
            whole.replace(";uid ", ";uid " + "9" * 5000), whole.replace(";bpf ", ";bpf x"),
            whole[:home] + ";arg \\x" + whole[home:], whole[:home] + ";arg \\x00" + whole[home:],
            whole[:home] + ";arg \0" + whole[home:], whole[:home] + ";arg \\é" + whole[home:],
            whole[:home] + ";arg \\N{NO SUCH}" + whole[home:],
        )),
    ):  # fmt: skip
        with pytest.raises(LaunchError, match="another version"):
            kept.unpacked(wrong)
    assert kept.unpacked(ended(whole)).home == HOME


def ended(whole: str) -> str:
    """Return a plan's text with the end that is right for what stands before."""
    return f"{whole};end {len(whole)}"


def test_a_plan_that_lost_something_within_is_refused():
    """An argument of a long command, say: what was left would be a sandbox with fewer walls."""
    text = packing.packed(planned(confined(write=("/work",))), ("/usr/lib/a",))
    lines = text.split(";")
    for at in range(1, len(lines) - 1):
        with pytest.raises(LaunchError, match="another version"):
            kept.unpacked(";".join(lines[:at] + lines[at + 1 :]))
    many = packing.fields_of(planned(confined()), ())
    many["args"] = [f"--ro-bind-{number:06}" for number in range(20_000)]
    parts = packing.parts(packing.written(many))
    assert len(parts) > 3
    assert "--" not in parts
    assert kept.read("".join(parts))["args"] == many["args"]
    for at in range(len(parts)):
        with pytest.raises(LaunchError, match="another version"):
            kept.unpacked("".join(parts[:at] + parts[at + 1 :]))


@pytest.mark.filterwarnings("ignore:.*invalid:DeprecationWarning")  # of an escape that is none
@given(st.text(st.sampled_from(';\\ {}[]"0x:eandplr3\n\0é\udc80'), max_size=60))
def test_any_other_text_is_refused_with_the_same_sentence(text):
    for one in (text, f"plan 3;{text}", ended(f"plan 3;{text}"), ended(f"plan 3;wire {text}")):
        with pytest.raises(LaunchError, match="another version"):
            kept.unpacked(one)


@pytest.mark.filterwarnings("ignore:.*invalid:DeprecationWarning")  # of an escape that is none
@given(st.text(st.characters(exclude_characters="\0"), max_size=20))
def test_whatever_a_plans_values_are_it_is_read_or_refused(text):
    whole = packing.packed(planned(confined(proxied())), ()).rpartition(";")[0]
    for name in ("arg", "copy", "home", "wire", "dots", "inside", "run", "port", "bpf", text):
        with contextlib.suppress(LaunchError):
            kept.unpacked(ended(f"{whole};{name} {text}"))


PATH = st.text(st.characters(exclude_characters="\0"))


@given(st.lists(PATH), PATH)
def test_any_text_in_a_plan_is_read_back(texts, home):
    """Paths hold what they like: bytes that are no UTF-8, the plan's own separators."""
    fields = packing.fields_of(planned(confined()), ())
    fields |= {
        "args": [*texts, texts[:1] or ["x"]], "copy": texts, "home": home, "wire": {"dir": texts},
    }  # fmt: skip
    text = packing.written(fields)
    assert text.isascii()
    assert text.isprintable()
    assert kept.read(text) == {**fields, "run": None}


def test_values_are_frozen_compared_by_field_and_made_of_just_their_fields():
    class Two(Value):
        one: int
        two: str = "x"

    made = Two(1)
    assert made == Two(one=1, two="x") == Two(1, "x")
    assert made != Two(2)
    assert hash(made) == hash(Two(1))
    assert replaced(made, two="y") == Two(1, "y")
    assert repr(made).endswith("Two(one=1, two='x')")
    with pytest.raises(AttributeError, match="can't be changed"):
        made.one = 2
    for placed, named in (((), {}), ((1, "x", 3), {}), ((1,), {"one": 1}), ((1,), {"three": 3})):
        with pytest.raises(TypeError):
            Two(*placed, **named)


def test_a_plan_is_json_too():
    made = plain(planned(confined(proxied())))
    assert made["filter"] == seccomp.encode(seccomp.assemble("x86_64")).hex()
    assert made["mounts"][0]["at"] == "/etc/passwd"
    assert made["proxy"]["hosts"] == ["example.com"]


def test_a_folder_that_the_interpreter_imports_from_is_one_of_its_places(tmp_path, monkeypatch):
    imports, missing = tmp_path / "imports", tmp_path / "made" / "later"
    imports.mkdir()
    monkeypatch.syspath_prepend(str(missing))
    monkeypatch.syspath_prepend(str(imports))
    assert {str(imports), str(tmp_path)} <= set(searched_by())
    assert set(searched_by()) <= set(find_own().places)


def test_a_folder_that_it_would_import_from_once_it_is_there_is_one_too(tmp_path, monkeypatch):
    compiled, own = tmp_path / "compiled", tmp_path / "local" / "lib" / "site-packages"
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(sys, "pycache_prefix", str(compiled))
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "USER_SITE", str(own))
    assert {str(tmp_path), str(tmp_path / "local")} <= set(searched_by())
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("HOME", str(tmp_path / "local"))
    assert not {str(tmp_path), str(tmp_path / "local")} & set(searched_by())
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    assert str(tmp_path / "local") not in searched_by()


def test_a_folder_with_a_link_to_what_is_run_or_imported_is_one_too(tmp_path, monkeypatch):
    """pipx and uv keep a link to `lnk` in ~/.local/bin: one put in its place is typed next."""
    names = ("bin", "real", "modules", "deep")
    scripts, real, modules, deep = (tmp_path / name for name in names)
    for folder in (scripts, real, modules, deep):
        folder.mkdir()
    (real / "lnk").touch()
    (scripts / "lnk").symlink_to(deep / "env" / "lnk")
    (deep / "env").symlink_to(real)
    (modules / "imports").symlink_to(real)
    (deep / "left").mkdir()
    monkeypatch.setattr(sys, "argv", [str(scripts / "lnk")])
    monkeypatch.syspath_prepend(str(modules / "imports"))
    assert {str(scripts), str(deep), str(modules)} <= set(find_own().places)
    monkeypatch.setattr(sys, "argv", [f"{deep}/left/../../real/lnk"])
    assert {str(deep), str(tmp_path)} <= set(find_own().places)
    assert str(real / "lnk") in find_own().guarded


# -- what is served beside the proxy --------------------------------------------------------


def test_endpoints_have_their_addresses_and_dns_before_the_program_starts():
    tcp = ("db.example.com:5432", "db.example.com:6432", "*.example.net:27017", "203.0.113.9:1")
    made = p.plan(confined(proxied(tcp=tcp)), machine())
    assert made.proxy["inside"] == [
        ["udp", "127.0.0.1", 53, "dns"],
        ["tcp", "127.0.0.1", 53, "dns"],
        ["tcp", "127.53.0.1", 5432, "endpoint"],
        ["tcp", "127.53.0.1", 6432, "endpoint"],
    ]
    (resolver,) = [mount for mount in made.mounts if mount.at == "/etc/resolv.conf"]
    assert (resolver.how, resolver.target) == (v.OURS, f"{PACKAGE}/sandbox/linux/resolv.conf")


@pytest.mark.parametrize(
    "keys",
    [
        {"tcp": ("203.0.113.9:1",)},
        {"tcp": ("db.example.com:5432",), "no_internet": True, "hosts": ()},
    ],
)
def test_where_there_is_no_name_to_look_up_there_is_no_dns(keys):
    made = p.plan(confined(proxied(**keys)), machine())
    assert made.proxy["inside"] == []
    assert "/etc/resolv.conf" not in [mount.at for mount in made.mounts]


def test_too_many_endpoints_are_refused_with_how_many_there_may_be():
    tcp = tuple(f"n{number}.example.com:1" for number in range(1025))
    assert len(p.plan(confined(proxied(tcp=tcp[:1024])), machine()).proxy["inside"]) == 1026
    with pytest.raises(LaunchError, match="tcp names more than 1024 endpoints"):
        p.plan(confined(proxied(tcp=tcp)), machine())


def test_a_proxy_does_not_listen_where_its_dns_does():
    asked = proxied(listen=53, tcp=("db.example.com:5432",))
    with pytest.raises(LaunchError, match="listen names 53, which is its DNS's inside"):
        p.plan(confined(asked), machine())
    assert p.plan(confined(proxied(listen=53)), machine()).port == 53


def test_a_port_is_made_once_in_both_families():
    made = p.plan(
        confined(Proxied(proxy=proxied(serve=(3000, 3000)).proxy, ports=(1, 1))), machine()
    )
    assert made.proxy["inside"] == [["tcp", "127.0.0.1", 1, "port"], ["tcp", "::1", 1, "port"]]
    assert made.proxy["serve"] == [3000]


def test_dns_takes_its_port_from_the_program():
    proxy = proxied(tcp=("db.example.com:5432",), serve=(53,)).proxy
    with pytest.raises(LaunchError, match="serve names 53, which is its DNS's inside"):
        p.plan(confined(Proxied(proxy=proxy, ports=())), machine())


def test_a_loopback_has_a_wire_that_joins_its_ports_and_nothing_that_points_at_one():
    made = p.plan(confined(Loopback(ports=(5432,), dir="/home/ann/wires")), machine())
    assert "--unshare-net" in made.namespaces
    assert made.port == 0
    assert made.proxy["inside"] == [
        ["tcp", "127.0.0.1", 5432, "port"], ["tcp", "::1", 5432, "port"],
    ]  # fmt: skip
    assert (made.proxy["hosts"], made.proxy["no_internet"]) == ([], True)
    assert not [name for name in made.environment if "PROXY" in name.upper()]
    assert "local ports alone" in bubblewrap.explain(made)


def test_a_name_that_others_chose_is_explained_on_its_line_alone():
    made = planned(confined(write=("/work/a",)))
    name = "/work/a/s\x1b[31m\n  closed     /home\udce9"
    text = bubblewrap.explain(made, [(name, True, "a submodule's")])
    assert "  read only  /work/a/s\\x1b[31m\\n  closed     /home\\udce9  (a submodule's)" in text
    assert text.isascii()


def test_a_kernel_without_user_namespaces_has_no_limit_of_them(monkeypatch):
    """Whatever makes the sandbox then says why it can't; gathering facts is no place to fail."""

    def gone(path):
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(facts.os, "statvfs", gone)
    assert facts._is_limit_writable() is False
