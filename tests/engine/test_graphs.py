"""The curves over time on the control socket: all at once, then step by step, and to nobody who did not ask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paired_servicebus.core.model.pairing_events import Commanded, StateChanged, Warned
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.ui.shell.screenshot import picture

Engine = Callable[..., Any]


def pass_five_seconds(hosted: Any, *, accepted: int) -> None:
    """As if the sampler's time had come."""
    control, orders = hosted.host._control, hosted.pairing.entities["orders"]
    orders = replace(orders, accepted=orders.accepted + accepted)
    hosted.pairing.entities["orders"] = orders
    snapshot = hosted.host._snapshot(hosted.pairing)
    control.publish_snapshot(replace(snapshot, at=hosted.host._series._ring._before.at + 5.0))
    hosted.host._series.sample({})


async def graphs(client: ControlClient, number: int) -> list[Graphs]:
    found: list[Graphs] = []
    async with asyncio.timeout(60):
        async for update in client.updates():
            if isinstance(update, Graphs):
                found.append(update)
                if len(found) == number:
                    break
    return found


async def test_a_console_gets_all_curves_and_then_each_step(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        pass_five_seconds(hosted, accepted=50)
        pass_five_seconds(hosted, accepted=10)
        client = await ControlClient.connect(hosted.socket, graphs=True)
        pass_five_seconds(hosted, accepted=5)
        whole, step = await graphs(client, 2)
        await client.close()
    assert whole.whole
    assert whole.total.to_primary == (10.0, 2.0)
    assert not step.whole
    assert step.total.to_primary == (1.0,)


async def test_a_picture_of_a_running_engine_shows_its_curves(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        pass_five_seconds(hosted, accepted=50)
        text = await picture(hosted.socket, size=(80, 24), as_text=True)
    assert "to primary" in text
    assert "last 5 min" in text


async def test_changes_and_orders_are_marked_and_nothing_else(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        hosted.host.record(StateChanged(at=1.0, entity="orders", was="healthy", now="suspect", why=""))
        hosted.host.record(Commanded(at=2.0, command="force", target="orders", by="ada"))
        hosted.host.record(Warned(at=3.0, about="test", text="no mark"))
        pass_five_seconds(hosted, accepted=1)
        client = await ControlClient.connect(hosted.socket, graphs=True)
        (whole,) = await graphs(client, 1)
        await client.close()
    assert [(mark.what, mark.subject, mark.order) for mark in whole.marks] == [
        ("suspect", "orders", False),
        ("force", "orders", True),
    ]


async def test_a_client_that_does_not_ask_gets_none(engine: Engine, until: Any) -> None:
    async with engine() as hosted:
        await until(lambda: hosted.host._series._ring._before is not None)
        pass_five_seconds(hosted, accepted=50)
        reader, writer = await asyncio.open_unix_connection(hosted.socket)
        writer.write(b'{"t":"hello","version":2}\n')
        kinds = []
        async with asyncio.timeout(60):
            while kinds.count("snapshot") < 2:
                kinds.append(json.loads(await reader.readline())["t"])
                if kinds[-1] == "snapshot":
                    pass_five_seconds(hosted, accepted=5)
        writer.transport.abort()
    assert "graphs" not in kinds
