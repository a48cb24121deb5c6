"""The last readings of the backlog queues, beside the number that they should hold by the receipts.

Queues are summed, since one queue's surplus may be another's deficit. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paired_servicebus.core.judging.audit_limits import READING_MARGIN
from paired_servicebus.core.judging.engine_boots import JournalCover
from paired_servicebus.core.judging.receipts import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogReading:
    """A queue's reading. `held`: its messages, with scheduled and dead-lettered ones."""

    pairing: str
    queue: int
    read_at: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogShortage:
    """A queue of a pairing whose queues hold less than their receipts say.

    is_named: whether all its `expected` messages are missing. unnamed: those of the pairing's parked messages that are
    missing, too, and are not known by name.
    """

    read_at: int
    held: int
    expected: int
    is_named: bool
    unnamed: int

    def concerns(self, sums: Receipt) -> bool:
        """Return whether a parked message was there long enough before the reading."""
        return _is_before(sums, self.read_at)


def readings_to(cover: JournalCover, now: int, in_flight: int) -> int:
    """Return the latest reading after which no journal is behind by more than `in_flight`."""
    if cover.until is None:
        return now
    return cover.until - in_flight if cover.until >= now - in_flight else now - in_flight


def shortages_of(
    parked: Iterable[Receipt],
    readings: Iterable[BacklogReading],
    covers: Mapping[str, JournalCover],
    *,
    now: int,
    in_flight: int,
) -> Mapping[tuple[str, int], BacklogShortage]:
    """Return the queues with a shortage, by pairing and queue.

    Args:
        parked: the receipts of messages that are parked as far as the journals go.
    """
    last: dict[tuple[str, int], BacklogReading] = {}
    for one in readings:
        cover, key = covers.get(one.pairing), (one.pairing, one.queue)
        if cover is None or one.read_at > readings_to(cover, now, in_flight):
            continue
        known = last.get(key)
        if known is None or (one.read_at, one.held) > (known.read_at, known.held):
            last[key] = one
    expected: Counter[tuple[str, int]] = Counter()
    for sums in parked:
        reading = last.get((sums.pairing, sums.queue)) if sums.queue is not None else None
        if reading is not None and _is_before(sums, reading.read_at):
            expected[reading.pairing, reading.queue] += 1
    found: dict[tuple[str, int], BacklogShortage] = {}
    for pairing in {pairing for pairing, _ in expected}:
        found |= _of_pairing({key: last[key] for key in last if key[0] == pairing}, expected)
    return found


def _of_pairing(
    last: Mapping[tuple[str, int], BacklogReading], expected: Counter[tuple[str, int]]
) -> dict[tuple[str, int], BacklogShortage]:
    short = sum(expected[key] for key in last) - sum(one.held for one in last.values())
    if short <= 0:
        return {}
    of_empty = sum(expected[key] for key, one in last.items() if one.held == 0)
    can_name = of_empty <= short
    return {
        key: BacklogShortage(
            read_at=one.read_at,
            held=one.held,
            expected=expected[key],
            is_named=can_name and one.held == 0,
            unnamed=short - of_empty if can_name else short,
        )
        for key, one in last.items()
        if expected[key]
    }


def _is_before(sums: Receipt, read_at: int) -> bool:
    return sums.diverted_at is not None and sums.diverted_at + READING_MARGIN < read_at
