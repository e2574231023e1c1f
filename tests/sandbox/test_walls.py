"""Each wall, tried from inside by a program that wants through it, as root and as a user."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from sandbox.linux import packing, seccomp
from sandbox.linux.landlock import SCOPE_ABI, abi
from tests.sandbox import lnk

INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside.py")
ARCH = platform.machine()
COLUMN = {"x86_64": 0, "aarch64": 1}[ARCH]
NOWHERE = ("ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL")


def try_out(
    installed: lnk.Installed, who: lnk.Account, told: dict[str, object], **keys: object
) -> dict[str, dict[str, str]]:
    """Run the tries in a sandbox of these keys; return what became of each."""
    more = {name: keys.pop(name) for name in ("stdin", "pass_fds", "environ") if name in keys}
    with open(INSIDE) as file:
        argv = [installed.python, "-I", "-S", "-c", file.read(), json.dumps(told)]
    done = lnk.run(who, installed.wrapped(who, argv, **keys), **more)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


class Canary:
    """Services of this machine that nothing in a sandbox may reach: each touch is noted."""

    def __init__(self, folder: str) -> None:
        self.touched: list[str] = []
        self.port = 0
        self._sockets: list[socket.socket] = []
        while self.port == 0:
            self._take_a_port()
        self.abstract = f"@lnk-canary-{self.port}"
        self._add("abstract", socket.AF_UNIX, self.abstract.replace("@", "\0"))
        self.path = os.path.join(folder, "canary.sock")
        self._add("path", socket.AF_UNIX, self.path)
        os.chmod(self.path, 0o777)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _take_a_port(self) -> None:
        """Listen at one number in all three ways; leave it where somebody has it in another."""
        listener = self._add("0.0.0.0", socket.AF_INET, ("0.0.0.0", 0))
        port = listener.getsockname()[1]
        try:
            self._add("::", socket.AF_INET6, ("::", port))
            self._add("udp", socket.AF_INET, ("0.0.0.0", port), socket.SOCK_DGRAM)
        except OSError:
            while self._sockets:
                self._sockets.pop().close()
        else:
            self.port = port

    def _add(
        self, name: str, family: int, address: object, kind: int = socket.SOCK_STREAM
    ) -> socket.socket:
        made = socket.socket(family, kind)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            made.bind(address)
        except OSError:
            made.close()
            raise
        if kind == socket.SOCK_STREAM:
            made.listen()
        made.setblocking(False)
        self._sockets.append(made)
        return made

    def _watch(self) -> None:
        import select

        while not self._stop.is_set():
            for ready in select.select(self._sockets, [], [], 0.1)[0]:
                self.touched.append(repr(ready.getsockname()))
                with contextlib.suppress(OSError):
                    if ready.type == socket.SOCK_DGRAM:
                        ready.recv(100)
                    else:
                        ready.accept()[0].close()

    def spellings(self) -> list[tuple[str, list[object]]]:
        """Return every way to write this machine's addresses, with the canary's port."""
        v4 = ["127.0.0.1", "127.0.0.2", "127.1", "localhost", "0.0.0.0", "0", "2130706433",
              "0x7f000001", "017700000001", *own_addresses(4)]  # fmt: skip
        v6 = ["::1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "localhost", *own_addresses(6)]
        return [
            *[("AF_INET", [host, self.port]) for host in v4],
            *[("AF_INET6", [host, self.port]) for host in v6],
        ]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for one in self._sockets:
            one.close()


def own_addresses(version: int) -> list[str]:
    """Return this machine's addresses beyond its loopback."""
    done = subprocess.run(
        ["ip", "-json", "address"], capture_output=True, text=True, check=True, timeout=lnk.LONG_S
    )
    return [
        address["local"]
        for link in json.loads(done.stdout)
        for address in link.get("addr_info", [])
        if (":" in address["local"]) == (version == 6) and link["ifname"] != "lo"
    ]


@pytest.fixture
def canary(open_folder: str) -> Iterator[Canary]:
    made = Canary(open_folder)
    yield made
    made.close()
    os.unlink(made.path)


def test_nothing_of_the_network_is_reached_directly(installed, who, canary):
    told = {
        "connects": [
            *canary.spellings(),
            ("AF_INET", ["1.1.1.1", 80]),
            ("AF_INET", ["169.254.169.254", 80]),
            ("AF_INET", ["10.0.0.1", 443]),
            ("AF_INET6", ["2606:4700:4700::1111", 443]),
            ("AF_INET6", ["fd00:ec2::254", 80]),
        ],
        "datagrams": [
            *canary.spellings(),
            ("AF_INET", ["1.1.1.1", 53]),
            ("AF_INET", ["127.0.0.53", 53]),
        ],
        "names": ["example.com", "localhost.localdomain.example", "_lnk.invalid"],
        "unix": [canary.abstract, canary.path, "/run/dbus/system_bus_socket",
                 "/var/run/docker.sock", "/run/systemd/private", "/tmp/.X11-unix/X0"],
    }  # fmt: skip
    found = try_out(installed, who, told)
    for address, outcome in found["connects"].items():
        assert outcome != "open", address
    # A datagram to its own loopback goes out there, where nobody is: the canary tells.
    assert found["datagrams"]["['1.1.1.1', 53]"] == "ENETUNREACH"
    for name, outcome in found["names"].items():
        assert outcome != "open", name
    assert set(found["unix"].values()) <= {"ENOENT", "ECONNREFUSED", "EACCES"}
    assert canary.touched == []


