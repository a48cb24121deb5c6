"""The runbooks, as their page has them: its commands are run, its output is expected, its acts are done.

Two applications send all the time, with engines of their own; the engine of the page is started and ended by the
page's own commands. Each runbook has a scene before its first part, and may have an event before a later one.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tomllib
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.ports import free_port
from tests.stage.course import PRIMARY, SECONDARY, Strike
from tests.stage.director import DRAINED, Director
from tests.stage.ledger import Broken, now
from tests.stage.processes import ROOT, STOP, Actor, ended
from tests.stage.runbook_page import PAGE, Act, Command, Runbook, Setting, Step, merge, read_page, write_toml

from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.identity import DISTRIBUTION
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.engine.service.launcher import wait_until_gone
from servicebus_sandbox import NamespaceSpec, QueueSettings, QueueSpec
from servicebus_sandbox.faults import FaultKind

OTHER: Final = "other"
"""The namespace that takes a secondary's place."""
ENTITIES: Final = ("orders", "payments")
APPLICATIONS: Final = ("shop-1", "shop-2")
SPECS: Final = (
    NamespaceSpec(PRIMARY, queues=(QueueSpec("orders"), QueueSpec("payments", QueueSettings(requires_session=True)))),
    NamespaceSpec(SECONDARY),
    NamespaceSpec(OTHER),
)
SEND_TIMEOUT: Final = 5.0
POLICY: Final = {
    "backlog_queue_count": 2, "failover_interval": "1s", "ping_primary_interval": "1s", "ping_timeout": "2s",
    "send_timeout": f"{SEND_TIMEOUT:g}s", "quiet_period": "1s",
}  # fmt: skip
PARKED: Final = 40
"""Messages that are parked before a runbook goes on."""
SHOWN: Final = 150.0
"""Seconds in which a command shows what its page says; readiness is checked once a minute."""
AGAIN: Final = 0.5
COMMAND: Final = 200.0
NEWER: Final = "99.0"
DISK: Final = "3m"
_READS: Final = re.compile(r"paired (--version|status|check|find|config check|gateway|report|cleanup)\b|cat |df |du ")
"""Commands that are run again until they show what the page says. A clean-up is refused until its queue is quiet."""


