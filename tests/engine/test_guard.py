"""The guard: what it refuses by each way in, and that the audit line is on disk before the act."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paired_servicebus import cli
from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Event
from paired_servicebus.core.model.snapshot import DrainView, Meter, Snapshot, SyphonStatus
from paired_servicebus.core.operator.action_row import ARMED_SECONDS, Action, why_not
from paired_servicebus.core.operator.actions import ACTIONS, BY_ID
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.engine.commands.guard import CommandContext, Guard, StandingOrders
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Answer, Arm, Armed, CommandDone, Execute
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.ui.commands import action_table as screen
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.screens.pick_list import PickList, PickRows
from paired_servicebus.ui.shell.app import PairedApp
from paired_servicebus.ui.state.view import EngineLink
from tests.approval import Approve

from .conftest import Engine, Hosted

DANGEROUS = [action for action in ACTIONS if action.dangerous]
SPARE = "contoso/x-servicebus-transfer/7"
TARGETS = {
    Scope.ALL: (),
    Scope.ENTITY: ("orders",),
    Scope.QUEUE: ("0",),
    Scope.UNUSED: ("contoso/x-servicebus-transfer/7",),
    Scope.DEAD_LETTERS: ("0/118,121",),
}


def by_id(action: Action) -> str:
    return action.id


@dataclass
class FakeDrains:
    """Counts as an act of the pairing's."""

    acts: list[tuple[str, ...]]

    async def start(self, *, why: str) -> str:
        self.acts.append(("drain", why))
        return "process 7 drains"

    def end(self) -> str:
        self.acts.append(("end-drain",))
        return "process 7 was told to end"


class Audit:
    """Keeps what is recorded, and what was done, in order."""

    def __init__(self, pairing: Any, *, on_disk: bool = True) -> None:
        self.said: list[Event | str] = []
        self.on_disk = on_disk
        self.trouble = "" if on_disk else "No space left on device in /spool"
        pairing.before_act = lambda: self.said.append("acted")

    def record(self, event: Event) -> int:
        self.said.append(event)
        return len(self.said)

    async def sync(self) -> bool:
        self.said.append("synced")
        return self.on_disk

    @property
    def kinds(self) -> list[type[Event]]:
        return [type(event) for event in self.said if not isinstance(event, str)]


@dataclass
class Site:
    """A guard over a made-up pairing, and a clock that a test moves."""

    pairing: Any
    folder: Path
    on_disk: bool = True
    read_only: bool = False
    require_reason: bool = False
    own_process: bool = True
    now: float = 100.0
    ends: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.audit = Audit(self.pairing, on_disk=self.on_disk)
        self.drain = DrainView()
        drains = FakeDrains(self.pairing.acts)
        self.reach = CommandContext(self.pairing, self.ends.append, read_only=self.read_only, drains=drains)
        tokens = count(1)
        self.guard = Guard(
            self.reach,
            self.audit,
            StandingOrders(self.folder),
            look=self.look,
            require_reason=self.require_reason,
            clock=lambda: 5.0,
            monotonic=lambda: self.now,
            token=lambda: f"token {next(tokens)}",
        )

    def look(self) -> Snapshot:
        pairing = self.pairing
        return Snapshot(
            engine="orders@web-1", boot="b1", pid=1, seq=0, at=5.0, pairing="shop", environment="", primary="contoso",
            secondary="contoso-backup", read_only=self.reach.read_only, entities=pairing.entity_views(),
            queues=pairing.queue_views(), syphon=pairing.syphon_view(), billed=Meter(), times="",
            unused=pairing.unused_view(), own_process=self.own_process, drain=self.drain,
        )  # fmt: skip

    def arm(self, action_id: str, *targets: str, by: str = "ada", scope: str = "") -> Answer:
        return self.guard.arm(Arm(id=8, command=Command(action_id=action_id, scope=scope, targets=targets, by=by)))

    async def order(self, action_id: str, *targets: str, **more: Any) -> CommandDone:
        fired = {name: more.pop(name) for name in ("token", "typed") if name in more}
        command = Command(**{"action_id": action_id, "targets": targets, "by": "ada"} | more)
        return await self.guard.execute(Execute(id=9, command=command, **fired))

    async def fire(self, action_id: str, *targets: str, **more: Any) -> CommandDone:
        """Armed and fired as it should be."""
        armed = self.arm(action_id, *targets)
        assert isinstance(armed, Armed), armed
        return await self.order(action_id, *targets, **{"token": armed.token, "typed": armed.to_type} | more)

    def make_possible(self, action: Action) -> None:
        """The state in which the action makes sense."""
        if action.id == "release":
            self.pairing.force("orders", by="setup")
        if action.id == "resume-syphon":
            self.pairing.syphon = replace(self.pairing.syphon, status=SyphonStatus.PAUSED)
        if action.id == "drain":
            self.pairing.syphon = replace(self.pairing.syphon, status=SyphonStatus.PAUSED)
        if action.id == "end-drain":
            self.drain = DrainView(text="12 moved")
        self.reach.read_only = action.lifts_read_only
        self.pairing.acts.clear()
        self.audit.said.clear()

    @property
    def acted(self) -> int:
        return len(self.pairing.acts) + len(self.ends)


