"""The script of a kept command: compiled at each start, so short; what it imports is cached."""

import _frozen_importlib_external as files  # importlib's own, without its package
import posix  # `os` costs a third of a bare sandbox
import sys

PACKAGE = __file__.rpartition("/sandbox/cli/")[0]


class Ours:
    """Finds the modules of our three packages, and nothing else, in the folder that holds them.

    It may be a clone that a sandbox writes: on `sys.path`, whatever was put there under the
    name of a module that some library only tries to import would be run.  Nor does it list
    folders, as the usual finder would do for each of ours.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:  # noqa: ARG004
        """Return where a module of ours is loaded from, None for any other."""
        if name.partition(".")[0] not in ("sandbox", "proto", "shells"):
            return None
        folder = f"{PACKAGE}/{name.replace('.', '/')}"
        try:
            posix.stat(f"{folder}.py")
        except FileNotFoundError:
            return files.spec_from_file_location(
                name, f"{folder}/__init__.py", submodule_search_locations=[folder]
            )
        return files.spec_from_file_location(name, f"{folder}.py")


if __name__ == "__main__":
    sys.meta_path.insert(0, Ours)  # type: ignore[arg-type]
    from sandbox.cli.kept import main

    sys.exit(main(sys.argv[1:]))
