"""Processes that end with all they started, at Ctrl-C too, and what they use of the machine."""