@pytest.fixture
def site(pairing: Any, tmp_path: Path) -> Site:
    return Site(pairing, tmp_path)


# -- the audit ---------------------------------------------------------------------------------------------------------


async def test_the_audit_line_is_on_disk_before_the_act(site: Site) -> None:
    done = await site.fire("force", "orders", why="drill")
    assert (done.id, done.ok) == (9, True)
    assert site.audit.said == [
        Commanded(at=5.0, command="force", target="orders", by="ada", why="drill"),
        "synced",
        "acted",
        CommandEnded(at=5.0, command_seq=1, outcome="orders is forced now"),
    ]


async def test_with_a_full_disk_it_acts_and_says_that_the_audit_is_not_written(
    pairing: Any, tmp_path: Path, approve: Approve
) -> None:
    site = Site(pairing, tmp_path, on_disk=False)
    done = await site.fire("force", "orders")
    assert done.ok
    assert "acted" in site.audit.said
    approve.part(done.text, "errors of the engine")


async def test_an_act_on_several_has_a_line_for_each_and_all_are_on_disk_before_the_first(
    site: Site, approve: Approve
) -> None:
    done = await site.fire("force", "orders", "payments")
    approve.part(done.text, "errors of the engine", has=("2 of", "2 done"))
    kinds = [said if isinstance(said, str) else type(said).__name__ for said in site.audit.said]
    assert kinds == ["Commanded", "Commanded", "synced", "acted", "CommandEnded", "acted", "CommandEnded"]
    ended = [event.command_seq for event in site.audit.said if isinstance(event, CommandEnded)]
    assert ended == [1, 2]


async def test_a_fault_of_ours_is_answered_and_ends_the_audit(site: Site, approve: Approve) -> None:
    def crash() -> None:
        raise KeyError("inner")

    site.pairing.before_act = crash
    done = await site.fire("force", "orders")
    assert not done.ok
    approve.part(done.text, "errors of the engine")
    assert isinstance(site.audit.said[-1], CommandEnded)


# -- what is not dangerous, and what is ----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS, ids=by_id)
async def test_every_action_of_the_table_does_something(site: Site, action: Action) -> None:
    site.make_possible(action)
    was = site.reach.read_only
    fire = site.fire if action.dangerous else site.order
    done = await fire(action.id, *TARGETS[action.scope])
    assert done.ok, done.text
    assert site.acted == 1 or site.reach.read_only is not was
    assert site.audit.kinds == [Commanded, CommandEnded]


