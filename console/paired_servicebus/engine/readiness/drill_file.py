"""The file with a pairing's last drill, in its state folder: written by `paired drill`, read by checks and engines.

Names identify the namespaces, because an application's engine has another state folder than its pairing.toml.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.drill.last_drill import LastDrill
from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.instance.engine_paths import EnginePaths, all_drill_files
from paired_servicebus.foreign_json import read_json

MAX_BYTES: Final = 64 * 1024

log = logging.getLogger(__name__)


class DrillFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content. run: the drill's id; primary, secondary: the names of the namespaces."""

    run: str
    primary: str
    secondary: str
    drill: LastDrill


_DECODER: Final = msgspec.json.Decoder(DrillFile)


def write_drill(places: EnginePaths, content: DrillFile) -> None:
    """Replace the pairing's file. Raises OSError."""
    places.drill.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(places.drill, msgspec.json.encode(content))


def last_drill(*, primary: str, secondary: str) -> LastDrill | None:
    """Return the last drill on these namespaces by this user on this machine; None if none is known."""
    wanted = (primary.casefold(), secondary.casefold())
    found = [one.drill for one in _files() if (one.primary.casefold(), one.secondary.casefold()) == wanted]
    return max(found, key=lambda drill: drill.began, default=None)


def _files() -> Iterator[DrillFile]:
    for path in all_drill_files():
        found = _read(path)
        if found is not None:
            yield found


def _read(path: Path) -> DrillFile | None:
    try:
        with path.open("rb") as file:
            return read_json(_DECODER, file.read(MAX_BYTES))
    except (OSError, UnreadableError) as error:
        log.warning("the last drill in %s cannot be read: %s", path, error)
        return None
