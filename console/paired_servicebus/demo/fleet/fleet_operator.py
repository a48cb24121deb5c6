"""The demo's operator: a key of its own, and a console on one engine that posts signed orders over the fleet."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ControlError, PairedError
from paired_servicebus.core.fleet.orders.order_draft import draft_order
from paired_servicebus.core.fleet.orders.order_text import encode_order_text
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.demo.fleet.hosts import met
from paired_servicebus.demo.scenario_model import ORDERS
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.fleet.order_signatures import sign

OPERATOR: Final = "operator"
KEY_SECONDS: Final = 20.0
STANDS_FOR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """A key pair for one demo: the private key's file, and the file of signers that has the public one."""

    private: Path
    operators: Path


async def make_key(folder: Path) -> OperatorKey:
    """Generate the key pair in the demo's folder. Raises PairedError."""
    private, operators = folder / "operator-key", folder / "operators"
    command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", OPERATOR, "-f", str(private))
    try:
        await asyncio.to_thread(
            subprocess.run, command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=KEY_SECONDS
        )
        operators.write_text(f"{OPERATOR} {private.with_suffix('.pub').read_text()}")
        operators.chmod(0o600)
    except FileNotFoundError as error:
        raise PairedError("the fleet scenario needs ssh-keygen (package openssh-client), which signs orders") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise PairedError(f"ssh-keygen made no key for the demo: {error}") from error
    return OperatorKey(private, operators)


class FleetConsole:
    """A console on one engine that shows the fleet. Made by `fleet_console`."""

    def __init__(self, client: ControlClient, key: Path) -> None:
        self._client = client
        self._key = key
        self._latest: Snapshot | None = None

    async def follow(self) -> None:
        """Keep the newest snapshot."""
        async for update in self._client.updates():
            if isinstance(update, Snapshot):
                self._latest = update

    @property
    def view(self) -> FleetView:
        """The fleet as the engine knows it; empty before the first snapshot."""
        view = self._latest.fleet if self._latest is not None else None
        return view or FleetView(me="")

    @property
    def reporting(self) -> set[str]:
        """The names of the engines that report."""
        return {one.engine for one in self.view.engines if one.status is FleetStatus.REPORTING}

    def answers(self, order_id: str) -> FleetOrder | None:
        """Return an order with its answers; None: it was not read yet."""
        return next((one for one in self.view.orders if one.id == order_id), None)

    async def answered(self, order_id: str, condition: Callable[[FleetOrder], bool], within: float) -> FleetOrder:
        """Return the order as soon as its answers meet a condition, at the latest after `within` seconds.

        Raises PairedError: it is not on the board.
        """

        def is_met() -> bool:
            order = self.answers(order_id)
            return order is not None and condition(order)

        await met(is_met, within)
        order = self.answers(order_id)
        if order is None or order.void:
            raise PairedError(f"the order does not count: {order.void if order else 'it is not on the board'}")
        return order

    async def order(self, verb: str, why: str) -> str:
        """Sign and post an order about `orders` for all engines; return its id. Raises PairedError."""
        snapshot = self._latest
        if snapshot is None or snapshot.fleet is None:
            raise ControlError("the engine has not reported the fleet")
        draft = draft_order(
            snapshot.fleet,
            FLEET_VERBS[verb],
            order_id=secrets.token_hex(16),
            primary=snapshot.primary,
            secondary=snapshot.secondary,
            scope=Scope.ENTITY,
            targets=(ORDERS,),
            engines=None,
            why=why,
            stands_for=STANDS_FOR if FLEET_VERBS[verb].stands else None,
            now=time.time(),
        )
        text = draft.confirm(draft.to_type)
        signed = encode_order_text(text)
        await self._client.post_order(
            text.verb,
            targets=text.targets,
            scope=text.scope,
            by=OPERATOR,
            why=why,
            signed=signed.decode(),
            signature=await sign(signed, self._key),
        )
        return text.id


@asynccontextmanager
async def fleet_console(socket: Path, key: Path) -> AsyncIterator[FleetConsole]:
    """Yield a console on the engine behind a socket; while it is open, all engines look fast. Raises ControlError."""
    client = await ControlClient.connect(socket, watches=False, fleet=True)
    console = FleetConsole(client, key)
    following = asyncio.create_task(console.follow(), name="the operator's console")
    try:
        yield console
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()
