"""What one pump did since its start, for its queue's line on the screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.model.snapshot import MAX_DESTINATIONS, DestinationView

NOT_STARTED: Final = "not started"
"""A pump's text until it is attached, or has failed to attach."""
MAX_NAMES: Final = 3
MAX_REASONS: Final = 20
OTHER_REASONS: Final = "other reasons: the journal has each"


@dataclass(slots=True)
class PumpProgress:
    """One pump's work since its start."""

    moved: int = 0
    moved_to: Counter[str] = field(default_factory=Counter)
    """Moved messages by destination."""
    dead_lettered: int = 0
    dead_reasons: Counter[str] = field(default_factory=Counter)
    """Reasons of dead letters, at most MAX_REASONS of them; the rest count under OTHER_REASONS."""
    repeated: int = 0
    """Messages that may have arrived twice: in doubt after a lost link, or moved after their lock's end."""
    last_moved_at: float | None = None
    text: str = NOT_STARTED
    failing_since: float | None = None
    set_aside: int = 0
    set_aside_for: Mapping[str, int] = field(default_factory=dict)
    """Messages held back, by destination."""
    unconfirmed: Callable[[], int] = lambda: 0
    """Return the number of moved or dead-lettered messages that the queue has not confirmed."""
    note: str = ""
    """The reason why the pump is of the other kind, or ""."""

    @property
    def line(self) -> str:
        """The pump's text for the view of its queue."""
        parts = [self.text, self.note]
        if self.repeated:
            parts.insert(1, f"{_counted(self.repeated)} may have arrived twice")
        return "; ".join(part for part in parts if part)

    def count_dead_letter(self, reason: str) -> None:
        """Count a dead letter with its reason."""
        self.dead_lettered += 1
        known = reason in self.dead_reasons or len(self.dead_reasons) < MAX_REASONS
        self.dead_reasons[reason if known else OTHER_REASONS] += 1


def most_parked(pumps: Iterable[PumpProgress]) -> tuple[DestinationView, ...]:
    """Return the destinations of an engine's pumps with the most messages held back, then moved."""
    held, moved, paths = Counter[str](), Counter[str](), dict[str, str]()
    for pump in pumps:
        for counts, total in ((pump.set_aside_for, held), (pump.moved_to, moved)):
            for path, count in counts.items():
                key = path.casefold()
                paths.setdefault(key, path)
                total[key] += count
    ranked = sorted(paths, key=lambda key: (-held[key], -moved[key], key))[:MAX_DESTINATIONS]
    return tuple(DestinationView(path=paths[key], set_aside=held[key], moved=moved[key]) for key in ranked)


def format_deferred(count: int, paths: Collection[str]) -> str:
    """Return a pump's text about its deferred messages."""
    names = sorted(paths)
    shown = ", ".join(names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"holds {_counted(count)} for {shown}{more}"


def _counted(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
