"""The audit's statuses and verdicts (SPEC.md section 11), by duckdb."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    EngineStarted,
    EngineStopped,
    Event,
    InDoubt,
    MessageReceived,
    Moved,
    QueueRead,
    Record,
    Refused,
    Warned,
)
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT, SECOND
from tests.pipeline.judged import judge, records_of

LIMIT = IN_FLIGHT / SECOND


def receipt(kind: type[Event], name: str, at: float = 1.0, **more: Any) -> Event:
    known: dict[type[Event], dict[str, Any]] = {
        Diverted: {"queue": 0},
        Moved: {"queue": 0},
        DeadLettered: {"queue": 0, "reason": "poison"},
        InDoubt: {"route": "primary", "reason": "timeout"},
        Refused: {"reason": "too large"},
    }
    return kind(**{"at": at, "entity": "orders", "message_id": name, **known.get(kind, {}), **more})


def started(at: float = 0.0, *, pairing: str = "orders", syphon: bool = True, secondary: str = "s") -> Event:
    return EngineStarted(
        at=at, pairing=pairing, primary="p", secondary=secondary, backlog_queues=1, syphon=syphon, version="1"
    )


def passed_by(at: float = LIMIT + 100) -> list[Event]:
    """A later message, delivered and received long after: receivers got past all others."""
    return [receipt(Delivered, "later", at), receipt(MessageReceived, "later", at + 1)]


def at_rest(events: list[Event], at: float = 10_000.0) -> list[Record]:
    """A boot's records, and its end long after the last of them."""
    return records_of([started(), *events, EngineStopped(at=at, reason="done")])


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([Delivered, MessageReceived], "delivered"),
        ([Diverted, Moved, MessageReceived], "delivered"),
        ([Diverted], "parked"),
        ([Diverted, DeadLettered], "dead-lettered"),
        ([Diverted, DeadLettered, Moved, MessageReceived], "delivered"),
        ([Diverted, Moved], "lost"),
        ([Delivered], "lost"),
        ([Delivered, Diverted], "parked"),
        ([InDoubt], "in doubt"),
        ([InDoubt, MessageReceived], "delivered"),
        ([InDoubt, Delivered, MessageReceived], "delivered"),
        ([Refused], "refused"),
        ([Refused, MessageReceived], "unexpected"),
        ([MessageReceived], "unexpected"),
        ([MessageReceived, Delivered], "delivered"),
        ([Moved], "unknown"),
        ([Moved, MessageReceived], "delivered"),
    ],
)
def test_what_becomes_of_a_message_where_receivers_tell(kinds: list[type[Event]], status: str) -> None:
    found = judge(at_rest([*(receipt(kind, "m", at) for at, kind in enumerate(kinds, 1)), *passed_by()]))
    assert found.statuses()["m"] == status


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([Delivered], "accepted"),
        ([Diverted], "parked"),
        ([Diverted, Moved], "accepted"),
        ([Moved], "accepted"),
        ([InDoubt], "in doubt"),
        ([Diverted, DeadLettered], "dead-lettered"),
    ],
)
def test_what_can_be_said_where_they_do_not(kinds: list[type[Event]], status: str) -> None:
    found = judge(at_rest([receipt(kind, "m") for kind in kinds]))
    assert found.statuses()["m"] == status
    assert not found.verdict()["receivers_told"]
    assert "No receiver records what it gets" in found.verdict()["rests_on"]


# -- E1: the headline ----------------------------------------------------------------------------------------------


def test_a_healthy_consumer_one_minute_behind_has_lost_nothing() -> None:
    """Half of the messages are in flight; they were reported as lost."""
    sent: list[Event] = [receipt(Delivered, f"m{i}", i / 2) for i in range(240)]
    got: list[Event] = [receipt(MessageReceived, f"m{i}", 60 + i / 2) for i in range(120)]
    found = judge(records_of([started(), *sent, *got]))
    verdict = found.verdict()
    assert (verdict["delivered"], verdict["in_flight"], verdict["lost"], verdict["unknown"]) == (120, 120, 0, 0)
    assert verdict["in_flight_age"] == pytest.approx(59.5)


def test_a_consumer_that_is_hours_behind_has_lost_nothing() -> None:
    """A slow receiver is behind, at any age."""
    sent: list[Event] = [receipt(Delivered, f"m{i}", i) for i in range(100)]
    got: list[Event] = [receipt(MessageReceived, f"m{i}", 100 + 600 * i) for i in range(50)]
    verdict = judge(records_of([started(), *sent, *got, EngineStopped(at=60_000, reason="done")])).verdict()
    assert (verdict["delivered"], verdict["in_flight"], verdict["lost"]) == (50, 50, 0)


