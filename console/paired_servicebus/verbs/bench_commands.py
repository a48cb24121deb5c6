"""The verbs of `paired bench NAME`. Each parses its plan from the command line and calls paired_servicebus.bench.

Importing this module is cheap: it imports the benchmarks on demand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from paired_servicebus.bench.bench_plans import SendPlan, SyphonPlan
from paired_servicebus.config import PairingConfig, find_config, load_config
from paired_servicebus.verbs.parameters import JsonLine

Elsewhere = Annotated[
    Path | None,
    Parameter(name="--config", help="Measure on the namespaces of this pairing.toml, in queues made for it."),
]

bench = App(name="bench", help="Measure sends and the syphon on your namespaces, or on this machine's sandbox.")


@bench.command(name="syphon")
def bench_syphon(*, plan: SyphonPlan = SyphonPlan(), config: Elsewhere = None, json: JsonLine = False) -> int:
    """Measure how fast a backlog is moved, beside two loops on the SDK and a plain copy on our AMQP."""
    from paired_servicebus.bench.bench_command import run_bench_syphon  # with the SDK and the sandbox behind it

    return run_bench_syphon(plan, pairing_of(config), json_line=json)


@bench.command(name="send")
def bench_send(*, plan: SendPlan = SendPlan(), config: Elsewhere = None, json: JsonLine = False) -> int:
    """Measure the cost of a healthy send under a pairing, beside the plain SDK."""
    from paired_servicebus.bench.bench_command import run_bench_send  # with the SDK and the sandbox behind it

    return run_bench_send(plan, pairing_of(config), json_line=json)


def pairing_of(config: Path | None) -> PairingConfig | None:
    """Load the named pairing.toml; None without a name."""
    return None if config is None else load_config(find_config(config))
