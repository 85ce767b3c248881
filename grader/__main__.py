"""``python -m grader`` is ``kata``, for a machine where nothing can be installed."""

import sys


def run() -> int:
    """The command line, and the end that Ctrl-C gives it: also while it is still being imported."""
    try:
        from grader.cli import main

        return main()
    except KeyboardInterrupt:
        print("\nkata: stopped; nothing was left behind", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
