"""Plays the demo's scenario any-language in a clone; `paired demo any-language` starts it in place of its worker.

The senders know nothing but the gateway's connection string. Each runs with its SDK's defaults; the primary refuses
connections, so that sends wait and then go to the backlog; it serves again, and the syphon moves the backlog home. The
receivers are the demo's own: what is judged is whether the senders' own lists agree with what arrived.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.errors import PairedError
from paired_servicebus.demo.player import sum_up
from paired_servicebus.demo.result import DemoResult, what_broke
from paired_servicebus.demo.scenarios import ANY_LANGUAGE, DRAIN_WITHIN, ORDERS, PRIMARY, Scenario
from paired_servicebus.demo.worker import main
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.sandbox_process import SandboxProcess
from paired_servicebus.trials.workload import MessageStream, Workload
from tests.examples.sender_programs import SenderProgram, find_programs, python_program


class SenderResult(msgspec.Struct, frozen=True, kw_only=True):
    """One sender by its own list."""

    language: str
    sdk: str
    attempted: int
    accepted: int
    during_outage: int
    """Accepted while the primary was away."""
    slowest_seconds: float
    errors: int
    first_error: str | None = None
    has_ended: bool = True
    """Whether every one of its calls returned."""


class LanguagesResult(msgspec.Struct, frozen=True, kw_only=True):
    """What each sender saw of the outage. missing: languages that are not on this machine, with the reason."""

    senders: dict[str, SenderResult]
    missing: dict[str, str]
    connections_lost: int
    """Connections of clients to the gateway that ended while they were sending."""
    broken: list[str] = []
    """Expectations that did not hold, a sentence each."""


def what_languages_broke(result: LanguagesResult) -> list[str]:
    """Return the failed expectations, a sentence each."""
    lost = result.connections_lost
    said = [f"{lost} connections of clients were lost"] if lost else []
    for name, sender in result.senders.items():
        said += _of_sender(name, sender)
    return said


def _of_sender(name: str, sender: SenderResult) -> Iterator[str]:
    if sender.errors:
        yield f"{name} got {sender.errors} errors from send, the first: {sender.first_error}"
    if not sender.has_ended:
        yield f"{name} has calls that did not return"
    if not sender.during_outage:
        yield f"no message of {name} was accepted while the primary was away"


def languages_lines(result: LanguagesResult) -> list[str]:
    """Return the senders' figures in a few lines."""
    return [
        *(
            f"  {name} ({sender.sdk}): {sender.accepted} of {sender.attempted} accepted, {sender.during_outage} while "
            f"the primary was away; {sender.errors} errors, slowest {sender.slowest_seconds:.1f} s"
            for name, sender in result.senders.items()
        ),
        *(f"  Python sent instead of {language}: {reason}" for language, reason in result.missing.items()),
        f"  {result.connections_lost} of the clients' connections lost",
    ]


# One sender as a process: started with a connection string, ended by its input, and its own list of its sends.

VARIABLE: Final = "SENDER_CONNECTION_STRING"
"""Not an argument: everybody on a machine can read those."""
END_SECONDS: Final = 5.0
LINE_BYTES: Final = 1 << 16


