"""Fault: what is wrong with the machine, the repository or a command's arguments, never with a learner's kernel."""

# What Python raises where code of the grader is at fault, and not the machine.
MISTAKES = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError, NameError, ImportError)


def told(error: BaseException) -> str:
    """What Python says of an error, and the line that raised it."""
    import traceback
    from pathlib import Path

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


class Fault(Exception):
    """The message says what, where and what to do. A command ends with it and exit code 2."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, not the way to it."""
        return str(self).splitlines()


class NoTorch(Fault, ImportError):
    """Torch is not installed, and a kata as a function of tensors needs it."""