@pytest.mark.parametrize(
    ("drain", "syphon", "depth", "reason"),
    [
        (None, SyphonStatus.PAUSED, 5, "this engine cannot start one; use: paired drain"),
        (DrainView(trouble="no Spark"), SyphonStatus.PAUSED, 5, "no Spark"),
        (DrainView(text="12 moved"), SyphonStatus.PAUSED, 5, "a drain runs already: 12 moved"),
        (DrainView(), SyphonStatus.RUNNING, 5, "the syphon moves the same messages: pause it first"),
        (DrainView(), SyphonStatus.OFF, 0, "nothing was parked at the last reading"),
        (DrainView(), SyphonStatus.OFF, None, ""),
        (DrainView(), SyphonStatus.PAUSED, 5, ""),
    ],
)
def test_a_drain_is_possible_with_spark_a_backlog_and_no_syphon(
    site: Site, drain: DrainView | None, syphon: SyphonStatus, depth: int | None, reason: str
) -> None:
    found = site.look()
    found = replace(
        found,
        drain=drain,
        syphon=replace(found.syphon, status=syphon),
        queues=tuple(replace(queue, depth=depth) for queue in found.queues),
    )
    assert why_not(BY_ID["drain"], found, Command(action_id="drain", scope=Scope.ALL)) == reason


@pytest.mark.parametrize("action", DANGEROUS, ids=by_id)
async def test_what_is_dangerous_is_refused_without_arming_and_the_attempt_is_audited(
    site: Site, action: Action
) -> None:
    site.make_possible(action)
    was = site.reach.read_only
    done = await site.order(action.id, *TARGETS[action.scope], typed="orders")
    assert not done.ok
    assert "dangerous and has to be armed first: it was not" in done.text
    assert site.acted == 0
    assert site.reach.read_only is was
    assert site.audit.kinds == [Commanded, CommandEnded]


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"targets": ("payments",)}, "another order was armed: force orders"),
        ({"action_id": "pin"}, "another order was armed: force orders"),
        ({"by": "bob"}, "another order was armed"),
        ({"typed": "order"}, "'order' was typed, and firing needs 'orders'"),
        ({"typed": ""}, "'' was typed"),
        ({"token": "token 2"}, "its 30 s are over or it was fired already"),
    ],
)
async def test_only_what_was_armed_can_be_fired(site: Site, changed: dict[str, Any], refusal: str) -> None:
    site.arm("force", "orders")
    more = {"token": "token 1", "typed": "orders"} | changed
    done = await site.order(more.pop("action_id", "force"), "orders", **more)
    assert not done.ok
    assert refusal in done.text
    assert site.acted == 0


async def test_an_arming_is_good_once(site: Site, approve: Approve) -> None:
    assert (await site.fire("pin", "orders")).ok
    site.pairing.release("orders", by="setup")
    done = await site.order("pin", "orders", token="token 1", typed="orders")
    approve.part(done.text, "errors of the engine")


async def test_an_arming_is_good_for_thirty_seconds_by_a_clock_that_does_not_jump(site: Site) -> None:
    site.arm("force", "orders")
    site.now += ARMED_SECONDS
    assert not (await site.order("force", "orders", token="token 1", typed="orders")).ok
    site.arm("force", "orders")
    site.now += ARMED_SECONDS - 0.1
    assert (await site.order("force", "orders", token="token 2", typed="orders")).ok


async def test_what_is_typed_wrong_does_not_use_up_the_arming(site: Site) -> None:
    site.arm("force", "orders")
    assert not (await site.order("force", "orders", token="token 1", typed="ordesr")).ok
    assert (await site.order("force", "orders", token="token 1", typed="orders")).ok