class SenderProcess:
    """A running sender. Its list is what it wrote, and nothing that we know better.

    Args:
        name: the prefix of its message ids.
        log: gets its standard error.
    """

    def __init__(self, program: SenderProgram, name: str, log: Path) -> None:
        self.program = program
        self.name = name
        self.answers: dict[str, SendOutcome] = {}
        """Every id it attempted; IN_DOUBT until its SDK answered, and where that raised."""
        self.errors: dict[str, str] = {}
        self.calls: dict[str, tuple[float, float]] = {}
        """When each call began and when its answer came, by this process's loop; infinite while there is none."""
        self.slowest_ms = 0.0
        self.has_ended = False
        """Whether it wrote that every call has its answer."""
        self._log = log
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def accepted(self) -> int:
        return sum(told is SendOutcome.ACCEPTED for told in self.answers.values())

    @property
    def under_way(self) -> int:
        """Messages whose call has not returned."""
        return len(self.answers) - self.accepted - len(self.errors)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, connection_string: str, entity: str, *, lanes: int, pause: float) -> None:
        """Start it. lanes: calls at the same time; pause: seconds between two calls of a lane. Raises OSError."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command,
                *(entity, self.name, str(lanes), str(round(pause * 1000))),
                env={**os.environ, **self.program.environment, VARIABLE: connection_string},
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=LINE_BYTES,
                start_new_session=True,  # Ctrl-C is for whoever started us
            )
        self._reading = asyncio.create_task(self._read(self._process), name=f"the lines of {self.name}")

    async def stop(self, seconds: float) -> None:
        """Have it end its calls and itself; end it after `seconds`."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            await self.kill()
        if self._reading is not None:
            await self._reading

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._process.wait()

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.take(line.decode("utf-8", "replace").rstrip("\n"), asyncio.get_running_loop().time())

    def take(self, line: str, now: float) -> None:
        """Take one of its lines into the list."""
        word, _, rest = line.partition("\t")
        name, _, said = rest.partition("\t")
        if word == "begun":
            self.answers[name] = SendOutcome.IN_DOUBT
            self.calls[name] = now, inf
        elif word in ("accepted", "failed"):
            self.calls[name] = self.calls[name][0], now
        if word == "accepted":
            self.answers[name] = SendOutcome.ACCEPTED
            self.slowest_ms = max(self.slowest_ms, float(said))
        elif word == "failed":
            self.errors[name] = said
        elif word == "ended":
            self.has_ended = True


LANES: Final = 2
PAUSE: Final = 0.2
START_WITHIN: Final = 60.0
STOP_WITHIN: Final = 110.0
"""Seconds in which every call has to return: four tries of an SDK at the gateway's longest."""
QUIET_SECONDS: Final = 1.0
END_WITHIN: Final = 10.0
POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the play needs: a gateway of the pairing, and the senders, which do not run yet."""

    sandbox: SandboxProcess
    paired: PairedServiceBusClient
    gateway: Gateway
    connection_string: str
    senders: Sequence[SenderProcess]
    missing: dict[str, str]
    receivers: Workload


@asynccontextmanager
async def languages_stage(
    sandbox: SandboxProcess, paired: PairedServiceBusClient, folder: Path, *, seed: int, say: Callable[[str], None]
) -> AsyncIterator[Stage]:
    """Yield a gateway with a sender in each language that is here. Raises PairedError."""
    say("looking for node, java and go, and their SDKs")
    built = folder / "senders"
    built.mkdir()
    found, missing = await asyncio.to_thread(find_programs, built)
    say(cast_caption(found, missing))
    stands_in = [python_program()] * max(1, len(missing))
    key = new_key("demo", [GatewayRight.SEND])
    async with AsyncExitStack() as stack:
        gateway = Gateway(paired, KeyRing([key]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.0)
        senders = named_senders([*found, *stands_in], folder)
        for sender in senders:
            stack.push_async_callback(sender.kill)
        streams = tuple(MessageStream(ORDERS, sender.name, PAUSE) for sender in senders)
        yield Stage(
            sandbox=sandbox,
            paired=paired,
            gateway=gateway,
            connection_string=gateway.connection_string(key),
            senders=senders,
            missing=missing,
            receivers=Workload(paired, seed=seed, streams=streams),
        )


def cast_caption(found: Sequence[SenderProgram], missing: dict[str, str]) -> str:
    """Return which languages will send."""
    if not found:
        return "neither JavaScript nor Java nor Go is here: Python sends"
    absent = f"; not here: {', '.join(missing)}" if missing else ""
    return f"senders in {', '.join(one.language for one in found)} and Python{absent}"


def named_senders(programs: Sequence[SenderProgram], folder: Path) -> list[SenderProcess]:
    """Return a sender for each program, named after its language; further ones in the same language get a number."""
    senders: list[SenderProcess] = []
    for program in programs:
        name = program.language.lower()
        same = sum(one.program.language == program.language for one in senders)
        senders.append(SenderProcess(program, f"{name}{same + 1}" if same else name, folder / f"{name}.log"))
    return senders


async def play_languages(
    stage: Stage, scenario: Scenario, *, duration: float, seed: int, say: Callable[[str], None]
) -> DemoResult:
    """Play the scenario and return its result. Raises PairedError."""
    receiving = asyncio.create_task(stage.receivers.receive_until_stopped(), name="the receivers")
    try:
        for sender in stage.senders:
            await sender.start(stage.connection_string, ORDERS, lanes=LANES, pause=PAUSE)
        await _met(lambda: all(one.accepted for one in stage.senders), stage, START_WITHIN)
        connections = set(stage.gateway.connections)
        away = await _script(stage, scenario, duration, say)
        lost = len(connections - stage.gateway.connections)
        await asyncio.gather(*(one.stop(STOP_WITHIN) for one in stage.senders))
        for one in stage.senders:
            stage.receivers.lists.answers |= one.answers
        if await _arrived(stage):
            await asyncio.sleep(QUIET_SECONDS)  # for duplicates
        stage.receivers.stop_receiving()
        await receiving
        return await _result(stage, scenario, seed, languages_result(stage, away, lost))
    finally:
        await end_all([receiving], END_WITHIN)


async def _script(stage: Stage, scenario: Scenario, duration: float, say: Callable[[str], None]) -> tuple[float, float]:
    """Perform the steps; return when the primary went and when it came back, by the loop."""
    clock = asyncio.get_running_loop().time
    begun, (quiet, gone, home) = clock(), scenario.captions
    say(quiet.text)
    await asyncio.sleep(gone.at * duration)
    fault = await stage.sandbox.add_fault("refused", namespace=PRIMARY)
    away = clock()
    say(gone.text)
    await asyncio.sleep((home.at - gone.at) * duration)
    back = clock()
    await stage.sandbox.remove_fault(fault)
    say(home.text)
    await asyncio.sleep(max(0.0, begun + duration - clock()))
    return away, back


async def _met(condition: Callable[[], bool], stage: Stage, seconds: float) -> None:
    """Wait until every sender sends. Raises PairedError."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        ended = [one.name for one in stage.senders if not one.is_running]
        if ended or asyncio.get_running_loop().time() > end:
            silent = ended or [one.name for one in stage.senders if not one.accepted]
            raise PairedError(f"the senders {', '.join(silent)} sent nothing within {seconds:.0f} s")
        await asyncio.sleep(POLL_SECONDS)


