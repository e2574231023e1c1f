"""Specs: what is read, what is refused and on which line, and what a spec opens."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import spec_file
from sandbox.cli.host_lists import check_spec
from sandbox.confinement import Closed, Confinement, Host, Loopback, Proxied, Unwalled
from sandbox.errors import SpecError
from sandbox.place import Place
from sandbox.spec import (
    SPEC_MAX_BYTES,
    Commands,
    Files,
    Internet,
    Localhost,
    Macos,
    Network,
    Spec,
)
from sandbox.spec_file import digest, in_words
from sandbox.spec_routes import routes_of
from sandbox.table import dump_table, keys_of, read_table
from sandbox.toml_depth import DEPTH_MAX, too_deep
from sandbox.toml_lines import Scanner, line_of

FULL = """\
[files]
write = ["."]
write_dot_files = ["."]
read = ["~/.gitconfig", "../shared"]
read_home = false
hide = ["~/agents"]
[commands]
only = ["/usr/bin/git", "python3"]
[network]
mode = "proxy"
per_minute = 600
upstream = "direct"
[internet]
hosts = ["example.com", "*.example.org"]
tcp = ["db.example.com:5432", "*.mongodb.net:27017"]
[lan]
hosts = ["192.168.1.20:8080", "printer.local:631"]
[localhost]
ports = [5432]
serve = [3000]
[models]
local = [11434]
anthropic = { key = "env:ANTHROPIC_API_KEY" }
server_tools = false
[secrets.github]
key = "file:~/.github"
host = "github.com"
paths = ["/{path}"]
header = { name = "Authorization", value = "Basic {secret}" }
refused = ["/x"]
[tools]
use = ["notes"]
[desktop]
open = true
[macos]
developer_tools = false
"""


def parse(text: str, **rest: Any) -> Spec:
    return Spec.parse(text.encode(), folder="/srv/box", home="/home/u", **rest)


def shape(text: str) -> Spec:
    """Read a spec's keys, those that aren't built yet too."""
    place = Place(bases=spec_file.Bases("/home/u", "/srv/box"), root="spec")
    return read_table(Spec, tomllib.loads(text), place)


def refusal(text: str, **rest: Any) -> str:
    with pytest.raises(SpecError) as refused:
        parse(text, **rest)
    return str(refused.value)


# What is read.


def test_an_empty_spec_opens_nothing():
    spec = parse("")
    assert spec == Spec()
    assert spec.mode == "none"
    made = Confinement.of(spec)
    assert made == Confinement(name="sandbox", write=(), read=(), commands=None, net=Closed())


def test_every_key_of_the_documents_is_read():
    spec = shape(FULL)
    assert spec.files.write == ("/srv/box",)
    assert spec.files.read == ("/home/u/.gitconfig", "/srv/shared")
    assert spec.files.hide == ("/home/u/agents",)
    assert spec.commands.only == ("/usr/bin/git", "python3")
    assert spec.internet.hosts == ("example.com", "*.example.org")
    assert spec.localhost.serve == (3000,)
    assert spec.models.anthropic is not None
    assert spec.models.anthropic.source == "env:ANTHROPIC_API_KEY"
    assert spec.secrets["github"].host == "github.com"
    assert spec.tools.use == ("notes",)
    assert spec.desktop.open is True


def test_a_resolved_spec_printed_is_the_same_spec_read():
    spec = shape(FULL)
    assert read_table(Spec, json.loads(json.dumps(spec.as_json())), Place()) == spec


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (".", "/srv/box"),
        ("out", "/srv/box/out"),
        ("./out/", "/srv/box/out"),
        ("../other", "/srv/other"),
        ("~", "/home/u"),
        ("~/x", "/home/u/x"),
        ("~/../v", "/home/v"),
        ("/opt/x", "/opt/x"),
        ("a~b", "/srv/box/a~b"),
    ],
)
def test_a_path_is_read_from_the_specs_folder_or_the_home_and_kept_absolute(
    written: str, kept: str
):
    assert parse(f'files.write = ["{written}"]').files.write == (kept,)


@pytest.mark.parametrize(
    ("key", "host", "port"),
    [
        ("internet.hosts", "localhost", ""),
        ("internet.hosts", "app.localhost", ""),
        ("internet.hosts", "127.0.0.2", ""),
        ("internet.hosts", "::1", ""),
        ("internet.tcp", "localhost", ":5432"),
        ("internet.tcp", "[::1]", ":5432"),
        ("lan.hosts", "127.0.0.1", ":5432"),
        ("lan.hosts", "0.0.0.0", ":5432"),
    ],
)
def test_this_machine_on_a_list_is_refused_with_the_key_that_opens_it(
    key: str, host: str, port: str
):
    text = f"{key} = ['a.example{port}', '{host}{port}']"
    with pytest.raises(SpecError) as raised:
        parse(text, judge=check_spec)
    said = f'spec:1: {key}[1]: "{host}" is this machine, which a proxy never reaches; name its port'
    assert str(raised.value) == f"{said} in [localhost] ports"


@pytest.mark.parametrize(
    ("host", "whose"),
    [
        ("169.254.169.254", "AWS, Google, Azure and most others"),
        ("100.100.100.200", "Alibaba"),
        ("192.0.0.192", "Oracle Classic"),
        ("[fd00:ec2::254]", "AWS"),
        ("[::ffff:169.254.169.254]", "AWS, Google, Azure and most others"),
        ("[64:ff9b::a9fe:a9fe]", "AWS, Google, Azure and most others"),
    ],
)
@pytest.mark.parametrize(
    ("key", "port"), [("lan.hosts", ":80"), ("internet.tcp", ":80"), ("internet.hosts", "")]
)
def test_a_metadata_service_on_a_list_is_refused_by_its_name(
    key: str, port: str, host: str, whose: str
):
    told = refusal(f"# a box\n{key} = [\n'a.example{port}',\n'{host}{port}']", judge=check_spec)
    assert told == (
        f'spec:4: {key}[1]: "{host}" is a cloud\'s metadata service ({whose}), which no list '
        "opens; take it out"
    )


def test_addresses_beside_a_metadata_service_s_may_be_on_the_list_of_machines():
    hosts = "['192.168.1.20:80', '10.0.0.1:80', '[fd12::20]:80', 'metadata.lan:80']"
    assert parse(f"lan.hosts = {hosts}", judge=check_spec)


def test_names_that_begin_like_this_machine_are_hosts():
    hosts = "['127.example.com', 'localhost.example.com', 'mylocalhost']"
    assert parse(f"internet.hosts = {hosts}", judge=check_spec)


@pytest.mark.parametrize("host", ["*.example.com", "example.com:443", "https://example.com"])
def test_a_secret_goes_to_one_host_written_alone(host: str):
    told = refusal(f"[secrets.a]\nkey = 'env:A'\nhost = '{host}'\npaths = ['/{{secret}}']\n")
    assert told.startswith(f'spec:3: secrets.a.host: "{host}" isn\'t a host')


def test_another_users_home_is_refused():
    assert "another user's home" in refusal('files.read = ["~root/x"]')


def test_the_whole_machine_is_refused():
    assert refusal('files.write = ["../.."]').startswith("spec:1: files.write[0]: is the whole")


def test_a_file_is_read_from_its_own_folder(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "box.toml").write_text('files.write = ["out"]')
    spec = Spec.read(str(tmp_path / "link" / "box.toml"), home="/home/u")
    assert spec.files.write == (str(tmp_path / "real" / "out"),)
    assert spec.file == str(tmp_path / "link" / "box.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(SpecError, match=r"none\.toml: No such file or directory; name the"):
        Spec.read(str(tmp_path / "none.toml"))


def test_the_home_of_the_process_is_used_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = Spec.parse(b'files.read = ["~/x"]', folder="/srv/box")
    assert spec.files.read == (f"{tmp_path}/x",)


@pytest.mark.parametrize("text", ["keychain = true", "[keychain]\nx = 1", "[macos]\nkeychain = 7"])
def test_a_stored_keychain_is_read_as_nothing(text: str):
    assert parse(text) == Spec()


def test_any_host_has_to_be_spelled():
    assert parse("").internet.hosts == ()
    assert parse("internet.hosts = []").internet.hosts == ()
    assert parse('internet.hosts = ["*"]').internet.hosts is None


# What is refused, and on which line.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n[files]\nwrit = []", "spec:3: files.writ: unknown key; did you mean write?"),
        ("\n\n[filse]\nwrite = []", "spec:3: filse: unknown key; did you mean files?"),
        ("x = 1", "spec:1: x: unknown key"),
        ("[files]\n\nread = ['a',\n'b',\n7]", "spec:5: files.read[2]: 7 isn't a path"),
        ("files.read_home = 1", "spec:1: files.read_home: 1 isn't true or false"),
        ("#\nfiles = { write = [], wite = [] }", "spec:2: files.wite: unknown key"),
        ("files = 7", "spec:1: files: 7 isn't an object"),
        ("[[files]]", "spec:1: files: a list isn't an object"),
        ("a.b.c = 1\n", "spec:1: a: unknown key"),
        ("[network]\nmode = 'porxy'", 'spec:2: network.mode: "porxy" isn\'t'),
        ("[localhost]\nports = '*'", 'spec:2: localhost.ports: "*" would open'),
        ("[localhost]\nports = [1,\n'*']", 'spec:2: localhost.ports: "*" would open'),
        ("[localhost]\nports = [0]", "spec:2: localhost.ports[0]: 0 isn't a port"),
        ("[localhost]\nports = [true]", "spec:2: localhost.ports[0]: true isn't a port"),
        ("[localhost]\nports = [1.0]", "spec:2: localhost.ports[0]: 1.0 isn't a port"),
        ("[localhost]\nserve = 1979-05-27", "spec:2: localhost.serve: a date isn't a list"),
        ("[localhost]\nports = [1]\nserve = [2,\n1]", "spec:4: localhost.serve[1]: 1 is also in"),
        ("[models.anthropic]", "spec:1: models.anthropic.key: is missing"),
        (
            "models.openai = 'env:A'",
            "spec:1: models.openai: what stands here isn't an object; write "
            "it between { and }, with key",
        ),
        ("[secrets.a]\nkey='env:A'\nhost='h'", "spec:1: secrets.a.paths: is missing"),
        ('[secrets."a b"]', 'spec:1: secrets["a b"]: "a b" isn\'t a route\'s name'),
        ('files.hide = ["a\\u0000"]', "spec:1: files.hide[0]: "),
    ],
)
def test_a_wrong_key_is_refused_by_its_path_and_line(text: str, told: str):
    assert refusal(text).startswith(told)


@pytest.mark.parametrize(
    "text",
    [
        "models.anthropic = 'hunter2'",
        "models.anthropic.key = 'hunter2'",
        "secrets = 'hunter2'",
        "secrets.a = 'hunter2'",
        "secrets.a = { key = 'hunter2' }",
    ],
)
def test_a_key_pasted_where_its_place_belongs_is_never_shown(text: str):
    told = refusal(text)
    assert "what stands here isn't" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = ", "spec:1: spec: isn't TOML: Invalid value"),
        ("\n\n=", "spec:3: spec: isn't TOML: "),
        ("[files]\n[files]", "spec:2: spec: isn't TOML: Cannot declare"),
        ("x = 1\nx = 2", "spec:2: spec: isn't TOML: Cannot overwrite a value"),
        ("x = " + "9" * 5000, "spec: holds a number too long for any key"),
        (
            f"[network]\nper_minute = 0x{'f' * 5000}",
            "spec:2: network.per_minute: so long a number isn't a limit; it is 1 to 1000000",
        ),
        ("x = " + "[" * 100_000, f"spec:1: spec: is nested more than {DEPTH_MAX} deep here, and"),
        ("x" * (SPEC_MAX_BYTES + 1), f"spec: is longer than {SPEC_MAX_BYTES} bytes"),
    ],
)
def test_a_text_that_is_no_toml_is_refused(text: str, told: str):
    assert refusal(text).startswith(told)


PART = "a"
DEEP = [".".join([PART] * (DEPTH_MAX + 1)), " . ".join(["'a'"] * (DEPTH_MAX + 1))]
FLAT = ".".join([PART] * DEPTH_MAX)
HIDERS = ["", "x = 1 # ]\n", 'x = """\n" """\n', "x = '''\n' '''\n", 'x = "#"\n', "x = [{}, []]\n",
          'x = """\\""" """\n', 'x = """""\n""" #"""\n', "x = '#' # '''\n"]  # fmt: skip


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("before", HIDERS)
def test_a_key_of_many_parts_is_refused_before_it_is_read(before: str, deep: str):
    """`tomllib` takes the square of the parts for one: minutes for a mebibyte of them."""
    for text in (f"{deep} = 1", f"[{deep}]", f"[[ {deep} ]]", f"y = {{ {deep} = 1 }}"):
        assert tomllib.loads(before + text), "it is TOML"
        line = before.count("\n") + 1
        assert refusal(before + text) == (
            f"spec:{line}: spec: is nested more than {DEPTH_MAX} deep here, and no key of a spec "
            "is; take it out"
        )


