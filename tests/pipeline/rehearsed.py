"""Whether rehearsals come true: `python -m tests.pipeline.rehearsed [SCENARIO ...]`, on a machine that is not busy.

A scenario is played for a minute; its journal says what this machine's application sends, its script what fails and
when. Policies are rehearsed on that, the recommended one is played in the sandbox, and both are compared: failovers
exactly, parked messages within a tenth. What is compared is predicted for the load that was then really offered, since
a busy machine sends less; the forecast from the load before is printed beside it. A policy that is recommended again
has been played already. All scenarios take half an hour on two cores. Prints a JSON object a scenario; exit status 1
where one did not come true.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.demo import scenarios
from paired_servicebus.demo.player import Player, pair_on
from paired_servicebus.demo.result import DemoResult
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pipeline.rehearsal.policy_ranking import Order, Row, order_of, policies_of, rehearsed, run_chunk
from paired_servicebus.pipeline.rehearsal.recorded_history import (
    Outage,
    RecordedHistory,
    Target,
    TimeBounds,
    read_history,
)
from paired_servicebus.sandbox_process import sandbox_process
from paired_servicebus.trials.workload import RETRY_AFTER

DURATION = 60.0
SEEDS = 10
WITHIN = 0.10
KINDS = {
    "refused": FailureKind.CONNECTION,
    "reset": FailureKind.CONNECTION,
    "black-holed": FailureKind.TIMEOUT,
    "disabled": FailureKind.DISABLED,
    "full": FailureKind.FULL,
    "busy": FailureKind.BUSY,
    "acknowledgement-lost": FailureKind.TIMEOUT,
}
"""Of the faults that sends meet; what is only slow, or seen late, is none to them."""


def policies_for(scenario: scenarios.Scenario) -> tuple[Policy, ...]:
    """What is rehearsed for a scenario."""
    return policies_of(scenario.policy, intervals=(0.0, 3.0, 8.0), pings=(1, 2), ping_intervals=(2.0, 4.0))


def known(scenario: scenarios.Scenario, recorded: RecordedHistory) -> RecordedHistory:
    """The recorded load, and the outages that the scenario's script says: from the first send on."""
    began = min(step.at for load in recorded.loads for step in load.steps if step.rate)
    outages = [
        Outage(target, KINDS[broken.fault], _at(began, broken.begins), _at(began, broken.ends))
        for broken in scenario.breaks
        if broken.fault in KINDS and not broken.operations
        for target in _targets(broken)
    ]
    return replace(recorded, outages=tuple(outages), acts=(), insists=RETRY_AFTER)


def _targets(broken: scenarios.FaultWindow) -> Sequence[Target]:
    """Whichever backlog queue is in use is the first: they are all alike."""
    if broken.namespace == scenarios.SECONDARY:
        return (0,) if broken.entities == (scenarios.BACKLOG_IN_USE,) else range(scenarios.QUEUES)
    return broken.entities or scenarios.ENTITIES


def _at(began: float, share: float) -> TimeBounds:
    return TimeBounds(began + share * DURATION, began + share * DURATION)


def main(names: Sequence[str]) -> int:
    """Compare each; the exit status."""
    return max(_compared(name) for name in names or [one.name for one in scenarios.SCENARIOS])


def _compared(name: str) -> int:
    scenario = scenarios.scenario_named(name)
    policies = policies_for(scenario)
    before, recorded = played(name, scenario.policy, seed=6)
    order = order_of(known(scenario, recorded), policies, SEEDS)
    found = rehearsed(order, rows_of(order))
    recommended, forecast = found.recommended, found.lines[found.best]
    result, offered = before, recorded
    if recommended != scenario.policy:
        result, offered = played(name, recommended, seed=7)
    again = order_of(known(scenario, offered), (recommended,), SEEDS)
    line = rehearsed(again, rows_of(again)).lines[0]
    failovers = sum(one.failovers for one in result.entities.values())
    parked, expected = result.syphon.moved, line["parked"].middle
    off = _off(parked, expected)
    came_true = failovers == line["failovers"].middle and off <= WITHIN
    told = {
        "scenario": name,
        "failover_interval": found.recommended.failover_interval,
        "failback_pings": found.recommended.failback_pings,
        "ping_interval": found.recommended.ping_primary_interval,
        "reason": found.reason,
        "forecast": {
            **{name: asdict(forecast[name]) for name in ("failovers", "parked")},
            "off": round(_off(parked, forecast["parked"].middle), 3),
        },
        "failovers": {"predicted": asdict(line["failovers"]), "played": failovers},
        "parked": {"predicted": asdict(line["parked"]), "played": parked, "off": round(off, 3)},
        "accepted": {
            "before": before.messages.accepted,
            "forecast": asdict(forecast["accepted"]),
            "predicted": asdict(line["accepted"]),
            "played": result.messages.accepted,
        },
        "lost": result.messages.lost,
        "came_true": came_true,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    return 0 if came_true else 1


def rows_of(order: Order) -> list[Row]:
    """Every run of an order, on all processors."""
    with ProcessPoolExecutor() as pool:
        return [row for rows in pool.map(partial(_rows_of_chunk, order), range(order.chunks)) for row in rows]


def _rows_of_chunk(order: Order, chunk: int) -> list[Row]:
    return list(run_chunk(order, chunk))


def played(name: str, policy: Policy, *, seed: int) -> tuple[DemoResult, RecordedHistory]:
    """Play a scenario; its result, and what its journal says."""
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(play(name, Path(folder), duration=DURATION, seed=seed, policy=policy))
        return result, read_history([Path(folder) / "journal"], policy)


def _off(played: int, predicted: int) -> float:
    return abs(played - predicted) / max(predicted, 1)


async def play(name: str, folder: Path, *, duration: float, seed: int, policy: Policy) -> DemoResult:
    """Play `name` for `duration` seconds; its journal is in `folder`/journal afterwards."""
    scenario = replace(scenarios.scenario_named(name), policy=policy)
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(sandbox_process(folder / "sandbox.log"))
        host = EngineHost(
            EngineIdentity(engine="demo", boot=uuid.uuid4().hex[:12], pairing="demo", environment="demo"),
            spool=folder / "journal",
            socket=folder / "engine.sock",
            policy=scenario.policy,
        )
        await stack.enter_async_context(host)
        paired = await stack.enter_async_context(await pair_on(sandbox, scenario.policy, on_event=host.record))
        for entity in scenarios.ENTITIES:
            paired.watch(entity)
        await host.adopt(paired)
        return await Player(scenario, sandbox, paired, seed=seed, say=lambda _: None).play(duration)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
