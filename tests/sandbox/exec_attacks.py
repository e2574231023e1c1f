"""Ways around a list of programs, tried inside a sandbox that lists Python and sh alone.

    python3 exec_attacks.py FOLDER NAME…

FOLDER is one that the sandbox writes.  Each try is a function; what became of it is printed as
JSON: "ran" where a program that isn't listed ran, else the errno's name, or what the try says.
Standard library alone.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
FOLDER = sys.argv[1]
MACHINE = os.uname().machine
AT = {"x86_64": 0, "aarch64": 1}[MACHINE]
MEMFD, EXECVEAT, SECCOMP, PRCTL = (319, 279)[AT], (322, 281)[AT], (317, 277)[AT], (157, 167)[AT]
EXECVE = (59, 221)[AT]
AUDIT_ARCH = (0xC000003E, 0xC00000B7)[AT]
UNLISTED, LISTED = "/usr/bin/id", "/bin/sh"
CLOEXEC, SEALING, HUGETLB, NOEXEC_SEAL, EXEC = 1, 2, 4, 8, 16
F_ADD_SEALS, F_GET_SEALS, F_SEAL_WRITE, F_SEAL_EXEC, F_SEAL_SEAL = 1033, 1034, 8, 0x20, 1
EMPTY_PATH = 0x1000


def name_of(error):
    return (
        errno.errorcode.get(error.errno, str(error)) if isinstance(error, OSError) else str(error)
    )


def syscall(number, *arguments):
    words = [a if isinstance(a, bytes | type(None)) or hasattr(a, "_type_") else ctypes.c_long(a)
             for a in arguments]  # fmt: skip
    answer = libc.syscall(ctypes.c_long(number), *words)
    if answer == -1:
        raise OSError(ctypes.get_errno(), f"syscall {number}")
    return answer


def after_exec(what):
    """Return "ran" where `what`, done in a child, became a program; else the errno's name."""
    told, tell = os.pipe()  # closed by an exec
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_RDWR), 1)
        try:
            what()
        except OSError as error:
            os.write(tell, name_of(error).encode())
        finally:
            os._exit(99)
    os.close(tell)
    with open(told, "rb") as file:
        said = file.read().decode()
    os.waitpid(pid, 0)
    return said or "ran"


def executed(path, *words):
    return after_exec(lambda: os.execv(path, [path, *words]))


