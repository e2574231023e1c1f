"""Real clients as people call them in a sandbox, and how a test calls `lnk sandbox run`.

A client is told which authority to trust (the tests' own) and where to put what it gets;
nothing tells it of the sandbox or of its proxy.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.e2e.run_site import HELLO, NAME
from tests.net.namespaces import Network
from tests.sandbox import lnk

PAGE = f"https://{NAME}/hello.txt"
FETCH = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"


@dataclass(frozen=True)
class Call:
    """One client's call: its command line, and what of it tells that it worked.

    result: a file in the written folder; without one `prints` is on its standard output.
    read: what else of the machine it has to see.  environ: who runs it has these as well.
    """

    argv: Sequence[str]
    result: str | None = None
    read: Sequence[str] = ()
    environ: Mapping[str, str] | None = None
    prints: str = HELLO.decode()

    def worked(self, folder: str, out: str) -> bool:
        """Tell whether what was asked for is there."""
        if self.result is None:
            return self.prints in out
        path = os.path.join(folder, self.result)
        return os.path.exists(path) and os.path.getsize(path) > 0


def curl(_: str) -> Call:
    return Call(["curl", "-sS", "-f", "--cacert", "ca.pem", "-o", "out", PAGE], "out")


def wget(_: str) -> Call:
    return Call(["wget", "-q", "-t", "1", "--ca-certificate=ca.pem", "-O", "out", PAGE], "out")


def git(folder: str) -> Call:
    words = ["-c", f"http.sslCAInfo={folder}/ca.pem", "clone", "-q", f"https://{NAME}/repo.git"]
    return Call(["git", *words], "repo/file.txt")


def fetch(folder: str) -> Call:
    trust = f"NODE_EXTRA_CA_CERTS={folder}/ca.pem"
    return Call(["env", trust, "node", "-e", FETCH, PAGE])


RUBY = """
uri = URI(ARGV[0])
Net::HTTP.start(uri.host, uri.port, use_ssl: true, ca_file: 'ca.pem') do |http|
  print http.get(uri.path).body
end
"""


def ruby(_: str) -> Call:
    return Call(["ruby", "-rnet/http", "-e", RUBY, PAGE])


PHP = """
$proxy = str_replace('http://', 'tcp://', getenv('https_proxy'));
$context = stream_context_create(['http' => ['proxy' => $proxy], 'ssl' => ['cafile' => 'ca.pem']]);
$page = file_get_contents($argv[1], false, $context);
if ($page === false) exit(1);
echo $page;
"""


def php(_: str) -> Call:
    """As Composer does: PHP's streams read no environment, so a program hands it to them."""
    return Call(["php", "-r", PHP, PAGE])


PHP_CURL = """
$call = curl_init($argv[1]);
curl_setopt_array($call, [CURLOPT_RETURNTRANSFER => true, CURLOPT_CAINFO => 'ca.pem']);
$page = curl_exec($call);
if ($page === false) { fwrite(STDERR, curl_error($call)); exit(1); }
echo $page;
"""


def php_curl(_: str) -> Call:
    return Call(["php", "-r", PHP_CURL, PAGE])


def keytool(_: str) -> Call:
    """A Java program that every runtime brings, without a compiler; it trusts any server."""
    return Call(["keytool", "-printcert", "-rfc", "-sslserver", NAME], prints="BEGIN CERTIFICATE")


JAVA = """
import java.net.*;
import java.net.http.*;

public class Get {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        var body = HttpResponse.BodyHandlers.ofString();
        System.out.print(HttpClient.newHttpClient().send(request, body).body());
        System.out.print(new String(new URL(words[0]).openStream().readAllBytes()));
    }
}
"""


def java(folder: str) -> Call:
    """Both of Java's own clients, one after the other."""
    put(folder, "Get.java", JAVA)
    with open(f"{folder}/ca.pem") as pem, open(f"{folder}/trust.p12", "wb") as store:
        store.write(java_store(pem.read()))
    trust = "-Djavax.net.ssl.trustStore"
    argv = ["java", f"{trust}=trust.p12", f"{trust}Password=changeit", "Get.java", PAGE]
    return Call(argv, prints=2 * HELLO.decode())


@functools.cache
def java_store(pem: str) -> bytes:
    """Return a key store that trusts one authority: Java reads no PEM."""
    with tempfile.TemporaryDirectory() as folder:
        put(folder, "ca.pem", pem)
        words = ["-noprompt", "-storepass", "changeit", "-file", "ca.pem", "-keystore", "made"]
        subprocess.run(["keytool", "-importcert", *words], cwd=folder, check=True,
                       capture_output=True, timeout=150)  # fmt: skip
        with open(f"{folder}/made", "rb") as store:
            return store.read()


