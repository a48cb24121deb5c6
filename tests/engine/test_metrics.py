"""An engine's figures as Prometheus reads them."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
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
)
from paired_servicebus.engine.control import acceptor
from paired_servicebus.engine.service import metrics
from paired_servicebus.engine.service.metrics import SnapshotCollector, serve
from paired_servicebus.settings import ListenAddress
from tests import gateway_views
from tests.ports import free_port

from .conftest import WAIT, entity

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
    found = (Finding(what="room", verdict=FindingVerdict.WARN, evidence="little"),)
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
    read = samples(snapshot(syphon=syphon, warnings=("syphon unknown: 1 message",), alarms=()))
    assert read["paired_syphons_known",] == known
    assert read["paired_syphon_status", "unknown"] == (status is SyphonStatus.OFF and not elsewhere)
    assert (read["paired_warnings",], read["paired_alarms",]) == (1, 0)


def test_names_with_quotes_and_line_ends_stay_one_sample() -> None:
    odd = 'or"d\\e\nrs'
    shown = odd.replace("\n", r"\x0a")
    assert samples(snapshot(entities=(entity(odd),)))["paired_failovers_total", shown] == 0


# -- served -----------------------------------------------------------------------------------------------------------


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


async def test_a_taken_port_is_said_once_and_tried_again(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BIND_RETRY_SECONDS", 0.02)
    said: list[str] = []
    with taken_port() as port:
        address = ListenAddress("127.0.0.1", port)
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
    port = free_port()
    task = asyncio.create_task(serve(ListenAddress("0.0.0.0", port), lambda: None, said.append))
    await until(lambda: bool(said))
    assert said == [f"metrics are served at 0.0.0.0:{port}, to other machines too"]
    assert await asyncio.to_thread(scraped, port) == "", "nothing before the first snapshot"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def served(until: Until, latest: Callable[[], Snapshot | None] | None = None) -> AsyncIterator[int]:
    """The port of metrics that are served."""
    port = free_port()
    task = asyncio.create_task(serve(ListenAddress("127.0.0.1", port), latest or snapshot, print))

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    await until(answers)
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def answer_to(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


async def test_idle_connections_take_no_thread_each_and_keep_no_scraper_out(until: Until) -> None:
    """The bug: a thread and a descriptor for each connection, for ever; 1,017 of them disabled the engine."""
    async with served(until) as port:
        before = threading.active_count()
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * acceptor.MAX_PENDING_CONNECTIONS)]
        assert "paired_sends_total" in await asyncio.to_thread(scraped, port)
        assert threading.active_count() - before < 10
        assert (await asyncio.wait_for(idle[0][0].read(), WAIT)).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        for _, writer in idle:
            writer.transport.abort()


async def test_a_request_that_trickles_is_given_up(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FIRST_REQUEST_TIMEOUT", 0.1)
    async with served(until) as port, asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        with suppress(ConnectionResetError):  # a byte was under way
            assert (await answer).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        writer.close()


async def test_requests_that_are_not_read_are_few(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_PENDING_SCRAPES", 0)
    async with served(until) as port:
        assert b" 503 " in await answer_to(port, b"GET /metrics HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /livez HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /readyz/x HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\xff\xfe / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", b"400 Bad Request"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
    ids=[
        "a scrape",
        "an older version",
        "alive",
        "no path",
        "another path",
        "another method",
        "nonsense",
        "no ASCII",
        "no URL",
        "many headers",
        "long",
    ],
)
async def test_each_request_is_answered_in_http(until: Until, request_: bytes, status: bytes) -> None:
    async with served(until) as port:
        answer = await answer_to(port, request_)
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert b"Connection: close\r\n" in answer


@pytest.mark.parametrize(
    ("routes", "in_rotation", "status", "body"),
    [
        (("primary", "backlog"), 0, 200, "ready: sends go to the primary for 1 of 2 entities; 0 of 2 backlog queues"),
        (("backlog", "backlog"), 1, 200, "ready: sends go to the primary for 0 of 2 entities; 1 of 2 backlog queues"),
        (("nowhere", "nowhere"), 0, 503, "not ready: sends go to the primary for 0 of 2 entities; 0 of 2 backlog"),
        ((), 0, 200, "ready: sends go to the primary, as nothing was sent; 0 of 2 backlog queues accept"),
        (None, 0, 503, "not ready: the engine is starting"),
    ],
)
async def test_a_probe_says_whether_one_of_the_namespaces_accepts_sends(
    until: Until, routes: tuple[str, ...] | None, in_rotation: int, status: int, body: str
) -> None:
    found: Snapshot | None = None
    if routes is not None:
        entities = tuple(replace(entity(f"e{number}"), route=route) for number, route in enumerate(routes))
        queues = tuple(QueueView(index=index, path=str(index), in_rotation=index < in_rotation) for index in range(2))
        found = replace(snapshot(), entities=entities, queues=queues)
    async with served(until, lambda: found) as port:
        answer = await answer_to(port, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert b" 200 OK" in await answer_to(port, b"GET /livez HTTP/1.1\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.decode().partition("\r\n\r\n")[2].startswith(body)


async def test_figures_are_compressed_for_who_takes_them_so(until: Until) -> None:
    async with served(until) as port:
        answer = await answer_to(port, b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert b"paired_sends_total" in gzip.decompress(body)


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
