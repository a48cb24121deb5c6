"""A drill on a sandbox: balanced, within the promises, and gone afterwards; or refused with a sentence."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.config import load_config
from paired_servicebus.core.backlog.queue_settings import BACKLOG_QUEUE
from paired_servicebus.core.drill import drill_plan
from paired_servicebus.core.drill.drill_plan import (
    CLOCK_MARGIN,
    DrillMeasures,
    DrillNote,
    DrillOutcome,
    DrillPlan,
    DrillRole,
    broken_promises,
    drill_name,
    marker_path,
    role_path,
)
from paired_servicebus.core.errors import DrillError
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.engine.clients import client_factory
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.readiness.readiness_check import last_drill
from paired_servicebus.trials.drill_command import RECORDS, WIDTH, look_around, open_namespaces, question_lines
from paired_servicebus.trials.drill_run import DrillEntities
from paired_servicebus.trials.temporary_entities import RunRecord, Side
from paired_servicebus.verbs.check_verb import check
from servicebus_sandbox import Tier
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential
from servicebus_sandbox.broker.broker_errors import QuotaExceeded
from servicebus_sandbox.broker.entity_settings import QueueSettings, TopicSettings
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import FaultKind, FaultTerms, Operation
from tests.stage.plays.verbs import Verb, verb
from tests.stage.processes import ended

from .conftest import BRISK, WORKER_KEY, Lab, laboratory

WORKER = ("worker", WORKER_KEY)


def broken(lab: Lab, found: DrillMeasures, tier: ServiceTier = ServiceTier.STANDARD) -> tuple[str, ...]:
    return broken_promises(DrillPlan.of(lab.config().policy, tier, as_configured=True), found)


def assert_whole(lab: Lab, found: DrillMeasures, tier: ServiceTier = ServiceTier.STANDARD) -> None:
    """Balanced and within the promises; two entities failed over and back once; nothing is left."""
    assert broken(lab, found, tier) == ()
    assert found.ledger.verdict == "balanced"
    assert found.ledger.accepted == found.ledger.delivered >= 30
    assert found.diverted >= 6
    assert [one.failovers for one in found.parts] == [1, 1, 0]
    assert all(one.pings_refused and one.pings_accepted == 1 for one in found.parts if one.part.fails)
    assert (lab.entities(), lab.records) == ([], [])


async def test_a_drill_is_balanced_keeps_the_promises_and_leaves_nothing(lab: Lab) -> None:
    found = await lab.drill()
    assert_whole(lab, found)
    plan = DrillPlan.of(lab.config().policy, ServiceTier.STANDARD, as_configured=True)
    slowness = max(1.0, found.seconds / plan.expected_seconds)
    assert 0.6 < found.operations / plan.expected_operations < 1.6 * slowness


@pytest.mark.slow
async def test_basic_is_drilled_with_plain_queues(tmp_path: Path) -> None:
    async with laboratory(tmp_path, Tier.BASIC) as lab:
        around = await look_around(lab.config(), lab.places)
        assert around.tier is ServiceTier.BASIC
        assert_whole(lab, await lab.drill(tier=around.tier), around.tier)


@pytest.mark.slow
async def test_resource_manager_and_identities_do_as_well(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        client_factory, "_make", lambda _: AsyncSandboxCredential(lab.sandbox.control_url, "Data Owner")
    )
    config = lab.config()
    by_role = {"management": "arm", "subscription": "s", "resource_group": "g", "arm_url": lab.sandbox.arm_url}
    sides = {
        side: replace(namespace, name=name, **by_role)
        for side, namespace, name in (
            ("primary", config.primary, "contoso-north"),
            ("secondary", config.secondary, "contoso-south"),
        )
    }
    config = replace(config, **sides)
    assert (await look_around(config, lab.places)).tier is ServiceTier.STANDARD
    assert_whole(lab, await lab.drill(config))


@pytest.mark.slow
async def test_a_primary_that_does_not_heal_breaks_its_promise_and_its_messages_are_parked(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill_plan, "PATIENCE", 2.0)
    monkeypatch.setattr(drill_plan, "MAX_DRAIN_SECONDS", 2.0)
    config = lab.config()
    config = replace(config, policy=replace(config.policy, send_timeout=3.0, ping_timeout=2.0))
    running = asyncio.create_task(lab.drill(config))
    while not any("accepts sends again" in line for line in lab.lines):
        assert not running.done(), lab.lines
        if any("disabled is set to SendDisabled" in line for line in lab.lines) and "broken" not in lab.lines:
            (path,) = (path for path in lab.entities() if path.endswith(f"/{DrillRole.DISABLED}"))
            lab.sandbox["contoso-north"].node.faults.add(FaultKind.DISABLED, entity=path)
            lab.lines.append("broken")
        await asyncio.sleep(0.05)
    found = await running
    said = broken(lab, found)
    assert "disabled did not fail back" in said
    assert any(text.endswith("still parked") for text in said)
    assert found.ledger.lost == 0
    assert lab.entities() == []


@pytest.mark.parametrize("side", ["", "primary", "secondary"])
async def test_without_manage_it_is_refused_before_anything_is_made(lab: Lab, side: str) -> None:
    with pytest.raises(DrillError, match=f"credential of the {side or 'primary'} namespace lacks Manage") as raised:
        await look_around(lab.config(rule=WORKER, only=side), lab.places)
    assert "paired check" in str(raised.value)
    assert lab.entities() == []


@pytest.mark.parametrize(("side", "allowed"), [("primary", 0), ("primary", 1), ("secondary", 0), ("secondary", 1)])
async def test_a_full_namespace_is_a_sentence_and_what_was_made_is_deleted(
    lab: Lab, side: str, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace has room for `allowed` more queues."""
    make, made = BrokerNamespace.create_queue, []

    def create(space: BrokerNamespace, path: str, *given: object, **more: object) -> object:
        if space is lab.space(side):
            made.append(path)
            if len(made) > allowed:
                raise QuotaExceeded(path, 1)
        return make(space, path, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(BrokerNamespace, "create_queue", create)
    with pytest.raises(DrillError, match="40300") as raised:
        await lab.drill()
    assert f"the {side} namespace" in str(raised.value)
    assert (lab.entities(), lab.records) == ([], [])


async def test_a_namespace_that_does_not_answer_is_a_sentence(lab: Lab) -> None:
    config = lab.config()
    gone = replace(config, secondary=replace(config.secondary, host="127.0.0.1:1"))
    with pytest.raises(DrillError, match="does not answer its management"):
        await look_around(gone, lab.places)


async def test_messages_that_never_arrive_end_it_before_the_outage(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill_plan, "MAX_WARM_UP_SECONDS", 1.0)
    lab.sandbox["contoso-north"].node.faults.add(
        FaultKind.UNAUTHORIZED, terms=FaultTerms(operations=frozenset({Operation.RECEIVE}))
    )
    with pytest.raises(DrillError, match=r"no message of .* arrived within 1 s, before any outage"):
        await lab.drill()
    assert (lab.entities(), lab.records) == ([], [])


async def test_an_interrupted_drill_leaves_nothing_however_often_it_is_interrupted(lab: Lab) -> None:
    running = asyncio.create_task(lab.drill())
    while not any("is deleted" in line for line in lab.lines):
        assert not running.done(), lab.lines
        await asyncio.sleep(0.02)
    running.cancel()
    while not running.done():
        await asyncio.sleep(0.1)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (lab.entities(), lab.records) == ([], [])


# -- `--clean` deletes what an ended drill left, at once if this machine knows its end, and nothing else.


RUN = "0123456789ab"
NAME = drill_name(RUN)
NOTE = DrillNote(RUN, made=time.time(), until=time.time() + 900)


async def abandon(lab: Lab, *, recorded: bool, note: DrillNote = NOTE) -> RunRecord | None:
    """A drill's entities, with two backlog queues, and its record if it ran on this machine."""
    record = RunRecord.begin(RECORDS, lab.places.state) if recorded else None
    if record is not None:
        note = DrillNote(record.run, note.made, note.until)
        record.note("secondary", lab.config().secondary.host, marker_path(record.run))
    plan = DrillPlan.of(lab.config().policy, ServiceTier.STANDARD, as_configured=True)
    async with open_namespaces(lab.config()) as namespaces:
        await DrillEntities(namespaces, plan, note).make()
        for index in range(2):
            path = f"{drill_name(note.run)}/x-servicebus-transfer/{index}"
            await namespaces[Side.SECONDARY].admin.create_queue(path, BACKLOG_QUEUE)
    return record


async def test_a_killed_drill_of_this_machine_is_cleaned_whatever_its_age(lab: Lab) -> None:
    record = await abandon(lab, recorded=True)
    assert record is not None
    assert len(lab.entities()) == 6
    record.end()  # as the system does for a dead process
    found = await lab.clean()
    assert (found.deleted, found.remains, found.notes) == (6, (), ())
    assert (lab.entities(), lab.records) == ([], [])
    assert (await lab.clean()).deleted == 0


async def test_a_running_drill_of_this_machine_stays_even_if_it_is_named(lab: Lab) -> None:
    record = await abandon(lab, recorded=True, note=DrillNote(RUN, 0.0, 1.0))
    assert record is not None
    before = lab.entities()
    for named in ("", record.run):
        found = await lab.clean(named=named)
        assert (found.deleted, found.remains) == (0, ())
        assert found.notes == (f"{drill_name(record.run)} runs on this machine: it stays",)
        assert lab.entities() == before
    record.end()


async def test_a_young_drill_of_another_machine_stays_until_it_is_named(lab: Lab) -> None:
    await abandon(lab, recorded=False)
    found = await lab.clean()
    assert found.deleted == 0
    (said,) = found.remains
    assert f"{NAME} may still run, on another machine" in said
    assert (await lab.clean(named=RUN)).deleted == 6
    assert lab.entities() == []


@pytest.mark.parametrize(("seconds", "deleted"), [(-60.0, 0), (60.0, 6)])
async def test_a_drill_without_a_record_is_left_over_once_its_time_is_over(
    lab: Lab, seconds: float, deleted: int
) -> None:
    until = time.time() - CLOCK_MARGIN - seconds
    await abandon(lab, recorded=False, note=DrillNote(RUN, until - 900, until))
    found = await lab.clean()
    assert (found.deleted, bool(found.remains)) == (deleted, not deleted)


async def test_real_entities_stay_whatever_they_are_called(lab: Lab) -> None:
    note = str(DrillNote(RUN, 0.0, 1.0))
    primary, secondary = lab.space("primary"), lab.space("secondary")
    for path in ("orders", "x-paired-drill-", "x-paired-drill-orders", NAME, role_path(RUN, DrillRole.DELETED)):
        primary.create_queue(path)
    primary.create_queue("x-paired-drill-orders/disabled", QueueSettings(user_metadata=note))
    primary.create_queue(f"{NAME}/orders", QueueSettings(user_metadata=note))
    primary.create_topic(role_path(RUN, DrillRole.UNTOUCHED), TopicSettings(user_metadata="ours"))
    secondary.create_queue(f"{NAME}/x-servicebus-transfer/0")
    secondary.create_queue(marker_path(RUN))
    secondary.create_queue(marker_path("ba9876543210"), QueueSettings(user_metadata=note))
    before = lab.entities()
    record = await abandon(lab, recorded=True)
    assert record is not None
    record.end()
    found = await lab.clean(named=RUN)
    assert (found.deleted, found.remains) == (6, ())
    assert lab.entities() == before
    assert len(found.notes) == len([path for path in before if path.startswith("x-paired-drill-")])


async def test_a_record_of_other_namespaces_stays(lab: Lab) -> None:
    record = RunRecord.begin(RECORDS, lab.places.state)
    record.note("secondary", "other.servicebus.windows.net", marker_path(record.run))
    record.end()
    found = await lab.clean()
    assert found.remains == (f"{drill_name(record.run)} left entities in another namespace than pairing.toml has now",)
    assert len(lab.records) == 1


async def test_without_manage_nothing_is_cleaned_and_the_record_stays(lab: Lab) -> None:
    record = await abandon(lab, recorded=True)
    assert record is not None
    record.end()
    with pytest.raises(DrillError, match="lacks Manage"):
        await lab.clean(rule=("worker", WORKER_KEY))
    assert (len(lab.entities()), len(lab.records)) == (6, 1)


@pytest.mark.slow
async def test_a_drill_beside_a_cleaning_and_another_drill_is_not_disturbed(lab: Lab) -> None:
    first, second = asyncio.create_task(lab.drill()), asyncio.create_task(lab.drill())
    cleanings = 0
    while not (first.done() and second.done()):
        found = await lab.clean()
        assert (found.deleted, found.remains) == (0, ())
        cleanings += 1
        await asyncio.sleep(0.5)
    for one in (first, second):
        measures = await one
        assert (measures.ledger.verdict, measures.drain is not None) == ("balanced", True)
        assert [part.failovers for part in measures.parts] == [1, 1, 0]
    assert cleanings > 5
    assert lab.entities() == []


async def test_entities_that_cannot_be_deleted_are_named_and_the_marker_stays_with_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog queue without its marker queue would never be recognized again."""
    monkeypatch.setattr("paired_servicebus.trials.drill_run.RETRY_PAUSE", 0.0)
    delete = BrokerNamespace.delete

    def refuse(space: BrokerNamespace, path: str) -> None:
        if path == f"{NAME}/x-servicebus-transfer/1":
            raise QuotaExceeded(path, 1)  # any lasting refusal
        delete(space, path)

    await abandon(lab, recorded=False)
    plan = DrillPlan.of(lab.config().policy, ServiceTier.STANDARD, as_configured=True)
    async with open_namespaces(lab.config()) as namespaces:
        entities = DrillEntities(namespaces, plan, NOTE)
        with monkeypatch.context() as patch:
            patch.setattr(BrokerNamespace, "delete", refuse)
            assert await entities.remove() == [f"{NAME}/x-servicebus-transfer/1"]
            assert sorted(lab.entities()) == [marker_path(RUN), f"{NAME}/x-servicebus-transfer/1"]
            found = await lab.clean(named=RUN)
            assert (found.deleted, len(found.remains)) == (0, 2)
        assert await entities.remove() == []
    assert lab.entities() == []


# -- The verb: its question, its consent, its exit status, its result on disk and in JSON.


DRILL = ("drill", "x-paired-drill-")


def question(environment: str = "", *, tier: ServiceTier = ServiceTier.STANDARD, left: str = "") -> str:
    plan = DrillPlan.of(Policy(), tier, as_configured=False)
    lines = question_lines(
        plan, pairing="orders", environment=environment, primary="north", secondary="south", left=left
    )
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= 22, "with its prompt it fits a terminal of 24 lines"
    return " ".join(" ".join(lines).split())


async def run(lab: Lab, *arguments: str, **options: Any) -> int:
    """The verb on a thread, so that this loop's sandbox can answer."""
    return await asyncio.to_thread(cli.main, ["drill", "--config", str(lab.write(**options)), *arguments])


def test_the_question_says_what_where_how_long_and_what_it_costs() -> None:
    text = question("staging")
    for part in (
        "drill of orders in staging", "primary north; secondary south", "disabled (queue)", "deleted (session queue)",
        "untouched (topic)", "2 backlog queues", "SendDisabled", "your own entities and messages",
        "send 10 s · failover 5 s · ping 2 s", "--as-configured", "about 27 s, and at most 18 min 12 s",
        "billed operations",
    ):  # fmt: skip
        assert part in text
    assert "PRODUCTION" not in text


@pytest.mark.parametrize("name", ["production", "Production"])
def test_the_question_names_production(name: str) -> None:
    assert "drill of orders in PRODUCTION: a rehearsed outage This is PRODUCTION" in question(name)


def test_the_question_names_what_is_left_out_and_earlier_drills() -> None:
    text = question("production", tier=ServiceTier.BASIC, left="6 entities of ended drills: paired drill --clean")
    assert "no sessions and no topics" in text
    assert "6 entities of ended drills" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a drill needs consent; without a terminal, give --yes orders"),
        (("--yes", "payments"), "the pairing is called orders, not payments"),
        (("--clean", "--json"), "--clean carries out no drill"),
        (("--clean", "--yes", "orders"), "--clean --yes takes the name of a drill"),
    ],
)
async def test_without_consent_nothing_is_made(
    lab: Lab, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert await run(lab, *arguments) == 2
    assert said in capsys.readouterr().err
    assert lab.entities() == []
    assert not lab.places.drill.exists()


async def test_without_manage_the_status_is_3_and_the_sentence_says_what_works(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(lab, "--yes", "orders", rule=("worker", WORKER_KEY)) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paired: the drill was not carried out: ")
    assert "lacks Manage" in err
    assert "paired check" in err
    assert await run(lab, "--clean", rule=("worker", WORKER_KEY)) == 3
    assert "lacks Manage" in capsys.readouterr().err


async def test_production_is_named_before_the_consent(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(lab, environment="production") == 2
    assert "This is PRODUCTION" in capsys.readouterr().out


@pytest.mark.slow
async def test_a_drill_in_a_process_is_reported_kept_and_found_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with verb(tmp_path, *DRILL, options=BRISK) as found:
        assert last_drill(primary="primary", secondary="secondary") is None
        status, out = await ended(await found.start("--yes", "orders", "--json"))
        assert status == 0, out
        result = json.loads(out.splitlines()[-1])
        assert (result["outcome"], result["verdict"], result["broken"]) == ("held", "balanced", [])
        assert result["messages"]["accepted"] == result["messages"]["delivered"]
        assert result["seconds"] < 90
        assert "every promise held" in out
        assert found.left() == []
        kept = last_drill(primary="Primary", secondary="SECONDARY")
        assert kept is not None
        assert (kept.outcome, kept.configured, kept.text) == (DrillOutcome.HELD, False, "balanced")
        config = load_config(tmp_path / "pairing.toml")
        finding = (await check(config, engine_paths("orders"))).readiness.findings[-1]
        assert (finding.what, finding.verdict) == ("last drill", "ok")
        assert "short times: held: balanced" in finding.evidence


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
async def test_an_interrupted_drill_deletes_its_entities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with verb(tmp_path, *DRILL) as found:
        process = await found.start("--yes", "orders", "--json")
        await making(found)
        process.send_signal(number)
        returned, out = await ended(process)
        assert returned == status, out
        assert json.loads(out.splitlines()[-1])["outcome"] == "interrupted"
        assert (found.left(), found.records()) == ([], [])
        kept = last_drill(primary="primary", secondary="secondary")
        assert kept is not None
        assert kept.outcome is DrillOutcome.INTERRUPTED


async def making(found: Verb) -> None:
    """Wait until the drill has made most of its entities."""
    while len(found.left()) < 4:
        await asyncio.sleep(0.02)
