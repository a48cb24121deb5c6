"""The view of a gateway for its operator, made from the tallies of its connections once a second.

Totals hold the connections that have ended; a send may end after its connection, so those with bytes in hand wait.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final, NamedTuple, Protocol

from paired_servicebus.core.gateway.gateway_sentences import (
    MAX_SENTENCE,
    NAMELESS,
    ClientName,
    foreign,
    is_troubled,
    where_sends_go,
)
from paired_servicebus.core.model.gateway_view import (
    MAX_CLIENTS,
    MAX_COUNTED,
    MAX_ENTITIES,
    MAX_LINKS,
    MAX_REFUSALS,
    GatewayClient,
    GatewayLink,
    GatewayRefusal,
    GatewayView,
    LinkDirection,
    SendsGo,
    TurnedAway,
    TurnedAwayView,
)
from paired_servicebus.core.model.snapshot import EntityView
from servicebus_amqp.encoding.performatives import DeliveryState, Rejected

# What is counted about one client: integers, no object for a message.
#
# A series of refusals has ended if sends were accepted since, so that an accepted send costs one addition and no check.

MAX_SAMPLES: Final = 6
"""Of the totals, a second apart: a rate is over the last seconds."""


class RefusalBook:
    """The latest refusals of a gateway, folded by condition, entity and key: a client may end with each of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], GatewayRefusal] = {}

    def note(self, client: ClientTally, entity: str, at: float, condition: str, sentence: str) -> GatewayRefusal:
        """Count a refusal; return it with those before it."""
        place = (condition, entity.casefold(), client.key)
        known = self._found.pop(place, None)
        found = self._found[place] = GatewayRefusal(
            entity=foreign(entity, MAX_SENTENCE),
            key=client.key,
            sdk=client.name.sdk,
            version=client.name.version,
            condition=foreign(condition, MAX_SENTENCE),
            sentence=foreign(sentence, MAX_SENTENCE),
            count=1 + (known.count if known is not None else 0),
            last_at=at,
        )
        if len(self._found) > MAX_REFUSALS:
            del self._found[next(iter(self._found))]
        return found

    @property
    def newest(self) -> tuple[GatewayRefusal, ...]:
        return tuple(reversed(self._found.values()))


class SendTally:
    """The sends of one connection to one entity. Links add to it, also once their connection has ended."""

    __slots__ = ("_accepted_before", "_client", "_series_since", "accepted", "bytes_in_hand", "entity", "refused")

    def __init__(self, client: ClientTally, entity: str) -> None:
        self._client = client
        self.entity = entity
        self.accepted = 0
        self.refused = 0
        self.bytes_in_hand = 0
        self._accepted_before = -1
        self._series_since = 0.0

    def refuse(self, outcome: DeliveryState, at: float) -> None:
        """Count a send that its client got a rejection for."""
        self.refused += 1
        if self._accepted_before != self.accepted:
            self._accepted_before, self._series_since = self.accepted, at
        error = outcome.error if isinstance(outcome, Rejected) else None
        if error is not None:
            self._client.note_refusal(self.entity, at, error.condition, error.description or "")

    @property
    def refused_since(self) -> float | None:
        """Return the start of the present series of refusals; None: the latest send was accepted."""
        return self._series_since if self._accepted_before == self.accepted else None


