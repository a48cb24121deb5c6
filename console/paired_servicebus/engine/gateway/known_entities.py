"""The entities of the primary that clients sent to, with their limits, kept on disk over restarts.

While the primary is away, a client may attach to an entity that was seen before; its sends then go to the backlog. A
file that is damaged or foreign is not used: the entities are asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.entity_paths import path_fault
from paired_servicebus.durable_file import replace_file
from paired_servicebus.foreign_json import read_json

Limits = tuple[int, int]
"""Bytes of the largest message, and of the largest batch."""
MAX_ENTITIES: Final = 10_000
"""The quota of queues and topics of a namespace."""
MAX_FILE: Final = 16 * 1024 * 1024
MAX_MESSAGE: Final = 1024 * 1024 * 1024
"""More than any tier accepts."""

log = logging.getLogger(__name__)


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    primary: str
    entities: dict[str, Limits]


_DECODER: Final = msgspec.json.Decoder(_Document)


class KnownEntities:
    """Entities by path, without regard to case; the oldest one leaves when there are too many.

    Args:
        path: the file; None: they are kept in memory only.
        primary: the host of the namespace they belong to; a file of another one is not used.
        warn: called with a sentence for the operator.
    """

    def __init__(self, path: Path | None = None, *, primary: str = "", warn: Callable[[str], object] = str) -> None:
        self._path = path
        self._primary = primary
        self._warn = warn
        self._limits: dict[str, Limits] = {}
        self.is_changed = False
        """Whether the file lacks something."""

    def read(self) -> None:
        """Read the file, if there is one."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_FILE + 1)
            document = _checked(data)
        except FileNotFoundError:
            return
        except (OSError, UnreadableError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._warn(f"the entities in {self._path} cannot be used ({reason}): the primary is asked for them again")
            return
        if document.primary == self._primary:
            self._limits = {path.casefold(): limits for path, limits in document.entities.items()}

    def limits(self, path: str) -> Limits | None:
        """Return an entity's limits as the primary last reported them; None: it was not seen."""
        return self._limits.get(path.casefold())

    def note(self, path: str, limits: Limits) -> None:
        """Keep an entity that the primary has, unless the file could not be read with it."""
        key, plain = path.casefold(), (int(limits[0]), int(limits[1]))
        if self._limits.get(key) == plain or not _is_possible(key, plain):
            return
        self._limits[key] = plain
        if len(self._limits) > MAX_ENTITIES:
            del self._limits[next(iter(self._limits))]
        self.is_changed = True

    def forget(self, path: str) -> None:
        """Forget an entity that the primary does not have."""
        if self._limits.pop(path.casefold(), None) is not None:
            self.is_changed = True

    def write(self) -> None:
        """Write the file if it lacks something; blocks until the disk has it."""
        if self._path is None or not self.is_changed:
            return
        self.is_changed = False
        try:
            replace_file(self._path, msgspec.json.encode(_Document(self._primary, dict(self._limits))))
        except OSError as error:
            log.warning("the gateway's entities were not written to %s: %s", self._path, error)


def _checked(data: bytes) -> _Document:
    """Decode a file's content. Raises UnreadableError."""
    if len(data) > MAX_FILE:
        raise UnreadableError(f"it has more than {MAX_FILE} bytes")
    document = read_json(_DECODER, data)
    if len(document.entities) > MAX_ENTITIES:
        raise UnreadableError(f"it has more than {MAX_ENTITIES} entities")
    for path, limits in document.entities.items():
        if not _is_possible(path, limits):
            raise UnreadableError("it has a path or a limit that no entity has")
    return document


def _is_possible(path: str, limits: Limits) -> bool:
    return not path_fault(path) and all(1 <= limit <= MAX_MESSAGE for limit in limits)
