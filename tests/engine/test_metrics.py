"""An engine's figures as Prometheus reads them."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from console.core.entity import State
from console.core.snapshot import (
    Answer,
    BilledView,
    DeadLettersView,
    Finding,
    JournalView,
    OldestView,
    QueueView,
    Readiness,
    RouteView,
    Snapshot,
    SyphonStatus,
    SyphonView,
)
from console.engine import metrics
from console.engine.metrics import Figures, families, serve
from console.settings import Address

from .conftest import entity

ROOT = Path(__file__).parents[2]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


def snapshot(**changes: Any) -> Snapshot:
    payments = replace(
        entity("payments", State.FAILED_OVER),
        sends=(RouteView(route="primary", accepted=90, failed=3), RouteView(route="backlog/1", accepted=7, failed=1)),
        pings_sent=4, failovers=1, seconds_failed_over=12.5,
    )  # fmt: skip
    queues = (
        QueueView(index=0, path="p/0", in_rotation=False),
        QueueView(index=1, path="p/1", in_rotation=True, depth=7, dead_lettered=0, size_bytes=700, read_at=95.0),
    )
    found = (Finding(what="room", verdict=Answer.WARN, evidence="little"),)
    base = Snapshot(
        engine="orders@web-1", boot="b1", pid=1, seq=1, at=100.0, pairing="orders", environment="test",
        primary="contoso", secondary="contoso-backup", read_only=False, entities=(entity("orders"), payments),
        queues=queues, syphon=SyphonView(status=SyphonStatus.OFF, text="", moved=5),
        billed=BilledView(sends=97, sent_bytes=9_700),
        times="", alarms=("one",), readiness=Readiness(at=99.0, findings=found),
        journal=JournalView(lines=10, lost=2, trouble="full"),
    )  # fmt: skip
    return replace(base, **changes)


def samples(of: Snapshot) -> dict[tuple[str, ...], float]:
    """By name and label values in the labels' order, the pairing's aside, as a scraper reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(lambda: of))
    text = generate_latest(registry).decode()
    read: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("pairing") == "orders"
            read[(sample.name, *labels.values())] = sample.value
    return read


def test_entities_carry_state_sends_by_route_and_outcome_pings_and_failovers() -> None:
    read = samples(snapshot())
    assert read["paired_entity_state", "payments", "failed over"] == 1
    assert read["paired_entity_state", "payments", "healthy"] == 0
    assert read["paired_sends_total", "payments", "accepted", "primary"] == 90
    assert read["paired_billed_bytes_total", "sends"] == 9_700
    assert read["paired_sends_total", "payments", "failed", "backlog/1"] == 1
    assert read["paired_pings_sent_total", "payments"] == 4
    assert read["paired_failovers_total", "payments"] == 1
    assert read["paired_failed_over_seconds_total", "payments"] == 12.5


def test_backlog_syphon_readiness_and_journal_are_there_with_their_times() -> None:
    read = samples(snapshot())
    assert read["paired_backlog_messages", "1"] == 7
    assert read["paired_backlog_read_timestamp_seconds", "1"] == 95.0
    assert read["paired_backlog_in_rotation", "0"] == 0
    assert read["paired_syphon_status", "off"] == 1
    assert read["paired_syphon_moved_messages_total",] == 5
    assert read["paired_alarms",] == 1
    assert (read["paired_ready",], read["paired_ready_timestamp_seconds",]) == (1, 99.0)
    assert read["paired_readiness", "warn", "room"] == 1
    assert (read["paired_journal_written",], read["paired_journal_missing_events_total",]) == (0, 2)


def test_why_dead_letters_are_dead_and_since_when_the_oldest_message_waits() -> None:
    dead = DeadLettersView(read_at=95.0, looked_at=2, reasons=(("expired", 2),))
    queue = replace(snapshot().queues[1], dead_letters=dead, oldest=OldestView(read_at=95.0, enqueued_at=12.0))
    read = samples(snapshot(queues=(queue,)))
    assert read["paired_backlog_dead_letter_reasons", str(queue.index), "expired"] == 2
    assert read["paired_backlog_oldest_timestamp_seconds", str(queue.index)] == 12.0


def test_what_is_not_known_has_no_sample() -> None:
    """None means not known, never zero."""
    read = samples(snapshot(readiness=None))
    assert ("paired_backlog_messages", "0") not in read
    assert ("paired_ready",) not in read


@pytest.mark.parametrize(
    ("status", "elsewhere", "known"),
    [
        (SyphonStatus.OFF, (), 0),
        (SyphonStatus.PAUSED, (), 0),
        (SyphonStatus.IDLE, (), 1),
        (SyphonStatus.OFF, ("orders@web-2",), 1),
    ],
)
def test_parked_messages_and_no_syphon_known_can_be_told(
    status: SyphonStatus, elsewhere: tuple[str, ...], known: int
) -> None:
    """Parked messages with no syphon known to run is an alarm, on the screen, in status and metrics."""
    syphon = SyphonView(status=status, text="", elsewhere=elsewhere)
    assert samples(snapshot(syphon=syphon))["paired_syphons_known",] == known


def test_names_with_quotes_and_line_ends_stay_one_sample() -> None:
    odd = 'or"d\\e\nrs'
    assert samples(snapshot(entities=(entity(odd),)))["paired_failovers_total", odd] == 0


def test_the_rules_in_the_readme_name_metrics_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    (rules,) = re.findall(r"```yaml\ngroups:\n(.*?)```", text, re.DOTALL)
    made = {
        f"{each.name}_total" if each.type == "counter" else each.name for each in families(snapshot())
    }  # fmt: skip
    named = set(re.findall(r"\bpaired_\w+", rules))
    assert len(named) > 8
    assert named <= made
    said = re.findall(r"rate\((paired_\w+)", text)
    assert set(said) <= made
    for state in re.search(r'state=~"([^"]+)"', rules)[1].split("|"):  # type: ignore[index]
        assert state in list(State)


# -- served -----------------------------------------------------------------------------------------------------------


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


async def test_a_taken_port_is_said_once_and_tried_again(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "AGAIN", 0.02)
    said: list[str] = []
    with taken_port() as port:
        address = Address("127.0.0.1", port)
        task = asyncio.create_task(serve(address, snapshot, said.append))
        await until(lambda: bool(said))
    await until(lambda: len(said) == 2)
    assert 'paired_entity_state{entity="payments",pairing="orders",state="failed over"} 1.0' in await asyncio.to_thread(
        scraped, port
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert said[0].startswith(f"metrics are not served at {address} (Address already in use)")
    assert said[1] == f"metrics are served at {address}"
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(scraped, port)


async def test_an_address_that_others_reach_is_said(until: Until) -> None:
    said: list[str] = []
    with taken_port() as port:
        pass
    task = asyncio.create_task(serve(Address("0.0.0.0", port), lambda: None, said.append))
    await until(lambda: bool(said))
    assert said == [f"metrics are served at 0.0.0.0:{port}, to other machines too"]
    assert await asyncio.to_thread(scraped, port) == "", "nothing before the first snapshot"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
