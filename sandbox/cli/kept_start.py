"""The script of a kept command: compiled at each start, so short; what it imports is cached."""

import sys
from _frozen_importlib_external import SourceFileLoader

if __name__ == "__main__":
    its = __file__.rpartition("/cli/")[0] + "/finder.py"
    exec(SourceFileLoader("finder", its).get_code("finder"), found := {"__file__": its})
    sys.meta_path.insert(0, found["Ours"])
    from sandbox.cli.kept import main

    sys.exit(main(sys.argv[1:]))
