"""The verb that rehearses an outage on the configured namespaces."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from paired_servicebus.config import find_config, load_config
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.verbs.parameters import Config, JsonLine


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
    from paired_servicebus.drill.drill_command import DrillRequest, clean_up  # with the SDK behind it
    from paired_servicebus.drill.drill_command import drill as run

    settings = load_config(find_config(config))
    places = engine_paths(settings.name)
    if clean:
        if json or as_configured:
            raise ConfigurationError("--clean carries out no drill: leave out --json and --as-configured")
        return clean_up(settings, places, yes=yes)
    return run(settings, places, DrillRequest(yes=yes, json_line=json, as_configured=as_configured))
