"""The parser for untrusted TOML, with one kind of error for every defect.

Not here: JSON, since its library is not in core (paired_servicebus.foreign_json).
"""

from __future__ import annotations

import tomllib
from typing import Any

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.untrusted_text import repeated


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        UnreadableError: not TOML; the text is a predicate, "is not TOML: ...".
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8 (byte {error.start}): as TOML requires") from error
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UnreadableError("is not TOML: its values are nested too deeply") from error
    except ValueError as error:  # tomllib's own error is one, and so is that of a number with too many digits
        lines = text.splitlines() or [""]
        end = f"at line {len(lines)}, column {len(lines[-1]) + 1}"
        raise UnreadableError(f"is not TOML: {repeated(str(error)).replace('at end of document', end)}") from error
