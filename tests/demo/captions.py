"""The limit of a scenario's captions."""

from __future__ import annotations

from typing import Final

LONGEST_CAPTION: Final = 58
