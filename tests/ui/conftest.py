"""Made-up engines for the dashboard's tests: snapshots, records, and a feed that a test speaks through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

import pytest
from textual.css.stylesheet import Stylesheet
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    ParkedView,
    QueueView,
    RouteView,
    Snapshot,
    SyphonStatus,
    SyphonView,
    UnusedQueue,
    UnusedView,
)
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.engines.feed import Emit
from paired_servicebus.ui.shell.app import PairedApp
from paired_servicebus.ui.state.view import News, Page, Records, Unreachable

from .terminals import open_terminal, orders_taken, server, terminal  # noqa: F401 - fixtures

UNUSED = "contoso/x-servicebus-transfer/"
BACKLOG_ROUTES = (
    RouteView(route="backlog/3", accepted=1_204, failed=0),
    RouteView(route="backlog/8", accepted=17, failed=2),
)
IDLE_TURNS = 3
Name = TypeVar("Name")
AT = datetime(2026, 11, 20, 14, 2, 11, tzinfo=UTC).timestamp()


def at(text: str) -> float:
    """14:02:03 on the day of the made-up outage."""
    clock = datetime.strptime(text, "%H:%M:%S").time()
    return datetime.combine(datetime.fromtimestamp(AT, UTC).date(), clock, UTC).timestamp()


class MadeUp:
    """Builders with sensible values; anything can be said otherwise."""

    at = staticmethod(at)
    AT = AT

    def entity(self, path: str, state: State = State.HEALTHY, **changes: Any) -> EntityView:
        base = EntityView(
            path=path,
            state=state,
            since=at("09:12:40"),
            why="sends go to the primary; no failure since the engine started",
            route="primary",
            sends_per_second=96.0,
            accepted=412_000,
            diverted=0,
            failed=0,
            carried=True,
        )
        return replace(base, **changes)

    def failed_over(self, path: str, **changes: Any) -> EntityView:
        base = self.entity(
            path,
            State.FAILED_OVER,
            since=at("14:01:58"),
            why="connection lost since 14:01:58; ping 1 failed 14:02:03 (timeout); next 14:03:03",
            route="backlog/3",
            sends_per_second=38.0,
            diverted=1_204,
            failed=17,
            last_ping_at=at("14:02:03"),
            last_ping_good=False,
            last_ping_text="timeout",
            next_ping_at=at("14:03:03"),
            pings=1,
            pings_sent=1,
            failovers=1,
            seconds_failed_over=13.0,
        )
        return replace(base, **changes)

    def forced(self, path: str, **changes: Any) -> EntityView:
        why = 'forced by kim 13:40:00 "planned work"; pings accepted (12 in a row); next 14:02:40; stays until released'
        good = {"last_ping_good": True, "last_ping_text": "", "pings": 12, "pings_accepted": 12, "pings_sent": 12}
        base = self.failed_over(path, state=State.FORCED, since=at("13:40:00"), why=why, **good)
        return replace(base, **changes)

    def queues(
        self, depths: dict[int, int] | None = None, *, number: int = 10, **changes: Any
    ) -> tuple[QueueView, ...]:
        return tuple(
            QueueView(
                index=index,
                path=f"contoso/x-servicebus-transfer/{index}",
                in_rotation=True,
                depth=(depths or {}).get(index, 0),
                dead_lettered=0,
                size_bytes=0,
                **{"read_at": at("14:02:10"), **changes},
            )
            for index in range(number)
        )

    def unused(self) -> UnusedView:
        """One queue that is not used and not empty."""
        path = "contoso/x-servicebus-transfer/12"
        queue = UnusedQueue(
            path=path,
            index=12,
            status="Active",
            messages=3,
            dead_lettered=0,
            size_bytes=900,
            last_active=at("09:30:00"),
        )
        return UnusedView(queues=(queue,), read_at=at("14:01:00"))

    def syphon(self, status: SyphonStatus = SyphonStatus.IDLE, **changes: Any) -> SyphonView:
        return replace(SyphonView(status=status, text="nothing to move", history=(0.0,) * 60), **changes)

    def snapshot(self, *entities: EntityView, **changes: Any) -> Snapshot:
        """All healthy, unless said otherwise."""
        healthy = (self.entity("orders", sends_per_second=412.0), self.entity("payments"), self.entity("audit"))
        base = Snapshot(
            engine="orders@web-1",
            boot="b1",
            pid=4711,
            seq=12,
            at=AT,
            pairing="orders",
            environment="production",
            primary="contoso",
            secondary="contoso-backup",
            read_only=False,
            entities=entities or healthy,
            queues=self.queues(),
            syphon=self.syphon(),
            billed=Meter(),
            times="send 30 s · failover 1 min · ping 1 min",
        )
        return self.counted(replace(base, **changes))

    def counted(self, snapshot: Snapshot) -> Snapshot:
        """With the engine's figures, where none are given: nothing was sent or moved since the readings."""
        queues = tuple(replace(one, parked=one.depth) if one.parked is None else one for one in snapshot.queues)
        snapshot = replace(snapshot, queues=queues)
        read = [queue for queue in queues if queue.depth is not None]
        if not read or snapshot.parked is not None:
            return snapshot
        parked = ParkedView(
            messages=sum(queue.depth or 0 for queue in read),
            read_at=min((queue.read_at for queue in read if queue.read_at is not None), default=None),
            known=len(read),
            queues=len(queues),
        )
        return replace(snapshot, parked=parked)

    def outage(self, **changes: Any) -> Snapshot:
        """One entity failed over, messages parked, one queue pulled."""
        queues = list(self.queues({3: 1_204, 8: 17}))
        queues[6] = replace(
            queues[6], in_rotation=False, pulled_since=at("14:02:01"), pulled_reason="timeout after 1.0 s"
        )
        history = tuple(float(second % 9) for second in range(60))
        return self.snapshot(
            self.entity("orders", sends_per_second=412.0),
            self.failed_over("payments"),
            self.entity("audit"),
            queues=tuple(queues),
            syphon=self.syphon(SyphonStatus.RUNNING, text="moving", per_second=22.0, history=history, moved=8_112),
            **{"unused": self.unused()} | changes,
        )

    def backlog(self, **changes: Any) -> Snapshot:
        """The outage, with everything known that an engine can tell."""
        snapshot = self.outage()
        queues = list(snapshot.queues)
        for place, (depth, growth) in {3: (1_204, 22.0), 8: (17, -2.5)}.items():
            queues[place] = replace(
                queues[place],
                depth=depth,
                growth=growth,
                size_bytes=depth * 20_000,
                bytes_growth=growth * 20_000,
                pump_text="moving; 2 may have arrived twice",
            )
        queues[8] = replace(
            queues[8],
            dead_lettered=19,
            dead_reasons=(("no x-ms-path", 12), ("orders was not found for 902 s", 5)),
            differences=("LockDuration 0:00:30 instead of 0:01:00",),
            set_aside=3,
            scheduled=2,
        )
        limits = tuple(replace(queue, limit_bytes=5 * 1024**3) for queue in queues)
        pings = (0.012, None, 0.08, 0.011, 0.013)
        entities = list(snapshot.entities)
        entities[1] = replace(
            entities[1],
            pings=5,
            pings_sent=5,
            pings_accepted=4,
            pings_in_a_row=3,
            recent_pings=pings,
            sends=(RouteView(route="primary", accepted=412_000, failed=17), *BACKLOG_ROUTES),
        )
        return replace(
            snapshot,
            entities=tuple(entities),
            queues=limits,
            started_at=at("09:12:40"),
            policy=Policy(enable_syphon=True, failback_pings=5),
            billed=Meter(
                sends=412_017,
                parked=1_221,
                pings=5,
                receives=61,
                moves=8_112,
                settlements=8_112,
                sent_bytes=421_905_408,
                parked_bytes=1_250_304,
                received_bytes=8_706_688,
                moved_bytes=8_306_688,
            ),
            unused=UnusedView(
                queues=(
                    UnusedQueue(path=UNUSED + "10", index=10, status="Active", messages=17, dead_lettered=0),
                    UnusedQueue(path=UNUSED + "11", index=11, status="Active", messages=0, dead_lettered=0),
                ),
                read_at=at("14:00:00"),
            ),
            **changes,
        )

    def record(self, event: e.Event, seq: int = 1, boot: str = "b1") -> e.Record:
        return e.Record(engine="orders@web-1", boot=boot, seq=seq, event=event)

    def records(self) -> tuple[e.Record, ...]:
        """The outage's story so far."""
        lost = "connection lost 14:00:58; fails over at 14:01:58 unless a send succeeds"
        over = 'no send accepted for 60 s after "connection lost"'
        story: list[e.Event] = [
            e.StateChanged(at=at("14:00:58"), entity="payments", was="healthy", now="suspect", why=lost),
            e.StateChanged(at=at("14:01:58"), entity="payments", was="suspect", now="failed over", why=over),
            e.QueuePulled(at=at("14:02:01"), queue=6, reason="timeout after 1.0 s"),
            e.PingFailed(at=at("14:02:03"), entity="payments", number=1, reason="timeout", took=2.0),
        ]
        return tuple(self.record(event, seq) for seq, event in enumerate(story, start=9))