@pytest.mark.parametrize(
    ("action_id", "targets", "to_type"),
    [
        ("force", ("Orders",), "Orders"),
        ("force", ("orders", "payments"), "2"),
        ("redrive", ("1",), "1"),
        ("stop", (), "shop"),
        ("clean-up", (SPARE,), f"{SPARE} no other host uses it"),
    ],
)
def test_what_is_typed_is_the_name_the_number_or_the_pairing(
    site: Site, action_id: str, targets: tuple[str, ...], to_type: str
) -> None:
    armed = site.arm(action_id, *targets)
    assert isinstance(armed, Armed)
    assert (armed.to_type, armed.until) == (to_type, 5.0 + ARMED_SECONDS)


@pytest.mark.parametrize("typed", [SPARE, f"{SPARE} no other host", "no other host uses it"])
async def test_clean_up_without_the_word_about_other_hosts_deletes_nothing(site: Site, typed: str) -> None:
    """Section 12: what an engine cannot know, a person states. The raw socket has no other way in."""
    armed = site.arm("clean-up", SPARE)
    assert isinstance(armed, Armed)
    done = await site.order("clean-up", SPARE, token=armed.token, typed=typed)
    assert not done.ok
    assert f"firing needs '{SPARE} no other host uses it'" in done.text
    assert site.pairing.acts == []
    assert all("confirmed" not in one.why for one in site.audit.said if isinstance(one, Commanded))


async def test_what_a_person_confirmed_is_in_the_audit_line_before_the_act(site: Site, approve: Approve) -> None:
    assert (await site.fire("clean-up", SPARE, why="no longer needed")).ok
    (line,) = [one for one in site.audit.said if isinstance(one, Commanded)]
    approve.part(line.why, "errors of the engine")
    assert site.audit.said.index(line) < site.audit.said.index("synced")


async def test_armings_that_nobody_fires_are_forgotten(site: Site) -> None:
    for _ in range(200):
        site.arm("force", "orders")
    assert not (await site.order("force", "orders", token="token 1", typed="orders")).ok
    assert (await site.order("force", "orders", token="token 200", typed="orders")).ok


# -- read-only -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [action for action in ACTIONS if not action.lifts_read_only], ids=by_id)
async def test_read_only_refuses_every_action_and_audits_the_attempt(
    pairing: Any, tmp_path: Path, action: Action
) -> None:
    site = Site(pairing, tmp_path)
    site.make_possible(action)
    armed = site.arm(action.id, *TARGETS[action.scope])
    token = armed.token if isinstance(armed, Armed) else ""
    site.reach.read_only = True
    done = await site.order(action.id, *TARGETS[action.scope], token=token, typed="orders")
    assert not done.ok
    assert "read-only" in done.text
    assert site.acted == 0
    assert site.audit.kinds == [Commanded, CommandEnded]


@pytest.mark.parametrize("action", ACTIONS, ids=by_id)
async def test_a_console_opened_to_look_only_is_refused_everything(site: Site, action: Action) -> None:
    site.make_possible(action)
    command = Command(action_id=action.id, targets=TARGETS[action.scope], by="ada")
    armed = site.guard.arm(Arm(id=1, command=command), viewer=True)
    done = await site.guard.execute(Execute(id=2, command=command), viewer=True)
    assert isinstance(armed, CommandDone)
    assert not done.ok
    assert "opened to look only" in done.text
    assert site.acted == 0


async def test_read_only_is_switched_on_by_one_key_and_off_by_arm_then_fire(site: Site) -> None:
    assert (await site.order("read-only")).ok
    assert "read-only already" in (await site.order("read-write", typed="shop")).text or site.reach.read_only
    assert not (await site.order("pause-syphon")).ok
    assert (await site.fire("read-write")).ok
    assert (await site.order("pause-syphon")).ok


