"""The names of a drill's entities, and the note in each that identifies it as a drill's.

A drill is called `x-paired-drill-ID`, with 12 hexadecimal digits. Its entities are under this name: in the primary
namespace one for each part of its plan, in the secondary a marker queue and the backlog queues of its pairing. All but
the backlog queues carry a note in their UserMetadata. Backlog queues have exactly the settings of SPEC.md section 4.2,
hence no note: the marker queue beside them, made before and deleted after them, identifies them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Self

PREFIX: Final = "x-paired-drill-"
MARKER: Final = "marker"
BACKLOG: Final = "x-servicebus-transfer"
_ID: Final = r"[0-9a-f]{12}"
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_STRFTIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAME: Final = re.compile(rf"{PREFIX}({_ID})")
_PATH: Final = re.compile(rf"{PREFIX}({_ID})/(disabled|deleted|untouched|{MARKER}|{BACKLOG}/(?:0|[1-9][0-9]{{0,8}}))")
_NOTE: Final = re.compile(
    rf"made by paired drill ({_ID}) at ({_TIME}); over by ({_TIME}); deleted by paired drill --clean"
)


class DrillRole(StrEnum):
    """The fate of an entity in a drill; also the last part of its path."""

    DISABLED = "disabled"
    DELETED = "deleted"
    UNTOUCHED = "untouched"


def drill_name(run: str) -> str:
    """Return the name of a drill, by its id."""
    return f"{PREFIX}{run}"


def role_path(run: str, role: DrillRole) -> str:
    """Return the path of an entity in the primary namespace."""
    return f"{drill_name(run)}/{role}"


def marker_path(run: str) -> str:
    """Return the path of the marker queue in the secondary namespace."""
    return f"{drill_name(run)}/{MARKER}"


def run_of(path: str) -> str:
    """Return the id of the drill whose entity may have this path; "" for any other path."""
    found = _PATH.fullmatch(path)
    return found[1] if found is not None else ""


def run_called(name: str) -> str:
    """Return the id of the drill with this name; "" if no drill can have it."""
    found = _NAME.fullmatch(name)
    return found[1] if found is not None else ""


def is_backlog(path: str) -> bool:
    """Return whether the path is one of a drill's backlog queues."""
    return bool(run_of(path)) and f"/{BACKLOG}/" in path


@dataclass(frozen=True, slots=True)
class DrillNote:
    """The note in a drill's entity. made, until: seconds since the epoch; the drill is over by `until`."""

    run: str
    made: float
    until: float

    def __str__(self) -> str:
        made, until = (datetime.fromtimestamp(at, UTC).strftime(_STRFTIME) for at in (self.made, self.until))
        return f"made by paired drill {self.run} at {made}; over by {until}; deleted by paired drill --clean"

    @classmethod
    def read(cls, metadata: str) -> Self | None:
        """Return the note in an entity's UserMetadata; None if it has no valid one."""
        found = _NOTE.fullmatch(metadata)
        if found is None:
            return None
        try:
            made, until = (datetime.strptime(text, _STRFTIME).replace(tzinfo=UTC) for text in found.groups()[1:])
        except ValueError:
            return None
        return cls(found[1], made.timestamp(), until.timestamp())
