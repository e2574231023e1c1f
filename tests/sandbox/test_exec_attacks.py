"""Each way around a list of programs, tried for real, as root and as a user."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading

from tests.sandbox import lnk

ATTACKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exec_attacks.py")
PYTHON = "/usr/bin/python3"
ONLY = [PYTHON, "/bin/sh"]

REFUSED = {
    # by the file
    "unlisted": "EACCES",
    "copy_of_an_unlisted_program": "EACCES",
    "copy_of_a_listed_program": "EACCES",
    "symbolic_link": "EACCES",
    "symbolic_link_named_like_a_listed_one": "EACCES",
    "hard_link_to_an_unlisted_program": "EXDEV",
    "rename_onto_a_listed_program": "EXDEV",
    "write_into_a_listed_program": "EROFS",
    "rename_of_a_copy": "EACCES",
    "copy_in_shared_memory": "EACCES",
    "copy_in_its_own_tmp": "EACCES",
    "by_the_root_of_a_process": "EACCES",
    "by_its_working_folder": "EACCES",
    "by_a_folders_descriptor": "EACCES",
    "script_of_a_listed_interpreter": "EACCES",
    "script_of_an_unlisted_interpreter": "EACCES",
    # by a descriptor
    "by_a_descriptor": "EACCES",
    "by_dev_fd": "EACCES",
    "by_another_threads_descriptor": "EACCES",
    "deleted_file": "EACCES",
    "file_without_a_name": "EACCES",
    "execveat_of_a_file": "EACCES",
    "execveat_of_an_unlisted_program": "EACCES",
    "execveat_with_more_bits": "EACCES",
    "execveat_of_memory": "EACCES",
    # by memory
    "memory_file": "EACCES",
    "memory_file_close_on_exec": "EACCES",
    "memory_file_sealable": "EACCES",
    "memory_file_executable": "EACCES",
    "memory_file_executable_and_sealable": "EACCES",
    "memory_file_that_asks_to_be_sealed": "EACCES",
    "memory_file_of_huge_pages": "EINVAL",
    "memory_file_of_huge_pages_sealed": "EINVAL",
    "memory_file_with_more_bits": "EACCES",  # the kernel looks at 32 of them
    "memory_file_made_executable": "EPERM",
    "memory_file_made_executable_by_its_path": "EPERM",
    "memory_file_of_a_process_that_cannot_be_read": "EACCES",
    "program_of_a_process_that_cannot_be_read": "EACCES",
    "memory_of_a_mapping": "EPERM",
    "secret_memory": "EACCES",
    "interpreter_for_a_format": "ENOENT",
    # by the filter
    "second_listener": "EBUSY",
    "filter_that_allows": "EACCES EACCES",
    "filter_that_notifies_nobody": "ENOSYS",
    "filter_that_traces": "EACCES",
    # by the watch
    "trace_the_watch": "EPERM",
    "memory_of_the_watch": "EACCES",
    "program_of_the_watch": "EACCES",
    "descriptors_of_the_watch": "EACCES",
    "memory_of_the_watch_by_a_call": "EPERM",
    "descriptor_of_the_watch_by_a_call": "EPERM",
    "nice_the_watch": "EACCES",
    "kill_the_watch": "EACCES",
    "fill_its_pipe": "EACCES",
    # by speed
    "flood": "{0} EACCES",
    "threads_at_once": "/bin/sh:0 /usr/bin/id:EACCES",
    "threads_of_one_process": "{7}",
    "after_vfork": "0 EACCES",
    "signals_meanwhile": "EACCES",
    "path_changed_in_memory": "7 99",
    "link_changed_meanwhile": "7 99",
    # at the end, for what it does stays
    "starve_the_watch": "EMFILE EACCES",
}
OPEN = {
    "memory_files_work": "EINVAL EFAULT EINVAL EINVAL",
    "files_move_between_folders": "file linked",
    "full_table_of_descriptors": "EMFILE",
}
GAPS = {"by_the_loader": "ran", "by_preload": "ran", "memory_file_from_outside": "ran"}
PRELOAD = "#include <unistd.h>\n__attribute__((constructor)) void run(void) { _exit(42); }\n"


def command_of(
    installed: lnk.Installed, who: lnk.Account, folder: str, names: list[str], **keys: object
) -> list[str]:
    """Return the kept command that tries these ways."""
    # The script is a word of the command: the folder that holds it isn't shown.
    with open(ATTACKS) as file:
        argv = [PYTHON, "-I", "-S", "-c", "import sys; exec(sys.argv.pop(1))", file.read()]
    return installed.wrapped(who, [*argv, folder, *names], write=[folder], **keys)


def outcome(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return what became of each try, nothing where the sandbox ended before they had."""
    found: dict[str, str] = json.loads((done.stdout.splitlines() or ["{}"])[-1])
    return found


