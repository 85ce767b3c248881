"""``python -m grader`` is ``kata``, for a machine where nothing can be installed."""

import atexit
import contextlib
import gc
import os
import sys
from typing import NoReturn

NEW_OBJECTS = 50_000  # between two collections: nearly all that a command makes at its start lives until its end


def run() -> NoReturn:
    """The command line as a process: it ends here."""
    code = _run()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it is closed
            stream.flush()
    os._exit(code)  # modules taken apart, threads ended and gigabytes given back one by one would serve nothing


def _run() -> int:
    """The command line, and the end that Ctrl-C gives it: also while it is still being imported."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        if len(sys.argv) > 2 and sys.argv[1] in ("grade", "bench"):  # that may want it, and what they are about
            from grader.sandbox import torch_ahead

            torch_ahead.begin(sys.argv[1:])
        from grader.cli import main

        return main()
    except KeyboardInterrupt:
        print("\nkata: stopped; nothing was left behind", file=sys.stderr)
        return 130


if __name__ == "__main__":
    run()
