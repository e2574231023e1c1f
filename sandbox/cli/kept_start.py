"""The script of a kept command: compiled at each start, so short; what it imports is cached."""

import sys
from _frozen_importlib_external import SourceFileLoader

if __name__ == "__main__":
    its = __file__.rpartition("/cli/")[0] + "/finder.py"
    found = {"__file__": its}  # what finds our modules is loaded without them, from its cache
    exec(SourceFileLoader("finder", its).get_code("finder"), found)  # type: ignore[arg-type] # noqa: S102
    sys.meta_path.insert(0, found["Ours"])  # type: ignore[arg-type]
    from sandbox.cli.kept import main

    sys.exit(main(sys.argv[1:]))
