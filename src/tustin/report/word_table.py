"""A table of rich that fits the terminal without breaking a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

__all__ = ["WordTable"]

READABLE = 24
"""Letters to a line below which text is not squeezed."""


class WordTable(Table):
    """Columns that find no room beside the others stand in further tables below, beside the first column again."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needs = [_need(column, console, options) for column in self.columns]
        width, apart = options.max_width, 1 + self.padding[1]
        names = min(needs[0].minimum, width // 2)  # a long path is folded, so that the others stand beside it
        needs[0] = Measurement(names, needs[0].maximum)
        groups = [*_groups([need.minimum for need in needs], width, apart)]
        closer = [*_groups([need.minimum for need in needs], width, 1)]
        if len(closer) < len(groups):
            groups, apart = closer, 1
        for number, group in enumerate(groups):
            if number:
                yield ""
            room = width - apart * (len(group) - 1)
            yield from self._part(group, _widths([needs[i] for i in group], room), apart - 1).plain(console, options)

    def plain(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich draws it."""
        return super().__rich_console__(console, options)

    def _part(self, group: Sequence[int], widths: Sequence[int], gap: int) -> WordTable:
        columns = [replace(self.columns[i], width=width) for i, width in zip(group, widths, strict=True)]
        part = WordTable(*columns, box=self.box, padding=(0, gap, 0, 0), header_style=self.header_style)
        part.pad_edge, part.show_edge, part.rows = self.pad_edge, self.show_edge, self.rows
        return part


def _need(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """From the least that a column can be read in to its longest line; a title may wrap between any two words."""
    cells = [Measurement.get(console, options, cell) for cell in column.cells]
    title = Measurement.get(console, options, column.header)
    longest = max((cell.maximum for cell in cells), default=0)
    if column.no_wrap or column.justify == "right":  # a number with its unit or interval is one word
        least = longest
    else:
        least = max(min(longest, READABLE), *(cell.minimum for cell in cells), 0)
    return Measurement(max(title.minimum, least), max(title.maximum, longest))


def _groups(needs: Sequence[int], width: int, apart: int) -> Iterator[list[int]]:
    """Columns that stand side by side, by number: as many as there is room for, the first always among them."""
    group, used = [0], needs[0]
    for number, need in enumerate(needs[1:], 1):
        if len(group) > 1 and used + apart + need > width:
            yield group
            group, used = [0], needs[0]
        group.append(number)
        used += apart + need
    yield group


def _widths(needs: Sequence[Measurement], room: int) -> list[int]:
    """At least what each can be read in; what is left goes first to those that lack least for their longest line.

    Where that is more than there is room for, the widest give way.
    """
    widths = [need.minimum for need in needs]
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    left = room - sum(widths)
    for number in sorted(range(len(needs)), key=lambda i: needs[i].maximum - needs[i].minimum):
        more = min(left, max(0, needs[number].maximum - widths[number]))
        widths[number] += more
        left -= more
    return widths
