"""What a journal's records say of outages and load, and where they leave two readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError, PipelineError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.pipeline.rehearsal import recorded_history
from paired_servicebus.pipeline.rehearsal.policy_ranking import replay
from tests.damaged import GOOD, UNREADABLE, between, write

T = 1_700_000_000.0
POLICY = Policy(send_timeout=10.0)


def history(*events: e.Event, policy: Policy = POLICY) -> recorded_history.RecordedHistory:
    """The history of one boot that began at T."""
    started = e.EngineStarted(
        at=T, pairing="p", primary="a", secondary="b", backlog_queues=4, syphon=True, version="source"
    )
    return recorded_history.history_of(numbered(started, *events), policy, source="a test")


def numbered(*events: e.Event, boot: str = "one") -> list[e.Record]:
    """The events as records."""
    return [e.Record(engine="e", boot=boot, seq=number, event=event) for number, event in enumerate(events, 1)]


def sends(at: float, accepted: int, failed: int = 0, route: str = "primary", entity: str = "orders") -> e.SendsCounted:
    """One second of sends that ended at T + `at`."""
    return e.SendsCounted(at=T + at, entity=entity, route=route, accepted=accepted, failed=failed, seconds=1.0)


def changed(at: float, was: str, now: str, why: str = "") -> e.StateChanged:
    """A change of orders."""
    return e.StateChanged(at=T + at, entity="orders", was=was, now=now, why=why)


FAILED_OVER = (
    *(sends(at, 10) for at in range(1, 11)),
    e.InDoubt(at=T + 10.5, entity="orders", message_id="m1", route="primary", reason="connection lost"),
    changed(10.5, "healthy", "suspect", "connection lost"),
    sends(11, 0, 5),
    changed(20.5, "suspect", "failed over"),
    *(sends(at, 10, route="backlog/2") for at in range(22, 61)),
    e.PingFailed(at=T + 30.6, entity="orders", number=1, reason="connection lost", took=0.1),
    e.PingFailed(at=T + 40.6, entity="orders", number=2, reason="connection lost", took=0.1),
    e.PingAccepted(at=T + 50.6, entity="orders", number=3, took=0.1),
    changed(50.6, "failed over", "healthy"),
    *(sends(at, 10) for at in range(61, 70)),
)


def test_an_outage_begins_between_the_last_good_answer_and_the_first_bad_one_and_pings_bound_its_end() -> None:
    (outage,) = history(*FAILED_OVER).outages

    assert outage.target == "orders"
    assert outage.failure is FailureKind.CONNECTION
    assert outage.began == pytest.approx(recorded_history.TimeBounds(10.0, 10.5))
    assert outage.ended == pytest.approx(recorded_history.TimeBounds(40.6, 50.6))
    assert outage.share == 1.0


def test_how_long_a_refusal_takes_is_what_refused_pings_took() -> None:
    assert history(*FAILED_OVER).refusal == pytest.approx(0.1, abs=0.001)


def test_what_the_record_cannot_tell_is_said() -> None:
    said = " ".join(history(*FAILED_OVER).unknown)

    assert "up to 10 s" in said
    assert "duplicates are bounds" in said


def test_how_far_the_load_itself_went_bounds_a_forecast_from_it() -> None:
    """What was parked the next time was up to 31 % off, as other loads were offered then."""
    busier = [sends(at, 20) for at in range(70, 110)]
    said = " ".join(history(*FAILED_OVER, *busier).unknown)

    assert "future load: here it was " in said
    assert " to 20 a second to orders" in said


def test_a_record_without_an_outage_leaves_nothing_open() -> None:
    assert history(*(sends(at, at) for at in range(1, 60))).unknown == ()


def test_a_send_that_was_not_answered_was_lost_when_it_was_asked() -> None:
    (outage,) = history(
        *(sends(at, 1) for at in range(1, 6)),
        changed(18.0, "healthy", "suspect", "timeout"),
        changed(19.0, "suspect", "healthy"),
    ).outages

    assert outage.failure is FailureKind.TIMEOUT
    assert outage.began == pytest.approx(recorded_history.TimeBounds(5.0, 8.0))
    assert outage.ended == pytest.approx(recorded_history.TimeBounds(8.0, 19.0))


def test_seconds_with_both_answers_are_a_share_of_requests_that_fail() -> None:
    found = history(
        *(sends(at, 10) for at in range(1, 6)),
        *(sends(at, 6, 4) for at in range(6, 26)),
        *(sends(at, 10) for at in range(26, 30)),
    ).outages

    assert {outage.failure for outage in found} == {FailureKind.BUSY}, "nothing moved and nothing was in doubt"
    assert {outage.share for outage in found} == {0.4}
    assert found[0].began.earliest == pytest.approx(5.0)
    assert found[-1].ended.latest == pytest.approx(25.0)


def test_failures_that_were_counted_say_their_kind() -> None:
    (outage,) = history(
        *(sends(at, 10) for at in range(1, 6)),
        sends(6, 0, 4),
        e.FailuresCounted(at=T + 6, entity="orders", route="primary", failure=FailureKind.UNAUTHORIZED, count=4),
        sends(7, 10),
    ).outages

    assert outage.failure is FailureKind.UNAUTHORIZED


def test_the_load_goes_on_while_nobody_is_told_yes() -> None:
    loads = history(*FAILED_OVER).loads

    rates = [rate for load in loads for _, _, rate in load.spans(69.0)]
    assert min(rates) > 5.0, "callers that are refused have not stopped sending"
    assert sum(load.rate_at(65.0) for load in loads) == pytest.approx(10.0, rel=0.2)


def test_a_second_in_which_refusals_begin_does_not_end_them() -> None:
    """Ten a second were offered before and after: the three seconds without an answer lower no rate."""
    loads = history(
        *(sends(at, 10) for at in range(1, 11)),
        changed(10.6, "healthy", "suspect", "connection lost"),
        sends(11, 6, 3),
        *(sends(at, 0, 3) for at in (12, 13)),
        changed(13.6, "suspect", "failed over"),
        *(sends(at, 10, route="backlog/2") for at in range(15, 31)),
        changed(30.0, "failed over", "healthy"),
    ).loads

    (load,) = loads
    assert all(8.5 <= rate <= 12.0 for _, _, rate in load.spans(30.0)), load


def test_callers_that_insist_are_known_by_a_message_that_is_in_doubt_twice() -> None:
    doubts = [
        e.InDoubt(at=T + at, entity="orders", message_id=name, route="primary", reason="connection lost")
        for at, name in ((10.6, "m2"), (11.5, "m1"), (11.6, "m2"), (12.5, "m1"))
    ]
    found = history(*FAILED_OVER[:12], *doubts, *FAILED_OVER[12:])

    assert found.insists == pytest.approx(1.0)
    assert len(found.loads) == 2
    assert all(load.waits for load in found.loads)
    assert history(*FAILED_OVER).insists is None


def test_backlog_queues_people_and_crashes_are_replayed_too() -> None:
    first = numbered(
        e.EngineStarted(at=T, pairing="p", primary="a", secondary="b", backlog_queues=4, syphon=True, version="1"),
        sends(1, 5),
        e.QueuePulled(at=T + 2, queue=3, reason="timeout"),
        e.QueueRestored(at=T + 9, queue=3),
        e.Forced(at=T + 12, entity="orders", by="anna"),
        sends(15, 5),
    )
    second = numbered(
        e.EngineStarted(at=T + 20, pairing="p", primary="a", secondary="b", backlog_queues=4, syphon=True, version="1"),
        e.EngineStopped(at=T + 40, reason="ordered"),
        boot="two",
    )
    found = recorded_history.history_of([*first, *second], POLICY, source="a test")

    assert [(outage.target, outage.began.earliest, outage.ended.latest) for outage in found.outages] == [(3, 2.0, 9.0)]
    assert [(act.at, act.verb, act.path) for act in found.acts] == [(12.0, "force", "orders")]
    assert [(crash.at, crash.back) for crash in found.crashes] == [(15.0, 20.0)]
    assert found.queues == 4


def test_the_queues_of_a_record_are_replayed_although_their_indices_have_a_gap() -> None:
    """Of four queues that were asked for, the creation of /1 failed."""
    lines = numbered(
        e.EngineStarted(at=T, pairing="p", primary="a", secondary="b", backlog_queues=3, syphon=True, version="1"),
        sends(1, 5),
        e.QueuePulled(at=T + 2, queue=3, reason="timeout"),
        e.QueueRestored(at=T + 9, queue=3),
        sends(10, 5),
    )
    found = recorded_history.history_of(lines, POLICY, source="a test")
    assert ([outage.target for outage in found.outages], found.queues) == ([0], 3)
    replay(found, POLICY, seed=1)


def test_a_queue_of_a_record_that_begins_late_has_a_place() -> None:
    lines = numbered(sends(1, 5), e.QueuePulled(at=T + 2, queue=7, reason="timeout"), sends(9, 5))
    found = recorded_history.history_of(lines, POLICY, source="a test")
    assert ([outage.target for outage in found.outages], found.queues) == ([0], 1)
    replay(found, POLICY, seed=1)


def test_a_record_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no sends to replay"):
        history()


def test_a_journal_is_read_from_its_files_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    spool.prepare(tmp_path)
    lines = [records.encode(record) for record in numbered(*FAILED_OVER)]
    (tmp_path / spool.CLOSED / "e-1.jsonl").write_bytes(b"\n".join([*lines, b'{"torn": ']))

    found = recorded_history.read_history([tmp_path], POLICY)

    assert len(found.outages) == 1
    assert any("1 unreadable lines" in sentence for sentence in found.unknown)


def test_copies_of_a_journal_and_half_of_one_count_once(tmp_path: Path) -> None:
    whole, copy = tmp_path / "host-1", tmp_path / "collected" / "host-1"
    lines = [records.encode(record) for record in numbered(*FAILED_OVER)]
    for folder in (whole, copy):
        spool.prepare(folder)
    (whole / spool.CLOSED / "e-1.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (copy / spool.CLOSED / "e-1.jsonl").write_bytes(b"\n".join(lines[: len(lines) // 2]) + b"\n")

    alone = recorded_history.read_history([whole], POLICY)

    assert recorded_history.read_history([tmp_path], POLICY) == replace(alone, source=str(tmp_path))
    assert recorded_history.read_history([copy, whole], POLICY) == replace(alone, source=f"{copy}, {whole}")


def test_a_folder_without_a_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no journal files in"):
        recorded_history.read_history([tmp_path], POLICY)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("internal server error: 'orders' is not available", FailureKind.INTERNAL),
        ("timeout", FailureKind.TIMEOUT),
        ("entity not found", FailureKind.NOT_FOUND),
        ("something else", None),
    ],
)
def test_a_reason_begins_with_its_kind(reason: str, kind: FailureKind | None) -> None:
    assert recorded_history.kind_of_reason(reason) is kind


def test_steps_are_spans_up_to_the_end() -> None:
    load = history(*FAILED_OVER).loads[0]

    assert load.steps[0] == recorded_history.RateStep(0.0, load.steps[0].rate)
    assert [end for _, end, _ in load.spans(30.0)][-1] <= 30.0


NAME = "orders@here-1.jsonl"


async def test_a_rehearsal_of_a_damaged_journal_says_what_it_passed_over(tmp_path: Path) -> None:
    path = await write(tmp_path)
    lines = path.read_bytes().splitlines()
    strange = GOOD.replace(b'"kind":"warned","about":"here","text":"good"', b'"kind":"state-changed","entity":"orders",'
                           b'"was":"healthy","now":"heal\\u0000","why":"x"')  # fmt: skip
    path.write_bytes(between([*lines, strange], UNREADABLE["a byte that is not UTF-8"]))
    history = recorded_history.read_history([tmp_path], Policy())
    said = " ".join(history.unknown)
    assert f"line {(len(lines) + 1) // 2 + 1} of {path.name} cannot be read" in said
    assert "what 1 changes of state mean" in said
