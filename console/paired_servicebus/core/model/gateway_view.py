"""The gateway of one engine and its clients: the frozen values shown by page, status, metrics and fleet.

Texts of clients are strangers' texts: short, masked, one line each (core.gateway.client_names). Times are seconds since
the epoch; None means unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

MAX_CLIENTS: Final = 50
"""Clients in a view, those with trouble first; `GatewayView.count` has all."""
MAX_LINKS: Final = 12
"""Links in a client's view; `GatewayClient.link_count` has all."""
MAX_REFUSALS: Final = 8
MAX_COUNTED: Final = 1000
"""Different clients that are counted for one reason of refusals."""
MAX_ENTITIES: Final = 1000
"""Entities with senders in a view."""


class LinkDirection(StrEnum):
    """The use of a client's link. The values are the words on the screen."""

    SENDS = "sends"
    RECEIVES = "receives"
    MANAGES = "manages"


class SendsGo(StrEnum):
    """Where a sender's messages go now. The values are the words on the screen."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    HELD = "held"
    """They wait for the primary's answer, or for the failover."""
    REFUSED = "refused"
    """Neither namespace takes them."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLink:
    """The links of one client to one entity in one direction."""

    entity: str
    direction: LinkDirection
    goes: SendsGo = SendsGo.UNKNOWN
    """Where its sends go; UNKNOWN for other directions."""
    links: int = 1
    """Attached now; 0: it sent earlier on this connection."""
    accepted: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayClient:
    """One connection to the gateway."""

    id: int
    """Counts the gateway's connections since it started."""
    sdk: str
    """The SDK's language, or the client's own product name; empty: it named none."""
    version: str
    key: str
    """Name of the local key that its latest good token was signed with; empty: none yet."""
    address: str
    """Its host and port."""
    since: float
    container: str = ""
    """The container id of its open."""
    links: tuple[GatewayLink, ...] = ()
    link_count: int = 0
    accepted: int = 0
    """Messages that a namespace accepted, on this connection."""
    refused: int = 0
    """Messages that it got a rejection for."""
    accepted_per_second: float = 0.0
    refused_per_second: float = 0.0
    refused_since: float | None = None
    """Start of the present series of refusals; None: its latest send was accepted."""
    last_refused_at: float | None = None
    last_condition: str = ""
    """The AMQP condition of the latest refusal of a send or link."""
    last_refusal: str = ""
    """Its sentence."""
    bytes_in_hand: int = 0
    """Bytes of its sends under way."""
    paused: bool = False
    """Whether it is not read, because too many bytes are in hand."""

    @property
    def failing(self) -> bool:
        """Return whether its latest send was refused."""
        return self.refused_since is not None

    @property
    def goes(self) -> frozenset[SendsGo]:
        """Return where its sends go."""
        return frozenset(link.goes for link in self.links if link.direction is LinkDirection.SENDS)


class TurnedAway(StrEnum):
    """Why a client was not let in. The values are labels of metrics."""

    WRONG_KEY = "wrong key"
    BAD_TOKEN = "bad token"
    """Expired, or for another address."""
    MISSING_RIGHT = "missing right"
    WRONG_PROTOCOL = "wrong protocol"
    ENGINE_REFUSED = "engine refused"
    """The primary refused the engine's own credential; the client's key is good."""
    REFUSED_LINK = "refused link"
    REFUSED_REQUEST = "refused request"
    """Of administration."""
    UNKNOWN_ERROR = "unknown error"
    """Its request ended with an error of a kind that no table knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedAwayView:
    """The clients that were turned away for one reason, since the gateway started."""

    why: TurnedAway
    count: int
    """Different clients, by host, SDK, version and key; at most MAX_COUNTED."""
    last_at: float
    last_text: str
    """The sentence that the latest one got."""
    times: int = 0
    """Refusals: a client that tries again gets another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRefusal:
    """Refusals of one condition to senders of one key and entity. Python's SDK connects again after each of them."""

    entity: str
    key: str
    sdk: str
    version: str
    """Of the latest client."""
    condition: str
    sentence: str
    count: int
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayView:
    """The gateway of one engine."""

    address: str
    port: int
    since: float | None = None
    """Time since which it listens; None: it does not."""
    trouble: str = ""
    """Why it does not listen; empty: it does."""
    count: int = 0
    """All clients."""
    clients: tuple[GatewayClient, ...] = ()
    """At most MAX_CLIENTS, those with trouble first."""
    failing: int = 0
    """Clients whose latest send was refused, of all."""
    senders: tuple[tuple[str, int], ...] = ()
    """Entities with their sender links, of all clients."""
    accepted: int = 0
    """Messages since the gateway started, those of ended connections too."""
    refused: int = 0
    accepted_per_second: float = 0.0
    refused_per_second: float = 0.0
    bytes_in_hand: int = 0
    bytes_limit: int = 0
    paused: int = 0
    """Connections that are not read until fewer bytes are in hand."""
    paused_since: float | None = None
    turned_away: tuple[TurnedAwayView, ...] = ()
    refusals: tuple[GatewayRefusal, ...] = ()
    """The latest ones, newest first, at most MAX_REFUSALS, of ended connections too."""

    @property
    def more(self) -> int:
        """Return the number of clients that the view leaves out."""
        return max(0, self.count - len(self.clients))

    @property
    def listens(self) -> bool:
        """Return whether clients can connect."""
        return self.since is not None


def without_clients(view: GatewayView) -> GatewayView:
    """Return the sums alone, for reports with a limited size."""
    return replace(view, clients=(), senders=(), turned_away=(), refusals=())
