"""What a command is, and the parser of them all."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from .. import __version__
from ..support.names import unknown

__all__ = ["Command", "UsageError", "parse"]

_EXAMPLES = """\
examples:
  tustin train digits --model.discretization bil
  tustin predict photo.jpg --checkpoint runs/finetune-mamba-0
  tustin study digits --discretizations zoh,bil --seeds 5

'tustin COMMAND --help' says more about each."""


class UsageError(Exception):
    """The command line itself is wrong."""

    exit_code = 2


@dataclass(frozen=True)
class Command:
    """One subcommand. What it needs it imports inside `configure` and `run`, so that the others start quickly."""

    name: str
    summary: str
    details: str
    """What `tustin NAME --help` says below the options: what comes out, and examples."""
    configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    """Adds the arguments; called only if this command is the one that was asked for."""
    run: Callable[[argparse.Namespace], None] | None = None
    """What it does; a command of commands does nothing by itself but show its help."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    takes_rule: bool = False
    """Whether a rule may be named to it, so that it takes files with rules of the user's own."""


def parse(commands: Mapping[str, Command], argv: Sequence[str]) -> argparse.Namespace | None:
    """The arguments, with what to `run`; None if it was the help or the version that was asked for, and is printed."""
    argv, files = _take_imports(argv)
    asked = _asked_for(commands, argv)
    if files:
        _import(files, asked)
    shared = _Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = _Parser(
        prog="tustin",
        description="State-space models with pluggable discretization.",
        epilog=_EXAMPLES,
        parents=[shared],
        **_OPTIONS,
    )
    parser.add_argument("--version", action="version", version=f"tustin {__version__}")
    _add_commands(parser, commands, asked, shared)
    try:
        args, unknown_words = parser.parse_known_args(argv)
    except SystemExit:  # argparse has printed; its errors are UsageError
        return None
    if unknown_words:
        name = " ".join(["tustin", *(command.name for command in asked)])
        raise UsageError(f"unrecognized arguments: {' '.join(unknown_words)} (see '{name} --help')")
    return args


def _asked_for(commands: Mapping[str, Command], argv: Sequence[str]) -> list[Command]:
    """The command, and the one of its commands, that these words name."""
    asked: list[Command] = []
    for name in (word for word in argv if not word.startswith("-")):
        if not commands:
            break
        if name not in commands:  # argparse would not suggest the nearest
            raise UsageError(unknown("command", name, list(commands)))
        asked.append(commands[name])
        commands = commands[name].commands
    return asked


def _take_imports(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without `--import FILE`, wherever it stands, and the files."""
    words, rest, files = iter(argv), [], []
    for word in words:
        if word == "--import":
            files.append(next(words, ""))
        elif word.startswith("--import="):
            files.append(word.removeprefix("--import="))
        else:
            rest.append(word)
    return rest, files


def _import(files: Sequence[str], asked: Sequence[Command]) -> None:
    """Before the other words are read, because they may name the rules in these files."""
    if not asked or not asked[0].takes_rule:
        raise UsageError(f"--import: 'tustin{f' {asked[0].name}' if asked else ''}' takes no rule")
    from ..discretize import import_rules

    for path in files:
        if not path:
            raise UsageError("argument --import: expected the path of a Python file")
        try:
            import_rules(path)
        except ValueError as error:
            raise ValueError(f"argument --import: {error}") from error


class _Parser(argparse.ArgumentParser):
    """argparse, with a mistake raised to `main` instead of printed below five lines of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see '{self.prog} --help')")


_OPTIONS: dict[str, Any] = {
    "formatter_class": partial(argparse.RawDescriptionHelpFormatter, max_help_position=28),
    "allow_abbrev": False,
}


def _add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, Command], asked: Sequence[Command], shared: _Parser
) -> None:
    parser.set_defaults(run=lambda args: parser.print_help())
    added = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in commands.values():
        subparser = added.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=command.details,
            parents=[shared],
            **_OPTIONS,
        )
        if asked and asked[0].takes_rule:  # which has been done by then: this is for the help
            help_text = "run a Python file that registers rules of your own; may be given several times"
            subparser.add_argument("--import", metavar="FILE", help=help_text)
        if command in asked:
            command.configure(subparser)
        if command.commands:
            _add_commands(subparser, command.commands, asked, shared)
        else:
            subparser.set_defaults(run=command.run)
