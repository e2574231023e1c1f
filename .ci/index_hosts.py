"""Print the hosts of pip's package index as flags for `lnk sandbox run`.

They are read from pip's own configuration and defaults, so that no registry is named here.
Run it with the interpreter whose pip you mean: `.venv/bin/python -I .ci/index_hosts.py`.
"""

from urllib.parse import urlsplit

from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI


def hosts() -> list[str]:
    """Return the index's host and the one that its files come from."""
    configuration = Configuration(isolated=False)
    configuration.load()
    chosen = dict(configuration.items())
    for settings in chosen.values():
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if key.endswith("index-url") and "extra" not in key:
                return [urlsplit(value).hostname or ""]
    return [PyPI.netloc, PyPI.file_storage_domain]


if __name__ == "__main__":
    print(" ".join(f"--internet-host {host}" for host in hosts()))
