"""Encoded sample messages: a body of a given size, eight properties, and an id of its own each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import cycle
from typing import Final, Protocol

from paired_servicebus.core.model.envelope import PATH, TICKS_A_SECOND, TIME_TO_LIVE, TIMESPAN
from servicebus_amqp.encoding.amqp_types import Described, Symbol, Timestamp
from servicebus_amqp.encoding.message_sections import (
    Header,
    Properties,
    Sections,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
)

_PLACE: Final = "@@@@@@@@-@@@@-@@@@-@@@@-@@@@@@@@@@@@"
"""The place of the id; as long as usual ids of applications."""
_SENT_AT: Final = 1_767_225_600_000


class MessageSource(Protocol):
    """A source of encoded messages; `size`: bytes of one."""

    size: int

    def next(self) -> bytes:
        """Return the next message."""


class SampleMessages:
    """Encoded messages of `size` bytes; ids are numbers that never repeat in one source."""

    def __init__(self, body: int, *, destination: str | None = None, lives: timedelta | None = None) -> None:
        """body: its bytes. destination: the path in the envelope; None: no envelope. lives: the envelope's time to
        live."""
        envelope: dict[str, object] = {} if destination is None else {PATH: destination}
        if lives is not None:
            envelope[TIME_TO_LIVE] = Described(Symbol(TIMESPAN), round(TICKS_A_SECOND * lives.total_seconds()))
        sent_at = Timestamp(_SENT_AT) if destination is None else str(_SENT_AT)  # the SDK cannot send on a timestamp
        whole = Sections(
            header=write_header(Header(durable=True)),
            properties=write_properties(
                Properties(message_id=_PLACE, subject="order-placed", content_type="application/json")
            ),
            application_properties=write_application_properties(
                {
                    "tenant": "contoso",
                    "region": "westeurope",
                    "schema": "orders/v3",
                    "attempt": 1,
                    "priority": 0.5,
                    "express": True,
                    "sent-at": sent_at,
                    "trace": b"0123456789abcdef",
                    **envelope,
                }
            ),
            body=write_data(bytes(body)),
        ).join()
        self.size = len(whole)
        self._before, self._after = whole.split(_PLACE.encode())
        self._written = 0

    def next(self) -> bytes:
        """Return the next message."""
        self._written += 1
        return b"%b%036d%b" % (self._before, self._written, self._after)


class MixedMessages:
    """Messages of several sources in turn, all of one size."""

    def __init__(self, writers: Sequence[MessageSource]) -> None:
        self.size = max(writer.size for writer in writers)
        self._turn = cycle(writers)

    def next(self) -> bytes:
        """Return the next message."""
        return next(self._turn).next()
