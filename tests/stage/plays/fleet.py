"""A fleet: engines as processes, each behind gates to both namespaces, cut off, killed and restarted around orders."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.engine.fleet.conftest import AUTHOR, new_id, presence
from tests.stage.application import BATCH, greeting
from tests.stage.console import ENTITY, PEN, Console
from tests.stage.course import BACKLOG, PRIMARY, SECONDARY
from tests.stage.director import PATIENCE, Director
from tests.stage.gate import join
from tests.stage.ledger import Broken
from tests.stage.processes import SIDES, START, Actor, CoreWaits, environ, run_paired

from paired_servicebus import Fleet as FleetPart
from paired_servicebus import Namespace, PairedServiceBusClient, pair_namespaces
from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.fleet import pace
from paired_servicebus.core.fleet.fleet_documents import (
    PRESENCE_SECONDS,
    WATCH_SECONDS,
    Board,
    Goodbye,
    Order,
    OrderText,
    Posted,
    Presence,
    Watch,
    board_path,
    encode_order_text,
)
from paired_servicebus.core.model.fleet_view import FleetStatus
from paired_servicebus.engine.fleet.board_codec import read_post
from paired_servicebus.engine.fleet.board_setup import set_up_boards
from paired_servicebus.engine.fleet.service_bus_board import ServiceBusBoard, open_board
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.pairing.management.management_port import AtomAdmin
from servicebus_sandbox import NamespaceSpec, QueueSpec
from servicebus_sandbox.amqp_server.message_codec import show_message
from servicebus_sandbox.broker.entity_settings import Expiry
from servicebus_sandbox.broker.message import StoredMessage
from servicebus_sandbox.broker.queues.agenda import CreditBucket

VERBS: Final = ("force", "release")
"""Of orders by turns."""
HOME: Final = {"force": SECONDARY, "release": PRIMARY}
"""The side of a first send after each order."""
VICTIMS: Final = 4
"""Engines that are killed around one order."""
LOOK: Final = 5.0
"""Seconds within which a watched engine looks."""
QUIET: Final = 12.0
"""Seconds in which nobody may act on an order that is not on the board: more than two looks."""


def specs(credits: int | None = None) -> tuple[NamespaceSpec, ...]:
    """Return the namespaces. credits: those of the secondary in a second; None: no limit."""
    return (
        NamespaceSpec(PRIMARY, queues=[QueueSpec(ENTITY)]),
        NamespaceSpec(SECONDARY, expiry=Expiry.LAZY, credits_per_second=credits),
    )


def sign(text: OrderText) -> Order:
    signed = encode_order_text(text)
    return Order(signed=signed.decode(), signature=PEN.sign(signed))


@dataclass(eq=False)
class Fleet:
    """The hosts of one play, in the order in which they were added."""

    director: Director
    hosts: list[Actor] = field(default_factory=list)

    @property
    def operators(self) -> Path:
        """The file of those who sign orders."""
        path = self.director.folder / "operators"
        if not path.exists():
            path.write_text(f"operator-a {PEN.line}\n")
            path.chmod(0o600)
        return path

    async def add(self, count: int, *, prefix: list[str] | None = None, **task: Any) -> list[Actor]:
        """Make hosts, none of them started."""
        made = []
        for _ in range(count):
            name = f"e{len(self.hosts) + 1}"
            host = self.director.application(
                name, home=self.director.folder / name, gates=await self.director.gates(), prefix=prefix or (),
                operators=str(self.operators), greets=ENTITY, options={"backlog_queue_count": 1}, **task,
            )  # fmt: skip
            self.hosts.append(host)
            made.append(host)
        return made

    async def start(self, hosts: Iterable[Actor]) -> None:
        """Start the next boots of hosts; return after their first sends. Raises Broken: one was not accepted."""
        hosts = list(hosts)
        await self.director.start(*hosts)
        for host in hosts:
            await self.director.reach(host, lambda host=host: self.has_greeted(host), START, "has sent")  # type: ignore[misc]
            if greeting(host.life) not in self.director.ledger.accepted:
                raise Broken(f"the first send of {host.life} was not accepted")

    async def watched(self, count: int) -> tuple[list[Actor], Console]:
        """Start a host with a console, then the others, which find the watch; return when all report."""
        hosts = await self.add(count)
        await self.start(hosts[:1])
        console = await self.console(hosts[0])
        await console.until(lambda view: view.watched, "it is watched")
        await self.start(hosts[1:])
        await console.reporting(count)
        return hosts, console

    async def console(self, host: Actor) -> Console:
        return await self.director.console(host, fleet=True)

    async def reach_state(self, host: Actor, verb: str) -> None:
        """Wait until a host has obeyed an order. Raises Broken."""
        await self.director.reach(host, lambda: self.obeys(host, verb), PATIENCE, f"does {verb}")

    async def finish(self) -> None:
        """List where the first sends are."""
        await self.director.collect(ENTITY)
        self.director.list_remaining()

    # -- what the hosts are and hold ----------------------------------------------------------------------------------

    def has_greeted(self, host: Actor) -> bool:
        return self.director.ledger.has_answer(greeting(host.life))

    def state(self, host: Actor) -> str:
        return self.director.ledger.state(host.life, ENTITY)

    def obeys(self, host: Actor, verb: str) -> bool:
        return (self.state(host) == "forced") == (verb == "force")

    def acted_at(self, host: Actor) -> float:
        return self.director.ledger.stood[host.life][-1].at

    def check_states(self, hosts: Iterable[Actor], verb: str) -> None:
        """Raise Broken unless all are forced after a force, and none after a release."""
        if wrong := [host.name for host in hosts if not self.obeys(host, verb)]:
            raise Broken(f"after {verb}, the wrong state in {wrong}")

    def check_first_sends(self, hosts: Iterable[Actor], verb: str) -> None:
        """Raise Broken unless the first send of each host's present boot is on the side of an order."""
        for host in hosts:
            if (found := self.director.where(greeting(host.life), ENTITY)) != HOME[verb]:
                raise Broken(f"the first send of {host.life} is on {found or 'no'} side, not the {HOME[verb]}")

    # -- the boards ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def board(self) -> AsyncIterator[ServiceBusBoard]:
        """Open the boards without an engine; they are made if they are missing."""
        async with self.director.clients(SECONDARY) as (client, admin):
            await set_up_boards(AtomAdmin(admin), PRIMARY)
            board = open_board(client, primary=PRIMARY, posted_by=AUTHOR)
            try:
                yield board
            finally:
                await board.close()

    def on_board(self, board: Board) -> list[StoredMessage]:
        return self.director.messages(SECONDARY, board_path(PRIMARY, board))

    def posts(self, board: Board) -> list[Posted]:
        return [read_post(show_message(one), board) for one in self.on_board(board)]

    def is_posted(self, text: OrderText) -> bool:
        wanted = sign(text).id
        return any(isinstance(one.document, Order) and one.copies == wanted for one in self.posts(Board.ORDERS))


