# SPDX-License-Identifier: Apache-2.0
"""What the demo shows: lines as they come, a progress bar, a summary with the overlap of the units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from aioascend._words import counted
from aioascend.demo.pages import Page
from aioascend.demo.pipeline import Line
from aioascend.testing import UnitOverlap


def progress_bar(console: Console) -> Progress:
    """A progress bar that counts lines; to be used as a context manager."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


class LineReport:
    """A `pipeline.Watcher` that moves a progress bar and, if `show_lines`, prints each line above it."""

    def __init__(self, progress: Progress, title: str, show_lines: bool) -> None:
        self._progress = progress
        self._bar = self._progress.add_task(title, total=0)
        self._found = 0
        self._show_lines = show_lines

    def found(self, page: Page, count: int) -> None:
        self._found += count
        self._progress.update(self._bar, total=self._found)

    def read(self, page: Page, line: Line) -> None:
        self._progress.advance(self._bar)
        if self._show_lines and line.text:
            name, text = escape(page.name), escape(line.text)
            self._progress.console.print(f"[dim]{name:>12}[/dim]  {text}", highlight=False)


@dataclass(frozen=True)
class Summary:
    """What a run of the demo came to; times in seconds, without loading and warming up.

    `characters` and `right` count the pages whose text is known (0 if there are none). `sequential_seconds`
    is None if that run was not wanted, `overlap` None where the device keeps no timeline.
    """

    device: str
    pages: Sequence[Page] = field(repr=False)
    lines: Sequence[Sequence[Line]] = field(repr=False)
    load_seconds: float
    seconds: float
    sequential_seconds: float | None
    characters: int
    right: int
    overlap: UnitOverlap | None

    @property
    def accuracy(self) -> float | None:
        """Characters right to characters printed, 0 to 1; None if no page's text is known."""
        return self.right / self.characters if self.characters else None

    def show(self, console: Console) -> None:
        """Print the summary as a table."""
        table = Table.grid(padding=(0, 2))
        for label, value in self._rows():
            table.add_row(f"[bold]{label}[/bold]", escape(value))
        console.print()
        console.print(table, highlight=False)

    def _rows(self) -> Iterator[tuple[str, str]]:
        count = sum(map(len, self.lines))
        yield "device", self.device
        yield "loading", f"{self.load_seconds:.2f} s, with one run of each model in each shape"
        read = f"{counted(count, 'line')} on {counted(len(self.pages), 'page')}"
        yield "read", f"{read} in {self.seconds:.2f} s"
        if self.accuracy is not None:
            share = f"{100 * self.accuracy:.2f} %"
            yield "right", f"{self.right} of {self.characters} characters on the rendered pages ({share})"
        if self.sequential_seconds is not None:
            factor = self.sequential_seconds / self.seconds
            yield "one by one", f"{self.sequential_seconds:.2f} s for the same, {factor:.2f} times as long"
        if self.overlap is not None:
            busy = (f"{unit} {100 * share:.0f} %" for unit, share in self.overlap.busy.items())
            yield "units busy", ", ".join(busy)
            share = f"{100 * self.overlap.shared:.0f} %"
            yield "overlap", f"{share} of the time two or more of them worked at once"