# -- what is wrong with an order, or not possible now -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("action_id", "targets", "more", "sentence"),
    [
        ("explode", ("orders",), {}, "there is no command 'explode'; there are force, release"),
        ("force", ("orders",), {"by": " "}, "needs the name of its operator"),
        ("force", (), {}, "force failover needs a target (entity)"),
        ("force", ("nothing",), {}, "this engine has no entity 'nothing'; it has orders, payments"),
        ("force", ("orders", "orders"), {}, "'orders' was named twice"),
        ("force", ("orders",), {"scope": "planet"}, "'planet' is no kind of target"),
        ("force", ("0",), {"scope": "queue"}, "force failover does not apply to queue; it applies to entity"),
        ("stop", ("orders",), {}, "end the engine takes no target, but 'orders' was named"),
        ("redrive", ("2",), {}, "this pairing uses no backlog queue '2'; it uses 0, 1"),
        ("clean-up", ("contoso/x-servicebus-transfer/0",), {}, "is not an unused backlog queue; there are contoso/"),
    ],
)
async def test_a_faulty_order_is_answered_and_leaves_no_trace(
    site: Site, action_id: str, targets: tuple[str, ...], more: dict[str, str], sentence: str
) -> None:
    done = await site.order(action_id, *targets, **more)
    assert not done.ok
    assert sentence in done.text
    assert site.audit.said == []


async def test_what_became_impossible_since_it_was_armed_is_not_done(site: Site, approve: Approve) -> None:
    site.pairing.force("orders", by="setup")
    site.arm("release", "orders")
    site.pairing.entities["orders"] = replace(site.pairing.entities["orders"], state=State.HEALTHY)
    site.pairing.acts.clear()
    done = await site.order("release", "orders", token="token 1", typed="orders")
    approve.part(done.text, "errors of the engine")
    assert site.acted == 0


UNARMED: dict[str, tuple[str, tuple[str, ...]]] = {
    "not dangerous": ("pause-syphon", ()),
    "not possible now": ("release", ("orders",)),
    "one target of several does not allow it": ("force", ("orders", "payments")),
    "an engine inside of an application cannot be ended": ("stop", ()),
}


@pytest.mark.parametrize("case", UNARMED)
def test_what_is_not_armed_says_why(pairing: Any, tmp_path: Path, approve: Approve, case: str) -> None:
    action_id, targets = UNARMED[case]
    site = Site(pairing, tmp_path, own_process=action_id != "stop")
    if len(targets) > 1:
        site.pairing.force("payments", by="setup")
    refused = site.arm(action_id, *targets)
    assert isinstance(refused, CommandDone)
    approve.part(refused.text, "errors of the engine")


async def test_a_reason_can_be_required(pairing: Any, tmp_path: Path, approve: Approve) -> None:
    site = Site(pairing, tmp_path, require_reason=True)
    done = await site.order("pause-syphon")
    approve.part(done.text, "errors of the engine", has=("require_reason",))
    assert (await site.order("pause-syphon", why="maintenance")).ok


@pytest.mark.parametrize("action_id", ["redrive", "move-stranded", "pause-syphon"])
async def test_what_needs_a_syphon_is_refused_by_an_engine_without_one(site: Site, action_id: str) -> None:
    site.pairing.syphon = replace(site.pairing.syphon, status=SyphonStatus.OFF)
    action = next(action for action in ACTIONS if action.id == action_id)
    answer = site.arm(action_id, *TARGETS[action.scope]) if action.dangerous else await site.order(action_id)
    assert "this engine runs no syphon" in answer.text  # type: ignore[union-attr]


@pytest.mark.parametrize(("scope", "target"), [(Scope.QUEUE, "1"), (Scope.DESTINATION, "orders")])
async def test_one_queue_or_one_destination_is_paused_and_resumed_by_itself(
    site: Site, scope: Scope, target: str
) -> None:
    assert (await site.order("pause-syphon", target, scope=scope)).ok
    assert "is paused already" in (await site.order("pause-syphon", target, scope=scope)).text
    assert site.pairing.syphon.status is SyphonStatus.IDLE
    assert (await site.order("resume-syphon", target, scope=scope)).ok
    assert "is not paused" in (await site.order("resume-syphon", target, scope=scope)).text