@dataclass
class Scene:
    """One play: the page's shell in a folder with the pairing's file, and the applications."""

    director: Director
    runbook: Runbook
    preamble: str
    home: Path
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    version: Path | None = None
    """The folder of another version, first on the path of Python."""
    is_paired: bool = True
    disk: Path | None = None
    _episode: int | None = None
    _applications: list[Actor] = field(default_factory=list)

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        return self.director.folder / "orders.toml"

    def read(self) -> dict[str, Any]:
        return tomllib.loads(self.file.read_text())

    def prepare(self) -> None:
        """Write the pairing's file with its secrets, and the command `paired`."""
        folder, sandbox = self.director.folder, self.director.sandbox
        (folder / "secrets").mkdir()
        for side in (PRIMARY, SECONDARY, OTHER):
            self.write_secret(side, sandbox[side].connection_string)
        ca_file = str(shutil.copy(sandbox.ca_file, folder / "ca.pem"))
        sides = {
            side: {"connection_string": {"file": f"secrets/{side}"}, "ca_file": ca_file}
            for side in (PRIMARY, SECONDARY)
        }
        sides[PRIMARY] |= {"name": "contoso"}
        pairing = {"name": "orders", "entities": list(ENTITIES), **POLICY}
        self.file.write_text(write_toml({"pairing": pairing, **sides, **self.more}))
        program = folder / "bin" / "paired"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m paired_servicebus "$@"\n')
        program.chmod(0o755)

    def write_secret(self, name: str, text: str) -> None:
        path = self.director.folder / "secrets" / name
        path.touch(mode=0o600)
        path.write_text(text + "\n")

    # -- applications --------------------------------------------------------------------------------------------------

    async def start_applications(self) -> None:
        for name in APPLICATIONS:
            self._applications.append(
                self.director.application(
                    name, entities=ENTITIES, sizes=(1,), every=0.15, later=0.0, each=self._task, home=self.home
                )
            )
        await self.director.start(*self._applications)
        await self.until_sent()

    def _task(self) -> dict[str, Any]:
        """Return the fields of an application's task by the pairing's file as it is now."""
        document = self.read()
        strings = {
            side: (self.director.folder / document[side]["connection_string"]["file"]).read_text().strip()
            for side in (PRIMARY, SECONDARY)
        }
        if not self.is_paired:
            return {PRIMARY: strings[PRIMARY], SECONDARY: ""}
        given = {key: document["pairing"][key] for key in POLICY}
        times = {key: float(text.rstrip("s")) for key, text in given.items() if isinstance(text, str)}
        options = {**given, **times, "primary_name": document[PRIMARY]["name"]}
        return strings | {"options": options}

    async def restart_applications(self) -> None:
        """End each in order and start it again, one after the other."""
        for actor in self._applications:
            await self._stop(actor)
            if text := await actor.end():
                self.director.found(text)
            await self.director.start(actor)
        await self.until_sent()

    async def _stop(self, actor: Actor) -> None:
        actor.tell("stop")
        await self.director.reach(
            actor, lambda: "stopped" in self.director.ledger.marks[actor.life], 2 * COMMAND, "stops"
        )

    async def until_sent(self) -> None:
        """Wait until each present life of the applications sends to each entity from now on, whatever the way."""
        wanted = {f"{actor.life}.{entity}" for actor in self._applications for entity in ENTITIES}
        began = now()

        def sent() -> bool:
            accepted = self.director.ledger.accepted.items()
            return wanted <= {name.rsplit(".", 1)[0] for name, at in accepted if at > began}

        await self.director.expect(sent, "every application sends")

    def tell(self, words: str) -> None:
        for actor in self._applications:
            actor.tell(words)

    # -- the namespaces ------------------------------------------------------------------------------------------------

    async def lose(self, side: str, kind: FaultKind = FaultKind.REFUSED, **terms: Any) -> None:
        self._episode = self._episode or self.director.begin_episode(f"{self.runbook.title}: {kind}", opens=True)
        self.director.strike(Strike(namespace=side, fault=kind, **terms))

    async def park(self) -> None:
        """Lose the primary until messages are parked."""
        await self.lose(PRIMARY)
        await self.director.expect(lambda: self.director.parked >= PARKED, "messages are parked")

    def regain(self, side: str = PRIMARY) -> None:
        """End the faults of a namespace."""
        faults = self.director.sandbox[side].node.faults
        for fault in faults.active():
            faults.remove(fault.id)

    async def heal(self, side: str = PRIMARY) -> None:
        """Regain a namespace, and wait until no application diverts by itself."""
        self.regain(side)
        await self.director.expect(self._is_well, "no entity is failed over")
        if self._episode is not None and not any(one.node.faults.active() for one in self.director.sandbox.namespaces):
            self.director.end_episode(self._episode)
            self._episode = None

    def _is_well(self) -> bool:
        states = [self.director.ledger.state(actor.life, entity) for actor in self._applications for entity in ENTITIES]
        return not {"suspect", "failed over"} & set(states)

    def regenerate(self, **keys: str) -> None:
        """Give the primary's root rule other keys, by their fields."""
        space = self.director.sandbox[PRIMARY]
        authorization = space.node.authorization
        authorization.rules = tuple(
            replace(rule, **keys) if rule.name == space.key_name else rule for rule in authorization.rules
        )

    async def reconnect(self) -> None:
        """Reset every connection to the primary."""
        await self.lose(PRIMARY, FaultKind.RESET)
        self.regain()

    # -- the page ------------------------------------------------------------------------------------------------------

    async def perform(self, step: Step) -> None:
        """Perform one step of the page. Raises Broken."""
        match step:
            case Command():
                await self._run_until_shown(step)
            case Setting():
                self.file.write_text(write_toml(merge(self.read(), step)))
            case Act(sentence):
                self.director.say(f"   {sentence}")
                await ACTS[sentence](self)

    async def _run_until_shown(self, command: Command) -> None:
        self.director.say(f"   $ {command.line}")
        end, is_read = now() + SHOWN, bool(_READS.match(command.line))
        while True:
            status, output = await self.run(command.line)
            is_bad = status == 2 or (status != 0 and not is_read)
            missing = command.missing(output)
            if not is_bad and not missing:
                return
            if not is_read or now() > end:
                wrong = f"lacks {missing!r}" if missing else f"ended with {status}"
                raise Broken(f"{self.runbook.title}: `{command.line}` {wrong}: {output}")
            await asyncio.sleep(AGAIN)

    async def run(self, line: str) -> tuple[int, str]:
        """Run a line of the page in its shell; return exit status and output."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        path = f"{self.director.folder / 'bin'}:{kept['PATH']}"
        python = os.pathsep.join(filter(None, (str(self.version or ""), kept.get("PYTHONPATH", ""))))
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", f"set -euo pipefail\n{self.preamble}\n{line}",
            cwd=self.director.folder, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
            env=kept | {"XDG_STATE_HOME": str(self.home), "PATH": path, "PYTHONPATH": python},
        )  # fmt: skip
        return await ended(process, COMMAND)

    # -- engines of `paired up` ----------------------------------------------------------------------------------------

    def engines(self) -> list[EnginePaths]:
        """Return the running engines that are no application's."""
        locks = sorted(self.director.folder.glob("**/paired/*/lock"))
        places = [EnginePaths(state=lock.parent, socket=lock.parent / "control.sock") for lock in locks]
        return [one for one in places if one.name not in APPLICATIONS and running(one.lock) is not None]

    async def kill_engines(self) -> None:
        """Leave no engine behind, whatever happened."""
        for places in self.engines():
            holder = running(places.lock)
            if holder is not None:
                os.kill(holder.pid, signal.SIGKILL)
                await asyncio.to_thread(wait_until_gone, places, STOP)

    async def end(self) -> None:
        """Send nothing new; all drains; all processes end in order."""
        for actor in self._applications:
            await self._stop(actor)
        await self.director.expect(lambda: not self.director.parked, "everything has drained", DRAINED)
        await self.director.collect(*ENTITIES)
        await self.director.drain()
        for places in self.engines():
            status, output = await self.run(f"paired down --engine {places.name}")
            if status:
                self.director.found(f"the engine {places.name} does not end: {output}")
        await self.director.end()


