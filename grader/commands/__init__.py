"""The commands of `kata`, one module per group. A room with its own command has it in `command.py`."""