# -- Read-only has no leak: every dangerous action by every way in is refused by the engine. Generated from the table
# The screen's own courtesy is switched off here: what is tested is that the engine refuses, whatever a console thinks.

ORDERS = [action for action in ACTIONS if action.dangerous and not action.lifts_read_only]
WITH_KEY = [action for action in ORDERS if action.key]
LIFTING = {action.key for action in ACTIONS if action.lifts_read_only}
OFFERED = [action for action in ACTIONS if action.key and action.key not in LIFTING]
"""All that the console can order, but what lifts read-only."""


@pytest.fixture
async def hosted(engine: Engine, short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hosted]:
    """A read-only engine of the pairing "orders", found by its lock and by a pairing.toml."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(short)
    key = "SharedAccessKeyName=Root;SharedAccessKey=k;UseDevelopmentEmulator=true"
    tables = "".join(
        f'[{name}]\nconnection_string = "Endpoint=sb://127.0.0.1;{key}"\n' for name in ("primary", "secondary")
    )
    (short / "pairing.toml").write_text(f'[pairing]\nname = "orders"\n{tables}')
    places = engine_paths("orders")
    places.prepare()
    async with engine(read_only=True, folder=places.state) as standing:
        fd = acquire(places.lock, LockHolder(pid=os.getpid(), socket=str(standing.socket), log="-"))
        standing.pairing.force("orders", by="setup")
        standing.pairing.acts.clear()
        yield standing
        assert standing.pairing.acts == []
        os.close(fd)


@pytest.mark.parametrize("action", ORDERS, ids=by_id)
async def test_the_raw_socket_is_refused(hosted: Hosted, action: Action) -> None:
    reader, writer = await asyncio.open_unix_connection(hosted.socket, limit=protocol.MAX_ENGINE_LINE_BYTES)
    command = Command(action_id=action.id, targets=TARGETS[action.scope], by="mallory")
    lines = (
        protocol.Hello(),
        protocol.Arm(id=1, command=command),
        protocol.Execute(id=2, command=command),
        protocol.Execute(id=3, command=command, token="guessed", typed="orders"),
    )
    writer.write(b"".join(map(protocol.encode, lines)))
    answers: dict[int, Any] = {}
    async with asyncio.timeout(60):
        while len(answers) < 3:
            line = msgspec.json.decode(await reader.readline())
            assert line["t"] != "armed"
            if line["t"] == "done":
                answers[line["id"]] = line
    writer.close()
    assert all(not answer["ok"] and "read-only" in answer["text"] for answer in answers.values())


@pytest.mark.parametrize("action", ORDERS, ids=by_id)
async def test_a_client_is_refused_and_the_attempt_is_in_the_timeline(hosted: Hosted, action: Action) -> None:
    client = await hosted.connect()
    with pytest.raises(CommandRefusedError, match="read-only"):
        await client.execute(Command(action_id=action.id, targets=TARGETS[action.scope], by="ada"), typed="orders")
    audited: list[Any] = []
    async with asyncio.timeout(60):
        async for update in client.updates():
            audited += [update.event] if hasattr(update, "event") else []
            if audited and isinstance(audited[-1], CommandEnded):
                break
    await client.close()
    assert isinstance(audited[-2], Commanded)
    assert "refused: this engine is read-only" in audited[-1].outcome


@pytest.mark.parametrize("action", ORDERS, ids=by_id)
async def test_the_verb_is_refused(hosted: Hosted, action: Action) -> None:
    typed = (TARGETS[action.scope] or ("orders",))[0]
    yes = [] if action.verb == "down" else ["--yes", typed]
    status = await asyncio.to_thread(cli.main, [*action.verb.split(), *TARGETS[action.scope], *yes])
    assert status == 2
    assert not hosted.host._ending.is_set()


async def press(app: PairedApp, action: Action, pilot: Any) -> None:
    """The key."""
    await pilot.press(action.key)


async def open_list(app: PairedApp, key: str, pilot: Any) -> PickList:
    """Open the menu or the command bar."""
    await pilot.press(key)
    async with asyncio.timeout(60):
        while not isinstance(app.screen, PickList) or not app.screen.query(PickRows):
            await pilot.pause(0.02)
    return app.screen


async def menu(app: PairedApp, action: Action, pilot: Any) -> None:
    """The menu of acts, and the key in it."""
    await open_list(app, "x", pilot)
    await pilot.press(action.key)


async def click_in_menu(app: PairedApp, action: Action, pilot: Any) -> None:
    """A click on its row in the menu."""
    opened = await open_list(app, "x", pilot)
    place = next(place for place, one in enumerate(opened.listed) if one.key == action.key)
    await pilot.press(*["down"] * place)
    rows = opened.query_one(PickRows)
    await pilot.click(rows, offset=(2, place - rows.scroll_offset.y))


async def command(app: PairedApp, action: Action, pilot: Any) -> None:
    """The command bar, by the action's name."""
    opened = await open_list(app, "colon", pilot)
    place = next(place for place, one in enumerate(opened.listed) if one.key == action.key)
    await pilot.press(*["down"] * place, "enter")


