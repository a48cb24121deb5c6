"""An application with an engine in it, through the loss of both namespaces: it counts what its sends raised."""

from __future__ import annotations

import asyncio
import random
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from prometheus_client.parser import text_string_to_metric_families

import paired_servicebus
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import query_engines
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.ui.engines.health import Health, health_of
from servicebus_sandbox import Sandbox

ENTITIES: Final = ("orders", "audit")
SENDERS: Final = 3
"""Of each entity."""
QUEUES: Final = 2
FAULTS: Final = ("refused", "black-holed", "reset")
SOON: Final = 2.0
"""Seconds after the first refused call in which everything has to say so."""
PATIENCE: Final = 20.0


@dataclass
class Application:
    """Several senders that go on for as long as they are let, and count by entity what their calls raised."""

    paired: Any
    refused: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    first_refused_at: float | None = None
    ending: bool = False

    async def send(self, entity: str, number: int) -> None:
        """One sender: one message after the other, every fifth by a schedule."""
        get = self.paired.get_topic_sender if entity == "audit" else self.paired.get_queue_sender
        async with get(entity) as sender:
            count = 0
            while not self.ending:
                count += 1
                message = ServiceBusMessage(b"x", message_id=f"{entity}-{number}-{count}")
                try:
                    if count % 5:
                        await sender.send_messages(message)
                    else:
                        await sender.schedule_messages(message, datetime.now(UTC) + timedelta(days=1))
                except Exception as error:  # the application's own count is of all that is raised
                    self.count(entity, error)
                else:
                    self.accepted += 1
                await asyncio.sleep(0.02)

    def count(self, entity: str, error: Exception) -> None:
        self.refused[entity] += 1
        self.kinds[type(error).__name__] += 1
        self.first_refused_at = self.first_refused_at or asyncio.get_running_loop().time()


async def until(what: Callable[[], bool], patience: float = PATIENCE) -> float:
    """Wait until something is so; the loop's time then."""
    async with asyncio.timeout(patience):
        while not what():
            await asyncio.sleep(0.02)
    return asyncio.get_running_loop().time()


async def pair(sandbox: Sandbox, *, metrics: int, on_change: str, name: str) -> Any:
    trust = paired_servicebus.tls_context()
    primary, secondary = (
        ServiceBusClient.from_connection_string(sandbox[one].connection_string, retry_total=0, ssl_context=trust)
        for one in ("primary", "secondary")
    )
    admin = ServiceBusAdministrationClient.from_connection_string(
        sandbox["secondary"].connection_string, connection_verify=str(sandbox.ca_file)
    )
    options = paired_servicebus.SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=secondary, primary_name="primary", backlog_queue_count=QUEUES,
        send_timeout=1.0, failover_interval=0.3, ping_primary_interval=1.0, ping_timeout=1.0,
    )  # fmt: skip
    return await paired_servicebus.pair_namespaces(primary, options, control=name, metrics=metrics, on_change=on_change)


def called(file: Path) -> str:
    """What the operator's command was told so far."""
    return file.read_text() if file.exists() else ""


