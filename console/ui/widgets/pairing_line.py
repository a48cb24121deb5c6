"""Which two namespaces, and the times in force: what the clock times on the screen are to be judged by."""

from __future__ import annotations

from collections.abc import Sequence

from console.ui.line import BLANK, Line, Role, Span, spread
from console.ui.view import View
from console.ui.widgets.lines import Lines


class PairingLine(Lines):
    """The primary and its secondary on the left, the times on the right."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """One line."""
        if view.snapshot is None:
            return (BLANK,)
        names = [
            Span(" "),
            Span(view.snapshot.primary),
            Span(" backed by ", Role.MUTED),
            Span(view.snapshot.secondary),
        ]
        return (spread(names, [Span(f"{view.snapshot.times} ", Role.MUTED)], width),)