class ClientTally:
    """One connection. Times are seconds since the epoch."""

    __slots__ = ("_book", "_samples", "_sends", "address", "id", "key", "name", "refusal", "since")

    def __init__(self, number: int, since: float, book: RefusalBook) -> None:
        self._book = book
        self.id = number
        self.since = since
        self.address = ""
        self.name: ClientName = NAMELESS
        self.key = ""
        self.refusal: GatewayRefusal | None = None
        """The latest refusal of a send or link."""
        self._sends: dict[str, SendTally] = {}
        self._samples: deque[tuple[float, int, int]] = deque(((since, 0, 0),), MAX_SAMPLES)

    def note_refusal(self, entity: str, at: float, condition: str, sentence: str) -> None:
        """Store the latest refusal of a send or link."""
        self.refusal = self._book.note(self, entity, at, condition, sentence)

    def sends_to(self, entity: str) -> SendTally:
        """Return the tally of an entity; a link that attaches again goes on with it."""
        return self._sends.setdefault(entity.casefold(), SendTally(self, entity))

    @property
    def sends(self) -> Iterable[SendTally]:
        return self._sends.values()

    @property
    def bytes_in_hand(self) -> int:
        return sum(one.bytes_in_hand for one in self._sends.values())

    @property
    def accepted(self) -> int:
        return sum(one.accepted for one in self._sends.values())

    @property
    def refused(self) -> int:
        return sum(one.refused for one in self._sends.values())

    @property
    def refused_since(self) -> float | None:
        """Return the start of the longest present series of refusals over its entities."""
        return min((at for one in self._sends.values() if (at := one.refused_since) is not None), default=None)

    def sample(self, now: float) -> tuple[float, float]:
        """Return accepted and refused messages a second over the last samples, and take one."""
        accepted, refused = self.accepted, self.refused
        at, accepted_then, refused_then = self._samples[0]
        self._samples.append((now, accepted, refused))
        seconds = max(now - at, 1.0)
        return (accepted - accepted_then) / seconds, (refused - refused_then) / seconds


LEAST_SECONDS: Final = 0.9
"""Between two views; one that is asked for earlier is the same."""
log = logging.getLogger(__name__)

Links = Iterable[tuple[str, LinkDirection]]
Ways = dict[str, SendsGo]


class CountedConnection(Protocol):
    """A connection, as the census uses it."""

    tally: ClientTally

    def served_links(self) -> Links: ...


class GatewayPlace(NamedTuple):
    """Where a gateway listens. since: None: it does not, and why."""

    address: str
    port: int
    since: float | None
    trouble: str = ""


