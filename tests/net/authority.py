"""A certificate authority of the tests' own; programs under test are told to trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Authority:
    """Issues server certificates; `pem` is the file that clients add to what they trust."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.pem = folder / "test-ca.pem"
        self._ca.cert_pem.write_to_path(str(self.pem))

    def context(self, *names: str) -> ssl.SSLContext:
        """Return a server-side context whose certificate is for these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return a client-side context that trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.pem))
