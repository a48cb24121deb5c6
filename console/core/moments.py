"""Moments as people read them, UTC: the same in sentences, on screens and in reports."""

from __future__ import annotations

from datetime import UTC, datetime


def clock(at: float) -> str:
    """HH:MM:SS."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def day_and_clock(at: float) -> str:
    """YYYY-MM-DD HH:MM:SS."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
