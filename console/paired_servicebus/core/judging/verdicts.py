"""Verdicts: the audit summed up, and what each sum rests on.

A verdict is on an entity, on a pairing (`entity` ''), or on everything (`pairing` '' too). A subscription that records
has its own, with deliveries and duplicates only. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.judging.audit import MessageFate, minute_of
from paired_servicebus.core.judging.engine_boots import EngineBoot
from paired_servicebus.core.judging.receipts import Receipt

COUNTED: Final[Mapping[str, Callable[[MessageFate], bool]]] = {
    "attempted": lambda one: one.answer != "never attempted",
    "accepted": lambda one: one.answer == "accepted",
    "refused": lambda one: one.answer == "refused",
    "in_doubt": lambda one: one.answer == "in doubt",
    "recovered": lambda one: (
        one.answer == "in doubt" and (one.received > 0 or (not one.receivers_told and one.moved > 0))
    ),
    "reached": lambda one: one.direct + one.moved > 0 or one.received > 0,
    "delivered": lambda one: one.received > 0,
    "dead_lettered": lambda one: one.status == "dead-lettered",
    "parked": lambda one: one.status == "parked",
    "in_flight": lambda one: one.status == "in flight",
    "missing": lambda one: one.status == "missing",
    "lost": lambda one: one.status == "lost",
    "unknown": lambda one: one.status == "unknown",
    "unexpected": lambda one: one.status == "unexpected",
    "unsent": lambda one: one.answer == "never attempted" and one.received > 0 and one.status != "unexpected",
    "out_of_order": lambda one: one.out_of_order,
}
"""Which messages each figure counts."""
FOREVER: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """One verdict, as the table `verdicts` has it. None: it cannot be known of a subscription."""

    pairing: str
    entity: str
    subscription: str
    counts: Mapping[str, int | None]
    """By the names of COUNTED, and `duplicates`."""
    in_flight_age: float | None
    receivers_told: bool
    journals: int
    journals_complete: int
    complete_to: int | None
    judged_at: int
    rests_on: str


@dataclass(slots=True, kw_only=True)
class _Sums:
    """The sums of some messages."""

    pairing: str
    entity: str = ""
    subscription: str = ""
    counts: dict[str, int | None]
    direct: int = 0
    unnamed: int = 0
    in_flight_age: float | None = None
    recorded_at: int | None = None
    entities: int = 1
    recorded: int = 0


def verdicts(
    fates: Iterable[MessageFate],
    receipts: Iterable[Receipt],
    boots: Sequence[EngineBoot],
    *,
    now: int,
    since: int | None = None,
    until: int | None = None,
) -> list[AuditVerdict]:
    """Return the verdicts on messages first seen between `since` and `until`; None: on all.

    Args:
        now: the time of the judgement.
    """
    begin, end = since if since is not None else -1, until if until is not None else FOREVER
    entities = _by_entity(one for one in fates if begin <= one.first_at <= end)
    journals = _journals(boots, begin, end)
    syphons = {one.pairing for one in boots if one.syphon or one.is_drain}
    syphons |= {""} if syphons else set()
    by_pairing: dict[str, list[_Sums]] = {pairing: [] for pairing in journals}
    for one in entities:
        by_pairing.setdefault(one.pairing, []).append(one)
        by_pairing.setdefault("", []).append(one)
    by_pairing.setdefault("", [])
    recorded = [
        one for one in receipts if one.subscription is not None and one.received and begin <= one.first_at <= end
    ]
    whole = [_total(pairing, found) for pairing, found in by_pairing.items()]
    return [
        _verdict(sums, journals.get(sums.pairing), sums.pairing in syphons, now)
        for sums in (*whole, *entities, *_subscriptions(recorded))
    ]


def _by_entity(fates: Iterable[MessageFate]) -> list[_Sums]:
    found: dict[tuple[str, str], list[MessageFate]] = {}
    for one in fates:
        found.setdefault((one.pairing, one.entity.lower()), []).append(one)
    return [_sum(pairing, group) for (pairing, _), group in found.items()]


def _sum(pairing: str, group: list[MessageFate]) -> _Sums:
    counts: dict[str, int | None] = {name: sum(map(rule, group)) for name, rule in COUNTED.items()}
    counts["duplicates"] = sum(one.duplicates for one in group)
    return _Sums(
        pairing=pairing,
        entity=max(one.entity for one in group),
        counts=counts,
        direct=sum(one.direct > 0 for one in group),
        unnamed=max(one.among_missing or 0 for one in group),
        in_flight_age=max(
            (one.age for one in group if one.status == "in flight" and one.age is not None), default=None
        ),
        recorded_at=max((one.received_at for one in group if one.received_at is not None), default=None),
        recorded=int(any(one.receivers_told for one in group)),
    )


def _total(pairing: str, found: list[_Sums]) -> _Sums:
    """Return the sums of entities. Parked messages that are missing without a name are moved to the missing ones."""
    unnamed: dict[str, int] = {}
    for one in found:
        unnamed[one.pairing] = max(one.unnamed, unnamed.get(one.pairing, 0))
    names = (*COUNTED, "duplicates")
    total = _Sums(
        pairing=pairing,
        counts={name: sum(one.counts[name] or 0 for one in found) for name in names},
        direct=sum(one.direct for one in found),
        unnamed=sum(unnamed.values()),
        in_flight_age=max((one.in_flight_age for one in found if one.in_flight_age is not None), default=None),
        recorded_at=max((one.recorded_at for one in found if one.recorded_at is not None), default=None),
        entities=len(found),
        recorded=sum(one.recorded for one in found),
    )
    total.counts["parked"] = (total.counts["parked"] or 0) - total.unnamed
    total.counts["missing"] = (total.counts["missing"] or 0) + total.unnamed
    return total


def _subscriptions(receipts: Iterable[Receipt]) -> list[_Sums]:
    found: dict[tuple[str, str, str], list[Receipt]] = {}
    for one in receipts:
        found.setdefault((one.pairing, one.entity.lower(), (one.subscription or "").lower()), []).append(one)
    return [
        _Sums(
            pairing=pairing,
            entity=max(one.entity for one in group),
            subscription=max(one.subscription or "" for one in group),
            counts={
                **dict.fromkeys(COUNTED),
                "delivered": len(group),
                "duplicates": sum(max(one.received - one.redelivered - 1, 0) for one in group),
            },
            recorded_at=max((one.received_at for one in group if one.received_at is not None), default=None),
            recorded=1,
        )
        for (pairing, _, _), group in found.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journals:
    """The journals of a pairing's engines."""

    total: int
    complete: int
    complete_to: int | None
    weak: tuple[str, ...]
    """The defects of the others, a clause each."""