class GatewayCensus:
    """Counts clients and those turned away. clock: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._number = 0
        self._turned: dict[TurnedAway, TurnedAwayView] = {}
        self._different: dict[TurnedAway, set[tuple[str, ...]]] = {}
        self._leaving: list[ClientTally] = []
        self._past = (0, 0)
        self._book = RefusalBook()
        self._paused_since: float | None = None
        self._view: tuple[float, GatewayView] | None = None
        self._unknown: set[type[BaseException]] = set()

    def enter(self) -> ClientTally:
        """Return the tally of a new connection."""
        self._number += 1
        return ClientTally(self._number, self._clock(), self._book)

    def leave(self, tally: ClientTally) -> None:
        """Note the end of a connection."""
        self._leaving.append(tally)

    def turn_away(self, why: TurnedAway, text: str, client: ClientTally | None = None) -> None:
        """Count a client that is not let in; `text` is what it got for an answer."""
        known, different = self._turned.get(why), self._different.setdefault(why, set())
        if client is not None and len(different) < MAX_COUNTED:
            different.add((client.address.rpartition(":")[0], client.name.sdk, client.name.version, client.key))
        self._turned[why] = TurnedAwayView(
            why=why,
            count=max(1, len(different)),
            times=1 + (known.times if known is not None else 0),
            last_at=self._clock(),
            last_text=foreign(text, MAX_SENTENCE),
        )

    def count_unknown(self, error: BaseException) -> None:
        """Count an error of a kind that no table knows; the first one of each kind is in the log."""
        kind = type(error)
        self.turn_away(TurnedAway.UNKNOWN_ERROR, f"{kind.__name__}: {error}")
        if kind not in self._unknown:
            self._unknown.add(kind)
            log.error("a client's request failed inside the gateway; the next %s is counted", kind, exc_info=error)

    def view(
        self,
        connections: Iterable[CountedConnection],
        entities: Iterable[EntityView],
        place: GatewayPlace,
        *,
        in_hand: tuple[int, int],
        paused: frozenset[ClientTally],
    ) -> GatewayView:
        """Return the gateway now. in_hand: bytes, and their limit."""
        now = self._clock()
        if self._view is not None and 0 <= now - self._view[0] < LEAST_SECONDS and self._view[1].port == place.port:
            return self._view[1]
        ways = {one.path.casefold(): where_sends_go(one) for one in entities}
        senders: Counter[str] = Counter()
        clients = [_client(one, now, ways, senders, one.tally in paused) for one in connections]
        past_accepted, past_refused = self._fold()
        self._paused_since = (self._paused_since or now) if paused else None
        view = GatewayView(
            address=place.address,
            port=place.port,
            since=place.since,
            trouble=place.trouble,
            count=len(clients),
            clients=tuple(nsmallest(MAX_CLIENTS, clients, key=_urgency)),
            failing=sum(one.failing for one in clients),
            senders=tuple(senders.most_common(MAX_ENTITIES)),
            accepted=past_accepted + sum(one.accepted for one in clients),
            refused=past_refused + sum(one.refused for one in clients),
            accepted_per_second=sum(one.accepted_per_second for one in clients),
            refused_per_second=sum(one.refused_per_second for one in clients),
            bytes_in_hand=in_hand[0],
            bytes_limit=in_hand[1],
            paused=len(paused),
            paused_since=self._paused_since,
            turned_away=tuple(self._turned.values()),
            refusals=self._book.newest,
        )
        self._view = (now, view)
        return view

    def _fold(self) -> tuple[int, int]:
        """Return the totals of the connections that have ended."""
        ended = [one for one in self._leaving if not one.bytes_in_hand]
        self._leaving = [one for one in self._leaving if one.bytes_in_hand]
        accepted, refused = self._past
        self._past = (accepted + sum(one.accepted for one in ended), refused + sum(one.refused for one in ended))
        left = self._leaving
        return self._past[0] + sum(one.accepted for one in left), self._past[1] + sum(one.refused for one in left)


def _urgency(client: GatewayClient) -> tuple[bool, float, float, int]:
    """Sort those with trouble first, then the busiest."""
    return (not is_troubled(client), -client.refused_per_second, -client.accepted_per_second, client.id)


def _client(
    connection: CountedConnection, now: float, ways: Ways, senders: Counter[str], paused: bool
) -> GatewayClient:
    tally = connection.tally
    links = _links(connection, ways, senders)
    accepted_per_second, refused_per_second = tally.sample(now)
    refusal = tally.refusal
    return GatewayClient(
        id=tally.id,
        sdk=tally.name.sdk,
        version=tally.name.version,
        container=tally.name.container,
        key=tally.key,
        address=tally.address,
        since=tally.since,
        links=links[:MAX_LINKS],
        link_count=sum(link.links for link in links),
        accepted=tally.accepted,
        refused=tally.refused,
        accepted_per_second=accepted_per_second,
        refused_per_second=refused_per_second,
        refused_since=tally.refused_since,
        last_refused_at=refusal.last_at if refusal is not None else None,
        last_condition=refusal.condition if refusal is not None else "",
        last_refusal=refusal.sentence if refusal is not None else "",
        bytes_in_hand=tally.bytes_in_hand,
        paused=paused,
    )


def _links(connection: CountedConnection, ways: Ways, senders: Counter[str]) -> tuple[GatewayLink, ...]:
    """Return its links by entity and direction, those that send first."""
    sent = {one.entity.casefold(): one for one in connection.tally.sends}
    attached = Counter((entity.casefold(), direction) for entity, direction in connection.served_links())
    names = {entity.casefold(): entity for entity, _ in connection.served_links()}
    found = []
    for path in dict.fromkeys((*sent, *(path for path, _ in attached))):
        tally, entity = sent.get(path), sent[path].entity if path in sent else names[path]
        for direction in LinkDirection:
            links = attached[path, direction]
            sends = direction is LinkDirection.SENDS
            if sends and links:
                senders[entity] += links
            if links or (sends and tally is not None):
                found.append(
                    GatewayLink(
                        entity=entity,
                        direction=direction,
                        goes=ways.get(path, SendsGo.UNKNOWN) if sends else SendsGo.UNKNOWN,
                        links=links,
                        accepted=tally.accepted if sends and tally is not None else 0,
                        refused=tally.refused if sends and tally is not None else 0,
                    )
                )
    return tuple(sorted(found, key=lambda one: (one.direction is not LinkDirection.SENDS, one.refused == 0)))
