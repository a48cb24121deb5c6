"""A drill's promises are SPEC.md section 3's for the options in force; its bounds and costs follow from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.accounting.ledger import Arrival, Ledger, SendOutcome, balance
from paired_servicebus.core.drill.drill_plan import (
    CLOCK_MARGIN,
    MAX_NAMED,
    PARTS,
    DrillKnowledge,
    DrillMeasures,
    DrillNote,
    DrillOutcome,
    DrillPlan,
    EntityKind,
    FoundEntity,
    LastDrill,
    PartResult,
    Phase,
    broken_promises,
    drill_name,
    is_backlog,
    marker_path,
    role_path,
    run_called,
    run_of,
    sort_entities,
    time_rows,
)
from paired_servicebus.core.drill.drill_plan import DrillRole as Role
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy

STANDARD, BASIC = ServiceTier.STANDARD, ServiceTier.BASIC


def plan(policy: Policy | None = None, *, tier: ServiceTier = STANDARD, as_configured: bool = True) -> DrillPlan:
    return DrillPlan.of(policy or Policy(), tier, as_configured=as_configured)


def test_the_promises_are_those_of_the_options() -> None:
    """An outage is detected within send_timeout + failover_interval."""
    own = plan(
        Policy(send_timeout=20, failover_interval=40, ping_timeout=9, ping_primary_interval=11, failback_pings=3)
    )
    assert own.promise(Phase.DETECT) == 60
    assert own.promise(Phase.DIVERT) == 21
    assert own.promise(Phase.RETURN) == 60
    assert own.promise(Phase.DRAIN) is None


@pytest.mark.parametrize(("in_failover", "promise"), [(0.0, 120), (60.0, 60), (99.0, 21), (100.0, 20), (500.0, 20)])
def test_a_cool_down_extends_the_promise_of_the_return(in_failover: float, promise: float) -> None:
    own = plan(Policy(ping_timeout=9, ping_primary_interval=11, cool_down=100.0))
    assert own.return_promise(in_failover) == promise


def test_short_times_are_the_drills_own_and_other_options_the_pairings() -> None:
    configured = Policy(backlog_queue_count=40, ttl_policy="elapsed", failback_pings=5, cool_down=600, throttle_wait=30)
    short = plan(configured, as_configured=False)
    assert (short.policy.backlog_queue_count, short.policy.failback_pings, short.policy.cool_down) == (2, 1, 0)
    assert (short.policy.ttl_policy, short.policy.throttle_wait) == ("elapsed", 30)
    assert short.expected_seconds < 60


@pytest.mark.parametrize("as_configured", [True, False])
def test_a_drill_always_has_a_syphon_of_its_own_that_delivers_to_its_entities(as_configured: bool) -> None:
    configured = Policy(enable_syphon=False, start_degraded=True, destinations=("orders",))
    policy = plan(configured, as_configured=as_configured).policy
    assert (policy.enable_syphon, policy.start_degraded, policy.destinations) == (True, False, None)


def test_basic_has_plain_queues_and_says_so(approve: Approve) -> None:
    assert {part.kind for part in plan(tier=BASIC).parts} == {EntityKind.QUEUE}
    approve.part(plan(tier=BASIC).left_out, "drill")
    assert plan().left_out == plan(tier=ServiceTier.UNKNOWN).left_out == ""


@pytest.mark.parametrize("policy", [Policy(), Policy(failover_interval=3600, cool_down=7200, send_timeout=300)])
@pytest.mark.parametrize("as_configured", [True, False])
def test_every_drill_is_over_before_its_note_says_so(policy: Policy, as_configured: bool) -> None:
    own = plan(policy, as_configured=as_configured)
    promised = (own.promise(Phase.DETECT) or 0) + (own.promise(Phase.DIVERT) or 0) + own.return_promise(0)
    assert own.most_seconds > promised + own.expected_seconds - own.policy.failover_interval - own.policy.cool_down
    assert own.most_seconds < promised + 3600


def test_longer_times_cost_more_and_pings_by_link_are_free() -> None:
    assert plan().expected_operations > plan(as_configured=False).expected_operations > 100
    assert plan(Policy(ping="link")).expected_operations < plan().expected_operations


# -- Only exact names and notes are a drill's.


RUN = "0123456789ab"
NAME = f"x-paired-drill-{RUN}"
NOTE = DrillNote(RUN, made=1_800_000_000.0, until=1_800_000_900.0)


@pytest.mark.parametrize("rest", ["disabled", "deleted", "untouched", "marker", "x-servicebus-transfer/0"])
def test_paths_under_a_drills_name_are_a_drills(rest: str) -> None:
    assert run_of(f"{NAME}/{rest}") == RUN


@pytest.mark.parametrize(
    "path",
    [
        "", "orders", "x-paired-drill-", "x-paired-drill-orders", "x-paired-drill-orders/disabled", NAME, f"{NAME}/",
        f"{NAME}/orders", f"{NAME}/Disabled", f"{NAME}/disabled/", f"{NAME}/disabled\n", f" {NAME}/disabled",
        f"y{NAME}/disabled", f"{NAME}c/disabled", f"x-paired-drill-{RUN[:-1]}/disabled",
        f"x-paired-drill-{RUN.upper()}/disabled", f"{NAME}/x-servicebus-transfer", f"{NAME}/x-servicebus-transfer/",
        f"{NAME}/x-servicebus-transfer/01", f"{NAME}/x-servicebus-transfer/-1", f"{NAME}/x-servicebus-transfer/x",
        f"{NAME}/x-servicebus-transfer/0/0", f"{NAME}/x-servicebus-transfer/٣", f"{NAME}/disabled/$deadletterqueue",
    ],
)  # fmt: skip
def test_other_paths_are_not(path: str) -> None:
    assert run_of(path) == ""
    assert not is_backlog(path)


def test_backlog_queues_differ_from_the_marker() -> None:
    assert is_backlog(f"{NAME}/x-servicebus-transfer/7")
    assert not is_backlog(f"{NAME}/marker")


def test_a_name_on_the_command_line_is_exact() -> None:
    assert run_called(NAME) == RUN
    assert run_called(f"{NAME}/disabled") == run_called(RUN) == run_called("orders") == ""


def test_a_note_is_read_as_it_was_written_and_fits_an_entity() -> None:
    assert DrillNote.read(str(NOTE)) == NOTE
    assert len(str(NOTE)) <= 1024


@pytest.mark.parametrize(
    "metadata",
    ["", "x", str(NOTE)[1:], f"{NOTE} ", f"{NOTE}\n", str(NOTE).replace("drill", "grill"),
     str(NOTE).replace("2027-01", "2027-13"), str(NOTE).replace(RUN, RUN.upper())],
)  # fmt: skip
def test_any_other_metadata_is_no_note(metadata: str) -> None:
    assert DrillNote.read(metadata) is None


# -- An entity is deleted only with every mark of an ended drill: name, note, and age or a record.


RUN, OTHER = "0123456789ab", "ba9876543210"
UNTIL = 1_800_000_900.0
LEFTOVER_RULES_NOTE = str(DrillNote(RUN, made=UNTIL - 900, until=UNTIL))
OLD = DrillKnowledge(now=UNTIL + CLOCK_MARGIN + 1)
YOUNG = DrillKnowledge(now=UNTIL + CLOCK_MARGIN - 1)

DISABLED = FoundEntity(path=role_path(RUN, Role.DISABLED), metadata=LEFTOVER_RULES_NOTE)
TOPIC = FoundEntity(path=role_path(RUN, Role.UNTOUCHED), metadata=LEFTOVER_RULES_NOTE, is_topic=True)
MARKER = FoundEntity(path=marker_path(RUN), metadata=LEFTOVER_RULES_NOTE)
BACKLOG = FoundEntity(path=f"{drill_name(RUN)}/x-servicebus-transfer/0")


def test_an_old_drills_entities_are_left_over_and_its_marker_is_deleted_last() -> None:
    found = sort_entities([MARKER, DISABLED, BACKLOG, TOPIC], OLD)
    assert found.leftover == (DISABLED, BACKLOG, TOPIC, MARKER)
    assert found.young == found.running == found.foreign == ()


def test_a_young_drills_entities_stay_and_the_sentence_says_until_when(approve: Approve) -> None:
    found = sort_entities([MARKER, BACKLOG], YOUNG)
    assert found.leftover == ()
    assert len(found.young) == 1
    assert "2027-01-15 08:15:00 UTC" in found.young[0]
    approve.part(found.young[0], "drill", has=("paired drill", "--clean", "--yes"))


@pytest.mark.parametrize("known", [replace(YOUNG, named=RUN), replace(YOUNG, ended=[RUN])])
def test_a_young_one_is_deleted_once_it_is_known_to_have_ended(known: DrillKnowledge) -> None:
    assert sort_entities([BACKLOG, MARKER], known).leftover == (BACKLOG, MARKER)


@pytest.mark.parametrize("known", [YOUNG, OLD, replace(OLD, named=RUN)])
def test_a_drill_that_runs_here_stays_whatever_its_age_and_whoever_names_it(known: DrillKnowledge) -> None:
    found = sort_entities([BACKLOG, MARKER, DISABLED], replace(known, running=[RUN]))
    assert (found.leftover, found.running) == ((), (RUN,))


@pytest.mark.parametrize(
    "entity",
    [
        FoundEntity(path="x-paired-drill-orders", metadata=LEFTOVER_RULES_NOTE),
        FoundEntity(path=drill_name(RUN), metadata=LEFTOVER_RULES_NOTE),
        replace(DISABLED, metadata=""),
        replace(DISABLED, metadata="orders of the web shop"),
        replace(DISABLED, path=role_path(OTHER, Role.DISABLED)),
        replace(TOPIC, metadata=LEFTOVER_RULES_NOTE + "!"),
        replace(MARKER, metadata=""),
    ],
)
def test_a_name_or_a_note_alone_is_not_enough(entity: FoundEntity) -> None:
    found = sort_entities([entity], replace(OLD, named=RUN, ended=[RUN, OTHER]))
    assert found.leftover == ()
    assert found.foreign == (f"{entity.path} was not made by a drill, or its note is gone: it stays",)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [replace(MARKER, metadata="")],
        [replace(MARKER, is_topic=True)],
        [FoundEntity(path=marker_path(OTHER), metadata=LEFTOVER_RULES_NOTE.replace(RUN, OTHER))],
        [DISABLED],
    ],
)
def test_a_backlog_queue_without_its_marker_queue_stays(others: list[FoundEntity]) -> None:
    assert BACKLOG not in sort_entities([BACKLOG, *others], OLD).leftover


@pytest.mark.parametrize(
    "other",
    [replace(BACKLOG, metadata="mine"), replace(BACKLOG, differences=("Status",)), replace(BACKLOG, is_topic=True)],
)
def test_a_backlog_queue_that_was_changed_stays(other: FoundEntity) -> None:
    assert sort_entities([other, MARKER], OLD).leftover == (MARKER,)


# -- A promise is broken by a late or missing event, a failover of a healthy entity, or a message without its place.


PLAN = DrillPlan.of(Policy(), ServiceTier.STANDARD, as_configured=False)
KEPT = {"detect": 15.0, "divert": 11.0, "returned": 7.0, "return_promise": 7.0, "failovers": 1}


def ledger(**answers: SendOutcome) -> Ledger:
    answers = answers or {"a-0": SendOutcome.ACCEPTED}
    return balance(answers=answers, arrivals=[Arrival("a-0", "a", 0)])


def measures(part: dict[str, Any] | None = None, **more: Any) -> DrillMeasures:
    """One with kept promises; part: other values of the first entity."""
    results = [PartResult(part=one, **KEPT) if one.fails else PartResult(part=one) for one in PARTS]
    results[0] = replace(results[0], **part or {})
    values = {"ledger": ledger(), "drain": 500.0, "diverted": 3, "operations": 400, "seconds": 30.0} | more
    return DrillMeasures(parts=tuple(results), **values)


def test_times_up_to_the_promise_hold_and_a_drain_may_take_any_time() -> None:
    assert broken_promises(PLAN, measures()) == ()
    rows = time_rows(PLAN, measures())
    assert [row.phase for row in rows] == [Phase.DETECT] * 2 + [Phase.DIVERT] * 2 + [Phase.RETURN] * 2 + [Phase.DRAIN]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"detect": 15.1}, "disabled failed over after 15.1 s; promised: 15 s"),
        ({"detect": None}, "disabled did not fail over"),
        ({"divert": 11.5}, "disabled had its first send in the backlog after 11.5 s; promised: 11 s"),
        ({"divert": None}, "disabled had no send accepted by a backlog queue"),
        ({"returned": 8.0}, "disabled failed back after 8.0 s; promised: 7 s"),
        ({"returned": None}, "disabled did not fail back"),
    ],
)
def test_a_late_or_missing_event_is_named_with_its_promise(part: dict[str, Any], sentence: str) -> None:
    assert broken_promises(PLAN, measures(part)) == (sentence,)


def test_messages_that_stay_parked_break_it(approve: Approve) -> None:
    approve.part(broken_promises(PLAN, measures(drain=None)), "drill")


def test_a_failover_of_the_healthy_entity_breaks_it(approve: Approve) -> None:
    found = measures()
    parts = (*found.parts[:2], replace(found.parts[2], failovers=2))
    approve.part(broken_promises(PLAN, replace(found, parts=parts)), "drill", has=("2 times",))


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"a-0": SendOutcome.ACCEPTED, "a-1": SendOutcome.ACCEPTED}, "1 message accepted and lost: a-1"),
        ({"a-0": SendOutcome.REFUSED}, "1 message delivered and never accepted: a-0"),
        ({"a-0": SendOutcome.ACCEPTED, "a-1": SendOutcome.REFUSED}, "1 message refused to the end"),
        ({"a-0": SendOutcome.ACCEPTED, "a-1": SendOutcome.IN_DOUBT}, "1 message in doubt to the end"),
    ],
)
def test_a_message_without_its_place_is_named(answers: dict[str, SendOutcome], sentence: str) -> None:
    assert sentence in broken_promises(PLAN, measures(ledger=ledger(**answers)))


def test_a_message_in_doubt_that_arrived_breaks_nothing() -> None:
    assert broken_promises(PLAN, measures(ledger=ledger(**{"a-0": SendOutcome.IN_DOUBT}))) == ()


def test_many_lost_ids_are_cut(approve: Approve) -> None:
    answers = {f"a-{number}": SendOutcome.ACCEPTED for number in range(MAX_NAMED + 6)}
    (sentence,) = broken_promises(PLAN, measures(ledger=ledger(**answers)))
    approve.part(sentence, "drill", has=("15 messages",))
    assert sentence.endswith(" and 5 more")


def test_the_last_drill_says_when_and_how_it_ended(approve: Approve) -> None:
    began = LastDrill(began=1_800_000_000.0)
    approve.part(began.sentence, "drill", has=("2027-01-15", "08:00:00"))
    ended = replace(began, ended=1_800_000_030.0, outcome=DrillOutcome.HELD, text="balanced", configured=True)
    approve.part(ended.sentence, "drill", has=("2027-01-15", "08:00:00"))
