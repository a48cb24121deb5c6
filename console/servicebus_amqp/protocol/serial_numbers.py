"""Serial numbers: AMQP's 32-bit counters, which wrap (RFC 1982)."""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFFFFFF


def advance(number: int, steps: int) -> int:
    return (number + steps) & MASK


def distance(start: int, end: int) -> int:
    """Return how far `end` is ahead of `start`, from -2**31 to 2**31 - 1; negative if it is behind."""
    return ((end - start + 0x80000000) & MASK) - 0x80000000
