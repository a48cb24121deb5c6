"""Link addresses and audiences, reduced to the path of an entity.

Clients write `amqps://host:port/orders`, `sb://host/orders` or plain `orders`; slashes inside an entity's path stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

CBS = "$cbs"
MANAGEMENT = "/$management"


class NodeKind(Enum):
    """The kind of node that an address names."""

    CBS = "the token node"
    MANAGEMENT = "an entity's management node"
    ENTITY = "an entity or one of its sub-queues"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """path: the entity's, without scheme, authority or `/$management`; empty for the token node.

    resource: the path that a token has to cover, with its `/$management`; empty for the token node.
    """

    kind: NodeKind
    path: str
    resource: str


def path_of(uri: str) -> str:
    """Return the path in `scheme://authority/path`, or the text itself without a scheme; outer slashes are stripped."""
    scheme, separator, rest = uri.partition("://")
    if separator and "/" not in scheme:
        return rest.partition("/")[2].strip("/")
    return uri.strip("/")


def audience_path(uri: str) -> str:
    """Return the path that a token's audience names, decoded and without outer slashes."""
    return unquote(path_of(uri)).strip("/")


def parse_address(text: str) -> NodeAddress:
    """Parse the address of a link's source or target."""
    path = path_of(text)
    if path.lower() == CBS:
        return NodeAddress(NodeKind.CBS, "", "")
    if path.lower().endswith(MANAGEMENT):
        return NodeAddress(NodeKind.MANAGEMENT, path[: -len(MANAGEMENT)], path)
    return NodeAddress(NodeKind.ENTITY, path, path)


def covers(parent: str, path: str) -> bool:
    """Return whether `path` is `parent` or below it, by whole segments and without regard to case."""
    parent, path = parent.lower(), path.lower()
    return not parent or path == parent or path.startswith(parent + "/")