# -- cut off -----------------------------------------------------------------------------------------------------------

CUT: Final = 3
SILENT: Final = 200.0
"""Seconds in which the console shows it: a look unwatched, three reports of 15 s, and a busy machine."""
TWO_LOOKS: Final = 2 * pace.LOOK_WELL
"""Seconds in which a host that comes back acts: it does not know whether it is watched."""


async def partition(director: Director, _minutes: float, count: int) -> None:
    """Order over all with three cut off: the others do it, and those apply it when they come back."""
    fleet, count = Fleet(director), max(count, CUT + 1)
    _add_ssh_key(fleet)
    hosts, console = await fleet.watched(count)
    others, away = hosts[:-CUT], hosts[-CUT:]
    for host in away:
        host.cut(resets=host is away[-1])
    began = time.monotonic()
    await console.until(lambda _view: silent(console) == {one.name for one in away}, f"{CUT} are silent", SILENT)
    director.figures["shown as silent after, s"] = round(time.monotonic() - began, 1)
    await _order_by_verb(fleet, count)
    for host in others:
        await fleet.reach_state(host, "force")
    fleet.check_states(away, "release")
    await _come_back(fleet, console, away, count)
    release = await console.order("release")
    await console.answered(release, count)
    for host in hosts:
        await fleet.reach_state(host, "release")
    await fleet.finish()