def test_the_host_network_is_reached_where_it_is_asked_for(installed, who, canary):
    told = {"connects": [("AF_INET", ["127.0.0.1", canary.port])]}
    found = try_out(installed, who, told, net={"host": {"ports": [], "localhost": True}})
    assert list(found["connects"].values()) == ["open"]


@pytest.mark.skipif(abi() < SCOPE_ABI, reason="kernel: Landlock scopes came with ABI 6")
def test_abstract_sockets_of_the_machine_are_closed_where_its_network_is_shared(
    installed, who, canary
):
    net = {"host": {"ports": [], "localhost": True}}
    found = try_out(installed, who, {"unix": [canary.abstract]}, net=net)
    assert found["unix"] == {canary.abstract: "EPERM"}
    assert canary.touched == []
    command = installed.wrapped(who, [installed.python, "-c", CONNECT, canary.abstract], net=net)
    plan = lnk.plan_of(command)
    assert lnk.run(who, command).returncode == 1
    command[4] = packing.written({**plan, "scoped": False})
    assert lnk.run(who, command).returncode == 0, "without the wall it is open"


CONNECT = """\
import socket, sys
socket.socket(socket.AF_UNIX).connect(sys.argv[1].replace("@", chr(0)))
"""


def test_files_outside_are_not_there(installed, who, hidden_folder, canary, people):
    homes = [account.home for account in people.values()]
    told = {
        "reads": [f"{hidden_folder}/file", "/etc/shadow", "/etc/gshadow", "/etc/sudoers",
                  "/etc/machine-id", "/var/log/dpkg.log", "/root/.bashrc", "/proc/kcore",
                  "/proc/keys", "/proc/kmsg", f"{who.home}/.lnk/sandbox"],
        "lists": [hidden_folder, "/srv", "/mnt", "/media", "/run", "/sys", "/boot",
                  "/var/lib/dpkg", "/etc/ssl/private", "/etc/sudoers.d", f"{who.home}/.lnk",
                  *(home for home in homes if home != who.home)],
    }  # fmt: skip
    found = try_out(installed, who, told)
    for path, outcome in found["reads"].items():
        assert outcome in ("ENOENT", "EACCES", "ENOTDIR", "EPERM"), path
    for path, outcome in found["lists"].items():
        assert outcome == "ENOENT", path


def test_of_the_root_only_what_is_listed_is_there(installed, who):
    known = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "libexec", "opt", "proc",
             "sbin", "tmp", "usr", "home", "root", "var", "srv"}  # fmt: skip
    found = try_out(installed, who, {"lists": ["/var", "/root", "/home"]})
    assert set(found["root"]) <= known
    # Of the folders above its own home there is that one name.
    for folder in ("/var", "/root", "/home"):
        assert found["lists"][folder] == ("open" if who.home.startswith(folder) else "ENOENT")


def test_the_system_cannot_be_written(installed, who):
    told = {
        "makes": ["/x", "/usr/x", "/usr/bin/x", "/etc/x", "/opt/x", "/etc/ssl/certs/x", "/proc/x",
                  "/var/x", "/proc/sys/x"],
        "writes": ["/etc/passwd", "/etc/ld.so.cache", "/proc/sys/kernel/core_pattern",
                   "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
                   "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ping_group_range",
                   "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces"],
    }  # fmt: skip
    found = try_out(installed, who, told)
    for what in ("makes", "writes"):
        for path, outcome in found[what].items():
            assert outcome in ("EROFS", "EACCES", "ENOENT", "EPERM"), path
    assert found["proc"] == []


def test_a_written_folder_is_written_and_its_neighbour_is_not(installed, who, folder):
    neighbour = f"{folder}-neighbour"
    told = {"makes": [f"{folder}/made", neighbour, f"{neighbour}/x"], "reads": [f"{folder}/made"]}
    found = try_out(installed, who, told, write=[folder])
    assert found["makes"][f"{folder}/made"] == "open"
    assert os.stat(f"{folder}/made").st_uid == who.uid
    assert not os.path.exists(neighbour)


