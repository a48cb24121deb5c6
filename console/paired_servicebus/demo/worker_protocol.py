"""The protocol of the demo's two processes: an order in, lines out; JSON, one line each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.demo.result import DemoResult

END: Final = b"end\n"
"""The worker's order to end. An input that ends without it belonged to a process that was killed."""


class PlayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order: the scenario and the folder of its files."""

    scenario: str
    duration: float
    seed: int
    folder: str
    socket: str
    with_tables: bool = False
    """Whether the pipeline follows the journal, for viewers of its tables."""

    @property
    def journal(self) -> Path:
        """The engine's journal."""
        return Path(self.folder) / "journal"

    @property
    def journals(self) -> tuple[Path, ...]:
        """The journals of all engines: the fleet's other hosts have theirs beside this one."""
        others = sorted(one.parent for one in Path(self.folder).glob("*/events") if one.parent != self.journal)
        return (self.journal, *others)

    @property
    def tables(self) -> Path:
        """Where the pipeline writes."""
        return Path(self.folder) / "tables"


class CaptionShown(msgspec.Struct, frozen=True, tag="said"):
    """A caption."""

    text: str


class PlayFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The demo could not be played; one sentence."""

    text: str


class PlayDone(msgspec.Struct, frozen=True, tag="done"):
    """The demo was played to its end."""

    result: DemoResult


WorkerLine = CaptionShown | PlayFailed | PlayDone