async def _order_by_verb(fleet: Fleet, count: int) -> None:
    host, folder = fleet.hosts[0], fleet.director.folder
    order = ("failover", ENTITY, "--fleet", "--why", "drill", "--yes", str(count), "--key", str(folder / "key"))
    order += ("--engine", host.name)
    status, said = await run_paired(*order, env=environ(host.home))
    if (status, f"{CUT} engines are silent" in said) != (2, True):
        raise Broken(f"without --partial: exit status {status}, {said!r}")
    status, said = await run_paired(*order, "--partial", "--wait", "30s", env=environ(host.home))
    wanted = (f"{count - CUT} done · {CUT} silent since ", "they take it up when they come back")
    if status != 1 or not all(text in said for text in wanted):
        raise Broken(f"with --partial: exit status {status}, {said!r}")


async def _come_back(fleet: Fleet, console: Console, away: list[Actor], count: int) -> None:
    healed, waits = time.time(), CoreWaits(host.pid for host in away)
    for host in away:
        host.heal()
    for host in away:
        await fleet.reach_state(host, "force")
    slowest = max(fleet.acted_at(host) for host in away) - healed
    fleet.director.figures["back, they act after, s"] = round(slowest, 1)
    if slowest > TWO_LOOKS + waits.longest:
        raise Broken(f"back, an engine acts after {slowest:.1f} s; two looks are {TWO_LOOKS:.0f} s")
    await console.until(
        lambda view: any(len(one.done) == count and not one.silent for one in view.orders), f"{count} done"
    )


def silent(console: Console) -> set[str]:
    """Return the engines that the console shows as silent."""
    assert console.view is not None
    return {one.engine for one in console.view.engines if one.status is FleetStatus.SILENT}


def _add_ssh_key(fleet: Fleet) -> None:
    """Make a key by OpenSSH and add it to the operators. Raises Broken: ssh-keygen is missing."""
    if shutil.which("ssh-keygen") is None:
        raise Broken("ssh-keygen is not installed")
    key = fleet.director.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with fleet.operators.open("a") as file:
        file.write(f"operator-b {key.with_suffix('.pub').read_text()}")


# -- killed around orders and in boots ---------------------------------------------------------------------------------

ROUNDS: Final = 6
BOOT_KILLS: Final = 4
"""Kills of one engine in the middle of its boot."""
SLOW: Final = 0.03
"""Seconds that each chunk takes between a booting engine and the secondary namespace."""


async def order_kills(director: Director, _minutes: float, count: int) -> None:
    """Kill engines after an order was posted and before they answer; also in the middle of its release."""
    fleet = Fleet(director)
    hosts, console = await fleet.watched(count)
    moments: Counter[str] = Counter()
    for number in range(ROUNDS):
        verb = VERBS[number % 2]
        victims = director.draw.sample(hosts[1:], min(VICTIMS, count - 1))
        text = await console.order(verb)
        kills = (_kill_in_order(fleet, console, one, text, is_exact=one is victims[0]) for one in victims)
        moments.update(await asyncio.gather(*kills))
        await _restart_slowly(fleet, victims)
        fleet.check_first_sends(victims, verb)
        await console.done_by_all(text, count)
        for host in hosts:
            await fleet.reach_state(host, verb)
    director.figures["kills"] = dict(moments)
    await fleet.finish()


async def _kill_in_order(fleet: Fleet, console: Console, host: Actor, text: OrderText, *, is_exact: bool) -> str:
    """Kill a host at a random moment, or right after its act; return which it was."""
    ledger = fleet.director.ledger
    before = len(ledger.stood[host.life])
    if is_exact:
        await fleet.director.reach(host, lambda: len(ledger.stood[host.life]) > before, PATIENCE, "has acted")
    else:
        await asyncio.sleep(fleet.director.draw.uniform(0.0, LOOK))
    await host.kill()
    order = console.find(text)
    if order is not None and host.name in order.done:
        return "after the answer was shown"
    return "after the act" if len(ledger.stood[host.life]) > before else "before the act"


async def _restart_slowly(fleet: Fleet, hosts: list[Actor]) -> None:
    """Start hosts through slow gates: whatever they send before they hold what is in force is seen."""
    for host in hosts:
        host.slow(SLOW)
    await fleet.start(hosts)
    for host in hosts:
        host.slow(0.0)


