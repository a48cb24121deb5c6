"""`python -m console.demo.portrait FILE`: plays an outage and draws the dashboard in the middle of it, for the README.

The picture is of a real run: real namespaces, real sends, the moment after the last entity failed over.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from console.core.entity import State
from console.core.errors import EngineNotRunningError, PairedError
from console.core.events import Record
from console.core.snapshot import Snapshot
from console.demo.command import demo_folder, worker_process
from console.demo.lines import Order
from console.engine.client import ControlClient
from console.ui.screenshot import draw_svg

SIZE: Final = (100, 32)
DURATION: Final = 40.0
START: Final = 20.0
PATIENCE: Final = 40.0
PARKED: Final = 60
"""Messages in the backlog that make a picture worth taking."""


def main() -> None:
    """Draw the picture."""
    target = Path(sys.argv[1])
    with demo_folder() as folder:
        socket = folder / "engine.sock"
        order = Order(scenario="datacenter-outage", duration=DURATION, seed=7, folder=str(folder), socket=str(socket))
        with worker_process(order, folder):
            target.write_text(asyncio.run(_picture(socket)))


async def _picture(socket: Path) -> str:
    client = await _connected(socket)
    records: list[Record] = []
    try:
        async with asyncio.timeout(PATIENCE):
            async for update in client.updates():
                if isinstance(update, Record):
                    records.append(update)
                elif isinstance(update, Snapshot) and _worth_it(update):
                    return await draw_svg(update, records, size=SIZE, theme="dark")
    finally:
        await client.close()
    raise PairedError("the demo ended before there was anything to see")


def _worth_it(snapshot: Snapshot) -> bool:
    failed_over = all(entity.state is State.FAILED_OVER for entity in snapshot.entities)
    return failed_over and sum(queue.depth or 0 for queue in snapshot.queues) >= PARKED


async def _connected(socket: Path) -> ControlClient:
    async with asyncio.timeout(START):
        while True:
            try:
                return await ControlClient.connect(socket)
            except EngineNotRunningError:
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