# -- acts: what the page has a person do ---------------------------------------------------------------------------


async def _install(scene: Scene) -> None:
    """Make another version: this one's code, with another number."""
    version = scene.director.folder / "versions" / NEWER
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    await asyncio.to_thread(shutil.copytree, ROOT / "console", version, ignore=ignored)
    about = version / f"{DISTRIBUTION.replace('-', '_')}-{NEWER}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {NEWER}\n")


async def _switch(scene: Scene) -> None:
    scene.version = scene.director.folder / "versions" / NEWER
    await _check_version(scene, is_new=True)


async def _switch_back(scene: Scene) -> None:
    scene.version = None
    await _check_version(scene, is_new=False)


async def _check_version(scene: Scene, *, is_new: bool) -> None:
    _, output = await scene.run("paired --version")
    if (output.strip() == NEWER) is not is_new:
        raise Broken(f"the command is not of that version: {output}")


async def _restart_with_version(scene: Scene) -> None:
    before = os.environ.get("PYTHONPATH", "")
    if scene.version is not None:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(scene.version), before)))
    try:
        await scene.restart_applications()
    finally:
        os.environ["PYTHONPATH"] = before


async def _restart_without_pairing(scene: Scene) -> None:
    scene.is_paired = False
    await scene.restart_applications()


async def _restart_with_pairing(scene: Scene) -> None:
    scene.is_paired = True
    await scene.restart_applications()


