"""Finding the program as the sandbox will see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.errors import LaunchError
from sandbox.linux.program import View, find


class World:
    """A home with a pyenv-like version manager, a system, and a view that shows the system."""

    def __init__(self, folder: Path) -> None:
        self.home = str(folder / "home")
        self.system = str(folder / "usr")
        self.cwd = str(folder / "work")
        for path in (self.home, f"{self.system}/bin", f"{self.system}/etc", self.cwd):
            os.makedirs(path)
        self.view = self.shows()

    def shows(self, *more: str) -> View:
        return View(
            ["--perms", "0700", "--tmpfs", self.home, "--ro-bind", self.system, self.system]
            + [word for path in more for word in ("--ro-bind-fd", [path], path)],
            [f"{self.system}/copied"],
        )

    def program(self, path: str, text: str = "\x7fELF", mode: int = 0o755) -> str:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def link(self, path: str, target: str) -> str:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
        return path

    def find(self, name: str, *folders: str, view: View | None = None) -> str:
        search = ":".join(folders or (f"{self.system}/bin",))
        return find(name, search, self.cwd, view or self.view, self.home)

    def refusal(self, name: str, *folders: str, view: View | None = None) -> tuple[int, str]:
        with pytest.raises(LaunchError) as caught:
            self.find(name, *folders, view=view)
        assert "\n" not in str(caught.value)
        return caught.value.exit_code, str(caught.value)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_program_of_the_system_is_found_by_path(world):
    path = world.program(f"{world.system}/bin/git")
    assert world.find("git") == path
    assert world.find(path) == path


def test_the_first_folder_of_path_that_is_shown_wins(world):
    world.program(f"{world.home}/.pyenv/shims/python3")
    path = world.program(f"{world.system}/bin/python3")
    assert world.find("python3", f"{world.home}/.pyenv/shims", f"{world.system}/bin") == path


def test_a_name_that_is_nowhere_is_127(world):
    assert world.refusal("nope") == (127, "nope: there is no such program in PATH.")
    assert world.refusal("./nope") == (127, "./nope: there is no such program.")
    assert world.refusal(f"{world.system}/bin/git/x")[0] == 127


def test_a_pipe_is_no_program_and_is_never_waited_for(world):
    for path in (f"{world.system}/bin/pipe", f"{world.cwd}/pipe"):
        os.mkfifo(path, 0o755)
    path = f"{world.system}/bin/pipe"
    assert world.refusal(path) == (126, f"{path} is no file, not a program.")
    assert world.refusal("pipe") == (127, "pipe: there is no such program in PATH.")
    view = world.shows(world.cwd)
    assert world.refusal("./pipe", view=view) == (126, "./pipe is no file, not a program.")
    later = world.program(f"{world.home}/bin/pipe")
    view = world.shows(world.home)
    assert world.find("pipe", f"{world.system}/bin", f"{world.home}/bin", view=view) == later


def test_scripts_that_run_each_other_are_refused(world):
    world.program(f"{world.system}/bin/env")
    world.program(f"{world.system}/bin/a", f"#!{world.system}/bin/env b\n")
    world.program(f"{world.system}/bin/b", f"#!{world.system}/bin/env a\n")
    code, said = world.refusal("a")
    assert code == 126
    assert said.endswith(" is a script for scripts that run each other: name a program.")
    for at in range(5):
        world.program(f"{world.system}/bin/s{at}", f"#!{world.system}/bin/env s{at + 1}\n")
    world.program(f"{world.system}/bin/s5")
    assert world.find("s0") == f"{world.system}/bin/s0"


def test_what_is_not_marked_as_a_program_is_126(world):
    path = world.program(f"{world.system}/bin/data", mode=0o644)
    assert world.refusal("data")[0] == 126
    assert world.refusal(path) == (126, f"{path} can't be run: it isn't marked as a program.")


def test_a_folder_is_126_and_no_match_in_path(world):
    os.mkdir(f"{world.system}/bin/dir")
    assert world.refusal(f"{world.system}/bin/dir")[0] == 126
    assert world.refusal("dir")[0] == 127


def test_what_could_not_run_if_it_were_shown_is_no_folder_to_show(world):
    os.mkdir(f"{world.cwd}/dir")
    data = world.program(f"{world.cwd}/data", mode=0o644)
    assert world.refusal("./dir") == (126, "./dir is a folder, not a program.")
    assert world.refusal(data) == (126, f"{data} can't be run: it isn't marked as a program.")


def test_a_script_whose_interpreter_is_missing_is_127(world):
    world.program(f"{world.system}/bin/tool", "#!/nowhere/python9 -x\nprint()")
    code, said = world.refusal("tool")
    assert code == 127
    assert said == "tool is a script for /nowhere/python9, which does not exist."


def test_a_program_of_a_version_manager_is_named_with_the_folder_that_shows_it(world):
    manager = f"{world.home}/.pyenv"
    path = world.program(f"{manager}/versions/3.12.1/bin/python3.12")
    world.link(f"{manager}/versions/3.12.1/bin/python", "python3.12")
    code, said = world.refusal("python", f"{manager}/versions/3.12.1/bin", f"{world.system}/bin")
    assert code == 127
    assert said.endswith(
        "in a folder that the sandbox doesn't show: add --read ~/.pyenv to show it."
    )
    assert world.find(
        "python", f"{manager}/versions/3.12.1/bin", view=world.shows(manager)
    ) == os.path.join(os.path.dirname(path), "python")


def test_a_shim_in_the_home_is_named_too(world):
    shim = world.program(f"{world.home}/.pyenv/shims/pip", "#!/usr/bin/env bash\nexec pyenv")
    code, said = world.refusal("pip", f"{world.home}/.pyenv/shims")
    assert code == 127
    assert said.startswith(f"pip is {shim}, in a folder")
    assert "--read ~/.pyenv" in said


def test_a_virtual_environments_python_leads_to_the_manager_it_came_from(world):
    """Showing the environment alone wouldn't do: its python is a link."""
    real = world.program(f"{world.home}/.pyenv/versions/3.12.1/bin/python3.12")
    python = world.link(f"{world.home}/project/.venv/bin/python", real)
    code, said = world.refusal(python)
    assert code == 127
    assert "--read ~/project/.venv" in said
    code, said = world.refusal(python, view=world.shows(f"{world.home}/project"))
    assert f"(it leads to {real})" in said
    assert "--read ~/.pyenv" in said
    view = world.shows(f"{world.home}/project", f"{world.home}/.pyenv")
    assert world.find(python, view=view) == python


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"/bin/sh\r", "tool is a script for /bin/sh\r, which does not exist."),
        (b"/usr/bin/env sh\r", "sh\r: there is no such program in PATH."),
        (b"/nowhere/a\0/bin/sh", "tool is a script for /nowhere/a, which does not exist."),
    ],
)
def test_a_scripts_line_that_names_nothing_says_what_it_names(world, line, said):
    """A line end of Windows is a letter of the name to the kernel; a NUL ends it."""
    world.program(f"{world.system}/bin/env")
    path = world.program(f"{world.system}/bin/tool")
    line = line.replace(b"/usr/bin/env", f"{world.system}/bin/env".encode())
    with open(path, "wb") as file:
        file.write(b"#!" + line + b"\n")
    assert world.refusal("tool") == (127, said)


