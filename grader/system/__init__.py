"""Processes that end with everything they started, also at Ctrl-C, and their use of the machine."""
