"""The verb that compares the project's assumptions about Service Bus with the configured namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from paired_servicebus.config import find_config, load_config
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.verbs.parameters import Config


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
    from paired_servicebus.verify.verify_command import run_clean, run_verify  # with the SDK behind it

    if clean and (slow or json is not None):
        raise ConfigurationError("--clean runs no experiments: leave out --json and --slow")
    settings = load_config(find_config(config))
    places = engine_paths(settings.name)
    if clean:
        return run_clean(settings, places)
    return run_verify(settings, places, json_file=json, slow=slow)
