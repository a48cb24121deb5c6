"""The loss of both namespaces: every call that ends in an error is counted, once, and shown everywhere."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port
from tests.stage.console import Console
from tests.stage.course import PRIMARY, SECONDARY, Strike
from tests.stage.director import PATIENCE, Director
from tests.stage.ledger import Broken, now
from tests.stage.processes import Actor, CoreWaits

from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.control.discovery import query_engines
from paired_servicebus.verbs.status_text import Health, health_of
from servicebus_sandbox.faults import FaultKind
from servicebus_sandbox.specs import primary_and_secondary

SPECS: Final = primary_and_secondary()
ENTITIES: Final = ("orders", "audit")
SENDERS: Final = 3
"""Of each entity."""
ROUNDS: Final = 2
HOLD: Final = 0.6
"""The longest that both stay lost after calls were refused, in seconds."""
FAULTS: Final = (FaultKind.REFUSED, FaultKind.BLACK_HOLED, FaultKind.RESET)
SOON: Final = 2.0
"""Seconds after the first refused call in which everything has to show it, besides those of waiting for a core."""
OPTIONS: Final[dict[str, Any]] = {
    "backlog_queue_count": 2,
    "send_timeout": 1.0,
    "failover_interval": 0.3,
    "ping_primary_interval": 1.0,
    "ping_timeout": 1.0,
}


async def refused(director: Director, _minutes: float, _engines: int) -> None:
    """Lose both namespaces and regain them, in an order that the seed chooses."""
    port, file = free_port(), director.folder / "on-change"
    script = f"{sys.executable} -c \"import os; open({str(file)!r}, 'a').write(os.environ['PAIRED_TEXT'])\""
    application = director.application(
        "shop", entities=ENTITIES, sizes=(1,) * SENDERS, every=0.02, later=0.2, retries=False, metrics=port,
        on_change=script, options=OPTIONS,
    )  # fmt: skip
    await director.start(application)
    console = await director.console(application)
    await director.expect(lambda: len(director.ledger.accepted) >= len(ENTITIES) * SENDERS, "every sender sends")
    watching = asyncio.create_task(_watch(director, application, console, port, file))
    for _ in range(ROUNDS):
        await _lose_and_recover(director, console)
    await watching
    application.tell("stop")
    await director.expect(lambda: "stopped" in director.ledger.marks[application.life], "all calls have returned")
    await _compare(director, application, console, port)
    await director.collect(*ENTITIES)
    director.list_remaining()
    await director.end()


async def _lose_and_recover(director: Director, console: Console) -> None:
    ledger, draw, lost = director.ledger, director.draw, [PRIMARY, SECONDARY]
    for side in draw.sample(lost, 2):
        director.strike(Strike(namespace=side, fault=draw.choice(FAULTS)))
    await director.expect(lambda: _are(console, lambda view: view.route == "nowhere"), "both are lost")
    before = ledger.own_refusals().total()
    await director.expect(lambda: ledger.own_refusals().total() > before + len(ENTITIES) * SENDERS, "calls are refused")
    await asyncio.sleep(HOLD * draw.random())
    for side in draw.sample(lost, 2):
        faults = director.sandbox[side].node.faults
        for fault in faults.active():
            faults.remove(fault.id)
        accepted = len(ledger.accepted)
        await director.expect(lambda accepted=accepted: len(ledger.accepted) > accepted + SENDERS, f"{side} serves")  # type: ignore[misc]
    await director.expect(
        lambda: _are(console, lambda view: view.route == "primary" and view.refused_since is None), "all is well"
    )


def _are(console: Console, condition: Callable[[Any], bool]) -> bool:
    """Return whether the newest snapshot shows each entity so."""
    views = [console.entity(path) for path in ENTITIES]
    return all(view is not None and condition(view) for view in views)


async def _watch(director: Director, application: Actor, console: Console, port: int, file: Path) -> None:
    """Note after how many seconds each place shows that calls are refused, and that one is late."""
    ledger, waits, after = director.ledger, CoreWaits([application.pid]), dict[str, float]()
    while ledger.first_refused_at is None:
        await asyncio.sleep(0.02)
    began = ledger.first_refused_at
    while len(after) < 5:
        (engine,) = await query_engines([application.paths])
        health = health_of(engine, engine.snapshot.at if engine.snapshot else 0.0)
        metrics = await asyncio.to_thread(_scrape, port)
        stood = [fact.at for fact in ledger.stood[application.life] if fact.refused]
        shows = {
            "view": bool(stood),
            "alarm": engine.snapshot is not None
            and any(one.name == "sends_refused" for one in alarms(condition_of(engine.snapshot))),
            "status": health is Health.DEGRADED,
            "metrics": sum(metrics.values()) > 0,
            "on_change": file.exists() and "sends are refused: " in file.read_text(),
        }
        for place in (place for place, is_shown in shows.items() if is_shown and place not in after):
            after[place] = round((stood[0] if place == "view" else now()) - began, 2)
        if now() - began > PATIENCE:
            raise Broken(f"not shown: {sorted(shows.keys() - after.keys())}")
        await asyncio.sleep(0.02)
    director.figures["refusals shown after, s"] = after
    if max(after.values()) > SOON + waits.longest:
        director.found(f"it took more than {SOON:g} s until everything showed that calls are refused: {after}")


def _scrape(port: int) -> dict[str, int]:
    """Return the messages of refused calls by entity, as Prometheus reads them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    sums: Counter[str] = Counter()
    for family in families:
        for sample in family.samples:
            if sample.name == "paired_refused_messages_total":
                sums[sample.labels["entity"]] += int(sample.value)
    return dict(+sums)


async def _compare(director: Director, application: Actor, console: Console, port: int) -> None:
    """Compare the engine's counts with the application's own list, by every way that there is to them."""
    own = dict(director.ledger.own_refusals())

    def in_snapshot() -> dict[str, int]:
        views = console.snapshot.entities if console.snapshot is not None else ()
        return {one.path: one.refused for one in views if one.refused}

    await director.until(lambda: in_snapshot() == own, PATIENCE)
    counts = {
        "engine": director.ledger.stood[application.life][-1].refused,
        "snapshot": in_snapshot(),
        "metrics": await asyncio.to_thread(_scrape, port),
    }
    for what, found in counts.items():
        if found != own:
            director.found(f"{what} counts {found}, the application {own}")
    reasons: Counter[str] = Counter()
    for view in console.snapshot.entities if console.snapshot is not None else ():
        reasons.update(dict(view.refusals))
        if sum(count for _, count in view.refusals) != view.refused:
            director.found(f"{view.path}: {view.refused} refused, and by reason {view.refusals}")
    director.figures |= {"refused": own, "reasons": dict(reasons)}
