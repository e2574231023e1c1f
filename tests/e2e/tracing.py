"""`lnk`, which tells on a line of stdin how many bytes Python's allocators have given out."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc

from sandbox.cli.main import main


def tell() -> None:
    """Answer each line with the count."""
    for _ in sys.stdin:
        gc.collect()
        print(tracemalloc.get_traced_memory()[0], flush=True)


if __name__ == "__main__":
    tracemalloc.start()
    threading.Thread(target=tell, daemon=True).start()
    sys.argv[0] = "lnk"
    sys.exit(main())