async def _arrived(stage: Stage) -> bool:
    """Wait until every accepted message has arrived and sends have returned; return whether that came about."""
    clock = asyncio.get_running_loop().time
    end = clock() + DRAIN_WITHIN
    while clock() < end:
        is_diverting = any(view.failovers != view.failbacks for view in stage.paired.entity_views())
        if not stage.receivers.lists.missing and not is_diverting:
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False


def languages_result(stage: Stage, away: tuple[float, float], lost: int) -> LanguagesResult:
    """Return what each sender saw. away: when the primary went and came back."""
    gone, back = away
    senders = {
        one.name: SenderResult(
            language=one.program.language,
            sdk=one.program.sdk,
            attempted=len(one.answers),
            accepted=one.accepted,
            during_outage=sum(
                gone < answered < back for name, (_, answered) in one.calls.items() if name not in one.errors
            ),
            slowest_seconds=round(one.slowest_ms / 1000, 3),
            errors=len(one.errors),
            first_error=next(iter(one.errors.values()), None),
            has_ended=one.has_ended,
        )
        for one in stage.senders
    }
    result = LanguagesResult(senders=senders, missing=stage.missing, connections_lost=lost)
    return msgspec.structs.replace(result, broken=what_languages_broke(result))


async def _result(stage: Stage, scenario: Scenario, seed: int, languages: LanguagesResult) -> DemoResult:
    lists = stage.receivers.lists
    result = await sum_up(stage.sandbox, [stage.paired], lists, scenario=scenario, seed=seed, entities=(ORDERS,))
    return msgspec.structs.replace(
        result,
        languages=msgspec.to_builtins(languages),
        figures=languages_lines(languages),
        broken=[*what_broke(scenario, result.entities, result.messages), *languages.broken],
    )


async def perform(
    stack: AsyncExitStack,
    order: PlayRequest,
    sandbox: SandboxProcess,
    paired: PairedServiceBusClient,
    say: Callable[[str], None],
) -> Coroutine[object, object, DemoResult]:
    """Start the gateway, and return the play. Raises PairedError."""
    cast = languages_stage(sandbox, paired, Path(order.folder), seed=order.seed, say=say)
    stage = await stack.enter_async_context(cast)
    return play_languages(stage, ANY_LANGUAGE, duration=order.duration, seed=order.seed, say=say)


if __name__ == "__main__":
    main(perform)