def test_a_read_folder_is_read_and_not_written(installed, who, folder):
    with open(f"{folder}/there", "w") as file:
        file.write("x")
    os.chown(f"{folder}/there", who.uid, who.gid)
    told = {
        "reads": [f"{folder}/there"],
        "makes": [f"{folder}/made"],
        "writes": [f"{folder}/there"],
    }
    found = try_out(installed, who, told, read=[folder])
    assert found["reads"] == {f"{folder}/there": "open"}
    assert found["makes"] == {f"{folder}/made": "EROFS"}
    assert found["writes"] == {f"{folder}/there": "EROFS"}


def test_links_settings_stay_closed_in_a_home_that_is_written(installed, who):
    state = f"{who.home}/.lnk"
    installed.run(who, "wrap", input="{}")
    os.makedirs(f"{state}/sandbox", 0o700, exist_ok=True)
    for path in (state, f"{state}/sandbox"):
        os.chown(path, who.uid, who.gid)
    told = {
        "lists": [state, f"{state}/sandbox"],
        "makes": [f"{state}/x", f"{state}/sandbox/x", f"{who.home}/beside"],
        "renames": [(state, f"{who.home}/.moved")],
        "removes": [state],
    }
    for keys in ({"write": [who.home]}, {"read": [who.home]}, {"read_home": True}):
        before = os.listdir(f"{state}/sandbox")
        found = try_out(installed, who, told, **keys)
        assert set(found["lists"].values()) == {"EACCES"}
        assert found["makes"][f"{state}/x"] in ("EACCES", "EROFS")
        assert found["makes"][f"{state}/sandbox/x"] in ("EACCES", "EROFS")
        assert set(found["renames"].values()) <= {"EBUSY", "EROFS", "EXDEV"}
        assert set(found["removes"].values()) <= {"EBUSY", "EROFS"}
        assert os.listdir(f"{state}/sandbox") == before
    os.unlink(f"{who.home}/beside")


def test_the_folders_above_a_closed_one_keep_their_names(installed, who, folder):
    hidden = f"{folder}/a/b/closed"
    os.makedirs(f"{hidden}/mine")
    os.makedirs(f"{folder}/a/other")
    for above, names, _ in os.walk(folder):
        for name in names:
            os.chown(os.path.join(above, name), who.uid, who.gid)
    told = {
        "renames": [(f"{folder}/a", f"{folder}/z"), (f"{folder}/a/b", f"{folder}/a/z"),
                    (hidden, f"{folder}/a/b/z"), (f"{folder}/a/other", f"{folder}/a/renamed")],
        "lists": [hidden],
        "makes": [f"{hidden}/x", f"{folder}/a/b/beside", f"{hidden}/mine/x"],
    }  # fmt: skip
    found = try_out(installed, who, told, write=[folder, f"{hidden}/mine"], hide=[hidden])
    assert list(found["renames"].values()) == ["EBUSY", "EBUSY", "EBUSY", "open"]
    assert found["makes"] == {
        f"{hidden}/x": "EROFS", f"{folder}/a/b/beside": "open", f"{hidden}/mine/x": "open",
    }  # fmt: skip


def test_only_the_standard_streams_cross(installed, who):
    ends = os.pipe()
    for end in ends:
        os.set_inheritable(end, True)
    try:
        found = try_out(installed, who, {}, pass_fds=ends)
    finally:
        for end in ends:
            os.close(end)
    assert sorted(found["fds"]) == ["0", "1", "2"]
    assert found["fds_of_1"] == ["anon_inode:[eventfd]"], "nor does its first process hold more"


def test_the_outside_environment_is_nowhere_inside(installed, who):
    secret = "AKIA-not-for-the-first-process"
    environ = {"LNK_TESTS_TOKEN": secret, "LD_LIBRARY_PATH": "/tmp", "GCONV_PATH": "/tmp"}
    found = try_out(installed, who, {}, environ=environ)
    # It is the program's own; what stands beside the program has nothing.
    assert found["environ"]["LNK_TESTS_TOKEN"] == secret
    assert found["environ_of_1"] == ""
    assert secret not in found["cmdline_of_1"]
    assert not [name for name in found["environ"] if name.startswith("LD_") or name == "GCONV_PATH"]


def test_other_processes_are_not_there(installed, who):
    beyond = [4_000_000 + n for n in range(3)]
    found = try_out(installed, who, {"pids": [os.getpid(), os.getppid(), *beyond]})
    assert found["pids"][0] == 1
    assert len(found["pids"]) == 2
    for pid, outcome in found["signals"].items():
        assert outcome == "ESRCH" or int(pid) in found["pids"]


def test_it_has_no_capability_and_gains_none(installed, who):
    found = try_out(installed, who, {})
    assert set(found["caps"].values()) == {"0" * 16}
    assert found["status"]["NoNewPrivs"] == "1"
    assert found["status"]["Seccomp"] == "2"
    assert found["ids"] == [who.uid, who.uid, who.gid]


