"""The addresses that ports listen on, the name of the key that every namespace has, and the emulator's key."""

from __future__ import annotations

from collections.abc import Mapping
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


def proxy_remark(environ: Mapping[str, str]) -> str | None:
    """Return a warning if clients of HTTP will ask a proxy for this machine; None if they will not."""
    found = {name.upper(): value for name, value in environ.items() if name.upper() in _PROXIES and value}
    if not found or not {"*", HOST, "127.0.0.0/8"}.isdisjoint(_spared(environ)):
        return None
    return (
        f"{' and '.join(sorted(found))} is set: administration clients will ask the proxy for {HOST}, and fail; "
        f"set NO_PROXY={HOST},localhost beside it"
    )


_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def _spared(environ: Mapping[str, str]) -> set[str]:
    """Return the hosts that go past the proxy."""
    return {host.strip() for name, value in environ.items() if name.upper() == "NO_PROXY" for host in value.split(",")}


def host_for(address: str) -> str:
    """Return the address in the form of a URL."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.is_unspecified:
        parsed = ip_address("127.0.0.1" if parsed.version == 4 else "::1")
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)