async def boot_kills(director: Director, _minutes: float, count: int) -> None:
    """Kill engines again and again while they boot and apply what is in force."""
    fleet = Fleet(director)
    hosts, console = await fleet.watched(count)
    await console.answered(await console.order("force"), count)
    victims = director.draw.sample(hosts[1:], min(VICTIMS, count - 1))
    moments: Counter[str] = Counter()
    for verb in VERBS:
        for host in victims:
            await host.kill()
            host.slow(SLOW)
        text = await console.order(verb)
        for found in await asyncio.gather(*(_kill_boots(fleet, one, verb) for one in victims)):
            moments.update(found)
        for host in victims:
            host.slow(0.0)
        await fleet.start(victims)
        fleet.check_first_sends(victims, verb)
        await console.done_by_all(text, count)
        for host in hosts:
            await fleet.reach_state(host, verb)
    director.figures["kills"] = dict(moments)
    await fleet.finish()


async def _kill_boots(fleet: Fleet, host: Actor, verb: str) -> list[str]:
    """Kill boots, every other one after it has paired; no first send may go to another side. Raises Broken."""
    moments, director = [], fleet.director

    def applies() -> bool:
        return "takes up" in director.ledger.marks[host.life]

    for number in range(BOOT_KILLS):
        await host.begin()
        if number % 2:
            await director.reach(host, applies, START, "applies what is in force")
        await asyncio.sleep(director.draw.uniform(0.0, 1.0 if number % 2 else 4.0))
        await host.kill()
        await director.until(lambda: True)  # reads the lists
        if (found := director.where(greeting(host.life), ENTITY)) not in ("", HOME[verb]):
            raise Broken(f"the first send of {host.life} is on the {found} side, not the {HOME[verb]}")
        if fleet.has_greeted(host):
            moments.append("after the first send")
        else:
            moments.append("while it applies" if applies() else "before it applies")
    return moments


# -- killed while it posts ---------------------------------------------------------------------------------------------

POSTS: Final = 8
"""Kills in the middle of a post."""
LONGEST_POST: Final = 0.4
"""Seconds of a post through a slow gate, about."""
SLOW_POST: Final = 0.02


async def posting_kills(director: Director, _minutes: float, count: int) -> None:
    """Kill the engine through which a console posts, after its watch and in the middle of a post."""
    fleet = Fleet(director)
    hosts, console = await fleet.watched(count)
    await _kill_before_post(fleet, hosts, console)
    landed = 0
    for number in range(POSTS):
        landed += await _kill_in_post(fleet, hosts, VERBS[number % 2])
    director.figures[f"of {POSTS} killed posts, on the board and done by all"] = landed
    await fleet.finish()


async def _kill_before_post(fleet: Fleet, hosts: list[Actor], console: Console) -> None:
    text = console.draft("force")
    await hosts[0].kill()
    try:
        await console.post(text)
    except PairedError as error:
        fleet.director.say(f"the console shows: {error}")
    else:
        raise Broken("a post through a killed engine succeeded")
    await fleet.director.until(lambda: False, QUIET)
    fleet.check_states(hosts[1:], "release")
    if fleet.is_posted(text):
        raise Broken("an order that was not posted is on the board")
    other = await fleet.console(hosts[1])
    await other.until(lambda view: view.watched and view.read_at is not None, "it is watched")
    force = await other.order("force")
    await other.answered(force, len(hosts) - 1)
    await fleet.start(hosts[:1])
    fleet.check_first_sends(hosts[:1], "force")
    await other.answered(force, len(hosts))
    await other.answered(await other.order("release"), len(hosts))
    await other.close()


async def _kill_in_post(fleet: Fleet, hosts: list[Actor], verb: str) -> bool:
    """Kill the posting engine during a post; return whether the order is on the board. Raises Broken."""
    first, others = hosts[0], hosts[1:]
    console = await fleet.console(first)
    await console.reporting(len(hosts))
    before = [fleet.state(host) for host in others]
    text = console.draft(verb)
    first.slow(SLOW_POST)
    posting = asyncio.create_task(console.post(text))
    await asyncio.sleep(fleet.director.draw.uniform(0.0, LONGEST_POST))
    await first.kill()
    first.slow(0.0)
    refused = (await asyncio.gather(posting, return_exceptions=True))[0]
    if is_posted := fleet.is_posted(text):
        for host in others:
            await fleet.reach_state(host, verb)
    else:
        if refused is None:
            raise Broken("the console was told that the order is posted, and it is not on the board")
        await fleet.director.until(lambda: False, QUIET)
        if [fleet.state(host) for host in others] != before:
            raise Broken("engines acted on an order that is not on the board")
    await console.close()
    await fleet.start([first])
    return is_posted


