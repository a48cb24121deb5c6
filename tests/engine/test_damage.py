"""Whatever a disk has done to the files that an engine left: the next one starts, reads the rest, and says what it
could not read, once."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from paired_servicebus import config
from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.errors import ConfigurationError, UnreadableError
from paired_servicebus.core.model.pairing_events import Event, Record, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.engine.clients.start_checks import read_primary_info
from paired_servicebus.engine.commands import drain_process
from paired_servicebus.engine.commands.drain_process import _outcome
from paired_servicebus.engine.commands.guard import StandingOrders
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import find_socket
from paired_servicebus.engine.instance import lock
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.message_trace import find
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.timeline_replay import replay_records, unfinished
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.engine.service.launcher import Failed, Launch, wait_until_gone
from tests.damaged import START, UNREADABLE, between, flipped, write
from tests.engine.conftest import FakePairing
from tests.journal_files import read_records

Until = Callable[[Callable[[], bool]], Awaitable[None]]
NESTED = b"[" * 100_000 + b"]" * 100_000
DAMAGE = {
    "zeros": bytes(3000),
    "not UTF-8": b"\xff\xfe",
    "not UTF-8 inside": b'{"pid":"\xff"}',
    "nested": NESTED,
    "null": b"null",
    "a huge number": b"9" * 5000,
    "an endless number": b'{"at":1e999}',
    "half a surrogate": b'"\\ud800"',
    "nothing": b"",
}
"""What may stand in a small file of JSON."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole file of a journal, as the journal writes it."""
    return asyncio.run(write(tmp_path_factory.mktemp("journal"))).read_bytes()


def spooled(folder: Path, data: bytes, place: str = spool.CLOSED) -> Path:
    spool.prepare(folder)
    path = folder / place / f"orders@here-{int(START * 1000):013d}-000000000001{spool.SUFFIX}"
    path.write_bytes(data)
    return path


def read_all(folder: Path) -> tuple[set[int], UnreadableLines]:
    """All that an engine's start and `paired find` read; the numbers of records that can be read."""
    unread = UnreadableLines()
    spool.recover(folder)
    unfinished(folder, unread)
    replay_records(folder, besides="b1", since=START, most=10_000, untold=[], unread=unread)
    found = find(folder, "m-1-1")
    assert found.torn == len({place for _, place in found_places(folder)})
    return {record.seq for record in read_records(folder)}, unread


def found_places(folder: Path) -> list[tuple[str, int]]:
    """Lines that are no records, one by one."""
    places: list[tuple[str, int]] = []
    for path in (folder / spool.CLOSED).iterdir():
        for number, line in enumerate(path.read_bytes().split(b"\n")):
            try:
                records.decode(line)
            except UnreadableError:
                places += [(path.name, number)] if line.strip() else []
    return places


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=some.integers(0, 2**32), places=some.integers(1, 30), place=some.sampled_from([spool.CLOSED, spool.OPEN]))
def test_bytes_changed_at_random_places_cost_the_lines_they_are_in(
    tmp_path_factory: pytest.TempPathFactory, journal: bytes, seed: int, places: int, place: str
) -> None:
    data, sound = flipped(journal, Random(seed), places)
    folder = tmp_path_factory.mktemp("spool")
    spooled(folder, data, place)
    numbers, _ = read_all(folder)
    assert {number + 1 for number in sound} <= numbers


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("place", [spool.CLOSED, spool.OPEN])
def test_a_strange_line_is_passed_over_and_said_with_its_place(
    tmp_path: Path, journal: bytes, name: str, place: str
) -> None:
    lines = journal.splitlines()
    path = spooled(tmp_path, between(lines, UNREADABLE[name]), place)
    numbers, unread = read_all(tmp_path)
    assert numbers == set(range(1, len(lines) + 1))
    (said,) = unread.tell()
    assert said.startswith(f"line {len(lines) // 2 + 1} of {path.name} cannot be read (not a record: ")
    assert len(said) < 400
    assert said.isprintable()
    assert find(tmp_path, "m-1-1").unread == (said,)


@pytest.mark.parametrize(
    "tail",
    [bytes(200_000), b"x" * 10_000_000, b"\xff" * 100_000, NESTED],
    ids=["zeros", "a long line", "not UTF-8", "nested"],
)
def test_what_a_crash_left_behind_the_last_record_costs_no_record_before_it(
    tmp_path: Path, journal: bytes, tail: bytes
) -> None:
    """The bug: of a file that ended with 64 KB without a newline nothing was kept."""
    spooled(tmp_path, journal + tail, spool.OPEN)
    (recovered,) = spool.recover(tmp_path)
    assert recovered.torn_bytes == len(tail)
    assert len(list(read_records(tmp_path))) == journal.count(b"\n")