def test_a_script_of_an_environment_needs_its_interpreter(world):
    real = world.program(f"{world.home}/.pyenv/versions/3.12.1/bin/python3.12")
    python = world.link(f"{world.home}/project/.venv/bin/python", real)
    world.program(f"{world.home}/project/.venv/bin/tool", f"#!{python}\n")
    view = world.shows(f"{world.home}/project")
    code, said = world.refusal("tool", f"{world.home}/project/.venv/bin", view=view)
    assert code == 127
    assert said.startswith(f"tool is {python} (it leads to {real})")


def test_what_env_would_look_for_is_looked_for_too(world):
    env = world.program(f"{world.system}/bin/env")
    world.program(f"{world.system}/bin/tool", f"#!{env} node\n")
    folders = (f"{world.home}/.nvm/versions/v22/bin", f"{world.system}/bin")
    world.program(f"{world.home}/.nvm/versions/v22/bin/node")
    code, said = world.refusal("tool", *folders)
    assert code == 127
    assert "--read ~/.nvm" in said
    assert world.find("tool", *folders, view=world.shows(f"{world.home}/.nvm")).endswith("/tool")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("~/.pyenv/shims/x", "~/.pyenv"),
        ("~/.nvm/versions/node/v22/bin/x", "~/.nvm"),
        ("~/.local/bin/x", "~/.local/bin"),
        ("~/.local/share/uv/python/3.12/bin/x", "~/.local/share/uv"),
        ("~/.cargo/bin/x", "~/.cargo/bin --read ~/.rustup"),
        ("~/go/bin/x", "~/go"),
        ("~/project/.venv/bin/x", "~/project/.venv"),
        ("~/x", "~/x"),
        ("~/bin/x", "~/bin"),
    ],
)
def test_the_folder_to_show_is_what_makes_the_program_work(world, path, shown):
    world.program(path.replace("~", world.home))
    _, said = world.refusal(path.replace("~", world.home))
    assert f"add --read {shown} to show it" in said


def test_elsewhere_it_is_what_holds_the_bin(world, tmp_path):
    world.program(f"{tmp_path}/srv/tool/bin/x")
    _, said = world.refusal(f"{tmp_path}/srv/tool/bin/x")
    assert f"add --read {tmp_path}/srv/tool to show it" in said


def test_the_systems_own_links_are_followed_inside(world):
    """`/bin` is a link that bubblewrap makes, whatever it is outside."""
    world.program(f"{world.system}/bin/tool")
    view = World.shows(world)
    alias = f"{os.path.dirname(world.system)}/alias"
    view.links[alias] = "usr/bin"
    assert world.find(f"{alias}/tool", view=view) == f"{alias}/tool"


def test_links_in_a_circle_are_no_program(world):
    world.link(f"{world.system}/bin/a", "b")
    world.link(f"{world.system}/bin/b", "a")
    assert world.refusal("a")[0] == 127
    assert world.refusal(f"{world.system}/bin/a")[0] == 127


def test_a_relative_name_is_read_from_the_working_folder(world):
    world.program(f"{world.cwd}/run")
    view = world.shows(world.cwd)
    assert world.find("./run", view=view) == f"{world.cwd}/./run"
    assert world.find("run", "", view=view) == f"{world.cwd}/run", "an empty folder of PATH"
    assert world.refusal("run")[0] == 127
    _, said = world.refusal("../work/run", view=world.view)
    assert "add --read" in said


def test_a_folder_above_what_is_shown_stands_inside():
    """A person stands in a project and gives a folder of it: `run` starts there."""
    view = View(["--bind-fd", "5", "/srv/project/out"], [])
    assert view.stands("/srv/project")
    assert not view.stands("/srv/other")
    assert not view.stands("/srv/project/o")
