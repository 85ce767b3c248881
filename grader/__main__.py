"""``python -m grader`` is ``kata``, for a machine where nothing can be installed."""

import atexit
import gc
import sys

NEW_OBJECTS = 50_000  # between two collections: nearly all that a command makes at its start lives until its end


def run() -> int:
    """The command line, and the end that Ctrl-C gives it: also while it is still being imported."""
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)  # what lives until the end goes with the process: no search for circles in it
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
    sys.exit(run())
