"""Node's fetch in `lnk sandbox run`: what an older Node is taught breaks nothing of its own.

Each test runs in a Node that is taught, and in one that knows NODE_USE_ENV_PROXY itself.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sandbox.linux import environment
from tests.e2e.conftest import Nodes
from tests.e2e.run_clients import Box, Call, put, refusal, told
from tests.e2e.run_site import ADDRESS, BIG, HELLO, NAME, Site
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import Server, on_network
from tests.sandbox import lnk

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
URL = f"https://{NAME}/hello.txt"


@pytest.fixture(scope="module")
def servers(
    network: Network, resolver: DnsDouble, authority: Authority
) -> Iterator[tuple[Server, Site]]:
    """The host over TLS and plain."""
    site = Site({"/hello.txt": HELLO, "/big": BIG})
    with (
        on_network(network, ADDRESS, 443, site, authority.context(NAME)) as secure,
        on_network(network, ADDRESS, 80, site),
    ):
        yield secure, site


@dataclass(frozen=True)
class Runner:
    """Runs scripts in one Node, as the ordinary user, in a sandbox that reaches one host."""

    box: Box
    who: lnk.Account
    folder: str
    node: str
    modules: str

    def run(self, script: str, *words: str, name: str = "check.mjs", trust: bool = True, **env):
        """Run a script; it sees what npm installed, and trusts the tests' authority."""
        put(self.folder, name, textwrap.dedent(script))
        set_ = [f"{key}={value}" for key, value in env.items()]
        if trust:
            set_.append(f"NODE_EXTRA_CA_CERTS={self.folder}/ca.pem")
        call = Call(["env", *set_, self.node, *words, name], read=[self.modules])
        return self.box.run(self.who, self.folder, call, [NAME])

    def prints(self, script: str, *words: str, **more: str) -> str:
        """Return what a script that must end well prints."""
        done = self.run(script, *words, **more)
        assert done.returncode == 0, done.stderr
        assert told(done) == []
        assert "Warning" not in done.stderr
        printed: str = done.stdout
        return printed


@pytest.fixture(params=["taught", "knowing"])
def js(
    request: pytest.FixtureRequest, installed: lnk.Installed, network: Network, nodes: Nodes,
    ordinary: lnk.Account, ordinary_folder: str, authority: Authority,
    servers: tuple[Server, Site], dns: DnsDouble,
) -> Runner:  # fmt: skip
    shutil.copy(authority.pem, f"{ordinary_folder}/ca.pem")
    os.chmod(f"{ordinary_folder}/ca.pem", 0o644)
    os.symlink(nodes.modules, f"{ordinary_folder}/node_modules")
    node = nodes.old if request.param == "taught" else nodes.new
    return Runner(Box(installed, network), ordinary, ordinary_folder, node, nodes.folder)


def test_a_module_fetches_at_its_top_level(js):
    assert js.prints(f"console.log(await (await fetch('{URL}')).text())").strip().encode() == (
        HELLO.strip()
    )


def test_a_common_js_program_fetches(js):
    script = f"fetch('{URL}').then((r) => r.text()).then(console.log)"
    assert HELLO.decode() in js.prints(script, name="check.cjs")


def test_one_connection_is_kept_for_an_origin(js, servers):
    before = servers[0].accepted
    script = f"""
        for (let i = 0; i < 4; i++) {{
            await (await fetch('{URL}?' + i)).text();
            await new Promise(setImmediate); // its connection is free again
        }}
    """
    js.prints(script)
    assert servers[0].accepted == before + 1


def test_calls_run_side_by_side(js, servers):
    before = servers[0].accepted
    script = f"""
        const got = await Promise.all([1, 2, 3].map(() => fetch('{URL}').then((r) => r.text())));
        console.log(got.join(''));
    """
    assert js.prints(script).strip() == (3 * HELLO.decode()).strip()
    assert servers[0].accepted > before + 1


def test_a_big_body_passes_both_ways(js):
    script = f"""
        import {{ createHash }} from 'node:crypto';
        const big = Buffer.from(await (await fetch('https://{NAME}/big')).arrayBuffer());
        const answer = await fetch('https://{NAME}/echo', {{ method: 'POST', body: big }});
        const echoed = Buffer.from(await answer.arrayBuffer());
        console.log(big.length, big.equals(echoed));
    """
    assert js.prints(script) == f"{len(BIG)} true\n"