def _journals(boots: Iterable[EngineBoot], since: int, until: int) -> Mapping[str, _Journals]:
    """Return the journals of each pairing, and of all under ''. A drain's tasks are left out."""
    engines: dict[tuple[str, str], list[EngineBoot]] = {}
    for one in boots:
        ends = one.ended in ("stopped", "restarted")
        if not one.is_drain and one.first_at <= until and (one.last_at >= since or not ends):
            engines.setdefault((one.pairing, one.engine), []).append(one)
    found: dict[str, list[tuple[str, list[EngineBoot]]]] = {}
    for (pairing, engine), group in engines.items():
        found.setdefault(pairing, []).append((engine, group))
        found.setdefault("", []).append((engine, group))
    return {pairing: _of_pairing(group, since, until) for pairing, group in found.items()}


def _of_pairing(engines: list[tuple[str, list[EngineBoot]]], since: int, until: int) -> _Journals:
    weak: list[str] = []
    running: list[int] = []
    ended: list[int] = []
    for engine, boots in engines:
        lacks = max(_lacks(one, since, until) for one in boots)
        silent = max((one.last_at for one in boots if one.ended == "silent" and one.last_at < until), default=None)
        last_at = max(one.last_at for one in boots)
        if lacks:
            weak.append(f"{engine} lacks {lacks} record{'' if lacks == 1 else 's'}")
        elif silent is not None:
            weak.append(f"{engine} recorded nothing after {minute_of(silent)} UTC")
        else:
            goes_on = any(one.ended not in ("stopped", "restarted") for one in boots)
            (running if goes_on else ended).append(last_at)
    return _Journals(
        total=len(engines),
        complete=len(running) + len(ended),
        complete_to=min(running) if running else max(ended, default=None),
        weak=tuple(sorted(set(weak))),
    )


