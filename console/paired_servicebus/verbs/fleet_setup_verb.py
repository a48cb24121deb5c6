"""`paired fleet setup`: create the boards of a pairing, once, with a key that has Manage on the secondary."""

from __future__ import annotations

import asyncio

from paired_servicebus.config import PairingConfig, find_config, load_config
from paired_servicebus.printing import print_lines
from paired_servicebus.verbs.parameters import Config


def setup(*, config: Config = None) -> int:
    """Create the two queues in the secondary namespace by which the engines of a pairing see each other.

    Needs Manage there. Exit status 0 ready, 1 ready with settings that differ, 2 not ready.
    """
    settings = load_config(find_config(config))
    lines, differs = asyncio.run(_set_up(settings))
    print_lines(lines)
    return int(differs)


async def _set_up(settings: PairingConfig) -> tuple[list[str], bool]:
    from paired_servicebus.engine.clients.client_factory import open_admin  # with the SDK behind it
    from paired_servicebus.engine.clients.preflight import look_up_name
    from paired_servicebus.engine.fleet.fleet_setup import set_up_boards
    from paired_servicebus.engine.instance.engine_paths import engine_paths

    primary = await look_up_name(settings.primary, engine_paths(settings.name))
    async with open_admin(settings.secondary) as admin:
        found = await set_up_boards(admin, primary)
    lines = [f"{path} was created" for path in found.created]
    lines += [f"{path} exists" for path in found.existing]
    lines += found.remarks
    if settings.fleet is None:
        lines.append(f"{settings.path} has no [fleet]: its engine takes no part until it has one")
    return lines, bool(found.remarks)