# -- killed while it cleans --------------------------------------------------------------------------------------------

OVER: Final = 600
"""Posts on each board that do not count, behind one that does: a batch delete reaches none of them."""
AGE: Final = 900.0
"""Seconds since they were posted."""
CLEANERS: Final = 3
"""Consoles; the engine of each but the last is killed while it cleans."""
GONE: Final = replace(AUTHOR, engine="gone")
DAY: Final = 86_400.0
SLOW_CLEANING: Final = 0.05


async def cleaning_kills(director: Director, _minutes: float, count: int) -> None:
    """Kill the engines that clean the boards in the middle of it: no post that counts goes, and the others go on."""
    fleet = Fleet(director)
    counting = await _fill_boards(fleet)
    before = {str(board): len(fleet.posts(board)) for board in Board}
    hosts, console = await fleet.watched(count)
    fleet.check_states(hosts, "force")
    consoles = [console, *[await fleet.console(host) for host in hosts[1:CLEANERS]]]
    for host in hosts[: CLEANERS - 1]:
        await _kill_cleaner(fleet, host, counting)
    await _wait_cleaned(fleet, counting)
    director.figures |= {"posts before": before, "posts after": {str(one): len(fleet.posts(one)) for one in Board}}
    await fleet.start(hosts[: CLEANERS - 1])
    _check_counting(fleet, counting)
    fleet.check_first_sends(hosts[: CLEANERS - 1], "force")
    await consoles[-1].done_by_all(await consoles[-1].order("release"), count)
    await fleet.finish()


async def _fill_boards(fleet: Fleet) -> frozenset[str]:
    """Post what counts, and much behind it that does not; let time pass. Return the ids of the former."""
    text = OrderText(
        primary=PRIMARY, secondary=SECONDARY, verb="force", scope="entity", targets=(ENTITY,), engines=None,
        typed=ENTITY, reach=1, why="drill", issued_at=time.time(), until=time.time() + 3 * 3600.0, seen="",
    )  # fmt: skip
    kept = presence(author=replace(AUTHOR, engine="kept"))
    ended = Goodbye(id=new_id(), author=GONE, reason="its time was over")
    async with fleet.board() as board:
        await board.write(sign(text), DAY)
        await board.write(kept, DAY)
        for _ in range(2 * OVER):
            await board.write(Watch(id=new_id(), by="gone", look=5.0, report=15.0), 120.0)
            await board.write(presence(author=GONE), PRESENCE_SECONDS)
        await board.write(ended, PRESENCE_SECONDS)
    fleet.director.sandbox.advance(AGE)
    return frozenset({sign(text).id, kept.id, ended.id})


async def _kill_cleaner(fleet: Fleet, host: Actor, counting: frozenset[str]) -> None:
    """Kill an engine as soon as it has deleted a few posts, and holds others. Raises Broken."""
    most = {board: len(fleet.on_board(board)) for board in Board}

    def is_cleaning() -> bool:
        now = {board: fleet.on_board(board) for board in Board}
        is_held = any(one.lock_token is not None for posts in now.values() for one in posts)
        if is_held and any(len(now[board]) < most[board] for board in Board):
            return True
        most.update({board: max(most[board], len(now[board])) for board in Board})
        return False

    host.slow(SLOW_CLEANING)
    if not await fleet.director.until(is_cleaning, PATIENCE, look=0.005):
        raise Broken(f"{host.name} does not clean")
    await host.kill()
    host.slow(0.0)
    _check_counting(fleet, counting)


async def _wait_cleaned(fleet: Fleet, counting: frozenset[str]) -> None:
    """Wait until little is left that does not count. Raises Broken."""

    def is_cleaned() -> bool:
        _check_counting(fleet, counting)
        return all(_over(fleet, board) <= OVER / 10 for board in Board)

    await fleet.director.expect(is_cleaned, "the boards are cleaned")
    _check_counting(fleet, counting)