def test_a_prefetching_receiver_beside_a_faster_one_has_lost_nothing() -> None:
    """A message is passed when the slowest receiver got past it, for twice as long as its slowest message took."""
    send = [started(), *(receipt(Delivered, f"m{i}", i) for i in range(400))]
    fast = [receipt(MessageReceived, f"m{i}", i + 1) for i in range(12, 400)]
    slow = [receipt(MessageReceived, f"m{i}", i + 1000) for i in range(11)]
    more = [receipt(Delivered, name, at) for name, at in (("p", 5000), ("q", 5001))]
    held = [
        *records_of([*send, *more], engine="orders@send"),
        *records_of([*fast, receipt(MessageReceived, "p", 5002)], engine="orders@fast"),
        *records_of([*slow[:2], Warned(at=6000, about="a", text="b")], engine="orders@slow"),
    ]
    assert judge(held).verdict()["lost"] == 0, "m2 to m11 are held, or behind"
    ends = [EngineStopped(at=9000, reason="done")]
    passed = [
        *records_of([*send, *more, *ends], engine="orders@send"),
        *records_of([*fast, receipt(MessageReceived, "p", 5002), *ends], engine="orders@fast"),
        *records_of([*slow, receipt(MessageReceived, "q", 5003), *ends], engine="orders@slow"),
    ]
    assert [name for name, status in judge(passed).statuses().items() if status == "lost"] == ["m11"]


def test_receivers_of_one_entity_say_nothing_of_another() -> None:
    found = judge(
        at_rest(
            [
                *passed_by(),
                receipt(Delivered, "p1", entity="payments"),
                receipt(Diverted, "p2", entity="payments"),
                receipt(Moved, "p2", 2.0, entity="payments"),
            ]
        )
    )
    assert found.statuses() == {"later": "delivered", "p1": "accepted", "p2": "accepted"}
    assert "Receivers of 1 of 2 entities record what they get" in found.verdict()["rests_on"]
    assert found.verdict("orders", "payments")["receivers_told"] is False


def test_a_senders_journal_alone_is_parked_as_far_as_it_goes() -> None:
    """It reported "Nothing was lost: 100 accepted, 0 delivered, 100 parked"."""
    events = [started(syphon=False), *(receipt(Diverted, f"m{i}", i) for i in range(100))]
    verdict = judge(records_of([*events, EngineStopped(at=9999, reason="done")])).verdict()
    assert (verdict["parked"], verdict["lost"], verdict["reached"]) == (100, 0, 0)
    assert "No journal here is of an engine with a syphon" in verdict["rests_on"]


def test_parked_messages_that_are_gone_are_missing_or_in_a_journal_elsewhere() -> None:
    """Without a syphon's journal they may have been moved; with it they are missing, and named."""
    for syphon, status in ((True, "missing"), (False, "unknown")):
        found = judge(
            records_of(
                [
                    started(syphon=syphon),
                    *(receipt(Diverted, f"m{i}", i) for i in range(3)),
                    QueueRead(at=600, queue=0, depth=0, size_bytes=0, dead_lettered=0, scheduled=0),
                    EngineStopped(at=700, reason="done"),
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
                *(receipt(Diverted, f"m{i}", i) for i in range(10)),
                *(receipt(Diverted, f"n{i}", i, queue=1) for i in range(10)),
                QueueRead(at=600, queue=0, depth=3, size_bytes=0, dead_lettered=1, scheduled=1),
                QueueRead(at=601, queue=1, depth=11, size_bytes=0, dead_lettered=0, scheduled=0),
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
                *(receipt(Diverted, f"m{i}", i) for i in range(10)),
                QueueRead(at=600, queue=0, depth=4, size_bytes=0, dead_lettered=0, scheduled=0),
                *(receipt(Moved, f"m{i}", 500 + 20 * i) for i in range(8)),
            ]
        )
    )
    verdict = found.verdict()
    assert (verdict["parked"], verdict["missing"], verdict["reached"]) == (2, 0, 8)


# -- E5: several hosts -----------------------------------------------------------------------------------------------


def test_two_pairings_with_equal_ids_are_two_messages() -> None:
    """Their receipts were added up, and 100 parked messages were not seen."""
    parked = [started(), *(receipt(Diverted, f"m{i}", i) for i in range(100))]
    moved = [
        started(pairing="stock", secondary="t"),
        *(receipt(kind, f"m{i}", i) for i in range(100) for kind in (Diverted, Moved)),
    ]
    found = judge([*records_of(parked), *records_of(moved, engine="stock@web-1")])
    assert (found.verdict("orders")["parked"], found.verdict("stock")["parked"]) == (100, 0)
    assert (found.verdict()["parked"], found.verdict()["reached"]) == (100, 100)