@pytest.mark.parametrize(
    "text",
    [
        f"{FLAT} = 1",
        f"[{FLAT}]\n{FLAT} = 1",
        "x = " + "[" * DEPTH_MAX + "]" * DEPTH_MAX,
        f'x = "{FLAT}.{FLAT}"',
        f"x = '{FLAT}.{FLAT}'",
        f'x = """\n{FLAT}.{FLAT}"""',
        f"# {FLAT}.{FLAT} [[[[[[[[[[[[[[[[[[[[",
        "x = [" + "{}, [], " * 50 + "]",
        f'"{FLAT}.{FLAT}" = 1',
    ],
)
def test_what_is_nested_less_deeply_is_left_to_the_reader(text: str):
    assert tomllib.loads(text) is not None
    assert too_deep(text) is None


def parts_of(value: Any) -> int:
    """Return the most keys above any value, lists not counted."""
    match value:
        case dict():
            return max((1 + parts_of(inner) for inner in value.values()), default=0)
        case list():
            return max(map(parts_of, value), default=0)
    return 0


tokens = st.lists(
    st.sampled_from(
        ['"', "'", '"""', "'''", "\\", '\\"', "#", "\n", "x", "=", "{", "}", ",", ".", " ", 'y="',
         "z=1\n", "\\\n", '""', 'k="""\n', '"""\n', "'''\n"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@given(tokens, tokens)
def test_a_key_of_many_parts_is_found_just_where_a_reader_finds_one(before: str, behind: str):
    text = f"{before}{DEEP[0]}=1{behind}"
    try:
        values = tomllib.loads(text)
    except ValueError:
        return
    assert (too_deep(text) is not None) == (parts_of(values) > DEPTH_MAX)


def test_no_text_takes_the_depth_s_judge_long():
    """Each of a mebibyte: what is looked through twice at each place would take hours."""
    size = SPEC_MAX_BYTES
    for piece in ('\\"""', '"', "'", '""', '"\\', "'''''", "a .", '"a".', "[]", "a\n", '"\\\n'):
        for head in ("", 'x="""', "x='''", 'x="'):
            too_deep(head + piece * (size // len(piece)))


def test_a_refusal_s_line_in_a_list_of_lists_is_found_at_once():
    """Half a million paths of many steps each: kept, they took minutes and a gigabyte."""
    text = "x = " + "[" * 15 + "1," * 500_000 + "]" * 15
    assert refusal(text) == "spec:1: x: unknown key; there are " + ", ".join(sorted(keys_of(Spec)))


def test_bytes_that_are_no_utf8_are_refused_on_their_line():
    with pytest.raises(SpecError, match=r"^box\.toml:2: spec: isn't UTF-8$"):
        Spec.parse(b"#\n\xff", folder="/", home="/home/u", file="box.toml")


def test_a_refusal_names_the_file_and_the_line(tmp_path: Path):
    file = tmp_path / "box.toml"
    file.write_text("# a box\n[internet]\nhots = []\n")
    with pytest.raises(SpecError) as refused:
        Spec.read(str(file))
    assert str(refused.value) == (f"{file}:3: internet.hots: unknown key; did you mean hosts?")
    assert refused.value.line == 3
    assert refused.value.key == "internet.hots"
    assert refused.value.exit_code == 2


def read_refusal(file: str) -> str:
    with pytest.raises(SpecError) as refused:
        Spec.read(file)
    return str(refused.value)


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    cure = "name the file that the spec is in"
    for file, said in (
        (f"{tmp_path}/pipe", f"is a named pipe; {cure}"),
        (f"{tmp_path}/link", f"is a named pipe; {cure}"),
        (f"{tmp_path}", f"is a folder; {cure}"),
        ("/dev/zero", f"is a device; {cure}"),
    ):
        assert read_refusal(file) == f"{file}: {said}"
    assert read_refusal(f"{tmp_path}/huge").startswith(f"{tmp_path}/huge: spec: is longer than ")


def test_a_pipe_that_is_open_already_is_read_to_its_end():
    ours, its = os.pipe()
    os.write(its, b"[files]\nread_home = true\n")
    os.close(its)
    try:
        assert Spec.read(f"/dev/fd/{ours}").files.read_home
    finally:
        os.close(ours)


def test_a_key_s_file_that_is_none_is_refused_and_never_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "key")
    spec = parse(f"[models]\nopenai = {{ key = 'file:{tmp_path}/key' }}")
    with pytest.raises(SpecError) as refused:
        routes_of(spec)
    assert refused.value.key == "models.openai.key"
    said = ", which is a named pipe; name the file that the key is in"
    assert refused.value.message.endswith(said)


def test_each_folder_is_looked_up_once_for_all_keys(tmp_path: Path, monkeypatch):
    """A thousand keys and as many folders took half a minute before the person was asked."""
    real, looked = os.path.realpath, []
    monkeypatch.setattr(os.path, "realpath", lambda path: looked.append(path) or real(path))
    (tmp_path / "key").write_text("treasure")
    text = f"[files]\nread = {json.dumps([f'{tmp_path}/{at}' for at in range(50)])}\n" + "".join(
        f"[secrets.a{at}]\nkey = 'file:{tmp_path}/key'\nhost = 'a.b'\npaths = ['/{{secret}}']\n"
        for at in range(50)
    )
    assert len(routes_of(parse(text))) == 50
    assert sum(os.path.basename(path).isdecimal() for path in looked) == 50


def test_a_key_pasted_in_the_place_of_its_name_is_not_shown():
    told = refusal('[models]\nopenai = { key = "sk-hunter2" }')
    assert told.startswith("spec:2: models.openai.key: ")
    assert "hunter2" not in told


def test_a_key_whose_wall_is_not_built_is_refused_by_name():
    told = refusal("macos.developer_tools = true")
    assert told.startswith("spec:1: macos.developer_tools: isn't built yet in this version (")


def test_a_spec_made_in_python_is_held_to_the_same():
    with pytest.raises(SpecError, match="isn't built yet"):
        Confinement.of(Spec(macos=Macos(developer_tools=True)))
    with pytest.raises(SpecError, match=r"^files\.write\[0\]: \"work\" isn't an absolute path"):
        Confinement.of(Spec(files=Files(write=("work",))))


def test_a_host_the_proxy_could_not_read_is_refused_on_its_line():
    text = "[internet]\nhosts = [\n  'example.com',\n  'exa mple.com',\n]"
    assert refusal(text, judge=check_spec).startswith("spec:4: internet.hosts[1]: ")
    text = "[internet]\nhosts = [\n  'example.com',\n  '127.1',\n]"
    assert refusal(text, judge=check_spec).startswith("spec:4: internet.hosts[1]: ")
    assert refusal("lan.hosts = ['printer']", judge=check_spec).startswith("spec:1: lan.hosts[0]: ")
    assert parse("internet.hosts = ['*.example.com', '2001:db8::1']", judge=check_spec)


# What a spec opens.


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("", "none"),
        ("files.write = ['.']", "none"),
        ("internet.hosts = ['a.example']", "proxy"),
        ("internet.hosts = ['*']", "proxy"),
        ("internet.hosts = []", "none"),
        ("lan.hosts = ['a.example:1']", "proxy"),
        ("network.mode = 'none'", "none"),
        ("network.mode = 'proxy'", "proxy"),
        ("network.mode = 'host'", "host"),
    ],
)
def test_a_missing_mode_is_the_least_that_does_the_job(text: str, mode: str):
    assert parse(text).mode == mode


def test_hosts_that_nothing_would_reach_are_refused():
    told = refusal("[network]\nmode = 'none'\n[internet]\nhosts = ['a.example']")
    assert told.startswith("spec:4: internet.hosts: needs the proxy")


def test_hosts_that_nothing_would_hold_it_to_are_refused():
    told = refusal("[network]\nmode = 'host'\n[internet]\nhosts = ['a.example']")
    assert told.startswith("spec:4: internet.hosts: limits nothing")
    assert "localhost.ports: limits nothing" in refusal(
        "network.mode = 'host'\nlocalhost.ports = [1]"
    )


def test_a_confinement_of_a_spec_always_says_its_hosts():
    for text, written in (
        ("network.mode = 'proxy'", []),
        ("internet.hosts = ['a.example']", ["a.example"]),
        ("internet.hosts = ['*']", ["*"]),
    ):
        made = Confinement.of(parse(text), name="box", proxy_dir="/run/box")
        net: Any = made.as_json()["net"]
        assert net["proxied"]["proxy"]["hosts"] == written
        assert Confinement.read_json(made.as_json()) == made


def test_a_confinement_of_a_spec_holds_what_the_spec_opens():
    spec = parse(
        "[files]\nwrite = ['.']\nread = ['~/.gitconfig']\nhide = ['~/a']\nread_home = true\n"
        "[internet]\nhosts = ['a.example']\n[lan]\nhosts = ['p.local:631']\n"
    )
    made = Confinement.of(spec, name="box", proxy_dir="/run/box")
    assert (made.write, made.read, made.hide) == (
        ("/srv/box",),
        ("/home/u/.gitconfig",),
        ("/home/u/a",),
    )
    assert made.read_home
    assert made.commands is None
    assert isinstance(made.net, Proxied)
    assert made.net.proxy.hosts == ("a.example",)
    assert made.net.proxy.lan == ("p.local:631",)
    assert made.net.proxy.dir == "/run/box"
    assert made.net.proxy.upstream == "direct"


def test_the_machines_network_is_opened_whole_or_not():
    made = Confinement.of(parse("network.mode = 'host'"))
    assert made.net == Host(ports=(), localhost=True)


def test_a_sandbox_is_named_after_its_spec(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LNK_HOME", "/srv/lnk")
    for file, name in (("/a/my box.toml", "my-box"), ("/a/.x.toml", "x"), ("/a/é.toml", "sandbox")):
        made = Confinement.of(parse("network.mode = 'proxy'", file=file))
        assert made.name == name
        assert isinstance(made.net, Proxied)
        assert made.net.proxy.dir == f"/srv/lnk/sandbox/proxy/{name}"


def test_unwalled_is_the_proxy_alone():
    made = Unwalled.of(parse("internet.hosts = ['a.example']"), name="a", proxy_dir="/d")
    assert made.pointed
    assert made.proxy.hosts == ("a.example",)
    assert "write" not in made.as_json()


def test_programs_and_ports_become_walls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "relative:/nowhere:/usr/bin:/bin")
    made = Confinement.of(Spec(commands=Commands(only=("/opt/x", "sh"))))
    assert made.commands is not None
    assert made.commands[0] == "/opt/x"
    assert made.commands[1] in ("/usr/bin/sh", "/bin/sh")
    with pytest.raises(SpecError, match=r"^commands\.only\[0\]: no-such-program is on no folder"):
        Confinement.of(Spec(commands=Commands(only=("no-such-program",))))
    made = Confinement.of(Spec(localhost=Localhost(ports=(5432,))), proxy_dir="/d")
    assert made.net == Loopback(ports=(5432,), dir="/d")
    served = Spec(localhost=Localhost(ports=(5432,), serve=(3000,)))
    net = Confinement.of(served, proxy_dir="/d").net
    assert isinstance(net, Proxied)
    assert (net.ports, net.proxy.serve) == ((5432,), (3000,))


# Known again, and shown.


def test_a_spec_is_known_again_by_what_it_opens_not_by_its_text():
    one = digest(parse("[files]\nwrite = ['out']"))
    assert one == digest(parse("# mine\nfiles.write = ['./out/']\n", file="/x/y.toml"))
    assert one != digest(parse("files.write = ['in']"))
    moved = Spec.parse(b"files.write = ['out']", folder="/srv/other", home="/home/u")
    assert one != digest(moved)
    assert len(one) == 64


def test_no_host_and_any_host_are_two_specs():
    assert digest(parse("internet.hosts = ['*']")) != digest(parse("internet.hosts = []"))


def test_a_spec_in_words_says_everything_it_opens():
    spec = shape(FULL)
    told = "\n".join(in_words(spec))
    for part in (
        "writes /srv/box, its dot files too", "reads /home/u/.gitconfig", "reads /srv/shared",
        "keeps /home/u/agents closed", "runs only /usr/bin/git, python3",
        "example.com, *.example.org", "db.example.com:5432", "192.168.1.20:8080",
        "this machine's port 5432", "opens its port 3000",
    ):  # fmt: skip
        assert part in told
    assert len(set(in_words(spec))) == len(in_words(spec))
    assert told.count("the tool") == told.count("your browser") == 1
    assert in_words(Spec()) == ["reaches nothing on the network"]
    assert in_words(Spec(network=Network(mode="proxy"))) == ["reaches nothing on the network"]
    assert in_words(Spec(network=Network(mode="host")))[0].startswith("has this machine's network")
    assert in_words(Spec(internet=Internet(hosts=None))) == ["reaches any host on the internet"]
    exit_ = in_words(Spec(network=Network(mode="proxy", upstream="socks5://me:secret@x:1")))
    assert exit_ == ["leaves this machine through another proxy, socks5://x:1"]
    assert in_words(Spec(files=Files(read_home=True)))[0] == "reads the whole home folder"


@pytest.mark.parametrize(
    ("folder", "is_whole"), [("/srv/u", True), ("/srv", True), ("/srv/u/x", False), ("/s", False)]
)
def test_a_home_that_is_written_whole_is_called_that(folder, is_whole, monkeypatch):
    monkeypatch.setenv("HOME", "/srv/u")
    (said, _) = in_words(Spec(files=Files(write=(folder,))))
    more = ", all of your home, so what runs when you log in too (.profile, .bashrc, .ssh)"
    assert said == f"writes {folder}{more if is_whole else ''}"


def test_a_folder_named_with_a_terminals_codes_is_shown_as_it_is():
    told = in_words(Spec(files=Files(write=("/a\x1b[2K\u202e/é",))))
    assert told[0] == "writes /a\\x1b[2K\\u202e/é"


# Lines.

LINES = '''\
# a comment with [brackets] and "quotes"
top = "a # b"

[a]
x = 1   # one
"quo.ted" = """
[not.a.table]
""""" # the two quotes more are the text's
[a.b . 'c']
y = [ 1,
  { z = 2, w = [3,
    4] }, # ]
  "]" ]
long.dotted.key = \'\'\'
x = 1
\'\'\'
[[many]]
n = 1
[[many]]
n = { deep.er = 2 }
[many.sub]
m = 1979-05-27 07:32:00
[[many.inner]]
k = 0x10
[[many.inner]]
k = inf
'''


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (("top",), 2),
        (("a",), 4),
        (("a", "x"), 5),
        (("a", "quo.ted"), 6),
        (("a", "b", "c"), 9),
        (("a", "b", "c", "y"), 10),
        (("a", "b", "c", "y", 0), 10),
        (("a", "b", "c", "y", 1, "z"), 11),
        (("a", "b", "c", "y", 1, "w", 0), 11),
        (("a", "b", "c", "y", 1, "w", 1), 12),
        (("a", "b", "c", "y", 2), 13),
        (("a", "b", "c", "long", "dotted", "key"), 14),
        (("many",), 17),
        (("many", 0, "n"), 18),
        (("many", 1), 19),
        (("many", 1, "n", "deep", "er"), 20),
        (("many", 1, "sub", "m"), 22),
        (("many", 1, "inner", 0, "k"), 24),
        (("many", 1, "inner", 1, "k"), 26),
        (("a", "nothing"), 4),
        (("nothing",), None),
        ((), None),
    ],
)
def test_a_key_is_found_on_its_line(steps: tuple[str | int, ...], line: int | None):
    tomllib.loads(LINES)
    assert line_of(LINES, steps) == line
    assert line_of(LINES.replace("\n", "\r\n"), steps) == line