def _over(fleet: Fleet, board: Board) -> int:
    """Return the number of posts of `_fill_boards` that do not count."""
    documents = [one.document for one in fleet.posts(board)]
    return sum(
        (isinstance(one, Watch) and one.by == "gone") or (isinstance(one, Presence) and one.author.engine == "gone")
        for one in documents
    )


def _check_counting(fleet: Fleet, counting: frozenset[str]) -> None:
    """Raise Broken unless the posts of these ids, and a presence of each present boot, are on the boards."""
    posts = [one for board in Board for one in fleet.posts(board)]
    if gone := counting - {one.copies for one in posts}:
        raise Broken(f"deleted, though they count: {gone}")
    present = {one.document.author.engine for one in posts if isinstance(one.document, Presence)}
    if missing := [host.name for host in fleet.hosts if host.name not in present]:
        raise Broken(f"the presence of {missing} was deleted")


# -- throttled ---------------------------------------------------------------------------------------------------------
# What is compared is credits, not two rates: engines rest for ten seconds after "server busy", so rates of two runs
# differ by more than a fleet could cost. A credit is given out once. While credits are short, one message less is
# parked for each credit that something else gets. While they are not, the fleet takes nothing from parking. So what is
# not parked of the credits given out, as a share of all credits, is the most that the fleet can cost.

CREDITS: Final = 1000
"""Of the secondary in a second, as in the tier Standard."""
PHASES: Final = 3
SETTLE: Final = 4.0
MEASURED: Final = 30.0
MOST: Final = 0.05
"""The share of all credits that something other than parking takes, in each phase."""
OFFERED: Final = 4.0
"""Messages that all offer together, for each credit: engines wait after "server busy"."""


class CountedCredits(CreditBucket):
    """Counts the credits given out, and the operations refused."""

    __slots__ = ("given", "refused")

    def __init__(self, per_second: int, now: float) -> None:
        super().__init__(per_second, now)
        self.given = self.refused = 0

    def spend(self, cost: int, now: float) -> bool:
        is_spent = super().spend(cost, now)
        self.given += cost if is_spent else 0
        self.refused += not is_spent
        return is_spent


async def throttled(director: Director, _minutes: float, count: int) -> None:
    """All park through a throttled secondary, in a watched fleet: it may not cost parking its rate."""
    fleet = Fleet(director)
    hosts = await fleet.add(count, pace=count * BATCH / (OFFERED * CREDITS))
    await fleet.start(hosts)
    for host in hosts:
        one = await director.console(host)
        await one.command("force", ENTITY)
        await one.close()
    console = await fleet.console(hosts[0])
    await console.reporting(count)
    agenda = director.sandbox[SECONDARY].node.namespace._agenda
    credits = agenda.credits = CountedCredits(CREDITS, agenda.clock())
    director.figures["phases"] = [await _park(fleet, hosts, credits) for _ in range(PHASES)]
    await fleet.finish()


async def _park(fleet: Fleet, hosts: list[Actor], credits: CountedCredits) -> str:
    """Have all park for a while; return the figures. Raises Broken."""
    for host in hosts:
        host.tell("park")
    await asyncio.sleep(SETTLE)
    queue = fleet.director.sandbox[SECONDARY].node.namespace.queue(BACKLOG[0])
    given, refused, parked, began = credits.given, credits.refused, queue.counts().active, time.monotonic()
    await asyncio.sleep(MEASURED)
    given, refused = credits.given - given, credits.refused - refused
    parked, took = queue.counts().active - parked, time.monotonic() - began
    for host in hosts:
        host.tell("rest")
    other = (given - parked) / (CREDITS * took)
    told = f"{given / took:.0f} of {CREDITS} credits a second given out, {other:.1%} not to parking, {refused} refused"
    if not refused or not parked:
        raise Broken(f"nothing was parked, or credits were never short: {told}")
    if other > MOST:
        raise Broken(f"more than {MOST:.0%} of the credits are lost to parking: {told}")
    return told


# -- latency -----------------------------------------------------------------------------------------------------------

