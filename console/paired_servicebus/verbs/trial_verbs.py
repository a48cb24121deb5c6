"""The verbs of `paired bench NAME`. Each parses its plan from the command line and calls paired_servicebus.bench.

Importing this module is cheap: it imports the benchmarks on demand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from paired_servicebus.bench.bench_plans import SendPlan, SyphonPlan
from paired_servicebus.config import PairingConfig, find_config, load_config
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.verbs.parameters import Config, JsonLine

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


# The verb that rehearses an outage on the configured namespaces.


def drill(
    *,
    config: Config = None,
    yes: Annotated[
        str | None, Parameter(help="The pairing's name, in place of typing it; with --clean, an ended drill's name.")
    ] = None,
    json: JsonLine = False,
    as_configured: Annotated[bool, Parameter(help="With the pairing's own times, instead of short ones.")] = False,
    clean: Annotated[bool, Parameter(help="Only delete the entities that ended drills left.")] = False,
) -> int:
    """Rehearse an outage on both namespaces, with entities that it makes and deletes.

    Exit status 0 every promise held, 1 one was broken, 2 bad input or no consent, 3 not carried out.
    """
    from paired_servicebus.trials.drill_command import DrillRequest, clean_up  # with the SDK behind it
    from paired_servicebus.trials.drill_command import drill as run

    settings = load_config(find_config(config))
    places = engine_paths(settings.name)
    if clean:
        if json or as_configured:
            raise ConfigurationError("--clean carries out no drill: leave out --json and --as-configured")
        return clean_up(settings, places, yes=yes)
    return run(settings, places, DrillRequest(yes=yes, json_line=json, as_configured=as_configured))


# The verb that compares the project's assumptions about Service Bus with the configured namespaces.


def verify(
    *,
    config: Config = None,
    json: Annotated[
        Path | None,
        Parameter(help="A file for the results, without secrets and names: it can be attached to an issue."),
    ] = None,
    slow: Annotated[bool, Parameter(help="Also the experiments that take up to 15 minutes and 1 GB.")] = False,
    clean: Annotated[bool, Parameter(help="Only delete the queues that a killed run left.")] = False,
) -> int:
    """Test the assumptions about Service Bus on both namespaces, with queues made and deleted for it.

    Exit status 0 all hold or are skipped, 1 something differs, 2 bad input.
    """
    from paired_servicebus.trials.verify_command import run_clean, run_verify  # with the SDK behind it

    if clean and (slow or json is not None):
        raise ConfigurationError("--clean runs no experiments: leave out --json and --slow")
    settings = load_config(find_config(config))
    places = engine_paths(settings.name)
    if clean:
        return run_clean(settings, places)
    return run_verify(settings, places, json_file=json, slow=slow)