def test_engines_of_the_same_namespaces_are_one_pairing_whatever_its_names() -> None:
    """What an application's process parked, an engine of another name moved; a drain has the name of one of them."""
    parked = [started(pairing="shop-2", syphon=False), receipt(Diverted, "a"), receipt(Diverted, "b")]
    moved = [started(pairing="orders"), receipt(Moved, "a", 2.0)]
    drained = [receipt(Moved, "b", 3.0)]
    found = judge(
        [
            *records_of(parked, engine="shop-2@web-1"),
            *records_of(moved, engine="orders@ops"),
            *records_of(drained, engine="shop-2-drain@ops"),
            *records_of([started(pairing="shop", secondary="t"), receipt(Diverted, "a")], engine="shop@web-9"),
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
            *records_of([started(pairing="by-record"), receipt(Diverted, "a")], engine="other@web-1"),
            *records_of([receipt(Diverted, "b")], engine="by@name@web-1"),
            *records_of([receipt(Moved, "b", 2.0)], engine="by@name-drain@web-2"),
        ]
    )
    assert {row["message_id"]: (row["pairing"], row["status"]) for row in found.audit} == {
        "a": ("by-record", "parked"),
        "b": ("by@name", "accepted"),
    }


def test_one_host_s_journal_beside_another_s_is_whole() -> None:
    """Many senders and few syphons is the recommended set-up."""
    sender = records_of(
        [started(syphon=False), *(receipt(Diverted, f"m{i}", i) for i in range(100))], engine="orders@a"
    )
    syphon = records_of([started(), *(receipt(Moved, f"m{i}", 200 + i) for i in range(100))], engine="orders@b")
    assert judge(sender).verdict()["parked"] == 100
    other = judge(syphon).verdict()
    assert (other["accepted"], other["reached"], other["attempted"]) == (0, 100, 0)
    both = judge([*sender, *syphon]).verdict()
    assert (both["accepted"], both["reached"], both["parked"]) == (100, 100, 0)


def test_an_incomplete_journal_makes_unknown_what_would_be_lost() -> None:
    """ "Lost, or in a journal that is not here", naming which."""
    lost = at_rest([receipt(Delivered, "m", 100.0), *passed_by()])
    silent = records_of([started(), Warned(at=50, about="a", text="b")], engine="orders@web-2")
    gap = [
        *records_of([started()], engine="orders@web-3"),
        *records_of(
            [Warned(at=200, about="a", text="b"), EngineStopped(at=9000, reason="x")], engine="orders@web-3", first=7
        ),
    ]
    cut = records_of(
        [Warned(at=200, about="a", text="b"), EngineStopped(at=9000, reason="x")], engine="orders@web-4", first=900
    )
    early = [
        *records_of([started()], engine="orders@web-5"),
        *records_of(
            [Warned(at=20, about="a", text="b"), EngineStopped(at=9000, reason="x")], engine="orders@web-5", first=7
        ),
    ]
    assert judge(lost).statuses()["m"] == "lost"
    assert judge([*lost, *early]).statuses()["m"] == "lost", "its gap ended before the message was sent"
    for more, named in (
        (silent, "orders@web-2 recorded nothing after 1970-01-01 00:00"),
        (gap, "orders@web-3 lacks records before 1970-01-01 00:03"),
        (cut, "orders@web-4 lacks records before 1970-01-01 00:03"),
    ):
        found = judge([*lost, *more])
        assert found.statuses()["m"] == "unknown"
        assert found.reasons()["m"] == f"lost, or in a journal that is not here: {named}"
        assert (found.verdict()["lost"], found.verdict()["unknown"]) == (0, 1)
        assert found.verdict()["rests_on"].count("1 of 2 journals is complete") == 1
    assert "orders@web-4 lacks 899 records" in judge([*lost, *cut]).verdict()["rests_on"]


def test_the_verdict_says_how_many_journals_are_complete_and_to_when() -> None:
    running = [
        one
        for number in range(18)
        for one in records_of([started(), Warned(at=3000 + number, about="a", text="b")], engine=f"orders@web-{number}")
    ]
    silent = records_of([started(), Warned(at=60, about="a", text="b")], engine="orders@web-18")
    gap = records_of([started(), Warned(at=2990, about="a", text="b")], engine="orders@web-19", first=2)
    verdict = judge([*running, *silent, *gap]).verdict()
    assert (verdict["journals"], verdict["journals_complete"], verdict["complete_to"]) == (20, 18, 3000 * SECOND)
    assert (
        "18 of 20 journals are complete to 1970-01-01 00:50 UTC: orders@web-18 recorded nothing after "
        "1970-01-01 00:01 UTC, orders@web-19 lacks 1 record." in verdict["rests_on"]
    )


