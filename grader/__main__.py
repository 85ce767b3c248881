"""``python -m grader`` is ``kata``, for a machine where nothing can be installed."""

import sys

from grader.cli import main

sys.exit(main())
