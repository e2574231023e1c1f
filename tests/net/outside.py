"""A network whose machine trusts the tests' authority: there providers have TLS doubles.

The product has no switch for whom it trusts.  So the machine trusts it: `ip netns exec` binds
/etc/netns/<name>/ssl over /etc/ssl, in which the bundle has one authority more.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.net.authority import Authority
from tests.net.namespaces import Network

BUNDLE = "certs/ca-certificates.crt"


class TrustingNetwork(Network):
    """A pair of namespaces; commands on the client side trust an authority of the tests'."""

    def __init__(self, tag: str, authority: Authority) -> None:
        self._authority = authority
        super().__init__(tag)

    def _make(self) -> None:
        super()._make()
        shown = self._etc / "ssl"
        (shown / "certs").mkdir(parents=True)
        settings = Path("/etc/ssl/openssl.cnf")
        if settings.exists():
            shutil.copy(settings, shown / "openssl.cnf")
        machine = Path("/etc/ssl", BUNDLE)
        known = machine.read_bytes() if machine.exists() else b""
        (shown / BUNDLE).write_bytes(known + self._authority.pem.read_bytes())