def _lacks(one: EngineBoot, since: int, until: int) -> int:
    """Return the records that a boot lacks, if its gaps are in the span."""
    is_after = one.complete_from is None or one.complete_from > since
    is_before = one.complete_to is None or one.complete_to < until
    return one.missing if is_after and is_before else 0


def _verdict(sums: _Sums, journals: _Journals | None, has_syphon: bool, now: int) -> AuditVerdict:
    return AuditVerdict(
        pairing=sums.pairing,
        entity=sums.entity,
        subscription=sums.subscription,
        counts=sums.counts,
        in_flight_age=sums.in_flight_age,
        receivers_told=sums.recorded > 0,
        journals=journals.total if journals else 0,
        journals_complete=journals.complete if journals else 0,
        complete_to=journals.complete_to if journals else None,
        judged_at=now,
        rests_on=" ".join(_rests_on(sums, journals, has_syphon=has_syphon)),
    )


def _rests_on(sums: _Sums, journals: _Journals | None, *, has_syphon: bool) -> Iterable[str]:
    yield _receivers(sums)
    yield _completeness(journals)
    counts = sums.counts
    if not sums.subscription and counts["attempted"] and not sums.direct:
        yield "Direct sends are not recorded; messages that stayed on the direct path are not counted."
    if (counts["parked"] or 0) + (sums.unnamed if not sums.entity else 0) and not has_syphon:
        yield "No journal here is of an engine with a syphon: parked messages may have been moved since."
    if sums.unnamed and not sums.entity:
        yield f"{sums.unnamed} of the parked messages are not in the backlog queues; which ones is not known."
    if counts["unsent"]:
        yield f"{counts['unsent']} received messages have no sender in these journals."
    if counts["lost"]:
        yield (
            "A lost message may have expired, or be in the dead-letter queue of its entity, "
            "or have gone to a receiver that records nothing here."
        )


def _receivers(sums: _Sums) -> str:
    of_entity = f" of {sums.entity}" if sums.entity else ""
    last = "" if sums.recorded_at is None else minute_of(sums.recorded_at)
    if sums.subscription:
        return f"Only what receivers of {sums.entity}/{sums.subscription} recorded; its filter is not known here."
    if not sums.entities:
        return "No message has a receipt here."
    if not sums.recorded:
        return (
            f"No receiver{of_entity} records what it gets: accepted means that the primary, or a backlog queue, "
            "accepted a message."
        )
    if sums.recorded < sums.entities:
        return f"Receivers of {sums.recorded} of {sums.entities} entities record what they get, last at {last} UTC."
    return f"Receivers{of_entity} record what they get, last at {last} UTC."


def _completeness(journals: _Journals | None) -> str:
    if journals is None:
        return "No engine is known."
    word = "journal is" if journals.total == 1 else "journals is" if journals.complete == 1 else "journals are"
    until = "" if journals.complete_to is None else f" to {minute_of(journals.complete_to)} UTC"
    weak = f": {', '.join(journals.weak)}" if journals.complete < journals.total else ""
    return f"{journals.complete} of {journals.total} {word} complete{until}{weak}."
