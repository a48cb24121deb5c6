"""Which engines there are on this machine, and how each stands; whatever is wrong with one is a sentence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.engine.control import control_client as client_module
from paired_servicebus.engine.control import discovery, protocol
from paired_servicebus.engine.control.discovery import local_engines, query_engine, query_engines
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire

Engine = Callable[..., Any]


@pytest.fixture
def home(short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return short


def hold(name: str, socket: Path | None = None) -> tuple[EnginePaths, int]:
    """The lock of a pairing's engine, as this process's."""
    places = engine_paths(name)
    places.prepare()
    return places, acquire(places.lock, LockHolder(pid=4711, socket=str(socket or places.socket), log="/x.log"))


@pytest.mark.usefixtures("home")
def test_engines_that_run_or_were_killed_are_found_and_those_that_ended_are_not() -> None:
    _, running = hold("billing")
    _, killed = hold("audit")
    os.close(killed)
    _, ended = hold("orders")
    os.ftruncate(ended, 0)  # as a clean end does
    os.close(ended)
    assert [places.name for places in local_engines()] == ["audit", "billing"]
    os.close(running)


@pytest.mark.usefixtures("home")
async def test_one_that_was_killed_is_told_with_its_log() -> None:
    places, killed = hold("audit")
    os.close(killed)
    standing = await query_engine(places)
    assert standing.snapshot is None
    assert standing.trouble == (
        "the engine (pid 4711) did not end cleanly; its log is /x.log: start another with paired up"
    )


@pytest.mark.usefixtures("home")
async def test_one_that_nobody_started_is_told(short: Path) -> None:
    assert "no engine runs here" in (await query_engine(engine_paths("orders"))).trouble


@pytest.mark.usefixtures("home")
async def test_several_are_looked_at_and_one_that_fails_hides_no_other(engine: Engine) -> None:
    async with engine() as hosted:
        _, first = hold("orders", hosted.socket)
        _, second = hold("payments")
        good, bad = await query_engines(local_engines())
        os.close(first)
        os.close(second)
    assert good.snapshot is not None
    assert good.snapshot.pairing == "orders"
    assert (bad.snapshot, "no engine answers at" in bad.trouble) == (None, True)


@pytest.mark.usefixtures("home")
async def test_an_engine_of_another_version_is_said_and_what_to_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine() as hosted:
        places, held = hold("orders", hosted.socket)
        monkeypatch.setattr(protocol, "VERSION", 99)
        hello = protocol.Hello(version=98)
        spoken = SimpleNamespace(**vars(protocol) | {"Hello": lambda **_: hello})
        monkeypatch.setattr(client_module, "protocol", spoken)
        standing = await query_engine(places)
        os.close(held)
    assert "the console has format 98, and this release has 99" in standing.trouble


@pytest.mark.usefixtures("home")
async def test_a_socket_that_somebody_else_owns_is_said(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine() as hosted:
        places, held = hold("orders", hosted.socket)
        monkeypatch.setattr(client_module, "is_ours", lambda _: False)
        standing = await query_engine(places)
        os.close(held)
    assert "runs as another user: only its owner may control it" in standing.trouble


@pytest.mark.usefixtures("home")
async def test_an_engine_that_says_nothing_is_given_up(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "QUERY_TIMEOUT", 0.05)
    server = await asyncio.start_unix_server(lambda *_: asyncio.sleep(10), str(short / "mute"))
    places, held = hold("orders", short / "mute")
    standing = await query_engine(places)
    os.close(held)
    server.close()
    assert "did not report its status within 0.05 s" in standing.trouble
