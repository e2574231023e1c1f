"""git and ssh in a sandbox, with nothing set by hand but whom ssh is to trust (R12, R61).

A relay that counts stands in front of the sshd, to which the wire's log is held.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.calls import Logged, Made, made
from tests.e2e.run_clients import Box, Call, refusal, told
from tests.e2e.run_site import ADDRESS, HELLO, NAME, git_repository
from tests.e2e.run_sshd import PORT, sshd
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.relay import LOOPBACK, Relay
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]

TRUSTING = "-i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=known"
CLONE = (
    f'GIT_SSH_COMMAND="$GIT_SSH_COMMAND {TRUSTING}" '
    f"git clone -q ssh://root@{NAME}{{repository}} repo"
)
MUCH = 300_000


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("over-ssh")
    git_repository(folder)
    return folder / "repo.git"


@pytest.fixture(scope="module")
def key(
    network: Network, resolver: DnsDouble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with sshd(network, LOOPBACK, tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture
def server(network: Network, key: Path) -> Iterator[Relay]:
    with Relay(network, (ADDRESS, PORT), (LOOPBACK, PORT)) as relay:
        yield relay


@pytest.fixture
def own_key(folder: str, who: lnk.Account, key: Path) -> None:
    """A person whose key lies in the folder."""
    shutil.copy(key, f"{folder}/key")
    os.chmod(f"{folder}/key", 0o600)
    os.chown(f"{folder}/key", who.uid, who.gid)


@pytest.fixture
def call(own_key: None, repository: Path) -> Call:
    return Call(["sh", "-c", CLONE.format(repository=repository)], "repo/file.txt")


def test_git_over_ssh_reaches_a_listed_host(
    call, who, folder, installed, network, dns, server
) -> None:
    logged = Logged(who)
    done = Box(installed, network).run(who, folder, call, [NAME])
    assert done.returncode == 0, done.stderr
    assert Path(folder, "repo/file.txt").read_bytes() == HELLO
    assert told(done) == []
    assert dns.names_asked() == {NAME}
    assert made(logged.lines()) == [Made("connect", NAME, PORT, *one) for one in server.counts()]
    assert len(server.passed) == 1


SSH = f'ssh="$GIT_SSH_COMMAND {TRUSTING} root@{NAME}"; '
KILLED = (
    'mkfifo said; eval "exec $ssh echo" < said > out & exec 3> said; echo hello >&3; '
    "until [ -s out ]; do sleep 0.02; done; kill -KILL $!; wait $!"
)


@pytest.mark.parametrize(
    ("script", "code", "passed"),
    [
        (f'head -c {MUCH} /dev/zero | eval "$ssh echo" > out', 0, MUCH),
        ('eval "$ssh leave" > out', 255, 0),
        (KILLED, 137, 6),
    ],
    ids=["to-its-end", "ended-by-the-server", "killed"],
)
def test_ssh_that_ends_however_is_counted_to_the_byte(
    own_key, script, code, passed, who, folder, installed, network, dns, server
) -> None:
    logged, call = Logged(who), Call(["sh", "-c", SSH + script])
    done = Box(installed, network).run(who, folder, call, [NAME])
    assert done.returncode == code, done.stderr
    assert os.path.getsize(f"{folder}/out") >= passed
    (seen,) = server.counts()
    assert made(logged.lines()) == [Made("connect", NAME, PORT, *seen)]
    assert min(seen) > max(passed, 1000)


def test_git_over_ssh_is_refused_at_an_unlisted_host(
    call, who, folder, installed, network, dns, server
) -> None:
    done = Box(installed, network).run(who, folder, call, ["example.com"])
    assert done.returncode != 0
    assert not call.worked(folder, done.stdout)
    assert refusal(NAME) in told(done), done.stderr
    assert dns.asked == []
    assert server.counts() == []
