"""The body of a message as lines: as text, as indented JSON, or as bytes in hex. Control characters never pass.

Lines are computed once for a width. A body comes from a stranger and is cut by the engine, so JSON may be incomplete.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Final

from rich.cells import cell_len, chop_cells

from paired_servicebus.core.text.untrusted_text import escape_json, harmless

MAX_LINES: Final = 20_000
"""Lines of one body."""
HEX_BYTES: Final = 16
WIDE_HEX_BYTES: Final = 32
WIDE_HEX_FROM: Final = 140
"""Cells from which a line has WIDE_HEX_BYTES."""


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "JSON"
    HEX = "hex"


def best_form(body: bytes) -> BodyForm:
    """Return the form in which a body is easiest to read."""
    text = as_text(body)
    if text is None:
        return BodyForm.HEX
    return BodyForm.JSON if as_json(body) is not None and text.lstrip()[:1] in ("{", "[") else BodyForm.TEXT


def as_text(body: bytes) -> str | None:
    """Return a body as text, without a character that was cut at its end; None if it is not UTF-8."""
    for missing in range(min(4, len(body) + 1)):
        try:
            return body[: len(body) - missing].decode()
        except UnicodeDecodeError as error:
            if error.start < len(body) - 4:
                return None
    return None


def as_json(body: bytes) -> str | None:
    """Return a body as indented JSON; None if it is not JSON."""
    try:
        return escape_json(json.dumps(json.loads(body), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def body_lines(body: bytes, form: BodyForm, width: int) -> tuple[list[str], str]:
    """Return a body's lines in at most `width` cells, and why it is not in this form; empty if it is."""
    if form is BodyForm.HEX:
        return _hex(body, width), ""
    if form is BodyForm.JSON:
        text = as_json(body)
        if text is not None:
            return _wrapped(text, width), ""
        reason = "not valid JSON, or not all of it is here"
        plain = as_text(body)
        return (_wrapped(plain, width) if plain is not None else _hex(body, width)), reason
    plain = as_text(body)
    if plain is not None:
        return _wrapped(plain, width), ""
    return _wrapped(body.decode("utf-8", "replace"), width), "not UTF-8: \ufffd stands for each byte that is no text"


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for written in text.splitlines():
        shown = harmless(written.replace("\t", "    "))
        lines += chop_cells(shown, max(1, width)) if cell_len(shown) > width else [shown]
        if len(lines) >= MAX_LINES:
            break
    return lines[:MAX_LINES]


def _hex(body: bytes, width: int) -> list[str]:
    number = WIDE_HEX_BYTES if width >= WIDE_HEX_FROM else HEX_BYTES if width >= 76 else 8
    lines = []
    for start in range(0, min(len(body), number * MAX_LINES), number):
        part = body[start : start + number]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * number - 1}}  {letters}")
    return lines
