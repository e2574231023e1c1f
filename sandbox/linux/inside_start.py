"""The script of the stage inside: compiled at each start, so short; what it imports is cached.

Its package's folder is searched last: it may be one that the sandbox writes.
"""

import sys

sys.path.append(__file__.rpartition("/sandbox/linux/")[0])

if __name__ == "__main__":
    if sys.argv[1:2] == ["proxy-inside"]:
        from sandbox.linux.relay import run

        run(sys.argv[3:], int(sys.argv[2]))
    from sandbox.linux.inside import main

    main(sys.argv[1:])