def copied(name, of=UNLISTED, mode=0o755):
    path = os.path.join(FOLDER, name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(of, "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    os.chmod(path, mode)
    return path


def memory(flags, name=b"payload", of=UNLISTED):
    fd = syscall(MEMFD, name, flags)
    with open(of, "rb") as source:
        os.write(fd, source.read())
    return fd


# -- by the file ----------------------------------------------------------------------------


def unlisted():
    return executed(UNLISTED)


def copy_of_an_unlisted_program():
    return executed(copied("copy"))


def copy_of_a_listed_program():
    return executed(copied("copied-sh", LISTED), "-c", "true")


def symbolic_link():
    path = os.path.join(FOLDER, "soft")
    os.symlink(UNLISTED, path)
    return executed(path)


def symbolic_link_named_like_a_listed_one():
    path = os.path.join(FOLDER, "sh")
    os.symlink(UNLISTED, path)
    return executed(path)


def hard_link_to_an_unlisted_program():
    try:
        os.link(UNLISTED, os.path.join(FOLDER, "hard"))
    except OSError as error:
        return name_of(error)
    return executed(os.path.join(FOLDER, "hard"))


def rename_onto_a_listed_program():
    try:
        os.rename(copied("renamed"), os.path.realpath(LISTED))
    except OSError as error:
        return name_of(error)
    return executed(LISTED)


def write_into_a_listed_program():
    path = os.path.realpath(LISTED)
    try:
        os.truncate(path, os.stat(path).st_size)
    except OSError as error:
        return name_of(error)
    return "ran"


def rename_of_a_copy():
    path = copied("moved-from")
    os.makedirs(os.path.join(FOLDER, "other"), exist_ok=True)
    os.rename(path, os.path.join(FOLDER, "other", "moved"))
    return executed(os.path.join(FOLDER, "other", "moved"))


def copy_in_shared_memory():
    path = f"/dev/shm/copy-{os.getpid()}"
    with open(UNLISTED, "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    os.chmod(path, 0o755)
    return executed(path)


def copy_in_its_own_tmp():
    path = f"/tmp/copy-{os.getpid()}"
    with open(UNLISTED, "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    os.chmod(path, 0o755)
    return executed(path)


def by_the_root_of_a_process():
    return executed(f"/proc/self/root{UNLISTED}")


def by_its_working_folder():
    return after_exec(lambda: (os.chdir("/usr/bin"), os.execv("./id", ["id"])))


def by_a_folders_descriptor():
    folder = os.open("/usr/bin", os.O_RDONLY | os.O_DIRECTORY)
    return after_exec(lambda: syscall(EXECVEAT, folder, b"id", pointers(b"id"), pointers(), 0))


def script_of_a_listed_interpreter():
    path = os.path.join(FOLDER, "script")
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o755)
    return executed(path)


def script_of_an_unlisted_interpreter():
    path = os.path.join(FOLDER, "script-of-id")
    with open(path, "w") as file:
        file.write(f"#!{UNLISTED}\n")
    os.chmod(path, 0o755)
    return executed(path)


# -- by a descriptor ------------------------------------------------------------------------


def by_a_descriptor():
    fd = os.open(copied("by-fd"), os.O_RDONLY)
    return executed(f"/proc/self/fd/{fd}")


def by_dev_fd():
    fd = os.open(copied("by-dev-fd"), os.O_RDONLY)
    return executed(f"/dev/fd/{fd}")


def by_another_threads_descriptor():
    fd = os.open(copied("by-thread-fd"), os.O_RDONLY)
    return executed(f"/proc/thread-self/fd/{fd}")


def deleted_file():
    path = copied("deleted")
    fd = os.open(path, os.O_RDONLY)
    os.unlink(path)
    return executed(f"/proc/self/fd/{fd}")


def file_without_a_name():
    fd = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR, 0o755)
    with open(UNLISTED, "rb") as source:
        os.write(fd, source.read())
    readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    os.close(fd)  # a file that is open for writing is ETXTBSY
    return executed(f"/proc/self/fd/{readable}")


def pointers(*words):
    kind = ctypes.c_char_p * (len(words) + 1)
    return kind(*words, None)


def empty_path(fd, flags=EMPTY_PATH):
    return after_exec(lambda: syscall(EXECVEAT, fd, b"", pointers(b"id"), pointers(), flags))


def execveat_of_a_file():
    return empty_path(os.open(copied("by-empty-path"), os.O_RDONLY))


def execveat_of_an_unlisted_program():
    return empty_path(os.open(UNLISTED, os.O_PATH))


def execveat_with_more_bits():
    return empty_path(os.open(UNLISTED, os.O_PATH), EMPTY_PATH | 0x100 | 1 << 40)


def execveat_of_memory():
    return empty_path(memory(CLOEXEC))


# -- by memory ------------------------------------------------------------------------------


def run_memory(flags):
    try:
        fd = memory(flags)
    except OSError as error:
        return name_of(error)
    return executed(f"/proc/self/fd/{fd}")


def memory_file():
    return run_memory(0)


def memory_file_close_on_exec():
    return run_memory(CLOEXEC)


def memory_file_sealable():
    return run_memory(SEALING)


def memory_file_executable():
    return run_memory(EXEC)


def memory_file_executable_and_sealable():
    return run_memory(EXEC | SEALING)


def memory_file_that_asks_to_be_sealed():
    return run_memory(NOEXEC_SEAL)


def memory_file_of_huge_pages():
    return run_memory(HUGETLB)


def memory_file_of_huge_pages_sealed():
    return run_memory(HUGETLB | NOEXEC_SEAL)


def memory_file_with_more_bits():
    return run_memory(1 << 40)


def memory_file_made_executable():
    fd = memory(SEALING)
    try:
        os.fchmod(fd, 0o777)
    except OSError as error:
        return name_of(error)
    return executed(f"/proc/self/fd/{fd}")


def memory_file_made_executable_by_its_path():
    fd = memory(0)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o777)
    except OSError as error:
        return name_of(error)
    return executed(f"/proc/self/fd/{fd}")


def memory_file_of_a_process_that_cannot_be_read():
    libc.prctl(4, 0, 0, 0, 0)
    said = run_memory(EXEC)
    named = os.readlink(f"/proc/self/fd/{memory(0)}") if os.geteuid() else "/memfd: (deleted)"
    libc.prctl(4, 1, 0, 0, 0)
    return said if named == "/memfd: (deleted)" else named


def program_of_a_process_that_cannot_be_read():
    libc.prctl(4, 0, 0, 0, 0)
    said = executed(UNLISTED)
    libc.prctl(4, 1, 0, 0, 0)
    return said


def memory_of_a_mapping():
    room = mmap.mmap(-1, 1 << 20)  # shared: the kernel has a file for it
    with open(UNLISTED, "rb") as source:
        room.write(source.read())
    with open("/proc/self/maps") as maps:
        line = next(line for line in maps if "/dev/zero" in line)
    return executed(f"/proc/self/map_files/{line.split()[0]}")


def secret_memory():
    """memfd_secret(2), where the kernel has it: a file of memory that can't be read into."""
    try:
        fd = syscall(447, 0)
        os.ftruncate(fd, 1 << 16)
        os.fchmod(fd, 0o777)
    except OSError as error:
        return "EACCES" if error.errno in (errno.ENOSYS, errno.EINVAL) else name_of(error)
    return executed(f"/proc/self/fd/{fd}")


def interpreter_for_a_format():
    return opens("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY)


# -- by the filter --------------------------------------------------------------------------


def filter_of(*rules, flags=0):
    """Install a filter that answers each call number with an action, else allows."""
    code = [(0x20, 0, 0, 0)]
    for number, action in rules:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, action)]
    code.append((0x06, 0, 0, 0x7FFF0000))
    data = b"".join(struct.pack("<HBBI", *one) for one in code)
    room = ctypes.create_string_buffer(data)
    program = struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(room))
    libc.prctl(38, 1, 0, 0, 0)
    return syscall(SECCOMP, 1, flags, program)


