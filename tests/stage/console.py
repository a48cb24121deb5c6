"""A console over one engine's socket: what it shows, local commands, and signed orders over the fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from paired_servicebus.core.fleet.fleet_documents import Order, OrderText, encode_order_text, order_id
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.core.operator.fleet_question import FleetRequest, draft_order
from paired_servicebus.engine.control.control_client import ControlClient
from tests.engine.fleet.pens import Pen
from tests.stage.ledger import Broken

PEN: Final = Pen(1)
ENTITY: Final = "payments"
"""The entity of all orders over the fleet."""
PATIENCE: Final = 120.0
BY: Final = "ada"


class Console:
    """Follows one engine until it is closed. note: gets every update."""

    def __init__(self, client: ControlClient, note: Callable[[Any], object]) -> None:
        self.snapshot: Snapshot | None = None
        self._client = client
        self._note = note
        self._news = asyncio.Event()
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def open(
        cls, socket: Path, *, fleet: bool = False, note: Callable[[Any], object] = lambda _update: None
    ) -> Self:
        return cls(await ControlClient.connect(socket, fleet=fleet), note)

    def entity(self, path: str) -> EntityView | None:
        """Return an entity as the newest snapshot shows it."""
        entities = self.snapshot.entities if self.snapshot is not None else ()
        return next((one for one in entities if one.path == path), None)

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        with suppress(Exception):
            await self._client.close()

    @property
    def view(self) -> FleetView | None:
        return self.snapshot.fleet if self.snapshot is not None else None

    @property
    def has_ended(self) -> bool:
        return self._following.done()

    def find(self, text: OrderText) -> FleetOrder | None:
        wanted = order_id(encode_order_text(text))
        return next((one for one in self.view.orders if one.id == wanted), None) if self.view is not None else None

    async def until(self, condition: Callable[[FleetView], Any], what: str, seconds: float = PATIENCE) -> FleetView:
        """Return the first view that meets a condition. Raises Broken."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if self.view is not None and condition(self.view):
                        return self.view
                    if self.has_ended:
                        raise Broken(f"the console's engine ended; expected: {what}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Broken(
                f"the console does not show after {seconds:.0f} s: {what}; it shows {self.summary()}"
            ) from None

    async def reporting(self, count: int) -> FleetView:
        """Wait until so many engines report with figures."""
        return await self.until(
            lambda view: sum(_reports(one) for one in view.engines) == count and view.watched and not view.trouble,
            f"{count} engines report",
        )

    async def answered(self, text: OrderText, done: int, seconds: float = PATIENCE) -> FleetOrder:
        """Wait until so many engines have done an order."""

        def is_met(_view: FleetView) -> bool:
            order = self.find(text)
            return order is not None and len(order.done) >= done

        await self.until(is_met, f"{done} engines have done {text.verb}", seconds)
        order = self.find(text)
        assert order is not None
        return order

    async def done_by_all(self, text: OrderText, count: int, seconds: float = PATIENCE) -> FleetOrder:
        """Wait until so many engines have done an order, and no engine is silent. Raises Broken: refused."""
        order = await self.answered(text, count, seconds)
        await self.until(
            lambda _view: (found := self.find(text)) is not None and not found.silent,
            "no engine is silent",
            seconds,
        )
        order = self.find(text) or order
        if order.refused:
            raise Broken(f"{text.verb} is refused: {dict(order.refused)}")
        return order

    def draft(self, verb: str) -> OrderText:
        """Return an order for all engines about the entity, typed and confirmed."""
        assert self.snapshot is not None
        assert self.view is not None
        drafted = draft_order(
            self.view,
            FleetRequest(command=Command(action_id=verb, scope="entity", targets=(ENTITY,), why="drill")),
            primary=self.snapshot.primary, secondary=self.snapshot.secondary, now=time.time(),
        )  # fmt: skip
        return drafted.confirm(drafted.to_type)

    async def post(self, text: OrderText) -> None:
        signed = encode_order_text(text)
        await self._client.post_order(Order(signed=signed.decode(), signature=PEN.sign(signed)), by=BY)

    async def order(self, verb: str) -> OrderText:
        """Draft, sign and post an order; return its text."""
        text = self.draft(verb)
        await self.post(text)
        return text

    async def command(self, action: str, entity: str = "") -> None:
        """Command the engine alone, as a local operator does. Raises ControlError."""
        targets = (entity,) if entity else ()
        await self._client.order(Command(action_id=action, targets=targets, by=BY), typed=entity)

    def summary(self) -> str:
        if self.view is None:
            return "no fleet"
        states = [f"{one.engine} {one.status.value}" for one in self.view.engines if not _reports(one)]
        orders = [
            f"{one.verb}: {len(one.done)} done, refused {dict(one.refused)}, silent {[name for name, _ in one.silent]}"
            for one in self.view.orders
        ]
        return f"{len(self.view.engines)} engines, not reporting: {states}; {orders}; {self.view.trouble}"

    async def _follow(self) -> None:
        async for update in self._client.updates():
            self._note(update)
            if isinstance(update, Snapshot):
                self.snapshot = update
                self._news.set()
        self._news.set()


def _reports(engine: Any) -> bool:
    return engine.status is FleetStatus.REPORTING and engine.figures is not None
