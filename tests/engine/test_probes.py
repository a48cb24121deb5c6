"""The engine's HTTP port: probes and metrics, for whoever asks and however, while a send goes on."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    PRIMARY,
    DeadLettersView,
    Finding,
    FindingVerdict,
    JournalView,
    Meter,
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
from paired_servicebus.engine.service import probes
from paired_servicebus.engine.service.metrics import SnapshotCollector
from paired_servicebus.engine.service.probes import BoundedServer, ProbePort
from paired_servicebus.settings import ListenAddress
from servicebus_sandbox import Sandbox
from tests import gateway_views
from tests.alarm_views import trouble
from tests.ports import free_port

from .conftest import WAIT, entity

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
        billed=Meter(sends=97, sent_bytes=9_700),
        times="", troubles=(trouble(TroubleKind.OTHER_NAME),), readiness=Readiness(at=99.0, findings=found),
        journal=JournalView(lines=10, lost=2, trouble="full"),
    )  # fmt: skip
    return replace(base, **changes)


@asynccontextmanager
async def serving(
    address: ListenAddress, latest: Callable[[], Snapshot | None] = snapshot, warn: Callable[[str], object] = print
) -> AsyncIterator[ProbePort]:
    port = ProbePort(address, latest=latest, scraped=latest, warn=warn)
    task = asyncio.create_task(port.run())
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def served(until: Until, latest: Callable[[], Snapshot | None] = snapshot) -> AsyncIterator[int]:
    """The port of probes that are served."""
    number = free_port()
    async with serving(ListenAddress("127.0.0.1", number), latest):
        await until(lambda: answers(number))
        yield number


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


async def answer_to(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and body."""
    head, _, body = (await answer_to(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


# -- the port ----------------------------------------------------------------------------------------------------------


async def test_a_taken_port_is_an_alarm_and_tried_again(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is away is an alarm, not an exit status."""
    monkeypatch.setattr(probes, "BIND_RETRY_SECONDS", 0.02)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = ListenAddress("127.0.0.1", taken.getsockname()[1])
        async with serving(address) as port:
            await until(lambda: bool(port.troubles))
            (found,) = port.troubles
            taken.close()
            await until(lambda: not port.troubles)
            assert (await get(address.port, "/livez")) == (200, "alive\n")
    assert (found.kind, found.reason) == ("port_in_use", "Address already in use")
    assert found.what == f"the port of probes and metrics {address}"
    with pytest.raises(ConnectionRefusedError):
        await get(address.port, "/livez")


async def test_an_address_that_others_reach_is_said(until: Until) -> None:
    said: list[str] = []
    number = free_port()
    async with serving(ListenAddress("0.0.0.0", number), lambda: None, said.append):
        await until(lambda: bool(said))
        assert said == [f"metrics are served at 0.0.0.0:{number}, to other machines too"]
        assert await asyncio.to_thread(scraped, number) == "", "nothing before the first snapshot"


async def test_a_machine_without_ipv6_serves_at_localhost(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    make = socket.socket

    def no_ipv6(family: int = socket.AF_INET, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return make(family, *rest)

    monkeypatch.setattr("paired_servicebus.engine.instance.listening.socket.socket", no_ipv6)
    number = free_port()
    async with serving(ListenAddress("localhost", number)):
        await until(lambda: answers(number))
    async with serving(ListenAddress("::", number)) as port:
        await until(lambda: bool(port.troubles))
        assert "not supported" in port.troubles[0].reason


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /readyz/x HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /favicon.ico HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx", 405),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        (b"nonsense\r\n\r\n", 400),
        (b"\xff\xfe / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 400),
    ],
    ids=[
        "a scrape",
        "a query",
        "a head",
        "an older version",
        "alive",
        "no path",
        "another path",
        "an icon",
        "another method",
        "a body",
        "nonsense",
        "no ASCII",
        "TLS",
        "no URL",
        "many headers",
        "a long path",
        "a long header",
    ],
)
async def test_each_request_is_answered_in_http_and_ends_its_connection(
    until: Until, caplog: pytest.LogCaptureFixture, request_: bytes, status: int
) -> None:
    gc.collect()  # an earlier test of this process left something open, which complains now
    caplog.clear()
    async with served(until) as port:
        with suppress(ConnectionResetError):  # the rest of a request that was too long was under way
            answer = await answer_to(port, request_)
            assert answer.split()[1] == str(status).encode()
            assert b"connection: close\r\n" in answer.lower() or answer.startswith(b"HTTP/1.0")
        assert (await get(port, "/livez"))[0] == 200
    assert not caplog.records, "a stranger's bad request fills no log"


@pytest.mark.parametrize(
    ("routes", "in_rotation", "status", "body"),
    [
        (("primary", "backlog"), 0, 200, "ready: sends go to the primary for 1 of 2 entities; 0 of 2 backlog queues"),
        (("backlog", "backlog"), 1, 200, "ready: sends go to the primary for 0 of 2 entities; 1 of 2 backlog queues"),
        (("nowhere", "nowhere"), 0, 503, "not ready: sends go to the primary for 0 of 2 entities; 0 of 2 backlog"),
        ((), 0, 200, "ready: sends go to the primary, if any comes; 0 of 2 backlog queues accept"),
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
        answer = await get(port, "/readyz")
        assert (await get(port, "/livez"))[0] == 200
    assert answer[0] == status
    assert answer[1].startswith(body)


async def test_a_probe_says_why_neither_namespace_accepts_sends(until: Until) -> None:
    """It is ready while one of the two namespaces accepts sends; the body says which, and if none, why."""
    told = "SharedAccessKeyName=Root;SharedAccessKey=c4n4ry=\x1b[2J"
    troubles = (trouble(TroubleKind.NAMESPACE_UNREACHABLE, PRIMARY, f"port 5671: refused {told}"),)
    queues = (QueueView(index=0, path="0", in_rotation=False),)
    away = snapshot(entities=(entity("orders", State.UNKNOWN),), queues=queues, troubles=troubles)
    async with served(until, lambda: away) as port:
        status, body = await get(port, "/readyz")
    assert status == 503
    assert "the primary namespace cannot be reached: port 5671: refused" in body
    assert body.count("\n") == 1
    assert "c4n4ry" not in body
    assert "\x1b" not in body


async def test_a_probe_asks_no_namespace_for_depths(until: Until) -> None:
    """Management is asked only where somebody looks or a rule needs it."""
    number, scrapes = free_port(), []
    port = ProbePort(ListenAddress("127.0.0.1", number), latest=snapshot, scraped=lambda: scrapes.append(1), warn=print)
    task = asyncio.create_task(port.run())
    await until(lambda: answers(number))
    await get(number, "/readyz")
    assert not scrapes
    await get(number, "/metrics")
    assert scrapes
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_figures_are_compressed_for_who_takes_them_so(until: Until) -> None:
    async with served(until) as port:
        answer = await answer_to(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert b"paired_sends_total" in gzip.decompress(body)


async def test_a_snapshot_is_rendered_once_in_each_format(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[object] = []
    collect = probes.SnapshotCollector.collect

    def counted(self: probes.SnapshotCollector) -> Iterator[object]:
        rendered.append(threading.current_thread())
        return collect(self)

    monkeypatch.setattr(probes.SnapshotCollector, "collect", counted)
    newest = [snapshot()]
    open_metrics = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
    async with served(until, lambda: newest[0]) as port:
        for _ in range(20):
            assert "paired_sends_total" in (await get(port, "/metrics"))[1]
        assert len(rendered) == 1
        assert b"application/openmetrics-text" in await answer_to(port, open_metrics)
        newest[0] = snapshot(engine="other")
        assert 'engine="other"' in (await get(port, "/metrics"))[1]
    assert len(rendered) == 3
    assert threading.current_thread() not in rendered, "not on the loop's thread"


# -- many, and slow ----------------------------------------------------------------------------------------------------


async def test_idle_connections_are_few_and_keep_no_scraper_out(until: Until) -> None:
    """The bug: a thread and a descriptor for each connection, for ever; 1,017 of them disabled the engine."""
    async with served(until) as port:
        before = threading.active_count()
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * probes.MAX_PENDING_CONNECTIONS)]
        assert "paired_sends_total" in await asyncio.to_thread(scraped, port)
        assert threading.active_count() - before < 10
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(idle[0][0].read(), WAIT) == b""
        for _, writer in idle:
            writer.transport.abort()


async def test_a_request_that_trickles_is_given_up(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "REQUEST_SECONDS", 0.1)
    async with served(until) as port, asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        with suppress(ConnectionResetError):  # a byte was under way
            assert await answer == b""
        writer.close()


async def test_an_answer_that_is_not_read_is_given_up(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it counts: beyond a few, requests for metrics are refused and probes are answered."""
    monkeypatch.setattr(probes, "MAX_SCRAPES", 1)
    many = snapshot(entities=tuple(entity(f"an entity with a long name {number:>200}") for number in range(2000)))
    async with served(until, lambda: many) as port, asyncio.timeout(WAIT):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        while (await get(port, "/metrics"))[0] == 200:
            await asyncio.sleep(0.02)
        assert (await get(port, "/livez"))[0] == 200
        slow.close()
        while (await get(port, "/metrics"))[0] == 503:
            await asyncio.sleep(0.02)


async def test_a_connection_has_a_limit_of_time(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "CONNECTION_SECONDS", 0.3)
    ended = asyncio.Event()

    async def never(request: object) -> None:
        await asyncio.Event().wait()

    server = BoundedServer(never, lambda _: ended.set())  # type: ignore[arg-type]
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(ended.wait(), WAIT)
    writer.transport.abort()
    listening.close()


async def test_what_is_not_documented_of_aiohttp_is_as_it_was() -> None:
    """BoundedServer follows connections by these two methods, and knows a request's by `protocol`."""
    seen: list[str] = []

    class Seen(BoundedServer):
        def connection_made(self, handler: object, transport: object) -> None:  # type: ignore[override]
            seen.append(type(handler).__name__)
            super().connection_made(handler, transport)  # type: ignore[arg-type]

        def connection_lost(self, handler: object, exc: BaseException | None = None) -> None:  # type: ignore[override]
            super().connection_lost(handler, exc)  # type: ignore[arg-type]
            seen.append("lost")

    async def answer(request: probes.web.BaseRequest) -> probes.web.Response:
        seen.append(type(request.protocol).__name__)
        found = probes.web.Response(text="x")
        found.force_close()
        return found

    server = Seen(answer, lambda _: None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    assert (await answer_to(listening.sockets[0].getsockname()[1], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"x")
    listening.close()
    async with asyncio.timeout(WAIT):
        while len(seen) < 3:
            await asyncio.sleep(0.01)
    assert seen == ["RequestHandler", "RequestHandler", "lost"]


AT_ONCE = 20


@pytest.mark.parametrize(
    ("half_written", "asked"), [(100, 300), pytest.param(1000, 5000, marks=pytest.mark.slow)], ids=["many", "thousands"]
)
async def test_probes_by_thousands_while_a_send_goes_on(until: Until, half_written: int, asked: int) -> None:
    """However many ask, and however slowly they read, sends go on."""
    stopped = asyncio.Event()
    counts: dict[int, int] = {}
    sent = 0

    async def send(client: ServiceBusClient) -> None:
        nonlocal sent
        async with client.get_queue_sender("orders") as sender:
            while not stopped.is_set():
                await sender.send_messages(ServiceBusMessage(b"x"))
                sent += 1
                await asyncio.sleep(0.02)

    async def ask(port: int, times: int) -> None:
        for number in range(times):
            status, _ = await get(port, ("/livez", "/readyz", "/metrics")[number % 3])
            counts[status] = counts.get(status, 0) + 1

    async with Sandbox.start() as sandbox, served(until) as port:
        string = sandbox["primary"].connection_string
        async with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
            sending = asyncio.create_task(send(client))
            await until(lambda: sent > 0)
            before, half = sent, []
            for _ in range(half_written):
                half.append(await asyncio.open_connection("127.0.0.1", port))
                half[-1][1].write(b"GET /metrics HTTP/1.1\r\nHost")
            await asyncio.gather(*(ask(port, asked // AT_ONCE) for _ in range(AT_ONCE)))
            stopped.set()
            await sending
        for _, writer in half:
            writer.transport.abort()
    assert counts == {200: asked}
    assert sent > before, "it goes on meanwhile"


# -- An engine's figures as Prometheus reads them --------------------------------------------------------------------


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
    """Summary, syphon line, page 3's total, status command, metrics take this one figure."""
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