async def _wait_for_locks(scene: Scene) -> None:
    """Wait until nothing is locked in the queues that no engine uses."""
    director, used = scene.director, scene.read()["pairing"]["backlog_queue_count"]
    stranded = [place for place in director.backlog() if int(place[1].rpartition("/")[2]) >= used]

    def is_free() -> bool:
        return not any(
            one.lock_token and one.locked_until > now() for place in stranded for one in director.messages(*place)
        )

    await director.expect(is_free, "no message is locked")


async def _delete_last_queue(scene: Scene) -> None:
    async with scene.director.clients(SECONDARY) as (_, admin):
        left = [queue.name async for queue in admin.list_queues()]
        if left != ["contoso/x-servicebus-transfer/0"]:
            raise Broken(f"the queues that are left: {left}")
        await admin.delete_queue(left[0])


async def _copy_to_another_host(scene: Scene) -> None:
    scene.home = scene.director.folder / "another-host"


async def _renew(scene: Scene) -> None:
    scene.tell(f"renew {PRIMARY} {_secret(scene, 'primary.second')}")


async def _renew_first(scene: Scene) -> None:
    scene.tell(f"renew {PRIMARY} {_secret(scene, 'primary.first')}")


def _secret(scene: Scene, name: str) -> str:
    return (scene.director.folder / "secrets" / name).read_text().strip()


async def _regenerate(scene: Scene) -> None:
    scene.regenerate(primary_key=_secret(scene, "key.first"))


async def _free_the_disk(scene: Scene) -> None:
    assert scene.disk is not None
    (scene.disk / "ballast").unlink()


ACTS: Final[dict[str, Callable[[Scene], Awaitable[None]]]] = {
    "Install the new version beside the old one.": _install,
    "Switch the command to the new version.": _switch,
    "Switch the command back to the old version.": _switch_back,
    "Restart the applications, one after the other.": _restart_with_version,
    "Restart the applications with the count of the file.": Scene.restart_applications,
    "Restart the applications with the secondary of the file.": Scene.restart_applications,
    "Restart the applications with the name of the file.": Scene.restart_applications,
    "Restart the applications without the pairing.": _restart_without_pairing,
    "Restart the applications with the pairing.": _restart_with_pairing,
    "Wait until the primary accepts sends.": Scene.heal,
    "Wait a minute.": _wait_for_locks,
    "Delete the last backlog queue in the secondary.": _delete_last_queue,
    "Copy orders.toml, its secrets and orders-state.tar.gz to the other host.": _copy_to_another_host,
    "Call renew in each application.": _renew,
    "Call renew in each application with the first key.": _renew_first,
    "Regenerate the first key.": _regenerate,
    "Free the disk.": _free_the_disk,
}
"""By the page's sentence."""


# -- scenes: what has happened before the page is opened -----------------------------------------------------------


async def _calm(_scene: Scene) -> None:
    """All is well."""


async def _park_in_each(scene: Scene) -> None:
    """Park messages in each backlog queue: a sender keeps the one that it picked while that accepts."""
    await scene.park()
    for side, path in scene.director.backlog():
        others = tuple(other for _, other in scene.director.backlog() if other != path)
        await scene.lose(side, FaultKind.DISABLED, entities=others)
        await scene.director.expect(lambda place=(side, path): scene.director.messages(*place), f"{path} is used")  # type: ignore[misc]
        scene.regain(side)


async def _lose_secondary(scene: Scene) -> None:
    """Messages are parked, and then their namespace is silent; the primary is back."""
    await scene.park()
    await scene.lose(SECONDARY, FaultKind.BLACK_HOLED)
    await scene.heal()


async def _force(scene: Scene) -> None:
    status, output = await scene.run("paired failover payments --yes payments --why 'a test' --config orders.toml")
    if status:
        raise Broken(f"payments is not forced: {output}")


async def _regenerate_early(scene: Scene) -> None:
    """Somebody has regenerated the first key, and every connection is made anew."""
    space = scene.director.sandbox[PRIMARY]
    rule = next(one for one in space.node.authorization.rules if one.name == space.key_name)
    first = secrets.token_hex(16)
    scene.write_secret("key.first", first)
    scene.write_secret("primary.first", space.connection_string_for(space.key_name, first))
    scene.write_secret("primary.second", space.connection_string_for(space.key_name, rule.secondary_key))
    scene.regenerate(primary_key=secrets.token_hex(16))
    await scene.reconnect()