def paths(value: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return every path of keys in a TOML value."""
    pairs: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    return [
        path for step, inner in pairs for path in ((*above, step), *paths(inner, (*above, step)))
    ]


def paths_named(text: str) -> set[tuple[str | int, ...]]:
    """Return every path that the scanner of lines finds named, those above each too."""
    found = set()
    Scanner(text, lambda path, _: found.update(path[:at] for at in range(1, len(path) + 1))).scan()
    return found


def test_every_path_of_a_text_is_found():
    for text in (LINES, FULL):
        assert set(paths(tomllib.loads(text))) == paths_named(text)


toml_keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=6)
toml_values = st.recursive(
    st.integers(-9, 9).map(str)
    | st.booleans().map(lambda value: str(value).lower())
    | st.text("ab#]}\"'= \n\\[", max_size=6).map(json.dumps)
    | st.sampled_from(["'''\n]'''", '"""a\n"b""\n"""', "1979-05-27 07:32:00", "'#'", "1e5"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ", # ]\n".join(items) + "]")
        | st.dictionaries(toml_keys.map(json.dumps), inner, max_size=3).map(
            lambda pairs: (
                "{ " + ", ".join(f"{name} = {value}" for name, value in pairs.items()) + " }"
            )
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(toml_keys.map(json.dumps), toml_values, max_size=4))
def test_every_path_of_any_text_is_found(pairs: dict[str, str]):
    text = "".join(f"{name} = {value}\n" for name, value in pairs.items())
    try:
        values = tomllib.loads(text)
    except ValueError:
        return  # two keys that are one, or a comment in an inline table
    assert set(paths(values)) == paths_named(text)
    assert too_deep(text) is None


@given(st.text())
def test_any_text_ends(text: str):
    line_of(text, ("a",))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_spec_or_are_refused(data: bytes):
    try:
        Spec.parse(data, folder="/srv/box", home="/home/u")
    except SpecError:
        return


@given(
    st.sampled_from(sorted(keys_of(Spec))),
    st.sampled_from(["write", "hosts", "ports", "mode", "use", "only", "key", "x"]),
    toml_values,
)
def test_any_value_of_any_key_is_read_or_refused_on_its_line(section: str, name: str, value: str):
    try:
        tomllib.loads(f"{section}.{name} = {value}")
    except ValueError:
        return
    try:
        parse(f"\n{section}.{name} = {value}")
    except SpecError as error:
        refused = error
    else:
        return
    assert refused.line is not None
    assert refused.line >= 2
    assert "\n" not in str(refused)


def test_a_table_of_defaults_prints_nothing():
    assert dump_table(Spec()) == {}


def test_the_readmes_first_spec_reads_as_it_stands(tmp_path: Path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme.partition("## A first spec\n\n```toml\n")[2].partition("```")[0]
    (tmp_path / "box.toml").write_text(block)
    spec = Spec.read(str(tmp_path / "box.toml"), home="/home/u")
    assert spec.files.write == (str(tmp_path),)
    assert spec.files.read == ("/home/u/.config/agent",)
    assert spec.internet.hosts == ("github.com", "*.githubusercontent.com")


def test_a_spec_s_own_file_is_read_only_where_it_is_written(tmp_path):
    (tmp_path / "box").mkdir()
    file, link = tmp_path / "box/box.toml", tmp_path / "link"
    file.write_text("[files]\nwrite = ['.']\n")
    link.symlink_to("box")
    for named in (file, link / "box.toml"):
        made = Confinement.of(Spec.read(str(named)), name="box")
        assert (made.write, made.read) == ((str(file.parent),), (str(file),))
    file.write_text("[files]\nread = ['.']\n")
    assert Confinement.of(Spec.read(str(file)), name="box").read == (str(file.parent),)
    file.write_text(f"[files]\nwrite = ['{tmp_path}/work']\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/way").symlink_to("../box")
    made = Confinement.of(Spec.read(f"{tmp_path}/work/way/box.toml"), name="box")
    assert made.read == (f"{tmp_path}/work/way",), "which is refused, for it is a link"
