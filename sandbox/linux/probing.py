"""The probes of a sandbox, made from its own plan: a function for each kind of wall.

Pure: a plan, what is listed, and what stands outside (`probes.Outside`) are data, and so is
what comes of them.
"""

from __future__ import annotations

from sandbox.linux import plan as p
from sandbox.linux import view as v
from sandbox.linux.exec_list import MEMORY_GAP, REFER_GAP
from sandbox.linux.probes import CLOSED, GAP, GRANTED, Guarded, Outside, Probe, View
from sandbox.linux.probing_calls import of_filter
from sandbox.linux.probing_net import (
    of_local,
    of_network,
    of_proxy,
    of_reached,
    of_shared,
    of_sockets,
)

PROGRAMS_TRIED = 32
SPACES = {"user": "--unshare-user", "pid": "--unshare-pid", "ipc": "--unshare-ipc",
          "uts": "--unshare-uts", "net": "--unshare-net", "cgroup": "--unshare-cgroup-try",
          "mnt": ""}  # fmt: skip


def probes(
    plan: p.Plan,
    outside: Outside,
    *,
    hosts: tuple[str, ...] | None = (),
    ports: tuple[int, ...] = (),
    dot_files: tuple[Guarded, ...] = (),
    open_dot_files: tuple[str, ...] = (),
) -> list[Probe]:
    """Return what to try in a sandbox of this plan.

    hosts: those that its proxy lists, None for any.  ports: those it serves.  dot_files:
    what a start closes.  open_dot_files: dot files that are there and written.
    """
    view = View(plan)
    made = [
        *_mounts(plan, view),
        *_dot_files(dot_files, open_dot_files),
        *_elsewhere(plan.home, outside, view),
        *_processes(outside),
        *_privileges(),
        *_namespaces(plan, outside),
        *of_filter(outside.arch),
        *of_shared(outside),
        *of_sockets(plan, outside, view),
        *of_network(plan, outside),
        *(of_proxy(plan, outside, hosts) if plan.port else ()),
        *(of_local(plan.proxy, ports) if plan.proxy is not None else ()),
        *of_reached(plan),
        *_programs(plan, view, outside),
        *(one for one in _crossing(outside) if one.wall[5:] in ("", *plan.namespaces)),
    ]
    return list({probe.what: probe for probe in made}.values())


# -- files -----------------------------------------------------------------------------------


def _mounts(plan: p.Plan, view: View) -> list[Probe]:  # noqa: C901 - a flat match
    found: list[Probe] = []
    copies: list[str] = []
    for mount in plan.mounts:
        at, wall = mount.at, f"mount {mount.at}"
        match mount.how:
            case v.COPY | v.LINKED:
                copies.append(at)
            case v.SYSTEM if at.startswith("/proc/"):
                found.append(Probe(f"write {at}", CLOSED, (("changes_any", at),), wall))
            case v.SYSTEM | v.READ | v.OURS:
                found.append(Probe(f"read {at}", GRANTED, (("reads", at),), wall))
                found.append(Probe(f"write {at}", CLOSED, (("changes", at),), wall))
                if mount.how == v.READ and view.how(at.rpartition("/")[0]) in (v.WRITE, v.PIN):
                    found.append(Probe(f"move {at} away", CLOSED, (("moves", at),), wall))
            case v.WRITE | v.OWN:
                found.append(Probe(f"write {at}", GRANTED, (("makes", at), ("reads", at)), wall))
            case v.HIDDEN:
                found += _hidden(at, view)
            case v.MASK:
                found.append(Probe(f"look into {at}", CLOSED, (("reads", at),), wall))
                found.append(Probe(f"write {at}", CLOSED, (("makes", at),), wall))
                found.append(Probe(f"move {at} away", CLOSED, (("moves", at),), wall))
            case v.PIN:
                found.append(Probe(f"move {at} away", CLOSED, (("moves", at),), wall))
                found.append(Probe(f"write {at}", GRANTED, (("makes", at),), wall))
            case v.NOTHING if at in v.FIRST_MEMORY:
                found.append(Probe(f"write {at}", CLOSED, (("writes", at),), wall))
            case v.NOTHING:
                found.append(Probe(f"read {at}", CLOSED, (("reads", at),), wall))
            case _:
                pass  # /proc and /dev have probes of their own
    read = [("sees", at) for at in copies]
    if read:
        found.append(Probe("read the settings copied into /etc", GRANTED, tuple(read), "copies"))
    found.append(Probe("make a file in /", CLOSED, (("makes", "/"),), "remount /"))
    found.append(Probe("make a file in /etc", CLOSED, (("makes", "/etc"),), "remount /"))
    found.append(Probe("read settings of the kernel", GRANTED,
                       (("reads", "/proc/sys/kernel/ostype"), ("reads", "/proc/meminfo")),
                       "mount /proc"))  # fmt: skip
    return found