class FakeFeed:
    """A feed that a test speaks through, and that notes what is ordered."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, str, str]] = []
        """Verb, targets, by whom."""
        self.armed: list[tuple[str, tuple[str, ...]]] = []
        self.fired: list[tuple[str, str, str]] = []
        """Token, typed text and reason of each order."""
        self.posted: list[tuple[Order, str]] = []
        """Orders over the fleet, and by whom each was posted."""
        self.seconds = 30.0
        self.to_type = ""
        """What arming asks for; empty: the target's name, or the number of several."""
        self.refusal = ""
        self.refusals: dict[str, str] = {}
        """Why a queue is not looked into."""
        self.hold: asyncio.Event | None = None
        """While set and not released, commands wait for it."""
        self.hold_from = 0
        """A look from this number on is never answered."""
        self.pages: dict[tuple[str, str, int], MessagePage] = {}
        """Of messages, by queue, kind and first number; any other is empty."""
        self.contents: dict[int, MessageContent] = {}
        self.looks: list[tuple[str, str, int, str]] = []
        """At messages: queue, kind, first or only number, wanted id."""
        self._tell: Emit | None = None

    async def run(self, tell: Emit) -> None:
        self._tell = tell
        await asyncio.Event().wait()

    async def arm(self, command: Command) -> Armed:
        if self.refusal:
            raise CommandRefusedError(self.refusal)
        targets = command.targets
        self.armed.append((command.action_id, targets))
        to_type = self.to_type or (targets[0] if len(targets) == 1 else str(len(targets) or "orders"))
        return Armed(id=1, token="t", to_type=to_type, seconds=self.seconds, until=AT + 34)

    async def execute(self, command: Command, armed: Armed | None = None) -> str:
        target = " ".join(command.targets)
        self.orders.append((command.action_id, target, command.by))
        self.fired.append((*((armed.token, armed.to_type) if armed else ("", "")), command.why))
        if self.hold is not None:
            await self.hold.wait()
        if self.refusal:
            raise CommandRefusedError(self.refusal)
        return f"{target or 'syphon'} is told"

    async def post_order(self, order: Order, *, by: str) -> str:
        self.posted.append((order, by))
        if self.refusal:
            raise CommandRefusedError(self.refusal)
        return f"order {order.id} is posted"

    async def look_at_messages(
        self, queue: str, kind: MessageKind, *, from_number: int = 1, wanted: str = "", by: str
    ) -> MessagePage:
        self.looks.append((queue, kind.value, from_number, wanted))
        if self.hold is not None or from_number == self.hold_from:
            await (self.hold or asyncio.Event()).wait()
        if refusal := self.refusals.get(queue) or self.refusal:
            raise CommandRefusedError(refusal)
        empty = MessagePage(queue=queue, kind=kind, read_at=AT + 1)
        return self.pages.get((queue, kind.value, from_number), empty)

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        self.looks.append((queue, kind.value, number, ""))
        if self.refusal:
            raise CommandRefusedError(self.refusal)
        content = self.contents[number]
        return replace(content, body=content.body[from_byte:])

    def tell(self, *news: News) -> None:
        assert self._tell is not None, "the app has not started"
        for item in news:
            self._tell(item)

    def lose(self, reason: str = "the engine process died") -> None:
        self.tell(Unreachable(AT + 4, reason))


