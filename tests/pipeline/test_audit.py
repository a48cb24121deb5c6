"""The audit's statuses and verdicts (SPEC.md section 11), by duckdb."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paired_servicebus.core.accounting.ledger import Arrival, SendOutcome, balance
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT, SECOND
from tests.pipeline.judged import Row, judge, records_of

LIMIT = IN_FLIGHT / SECOND


def receipt(kind: type[e.Event], name: str, at: float = 1.0, **more: Any) -> e.Event:
    known: dict[type[e.Event], dict[str, Any]] = {
        e.Diverted: {"queue": 0},
        e.Moved: {"queue": 0},
        e.DeadLettered: {"queue": 0, "reason": "poison"},
        e.InDoubt: {"route": "primary", "reason": "timeout"},
        e.Refused: {"reason": "too large"},
    }
    return kind(**{"at": at, "entity": "orders", "message_id": name, **known.get(kind, {}), **more})


def started(at: float = 0.0, *, pairing: str = "orders", syphon: bool = True, secondary: str = "s") -> e.Event:
    return e.EngineStarted(
        at=at, pairing=pairing, primary="p", secondary=secondary, backlog_queues=1, syphon=syphon, version="1"
    )


def warned(at: float) -> e.Event:
    return e.Warned(at=at, about="a", text="b")


def passed_by(at: float = LIMIT + 100) -> list[e.Event]:
    """A later message, delivered and received long after: receivers got past all others."""
    return [receipt(e.Delivered, "later", at), receipt(e.MessageReceived, "later", at + 1)]


def at_rest(events: list[e.Event], at: float = 10_000.0, *, pairing: str = "orders") -> list[e.Record]:
    """A boot's records, and its end long after the last of them; each pairing has namespaces of its own."""
    start = started(pairing=pairing, secondary="s" if pairing == "orders" else pairing)
    return records_of([start, *events, e.EngineStopped(at=at, reason="done")], engine=f"{pairing}@web-1")


def by_pairing(cases: Iterable[list[e.Event]]) -> dict[str, Row]:
    """Judge journals at once, each as a pairing; the verdict on each, with the status of its message m."""
    groups = [at_rest(events, pairing=f"c{number}") for number, events in enumerate(cases)]
    found = judge([record for group in groups for record in group])
    status = {row["pairing"]: row["status"] for row in found.audit if row["message_id"] == "m"}
    return {name: {**found.verdict(name), "m": status.get(name)} for name in map("c{}".format, range(len(groups)))}


RECORDING: list[tuple[list[type[e.Event]], str]] = [
    ([e.Delivered, e.MessageReceived], "delivered"),
    ([e.Diverted, e.Moved, e.MessageReceived], "delivered"),
    ([e.Diverted], "parked"),
    ([e.Diverted, e.DeadLettered], "dead-lettered"),
    ([e.Diverted, e.DeadLettered, e.Moved, e.MessageReceived], "delivered"),
    ([e.Diverted, e.Moved], "lost"),
    ([e.Delivered], "lost"),
    ([e.Delivered, e.Diverted], "parked"),
    ([e.InDoubt], "in doubt"),
    ([e.InDoubt, e.MessageReceived], "delivered"),
    ([e.InDoubt, e.Delivered, e.MessageReceived], "delivered"),
    ([e.Refused], "refused"),
    ([e.Refused, e.MessageReceived], "unexpected"),
    ([e.MessageReceived], "unexpected"),
    ([e.MessageReceived, e.Delivered], "delivered"),
    ([e.Moved], "unknown"),
    ([e.Moved, e.MessageReceived], "delivered"),
]
SILENT: list[tuple[list[type[e.Event]], str]] = [
    ([e.Delivered], "accepted"),
    ([e.Diverted], "parked"),
    ([e.Diverted, e.Moved], "accepted"),
    ([e.Moved], "accepted"),
    ([e.InDoubt], "in doubt"),
    ([e.Diverted, e.DeadLettered], "dead-lettered"),
]


def test_the_fates_of_a_message_where_receivers_record() -> None:
    found = by_pairing(
        [*(receipt(kind, "m", at) for at, kind in enumerate(kinds, 1)), *passed_by()] for kinds, _ in RECORDING
    )
    assert [(kinds, row["m"]) for (kinds, _), row in zip(RECORDING, found.values(), strict=True)] == RECORDING


def test_the_fates_of_a_message_where_no_receiver_records() -> None:
    found = by_pairing([receipt(kind, "m") for kind in kinds] for kinds, _ in SILENT)
    assert [(kinds, row["m"]) for (kinds, _), row in zip(SILENT, found.values(), strict=True)] == SILENT
    assert not any(row["receivers_told"] for row in found.values())
    assert all("No receiver records what it gets" in row["rests_on"] for row in found.values())


