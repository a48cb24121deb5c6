"""The boards' present failures: what cannot be read or written, and since when."""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import MAX_REASON, bound_text
from paired_servicebus.core.fleet.fleet_documents import Board

_FIRST_WAIT: Final = 10.0
_LONGEST_WAIT: Final = 60.0

READ: Final = "read"
WRITE: Final = "written"


class BoardTroubles:
    """The failures by board and direction, each until the next success."""

    def __init__(self) -> None:
        self._failed: dict[tuple[Board, str], tuple[float, str, int]] = {}

    def failed(self, board: Board, direction: str, reason: str, at: float) -> float:
        """Note a failure; return the seconds to wait before the next attempt."""
        since, _, count = self._failed.get((board, direction), (at, "", 0))
        self._failed[board, direction] = (since, bound_text(reason, MAX_REASON), min(count + 1, 10))
        return min(_FIRST_WAIT * 2.0**count, _LONGEST_WAIT)

    def worked(self, board: Board, direction: str) -> None:
        """Note a success."""
        self._failed.pop((board, direction), None)

    @property
    def text(self) -> str:
        """Return the failures as a sentence; empty: there are none."""
        return "; ".join(
            f"{board} cannot be {direction}: {reason}"
            for (board, direction), (_, reason, _) in sorted(self._failed.items())
        )

    @property
    def since(self) -> float | None:
        """Return the start of the oldest failure."""
        return min((since for since, _, _ in self._failed.values()), default=None)
