"""An engine's figures as Prometheus reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    BilledView,
    DeadLettersView,
    Finding,
    FindingVerdict,
    JournalView,
    OldestView,
    ParkedView,
    QueueView,
    Readiness,
    RouteView,
    Snapshot,
    SyphonStatus,
    SyphonView,
    TroubleKind,
)
from paired_servicebus.engine.service.metrics import SnapshotCollector
from tests import gateway_views
from tests.alarm_views import trouble

from .conftest import entity


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
    found = (Finding(what="room", verdict=FindingVerdict.WARN, evidence="little"),)
    base = Snapshot(
        engine="orders@web-1", boot="b1", pid=1, seq=1, at=100.0, pairing="orders", environment="test",
        primary="contoso", secondary="contoso-backup", read_only=False, entities=(entity("orders"), payments),
        queues=queues, syphon=SyphonView(status=SyphonStatus.OFF, text="", moved=5),
        billed=BilledView(sends=97, sent_bytes=9_700),
        times="", troubles=(trouble(TroubleKind.OTHER_NAME),), readiness=Readiness(at=99.0, findings=found),
        journal=JournalView(lines=10, lost=2, trouble="full"),
    )  # fmt: skip
    return replace(base, **changes)


def samples(of: Snapshot) -> dict[tuple[str, ...], float]:
    """By name and label values in the labels' order, the pairing's aside, as a scraper reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(lambda: of))
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
    assert read["paired_alarm", "other_name", "warning"] == 1
    assert read["paired_alarm", "slow", "notice"] == 0
    assert (read["paired_ready",], read["paired_ready_timestamp_seconds",]) == (1, 99.0)
    assert read["paired_readiness", "warn", "room"] == 1
    assert (read["paired_journal_written",], read["paired_journal_missing_events_total",]) == (0, 2)


def test_why_dead_letters_are_dead_and_since_when_the_oldest_message_waits() -> None:
    dead = DeadLettersView(read_at=95.0, looked_at=2, reasons=(("expired", 2),))
    queue = replace(snapshot().queues[1], dead_letters=dead, oldest=OldestView(read_at=95.0, enqueued_at=12.0))
    read = samples(snapshot(queues=(queue,)))
    assert read["paired_backlog_dead_letter_reasons", str(queue.index), "expired"] == 2
    assert read["paired_backlog_oldest_timestamp_seconds", str(queue.index)] == 12.0


def test_what_is_parked_is_one_figure_with_the_time_of_its_readings() -> None:
    """Summary, syphon line, page 3's total, status command, metrics take this one figure (finding C7)."""
    parked = ParkedView(messages=353, read_at=94.0, known=2, queues=2)
    read = samples(snapshot(parked=parked))
    assert (read["paired_parked_messages",], read["paired_parked_read_timestamp_seconds",]) == (353, 94.0)


def test_what_is_not_known_has_no_sample() -> None:
    """None means not known, never zero."""
    read = samples(snapshot(readiness=None))
    assert ("paired_parked_messages",) not in read
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
    """Parked messages and no syphon known to run: "syphon unknown" … on the screen, in status and metrics."""
    syphon = SyphonView(status=status, text="", elsewhere=elsewhere)
    read = samples(snapshot(syphon=syphon, troubles=(trouble(TroubleKind.SYPHON_UNKNOWN),)))
    assert read["paired_syphons_known",] == known
    assert read["paired_syphon_status", "unknown"] == (status is SyphonStatus.OFF and not elsewhere)
    assert read["paired_alarm", "syphon_unknown", "notice"] == 1


def test_names_with_quotes_and_line_ends_stay_one_sample() -> None:
    odd = 'or"d\\e\nrs'
    shown = odd.replace("\n", r"\x0a")
    assert samples(snapshot(entities=(entity(odd),)))["paired_failovers_total", shown] == 0


def test_refused_messages_are_counted_by_reason_and_one_reason_is_there_before_the_first() -> None:
    payments = replace(entity("payments"), refused=7, refusals=(("timeout", 4), ("no backlog queue took it", 3)))
    read = samples(snapshot(entities=(entity("orders"), payments)))
    counted = {key[1:]: value for key, value in read.items() if key[0] == "paired_refused_messages_total"}
    assert counted == {
        ("orders", "no backlog queue took it"): 0,
        ("payments", "timeout"): 4,
        ("payments", "no backlog queue took it"): 3,
    }


def test_the_gateways_clients_are_sums_and_no_label() -> None:
    """Labels are bounded: a thousand clients have the samples of one."""
    read = samples(snapshot(gateway=gateway_views.many(1000)))
    assert read["paired_gateway_clients",] == 1000
    assert read["paired_gateway_sends_total", "accepted"] == 361_348
    assert read["paired_gateway_sends_total", "refused"] == 14
    assert read["paired_gateway_bytes_in_hand",] == 49_200
    assert read["paired_gateway_turned_away_total", "wrong key"] == 0
    turned = samples(snapshot(gateway=gateway_views.outage(turned_away=(gateway_views.wrong_key(),))))
    assert turned["paired_gateway_turned_away_total", "wrong key"] == 3
    assert read.keys() == turned.keys()
    assert not [name for name, *_ in samples(snapshot()) if "gateway" in name]
