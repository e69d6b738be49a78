"""Arguments: an argparse whose errors know what was probably meant."""

import argparse
import difflib
from collections.abc import Iterable
from typing import Any


class UsageError(ValueError):
    """Something the command line has to say differently."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that proposes the nearest name for one it does not know. Commands of it are such parsers, too.

    >>> parser = Parser(prog="needle", exit_on_error=False)
    >>> _ = parser.add_argument("--epochs", choices=["one", "two"])
    >>> parser.parse_args(["--epochs", "tow"])
    Traceback (most recent call last):
    argparse.ArgumentError: argument --epochs: invalid choice: 'tow' (did you mean two?; choose from one, two)
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:  # by the command itself, whose usage is shown, not by the one above it
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}{_nearest(unknown[0], self._option_string_actions)}"
            )
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            meant = _nearest(str(value), names).strip(" ()")
            told = f"{meant}; choose from" if meant else "choose from"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} ({told} {', '.join(names)})")


def _nearest(given: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(given.partition("=")[0], list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""