# -- E1: the headline ----------------------------------------------------------------------------------------------


def test_a_healthy_consumer_one_minute_behind_has_lost_nothing() -> None:
    """Half of the messages are in flight; they were reported as lost."""
    sent: list[e.Event] = [receipt(e.Delivered, f"m{i}", i / 2) for i in range(240)]
    got: list[e.Event] = [receipt(e.MessageReceived, f"m{i}", 60 + i / 2) for i in range(120)]
    found = judge(records_of([started(), *sent, *got]))
    verdict = found.verdict()
    assert (verdict["delivered"], verdict["in_flight"], verdict["lost"], verdict["unknown"]) == (120, 120, 0, 0)
    assert verdict["in_flight_age"] == pytest.approx(59.5)


def test_a_prefetching_receiver_beside_a_faster_one_has_lost_nothing() -> None:
    """A message is passed when the slowest receiver got past it, for twice as long as its slowest message took."""
    send = [started(), *(receipt(e.Delivered, f"m{i}", i) for i in range(400))]
    fast = [receipt(e.MessageReceived, f"m{i}", i + 1) for i in range(12, 400)]
    slow = [receipt(e.MessageReceived, f"m{i}", i + 1000) for i in range(11)]
    more = [receipt(e.Delivered, name, at) for name, at in (("p", 5000), ("q", 5001))]
    held = [
        *records_of([*send, *more], engine="orders@send"),
        *records_of([*fast, receipt(e.MessageReceived, "p", 5002)], engine="orders@fast"),
        *records_of([*slow[:2], warned(6000)], engine="orders@slow"),
    ]
    assert judge(held).verdict()["lost"] == 0, "m2 to m11 are held, or behind"
    ends = [e.EngineStopped(at=9000, reason="done")]
    passed = [
        *records_of([*send, *more, *ends], engine="orders@send"),
        *records_of([*fast, receipt(e.MessageReceived, "p", 5002), *ends], engine="orders@fast"),
        *records_of([*slow, receipt(e.MessageReceived, "q", 5003), *ends], engine="orders@slow"),
    ]
    assert [name for name, status in judge(passed).statuses().items() if status == "lost"] == ["m11"]


def test_receivers_of_one_entity_say_nothing_of_another() -> None:
    found = judge(
        at_rest(
            [
                *passed_by(),
                receipt(e.Delivered, "p1", entity="payments"),
                receipt(e.Diverted, "p2", entity="payments"),
                receipt(e.Moved, "p2", 2.0, entity="payments"),
            ]
        )
    )
    assert found.statuses() == {"later": "delivered", "p1": "accepted", "p2": "accepted"}
    assert "Receivers of 1 of 2 entities record what they get" in found.verdict()["rests_on"]
    assert found.verdict("orders", "payments")["receivers_told"] is False


def test_a_senders_journal_alone_is_parked_as_far_as_it_goes() -> None:
    """It reported "Nothing was lost: 100 accepted, 0 delivered, 100 parked"."""
    events = [started(syphon=False), *(receipt(e.Diverted, f"m{i}", i) for i in range(100))]
    verdict = judge(records_of([*events, e.EngineStopped(at=9999, reason="done")])).verdict()
    assert (verdict["parked"], verdict["lost"], verdict["reached"]) == (100, 0, 0)
    assert "No journal here is of an engine with a syphon" in verdict["rests_on"]


def test_parked_messages_that_are_gone_are_missing_or_in_a_journal_elsewhere() -> None:
    """Without a syphon's journal they may have been moved; with it they are missing, and named."""
    for syphon, status in ((True, "missing"), (False, "unknown")):
        found = judge(
            records_of(
                [
                    started(syphon=syphon),
                    *(receipt(e.Diverted, f"m{i}", i) for i in range(3)),
                    e.QueueRead(at=600, queue=0, depth=0, size_bytes=0, dead_lettered=0, scheduled=0),
                    e.EngineStopped(at=700, reason="done"),
                ]
            )
        )
        assert set(found.statuses().values()) == {status}
        assert found.verdict()[status] == 3
    assert found.reasons()["m0"] == "not in its queue: missing, or moved by an engine whose journal is not here"


