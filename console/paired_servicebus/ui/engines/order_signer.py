"""The operator's key, as the program that opens the dashboard passes it: the screen knows no keys and no signatures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSigner:
    """Signs orders over the fleet. key: its name for the screen; sign: raises PairedError with what to do."""

    key: str
    sign: Callable[[bytes], Awaitable[str]]