def test_every_call_of_the_filters_table_is_refused_for_real(installed, who):
    refused = seccomp.refused(ARCH)
    space = 0x10000000
    persona = 0x0040000
    told = [
        *[(number, []) for number in refused],
        (seccomp.CLONE3[COLUMN], []),
        (seccomp.CLONE[COLUMN], [space | 17]),
        (seccomp.PERSONALITY[COLUMN], [persona]),
        (seccomp.SOCKET[COLUMN], [40, 1, 0]),
        (470, []),
        (1000, []),
    ]
    found = try_out(installed, who, {"calls": told})["calls"]
    for number, name in refused.items():
        assert found[str(number)] == "EPERM", name
    assert found[str(seccomp.CLONE3[COLUMN])] == "ENOSYS"
    assert found[str(seccomp.CLONE[COLUMN])] == "EPERM"
    assert found[str(seccomp.PERSONALITY[COLUMN])] == "EPERM"
    assert found[str(seccomp.SOCKET[COLUMN])] == "EAFNOSUPPORT"
    assert found["470"] == found["1000"] == "ENOSYS"


@pytest.mark.skipif(ARCH != "x86_64", reason="kernel: the x32 calls are x86_64's")
def test_the_x32_calls_are_refused_for_real(installed, who):
    found = try_out(installed, who, {"calls": [(0x40000000 + 39, []), (0x40000000 + 322, [])]})
    assert set(found["calls"].values()) == {"ENOSYS"}


def test_netlink_of_the_route_family_alone_is_there(installed, who):
    socket_ = seccomp.SOCKET[COLUMN]
    for protocol, outcome in ((0, "done"), (9, "EPROTONOSUPPORT"), (12, "EPROTONOSUPPORT")):
        found = try_out(installed, who, {"calls": [(socket_, [16, 3, protocol])]})
        assert found["calls"] == {str(socket_): outcome}


def test_no_user_namespace_is_made_even_without_the_filter(installed, who):
    """The filter and --disable-userns are two walls: each holds alone."""
    command = installed.wrapped(who, [
        installed.python, "-I", "-S", "-c",
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
        "print(libc.unshare(0x10000000), ctypes.get_errno())",
    ])  # fmt: skip
    allow_all = seccomp.encode([(seccomp.RET, 0, 0, seccomp.ALLOW)])
    plan = lnk.plan_of(command)
    plan["bpf"] = allow_all.hex()
    command[4] = packing.written(plan)
    done = lnk.run(who, command)
    assert done.stdout.split() == ["-1", "28"], done.stderr  # ENOSPC


def test_nothing_is_typed_into_the_terminal(installed, who):
    control, terminal = os.openpty()
    try:
        os.fchown(terminal, who.uid, who.gid)
        found = try_out(installed, who, {}, stdin=terminal)
    finally:
        os.close(control)
        os.close(terminal)
    assert found["tiocsti"] == {"0x5412": "EPERM", "0x541c": "EPERM"}
    assert found["tty"] == "ENXIO", "it has a session of its own, without a terminal"


def test_shared_memory_of_the_machine_is_not_there(installed, who):
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x6C6E6B00 + os.getpid()
    segment = libc.shmget(key, 4096, 0o1666)
    assert segment != -1
    path = f"/dev/shm/lnk-tests-{os.getpid()}"
    with open(path, "w") as file:
        file.write("x")
    try:
        told = {"shm": [key], "reads": [path], "makes": ["/dev/shm/inside"]}
        found = try_out(installed, who, told)
    finally:
        libc.shmctl(segment, 0, None)
        os.unlink(path)
    assert found["shm"] == {str(key): "ENOENT"}
    assert found["reads"] == {path: "ENOENT"}
    assert found["makes"] == {"/dev/shm/inside": "open"}
    assert not os.path.exists("/dev/shm/inside")


def test_two_sandboxes_share_nothing(installed, who):
    """Each has its own /tmp, home and network: what one leaves there is gone with it."""
    told = {"makes": ["/tmp/left", f"{who.home}/left"]}
    for _ in range(2):
        assert set(try_out(installed, who, told)["makes"].values()) == {"open"}
    assert not os.path.exists("/tmp/left")
    assert not os.path.exists(f"{who.home}/left")


def test_what_programs_need_is_open(installed, who):
    found = try_out(
        installed, who,
        {"reads": ["/etc/passwd", "/etc/hosts", "/dev/urandom", "/dev/null", "/proc/meminfo"],
         "names": ["localhost"]},
    )  # fmt: skip
    assert set(found["reads"].values()) == {"open"}
    assert found["names"] == {"localhost": "open"}
    assert found["executable"] == "open"
