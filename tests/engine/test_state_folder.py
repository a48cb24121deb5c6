"""A state folder of another user, of another format, or half written: an alarm or a sentence, and the engine serves.

What is damaged is what an engine really left: a new file is tried at once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.config import load_config
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.control.discovery import first_snapshot
from paired_servicebus.engine.gateway.gateway_keys import connection_string, read_keys
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import StateFolder
from paired_servicebus.engine.service import main as engine
from paired_servicebus.engine.service.launcher import Outcome, Ready
from servicebus_sandbox import Sandbox
from tests.ports import free_port

from .conftest import WAIT

Start = Callable[[], Any]


@pytest.fixture
async def place(short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A pairing.toml with a gateway, for the namespaces of a sandbox."""
    async with Sandbox.start() as sandbox:
        monkeypatch.setenv("XDG_STATE_HOME", str(short / "state"))
        (short / "run").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "run"))
        text = (
            f'[pairing]\nname = "orders"\nentities = ["orders"]\nbacklog_queue_count = 1\n'
            f"[gateway]\nport = {free_port()}\n"
        )
        for side in ("primary", "secondary"):
            monkeypatch.setenv(side.upper(), sandbox[side].connection_string)
            text += f'[{side}]\nca_file = "{sandbox.ca_file}"\nconnection_string = {{ env = "{side.upper()}" }}\n'
        (short / "pairing.toml").write_text(text)
        yield short


@asynccontextmanager
async def serving(place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EnginePaths]:
    """An engine in this process, as `paired up` runs it, until the block ends; it has to serve."""
    acts: list[Callable[[], object]] = []
    monkeypatch.setattr(engine, "_on_end", acts.append)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: None)
    config = load_config(place / "pairing.toml")
    places, said = engine_paths(config.name), list[Outcome]()
    folder = StateFolder(places, log="log")
    try:
        folder.open()
    except OSError as error:
        logging.getLogger(__name__).info("as main does: %s", error)
    starting = engine._Starting(said.append)
    task = asyncio.create_task(
        engine._serve(config, places, folder, starting, "log", read_only=False, group=None)  # as `paired up` does
    )
    async with asyncio.timeout(WAIT):
        while not task.done() and not any(isinstance(one, Ready) for one in said):
            await asyncio.sleep(0.01)
    if task.done():
        task.result()
    yield places
    acts[-1]()
    await asyncio.wait_for(task, WAIT)
    folder.close()


async def send(place: Path, places: EnginePaths) -> None:
    """Have the gateway accept a message."""
    config = load_config(place / "pairing.toml")
    assert config.gateway is not None
    string = connection_string(read_keys(places.gateway_keys).keys[0], config.gateway.port)
    async with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) + b"\n" + b"\xff" * 300)


def another_format(path: Path) -> None:
    path.write_bytes(b'{"format": 999, "version": 999}\n')


def folder_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def file_in_its_place(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    if path.parent.is_dir():
        path.write_bytes(b"a file in its place")


def of_another_user(path: Path) -> None:
    if path.exists():
        os.chown(path, 54321, 54321)


OF_FILES: Final = (empty, half, garbage, another_format, folder_in_its_place)
OF_FOLDERS: Final = (file_in_its_place,)
NAMES: Final = ("lock", "named", "gateway.keys", "gateway.entities", "spool/standing-orders.json", "drill.json")


async def left(place: Path, monkeypatch: pytest.MonkeyPatch) -> EnginePaths:
    """The state folder of an engine that was killed."""
    async with serving(place, monkeypatch) as places:
        await send(place, places)
    (places.spool / ".open" / "orders@host-0000000000001-000000000001.jsonl").write_bytes(b'{"torn')
    return places


def files_of(places: EnginePaths) -> list[Path]:
    return sorted(path for path in places.state.rglob("*") if path.is_file())


def folders_of(places: EnginePaths) -> list[Path]:
    return sorted(path for path in places.state.rglob("*") if path.is_dir())


async def check(place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> tuple[str, ...]:
    """Start on what is damaged now: it serves, no traceback. Return its alarms."""
    caplog.clear()
    async with serving(place, monkeypatch) as places:
        found = await first_snapshot(places.socket)
        said = tuple(one.text for one in alarms(condition_of(found)))
        if not any("the gateway's keys" in alarm for alarm in said):
            await send(place, places)
    assert [one.getMessage() for one in caplog.records if one.exc_info and one.name.startswith("paired")] == []
    return said


@pytest.mark.parametrize("damage", OF_FILES)
async def test_every_file_damaged_at_once(
    damage: Callable[[Path], None], place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a valid configuration an engine of `paired up` starts and serves, whatever is away."""
    places = await left(place, monkeypatch)
    names = {str(path.relative_to(places.state)) for path in files_of(places)}
    assert {"lock", "named", "gateway.keys", "gateway.entities"} <= names
    for path in files_of(places):
        damage(path)
    said = await check(place, monkeypatch, caplog)
    assert any("the gateway's keys" in alarm for alarm in said)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [*OF_FILES, *OF_FOLDERS])
async def test_each_one_damaged(
    damage: Callable[[Path], None], place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = await left(place, monkeypatch)
    whole = place / "whole"
    shutil.copytree(places.state, whole)
    for path in files_of(places) if damage in OF_FILES else folders_of(places):
        shutil.rmtree(places.state)
        shutil.copytree(whole, places.state)
        damage(path)
        await check(place, monkeypatch, caplog)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
async def test_a_folder_of_another_user_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = await left(place, monkeypatch)
    before = {path: path.read_bytes() for path in files_of(places)}
    os.chown(places.state, 54321, 54321)
    said = await check(place, monkeypatch, caplog)
    assert any("the journal is not written (open to other users: chmod 700 it, or remove it" in one for one in said)
    assert {path: path.read_bytes() for path in files_of(places)} == before
