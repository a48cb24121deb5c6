"""Link addresses and audiences: what a client calls a node, brought down to the path of an entity.

Clients write `amqps://host:port/orders`, `sb://host/orders` or plain `orders`; slashes inside entity paths arrive as
they are. Whether the entity exists is the broker's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CBS = "$cbs"
MANAGEMENT = "/$management"


class NodeKind(Enum):
    """What sort of node an address names."""

    CBS = "the token node"
    MANAGEMENT = "an entity's management node"
    ENTITY = "an entity or one of its sub-queues"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """`path` is the entity's, without scheme, authority or `/$management`; empty for the token node.

    `resource` is what a token has to cover: the path with its `/$management`; nothing for the token node.
    """

    kind: NodeKind
    path: str
    resource: str


def path_of(uri: str) -> str:
    """The path in `scheme://authority/path`, or the text itself if it has no scheme; no slashes at its ends."""
    scheme, separator, rest = uri.partition("://")
    if separator and "/" not in scheme:
        return rest.partition("/")[2].strip("/")
    return uri.strip("/")


def parse_address(text: str) -> NodeAddress:
    """What a link's source or target address names."""
    path = path_of(text)
    if path.lower() == CBS:
        return NodeAddress(NodeKind.CBS, "", "")
    if path.lower().endswith(MANAGEMENT):
        return NodeAddress(NodeKind.MANAGEMENT, path[: -len(MANAGEMENT)], path)
    return NodeAddress(NodeKind.ENTITY, path, path)


def covers(parent: str, path: str) -> bool:
    """Whether `path` is `parent` or lies below it, by whole segments and without regard to case."""
    parent, path = parent.lower(), path.lower()
    return not parent or path == parent or path.startswith(parent + "/")
