"""Escape and the next key, read in one piece: both are keys.

A terminal sends escape as the first byte of other keys too, so a quick "escape, /" looks like one key. Textual drops
the escape, or makes another character of both. Sequences of real keys, such as alt and an arrow, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver

ESCAPE: Final = "\x1b"


class EscapeParser(XTermParser):
    """Reads keys from a terminal's bytes."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        """Yield the keys of a sequence. alt: an escape came before it."""
        if isinstance(ANSI_SEQUENCES_KEYS.get(sequence), str) and sequence[0] == ESCAPE and len(sequence) == 2:
            alt, sequence = True, sequence[1]
        if alt:
            yield events.Key("escape", ESCAPE)
        yield from super()._sequence_to_key_events(sequence)


def keep_escapes() -> None:
    """Make the driver of this process's terminal read keys so."""
    linux_driver.XTermParser = EscapeParser  # type: ignore[attr-defined]
