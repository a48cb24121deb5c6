"""What an engine shows its consoles, as pairing.toml's [console] sets it."""

from __future__ import annotations

from typing import Final

from paired_servicebus.settings import Reader, one_of

SHOWN: Final = "shown"
HIDDEN: Final = "hidden"

CONSOLE_KEYS: Final[dict[str, Reader]] = {"bodies": one_of(SHOWN, HIDDEN)}
"""The keys of [console], with their readers. bodies: whether consoles get the bodies of parked messages."""