def tried(
    installed: lnk.Installed, who: lnk.Account, folder: str, names: list[str], **keys: object
) -> tuple[dict[str, str], subprocess.CompletedProcess[str]]:
    """Return what became of each try in one sandbox, and how its run ended."""
    keys.setdefault("commands", {"only": ONLY})
    done = lnk.run(who, command_of(installed, who, folder, names, **keys), timeout=280)
    assert done.returncode == 0, done.stderr
    return outcome(done), done


def test_no_way_around_the_list_is_open(installed, who, folder):
    found, done = tried(installed, who, folder, list(REFUSED))
    # A user may not write there anyway.
    own = {} if who.uid == 0 else {"write_into_a_listed_program": "EACCES"}
    assert found == {**REFUSED, **own}
    assert "lnk sandbox: id isn't in [commands] only" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_no_way_around_it_works_as_it_did(installed, who, folder):
    found, _ = tried(installed, who, folder, list(OPEN))
    assert found == OPEN


def pass_on(listener: socket.socket, fd: int) -> None:
    """Give a descriptor to the first who asks."""
    with listener, listener.accept()[0] as joined:
        socket.send_fds(joined, [b"x"], [fd])
    os.close(fd)


def test_the_stated_gaps_are_as_stated(installed, who, folder):
    """Where one of these is closed one day, the statement goes."""
    with open(f"{folder}/preload.c", "w") as file:
        file.write(PRELOAD)
    built = ["gcc", "-shared", "-fPIC", "-o", f"{folder}/preload.so", f"{folder}/preload.c"]
    subprocess.run(built, check=True, timeout=lnk.LONG_S)
    passed = os.memfd_create("outside")
    with open("/usr/bin/id", "rb") as program:
        os.write(passed, program.read())
    outside = socket.socket(socket.AF_UNIX)
    outside.bind(f"{folder}/passed.sock")
    os.chown(f"{folder}/passed.sock", who.uid, who.gid)
    outside.listen()
    passing = threading.Thread(target=pass_on, args=(outside, passed))
    passing.start()
    found, _ = tried(installed, who, folder, list(GAPS))
    assert found == GAPS
    passing.join(30)


def test_each_way_is_one_without_a_list(installed, who, folder):
    """The tries are good ones: where any program may run, these run theirs."""
    by_nature = {
        "hard_link_to_an_unlisted_program", "rename_onto_a_listed_program",
        "write_into_a_listed_program", "memory_of_a_mapping", "second_listener",
        "filter_that_notifies_nobody", "filter_that_traces", "memory_of_the_watch_by_a_call",
        "descriptor_of_the_watch_by_a_call", "descriptors_of_the_watch", "kill_the_watch",
        "starve_the_watch", "fill_its_pipe", "memory_file_of_huge_pages_sealed",
        "memory_file_of_huge_pages", "memory_file_that_asks_to_be_sealed",
        "script_of_an_unlisted_interpreter", "signals_meanwhile", "trace_the_watch",
        "memory_of_the_watch", "program_of_the_watch", "secret_memory", "interpreter_for_a_format",
        "flood", "threads_of_one_process", "path_changed_in_memory",
        "link_changed_meanwhile", "threads_at_once", "after_vfork",
    }  # fmt: skip
    names = [name for name in REFUSED if name not in by_nature]
    found, _ = tried(installed, who, folder, names, commands="any")
    assert not {name for name, said in found.items() if said == REFUSED[name]}