async def turns(*_: object) -> None:
    """Let the loop turn until nothing is ready: the pilot takes a busy machine for an idle process."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    idle = 0
    for _ in range(50):
        await asyncio.sleep(0)
        idle = 0 if ready else idle + 1
        if idle == IDLE_TURNS:
            return


class Console:
    """A running dashboard, as a test sees it."""

    def __init__(self, app: PairedApp, feed: FakeFeed, pilot: Pilot[int]) -> None:
        self.app = app
        self.feed = feed
        self.pilot = pilot

    async def told(self, *news: News) -> None:
        """News, and the screen that follows."""
        self.feed.tell(*news)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Press the keys one by one; letters for a field come at once, as a terminal sends what is typed quickly."""
        for is_text, group in groupby(keys, lambda key: len(key) == 1 and key.isalnum()):
            pressed = list(group)
            while pressed:
                if is_text and isinstance(self.app.focused, Input):
                    for key in pressed[:-1]:
                        self.app.post_message(Key(key, key))
                    del pressed[:-1]
                await self.app._press_keys([pressed.pop(0)])
        await turns()
        await self.pilot.pause()

    def screen(self) -> str:
        """The whole screen as text."""
        width = self.app.size.width
        strips = self.app.screen._compositor.render_strips()  # what the terminal is sent, before colours
        return "\n".join(strip.text.ljust(width) for strip in strips)

    def rows(self) -> list[str]:
        return self.screen().split("\n")


