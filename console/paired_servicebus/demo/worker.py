"""The demo's engine: a process that hosts the application, the pairing, its journal and its control socket.

Started with one JSON line on standard input, it ends with that input, so that no process outlives a demo. It writes
JSON lines to standard output, events first and the result last. Its log is standard error.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.demo.fleet_player import fleet_stage, play_fleet
from paired_servicebus.demo.player import Player, leave_unused_queues, pair_on
from paired_servicebus.demo.result import DemoResult
from paired_servicebus.demo.scenarios import ENTITIES, FLEET, Scenario, scenario_named
from paired_servicebus.demo.worker_protocol import CaptionShown, PlayDone, PlayFailed, PlayRequest, WorkerLine
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.pipeline.spark_processes import PipelineOrder, PipelineProcess, start_pipeline
from paired_servicebus.sandbox_process import SandboxProcess, sandbox_process

PAIRING: Final = "demo"
STOP_TIMEOUT: Final = 10.0
TABLES_STOP: Final = 5.0
INPUT_END: Final = 0.2
"""Seconds between the ends of a killed reader's pipes, at most."""
TABLES_AFTER: Final = 5.0
"""Seconds after the dashboard is up that the pipeline starts: starting a JVM takes a while of the whole machine."""

log = logging.getLogger(__name__)

Perform = Callable[
    [AsyncExitStack, PlayRequest, SandboxProcess, PairedServiceBusClient, Callable[[str], None]],
    Awaitable[Coroutine[object, object, DemoResult]],
]
"""Prepares the play of a scenario on a pairing, with `say` for its captions; what it returns plays it."""


def main(perform: Perform | None = None) -> None:
    """Play the order on standard input. perform: plays the scenario; None: the demo's own player."""
    log_to(sys.stderr)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=PlayRequest)
    input_end = _InputEnd()
    try:
        asyncio.run(_until_input_ends(order, input_end, perform))
    except PairedError as error:
        tell(PlayFailed(str(error)))
        raise SystemExit(2) from error
    finally:
        if input_end.is_killed:  # so the process that made the folder does not remove it
            shutil.rmtree(order.folder, ignore_errors=True)


def tell(line: WorkerLine) -> None:
    """Write one line to the parent."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


@dataclass(slots=True)
class _InputEnd:
    """How standard input ended."""

    is_killed: bool = False
    """Whether it ended without the order to end: its writer was killed, or its terminal closed."""


async def _until_input_ends(order: PlayRequest, input_end: _InputEnd, perform: Perform | None) -> None:
    """Play, then stay for viewers; the end of standard input ends all of it immediately."""
    playing = asyncio.create_task(_play(order, perform), name="the demo")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    watching = asyncio.create_task(reader.read(), name="the end of standard input")
    await asyncio.wait([playing, watching], return_when=asyncio.FIRST_COMPLETED)
    if not playing.done():
        playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
    await asyncio.wait([watching], timeout=INPUT_END)  # a play that ended by itself may have lost its reader
    input_end.is_killed = watching.done() and not watching.result()
    watching.cancel()
    if not playing.cancelled():
        playing.result()


async def _play(order: PlayRequest, perform: Perform | None) -> None:
    scenario = scenario_named(order.scenario)
    async with AsyncExitStack() as stack:
        tell(CaptionShown("two namespaces, in a sandbox on this machine"))
        sandbox = await stack.enter_async_context(sandbox_process(Path(order.folder) / "sandbox.log"))
        captions = _Captions()
        if scenario.name == FLEET.name:
            stage = await stack.enter_async_context(fleet_stage(order, sandbox, captions.say, captions.latest))
            await _until_left(stage.mine.engine, play_fleet(stage, captions.say), captions)
        else:
            await _perform(stack, order, scenario, sandbox, captions, perform)


class _Captions:
    """The captions: each goes to the parent, and the latest is on the engine's screen."""

    def __init__(self) -> None:
        self._latest = ""

    def say(self, text: str) -> None:
        self._latest = text
        tell(CaptionShown(text))

    def latest(self) -> str:
        return self._latest


async def _perform(
    stack: AsyncExitStack,
    order: PlayRequest,
    scenario: Scenario,
    sandbox: SandboxProcess,
    captions: _Captions,
    perform: Perform | None,
) -> None:
    tell(CaptionShown("an engine with a journal, and its backlog queues"))
    host = EngineHost(
        EngineIdentity(engine=PAIRING, boot=uuid.uuid4().hex[:12], pairing=PAIRING, environment="demo"),
        spool=order.journal,
        socket=Path(order.socket),
        policy=scenario.policy,
        caption=captions.latest,
    )
    await stack.enter_async_context(host)
    await leave_unused_queues(sandbox)
    paired = await stack.enter_async_context(await pair_on(sandbox, scenario.policy, on_event=host.record))
    for entity in ENTITIES if perform is None else scenario.fails_over:
        paired.watch(entity)
    await host.adopt(paired)
    if perform is not None:
        await _until_left(host, await perform(stack, order, sandbox, paired, captions.say), captions)
        return
    player = Player(scenario, sandbox, paired, seed=order.seed, say=captions.say, record=host.record)
    if order.with_tables and find_spec("pyspark") is not None:
        await stack.enter_async_context(_followed(order))
    await _until_left(host, player.play(order.duration), captions)


async def _until_left(host: EngineHost, play: Coroutine[object, object, DemoResult], captions: _Captions) -> None:
    """Play, and stay until the engine is ordered to end: the dashboard may be looked at until then."""

    async def played() -> None:
        result = await play
        captions.say(_closing_words(result))
        tell(PlayDone(result))

    playing = asyncio.create_task(played(), name="the performance")
    try:
        ending = asyncio.create_task(host.ended(), name="an order to end")
        done, _ = await asyncio.wait([playing, ending], return_when=asyncio.FIRST_COMPLETED)
        if playing in done:
            await playing
            await ending
    finally:
        await end_all([playing, ending], STOP_TIMEOUT)


@asynccontextmanager
async def _followed(order: PlayRequest) -> AsyncIterator[None]:
    """Run the pipeline beside the demo, in its own process, until the block ends.

    It starts some seconds after the dashboard. Its failure does not affect the demo.
    """
    started: list[PipelineProcess] = []

    async def start() -> None:
        await asyncio.sleep(TABLES_AFTER)
        try:
            started.append(start_pipeline(PipelineOrder(journals=(order.journal,), tables=order.tables)))
        except PairedError as error:
            log.warning("no tables: %s", error)

    starting = asyncio.create_task(start(), name="the start of the pipeline")
    try:
        yield
    finally:
        await end_all([starting], STOP_TIMEOUT)
        for pipeline in started:
            await asyncio.to_thread(pipeline.stop, TABLES_STOP)


def _closing_words(result: DemoResult) -> str:
    messages = result.messages
    return f"{result.verdict}: {messages.accepted} accepted, {messages.lost} lost; q ends the demo"


if __name__ == "__main__":
    main()
