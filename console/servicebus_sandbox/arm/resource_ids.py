"""Addresses in Azure Resource Manager: subscription, resource group, and a resource of Microsoft.ServiceBus.

Slashes in names are `%2F` or, by ARM's convention, `~`; ids are written with `~`. Words compare without regard to case.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

PROVIDER = "Microsoft.ServiceBus"
_WITH_SLASHES = ("queues", "topics")


@dataclass(frozen=True, slots=True)
class ArmAddress:
    """The part of an address behind the provider: `words` are collections and operations in lower case.

    `.../namespaces/n/queues/a~b` has the words (namespaces, queues) and the names (n, a/b). `group` is None if the
    address has none.
    """

    subscription: str
    group: str | None
    words: tuple[str, ...]
    names: tuple[str, ...]


def read_address(raw_path: str) -> ArmAddress | None:
    """Return the address in an encoded URL path; None if it is not of this provider."""
    parts = [part for part in raw_path.split("/") if part]
    lower = [part.lower() for part in parts]
    group = None
    if lower[:1] != ["subscriptions"] or len(parts) < 2:
        return None
    at = 2
    if lower[2:3] == ["resourcegroups"] and len(parts) > 3:
        group, at = unquote(parts[3]), 4
    if lower[at : at + 2] != ["providers", PROVIDER.lower()]:
        return None
    words, names = lower[at + 2 :: 2], parts[at + 3 :: 2]
    named = [_name(word, name) for word, name in zip(words, names, strict=False)]
    return ArmAddress(unquote(parts[1]), group, tuple(words), tuple(named))


def entity_path(address: ArmAddress) -> str:
    """Return the path of the queue, topic or subscription at or above the address; empty for a namespace."""
    if address.words[1:2] not in (("queues",), ("topics",)):
        return ""
    below = address.names[1:3] if address.words[2:3] == ("subscriptions",) else address.names[1:2]
    return "/subscriptions/".join(below)


def _name(word: str, raw: str) -> str:
    name = unquote(raw)
    return name.replace("~", "/") if word in _WITH_SLASHES else name


def resource_id(subscription: str, group: str, *path: str) -> str:
    """Return the id of a resource; `path` alternates collections and names as written."""
    parts = "/".join(quote(part.replace("/", "~"), safe="$~") for part in path)
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{PROVIDER}/{parts}"