async def _end_second_key(scene: Scene) -> None:
    """Regenerate the second key too, and connect anew: all use the first one, or none sends."""
    scene.regenerate(secondary_key=secrets.token_hex(16))
    await scene.reconnect()
    await scene.until_sent()


async def _brown_out(scene: Scene) -> None:
    await scene.lose(PRIMARY, FaultKind.LATENCY, operations=("send",), delay_s=SEND_TIMEOUT / 3)


async def _mount(scene: Scene) -> None:
    """Give the engine's state a disk of its own. Raises Broken: that needs root."""
    scene.disk = scene.home / "paired" / "orders"
    scene.disk.mkdir(parents=True, mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "none", str(scene.disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"a disk of its own needs root: {done.stderr}")
    scene.director.stack.callback(subprocess.run, ["umount", "--lazy", str(scene.disk)], check=False)


async def _fill(scene: Scene) -> None:
    """Fill the disk while messages are parked and moved: each needs a receipt."""
    assert scene.disk is not None
    scene.director.foreseen = "the journal is not written: No space left on device"
    with (scene.disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    await scene.park()
    await scene.heal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """How a runbook is played. name: of its play.

    before_start: before the engine starts. scene: before its first part. events: before other parts, by their names.
    last: after the last part. has_gateway: whether the pairing's file has that table.
    """

    name: str
    scene: Callable[[Scene], Awaitable[None]]
    before_start: Callable[[Scene], Awaitable[None]] = _calm
    events: Mapping[str, Callable[[Scene], Awaitable[None]]] = field(default_factory=dict)
    last: Callable[[Scene], Awaitable[None]] = _calm
    has_gateway: bool = False


RUNBOOKS: Final[dict[str, Performance]] = {
    "Upgrade and rollback": Performance(
        name="upgrade", scene=_calm, events={"Do": Scene.park, "Done when": Scene.heal, "Go back": Scene.park}
    ),
    "Change backlog_queue_count": Performance(name="count", scene=_calm, events={"Go back": _park_in_each}),
    "Another secondary with messages parked": Performance(
        name="another-secondary", scene=Scene.park, events={"Go back": Scene.park}
    ),
    "Loss of the secondary": Performance(
        name="lost-secondary",
        scene=_lose_secondary,
        events={"Go back": lambda scene: scene.heal(SECONDARY)},
    ),
    "Rename the primary": Performance(name="rename", scene=Scene.park, events={"Go back": Scene.park}),
    "Decommission a pairing": Performance(name="decommission", scene=Scene.park),
    "Move an engine to another host": Performance(name="state-folder", scene=_force, has_gateway=True),
    "Rotate keys": Performance(name="keys", scene=_regenerate_early, last=_end_second_key),
    "A brownout": Performance(name="brownout", scene=_brown_out),
    "A full disk": Performance(name="full-disk", scene=_fill, before_start=_mount),
}
"""By the title in the page."""


def play_of(title: str) -> Callable[[Director, float, int], Awaitable[None]]:
    """Return the play of a runbook."""

    async def perform(director: Director, _minutes: float, _engines: int) -> None:
        page, performance = read_page(PAGE.read_text()), RUNBOOKS[title]
        runbook = page.runbooks[title]
        more = {"gateway": {"port": free_port()}} if performance.has_gateway else {}
        scene = Scene(director, runbook, page.preamble, director.folder, more)
        scene.prepare()
        await performance.before_start(scene)
        director.stack.push_async_callback(scene.kill_engines)  # while the disk with their locks is still there
        await scene.perform(Command("paired up --headless --config orders.toml", ("the engine of orders serves",)))
        await scene.start_applications()
        await performance.scene(scene)
        for part, steps in runbook.parts.items():
            director.say(f"  {part}")
            await performance.events.get(part, _calm)(scene)
            for step in steps:
                await scene.perform(step)
        await performance.last(scene)
        await scene.heal()
        await scene.end()

    return perform