def _hidden(at: str, view: View) -> list[Probe]:
    names = {path[len(at) + 1 :].split("/")[0] for path in view.table if path.startswith(f"{at}/")}
    wall = f"mount {at}"
    return [
        Probe(f"look into {at}", CLOSED, (("lists_more_than", at, *sorted(names)),), wall),
        Probe(f"write {at}", CLOSED, (("makes", at),), wall),
    ]


def _dot_files(closed: tuple[Guarded, ...], opened: tuple[str, ...]) -> list[Probe]:
    found = []
    for one in closed:
        if not one.pinned:
            found.append(Probe(f"write {one.at}", CLOSED, (("changes", one.at),), "dots"))
        found.append(Probe(f"move {one.at} away", CLOSED, (("takes_place", one.at),), "dots"))
    found += [Probe(f"write {at}", GRANTED, (("changes", at),), f"mount {at}") for at in opened]
    return found


def _elsewhere(home: str, outside: Outside, view: View) -> list[Probe]:
    """Try what is there outside, and that no key names."""
    found = [
        Probe(f"see {path}", CLOSED, (("sees", path),), wall)
        for wall, paths in (("view", outside.files), (f"mount {home}", outside.home_files))
        for path in paths
        if not view.stands(path)
    ]
    found.append(Probe("see the machine's /tmp", CLOSED, (("sees", outside.temp_file),),
                       "mount /tmp"))  # fmt: skip
    if outside.shared_file:
        found.append(Probe("see the machine's /dev/shm", CLOSED, (("sees", outside.shared_file),),
                           "mount /dev"))  # fmt: skip
    devices = tuple(("sees", path) for path in outside.devices)
    if devices:
        found.append(Probe("see the machine's devices", CLOSED, devices, "mount /dev"))
    usual = ("/dev/null", "/dev/zero", "/dev/urandom")
    found.append(Probe("read the usual devices", GRANTED, tuple(("reads", d) for d in usual),
                       "mount /dev"))  # fmt: skip
    found.append(Probe("write its own /dev/shm", GRANTED, (("makes", "/dev/shm"),), "mount /dev"))  # noqa: S108
    found.append(Probe("open a terminal of its own", GRANTED, (("opens_terminal",),),
                       "mount /dev"))  # fmt: skip
    return found


# -- processes, privileges, namespaces -------------------------------------------------------


def _processes(outside: Outside) -> list[Probe]:
    first = (("finds_in_first", "environ", outside.marker),
             ("finds_in_first", "cmdline", outside.marker))  # fmt: skip
    return [
        Probe("find a process outside", CLOSED, (("finds_process", outside.pid, outside.command),),
              "flag --unshare-pid"),
        Probe("see processes that aren't its own", CLOSED, (("counts_processes",),),
              "flag --unshare-pid"),
        Probe("read the outside environment in /proc/1", CLOSED, first),
        Probe("open a descriptor of /proc/1 anew", CLOSED, (("reopens_of_first",),)),
        Probe("write anything of /proc", CLOSED, (("writes_proc",),), "mount /proc/sys"),
        Probe("start threads and processes", GRANTED, (("makes_threads",),), "filter clone"),
    ]  # fmt: skip


