"""Foreign text made safe for terminals, logs and files: characters that move, hide or turn other text are escaped.

Entity paths, message ids, reasons and engine names come from namespaces, queues and disks. Not here: masking secrets
(masking.py), escaping for a format such as Markdown or SVG, and JSON, since its library is not in core
(paired_servicebus.foreign_json).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any, Final

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.text.time_format import DAY, written

REPEATED: Final = 160
"""Maximum characters of foreign text in a sentence of ours."""
_WIDEST: Final = 2**63
_NOT_PRINTABLE: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0 and C1 controls: cursor movement, colours, bells
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb"  # invisible, breaking lines, or turning direction
    "\ufe00-\ufe0f"  # variation selectors: terminals disagree about the width
    "\ud800-\udfff\U000e0000-\U000e0fff"
    "]"
)


def harmless(text: str) -> str:
    r"""Escape every character that could move, hide or turn other text, such as `\x1b`."""
    return _NOT_PRINTABLE.sub(_escape_character, text) if _NOT_PRINTABLE.search(text) else text


def one_line(text: str, *, most: int | None = None) -> str:
    """Return the text as one harmless line of at most `most` characters; white space is collapsed."""
    joined = harmless(" ".join(text.split()))
    return joined if most is None or len(joined) <= most else f"{joined[: most - 1]}…"


def repeated(text: str) -> str:
    """Return the text as one harmless line of at most REPEATED characters."""
    return one_line(text, most=REPEATED)


def indent_lines(text: str) -> str:
    """Return a harmless text of several lines. All but the first are indented, so that none resembles a new text."""
    return "\n  ".join(harmless(line) for line in text.split("\n"))


def escape_json(encoded: str) -> str:
    """Escape the same characters in JSON by JSON's own escapes, which keeps the values."""
    return _NOT_PRINTABLE.sub(_escaped, encoded) if _NOT_PRINTABLE.search(encoded) else encoded


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if character < "\x20":  # between values; within them the encoder has escaped it
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse a TOML document. Raises UnreadableError: not TOML; the text is a predicate, "is not TOML: ..."."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8 (byte {error.start}): as TOML requires") from error
    try:
        document = tomllib.loads(text)
    except RecursionError as error:
        raise UnreadableError("is not TOML: its values are nested too deeply") from error
    except ValueError as error:  # tomllib's own error is one, and so is that of a number with too many digits
        lines = text.splitlines() or [""]
        end = f"at line {len(lines)}, column {len(lines[-1]) + 1}"
        raise UnreadableError(f"is not TOML: {repeated(str(error)).replace('at end of document', end)}") from error
    if _has_wide_integer(document):
        raise UnreadableError("is not TOML: it has an integer of more than 64 bits")
    return document


def _has_wide_integer(document: dict[str, Any]) -> bool:
    """Return whether it has an integer that TOML does not know: Python cannot print every one of them."""
    left: list[Any] = [document]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
            return True
    return False


# Names, reasons and times from documents that anybody with a key may have posted: each one harmless, short line.

MAX_NAME: Final = 40
MAX_REASON: Final = 120


def name(text: str) -> str:
    """Return a foreign name as one short, harmless line."""
    return one_line(text, most=MAX_NAME) or "(no name)"


def reason(text: str) -> str:
    """Return a foreign reason as one short, harmless line."""
    return one_line(text, most=MAX_REASON)


def names(found: Sequence[str], most: int | None = None) -> str:
    """Return the names, or the first ones and the number of the others."""
    shown = [name(one) for one in (found if most is None else found[:most])]
    left = len(found) - len(shown)
    return ", ".join(shown) + (f" and {left:,} more" if left else "")


def minute(at: float, now: float) -> str:
    """Format a time as HH:MM, with its day if it is over a day away."""
    return written(at, "%H:%M") if abs(at - now) < DAY else written(at, "%d %b %H:%M")


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts web-2 before web-10; digits beyond ASCII are text."""
    return tuple(
        (int(part[:18]) if part.isascii() and part.isdigit() else -1, part) for part in re.split(r"([0-9]+)", text)
    )
