"""Every place shows the same alarms, with the same severity: one list of situations, one test of all places.

SPEC.md section 12: "The first lines of the screen, `status`, `check`, `fleet`, the metrics
(`paired_alarm{name,severity}`), `on_change`, the library's logger, readiness and the shipped alert rules render the
table. Two of them never differ".
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.gateway_view import GatewayView
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.pairing_fold import pairing_of
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import (
    JournalView,
    Readiness,
    Snapshot,
    SyphonStatus,
    TroubleKind,
)
from paired_servicebus.core.operator.alarms import (
    REPORTED_BY_EVENTS,
    ROWS,
    AlarmChanges,
    Severity,
    accepts_sends,
    advice,
    alarms,
    calls,
    degrading,
    fleet_alarms,
)
from paired_servicebus.core.operator.failover_readiness import answered
from paired_servicebus.core.operator.fleet_sentences import fleet_lines
from paired_servicebus.engine.control.discovery import EngineStatus
from paired_servicebus.engine.service.metrics import families
from paired_servicebus.pairing.runtime.pairing_runtime import EventLog
from paired_servicebus.ui.state.summary import SHOWN_BY_STATES, SHOWN_IN_LOSS, Level, summary
from paired_servicebus.ui.state.view import Silent, View, apply_news
from paired_servicebus.verbs.check_verb import as_json as check_object
from paired_servicebus.verbs.check_verb import as_lines as check_lines
from paired_servicebus.verbs.check_verb import result_of
from paired_servicebus.verbs.status_text import as_json, as_lines, health
from tests import fleet_views, gateway_views
from tests.alarm_views import obstacle, trouble

from .conftest import AT, MadeUp

CRITICAL, WARNING, NOTICE = Severity
RULES = Path(__file__).parents[2] / "console/paired_servicebus/deploy/prometheus-rules.yaml"
Raised = set[tuple[str, str]]


@dataclass(frozen=True)
class Situation:
    """A snapshot, and what every place says of it."""

    made: Callable[[MadeUp], Snapshot]
    alarms: dict[str, Severity]
    check: int = 0
    """The exit status of `paired check`."""
    serves: bool = True
    """Whether /readyz answers 200."""
    later: float = 0.0
    """Seconds after the snapshot at which it is read."""

    @property
    def raised(self) -> Raised:
        return {(name, severity.value) for name, severity in self.alarms.items()}


def _with(kind: TroubleKind, what: str = "", **changes: Any) -> Callable[[MadeUp], Snapshot]:
    return lambda made: made.snapshot(troubles=(trouble(kind, what),), **changes)


def _closed(made: MadeUp, reason: str = "entity disabled") -> Any:
    shut = {"in_rotation": False, "pulled_since": AT - 9, "pulled_reason": reason}
    return tuple(replace(queue, **shut) for queue in made.queues())


def _queue(made: MadeUp, **changes: Any) -> Snapshot:
    first, *others = made.queues()
    return made.snapshot(queues=(replace(first, **changes), *others))


def _unknown(made: MadeUp, **changes: Any) -> Snapshot:
    """Nothing was sent by this engine, and the primary did not answer at the start."""
    idle = [made.entity(path, State.UNKNOWN, sends_per_second=0.0, accepted=0) for path in ("orders", "audit")]
    away = (trouble(TroubleKind.NAMESPACE_UNREACHABLE, "primary", "contoso.example: port 5671 did not answer"),)
    return made.snapshot(*idle, troubles=away, **changes)


def _refused(made: MadeUp, **changes: Any) -> Any:
    lost = {"refused": 31, "refused_per_second": 2.6, "refused_since": AT - 12, "refusals": (("timeout", 31),)}
    return made.entity("orders", **lost | {"sends_per_second": 0.0} | changes)


def _journal(made: MadeUp, status: SyphonStatus) -> Snapshot:
    return made.snapshot(journal=JournalView(lines=9, lost=2, trouble="full"), syphon=made.syphon(status))


SITUATIONS: dict[str, Situation] = {
    "all well": Situation(lambda made: made.snapshot(), {}),
    "nothing was sent yet": Situation(
        lambda made: made.snapshot(made.entity("orders", State.UNKNOWN, accepted=0)), {"unknown": NOTICE}
    ),
    "calls without an answer": Situation(
        lambda made: made.snapshot(made.entity("orders", unanswered_since=AT - 17)), {"unanswered": WARNING}
    ),
    "primary refused at the start, nobody sends": Situation(
        _unknown, {"namespace_unreachable": CRITICAL, "unknown": NOTICE}
    ),
    "both namespaces away at the start": Situation(
        lambda made: _unknown(made, queues=_closed(made, "timeout")),
        {"namespace_unreachable": CRITICAL, "unknown": NOTICE, "nothing_accepted": CRITICAL,
         "backlog_refuses": CRITICAL, "not_ready": CRITICAL},
        check=1, serves=False,
    ),
    "a key that the primary refuses": Situation(
        _with(TroubleKind.CREDENTIAL_REFUSED, "primary"), {"credential_refused": CRITICAL}
    ),
    "a credential without tokens": Situation(
        _with(TroubleKind.CREDENTIAL_SILENT, "contoso"), {"credential_silent": CRITICAL}
    ),
    "an entity missing at the start": Situation(
        _with(TroubleKind.ENTITY_MISSING, "'nowhere'"), {"entity_missing": CRITICAL}
    ),
    "an entity deleted while it was sent to": Situation(
        lambda made: made.snapshot(made.failed_over("orders", missing_since=AT - 9)), {"entity_missing": CRITICAL}
    ),
    "an entity unauthorized": Situation(
        _with(TroubleKind.ENTITY_UNAUTHORIZED, "'payments'"), {"entity_unauthorized": CRITICAL}
    ),
    "secondary away at the start": Situation(
        lambda made: made.snapshot(
            troubles=(trouble(TroubleKind.STARTED_DEGRADED, "backup"),), queues=_closed(made, "not paired")
        ),
        {"started_degraded": CRITICAL, "backlog_refuses": CRITICAL, "not_ready": CRITICAL},
        check=1,
    ),
    "callers fail at a suspect entity": Situation(
        lambda made: made.snapshot(_refused(made, state=State.SUSPECT, fails_over_at=AT + 9)),
        {"sends_refused": CRITICAL, "suspect": WARNING},
    ),
    "callers fail at a pinned entity": Situation(
        lambda made: made.snapshot(_refused(made, state=State.PINNED)), {"sends_refused": CRITICAL, "pinned": WARNING}
    ),
    "single messages are refused": Situation(
        lambda made: made.snapshot(_refused(made, sends_per_second=40.0)), {"calls_fail": WARNING}
    ),
    "throttled, and no call is accepted": Situation(
        lambda made: made.snapshot(_refused(made, throttled=3, throttled_since=AT - 9)),
        {"sends_refused": CRITICAL, "throttled": WARNING},
    ),
    "throttled callers wait": Situation(
        lambda made: made.snapshot(made.entity("orders", throttled=3, throttled_since=AT - 9)), {"throttled": WARNING}
    ),
    "failed over": Situation(
        lambda made: made.snapshot(made.failed_over("payments"), made.entity("audit")), {"failed_over": CRITICAL}
    ),
    "failed over, and a part of the queues refuses": Situation(
        lambda made: replace(made.outage(), unused=made.snapshot().unused),
        {"failed_over": CRITICAL, "backlog_queue_out": WARNING},
    ),
    "failed over, and all backlog queues refuse sends that links attach to": Situation(
        lambda made: made.snapshot(
            made.failed_over("payments", route="nowhere"), queues=_closed(made), readiness=Readiness(at=AT, findings=())
        ),
        {"failed_over": CRITICAL, "nothing_accepted": CRITICAL, "backlog_refuses": CRITICAL, "not_ready": CRITICAL},
        check=1, serves=False,
    ),
    "one entity without a route": Situation(
        lambda made: made.snapshot(
            made.failed_over("payments", route="nowhere"), made.entity("audit"), queues=_closed(made)
        ),
        {"failed_over": CRITICAL, "no_route": CRITICAL, "backlog_refuses": CRITICAL, "not_ready": CRITICAL},
        check=1,
    ),
    "healthy, and all backlog queues refuse": Situation(
        lambda made: made.snapshot(queues=_closed(made)), {"backlog_refuses": CRITICAL, "not_ready": CRITICAL}, check=1
    ),
    "a failover would not work": Situation(
        lambda made: made.snapshot(readiness=obstacle(AT, "no link opens")), {"not_ready": CRITICAL}, check=1
    ),
    "forced": Situation(lambda made: made.snapshot(made.forced("orders")), {"forced": WARNING}),
    "stranded messages": Situation(lambda made: made.snapshot(unused=made.unused()), {"stranded": WARNING}),
    "an application parks in an unused queue": Situation(
        lambda made: made.snapshot(
            unused=replace(made.unused(), queues=(replace(made.unused().queues[0], grows=True),))
        ),
        {"backlog_growing": CRITICAL},
    ),
    "dead letters in the backlog": Situation(lambda made: _queue(made, dead_lettered=7), {"dead_letters": WARNING}),
    "a queue that would lose messages": Situation(
        lambda made: _queue(made, in_rotation=False, is_unsafe=True, pulled_reason="duplicate detection is on"),
        {"backlog_unsafe": WARNING},
    ),
    "a queue nearly full": Situation(
        lambda made: _queue(made, size_bytes=90, limit_bytes=100), {"backlog_nearly_full": WARNING}
    ),
    "no link to a queue": Situation(_with(TroubleKind.BACKLOG_LINK, "3"), {"backlog_link": WARNING}),
    "depths that cannot be read": Situation(_with(TroubleKind.BACKLOG_UNREAD), {"backlog_unread": WARNING}),
    "parked, and no syphon is known": Situation(_with(TroubleKind.SYPHON_UNKNOWN), {"syphon_unknown": NOTICE}),
    "parked, and the number does not fall": Situation(
        _with(TroubleKind.BACKLOG_STALLED), {"backlog_stalled": CRITICAL}
    ),
    "a stuck syphon": Situation(
        lambda made: made.snapshot(syphon=made.syphon(SyphonStatus.STUCK)), {"syphon_stuck": CRITICAL}
    ),
    "a paused syphon": Situation(
        lambda made: made.snapshot(syphon=made.syphon(SyphonStatus.PAUSED)), {"syphon_paused": WARNING}
    ),
    "a paused queue": Situation(
        lambda made: made.snapshot(syphon=made.syphon(paused_queues=(3,))), {"syphon_parts_paused": WARNING}
    ),
    "no disk for receipts": Situation(
        lambda made: _journal(made, SyphonStatus.IDLE), {"no_receipts": CRITICAL, "journal_not_written": WARNING}
    ),
    "a journal that is not written, without a syphon": Situation(
        lambda made: _journal(made, SyphonStatus.OFF), {"journal_not_written": WARNING}
    ),
    "the metrics' port in use": Situation(
        _with(TroubleKind.PORT_IN_USE, "the metrics port 9464"), {"port_in_use": WARNING}
    ),
    "the gateway's port in use": Situation(_with(TroubleKind.GATEWAY_CLOSED), {"gateway_closed": CRITICAL}),
    "the gateway does not listen": Situation(
        lambda made: made.snapshot(gateway=GatewayView(address="127.0.0.1", port=5673, since=None, trouble="taken")),
        {"gateway_closed": CRITICAL},
    ),
    "a client with a wrong key": Situation(
        lambda made: made.snapshot(gateway=gateway_views.outage(turned_away=(gateway_views.wrong_key(),))),
        {"gateway_turned_away": WARNING},
    ),
    "a slow entity": Situation(
        lambda made: made.snapshot(made.entity("orders", p99=7.0, is_slow=True)), {"slow": NOTICE}
    ),
    "a client that was closed": Situation(_with(TroubleKind.CLIENT_CLOSED), {"client_closed": CRITICAL}),
    "an engine that sends no figures": Situation(
        lambda made: made.snapshot(), {"figures_old": CRITICAL}, later=60.0
    ),
    "failed over elsewhere": Situation(
        lambda made: made.snapshot(fleet=fleet_views.outage(orders=())),
        {"fleet_failed_over": CRITICAL, "fleet_silent": WARNING},
    ),
    "callers fail elsewhere": Situation(
        lambda made: made.snapshot(fleet=_failing_elsewhere()), {"fleet_sends_refused": CRITICAL}
    ),
    "the fleet's board is not read": Situation(
        lambda made: made.snapshot(fleet=replace(fleet_views.calm(), trouble="timeout")), {"fleet_unread": WARNING}
    ),
    "two at once": Situation(
        lambda made: made.snapshot(
            syphon=made.syphon(SyphonStatus.STUCK), unused=made.unused(),
            troubles=(trouble(TroubleKind.BACKLOG_UNREAD),),
        ),
        {"syphon_stuck": CRITICAL, "backlog_unread": WARNING, "stranded": WARNING},
    ),
}  # fmt: skip


def _failing_elsewhere() -> Any:
    first, *others = fleet_views.calm().entities
    failing = replace(first, refused_per_second=2.5, failing=("web-2",), failing_count=1)
    return replace(fleet_views.calm(), entities=(failing, *others))


def raised_in(lines: Iterable[str]) -> Raised:
    """The alarms that lines of text list."""
    found = (re.match(r"\s*[!?] (\w+) (\w+): ", line) for line in lines)
    return {(one[2], one[1]) for one in found if one is not None}


def logged(snapshot: Snapshot, now: float, caplog: pytest.LogCaptureFixture) -> Raised:
    """The alarms in the library's log, as the pairing reports them."""
    log, notices = EventLog(Policy()), []

    def warn(about: str, text: str) -> None:
        event = Warned(at=AT, about=about, text=text)
        notices.append(calls(event))
        log.writers[Warned](event)

    with caplog.at_level(logging.INFO, "paired_servicebus.pairing"):
        AlarmChanges(warn).note(alarms(condition_of(snapshot, now)))
    texts = [record.getMessage().removeprefix("alarm: ") for record in caplog.records]
    assert notices == [not text.startswith(NOTICE) for text in texts], "on_change runs for all but notices"
    return raised_in(f"! {text}" for text in texts)