def go(folder: str) -> Call:
    put(folder, "go.mod", f"module app\n\ngo 1.19\n\nrequire {NAME}/demo v1.0.0\n")
    set_ = [f"GOPROXY=https://{NAME}/go", "GONOSUMDB=*", f"SSL_CERT_FILE={folder}/ca.pem",
            f"GOMODCACHE={folder}/mod", "GOFLAGS=-modcacherw"]  # fmt: skip
    result = f"mod/cache/download/{NAME}/demo/@v/v1.0.0.zip"
    return Call(["env", *set_, "go", "mod", "download"], result)


def cargo(folder: str) -> Call:
    put(folder, ".cargo/config.toml",
        f'[registries.double]\nindex = "sparse+https://{NAME}/index/"\n'
        f'[http]\ncainfo = "{folder}/ca.pem"\n')  # fmt: skip
    app = '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n'
    put(folder, "Cargo.toml", f'{app}demo = {{ version = "1", registry = "double" }}\n')
    put(folder, "src/main.rs", "fn main() {}\n")
    path = shutil.which("cargo") or "cargo"
    home = os.path.dirname(os.path.dirname(path))
    read, environ = [], {}
    if not path.startswith("/usr/"):  # rustup's, which stands in a home
        read = [home, os.path.join(os.path.dirname(home), ".rustup")]
        environ = {"HOME": os.path.dirname(home), "PATH": f"{os.path.dirname(path)}:{lnk.PATH}"}
    script = "cargo fetch && cp cargo/registry/cache/*/* out"
    argv = ["env", f"CARGO_HOME={folder}/cargo", "CARGO_NET_RETRY=0", "sh", "-c", script]
    return Call(argv, "out", read, environ)


CLIENTS: dict[str, Callable[[str], Call]] = {
    "curl": curl, "wget": wget, "git": git, "fetch": fetch, "ruby": ruby, "php": php,
    "keytool": keytool,
}  # fmt: skip
"""Those that `.ci/setup test` brings."""


def has_php_curl() -> bool:
    ran = subprocess.run(["php", "-m"], capture_output=True, text=True, check=False)
    return "curl" in ran.stdout.split()


def has_sparse_cargo() -> bool:
    """Tell whether cargo knows sparse registries (1.68): before it asked git for them."""
    if shutil.which("cargo") is None:
        return False
    ran = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    number = ran.stdout.split()[1].split(".") if ran.returncode == 0 else ["0", "0"]
    return (int(number[0]), int(number[1])) >= (1, 68)


OPTIONAL: dict[str, tuple[Callable[[str], Call], Callable[[], bool]]] = {
    "php-curl": (php_curl, has_php_curl),
    "java": (java, lambda: shutil.which("javac") is not None),
    "go": (go, lambda: shutil.which("go") is not None),
    "cargo": (cargo, has_sparse_cargo),
}
"""Tested where the machine has them."""


def put(folder: str, name: str, text: str) -> None:
    """Write a file in a folder."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


@dataclass(frozen=True)
class Box:
    """`lnk sandbox run`, in this machine's network or in one of the tests'."""

    installed: lnk.Installed
    network: Network | None = None

    def run(
        self,
        who: lnk.Account,
        folder: str,
        call: Call,
        hosts: Sequence[str],
        *,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """Run a call in a sandbox that writes `folder`, where it stands, and reaches `hosts`."""
        flags = ["--yes", "--write", folder]
        flags += [word for path in call.read for word in ("--read", path)]
        flags += [word for host in hosts for word in ("--internet-host", host)]
        argv = self.installed.argv("run", *flags, "--", *call.argv)
        environ = call.environ or {}
        if self.network is None:
            return lnk.run(who, argv, environ=environ, cwd=folder, timeout=timeout)
        other = ["setpriv", "--reuid", str(who.uid), "--regid", str(who.gid), "--clear-groups"]
        argv = self.network.argv(*(other if who.uid != os.geteuid() else []), *argv)
        path = environ.get("PATH", lnk.PATH)
        return subprocess.run(
            argv, env={**who.environ, **environ, "PATH": f"/usr/sbin:/sbin:{path}"}, cwd=folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what `run` itself said."""
    return [line for line in done.stderr.splitlines() if line.startswith("lnk sandbox: ")]


def refusal(host: str) -> str:
    """Return the one sentence that `run` prints of a host that isn't listed."""
    return f"lnk sandbox: {host} isn't among the hosts; add --internet-host {host}"
