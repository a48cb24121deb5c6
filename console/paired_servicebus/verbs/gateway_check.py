"""`paired check` beside a gateway: one message goes through it, as a client's would.

It is a ping, which the namespace accepts and delivers to nobody, so no entity of the user gets a message. With
ping = "link" nothing is sent: a link is attached. An entity whose sends go to the backlog is not used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.snapshot import EntityView, Finding, FindingVerdict
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.engine.control.discovery import find_socket, first_snapshot
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, LocalKey, connection_string, read_keys
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing.sending.sdk_messages import ping
from paired_servicebus.sections.gateway_options import GatewayOptions

WHAT: Final = "gateway"
CHECK_SECONDS: Final = 30.0
"""More than the gateway's own limit for a send."""
MAX_TEXT: Final = 200


async def check_gateway(config: PairingConfig, options: GatewayOptions, places: EnginePaths) -> Finding:
    """Send one ping through the running engine's gateway; return what came of it."""
    socket = find_socket(places)
    if socket is None:
        return Finding(what=WHAT, verdict=FindingVerdict.UNKNOWN, evidence="no engine runs here")
    try:
        key = _sending_key(options.keys or places.gateway_keys)
        entities = (await first_snapshot(socket)).entities
    except (OSError, PairedError) as error:
        return _finding(FindingVerdict.UNKNOWN, f"not tried: {error}", todo="see paired gateway")
    if key is None:
        return _finding(
            FindingVerdict.WARN, "no key has the right Send", todo="paired gateway --add NAME --rights Send"
        )
    entity = _usable(config.entities, entities)
    if entity is None:
        return _finding(
            FindingVerdict.UNKNOWN, "not tried: no configured entity sends to the primary now", todo="list entities"
        )
    return await _try(
        connection_string(key, options.port, address=options.address), entity, sends=config.policy.ping == "message"
    )


def _sending_key(path: Path) -> LocalKey | None:
    return next((key for key in read_keys(path).keys if GatewayRight.SEND in key.rights), None)


def _usable(configured: Sequence[str], entities: Sequence[EntityView]) -> str | None:
    """Return a configured entity whose sends go to the primary."""
    direct = {one.path.casefold() for one in entities if one.route == "primary"}
    return next((path for path in configured if path.casefold() in direct), None)


async def _try(string: str, entity: str, *, sends: bool) -> Finding:
    began = time.monotonic()
    try:
        async with (
            asyncio.timeout(CHECK_SECONDS),
            ServiceBusClient.from_connection_string(string, retry_total=0) as client,
            client.get_queue_sender(entity) as sender,
        ):
            if sends:
                await sender.send_messages(ping())
    except (ServiceBusError, OSError, TimeoutError, ValueError) as error:
        text = one_line(masked(str(error) or type(error).__name__), most=MAX_TEXT)
        return _finding(FindingVerdict.NO, f"a client cannot send to {entity}: {text}", todo="see the engine's log")
    took = round((time.monotonic() - began) * 1000)
    what = "a ping was sent to" if sends else "a link was attached to"
    return _finding(FindingVerdict.OK, f"{what} {entity} through it in {took} ms")


def _finding(verdict: FindingVerdict, evidence: str, *, todo: str = "") -> Finding:
    read_at = None if verdict is FindingVerdict.UNKNOWN else time.time()
    return Finding(what=WHAT, verdict=verdict, evidence=evidence, todo=todo, read_at=read_at)