def test_the_missing_are_counted_where_they_cannot_be_named() -> None:
    """Dead-lettered ones count, and one queue's surplus may be another's deficit."""
    found = judge(
        at_rest(
            [
                *(receipt(e.Diverted, f"m{i}", i) for i in range(10)),
                *(receipt(e.Diverted, f"n{i}", i, queue=1) for i in range(10)),
                e.QueueRead(at=600, queue=0, depth=3, size_bytes=0, dead_lettered=1, scheduled=1),
                e.QueueRead(at=601, queue=1, depth=11, size_bytes=0, dead_lettered=0, scheduled=0),
            ]
        )
    )
    verdict = found.verdict()
    assert (verdict["parked"], verdict["missing"]) == (16, 4)
    assert "4 of the parked messages are not in the backlog queues; which ones is not known." in verdict["rests_on"]
    assert set(found.statuses().values()) == {"parked"}


def test_messages_that_moved_after_a_reading_are_not_missing() -> None:
    found = judge(
        at_rest(
            [
                *(receipt(e.Diverted, f"m{i}", i) for i in range(10)),
                e.QueueRead(at=600, queue=0, depth=4, size_bytes=0, dead_lettered=0, scheduled=0),
                *(receipt(e.Moved, f"m{i}", 500 + 20 * i) for i in range(8)),
            ]
        )
    )
    verdict = found.verdict()
    assert (verdict["parked"], verdict["missing"], verdict["reached"]) == (2, 0, 8)


# -- E5: several hosts -----------------------------------------------------------------------------------------------


def test_engines_of_the_same_namespaces_are_one_pairing_whatever_its_names() -> None:
    """What an application's process parked, an engine of another name moved; a drain has the name of one of them."""
    parked = [started(pairing="shop-2", syphon=False), receipt(e.Diverted, "a"), receipt(e.Diverted, "b")]
    moved = [started(pairing="orders"), receipt(e.Moved, "a", 2.0)]
    drained = [receipt(e.Moved, "b", 3.0)]
    found = judge(
        [
            *records_of(parked, engine="shop-2@web-1"),
            *records_of(moved, engine="orders@ops"),
            *records_of(drained, engine="shop-2-drain@ops"),
            *records_of([started(pairing="shop", secondary="t"), receipt(e.Diverted, "a")], engine="shop@web-9"),
        ]
    )
    assert {(row["pairing"], row["message_id"], row["status"]) for row in found.audit} == {
        ("orders", "a", "accepted"),
        ("orders", "b", "accepted"),
        ("shop", "a", "parked"),
    }


def test_a_pairing_is_named_by_its_engine_s_start_else_by_the_engine_s_name() -> None:
    found = judge(
        [
            *records_of([started(pairing="by-record"), receipt(e.Diverted, "a")], engine="other@web-1"),
            *records_of([receipt(e.Diverted, "b")], engine="by@name@web-1"),
            *records_of([receipt(e.Moved, "b", 2.0)], engine="by@name-drain@web-2"),
        ]
    )
    assert {row["message_id"]: (row["pairing"], row["status"]) for row in found.audit} == {
        "a": ("by-record", "parked"),
        "b": ("by@name", "accepted"),
    }


def test_the_verdict_says_how_many_journals_are_complete_and_to_when() -> None:
    running = [
        one
        for number in range(18)
        for one in records_of([started(), warned(3000 + number)], engine=f"orders@web-{number}")
    ]
    silent = records_of([started(), warned(60)], engine="orders@web-18")
    gap = records_of([started(), warned(2990)], engine="orders@web-19", first=2)
    verdict = judge([*running, *silent, *gap]).verdict()
    assert (verdict["journals"], verdict["journals_complete"], verdict["complete_to"]) == (20, 18, 3000 * SECOND)
    assert (
        "18 of 20 journals are complete to 1970-01-01 00:50 UTC: orders@web-18 recorded nothing after "
        "1970-01-01 00:01 UTC, orders@web-19 lacks 1 record." in verdict["rests_on"]
    )


def test_order_is_by_number_within_a_boot_and_not_by_clock() -> None:
    """The receiver's clock was set back between two deliveries."""
    sent = [receipt(e.Delivered, "a", 1.0), receipt(e.Delivered, "b", 5.0)]
    together = [receipt(e.Delivered, "a", 1.0), receipt(e.Delivered, "b", 1.2)]
    in_order = [receipt(e.MessageReceived, "a", 100.0), receipt(e.MessageReceived, "b", 20.0)]
    swapped = [receipt(e.MessageReceived, "b", 100.0), receipt(e.MessageReceived, "a", 20.0)]
    numbered = [receipt(e.MessageReceived, "b", 100.0, number=2), receipt(e.MessageReceived, "a", 20.0, number=1)]
    cases = ([*sent, *in_order], [*sent, *swapped], [*sent, *numbered], [*together, *swapped])
    found = [row["out_of_order"] for row in by_pairing(cases).values()]
    assert found == [0, 1, 1, 0], "of the last, both were sent at the same time"


