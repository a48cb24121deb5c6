"""Every scenario of the demo, with its own namespaces and a slow application: balanced, and what has to hold holds.

Played four at a time in one process, over 40 s and longer on a busy machine; `.ci/run` plays some of them as a person
sees them.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.demo.captions import LONGEST_CAPTION
from tests.pipeline.judged import judge, records_of
from tests.pipeline.test_audit import started

from paired_servicebus.core.model.pairing_events import EngineStopped, Event
from paired_servicebus.demo import pipeline_audit, player
from paired_servicebus.demo.player import Player, pair_on
from paired_servicebus.demo.result import (
    DemoResult,
    EntityResult,
    JournalAudit,
    MessageCounts,
    PingCounts,
    SyphonResult,
    as_lines,
    differs,
    what_broke,
)
from paired_servicebus.demo.scenarios import ENTITIES, LISTED, SCENARIOS, Scenario
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from paired_servicebus.sandbox_process import AnnouncedNamespace, SandboxProcess
from paired_servicebus.trials import workload
from servicebus_sandbox import Sandbox

DURATION = 20.0
PACE = 4.0
"""Times slower than the demo's application: some ten messages a second, before the stretch."""
SPEC_10 = (
    "unable to send",
    "unable to receive",
    "unable to manage",
    "unable to contact the primary at all",
    "the secondary as well",
    "throttling",
    "accepted but late by up to 15 min",
    "one backlog queue",
)


