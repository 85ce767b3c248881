"""argparse's parser + the katas -> a completion script for a shell: commands, options, what they take, and katas.

The script holds all it needs, so that pressing Tab starts no Python; it is written again after an update.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.content.catalog import LEVELS, Catalog
from grader.content.tracks import FILE as TRACKS
from grader.content.tracks import load_tracks
from grader.content.trial import load_trials
from grader.output.console import Commands, examples, open_catalog

NAMED = ("KATA", "NAME", "NAME|WORD")  # metavars of what names katas
NUMBERED = "TODO"  # the metavar of a TODO's number, after a kata

_NOTE = "# Completion of kata's commands. Written by `kata completion {shell}`; write it again after an update."


@dataclass(frozen=True)
class Option:
    """``values`` is what may follow; empty for a flag, None for a file or anything else."""

    names: tuple[str, ...]
    values: tuple[str, ...] | None
    help: str


@dataclass
class Command:
    """``path`` are the words after `kata`. ``words`` are its commands and the choices of its arguments."""

    path: tuple[str, ...]
    help: str
    options: list[Option] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    takes_katas: bool = False
    takes_todos: bool = False

    @property
    def option_names(self) -> list[str]:
        return [name for option in self.options for name in option.names]


def _commands(
    parser: argparse.ArgumentParser, values: Mapping[str, Sequence[str]], path: tuple[str, ...] = (), text: str = ""
) -> Iterator[Command]:
    """Every command below the parser, itself first, whose path is empty. ``values``: what a metavar stands for."""
    command = Command(path, text)
    below: list[tuple[str, argparse.ArgumentParser, str]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below += [(name, sub, helps.get(name, "")) for name, sub in action.choices.items()]
            command.words += action.choices
        elif action.option_strings:
            command.options.append(Option(tuple(action.option_strings), _values(action, values), _plain(action.help)))
        elif action.choices is not None:
            command.words += map(str, action.choices)
        else:
            command.takes_katas |= action.metavar in NAMED
            command.takes_todos |= action.metavar == NUMBERED
    yield command
    for name, sub, said in below:
        yield from _commands(sub, values, (*path, name), _plain(said))


def _values(action: argparse.Action, values: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    if action.choices is not None:
        return tuple(str(choice).replace(" ", "-") for choice in action.choices)  # "not-started" is as good
    if isinstance(action.metavar, str) and action.metavar in values:
        return tuple(values[action.metavar])
    return () if action.nargs == 0 else None


def _plain(text: str | None) -> str:
    return (text or "").replace("%%", "%").partition(";")[0]


def script(shell: str, parser: argparse.ArgumentParser, catalog: Catalog) -> str:
    """The script for one of SHELLS. Katas are completed by name, family and level; after a kata, the TODOs to try."""
    tracks = load_tracks(catalog) if (catalog.root / TRACKS).is_file() else {}
    known = list(_commands(parser, {"FAMILY": catalog.families, "TRACK": [*tracks]}))
    lines = SHELLS[shell](known, [*catalog.katas, *catalog.families, *LEVELS], _numbers(catalog))
    return "\n".join([_NOTE.format(shell=shell), *lines]) + "\n"


def _numbers(catalog: Catalog) -> Mapping[str, list[str]]:
    """The numbers of TODOs that have a trial -> the katas that have them: "1 3" -> [...]."""
    found: dict[str, list[str]] = {}
    for kata in catalog.katas.values():
        if numbers := sorted({number for trial in load_trials(kata) for number in trial.todos}):
            found.setdefault(" ".join(map(str, numbers)), []).append(kata.name)
    return found


def _bash(known: Sequence[Command], katas: Sequence[str], numbers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Works in bash 3.2 and newer, and in zsh by way of its bashcompinit."""
    paths = "|".join(shlex.quote(_joined(command)) for command in known if command.path)
    yield f"_kata_names={shlex.quote(' '.join(katas))}"
    yield "_kata() {"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path="" options="" words="" i'
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield f'        case "$path ${{COMP_WORDS[i]}}" in {paths}) path="$path ${{COMP_WORDS[i]}}" ;; esac'
    yield "    done"
    yield "    COMPREPLY=()"
    yield '    case "$path:$prev" in'
    for command in known:
        for option in command.options:
            if option.values != ():
                patterns = "|".join(shlex.quote(f"{_joined(command)}:{name}") for name in option.names)
                reply = f"{_reply(shlex.quote(' '.join(option.values)))}; " if option.values else ""
                yield f"        {patterns}) {reply}return ;;"
        for todos, tried in numbers.items() if command.takes_todos else ():
            patterns = "|".join(shlex.quote(f"{_joined(command)}:{name}") for name in tried)
            yield f"        {patterns}) {_reply(shlex.quote(todos))}; return ;;"
    yield "    esac"
    yield '    case "$path" in'
    for command in known:
        options, words = (shlex.quote(" ".join(some)) for some in (command.option_names, command.words))
        more = '" $_kata_names"' if command.takes_katas else ""
        yield f"        {shlex.quote(_joined(command))}) options={options}; words={words}{more} ;;"
    yield "    esac"
    yield '    case "$cur" in -*) words="$options" ;; esac'
    yield f"    {_reply(chr(34) + '$words' + chr(34))}"
    yield "}"
    yield "complete -o bashdefault -o default -F _kata kata"


