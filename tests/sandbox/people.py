"""Fixtures of every test that runs `lnk`: the project installed, and who runs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator

import pytest

from tests.sandbox import lnk

PEOPLE = ("root", "user") if os.geteuid() == 0 else ("self",)


@pytest.fixture(scope="session")
def open_folder() -> Iterator[str]:
    """A folder outside /tmp that everybody may look into, for as long as the tests run."""
    parent = "/var/lib" if os.geteuid() == 0 else os.path.expanduser("~")
    folder = tempfile.mkdtemp(prefix="lnk-tests-", dir=parent)
    os.chmod(folder, 0o755)
    yield folder
    remove(folder)


@pytest.fixture(scope="session")
def installed(open_folder: str) -> lnk.Installed:
    folder = os.path.join(open_folder, "installed")
    os.mkdir(folder, 0o755)
    return lnk.install(folder)


@pytest.fixture(scope="session")
def people(open_folder: str) -> Iterator[dict[str, lnk.Account]]:
    """Root and an ordinary user that is made for the tests; who runs them where that isn't root."""
    if os.geteuid() != 0:
        home = os.path.join(open_folder, "self")
        os.mkdir(home, 0o700)
        yield {"self": lnk.Account("self", os.getuid(), os.getgid(), home)}
        return
    root = os.path.join(open_folder, "root")
    os.mkdir(root, 0o700)
    user = lnk.make_user(os.path.join(open_folder, "user"))
    yield {"root": lnk.Account("root", 0, 0, root), "user": user}
    lnk.remove_user()


@pytest.fixture(params=PEOPLE)
def who(request: pytest.FixtureRequest, people: dict[str, lnk.Account]) -> lnk.Account:
    return people[request.param]


@pytest.fixture
def ordinary(people: dict[str, lnk.Account]) -> lnk.Account:
    """Somebody who isn't root, where the tests may make one."""
    return people[PEOPLE[-1]]


@contextlib.contextmanager
def folder_of(account: lnk.Account) -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="work-", dir=account.home)
    os.chown(path, account.uid, account.gid)
    yield path
    remove(path)


def remove(path: str) -> None:
    """Remove a folder, though a process that just ends (a browser) still writes there."""
    until = time.monotonic() + lnk.LONG_S
    while os.path.exists(path):
        shutil.rmtree(path, ignore_errors=time.monotonic() < until)
        time.sleep(0.01)


@pytest.fixture
def folder(who: lnk.Account) -> Iterator[str]:
    """A folder of theirs, in their home, for one test."""
    with folder_of(who) as path:
        yield path


@pytest.fixture
def ordinary_folder(ordinary: lnk.Account) -> Iterator[str]:
    with folder_of(ordinary) as path:
        yield path


@pytest.fixture
def hidden_folder(who: lnk.Account) -> Iterator[str]:
    """A folder of theirs that no test opens, with a file in it."""
    path = tempfile.mkdtemp(prefix="secret-", dir=who.home)
    with open(os.path.join(path, "file"), "w") as file:
        file.write("secret")
    for name in (path, os.path.join(path, "file")):
        os.chown(name, who.uid, who.gid)
    yield path
    remove(path)