def compare_first_lines(situation: Situation, snapshot: Snapshot) -> None:
    """The first lines have the level of the worst alarm, show it with the number of others, and what to do."""
    view = apply_news(View(pairing="orders"), snapshot)
    if situation.later:
        assert summary(apply_news(view, Silent(AT + 3))).level is Level.BLIND
        return
    shown, found = summary(view), alarms(condition_of(snapshot))
    worst = next(iter(degrading(found)), None)
    lost = {"sends_refused", "nothing_accepted", "no_route", "fleet_sends_refused"} & {one.name for one in found}
    levels = {CRITICAL: Level.LOST if lost else Level.WRONG, WARNING: Level.NOTABLE}
    assert shown.level is (levels[worst.severity] if worst is not None else Level.WELL)
    if worst is None:
        assert "!" not in shown.text
        return
    assert "nothing to do" not in shown.text
    own = [one for one in degrading(found) if not one.name.startswith("fleet_")]
    contained = SHOWN_BY_STATES | (SHOWN_IN_LOSS if shown.level is Level.LOST else set())
    listed = [
        one for one in own if one.name not in contained and one.subject not in {e.path for e in snapshot.entities}
    ]
    for one in listed[:1]:
        assert f"! {one.sentence}" in shown.text
    if len(listed) > 1:
        assert f"(and {len(listed) - 1} more alarm" in shown.text
    if len(own) == len(degrading(found)):
        todo = advice(found)
        assert f"do: {todo.partition(':')[0] if todo.startswith('nothing') else todo}" in shown.text


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_place_shows_the_alarms_of_the_table(made: MadeUp, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two of them never differ but by their age."""
    situation = SITUATIONS[name]
    base = situation.made(made)
    snapshot = answered(base if base.readiness is not None else replace(base, readiness=Readiness(at=AT, findings=())))
    now, raised = AT + situation.later, situation.raised
    found = alarms(condition_of(snapshot, now))
    assert {(one.name, one.severity.value) for one in found} == raised
    assert all(one.sentence and one.todo for one in found)
    assert all(one.page in range(1, 9) for one in found)

    engine = [EngineStatus(pairing="orders", snapshot=snapshot)]
    told = json.loads(as_json(engine, now))
    assert raised_in(as_lines(engine, now)) == raised
    assert {(one["name"], one["severity"]) for one in told["engines"][0]["alarms"]} == raised
    degraded = bool(degrading(found))
    assert (health(engine, now), told["exit"]) == (degraded, degraded)

    checked = result_of(snapshot, now)
    assert checked is not None
    assert checked.status == situation.check
    assert raised_in(check_lines(checked, "orders")) == raised
    assert {(one["name"], one["severity"]) for one in json.loads(check_object(checked, "orders"))["alarms"]} == raised

    samples = [one for each in families(snapshot, now) if each.name == "paired_alarm" for one in each.samples]
    assert {(one.labels["name"], one.labels["severity"]) for one in samples if one.value} == raised
    assert len(samples) == len(ROWS)

    assert logged(snapshot, now, caplog) == {one for one in raised if one[0] not in REPORTED_BY_EVENTS}
    compare_first_lines(situation, snapshot)
    if snapshot.fleet is not None:
        about_fleet = fleet_alarms(found)
        expected = {(one.name, one.severity.value) for one in about_fleet}
        assert raised_in(fleet_lines(pairing_of(snapshot), now, about_fleet)) == expected
        assert {name for name, _ in expected} == {name for name in situation.alarms if name.startswith("fleet_")}
    assert accepts_sends(snapshot)[0] is situation.serves
    assert situation.serves is ("nothing_accepted" not in situation.alarms)


def test_with_the_primary_away_and_no_sends_nothing_is_called_well(made: MadeUp) -> None:
    """An entity that nothing was sent to is unknown: no place calls its callers or its sends well."""
    text = summary(apply_news(View(pairing="orders"), _unknown(made))).text
    assert "callers: unknown" in text
    assert "callers ok" not in text
    assert "do: check [primary] in pairing.toml, and the network" in text


def test_every_row_has_a_situation_or_rests_on_a_document_of_the_fleet() -> None:
    shown = {name for one in SITUATIONS.values() for name in one.alarms}
    rest = {row.name for row in ROWS} - shown
    assert rest <= {
        "other_name", "signers", "gateway_full", "no_syphon", "fleet_engines_missing", "fleet_not_well",
        "fleet_differs", "order_ending", "fleet_odd", "orders_unread",
        "fleet_flooded",
    }  # fmt: skip
    assert len(SITUATIONS) > 30
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {kind.value for kind in TroubleKind} <= {row.name for row in ROWS}


def test_the_shipped_rules_are_one_for_each_severity_and_one_for_absence() -> None:
    """`paired_alarm{name,severity}`."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    gone, *others = group["rules"]
    assert "absent(paired_alarm)" in gone["expr"]
    found = {rule["labels"]["severity"]: re.findall(r'severity="(\w+)"', rule["expr"]) for rule in others}
    assert found == {severity: [severity] for severity in (CRITICAL, WARNING)}