def second_listener():
    try:
        filter_of(flags=8)
    except OSError as error:
        return name_of(error)
    return "ran"


def in_a_child(what):
    told, tell = os.pipe()
    if os.fork() == 0:
        try:
            os.write(tell, str(what()).encode())
        except OSError as error:
            os.write(tell, name_of(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with open(told) as file:
        said = file.read()
    os.wait()
    return said


def filter_that_allows():
    def tries():
        filter_of((MEMFD, 0x7FFF0000), (EXECVE, 0x7FFF0000))
        return f"{run_memory(0)} {executed(UNLISTED)}"

    return in_a_child(tries)


def filter_that_notifies_nobody():
    def tries():
        filter_of((MEMFD, 0x7FC00000))
        return run_memory(0)

    return in_a_child(tries)


def filter_that_traces():
    """A tracer that lets a call go on by changing it is judged anew."""

    def tries():
        filter_of((MEMFD, 0x7FF00000))
        return run_memory(0)

    return in_a_child(tries)


# -- by the watch ---------------------------------------------------------------------------


def trace_the_watch():
    seize = 0x4206  # attaches without stopping
    answer = libc.ptrace(ctypes.c_long(seize), ctypes.c_long(1), None, None)
    return "ran" if answer != -1 else errno.errorcode[ctypes.get_errno()]


def opens(path, flags=os.O_RDONLY):
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return name_of(error)
    return "ran"


def memory_of_the_watch():
    return opens("/proc/1/mem", os.O_RDWR)


def descriptors_of_the_watch():
    found = {opens(f"/proc/1/fd/{n}", os.O_WRONLY) for n in range(3, 64)}
    found |= {opens(f"/proc/1/task/1/fd/{n}", os.O_WRONLY) for n in range(3, 64)}
    return " ".join(sorted(found - {"ENOENT"}))


def memory_of_the_watch_by_a_call():
    room = ctypes.create_string_buffer(8)
    ours = struct.pack("<QQ", ctypes.addressof(room), 8)
    try:
        syscall((310, 270)[AT], 1, ours, 1, ours, 1, 0)
    except OSError as error:
        # A bad address is looked at only once the caller may look.
        return "ran" if error.errno == errno.EFAULT else name_of(error)
    return "ran"


def descriptor_of_the_watch_by_a_call():
    try:
        return str(syscall(438, os.pidfd_open(1), 3, 0))
    except OSError as error:
        return name_of(error)


def program_of_the_watch():
    return executed("/proc/1/exe", "-c", "")


def kill_the_watch():
    for task in os.listdir("/proc/1/task"):
        for number in range(1, 65):
            with contextlib.suppress(OSError):
                os.kill(int(task), number)
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGKILL)
    return executed(UNLISTED)


def starve_the_watch():
    """Take its descriptors away: it can tell less, and make nothing; nothing runs for that."""
    import resource

    resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
    return f"{run_memory(0)} {executed(UNLISTED)}"


def nice_the_watch():
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 1, 19)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(1, {0})
    return executed(UNLISTED)