def scraped(port: int) -> dict[str, float]:
    """The messages of refused calls by entity, as Prometheus reads them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    sums: Counter[str] = Counter()
    for family in families:
        for sample in family.samples:
            if sample.name == "paired_refused_messages_total":
                sums[sample.labels["entity"]] += int(sample.value)
    return dict(sums)


@dataclass
class Told:
    """How many seconds after the first refused call each of these said so."""

    view: float = 0.0
    alarm: float = 0.0
    status: float = 0.0
    metrics: float = 0.0
    on_change: float = 0.0

    @property
    def latest(self) -> float:
        return max(vars(self).values())


async def _snapshot(name: str) -> tuple[Snapshot | None, Health]:
    (standing,) = await query_engines([engine_paths(name)])
    return standing.snapshot, health_of(standing, standing.snapshot.at if standing.snapshot else 0.0)


async def _told(application: Application, name: str, port: int, file: Path) -> Told:
    """See when the engine's views, its status, its metrics and the operator's command say that calls are refused."""
    loop, said = asyncio.get_running_loop(), Told()
    await until(lambda: application.first_refused_at is not None)
    began = application.first_refused_at or 0.0
    while not all(vars(said).values()):
        snapshot, health = await _snapshot(name)
        metrics = await asyncio.to_thread(scraped, port)
        seen = {
            "view": any(one.refused for one in application.paired.entity_views()),
            "alarm": snapshot is not None and any(each.startswith("sends are refused: ") for each in snapshot.alarms),
            "status": health is Health.DEGRADED,
            "metrics": sum(metrics.values()) > 0,
            "on_change": "sends are refused: " in called(file),
        }
        for key, so in seen.items():
            if so and not getattr(said, key):
                setattr(said, key, loop.time() - began)
        assert loop.time() - began < PATIENCE, f"not said: {seen}"
        await asyncio.sleep(0.02)
    return said


@dataclass(frozen=True)
class Played:
    """One run. wrong: what does not agree."""

    refused: dict[str, int]
    accepted: int
    kinds: dict[str, int]
    reasons: dict[str, int]
    told: Told
    wrong: tuple[str, ...]


async def play(seed: int, folder: Path, *, port: int, rounds: int = 2, hold: float = 0.6) -> Played:
    """Lose both namespaces and get them back, `rounds` times, in an order that the seed chooses."""
    chance, name, file = random.Random(seed), f"refused-{seed}", folder / "told"
    file.unlink(missing_ok=True)
    script = f"{sys.executable} -c \"import os; open({str(file)!r}, 'a').write(os.environ['PAIRED_TEXT'])\""
    async with Sandbox.start() as sandbox:
        paired = await pair(sandbox, metrics=port, on_change=script, name=name)
        async with paired:
            application = Application(paired)
            sending = [
                asyncio.create_task(application.send(entity, number))
                for entity in ENTITIES
                for number in range(SENDERS)
            ]
            await until(lambda: application.accepted >= len(sending))
            watching = asyncio.create_task(_told(application, name, port, file))
            for _ in range(rounds):
                await _lose_and_recover(sandbox, application, chance, hold)
            told = await watching
            application.ending = True
            await asyncio.gather(*sending)
            wrong, reasons = await _compare(application, name, port)
    if told.latest > SOON:
        wrong = (*wrong, f"it took more than {SOON:g} s until everything said that calls are refused: {told}")
    return Played(dict(application.refused), application.accepted, dict(application.kinds), reasons, told, wrong)


async def _lose_and_recover(sandbox: Sandbox, application: Application, chance: random.Random, hold: float) -> None:
    boards = [sandbox[name].node.faults for name in ("primary", "secondary")]
    faults = [(board, board.add(chance.choice(FAULTS)).id) for board in chance.sample(boards, 2)]
    views = application.paired.entity_views
    await until(lambda: all(view.route == "nowhere" for view in views()))
    refused = application.refused.total()
    await until(lambda: application.refused.total() > refused + len(ENTITIES) * SENDERS)
    await asyncio.sleep(hold * chance.random())
    chance.shuffle(faults)
    for board, fault in faults:
        board.remove(fault)
        accepted = application.accepted
        await until(lambda accepted=accepted: application.accepted > accepted + SENDERS)  # type: ignore[misc]
    await until(lambda: all(view.route == "primary" and view.refused_since is None for view in views()))


async def _compare(application: Application, name: str, port: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """The engine's counts beside the application's own, by every way that there is to them."""
    views = {view.path: view for view in application.paired.entity_views()}
    client = await ControlClient.connect(engine_paths(name).socket)
    counts = {path: view.refused for path, view in views.items()}
    wrong: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE):
            async for update in client.updates():
                if isinstance(update, Snapshot) and {one.path: one.refused for one in update.entities} == counts:
                    break
    except TimeoutError:
        wrong.append("no snapshot has the same counts as the engine's views")
    finally:
        await client.close()
    own = dict(application.refused)
    for what, found in (("engine", counts), ("metrics", await asyncio.to_thread(scraped, port))):
        if found != own:
            wrong.append(f"{what} counts {found}, the application {own}")
    wrong += [
        f"{path}: {view.refused} refused, and by reason {view.refusals}"
        for path, view in views.items()
        if sum(count for _, count in view.refusals) != view.refused
    ]
    reasons: Counter[str] = Counter()
    for view in views.values():
        reasons.update(dict(view.refusals))
    return tuple(wrong), dict(reasons)


def summary(played: Sequence[Played]) -> str:
    """All runs in a few lines."""
    refused = sum(sum(one.refused.values()) for one in played)
    reasons: Counter[str] = Counter()
    for one in played:
        reasons.update(one.reasons)
    slowest = max(one.told.latest for one in played)
    return (
        f"{len(played)} runs: {refused:,} messages refused, {sum(one.accepted for one in played):,} accepted; "
        f"{sum(bool(one.wrong) for one in played)} runs disagree; said everywhere within {slowest:.2f} s\n"
        f"reasons: {', '.join(f'{reason} {count}' for reason, count in reasons.most_common())}"
    )
