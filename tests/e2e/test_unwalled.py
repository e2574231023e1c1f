"""Real programs as they are under a proxy that wants its secret (R12, R42)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.proxy import LNK
from tests.e2e.run_clients import java_store
from tests.e2e.test_clients import HELLO, git_repository
from tests.net.authority import Authority
from tests.net.dns_double import DnsDouble
from tests.net.namespaces import Network
from tests.net.servers import http, ok, on_network

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1200)]
HOST, NAME = "203.0.113.12", "packages.example.org"
PAGE = f"https://{NAME}/page"

JAVA = """\
import java.net.*;
import java.net.http.*;
public class Auth {
  public static void main(String[] urls) throws Exception {
    String[] login = URI.create(System.getenv("HTTPS_PROXY")).getUserInfo().split(":");
    Authenticator asked = new Authenticator() {
      protected PasswordAuthentication getPasswordAuthentication() {
        return getRequestorType() != RequestorType.PROXY ? null
          : new PasswordAuthentication(login[0], login[1].toCharArray());
      }
    };
    Authenticator.setDefault(asked);
    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
      .proxy(ProxySelector.getDefault()).authenticator(asked).build();
    for (String url : urls) {
      var answer = client.send(HttpRequest.newBuilder(URI.create(url)).build(),
        HttpResponse.BodyHandlers.ofString());
      System.out.print(answer.statusCode() + " " + answer.body());
      HttpURLConnection old = (HttpURLConnection) new URL(url).openConnection();
      System.out.print(old.getResponseCode() + " ");
      System.out.print(new String(old.getInputStream().readAllBytes()));
    }
  }
}
"""


class Run:
    """What ran as it is under its proxy, and the proxy's log."""

    def __init__(self, network: Network, folder: Path, argv: list[str], **more: str) -> None:
        proxy = {"upstream": "direct", "dir": "/nonexistent", "hosts": [NAME]}
        unwalled = {"name": "bare", "proxy": proxy, "pointed": True}
        home = {"LNK_HOME": str(folder / "lnk"), "HOME": str(folder), "PATH": os.environ["PATH"]}
        made = subprocess.run(
            [str(LNK), "sandbox", "wrap"], env=home, check=True, capture_output=True, timeout=150,
            input=json.dumps({"unwalled": unwalled, "argv": argv}).encode(),
        )  # fmt: skip
        wrapped = json.loads(made.stdout)
        self.done = subprocess.run(
            network.argv(*wrapped["argv"]), env={**home, **more, **wrapped["env"]}, cwd=folder,
            capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        log = (folder / "lnk" / "sandbox" / "log" / "bare.jsonl").read_text()
        secret = wrapped["env"]["HTTPS_PROXY"].split(":")[2].partition("@")[0]
        assert secret not in log + self.done.stderr
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines()]

    def statuses(self) -> list[int]:
        """Return the statuses of the calls that were refused."""
        return [line["status"] for line in self.lines if line["verdict"] == "refused"]


def test_curl_sends_the_secret_at_once(
    network: Network, dns: DnsDouble, authority: Authority, tmp_path: Path
) -> None:
    context = authority.context(NAME)
    with on_network(network, HOST, 443, http(lambda head, _: ok(head)), context):
        ran = Run(network, tmp_path, ["curl", "-sS", "--cacert", str(authority.pem), PAGE])
    assert "GET /page HTTP/1.1" in ran.done.stdout, ran.done.stderr
    assert "uthorization" not in ran.done.stdout, "the server never sees it"
    assert ran.statuses() == []
    refused = Run(network, tmp_path, ["curl", "-sS", "https://evil.test/"])
    assert refused.done.returncode == 56
    assert "403" in refused.done.stderr


def test_git_clones_over_https(
    network: Network, dns: DnsDouble, authority: Authority, tmp_path: Path
) -> None:
    files = git_repository(tmp_path)

    def serve(head: bytes, _: bytes) -> bytes:
        path = head.split(b" ")[1].decode().partition("?")[0]
        found = files.get(path)
        return ok(found) if found is not None else b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"

    with on_network(network, HOST, 443, http(serve), authority.context(NAME)):
        argv = ["git", "clone", "-q", f"https://{NAME}/repo.git", str(tmp_path / "clone")]
        ran = Run(network, tmp_path, argv, GIT_SSL_CAINFO=str(authority.pem))
    assert ran.done.returncode == 0, ran.done.stderr
    assert (tmp_path / "clone" / "file.txt").read_bytes() == HELLO


PLAIN = 8461
"""A port of this test's own: 80 is other modules'."""


def test_java_sends_the_secret_once_it_is_asked_on_the_same_connection(
    network: Network, dns: DnsDouble, authority: Authority, tmp_path: Path
) -> None:
    """As Maven does: a proxy that closed behind its 407 would never be told."""
    (tmp_path / "Auth.java").write_text(JAVA)
    (tmp_path / "trust.p12").write_bytes(java_store(authority.pem.read_text()))
    trust = "-Djavax.net.ssl.trustStore"
    argv = ["java", f"{trust}=trust.p12", f"{trust}Password=changeit", "Auth.java",
            PAGE, f"http://{NAME}:{PLAIN}/plain"]  # fmt: skip
    page = http(lambda *_: ok(b"hello\n"))
    with (
        on_network(network, HOST, 443, page, authority.context(NAME)),
        on_network(network, HOST, PLAIN, page),
    ):
        ran = Run(network, tmp_path, argv)
    assert ran.done.stdout == "200 hello\n" * 4, ran.done.stderr
    assert set(ran.statuses()) == {407}