def _reply(words: str) -> str:
    return f'COMPREPLY=($(compgen -W {words} -- "$cur"))'


def _joined(command: Command) -> str:
    return "".join(f" {word}" for word in command.path)


def _zsh(known: Sequence[Command], katas: Sequence[str], numbers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "autoload -Uz compinit bashcompinit"
    yield "(( $+functions[compdef] )) || compinit"
    yield "bashcompinit"
    yield from _bash(known, katas, numbers)


def _fish(known: Sequence[Command], katas: Sequence[str], numbers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield f"set -g __kata_names {' '.join(map(shlex.quote, katas))}"
    yield "complete -c kata -e"
    for command in known:
        begin = f"complete -c kata -n {shlex.quote(_condition(command, known))}"
        below = {other.path[-1]: other.help for other in known if other.path[:-1] == command.path and other.path}
        for word in command.words:
            said = f" -d {shlex.quote(below[word])}" if below.get(word) else ""
            yield f"{begin} -f -a {shlex.quote(word)}{said}"
        if command.takes_katas:
            yield f"{begin} -a '$__kata_names'"
        for todos, tried in numbers.items() if command.takes_todos else ():
            after = f"{_condition(command, known)}; and __fish_seen_subcommand_from {' '.join(tried)}"
            yield f"complete -c kata -n {shlex.quote(after)} -f -a {shlex.quote(todos)}"
        for option in command.options:
            yield f"{begin} {_fish_option(option)}"


def _condition(command: Command, known: Sequence[Command]) -> str:
    """Whether the command is this one: all its words were seen, and none of those that may follow them."""
    below = [other.path[-1] for other in known if other.path and other.path[:-1] == command.path]
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.path]
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {' '.join(below)}"] if below else [])])


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    values = "" if option.values == () else f" -x -a {shlex.quote(' '.join(option.values))}" if option.values else " -r"
    return f"{' '.join(names)}{values}{f' -d {shlex.quote(option.help)}' if option.help else ''}"


SHELLS: Mapping[str, Callable[[Sequence[Command], Sequence[str], Mapping[str, Sequence[str]]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
PLACES = {
    "bash": Path("~/.local/share/bash-completion/completions/kata"),
    "zsh": Path("~/.kata-completion.zsh"),
    "fish": Path("~/.config/fish/completions/kata.fish"),
}


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes kata's commands, options and katas in your shell",
        description="Print a script that completes commands, options, katas and tracks. Write it again after an "
        "update. Exit code 0, or 2 where the katas cannot be read.",
        epilog=examples(
            *(f"kata completion {shell} > {place}" for shell, place in PLACES.items()),
            title="Where the script goes (for zsh, source that file from ~/.zshrc):",
        ),
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(command=_completion)


def _completion(options: argparse.Namespace) -> int:
    print(script(options.shell, options.parser(), open_catalog()), end="")
    return 0
