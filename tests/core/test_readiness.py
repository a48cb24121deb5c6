"""Would a failover work now? Each rule: what was seen, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.alarm_views import condition, trouble
from tests.approval import Approve
from tests.fleet_views import own

from paired_servicebus.core.drill.drill_plan import DrillOutcome, LastDrill
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Finding,
    FindingVerdict,
    QueueView,
    SyphonStatus,
    TroubleKind,
)
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.core.operator.failover_readiness import (
    DRILL,
    EXPIRY,
    GB,
    ROOM,
    RULES,
    SECONDARY,
    SEND,
    SENDS,
    SIZES,
    SYPHON,
    TOKENS,
    Evidence,
    QueueEvidence,
    TokenEvidence,
    judge,
    unreachable,
    with_sends,
)
from paired_servicebus.core.operator.why_line import failover_cause, why
from paired_servicebus.core.text.time_format import clock

OK, WARN, NO, UNKNOWN = FindingVerdict


def queue(index: int = 0, **changes: Any) -> QueueEvidence:
    """One that a link was opened to, with room."""
    good = QueueEvidence(
        path=f"q/{index}", tried_at=10.0, messages=0, size_bytes=0, limit_bytes=5 * GB, read_at=9.0
    )  # fmt: skip
    return replace(good, **changes)


DRILLED = LastDrill(began=1.0, ended=2.0, outcome=DrillOutcome.HELD, text="balanced")
GOOD = Evidence(
    at=10.0,
    primary="contoso",
    secondary="backup",
    queues=(queue(0), queue(1)),
    queues_wanted=2,
    tokens=(TokenEvidence(namespace="backup"),),
    syphon=SyphonStatus.IDLE,
    too_large=(),
    expiry=(("orders", False),),
    expiry_at=5.0,
    last_drill=DRILLED,
    drills_read=True,
)
REFUSED = {"refusal": "not authorized"}
SILENT = {"refusal": "timeout", "unreachable": True}
NOT_READ = {"messages": None, "size_bytes": None, "limit_bytes": None, "read_at": None}


def both(**changes: Any) -> dict[str, Any]:
    return {"queues": (queue(0, **changes), queue(1, **changes))}


def found(what: str, **changes: Any) -> Finding:
    return next(one for one in judge(replace(GOOD, **changes)).findings if one.what == what)


def test_where_all_is_well_everything_is_ok_and_nothing_is_to_be_done() -> None:
    readiness = judge(GOOD)
    assert [one.verdict for one in readiness.findings] == [OK] * len(RULES)
    assert not any(one.todo for one in readiness.findings)
    assert readiness.ready


@pytest.mark.parametrize(
    ("what", "changes", "verdict", "said"),
    [
        (SECONDARY, both(**SILENT), NO, "the secondary namespace does not answer: timeout"),
        (SECONDARY, {"queues": (queue(0), queue(1, **SILENT))}, OK, "it answered for 1 of 2"),
        (SECONDARY, both(**REFUSED), OK, "it answered for 2 of 2"),
        (SECONDARY, both(tried_at=None), UNKNOWN, "not tried yet"),
        (SEND, both(**REFUSED), NO, "links opened to 0 of 2 backlog queues, nothing sent; not authorized: q/0, q/1"),
        (SEND, {"queues": (queue(0), queue(1, **REFUSED))}, WARN, "not authorized: q/1"),
        (SEND, {"queues_wanted": 10}, WARN, "links opened to 2 of 10 backlog queues"),
        (SEND, {"queues": (queue(),), "queues_wanted": 1}, WARN, "1 of 1"),
        (SEND, both(tried_at=None), UNKNOWN, "0 of 2"),
        (ROOM, {}, OK, "10.0 of 10 GB free in 2 backlog queues, 0 messages parked"),
        (ROOM, both(size_bytes=4.5 * GB, messages=70), WARN, "1.0 of 10 GB free in 2 backlog queues, 140 messages"),
        (ROOM, {"queues": (queue(0), queue(1, size_bytes=5 * GB))}, WARN, "full: q/1"),
        (ROOM, both(size_bytes=5 * GB), NO, "0.0 of 10 GB free"),
        (ROOM, {**both(**NOT_READ), "trouble": "not authorized"}, UNKNOWN, "are unknown: not authorized"),
        (ROOM, {"trouble": "timeout"}, OK, "(not updated: timeout)"),
        (TOKENS, {}, OK, "backup: a key, valid until it is changed"),
        (TOKENS, {"tokens": (TokenEvidence(namespace="b", expires_at=70.0),)}, OK, "a self-renewing token, now"),
        (
            TOKENS,
            {"tokens": (TokenEvidence(namespace="b", expires_at=7000.0, renewable=False),)},
            OK,
            "b: a signature, valid until 01:56:40",
        ),
        (TOKENS, {"tokens": (TokenEvidence(namespace="b", expires_at=70.0, renewable=False),)}, WARN, "00:01:10"),
        (TOKENS, {"tokens": (TokenEvidence(namespace="b", expires_at=9.0, renewable=False),)}, NO, "00:00:09"),
        (TOKENS, {"tokens": (TokenEvidence(namespace="b", trouble="no login"),)}, NO, "b: no token: no login"),
        (TOKENS, {"tokens": ()}, UNKNOWN, "not looked at"),
        (SYPHON, {"syphon": SyphonStatus.RUNNING}, OK, "moving messages"),
        (SYPHON, {"syphon": SyphonStatus.PAUSED}, WARN, "is paused"),
        (SYPHON, {"syphon": SyphonStatus.STUCK}, WARN, "syphon stuck"),
        (SYPHON, {"syphon": SyphonStatus.OFF}, WARN, "syphon unknown: this engine runs none, and none is known here"),
        (SYPHON, {"syphon": None}, WARN, "syphon unknown: no known engine of this pairing"),
        (SYPHON, {"syphon": SyphonStatus.OFF, "syphons_elsewhere": ("b@h",)}, OK, "engine b@h runs one"),
        (SIZES, {"too_large": None}, UNKNOWN, "only an engine that sends can count them"),
        (
            SIZES,
            {"too_large": (("orders", 3),), "limit_bytes": 262144},
            WARN,
            "messages that would not survive failover (limit 262,144 bytes): 3 to orders",
        ),
        (SIZES, {"too_large": (("orders", 0),)}, OK, "would have fitted"),
        (EXPIRY, {"ping": "link", "expiry": None}, OK, 'ping = "link"'),
        (EXPIRY, {"expiry": None}, UNKNOWN, "unknown"),
        (EXPIRY, {"expiry": (("orders", None),)}, UNKNOWN, "not known: orders"),
        (EXPIRY, {"expiry": (("orders", True),)}, WARN, "dead-lettered by: orders"),
    ],
)
def test_what_was_seen_is_judged(what: str, changes: dict[str, Any], verdict: FindingVerdict, said: str) -> None:
    finding = found(what, **changes)
    assert finding.verdict is verdict
    assert said in finding.evidence


def test_parked_messages_with_no_syphon_known_to_run_warn() -> None:
    """Section 4.6: "Parked messages and no syphon known to run: "syphon unknown", a notice"."""
    finding = found(SYPHON, syphon=SyphonStatus.OFF, **both(messages=2))
    assert finding.verdict is WARN
    assert finding.evidence.endswith("; 4 messages parked")
    assert found(SYPHON, syphon=SyphonStatus.OFF, syphons_elsewhere=("b",), **both(messages=2)).verdict is OK


def test_pings_that_would_be_dead_lettered_are_warned_of(approve: Approve) -> None:
    """The console warns where an entity dead-letters on expiry (each ping would land there)."""
    finding = found(EXPIRY, expiry=(("orders", True),))
    approve.part(finding.todo, "rules")


@pytest.mark.parametrize("status", [None, *SyphonStatus])
def test_every_status_of_a_syphon_has_its_sentence(status: SyphonStatus | None) -> None:
    assert found(SYPHON, syphon=status).evidence


def test_whatever_warns_or_says_no_tells_what_to_do() -> None:
    worse = replace(GOOD, **both(**REFUSED, size_bytes=5 * GB, messages=1), syphon=None)
    assert all(one.todo for one in judge(worse).of(WARN, NO))


def test_the_alarm_is_the_first_that_says_no_and_how_many_more(approve: Approve) -> None:
    readiness = judge(replace(GOOD, **both(**SILENT)))
    assert unreachable(readiness)
    (alarm,) = alarms(condition(readiness=readiness))
    approve.part(alarm.text, "rules", has=("1 more", "paired check", "[secondary]"))


OPEN = QueueView(index=0, path="q/0", in_rotation=True)
SHUT = replace(OPEN, in_rotation=False, pulled_reason="entity disabled")
ENTITY = own("orders")
LOSES = {"refused_per_second": 2.0, "sends_per_second": 0.0}


@pytest.mark.parametrize(
    ("entities", "queues", "verdict", "said"),
    [
        ((), (OPEN,), UNKNOWN, "no entity is known"),
        ((ENTITY,), (OPEN,), OK, "accepted by the primary: orders"),
        ((replace(ENTITY, state=State.UNKNOWN),), (OPEN,), UNKNOWN, "unknown, as nothing was sent: orders"),
        ((replace(ENTITY, state=State.FORCED, route="backlog"),), (OPEN,), OK, "accepted by a backlog queue: orders"),
        ((replace(ENTITY, state=State.FAILED_OVER, **LOSES),), (OPEN,), NO, "refused by both namespaces: orders"),
        ((replace(ENTITY, state=State.FAILED_OVER, route="nowhere"),), (SHUT,), NO,
         "refused by both namespaces: orders; all backlog queues refuse sends (entity disabled)"),
        ((replace(ENTITY, state=State.PINNED, **LOSES),), (OPEN,), WARN, "not diverted yet: orders"),
        ((ENTITY,), (SHUT,), NO, "accepted by the primary: orders; all backlog queues refuse sends (entity disabled)"),
    ],
)  # fmt: skip
def test_the_machine_answers_what_a_send_would_do_now(
    entities: tuple[EntityView, ...], queues: tuple[QueueView, ...], verdict: FindingVerdict, said: str
) -> None:
    """`check` asks the pairing's own state what a send would do now, for each entity: accepted by the primary, by a
    backlog queue, or refused and why. It is not ready … while every backlog queue refuses, whatever their links do."""
    readiness = with_sends(judge(GOOD), condition(entities=entities, queues=queues))
    assert (readiness.findings[0].what, readiness.findings[0].verdict) == (SENDS, verdict)
    assert said in readiness.findings[0].evidence
    assert bool(readiness.findings[0].todo) == (verdict in (NO, WARN))
    assert readiness.ready is (verdict is not NO)
    assert with_sends(readiness, condition(entities=entities, queues=queues)) == readiness, "asked anew, kept once"


def test_while_the_primary_is_away_and_nothing_was_sent_a_send_is_held() -> None:
    away = (trouble(TroubleKind.NAMESPACE_UNREACHABLE, "primary"),)
    idle = replace(ENTITY, state=State.UNKNOWN)
    found = with_sends(judge(GOOD), condition(entities=(idle,), queues=(OPEN,), troubles=away)).findings[0]
    assert (found.verdict, found.evidence) == (
        WARN,
        "held while the primary is away, then accepted by a backlog queue: orders",
    )
    shut = with_sends(judge(GOOD), condition(entities=(idle,), queues=(SHUT,), troubles=away))
    assert not shut.ready


def test_each_finding_says_when_its_evidence_was_read() -> None:
    """Numbers on the screen carry when they were read."""
    late = replace(GOOD, queues=(queue(0, tried_at=3.0, read_at=4.0), queue(1)))
    times = {one.what: one.read_at for one in judge(late).findings}
    assert times == {
        SECONDARY: 3.0, SEND: 3.0, ROOM: 4.0, TOKENS: 10.0, SYPHON: 10.0, SIZES: 10.0, EXPIRY: 5.0, DRILL: 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({}, OK, "short times: held: balanced"),
        ({"last_drill": replace(DRILLED, configured=True)}, OK, "the pairing's own times: held: balanced"),
        ({"last_drill": replace(DRILLED, outcome=DrillOutcome.BROKEN, text="no")}, WARN, "short times: broken: no"),
        (
            {"last_drill": replace(DRILLED, outcome=DrillOutcome.NOT_DONE, text="")},
            WARN,
            "short times: not carried out",
        ),
        ({"last_drill": replace(DRILLED, outcome=DrillOutcome.INTERRUPTED, text="")}, WARN, "interrupted"),
        ({"last_drill": LastDrill(began=1.0)}, WARN, "it has not ended, or was killed"),
        ({"last_drill": None}, UNKNOWN, "never drilled, as far as this machine knows"),
        ({"last_drill": None, "drills_read": False}, UNKNOWN, "unknown: paired check and engines read it"),
    ],
)
def test_the_last_drill_is_good_only_if_it_held(changes: dict[str, Any], verdict: FindingVerdict, said: str) -> None:
    (finding,) = (one for one in judge(replace(GOOD, **changes)).findings if one.what == DRILL)
    assert finding.verdict is verdict
    assert said in finding.evidence
    assert bool(finding.todo) == (verdict is not OK and changes.get("drills_read", True))


# -- The why-line of every state, word for word.


NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def line(state: State, **more: object) -> str:
    return why(Entity(path="orders", state=state, since=NOON, **more))


PINGED = {
    "first_failure": "timeout",
    "first_failure_at": NOON,
    "pings": 3,
    "ping_due": NOON + 90,
    "last_ping_at": NOON + 60,
    "last_ping_text": "connection lost",
}

LINES = [
    (State.UNKNOWN, {}, 'no sends by this engine; set probe = ["orders"] to watch it'),
    (
        State.UNKNOWN,
        {"last_failure": "server busy", "last_failure_at": NOON},
        "no send accepted yet; last failure 12:00:00 "
        "(server busy: partitioning the entity makes throttling less likely)",
    ),
    (State.HEALTHY, {}, "sends go to the primary; no failure since the engine started"),
    (
        State.HEALTHY,
        {"last_failure": "timeout", "last_failure_at": NOON + 5},
        "sends go to the primary; last failure 12:00:05 (timeout)",
    ),
    (
        State.HEALTHY,
        {"last_failure": "server busy", "last_failure_at": NOON},
        "sends go to the primary; last failure 12:00:00 "
        "(server busy: partitioning the entity makes throttling less likely)",
    ),
    (
        State.SUSPECT,
        {"first_failure": "timeout", "fails_over_at": NOON + 60},
        "timeout 12:00:00; fails over at 12:01:00 unless a send succeeds",
    ),
    (
        State.FAILED_OVER,
        {"first_failure": "timeout", "ping_due": NOON + 60},
        "timeout; first ping 12:01:00",
    ),
    (
        State.FAILED_OVER,
        {"first_failure": "timeout", "first_failure_at": NOON, "pings": 1, "ping_in_flight": True},
        "timeout since 12:00:00; no ping answered yet",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": False},
        "timeout since 12:00:00; ping 3 failed 12:01:00 (connection lost); next 12:01:30",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": False, "ping_due": None, "ping_in_flight": True},
        "timeout since 12:00:00; ping 2 failed 12:01:00 (connection lost)",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": False, "last_ping_text": "server busy"},
        "timeout since 12:00:00; ping 3 failed 12:01:00 "
        "(server busy: partitioning the entity makes throttling less likely); next 12:01:30",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": True, "pings_in_a_row": 2},
        "timeout since 12:00:00; pings accepted (2 in a row); next 12:01:30",
    ),
    (State.FAILED_OVER, {"ping_due": NOON + 60}, "the primary accepted no send since the release; first ping 12:01:00"),
    (
        State.FORCED,
        {"by": "anna", "by_why": "a drill", "ping_due": NOON + 60},
        'forced by anna 12:00:00 "a drill"; first ping 12:01:00; stays until released',
    ),
    (
        State.FORCED,
        {**PINGED, "by": "anna", "last_ping_good": True, "pings_in_a_row": 3},
        "forced by anna 12:00:00; pings accepted (3 in a row); next 12:01:30; stays until released",
    ),
    (State.PINNED, {"by": "anna"}, "pinned by anna 12:00:00; no failure since"),
    (
        State.PINNED,
        {"by": "anna", "by_why": "a drill", "failures_while_pinned": 1},
        'pinned by anna 12:00:00 "a drill"; 1 failure since, none diverted',
    ),
    (
        State.PINNED,
        {"by": "anna", "failures_while_pinned": 4},
        "pinned by anna 12:00:00; 4 failures since, none diverted",
    ),
]


@pytest.mark.parametrize(("state", "more", "text"), LINES)
def test_the_why_line(state: State, more: dict[str, object], text: str) -> None:
    assert line(state, **more) == text


def test_every_state_has_a_line_here() -> None:
    assert {state for state, _, _ in LINES} == set(State)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("timeout since 12:00:00; no ping answered yet", "timeout"),
        ('no send accepted for 0.5 s after "timeout"', "timeout"),
        ("the primary accepted no send since the release; first ping 12:01:00", ""),
    ],
    ids=["line", "event", "released"],
)
def test_the_cause_of_a_failover_is_read_from_its_line(line: str, cause: str) -> None:
    assert failover_cause(line) == cause


class TestAsItHappens:
    """The same lines out of the machine, where a line and what it speaks of could part."""

    def test_a_ping_under_way_is_not_called_refused(self, told) -> None:
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        began = pairing.at
        pairing.ticks(to=10)
        assert why(pairing.entity()).endswith("no ping answered yet")
        pairing.now = 12
        pairing.ping_failed(1, took=2)
        answered = clock(pairing.at)
        pairing.ticks(to=20)
        assert why(pairing.entity()) == f"timeout since {clock(began)}; ping 1 failed {answered} (timeout)"

    def test_a_new_failover_does_not_tell_of_the_last_ones_pings(self, told) -> None:
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.ping_accepted(1)
        pairing.fails(reason="connection lost")
        entity = pairing.entity()
        assert (entity.last_ping_at, entity.last_ping_good, entity.last_ping_text) == (None, None, "")
        assert why(entity) == f"connection lost since {clock(pairing.at)}; first ping {clock(pairing.at + 10)}"
