"""Processes that end with all they started, and what they use of the machine."""
