"""One row of the table of remedies, and the action that it becomes with real values."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Mapping, Optional, Tuple, Union

from udsprobe.model.action import CHANGES, LOOKS, RESTARTS, Action, by_hand, command
from udsprobe.rules import shell

Value = Union[str, int, Tuple[int, ...], Tuple[str, ...], None]


@dataclass(frozen=True)
class Row:
    """A remedy before it knows what it is about.

    Attributes:
        say, why: sentences. run, undo: lines for bash. In all of them `{name}` stands for a value;
            in lines, text becomes one word of the shell, a tuple its words.
        effect: of `udsprobe.model.action`.
    """

    say: str
    why: str
    run: Optional[str] = None
    effect: str = RESTARTS
    undo: Optional[str] = None

    def action(self, values: Mapping[str, Value]) -> Optional[Action]:
        """None when something is not known that the row cannot do without."""
        say, why = _sentence(self.say, values), _sentence(self.why, values)
        if say is None or why is None:
            return None
        if self.run is None:
            return by_hand(say, why, effect=self.effect)
        run = line(self.run, values)
        if run is None:
            return None
        undo = line(self.undo, values) if self.undo is not None else None
        return command(run, say, why, effect=self.effect, undo=undo)


def look(run: str, say: str, why: str) -> Row:
    """A line that changes nothing."""
    return Row(say, why, run, LOOKS)


def now(run: str, say: str, why: str, undo: Optional[str] = None) -> Row:
    """A line that changes a setting of what runs."""
    return Row(say, why, run, CHANGES, undo)


def reload(say: str, why: str) -> Row:
    """By hand, without a restart."""
    return Row(say, why, effect=CHANGES)


def restart(say: str, why: str) -> Row:
    """By hand, from the next start on."""
    return Row(say, why)


def line(template: str, values: Mapping[str, Value]) -> Optional[str]:
    """`template` with its values as words of a shell; None when one of them is not known."""
    return _filled(template, {name: _words(value) for name, value in values.items()})


def _words(value: Value) -> Value:
    if isinstance(value, tuple):
        return " ".join(shell.word(each) if isinstance(each, str) else str(each) for each in value)
    return shell.word(value) if isinstance(value, str) else value


def _sentence(template: str, values: Mapping[str, Value]) -> Optional[str]:
    return _filled(template, values)


def _filled(template: str, values: Mapping[str, Value]) -> Optional[str]:
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    if any(values.get(name) is None for name in named):
        return None
    return template.format(**values)