def test_an_abandoned_call_ends_at_once(js):
    script = f"""
        try {{
            await fetch('https://{NAME}/never', {{ signal: AbortSignal.timeout(500) }});
        }} catch (error) {{ console.log(error.name); }}
        const gone = new AbortController();
        const asked = fetch('{URL}', {{ signal: gone.signal }});
        gone.abort();
        try {{ await asked; }} catch (error) {{ console.log(error.name); }}
    """
    assert js.prints(script) == "TimeoutError\nAbortError\n"


def test_a_redirect_leads_from_plain_http_to_tls(js):
    script = f"""
        const answer = await fetch('http://{NAME}/to-https/hello.txt');
        console.log(answer.url, answer.redirected, (await answer.text()).trim());
    """
    assert js.prints(script) == f"{URL} true {HELLO.decode()}"


def test_a_refused_host_is_an_error_that_says_so(js, dns):
    script = """
        try { await fetch('https://other.example.net/'); }
        catch (error) { console.log(error.message, '|', error.cause.message); }
    """
    done = js.run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fetch failed | ")
    if js.node.endswith("old/bin/node"):
        assert "the proxy refused other.example.net:443: 403" in done.stdout
        assert "add --internet-host other.example.net" in done.stdout
    assert told(done) == [refusal("other.example.net")]
    assert dns.asked == []


def test_a_refused_host_over_plain_http_is_refused_too(js, dns):
    script = """
        try { console.log((await fetch('http://other.example.net/')).ok); }
        catch (error) { console.log(false); }
    """
    done = js.run(script)
    assert done.stdout == "false\n", done.stderr
    assert told(done) == [refusal("other.example.net")]
    assert dns.asked == []


def test_a_certificate_that_nothing_vouches_for_is_an_error(js, servers):
    script = f"try {{ await fetch('{URL}'); }} catch (error) {{ console.log(error.cause.code); }}"
    assert js.prints(script, trust=False) in (
        "UNABLE_TO_VERIFY_LEAF_SIGNATURE\n", "SELF_SIGNED_CERT_IN_CHAIN\n",
        "UNABLE_TO_GET_ISSUER_CERT_LOCALLY\n",
    )  # fmt: skip


def test_a_server_of_its_own_is_called_directly(js):
    """By each spelling of loopback; the proxy would refuse it."""
    script = """
        import { createServer } from 'node:http';
        for (const [bound, host] of [['127.0.0.1', 'localhost'], ['127.0.0.1', '127.0.0.1'],
                                     ['127.0.0.1', '127.0.0.2'], ['::1', '[::1]']]) {
            const server = createServer((_, answer) => answer.end('own'));
            await new Promise((go) => server.listen(0, host === '127.0.0.2' ? host : bound, go));
            const said = await (await fetch(`http://${host}:${server.address().port}/`)).text();
            console.log(host, said);
            server.closeAllConnections();
            await new Promise((go) => server.close(go));
        }
    """
    done = js.run(script, NO_PROXY="localhost,127.0.0.1,127.0.0.2,[::1],::1",
                  no_proxy="localhost,127.0.0.1,127.0.0.2,[::1],::1")  # fmt: skip
    assert done.stdout == "localhost own\n127.0.0.1 own\n127.0.0.2 own\n[::1] own\n", done.stderr
    assert told(done) == []


@pytest.mark.parametrize(
    "named", ["*", NAME, "example.org", ".example.org", f"{NAME}:443", f"a.test, {NAME.upper()}"]
)
def test_a_program_may_name_what_goes_past_the_proxy(js, named):
    """Which then reaches nothing: there is no other way out."""
    script = f"try {{ await fetch('{URL}'); }} catch (error) {{ console.log(error.cause.code); }}"
    done = js.run(script, NO_PROXY=named, no_proxy=named)
    assert done.stdout in ("EAI_AGAIN\n", "ENOTFOUND\n"), done.stderr
    assert told(done) == []


def test_what_is_not_named_goes_by_the_proxy(js):
    named = f"other.test,.net,{NAME}:8443,xrun.example.org,x.run.example.org"
    script = f"console.log(await (await fetch('{URL}')).text())"
    assert HELLO.decode() in js.prints(script, NO_PROXY=named, no_proxy=named)