_PARSED: dict[tuple[Any, ...], Any] = {}
_parse_rules = Stylesheet._parse_rules


def _parse_once(sheet: Stylesheet, *where: Any, **options: Any) -> Any:
    """The same text in the same colours is the same rules in every app of the tests."""
    key = (where, *sorted(options.items()), *sheet._variables.items())
    if key not in _PARSED:
        _PARSED[key] = _parse_rules(sheet, *where, **options)
    return _PARSED[key]


@pytest.fixture
def made() -> MadeUp:
    return MadeUp()


@pytest.fixture
def new_app() -> Iterator[Callable[..., tuple[PairedApp, FakeFeed]]]:
    """An app over a fake feed, with a frozen clock; whether the engine is silent is checked when a test does."""
    with quick():
        yield _app


@contextmanager
def quick() -> Iterator[None]:
    """Prove by turns of the loop what the pilot, after a key, sleeps 40 ms for: that the process is idle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paired_servicebus.ui.shell.app.SILENCE_CHECK_SECONDS", 3600.0)
        patch.setattr("textual.app.wait_for_idle", turns)
        patch.setattr("textual.pilot.wait_for_idle", turns)
        patch.setattr(Stylesheet, "_parse_rules", _parse_once)
        yield


def _app(**options: Any) -> tuple[PairedApp, FakeFeed]:
    feed = FakeFeed()
    options = {"pairing": "orders", "by": "kim", "now": lambda: AT + 4, "monotonic": lambda: 0.0, **options}
    return PairedApp(feed, **options), feed


@asynccontextmanager
async def opened(*news: News, size: tuple[int, int] = (80, 24), **options: Any) -> AsyncIterator[Console]:
    """A dashboard: `async with opened(size=(80, 24)) as console`."""
    with quick():
        app, feed = _app(**options)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            console = Console(app, feed, pilot)
            if news:
                await console.told(*news)
            yield console


@pytest.fixture
def open_console() -> Callable[..., AbstractAsyncContextManager[Console]]:
    return opened


def screens(snapshots: Mapping[Name, Snapshot], *keys: str, size: tuple[int, int]) -> dict[Name, list[list[str]]]:
    """Of each snapshot the rows of the first page, and after each key, all drawn by one dashboard."""

    async def drawn() -> dict[Name, list[list[str]]]:
        found: dict[Name, list[list[str]]] = {}
        async with opened(size=size) as console:
            first = console.app.view
            for name, snapshot in snapshots.items():
                console.app.turn_to(Page.PAIRING)
                console.app.show(first)
                await console.told(snapshot)
                found[name] = [console.rows()]
                for key in keys:
                    await console.press(key)
                    found[name].append(console.rows())
        return found

    return asyncio.run(drawn())


@pytest.fixture
def outage_news(made: MadeUp) -> tuple[News, ...]:
    return (Records(made.records()), made.outage())
