"""Addresses in Azure Resource Manager: subscription, resource group, and what of Microsoft.ServiceBus is meant.

Slashes in names come as `%2F` or, by ARM's own convention, as `~`; ids are written with `~`. Words that are no names
compare without case. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

PROVIDER = "Microsoft.ServiceBus"
_WITH_SLASHES = ("queues", "topics")


@dataclass(frozen=True, slots=True)
class ArmAddress:
    """What stands behind the provider, by turns: `words` are collections and operations in lower case, and `names`.

    `.../namespaces/n/queues/a~b` has the words (namespaces, queues) and the names (n, a/b). `group` is None where the
    address has none.
    """

    subscription: str
    group: str | None
    words: tuple[str, ...]
    names: tuple[str, ...]


def read_address(raw_path: str) -> ArmAddress | None:
    """The address in a URL's path, still encoded; None for one that is not of this provider."""
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
    """The path of the queue, topic or subscription at or above the address; empty if it is only the namespace's."""
    if address.words[1:2] not in (("queues",), ("topics",)):
        return ""
    below = address.names[1:3] if address.words[2:3] == ("subscriptions",) else address.names[1:2]
    return "/subscriptions/".join(below)


def _name(word: str, raw: str) -> str:
    name = unquote(raw)
    return name.replace("~", "/") if word in _WITH_SLASHES else name


def resource_id(subscription: str, group: str, *path: str) -> str:
    """The id of a resource: `path` is collections and names by turns, as they are to be written."""
    parts = "/".join(quote(part.replace("/", "~"), safe="$~") for part in path)
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{PROVIDER}/{parts}"