ORDERS: Final = 6
"""Orders over watched processes: force and release by turns."""
MANY: Final = 500
"""Engines in one process."""
MANY_ORDERS: Final = 3
ACTED, SHOWN, UNWATCHED, MANY_ACTED = 10.0, 12.0, 65.0, 45.0
"""Bounds in seconds, to which the time that a process waits for a core is added: 95 % have acted, all answers are
shown, unwatched engines have acted, many have acted."""
LONGEST: Final = 300.0


async def latency(director: Director, _minutes: float, count: int) -> None:
    """Order over processes that are watched, then over processes that are not."""
    fleet = Fleet(director)
    _, console = await fleet.watched(count)
    for number in range(ORDERS):
        await director.until(lambda: False, director.draw.uniform(0.0, LOOK))
        await _order_watched(fleet, console, VERBS[number % 2])
    text = console.draft("force")
    await console.close()
    await director.until(lambda: False, WATCH_SECONDS + LOOK)
    await _order_unwatched(fleet, text)
    await fleet.finish()


async def _order_watched(fleet: Fleet, console: Console, verb: str) -> None:
    posted, waits = time.time(), CoreWaits(host.pid for host in fleet.hosts)
    await console.answered(await console.order(verb), len(fleet.hosts), LONGEST)
    shown = time.time() - posted
    for host in fleet.hosts:
        await fleet.reach_state(host, verb)
    acted = sorted(fleet.acted_at(host) - posted for host in fleet.hosts)
    _check_times(fleet.director, verb, acted, shown, waits, (ACTED, SHOWN))


async def _order_unwatched(fleet: Fleet, text: OrderText) -> None:
    """Post without an engine, so without a watch. Raises Broken."""
    now = time.time()
    text = replace(text, issued_at=now, until=now + text.until - text.issued_at)
    waits = CoreWaits(host.pid for host in fleet.hosts)
    async with fleet.board() as board:
        posted = time.time()
        await board.write(sign(text), 3600.0)
    for host in fleet.hosts:
        await fleet.reach_state(host, "force")
    acted = sorted(fleet.acted_at(host) - posted for host in fleet.hosts)
    _check_times(fleet.director, "unwatched force", acted, 0.0, waits, (UNWATCHED, UNWATCHED))


