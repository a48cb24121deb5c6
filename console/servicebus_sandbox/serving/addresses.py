"""The addresses that ports listen on, the name of the key that every namespace has, and the emulator's key."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

HOST: Final = "127.0.0.1"
KEY_NAME: Final = "RootManageSharedAccessKey"
PUBLIC_KEY: Final = "SAS_KEY_VALUE"
"""The official emulator's only key, which no other namespace may have."""


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches the address; the only accepted name is `localhost`."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def host_for(address: str) -> str:
    """Return the address in the form of a URL."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.is_unspecified:
        parsed = ip_address("127.0.0.1" if parsed.version == 4 else "::1")
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)
