"""Fault: what is wrong with the machine, the repository or a command's arguments, never with a learner's kernel."""


class Fault(Exception):
    """The message says what, where and what to do. A command ends with it and exit code 2."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, not the way to it."""
        return str(self).splitlines()


class NoTorch(Fault, ImportError):
    """Torch is not installed, and a kata as a function of tensors needs it."""