async def test_the_engine_starts_and_says_what_it_could_not_read_once(
    short: Path, journal: bytes, until: Until
) -> None:
    lines = journal.splitlines()
    folder = short / "spool"
    path = spooled(folder, between(lines, UNREADABLE["a byte that is not UTF-8"]).replace(b'"pin"', b'"p\xffn"'))
    os.utime(path)
    (folder / "standing.json").write_bytes(b'[{"verb":"\xff"}]')

    told: list[Event] = []

    def now() -> float:
        return START + 60

    def note(record: Record, _line: bytes) -> None:
        told.append(record.event)

    identity = EngineIdentity.of("orders")
    async with EngineHost(identity, spool=folder, socket=short / "s", policy=Policy(), clock=now, note=note) as host:
        pairing = FakePairing()
        await host.take_up(pairing)
        await host.adopt(pairing)
        await until(lambda: any(_is_of_lines(event) for event in told))
    (text,) = [event.text for event in told if _is_of_lines(event)]
    assert text.startswith(f"2 lines of {path.name} cannot be read, the first is line {len(lines) // 2 + 1} (")
    (standing,) = [event.text for event in told if isinstance(event, Warned) and event.about == "standing"]
    assert standing.startswith("the standing orders of the engine before cannot be read (")


def _is_of_lines(event: Event) -> bool:
    return isinstance(event, Warned) and "cannot be read, the first is" in event.text


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_small_files_of_a_dead_engine_are_as_good_as_none(tmp_path: Path, data: bytes) -> None:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    places.lock.write_bytes(data)
    assert (lock.running(places.lock), lock.crashed_holder(places.lock)) == (None, None)
    (tmp_path / "drain.json").write_bytes(data)
    assert drain_process.latest(tmp_path, now=time.time()) is None
    assert _outcome(data) is None
    assert isinstance(_reported(data), Failed)
    (tmp_path / "standing.json").write_bytes(data)
    with pytest.raises(UnreadableError):
        StandingOrders(tmp_path).read()


def test_an_engine_whose_lock_says_nothing_any_more_still_runs(tmp_path: Path) -> None:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    taken = lock.acquire(places.lock, lock.LockHolder(pid=4711, socket="elsewhere", log="log"))
    try:
        assert find_socket(places) == Path("elsewhere")
        places.lock.write_bytes(b'{"pid":"\xff"}')
        assert find_socket(places) == places.socket
        assert not wait_until_gone(places, 0.0)
    finally:
        os.close(taken)
    assert find_socket(places) is None
    assert wait_until_gone(places, 0.0)


def _reported(data: bytes) -> object:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(data[:4096])
    try:
        launch: Any = Launch(None, reading, Path("log"))  # type: ignore[arg-type]
        return launch._read(1.0, lambda _: None)
    finally:
        os.close(reading)


@pytest.mark.parametrize("pid", [-1, 0, 1 << 40, None])
def test_a_drain_whose_process_cannot_be_is_never_told_to_end(tmp_path: Path, pid: int | None) -> None:
    """A signal to process -1 reaches every process of this user, one to 0 our own."""
    told = {"at": time.time(), "text": "12 moved", "host": "here"} | ({} if pid is None else {"pid": pid})
    (tmp_path / "drain.json").write_text(json.dumps(told))
    assert drain_process.latest(tmp_path, now=time.time()) is None


async def test_a_standing_order_that_means_nothing_is_said_and_the_rest_is_taken_up(short: Path) -> None:
    folder = short / "spool"
    spool.prepare(folder)
    strange = {"verb": "pause-syphon", "scope": "queue", "target": "x\x1b[2J", "by": "ada", "at": 1e30}
    good = {"verb": "pause-syphon", "scope": "all", "target": "", "by": "ada", "at": START}
    (folder / "standing.json").write_text(json.dumps([strange, good]))
    pairing = FakePairing()
    async with EngineHost(EngineIdentity.of("orders"), spool=folder, socket=short / "s", policy=Policy()) as host:
        await host.take_up(pairing)
        await host.adopt(pairing)
    texts = [
        one.event.text
        for one in read_records(folder)
        if isinstance(one.event, Warned) and one.event.about == "standing"
    ]
    assert [text.partition(":")[0] for text in texts] == ["cannot be taken up", "still stands"]
    assert "ordered an impossible time by ada" in texts[0]
    assert texts[0].isprintable()


@pytest.mark.parametrize("line", [*DAMAGE.values(), b'{"t":"hello","x":' + NESTED + b"}"], ids=[*DAMAGE, "in a field"])
def test_a_peer_that_says_nonsense_is_refused_in_the_protocols_own_words(line: bytes) -> None:
    with pytest.raises(protocol.ControlProtocolError, match="control protocol"):
        protocol.decode_from_client(line)
    with pytest.raises(protocol.ControlProtocolError, match="control protocol"):
        protocol.decode_from_engine(line)


async def test_a_console_goes_on_to_the_sentence_when_the_engine_sends_nonsense(short: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"t":"welcome","engine":"\xff"}\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, short / "s"):
        with pytest.raises(protocol.ControlProtocolError, match="no message of the control protocol"):
            await ControlClient.connect(short / "s")


async def test_a_name_that_was_remembered_and_changed_on_disk_is_forgotten(tmp_path: Path) -> None:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    places.named.write_bytes(b"\xff")
    found = await read_primary_info(NamespaceConfig(host="contoso.example"), places)
    assert found.name == "contoso"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'[pairing]\nname = "\xff"', r"is not UTF-8 \(byte 18\)"),
        (b"a = " + NESTED, "nested too deeply"),
        (b"a = " + b"9" * 5000, "is not TOML"),
        (b"a = \x00", "is not TOML"),
    ],
    ids=["not UTF-8", "nested", "a huge number", "a zero"],
)
def test_a_pairing_toml_that_is_none_is_a_sentence(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "pairing.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=why) as raised:
        config.load_config(path)
    assert str(raised.value).isprintable()