def test_a_worker_fetches(js):
    script = f"""
        import {{ Worker }} from 'node:worker_threads';
        const code = "const {{ parentPort }} = require('node:worker_threads');" +
            "fetch('{URL}').then((r) => r.text()).then((t) => parentPort.postMessage(t));";
        new Worker(code, {{ eval: true }}).on('message', (text) => console.log(text));
    """
    assert HELLO.decode() in js.prints(script)


def test_the_test_runner_runs(js):
    script = f"""
        import test from 'node:test';
        import assert from 'node:assert';
        test('it fetches', async () => {{
            assert.equal(await (await fetch('{URL}')).text(), {HELLO.decode()!r});
        }});
    """
    assert "# pass 1" in js.prints(script, "--test", "--test-reporter=tap")


def test_it_does_not_matter_what_is_loaded_first(js):
    looks = "globalThis[Symbol.for('undici.globalDispatcher.1')]"
    asks = ("new Headers()", "new Request('http://a.test/')", "new FormData()", "new Response('')")
    for first in (*asks, looks):
        script = f"{first}; console.log(await (await fetch('{URL}')).text())"
        assert HELLO.decode() in js.prints(script)


def test_the_undici_package_goes_by_the_proxy_too(js):
    script = f"""
        import {{ request, fetch as other }} from 'undici';
        console.log(await (await request('{URL}')).body.text());
        console.log(await (await other('{URL}')).text());
        console.log(await (await fetch('{URL}')).text());
    """
    assert js.prints(script).count(HELLO.decode()) == 3


@pytest.mark.parametrize("first", ["", "await fetch('data:,');"])
def test_a_dispatcher_of_the_programs_own_is_left_alone(js, first):
    script = f"""
        import {{ Agent, getGlobalDispatcher, setGlobalDispatcher }} from 'undici';
        {first}
        class Own extends Agent {{
            dispatch(options, handler) {{
                console.log('own', String(options.origin));
                return super.dispatch(options, handler);
            }}
        }}
        const own = new Own();
        setGlobalDispatcher(own);
        try {{ await fetch('{URL}'); }} catch (error) {{ console.log(error.cause.code); }}
        console.log(getGlobalDispatcher() === own);
    """
    lines = js.prints(script).splitlines()
    assert lines[0] == f"own https://{NAME}"
    assert lines[1] in ("EAI_AGAIN", "ENOTFOUND")
    assert lines[2] == "true"


def test_a_web_socket_asks_the_proxy(js, dns):
    script = "new WebSocket('wss://other.example.net/').onerror = () => console.log('refused');"
    done = js.run(script)
    assert done.stdout == "refused\n", done.stderr
    assert told(done) == [refusal("other.example.net")]
    assert dns.asked == []


def test_the_surroundings_are_as_they_were(js):
    script = """
        const define = Object.defineProperty;
        console.log(fetch.name, fetch.length, Object.keys(globalThis).includes('fetch'));
        void globalThis[Symbol.for('undici.globalDispatcher.1')];
        await null;
        console.log(Object.defineProperty === define, process.execArgv.length);
        await fetch('data:,');
        console.log(Object.defineProperty === define, typeof globalThis.proxy);
    """
    out = js.prints(script)
    assert out == "fetch 1 true\ntrue 0\ntrue undefined\n"


@pytest.mark.parametrize("proxy", ["", "not a url", "127.0.0.1:9"])
def test_a_proxy_of_the_programs_own_choice_breaks_no_start(js, proxy):
    """An address that is none is the call's error, not the program's end."""
    # What a Node that knows makes of such an address itself is its own.
    set_ = {"NODE_USE_ENV_PROXY": "0"} if js.node.endswith("new/bin/node") else {}
    script = f"""
        console.log('started');
        try {{ await fetch('{URL}'); }} catch (error) {{ console.log(error.message); }}
    """
    done = js.run(script, HTTPS_PROXY=proxy, https_proxy=proxy, **set_)
    assert done.stdout == "started\nfetch failed\n", done.stderr


def test_what_it_is_taught_by_cannot_be_changed(js):
    script = f"""
        import fs from 'node:fs';
        const path = '{environment.NODE_PROXY}';
        for (const act of [() => fs.writeFileSync(path, ''), () => fs.unlinkSync(path),
                           () => fs.renameSync(path, '/tmp/x')]) {{
            try {{ act(); console.log('done'); }} catch (error) {{ console.log(error.code); }}
        }}
    """
    assert set(js.prints(script).split()) <= {"EROFS", "EBUSY", "EXDEV", "EACCES"}
