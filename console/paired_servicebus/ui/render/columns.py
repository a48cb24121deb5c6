"""The columns of a table that has one line for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from paired_servicebus.ui.render.spans import Span

Row = TypeVar("Row")
Around = TypeVar("Around")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row, Around]):
    """One column. `draw` returns the text and role of a row; its second argument is the same for all rows."""

    title: str
    width: int
    draw: Callable[[Row, Around], Span]
    align: Literal["left", "right"] = "right"
    from_width: int = 0
    """Cells of the narrowest terminal that has it."""


def columns_in(width: int, columns: Sequence[Column[Row, Around]]) -> tuple[Column[Row, Around], ...]:
    """Return the columns of a terminal of that width."""
    return tuple(column for column in columns if width >= column.from_width)
