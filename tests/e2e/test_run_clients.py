"""Real programs in `lnk sandbox run`, with nothing set by hand, as root and as a user (R61)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.e2e import run_indexes
from tests.e2e.conftest import Nodes
from tests.e2e.run_clients import CLIENTS, OPTIONAL, Box, Call, refusal, told
from tests.e2e.run_indexes import Indexes
from tests.e2e.run_site import ADDRESS, NAME, Site, files
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Server, on_network
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
HERE = {**CLIENTS, **{name: made for name, (made, has) in OPTIONAL.items() if has()}}


@pytest.fixture(scope="module")
def server(
    network: Network,
    resolver: DnsDouble,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """The host that the clients get something from, over TLS."""
    site = Site(files(tmp_path_factory.mktemp("site")))
    with on_network(network, ADDRESS, 443, site, authority.context(NAME)) as made:
        yield made


@pytest.fixture
def away(installed: lnk.Installed, network: Network) -> Box:
    """`run` in the test network, where this machine's own can't be reached."""
    return Box(installed, network)


@pytest.fixture
def trusting(folder: str, authority: Authority, who: lnk.Account) -> str:
    """A folder of theirs with the tests' authority in it."""
    shutil.copy(authority.pem, f"{folder}/ca.pem")
    os.chown(f"{folder}/ca.pem", who.uid, who.gid)
    return folder


def prepared(name: str, folder: str, who: lnk.Account) -> Call:
    """Return a client's call, with the files that it needs in a folder of theirs."""
    call = HERE[name](folder)
    for above, names, found in os.walk(folder):
        for one in [*names, *found]:
            os.chown(os.path.join(above, one), who.uid, who.gid)
    for path in call.read:
        if not os.path.isdir(path):
            raise AssertionError(f"{path} is missing")
    return call


def cases() -> list[object]:
    """Return each client with each person who can run it: some stand in root's own home."""
    people = ("root", "user") if os.geteuid() == 0 else ("self",)
    everybody = {name for name in HERE if lnk.everybody_reaches(shutil.which(name) or "/usr")}
    return [
        pytest.param(name, one, id=f"{name}-{one}")
        for name in HERE
        for one in people
        if name in everybody or one != "user"
    ]


@pytest.mark.parametrize(("name", "who"), cases(), indirect=["who"])
def test_a_program_reaches_a_listed_host(name, who, away, server, trusting, dns):
    call = prepared(name, trusting, who)
    done = away.run(who, trusting, call, [NAME])
    assert done.returncode == 0, done.stderr
    assert call.worked(trusting, done.stdout), done.stdout + done.stderr
    assert told(done) == []
    assert dns.names_asked() == {NAME}


@pytest.mark.parametrize(("name", "who"), cases(), indirect=["who"])
def test_a_program_is_refused_at_an_unlisted_host_in_one_sentence(
    name, who, away, server, trusting, dns
):
    call = prepared(name, trusting, who)
    before = server.accepted
    done = away.run(who, trusting, call, ["example.com"])
    assert done.returncode != 0
    assert not call.worked(trusting, done.stdout)
    assert told(done) == [refusal(NAME)], done.stderr
    assert dns.asked == []
    assert server.accepted == before


@pytest.fixture(scope="module")
def programs(open_folder: str) -> tuple[str, str]:
    """A stock pip, and uv."""
    folder = os.path.join(open_folder, "programs")
    pip = run_indexes.environment_with_pip(os.path.join(folder, "pip"))
    return pip, run_indexes.uv_in(os.path.join(folder, "uv"))


@pytest.fixture(scope="module")
def asked() -> dict[str, Indexes]:
    """What pip and npm said of themselves, by person: each takes a second."""
    return {}


@pytest.fixture
def at(programs: tuple[str, str], who: lnk.Account, asked: dict[str, Indexes]) -> Indexes:
    if who.name not in asked:
        asked[who.name] = run_indexes.indexes(*programs, who)
    return asked[who.name]


@pytest.mark.parametrize("name", [*run_indexes.FROM_PIP, *run_indexes.FROM_NPM])
def test_a_package_comes_from_the_real_index(name, who, installed, folder, at):
    call, hosts = run_indexes.call_and_hosts(name, at)
    done = run_indexes.got(lambda: Box(installed).run(who, folder, call, hosts))
    assert done.returncode == 0, done.stderr
    assert call.worked(folder, done.stdout), done.stdout + done.stderr
    assert told(done) == []


@pytest.mark.parametrize("name", [*run_indexes.FROM_PIP, *run_indexes.FROM_NPM])
def test_the_index_is_refused_where_it_is_not_listed(name, who, away, folder, dns, at):
    call, hosts = run_indexes.call_and_hosts(name, at)
    done = away.run(who, folder, call, ["example.com"])
    assert done.returncode != 0
    assert not call.worked(folder, done.stdout)
    assert told(done) == [refusal(hosts[0])], done.stderr
    assert dns.asked == []


@pytest.fixture
def nvm(who: lnk.Account, nodes: Nodes) -> Iterator[str]:
    """A Node and an npm in their home, laid out as nvm does; returns the folder of the programs."""
    top = f"{who.home}/.nvm"
    version = f"{top}/versions/node/v24.0.0"
    os.makedirs(f"{version}/bin")
    os.link(nodes.new, f"{version}/bin/node")
    shutil.copytree(nodes.npm, f"{version}/lib/node_modules/npm", copy_function=os.link)
    os.symlink("../lib/node_modules/npm/bin/npm-cli.js", f"{version}/bin/npm")
    os.chown(top, who.uid, who.gid)
    yield f"{version}/bin"
    shutil.rmtree(top)


def test_an_npm_of_a_version_manager_works_once_its_folder_is_read(who, installed, folder, at, nvm):
    call, hosts = run_indexes.call_and_hosts("npm", at)
    call = replace(call, environ={"PATH": nvm})  # most who have it have no other npm
    box = Box(installed)
    done = box.run(who, folder, call, hosts)
    assert done.returncode == 127
    assert done.stderr == (
        f"lnk sandbox: npm is {nvm}/npm, in a folder that the sandbox doesn't show: "
        "add --read ~/.nvm to show it.\n"
    )
    call = replace(call, read=[f"{who.home}/.nvm"])
    done = run_indexes.got(lambda: box.run(who, folder, call, hosts))
    assert done.returncode == 0, done.stderr
    assert call.worked(folder, done.stdout)
    assert told(done) == []
