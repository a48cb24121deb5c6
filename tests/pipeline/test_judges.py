"""The pure functions and the SQL judge alike: each is the other's oracle, on journals that hypothesis makes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paired_servicebus.core.accounting.ledger import Arrival, SendOutcome, balance
from paired_servicebus.core.judging.receipts import SECOND
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    Event,
    InDoubt,
    MessageReceived,
    Moved,
    Record,
    Refused,
)
from tests.pipeline.judged import Judged, Row, by_functions, by_sql
from tests.pipeline.made_journals import SPAN, journals
from tests.pipeline.test_audit import at_rest, passed_by, receipt

MOST = settings.default.max_examples
"""Of which a whole journal is a part only: each takes as long as tens of other examples."""


def assert_alike(one: Judged, other: Judged) -> None:
    """Compare every column of every row."""
    for mine, theirs, keys in (
        (one.receipts, other.receipts, ("pairing", "entity", "message_id", "subscription")),
        (one.audit, other.audit, ("pairing", "entity", "message_id")),
        (one.verdicts, other.verdicts, ("pairing", "entity", "subscription")),
    ):
        assert _sorted(mine, keys) == _sorted(theirs, keys)


def _sorted(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    def rounded(row: Row) -> Row:
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}

    return sorted((rounded(row) for row in rows), key=lambda row: tuple(str(row[key]).lower() for key in keys))


@settings(max_examples=MOST // 8, deadline=None)
@given(records=journals(), late=some.integers(0, 3000), in_flight=some.sampled_from([1, 60, 900]))
def test_they_agree_on_every_journal(records: list[Record], late: int, in_flight: int) -> None:
    once = list({(one.engine, one.boot, one.seq): one for one in records}.values())
    chosen: dict[str, Any] = {"now": (SPAN + late) * SECOND, "in_flight": in_flight * SECOND}
    assert_alike(by_functions(records, **chosen), by_sql(once, **chosen))


@settings(max_examples=MOST // 20, deadline=None)
@given(records=journals(), batches=some.integers(2, 4), since=some.integers(0, SPAN), long=some.integers(1, SPAN))
def test_they_agree_whatever_the_batches_and_the_span(
    records: list[Record], batches: int, since: int, long: int
) -> None:
    once = list({(one.engine, one.boot, one.seq): one for one in records}.values())
    span = {"since": since * SECOND, "until": (since + long) * SECOND}
    assert_alike(by_functions(records, **span), by_sql(once, batches=batches, **span))


FATES = some.sampled_from(
    [
        (SendOutcome.ACCEPTED, (Delivered,)),
        (SendOutcome.ACCEPTED, (InDoubt, Delivered)),
        (SendOutcome.ACCEPTED, (Diverted, Moved)),
        (SendOutcome.ACCEPTED, (Diverted,)),
        (SendOutcome.ACCEPTED, (Diverted, DeadLettered)),
        (SendOutcome.IN_DOUBT, (InDoubt,)),
        (SendOutcome.REFUSED, (Refused,)),
    ]
)


@pytest.mark.parametrize("judge", [by_functions, by_sql])
@settings(max_examples=MOST // 20, deadline=None)
@given(
    fates=some.lists(FATES, min_size=1, max_size=12),
    deliveries=some.lists(some.integers(0, 13), max_size=30),
    streams=some.integers(1, 3),
)
def test_they_agree_with_the_ledger(
    judge: Any, fates: list[tuple[SendOutcome, tuple[type[Event], ...]]], deliveries: list[int], streams: int
) -> None:
    """Section 11: "accepted = delivered ∪ parked ∪ dead-lettered ∪ expired by its own TTL ∪ lost, each id once"."""
    answers = {f"m{index}": answer for index, (answer, _) in enumerate(fates)}
    events: list[Event] = [receipt(kind, f"m{index}") for index, (_, kinds) in enumerate(fates) for kind in kinds]
    arrivals = [Arrival("later", "later", 0)]
    for place, index in enumerate(deliveries):
        stream = f"s{index % streams}"
        arrivals.append(Arrival(f"m{index}", stream, index))
        events.append(receipt(MessageReceived, f"m{index}", 2.0 + place, stream=stream, number=index))
    parked = [f"m{index}" for index, (_, kinds) in enumerate(fates) if kinds == (Diverted,)]
    dead = [f"m{index}" for index, (_, kinds) in enumerate(fates) if DeadLettered in kinds]
    ledger = balance(
        answers={**answers, "later": SendOutcome.ACCEPTED}, arrivals=arrivals, parked=parked, dead_lettered=dead
    )
    found = judge(at_rest([*events, *passed_by()])).verdict()
    names = (
        "attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "dead_lettered", "parked", "lost",
        "unexpected", "duplicates", "out_of_order",
    )  # fmt: skip
    assert {name: found[name] for name in names} == {name: getattr(ledger, name) for name in names}
