"""Whether rehearsals come true: `python -m tests.pipeline.rehearsed [SCENARIO ...]`, on a machine that is not busy.

The faults of a demo scenario and the load of its application make a history. Its policies are rehearsed, the
recommended one is played in the sandbox for a minute, and both are compared: failovers exactly, parked messages
within a tenth. Prints a JSON object a scenario; exit status 1 where one did not come true.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from console.core.verdict import FailureKind
from console.demo.application import RETRY_AFTER, STREAMS
from console.demo.scenarios import scenario_named
from console.demo.script import ENTITIES, QUEUES, SECONDARY, Scenario
from console.pipeline.rehearsal.grid import order_of, policies_of, run_chunk
from console.pipeline.rehearsal.history import History, Load, Outage, Span, Step
from console.pipeline.rehearsal.table import rehearsed
from tests.pipeline.play import play

DURATION = 60.0
SEEDS = 20
WITHIN = 0.10
ASKED = ("node-outage", "datacenter-outage", "namespace-refused", "entity-outage")
"""Their faults are of the primary alone, and are down without a break."""
KINDS = {
    "refused": FailureKind.CONNECTION,
    "reset": FailureKind.CONNECTION,
    "black-holed": FailureKind.TIMEOUT,
    "disabled": FailureKind.DISABLED,
    "full": FailureKind.FULL,
    "busy": FailureKind.BUSY,
}
TRIP = 0.006
"""Seconds that a send takes in the sandbox, on top of a stream's pause."""


def known(scenario: Scenario) -> History:
    """The history that the scenario's script says will happen."""
    outages = [
        Outage(entity, KINDS[broken.fault], _at(broken.begins), _at(broken.ends))
        for broken in scenario.breaks
        if broken.namespace != SECONDARY
        for entity in broken.entities or ENTITIES
    ]
    return History(
        source=f"the script of {scenario.name}",
        seconds=DURATION,
        entities=ENTITIES,
        queues=QUEUES,
        loads=tuple(
            Load(path=one.entity, steps=(Step(0.0, round(one.batch / (one.every + TRIP), 3)),), waits=True)
            for one in STREAMS
        ),
        outages=tuple(outages),
        insists=RETRY_AFTER,
    )


def _at(share: float) -> Span:
    return Span(share * DURATION, share * DURATION)


def main(names: Sequence[str]) -> int:
    """Compare each; the exit status."""
    return max(_compared(name) for name in names or ASKED)


def _compared(name: str) -> int:
    scenario = scenario_named(name)
    policies = policies_of(scenario.policy, intervals=(0.0, 3.0, 8.0), pings=(1, 2), ping_intervals=(2.0, 4.0))
    order = order_of(known(scenario), policies, SEEDS)
    found = rehearsed(order, [row for chunk in range(order.chunks) for row in run_chunk(order, chunk)])
    line = found.lines[found.best]
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(play(name, Path(folder), duration=DURATION, seed=7, policy=found.recommended))
    failovers = sum(one.failovers for one in result.entities.values())
    parked, expected = result.syphon.moved, line["parked"].middle
    off = abs(parked - expected) / max(expected, 1)
    came_true = failovers == line["failovers"].middle and off <= WITHIN
    told = {
        "scenario": name,
        "failover_interval": found.recommended.failover_interval,
        "failback_pings": found.recommended.failback_pings,
        "ping_interval": found.recommended.ping_primary_interval,
        "reason": found.reason,
        "failovers": {"predicted": asdict(line["failovers"]), "played": failovers},
        "parked": {"predicted": asdict(line["parked"]), "played": parked, "off": round(off, 3)},
        "lost": result.messages.lost,
        "came_true": came_true,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    return 0 if came_true else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