def _privileges() -> list[Probe]:
    caps = "flag --cap-drop ALL"
    return [
        Probe("hold a capability", CLOSED, (("has_capabilities",),), caps),
        Probe("gain privileges by a program's owner", CLOSED, (("lacks", "NoNewPrivs", "1"),)),
        Probe("run without a filter", CLOSED, (("lacks", "Seccomp", "2"),), "filter all"),
        Probe("give a file to another user", CLOSED, (("changes_owner", "/tmp"),)),  # noqa: S108
        Probe("make a device's file", CLOSED, (("makes_device", "/tmp", 1, 5),)),  # noqa: S108
    ]  # fmt: skip


def _namespaces(plan: p.Plan, outside: Outside) -> list[Probe]:
    found = []
    for space, flag in SPACES.items():
        if flag and flag not in plan.namespaces:
            continue
        found.append(Probe(f"share the machine's {space} namespace", CLOSED,
                           (("shares", space, outside.spaces.get(space, "")),),
                           f"flag {flag}" if flag else ""))  # fmt: skip
    if "--disable-userns" in plan.namespaces:
        found.append(Probe("reach the namespace that owns its others", CLOSED,
                           (("reaches_owner",),), "flag --disable-userns"))  # fmt: skip
    if "--new-session" in plan.namespaces:
        found.append(Probe("be in the session it was started in", CLOSED,
                           (("session_is_outside",),), "flag --new-session"))  # fmt: skip
    return found


# -- programs, and what crosses the wall -----------------------------------------------------


def _programs(plan: p.Plan, view: View, outside: Outside) -> list[Probe]:
    lists = plan.inside.programs if plan.inside is not None else None
    program = outside.programs[0]
    folders = ["/tmp", *view.writable()]  # noqa: S108 - the sandbox's own
    copies = tuple(("runs_copy", folder, program) for folder in folders)
    memory = tuple(("runs_memory", program, how) for how in ("descriptor", "path"))
    descriptor = (("runs_descriptor", program),)
    if lists is None:
        return [
            Probe("run a program of the machine's", GRANTED, (("runs", program),), "mount /usr"),
            Probe("run a program that it made itself", GRANTED, copies, "mount /tmp"),
            Probe("run a memory file, or a descriptor", GRANTED, (*memory, *descriptor),
                  "filter programs"),
        ]  # fmt: skip
    wall = "commands"
    found = [
        Probe(f"run {path}, which is listed", GRANTED, (("runs", path),), wall)
        for path in lists.listed[:PROGRAMS_TRIED]
    ]
    found += [
        Probe(f"run {path}, which isn't listed", CLOSED, (("runs", path),), wall)
        for path in outside.programs
        if path not in lists.files
    ]
    return [
        *found,
        Probe("run a program that it made itself", CLOSED, copies, wall),
        Probe("run a memory file by its descriptor", CLOSED, memory[:1], wall),
        Probe("run a memory file by its path", GAP if MEMORY_GAP in lists.gaps else CLOSED,
              memory[1:], wall),
        Probe("run a program by a descriptor", CLOSED, descriptor, wall),
        Probe("have the loader run any file that it can read (ld.so FILE)", GAP,
              (("runs", outside.loader), ("maps_code", "/tmp"))),  # noqa: S108 - its own
        Probe("have the loader put any file that it can read into a program (LD_PRELOAD)", GAP,
              (("maps_code", "/tmp"),)),  # noqa: S108
        Probe("rename a file into another folder", GAP if REFER_GAP in lists.gaps else GRANTED,
              (("renames_across", "/tmp"),)),  # noqa: S108
    ]  # fmt: skip


def _crossing(outside: Outside) -> list[Probe]:
    return [
        Probe("be given a descriptor beside the standard streams", CLOSED, (("descriptors",),)),
        Probe("be given variables that steer the loader", CLOSED,
              (("finds_variable", *outside.closed_variables),)),
        Probe("use the terminal that it was started on", CLOSED, (("writes", "/dev/tty"),),
              "flag --new-session"),
    ]  # fmt: skip