async def choose(app: PairedApp, action: Action, pilot: Any) -> None:
    """What the palette and the mouse call."""
    app.do(screen.CONSOLE_BY_ID[action.id], aim_of(screen.CONSOLE_BY_ID[action.id]))


Way = Callable[[PairedApp, Action, Any], Awaitable[None]]


@pytest.mark.parametrize("viewer", [False, True], ids=["engine read-only", "console read-only"])
@pytest.mark.parametrize("courtesy", [True, False], ids=["greyed", "not greyed"])
@pytest.mark.parametrize(
    "way",
    [press, *(pytest.param(way, marks=pytest.mark.slow) for way in (menu, choose, click_in_menu, command))],
    ids=lambda way: way.__name__,
)
async def test_key_palette_and_mouse_are_refused(
    hosted: Hosted, way: Way, courtesy: bool, viewer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not courtesy:  # as if the screen knew nothing of read-only: the engine does
        monkeypatch.setattr(screen.ConsoleAction, "why_not", lambda self, view, aim=None: "")
        monkeypatch.setattr(screen.ConsoleAction, "aim", lambda self, view: aim_of(self))
    app = PairedApp(EngineFeed(hosted.socket, read_only=viewer), pairing="orders", by="ada", read_only=viewer)
    async with app.run_test(size=(140, 40)) as pilot:
        async with asyncio.timeout(60):
            while app.view.link is not EngineLink.LIVE:
                await pilot.pause(0.02)
        for action in OFFERED if courtesy else WITH_KEY:
            asked = app.view.answer
            await way(app, action, pilot)
            async with asyncio.timeout(60):
                while app.view.answer is asked or app.view.answer is None:
                    await pilot.pause(0.02)
            assert not app.view.answer.good, action.id
            assert len(app.screen_stack) == 1, "no question was asked"
    assert hosted.pairing.acts == []


def aim_of(action: screen.ConsoleAction) -> Command:
    scope = Scope.ALL if action.order is None else action.order.scope
    return Command(action_id=action.id, scope=scope, targets=TARGETS[scope])


async def test_a_viewers_conversation_orders_nothing_even_of_a_writable_engine(engine: Engine) -> None:
    async with engine() as standing:
        client = await ControlClient.connect(standing.socket, read_only=True)
        with pytest.raises(CommandRefusedError, match="opened to look only"):
            await client.execute(Command(action_id="pause-syphon", by="ada"))
        with pytest.raises(CommandRefusedError, match="opened to look only"):
            await client.arm(Command(action_id="force", targets=("orders",), by="ada"))
        await client.close()
        assert standing.pairing.acts == []
