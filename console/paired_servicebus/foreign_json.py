"""JSON that something else wrote: a disk, a peer, another version. Bytes in, a value or UnreadableError out.

The library raises its own errors for what is no JSON or of another type, UnicodeDecodeError for bytes that are not
UTF-8, and RecursionError for what is nested too deeply. Whoever catches one of them forgets the others: so all JSON
that this process has not just made itself is read here.
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
        UnreadableError: the bytes hold no value of the decoder's type; the text says why.
    """
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply") from error
    except (ValueError, OverflowError) as error:  # msgspec's own errors are ValueErrors, and so is UnicodeDecodeError
        raise UnreadableError(repeated(str(error))) from error