STRETCH = min(max(2.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 10.0)
"""How many times as long as the demo's everything takes: for each program that waits for a processor, once more."""
TIMES = ("send_timeout", "failover_interval", "ping_primary_interval", "ping_timeout", "quiet_period")


def stretched(scenario: Scenario) -> Scenario:
    """The scenario with times that are STRETCH as long."""
    policy = replace(scenario.policy, **{name: STRETCH * getattr(scenario.policy, name) for name in TIMES})
    breaks = [replace(broken, delay=broken.delay and STRETCH * broken.delay) for broken in scenario.breaks]
    return replace(scenario, policy=policy, breaks=tuple(breaks))


def expecting(*fails_over: str) -> Scenario:
    """A scenario with nothing in it but what it expects."""
    return Scenario(name="", about="", mode="", captions=(), fails_over=fails_over)


async def played(scenario: Scenario) -> tuple[DemoResult, list[str]]:
    """How it ended, and what was said. The journal's audit has to agree with the application's lists."""
    said: list[str] = []
    events: list[Event] = []
    async with Sandbox.start() as sandbox:
        names = [AnnouncedNamespace(each.name, each.connection_string) for each in sandbox.namespaces]
        standing = SandboxProcess(names, str(sandbox.ca_file), sandbox.control_url)
        async with await pair_on(standing, scenario.policy, on_event=events.append) as paired:
            for entity in ENTITIES:
                paired.watch(entity)
            one = Player(scenario, standing, paired, seed=1, say=said.append, pace=PACE * STRETCH, record=events.append)
            result = await one.play(DURATION * STRETCH)
    disagrees = differs(audited(events), result.messages)
    return msgspec.structs.replace(result, broken=[*result.broken, *disagrees]), said


def audited(events: list[Event]) -> JournalAudit:
    """What duckdb makes of the receipts."""
    found = judge(records_of([started(), *events, EngineStopped(at=events[-1].at, reason="done")])).verdict()
    return JournalAudit(
        lost=found["lost"] + found["missing"] + found["unknown"] + found["in_flight"],
        unexpected=found["unexpected"],
        duplicates=found["duplicates"],
        out_of_order=found["out_of_order"],
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "together",
    [SCENARIOS[first : first + 4] for first in range(0, len(SCENARIOS), 4)],
    ids=lambda some: "+".join(each.name for each in some),
)
async def test_every_scenario_balances_and_shows_what_it_is_for(
    together: tuple[Scenario, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "SETTLE", STRETCH * workload.SETTLE)
    monkeypatch.setattr(workload, "PEEK_TIMEOUT", STRETCH * 30.0)
    monkeypatch.setattr(player, "DRAIN_WITHIN", STRETCH * 60.0)
    async with asyncio.TaskGroup() as group:
        plays = [group.create_task(played(stretched(scenario))) for scenario in together]
    ends = [play.result() for play in plays]
    assert {result.scenario: result.verdict for result, _ in ends} == {it.name: "balanced" for it in together}, ends
    assert {result.scenario: result.broken for result, _ in ends} == {it.name: [] for it in together}, ends
    assert [said for _, said in ends] == [[caption.text for caption in it.captions] for it in together]
    assert all(result.messages.delivered for result, _ in ends), ends
    assert all(
        bool(result.syphon.moved) == bool(it.fails_over) for (result, _), it in zip(ends, together, strict=True)
    ), ends


def test_every_row_of_the_specification_has_a_scenario() -> None:
    """SPEC.md section 10: "Failure modes every part is exercised against, and what must still work"."""
    assert set(SPEC_10) == {scenario.mode for scenario in SCENARIOS} - {""}


def test_names_are_given_once() -> None:
    names = [scenario.name for scenario in LISTED]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_script_can_be_played(scenario: Scenario) -> None:
    assert scenario.captions[0].at == 0
    assert [caption.at for caption in scenario.captions] == sorted({caption.at for caption in scenario.captions})
    assert all(len(caption.text) <= LONGEST_CAPTION for caption in scenario.captions)
    assert all(0 < broken.begins < broken.ends <= 1 for broken in scenario.breaks)
    assert all(0 < at < 1 for at in scenario.poison)
    assert scenario.breaks or scenario.poison
    assert set(scenario.fails_over) <= set(ENTITIES)


def messages(**numbers: int) -> MessageCounts:
    return MessageCounts(**{**dict.fromkeys(MessageCounts.__struct_fields__, 0), **numbers})


@pytest.mark.parametrize(
    ("orders", "numbers", "says"),
    [
        ((1, 1), {}, []),
        ((0, 0), {}, ["orders had to fail over and did not"]),
        ((2, 1), {}, ["orders failed over 2 times and back 1 times"]),
        ((1, 1), {"parked": 3}, ["3 messages are still parked"]),
        ((1, 1), {"dead_lettered": 2}, ["2 messages are dead-lettered instead of 0"]),
    ],
)
def test_what_did_not_hold_is_said(orders: tuple[int, int], numbers: dict[str, Any], says: list[str]) -> None:
    over, back = orders
    entities = {"orders": EntityResult(failovers=over, failbacks=back, seconds_failed_over=0.0)}
    assert what_broke(expecting("orders"), entities, messages(**numbers)) == says


def test_an_entity_that_had_no_reason_to_fail_over_is_named() -> None:
    entities = {"audit": EntityResult(failovers=1, failbacks=1, seconds_failed_over=0.0)}
    assert what_broke(expecting(), entities, messages()) == ["audit had no reason to fail over and did"]


def test_an_audit_that_differs_from_the_lists_is_said_and_one_that_is_skipped_says_why() -> None:
    lists = messages(duplicates=2)
    agrees = JournalAudit(lost=0, unexpected=0, duplicates=2, out_of_order=0)
    assert differs(agrees, lists) == []
    assert differs(JournalAudit(lost=1, unexpected=0, duplicates=2, out_of_order=0), lists) == [
        "the journal's audit counts 1 lost, the application's lists 0"
    ]
    assert differs(JournalAudit(skipped="no Java"), lists) == []
    assert msgspec.json.encode(JournalAudit(skipped="no Java")) == b'{"skipped":"no Java"}'
    assert msgspec.json.encode(agrees) == b'{"lost":0,"unexpected":0,"duplicates":2,"out_of_order":0}'


def test_a_demo_without_spark_or_with_a_pipeline_that_fails_is_judged_by_the_projects_own_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    order = PlayRequest(scenario="s", duration=15, seed=1, folder=str(tmp_path / "demo"), socket="")
    result = DemoResult(
        scenario="s", seed=1, messages=messages(), entities={}, pings=PingCounts(sent=0, accepted=0),
        syphon=SyphonResult(moved=0), billed_operations=0, verdict="balanced",
    )  # fmt: skip
    monkeypatch.setattr(pipeline_audit, "is_installed", lambda: False)
    without = pipeline_audit.judged(result, order)
    assert without.balanced
    assert without.report is None
    assert without.audit is not None
    assert "there is no journal in" in str(without.audit.skipped)
    lines = [records.encode(record) for record in records_of([started(), EngineStopped(at=9.0, reason="done")])]
    events = order.journal / "events"
    events.mkdir(parents=True)
    (events / "demo-0000000000001-000000000001.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    judged = pipeline_audit.judged(result, order)
    by = f"duckdb ({pipeline_audit.NOT_INSTALLED})"
    assert judged.audit == JournalAudit(lost=0, unexpected=0, duplicates=0, out_of_order=0, by=by)
    assert Path(str(judged.report)).read_text().startswith("Nothing failed over")
    kept = pipeline_audit.judged(result, order, tmp_path / "it's kept")
    assert kept.kept == str(tmp_path / "it's kept")
    assert any("--tables " in line and "it's kept" in shlex.split(line)[-1] for line in as_lines(kept).splitlines())
    with Tables.open(tmp_path / "it's kept" / "tables") as tables, JournalTables.open(order.journals) as known:
        for table in TABLES:
            columns = ", ".join(f'"{name}"' for name in TABLES[table])
            query = f"select {columns} from {table} order by all"
            assert tables.rows(query) == known.rows(query), table
        assert [(one.engine, one.first, one.last) for one in tables.manifest.seen] == [("orders@web-1", 1, 2)]
    assert [one.name for one in (tmp_path / "it's kept" / "journals").rglob("*.jsonl")]
    monkeypatch.setattr(pipeline_audit, "is_installed", lambda: True)
    order.tables.write_text("no folder")
    failed = pipeline_audit.judged(result, order)
    assert failed.audit is not None
    assert "duckdb (" in str(failed.audit.by)
    assert "is a file" in str(failed.audit.by)