# -- what is never lost ----------------------------------------------------------------------------------------------


def test_a_message_that_two_subscriptions_got_once_each_is_no_duplicate() -> None:
    """Nor is one that its receiver abandoned and got again."""
    events: list[e.Event] = [
        *(receipt(e.Delivered, name, entity="audit") for name in ("both", "one", "twice", "again")),
        receipt(e.MessageReceived, "both", 2.0, entity="audit", subscription="all"),
        receipt(e.MessageReceived, "both", 3.0, entity="audit", subscription="red"),
        receipt(e.MessageReceived, "one", 2.0, entity="Audit", subscription="all"),
        receipt(e.MessageReceived, "twice", 2.0, entity="audit", subscription="red"),
        receipt(e.MessageReceived, "twice", 3.0, entity="audit", subscription="RED"),
        receipt(e.MessageReceived, "again", 2.0, entity="audit", subscription="red", delivery_count=0),
        receipt(e.MessageReceived, "again", 3.0, entity="audit", subscription="red", delivery_count=1),
    ]
    found = judge(at_rest(events))
    assert found.statuses() == {"both": "delivered", **dict.fromkeys(("one", "twice", "again"), "in flight")}
    assert (found.verdict()["accepted"], found.verdict()["delivered"], found.verdict()["duplicates"]) == (4, 4, 1)
    assert found.verdict("orders", "audit", "all")["delivered"] == 2
    assert found.verdict("orders", "audit", "red")["duplicates"] == 1
    assert found.verdict("orders", "audit", "all")["lost"] is None, "its filter is not known"


def test_the_same_name_at_two_entities_is_two_messages() -> None:
    found = judge(
        at_rest(
            [
                receipt(e.Delivered, "m"),
                receipt(e.Delivered, "m", entity="payments"),
                receipt(e.MessageReceived, "m", 2.0, entity="ORDERS"),
            ]
        )
    )
    assert sorted((row["entity"].lower(), row["status"]) for row in found.audit) == [
        ("orders", "delivered"),
        ("payments", "accepted"),
    ]


def test_nothing_recorded_is_no_verdict_on_messages() -> None:
    verdict = judge(at_rest([])).verdict()
    assert (verdict["accepted"], verdict["journals"], verdict["journals_complete"]) == (0, 1, 1)
    assert verdict["rests_on"].startswith("No message has a receipt here.")


FATES = some.sampled_from(
    [
        (SendOutcome.ACCEPTED, (e.Delivered,)),
        (SendOutcome.ACCEPTED, (e.InDoubt, e.Delivered)),
        (SendOutcome.ACCEPTED, (e.Diverted, e.Moved)),
        (SendOutcome.ACCEPTED, (e.Diverted,)),
        (SendOutcome.ACCEPTED, (e.Diverted, e.DeadLettered)),
        (SendOutcome.IN_DOUBT, (e.InDoubt,)),
        (SendOutcome.REFUSED, (e.Refused,)),
    ]
)


@settings(max_examples=settings.default.max_examples // 20, deadline=None)
@given(
    fates=some.lists(FATES, min_size=1, max_size=12),
    deliveries=some.lists(some.integers(0, 13), max_size=30),
    streams=some.integers(1, 3),
)
def test_they_agree_with_the_ledger(
    fates: list[tuple[SendOutcome, tuple[type[e.Event], ...]]], deliveries: list[int], streams: int
) -> None:
    """Section 11: "accepted = delivered ∪ parked ∪ dead-lettered ∪ expired by its own TTL ∪ lost, each id once"."""
    answers = {f"m{index}": answer for index, (answer, _) in enumerate(fates)}
    events: list[e.Event] = [receipt(kind, f"m{index}") for index, (_, kinds) in enumerate(fates) for kind in kinds]
    arrivals = [Arrival("later", "later", 0)]
    for place, index in enumerate(deliveries):
        stream = f"s{index % streams}"
        arrivals.append(Arrival(f"m{index}", stream, index))
        events.append(receipt(e.MessageReceived, f"m{index}", 2.0 + place, stream=stream, number=index))
    parked = [f"m{index}" for index, (_, kinds) in enumerate(fates) if kinds == (e.Diverted,)]
    dead = [f"m{index}" for index, (_, kinds) in enumerate(fates) if e.DeadLettered in kinds]
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