def test_order_is_by_number_within_a_boot_and_not_by_clock() -> None:
    """The receiver's clock was set back between two deliveries."""
    sent = [receipt(Delivered, "a", 1.0), receipt(Delivered, "b", 5.0)]
    in_order = [receipt(MessageReceived, "a", 100.0), receipt(MessageReceived, "b", 20.0)]
    assert judge(at_rest([*sent, *in_order])).verdict()["out_of_order"] == 0
    swapped = [receipt(MessageReceived, "b", 100.0), receipt(MessageReceived, "a", 20.0)]
    assert judge(at_rest([*sent, *swapped])).verdict()["out_of_order"] == 1
    numbered = [receipt(MessageReceived, "b", 100.0, number=2), receipt(MessageReceived, "a", 20.0, number=1)]
    assert judge(at_rest([*sent, *numbered])).verdict()["out_of_order"] == 1
    together = [receipt(Delivered, "a", 1.0), receipt(Delivered, "b", 1.2)]
    assert judge(at_rest([*together, *swapped])).verdict()["out_of_order"] == 0, "they were sent at the same time"


# -- what is never lost ----------------------------------------------------------------------------------------------


def test_topics_sessions_and_scheduled_messages_are_unknown_at_worst() -> None:
    later = [receipt(Delivered, "later", LIMIT + 100, entity="news")]
    topic = [
        receipt(Delivered, "m", entity="news"),
        *later,
        receipt(MessageReceived, "later", LIMIT + 101, entity="news", subscription="all"),
    ]
    assert judge(at_rest(topic)).statuses()["m"] == "unknown"
    sessions = [
        receipt(Delivered, "m"),
        receipt(Delivered, "later", LIMIT + 100),
        receipt(MessageReceived, "later", LIMIT + 101, session="kim", stream="kim"),
    ]
    assert judge(at_rest(sessions)).statuses()["m"] == "unknown"
    scheduled = [receipt(Delivered, "m", is_scheduled=True), *passed_by()]
    assert judge(at_rest(scheduled)).statuses()["m"] == "unknown"
    assert judge(at_rest(scheduled)).reasons()["m"] == "it was scheduled for a later time"


def test_a_message_that_two_subscriptions_got_once_each_is_no_duplicate() -> None:
    """Nor is one that its receiver abandoned and got again."""
    events: list[Event] = [
        *(receipt(Delivered, name, entity="audit") for name in ("both", "one", "twice", "again")),
        receipt(MessageReceived, "both", 2.0, entity="audit", subscription="all"),
        receipt(MessageReceived, "both", 3.0, entity="audit", subscription="red"),
        receipt(MessageReceived, "one", 2.0, entity="Audit", subscription="all"),
        receipt(MessageReceived, "twice", 2.0, entity="audit", subscription="red"),
        receipt(MessageReceived, "twice", 3.0, entity="audit", subscription="RED"),
        receipt(MessageReceived, "again", 2.0, entity="audit", subscription="red", delivery_count=0),
        receipt(MessageReceived, "again", 3.0, entity="audit", subscription="red", delivery_count=1),
    ]
    found = judge(at_rest(events))
    assert found.statuses() == {"both": "delivered", **dict.fromkeys(("one", "twice", "again"), "in flight")}
    assert (found.verdict()["accepted"], found.verdict()["delivered"], found.verdict()["duplicates"]) == (4, 4, 1)
    assert found.verdict("orders", "audit", "all")["delivered"] == 2
    assert found.verdict("orders", "audit", "red")["duplicates"] == 1
    assert found.verdict("orders", "audit", "all")["lost"] is None, "its filter is not known"


def test_messages_of_senders_without_a_journal_here_are_not_unexpected() -> None:
    """With journal = "diverted" direct sends have no receipt."""
    found = judge(at_rest([receipt(MessageReceived, "m"), receipt(Diverted, "n")]))
    assert found.statuses()["m"] == "delivered"
    assert (found.verdict()["unexpected"], found.verdict()["unsent"]) == (0, 1)


def test_the_same_name_at_two_entities_is_two_messages() -> None:
    found = judge(
        at_rest(
            [
                receipt(Delivered, "m"),
                receipt(Delivered, "m", entity="payments"),
                receipt(MessageReceived, "m", 2.0, entity="ORDERS"),
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
