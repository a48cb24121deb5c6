"""Connection strings of a namespace: taken apart, and judged.

No sentence here quotes a value of one: they are secrets. Not here: where they come from (paired_servicebus.config).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

Parts = Mapping[str, str]
"""Keys in lower case."""


def parts_of(connection_string: str) -> Parts:
    """Split a connection string; parts without "=" are left out, and reported by `complaint`."""
    pairs = (part.partition("=") for part in connection_string.split(";") if "=" in part)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def complaint(parts: Parts) -> str:
    """Return the reason why it cannot be used, to follow the setting's name; empty if it can."""
    endpoint = split_url(parts.get("endpoint", ""))
    if endpoint is None or endpoint.scheme != "sb" or not endpoint.hostname:
        return "has no Endpoint=sb://HOST/: copy the namespace's connection string whole"
    if not parts.get("sharedaccesssignature") and not (
        parts.get("sharedaccesskeyname") and parts.get("sharedaccesskey")
    ):
        return "has no SharedAccessKeyName and SharedAccessKey: copy the namespace's connection string whole"
    if "entitypath" in parts:
        return "is one entity's (EntityPath); a pairing needs the namespace's"
    return ""


def host_of(parts: Parts) -> str:
    """Return the host, with its port if it has one. For parts without complaint."""
    endpoint = urlsplit(parts["endpoint"])
    name = endpoint.hostname or ""
    host = f"[{name}]" if ":" in name else name
    return host if endpoint.port is None else f"{host}:{endpoint.port}"


def is_emulated(parts: Parts) -> bool:
    """Return whether messaging is plain AMQP; compared case-sensitively, as the SDK does."""
    return parts.get("usedevelopmentemulator") == "true"


def is_loopback(parts: Parts) -> bool:
    """Return whether its host is on this machine."""
    endpoint = split_url(parts.get("endpoint", ""))
    host = (endpoint.hostname if endpoint else None) or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_url(url: str) -> SplitResult | None:
    """Return the URL's parts; None if its host or port is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at only here
    except ValueError:
        return None
    return parts
