"""JSON from disks, peers and other versions: returns a value or raises UnreadableError.

The library raises its own errors for invalid JSON or a wrong type, UnicodeDecodeError for bytes that are not UTF-8, and
RecursionError for deep nesting. One reader handles all of them, so all foreign JSON is read here.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.untrusted_text import repeated

T = TypeVar("T")


def read_json(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    """Read one value.

    Raises:
        UnreadableError: the bytes contain no value of the decoder's type; the text has the reason.
    """
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply") from error
    except (ValueError, OverflowError) as error:  # msgspec's own errors are ValueErrors, and so is UnicodeDecodeError
        raise UnreadableError(repeated(str(error))) from error
