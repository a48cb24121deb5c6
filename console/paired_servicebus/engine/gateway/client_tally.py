"""What is counted about one client: integers, no object for a message.

A series of refusals has ended if sends were accepted since, so that an accepted send costs one addition and no check.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from paired_servicebus.core.gateway.client_names import MAX_SENTENCE, NAMELESS, ClientName, foreign
from paired_servicebus.core.model.gateway_view import MAX_REFUSALS, GatewayRefusal
from servicebus_amqp.encoding.messaging_types import DeliveryState, Rejected

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
