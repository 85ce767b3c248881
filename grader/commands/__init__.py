"""The commands of `kata`, a module for each group; a room with a command of its own has it in `command.py`."""