def fill_its_pipe():
    """More names than a pipe holds, each as long as can be."""
    folder = FOLDER
    for step in range(15):
        folder = os.path.join(folder, f"{step:x}" * 200)
        os.mkdir(folder)
    said = set()
    for number in range(300):
        path = os.path.join(folder, f"program-{number}")
        with open(path, "w") as file:
            file.write("x")
        os.chmod(path, 0o755)
        said.add(executed(path))
    return " ".join(sorted(said))


# -- by speed -------------------------------------------------------------------------------


def forks(count, what):
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                what()
            finally:
                os._exit(99)
        pids.append(pid)
    return {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}


def flood():
    """Eight at once, as fast as they can."""

    def one():
        for _ in range(250):
            os.waitpid(os.posix_spawn(LISTED, ["sh", "-c", ":"], {}), 0)
        os._exit(0)

    return f"{forks(8, one)} {executed(UNLISTED)}"


def threads_at_once():
    found = []

    def one():
        for path in (UNLISTED, LISTED) * 20:
            try:
                pid = os.posix_spawn(path, [path, "-c", ":"], {})
                found.append((path, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
            except OSError as error:
                found.append((path, name_of(error)))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return " ".join(sorted({f"{path}:{said}" for path, said in found}))


def threads_of_one_process():
    """All threads of a process exec at once: one becomes the program, the others are gone."""

    def one():
        def becomes():
            os.execv(LISTED, ["sh", "-c", "exit 7"])

        for _ in range(8):
            threading.Thread(target=becomes, daemon=True).start()
        time.sleep(30)

    return str(forks(10, one))


def after_vfork():
    """subprocess starts by vfork, and must not wait for who waits for it."""
    said = set()
    for path in (LISTED, UNLISTED) * 20:
        try:
            said.add(str(subprocess.run([path, "-c", ":"], capture_output=True).returncode))
        except OSError as error:
            said.add(name_of(error))
    return " ".join(sorted(said))


MADE_LEAST = 10


def signals_meanwhile():
    """A timer of a millisecond interrupts each call; none is lost, and none hangs."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    made = 0
    began = time.monotonic()
    while (took := time.monotonic() - began) < 1.5 or (made <= MADE_LEAST and took < 30):
        # One that comes before the watch has the call is the caller's to handle, as ever.
        with contextlib.suppress(InterruptedError):
            os.close(syscall(MEMFD, b"x", 0))
            made += 1
    said = executed(UNLISTED)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return said if made > MADE_LEAST else f"only {made}"


class Flipper:
    """Changes something back and forth beside what is tried."""

    def __init__(self, *steps):
        self.steps, self.stop = steps, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop.is_set():
            for step in self.steps:
                step()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def while_it_differs(said):
    """Go on for a second, and on a busy machine until both outcomes were seen."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < 1 or (len(said) < 2 and took < 30):
        yield


def path_changed_in_memory():
    """The watch reads the path, the kernel reads it again: what it opens then counts."""
    room = ctypes.create_string_buffer(64)
    room.value = LISTED.encode()
    said = set()
    argv = pointers(b"x", b"-c", b"exit 7")
    # A child shares the path with its parent, which changes it.
    shared = mmap.mmap(-1, 4096)
    shared[: len(LISTED) + 1] = LISTED.encode() + b"\0"
    address = ctypes.addressof(ctypes.c_char.from_buffer(shared))

    def put(path):
        shared[: len(path) + 1] = path.encode() + b"\0"

    with Flipper(lambda: put(LISTED), lambda: put(UNLISTED)):
        for _ in while_it_differs(said):
            pid = os.fork()
            if pid == 0:
                os.dup2(os.open("/dev/null", os.O_RDWR), 1)
                libc.syscall(ctypes.c_long(EXECVE), ctypes.c_void_p(address), argv, pointers())
                os._exit(99)
            said.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    # 7: sh ran; 99: refused.  id would end with 1 (it has no such option).
    return " ".join(map(str, sorted(said)))


def link_changed_meanwhile():
    here, there = os.path.join(FOLDER, "flip"), os.path.join(FOLDER, "flop")
    os.symlink(LISTED, here)

    def lead(target):
        os.symlink(target, there)
        os.rename(there, here)

    said = set()
    with Flipper(lambda: lead(LISTED), lambda: lead(UNLISTED)):
        for _ in while_it_differs(said):
            pid = os.fork()
            if pid == 0:
                os.dup2(os.open("/dev/null", os.O_RDWR), 1)
                with contextlib.suppress(OSError):
                    os.execv(here, ["x", "-c", "exit 7"])
                os._exit(99)
            said.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return " ".join(map(str, sorted(said)))


# -- stated gaps ----------------------------------------------------------------------------


def by_the_loader():
    loader = next(
        path for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
        if os.path.exists(path)
    )  # fmt: skip
    return executed(loader, copied("by-loader"))


def by_preload():
    """The library that the test has built beside it says by a status that it ran."""
    environ = {"LD_PRELOAD": os.path.join(FOLDER, "preload.so")}
    pid = os.posix_spawn(LISTED, ["sh", "-c", "exit 1"], environ)
    return "ran" if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42 else "no"


def memory_file_from_outside():
    """One that a process outside has made, and passes in by a socket in a folder that is shared."""
    import socket

    with socket.socket(socket.AF_UNIX) as joined:
        joined.connect(os.path.join(FOLDER, "passed.sock"))
        _, fds, _, _ = socket.recv_fds(joined, 1, 1)
    return executed(f"/proc/self/fd/{fds[0]}")


# -- what stays as it was -------------------------------------------------------------------


def memory_files_work():
    """All that memfd_create(2) promises but running."""
    plain = syscall(MEMFD, b"a name", CLOEXEC)
    assert os.readlink(f"/proc/self/fd/{plain}") == "/memfd:a name (deleted)"
    assert not os.get_inheritable(plain)
    assert fcntl.fcntl(plain, F_GET_SEALS) & F_SEAL_SEAL
    with contextlib.suppress(PermissionError):
        fcntl.fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE)
        raise AssertionError("a file that was not to be sealed")
    os.ftruncate(plain, 4096)
    with mmap.mmap(plain, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as room:
        room[:3] = b"abc"
    assert os.pread(plain, 3, 0) == b"abc"
    open_ = syscall(MEMFD, b"", 0)
    assert os.get_inheritable(open_)
    assert stat.S_IMODE(os.fstat(open_).st_mode) == 0o666
    sealed = syscall(MEMFD, b"s" * 249, SEALING)
    fcntl.fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE)
    assert fcntl.fcntl(sealed, F_GET_SEALS) & F_SEAL_WRITE
    assert not fcntl.fcntl(sealed, F_GET_SEALS) & F_SEAL_SEAL
    said = []
    for name, flags in ((b"s" * 250, 0), (ctypes.c_void_p(8), 0), (b"x", 0x20), (b"x", HUGETLB)):
        try:
            syscall(MEMFD, name, flags)
        except OSError as error:
            said.append(name_of(error))
    assert syscall(MEMFD, b"", 0) == sealed + 1, "the lowest number that is free"
    return " ".join(said)


def files_move_between_folders():
    for name in ("from", "to"):
        os.mkdir(os.path.join(FOLDER, name))
    path = os.path.join(FOLDER, "from", "file")
    with open(path, "w") as file:
        file.write("x")
    os.link(path, os.path.join(FOLDER, "to", "linked"))
    os.rename(path, os.path.join(FOLDER, "to", "file"))
    return " ".join(sorted(os.listdir(os.path.join(FOLDER, "to"))))


def full_table_of_descriptors():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 64))
    try:
        return str(syscall(MEMFD, b"", 0))
    except OSError as error:
        return name_of(error)


if __name__ == "__main__":
    found = {}
    for name in sys.argv[2:]:
        told, tell = os.pipe()
        pid = os.fork()  # what one try changes of its process doesn't touch the next
        if pid == 0:
            try:
                said = globals()[name]()
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(tell, said.encode())
            os._exit(0)
        os.close(tell)
        with open(told) as file:
            found[name] = file.read()
        os.waitpid(pid, 0)
    print(json.dumps(found))
