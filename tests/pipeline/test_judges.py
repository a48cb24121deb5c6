"""The audit beside the ledger of a whole run, on made-up journals."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some

from paired_servicebus.core.accounting.ledger import Arrival, SendOutcome, balance
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    Event,
    InDoubt,
    MessageReceived,
    Moved,
    Refused,
)
from tests.pipeline.judged import judge
from tests.pipeline.test_audit import at_rest, passed_by, receipt

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


@settings(max_examples=settings.default.max_examples // 20, deadline=None)
@given(
    fates=some.lists(FATES, min_size=1, max_size=12),
    deliveries=some.lists(some.integers(0, 13), max_size=30),
    streams=some.integers(1, 3),
)
def test_they_agree_with_the_ledger(
    fates: list[tuple[SendOutcome, tuple[type[Event], ...]]], deliveries: list[int], streams: int
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
    wanted = {name: getattr(ledger, name) for name in names}
    if found["unexpected"]:  # a loss has no evidence beside messages from nowhere
        found["lost"] += found["unknown"]
    assert {name: found[name] for name in names} == wanted
