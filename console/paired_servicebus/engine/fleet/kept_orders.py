"""The fleet's standing orders on disk, for the next engine of this name until it has read the board.

The file is beside the journal. Only the engine's own user can write there; the board decides as soon as it is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.fleet.orders.order_book import KeptOrders
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.durable_file import replace_file
from paired_servicebus.foreign_json import read_json

NAME: Final = "fleet-standing.json"
_DECODER: Final = msgspec.json.Decoder(KeptOrders)


def read_kept(spool: Path) -> KeptOrders:
    """Return the stored orders; none if there is no file.

    Raises:
        OSError: the file cannot be read.
        UnreadableError: it contains no orders.
    """
    try:
        kept = read_json(_DECODER, (spool / NAME).read_bytes())
    except FileNotFoundError:
        return KeptOrders()
    for one in kept.standing:
        if one.verb not in BY_ID or one.scope not in Scope.__members__.values():
            raise UnreadableError(f"this version knows no order {one.verb!r}")
    return kept


def write_kept(spool: Path, kept: KeptOrders) -> None:
    """Replace the file. Raises OSError."""
    replace_file(spool / NAME, msgspec.json.encode(kept))