def _check_times(
    director: Director, verb: str, acted: list[float], shown: float, waits: CoreWaits, bounds: tuple[float, float]
) -> None:
    """Keep the seconds until all have acted and until all answers are shown. Raises Broken: a bound is exceeded."""
    p95 = acted[max(0, -(-len(acted) * 95 // 100) - 1)]
    told = f"{verb}: acted p50 {acted[len(acted) // 2]:.1f} s, p95 {p95:.1f} s, answers shown {shown:.1f} s"
    director.figures.setdefault("orders", []).append(told)
    if p95 > bounds[0] + waits.longest or shown > bounds[1] + waits.longest:
        raise Broken(
            f"{told}; allowed are {bounds[0]:.0f} s and {bounds[1]:.0f} s, {waits.longest:.1f} s more for cores"
        )


async def many(director: Director, _minutes: float, _count: int) -> None:
    """Order over 500 engines in one process, the director's."""
    fleet = Fleet(director)
    async with AsyncExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environ(director.folder), clear=True))
        engines = [await _open_engine(fleet, stack, "m1")]
        console = await Console.open(engine_paths("m1").socket, fleet=True)
        stack.push_async_callback(console.close)
        await console.until(lambda view: view.watched, "it is watched")
        for number in range(2, MANY + 1):
            engines.append(await _open_engine(fleet, stack, f"m{number}"))
        await console.until(
            lambda view: sum(one.figures is not None for one in view.engines) == MANY, f"{MANY} report", LONGEST
        )
        for number in range(MANY_ORDERS):
            verb, waits, posted = VERBS[number % 2], CoreWaits(()), time.time()
            text = await console.order(verb)
            acted, _ = await asyncio.gather(_follow(engines, verb, posted), console.answered(text, MANY, LONGEST))
            _check_times(director, verb, acted, time.time() - posted, waits, (MANY_ACTED, MANY_ACTED))


async def _open_engine(fleet: Fleet, stack: AsyncExitStack, name: str) -> PairedServiceBusClient:
    os.environ["XDG_STATE_HOME"] = str(fleet.director.folder / name)
    options = {"connection_verify": str(fleet.director.sandbox.ca_file)}
    sides = (Namespace.from_connection_string(fleet.director.address(side), options=options) for side in SIDES)
    part = FleetPart(name=name, operators=fleet.operators)
    return await stack.enter_async_context(
        pair_namespaces(*sides, control=name, primary_name=PRIMARY, backlog_queue_count=1, fleet=part)
    )


async def _follow(engines: list[PairedServiceBusClient], verb: str, posted: float) -> list[float]:
    """Return the seconds until each engine's state was seen changed."""
    waiting, acted = set(range(len(engines))), []
    async with asyncio.timeout(LONGEST):
        while waiting:
            for number in list(waiting):
                states: Mapping[str, str] = {view.path: str(view.state) for view in engines[number].entity_views()}
                if (states.get(ENTITY) == "forced") == (verb == "force"):
                    waiting.discard(number)
                    acted.append(time.time() - posted)
            await asyncio.sleep(0.1)
    return sorted(acted)


# -- in a network namespace --------------------------------------------------------------------------------------------

FAR: Final = "far-away"
"""The host's name that the engine in a network namespace sees."""


def why_no_netns() -> str:
    """Return why there is no network namespace here, or ""."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if missing := [tool for tool in ("ip", "unshare", "hostname") if shutil.which(tool) is None]:
        return f"{missing[0]} is not installed"
    probe = f"stage-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"ip netns add failed: {made.stderr.strip()}"
    tried = ["ip", "netns", "exec", probe, "unshare", "--uts", "hostname", FAR]
    ran = subprocess.run(tried, capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True, check=False)
    return f"ip netns exec failed: {ran.stderr.strip()}" if ran.returncode else ""


async def netns(director: Director, _minutes: float, count: int) -> None:
    """Order over engines of which one is in a network namespace, with its interface down and up."""
    if reason := why_no_netns():
        director.figures["SKIPPED"] = reason
        return
    fleet, space = Fleet(director), f"stage-{os.getpid()}"
    hosts, console = await fleet.watched(max(1, min(count, 3) - 1))
    script = f'hostname {FAR} && exec "$@"'
    (far,) = await fleet.add(1, prefix=["ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", script, "sh"])
    async with _network_namespace(fleet, far, space):
        await fleet.start([far])
        view = await console.reporting(len(fleet.hosts))
        if (found := next(one.host for one in view.engines if one.engine == far.name)) != FAR:
            raise Broken(f"the console shows the host {found!r}, not {FAR!r}")
        _set_link(space, "down")
        await console.until(lambda _view: silent(console) == {far.name}, f"{far.name} is silent", SILENT)
        force = await console.order("force")
        await console.answered(force, len(hosts))
        fleet.check_states([far], "release")
        _set_link(space, "up")
        await director.reach(far, lambda: fleet.obeys(far, "force"), TWO_LOOKS + PATIENCE, "is forced")
        await console.answered(force, len(fleet.hosts))
        await far.kill()
    await fleet.finish()


def _set_link(space: str, to: str) -> None:
    subprocess.run(["ip", "-n", space, "link", "set", "lo", to], check=True)


@asynccontextmanager
async def _network_namespace(fleet: Fleet, far: Actor, space: str) -> AsyncIterator[None]:
    """Make a network namespace; forward the ports of the gates in it over sockets of this machine's files."""
    subprocess.run(["ip", "netns", "add", space], check=True)
    running = []
    try:
        _set_link(space, "up")
        for side in SIDES:
            file, port = fleet.director.folder / f"{side}.sock", far.gates[side].port
            server = await asyncio.start_unix_server(_forward_to(port), file)
            fleet.director.stack.callback(server.close)
            running.append(await _start_forwarder(space, port, file))
        yield
    finally:
        for one in running:
            if one.returncode is None:
                one.kill()
            await one.wait()
        subprocess.run(["ip", "netns", "delete", space], check=False)


def _forward_to(port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await join(reader, writer, *await asyncio.open_connection("127.0.0.1", port))

    return serve


async def _start_forwarder(space: str, port: int, file: Path) -> asyncio.subprocess.Process:
    running = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", space, sys.executable, "-m", "tests.stage.gate", str(port), str(file),
        stdin=DEVNULL, stdout=PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    if not await asyncio.wait_for(running.stdout.readline(), START):
        raise Broken("the forwarder in the network namespace did not start")
    return running
