"""`pair_namespaces` by `Namespace`, and an application that pairs with `control=True`, which is an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import mypy.api
import pytest
from azure.core.exceptions import ServiceRequestError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from prometheus_client import CollectorRegistry, generate_latest

import paired_servicebus
from paired_servicebus import Namespace, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.backlog.queue_settings import QueueWanted
from paired_servicebus.core.errors import CleanUpError, CommandRefusedError, ConfigurationError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus, SyphonView
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import find_socket, local_engines, query_engines
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.engine.readiness.readiness_check import queues_in_use, read_local_usage
from paired_servicebus.engine.service import engine_host
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management, management_of
from paired_servicebus.pairing.monitoring import backlog_inspection
from paired_servicebus.pairing.opening import PairingOptions
from servicebus_sandbox import Sandbox
from tests.journal_files import read_records
from tests.ports import free_port

from .conftest import FakePairing


@pytest.fixture
async def sandbox(short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    async with Sandbox.start() as running:
        yield running


async def pair(
    sandbox: Sandbox, *, more: dict[str, Any] | None = None, wanted: int = 1, refused: str = "", **options: Any
) -> Any:
    """wanted: backlog queues. refused: the path of one that cannot be created."""
    trust = paired_servicebus.tls_context()
    primary, secondary = (
        ServiceBusClient.from_connection_string(sandbox[name].connection_string, retry_total=0, ssl_context=trust)
        for name in ("primary", "secondary")
    )
    admin = ServiceBusAdministrationClient.from_connection_string(
        sandbox["secondary"].connection_string, connection_verify=str(sandbox.ca_file)
    )
    chosen = paired_servicebus.SendAvailabilityPairedNamespaceOptions(
        secondary_admin=_refusing(admin, refused) if refused else admin,
        secondary_client=secondary,
        primary_name="primary",
        backlog_queue_count=wanted,
        **options,
    )
    return await paired_servicebus.pair_namespaces(primary, chosen, **{"control": True} | (more or {}))


def _refusing(admin: ServiceBusAdministrationClient, path: str) -> Management:
    port = management_of(admin)
    create = port.create_queue

    async def failing(name: str, wanted: QueueWanted) -> None:
        if name == path:
            raise ServiceRequestError("no route")
        await create(name, wanted)

    port.create_queue = failing  # type: ignore[method-assign] # for this test
    return port


async def test_its_sends_depend_on_neither_journal_nor_socket_nor_disk(
    sandbox: Sandbox, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `control=True` the application's sends never depend on journal, socket or disk."""
    monkeypatch.setattr(engine_host, "SOCKET_INTERVAL", 0.05)
    state = short / "later"
    state.write_text("a file in its place")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    paired = await pair(sandbox)
    async with paired, paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        assert local_engines() == ()
        state.unlink()
        async with asyncio.timeout(60):
            found = ()
            while not any(one.snapshot and not one.snapshot.journal.trouble for one in found):
                await asyncio.sleep(0.05)
                found = await query_engines(local_engines())
        await sender.send_messages(ServiceBusMessage(b"y"))
    assert sandbox["primary"].node.namespace.queue("orders").counts().active == 2
    assert list(read_records(state / "paired" / "primary" / "spool"))


async def test_it_is_listed_commanded_and_journalled(sandbox: Sandbox) -> None:
    told: list[Any] = []
    paired = await pair(sandbox, more={"environment": "test", "on_event": told.append})
    async with paired, paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        (places,) = local_engines()
        assert places.name == "primary"
        (standing,) = await query_engines([places])
        assert standing.snapshot is not None
        assert (standing.snapshot.own_process, standing.snapshot.environment) == (False, "test")
        assert [one.path for one in standing.snapshot.entities] == ["orders"]
        client = await ControlClient.connect(places.socket)
        await client.order(Command(action_id="force", targets=("orders",), by="ada"), typed="orders")
        assert paired.entity_views()[0].state is State.FORCED
        with pytest.raises(CommandRefusedError, match="runs inside an application and stops with it"):
            await client.order(Command(action_id="stop", by="ada"), typed="primary")
        await client.close()
    assert local_engines() == ()
    kinds = [record.event.kind for record in read_records(places.spool)]
    assert {"engine-started", "commanded", "forced", "command-ended"} <= set(kinds)
    assert kinds[-1] == "engine-stopped"
    assert [event.kind for event in told if event.kind == "forced"] == ["forced"]


async def test_a_queue_that_another_application_here_uses_is_not_cleaned_up(
    sandbox: Sandbox, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4.3: "*Unused* = under the prefix, an integer index that no known engine uses (its real indices, not
    their number: creation may leave gaps)". The other one uses 0, 2 and 3."""
    monkeypatch.setattr(engine_host, "USAGE_INTERVAL", 0.1)
    monkeypatch.setattr(backlog_inspection, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.0)
    path = "primary/x-servicebus-transfer/3"
    wide = await pair(sandbox, wanted=4, refused=path.replace("/3", "/1"))
    assert wide.backlog_queue_indices == (0, 2, 3)
    narrow = await pair(sandbox, quiet_period=1.0)
    client = await ControlClient.connect(engine_paths("primary-2").socket)
    queue = sandbox["secondary"].node.namespace.queue(path)
    for part in (queue.messages, queue.dead_letters):
        part.accessed_at -= 3600.0
    queue.intake.last_send_at -= 3600.0
    queue.created_at -= 7200.0
    await until(lambda: narrow.unused_view().read_at is not None and not narrow.unused_view().queues)
    with pytest.raises(CleanUpError, match="/3 stays: another engine on this machine uses it"):
        await narrow.clean_up(path, elsewhere=partial(queues_in_use, narrow, besides=engine_paths("primary-2").socket))
    with pytest.raises(CommandRefusedError, match="is not an unused backlog queue"):
        await client.order(Command(action_id="clean-up", targets=(path,), by="ada"), typed=path)
    await wide.close()
    await until(lambda: [one.index for one in narrow.unused_view().queues] == [2, 3])
    done = await client.order(
        Command(action_id="clean-up", targets=(path,), by="ada"), typed=f"{path} no other host uses it"
    )
    assert done.ok, done.text
    assert [one.index for one in narrow.unused_view().queues] == [2]
    await client.close()
    await narrow.close()


async def test_several_of_one_name_stand_beside_each_other_and_find_their_place_again(sandbox: Sandbox) -> None:
    first, second = await pair(sandbox), await pair(sandbox)
    try:
        assert [places.name for places in local_engines()] == ["primary", "primary-2"]
    finally:
        await first.close()
        again = await pair(sandbox)
        assert [places.name for places in local_engines()] == ["primary", "primary-2"]
        await again.close()
        await second.close()


async def test_it_can_be_named(sandbox: Sandbox) -> None:
    async with await pair(sandbox, more={"control": "web / 1", "read_only": True}):
        (places,) = local_engines()
        assert places.name == "web-1"
        (standing,) = await query_engines([places])
        assert standing.snapshot is not None
        assert standing.snapshot.read_only


async def test_a_pairing_that_fails_leaves_no_engine(sandbox: Sandbox) -> None:
    with pytest.raises(ConfigurationError):
        await pair(sandbox, send_timeout=0.0)
    assert local_engines() == ()


async def test_without_control_there_is_none(sandbox: Sandbox) -> None:
    async with await pair(sandbox, more={"control": False}) as paired:
        assert local_engines() == ()
        assert find_socket(engine_paths("primary")) is None
        with pytest.raises(ConfigurationError, match="pair with control=True"):
            paired.collector()


async def test_it_serves_metrics_calls_the_command_and_fills_the_applications_own_registry(
    sandbox: Sandbox, tmp_path: Path, until: Callable[..., Any]
) -> None:
    """The same spelling as in pairing.toml: `metrics`, `on_change`."""
    port = free_port()
    told = tmp_path / "told"
    command = f"sh -c 'echo \"$PAIRED_SUBJECT $PAIRED_STATE\" >> {told}'"
    registry = CollectorRegistry()
    async with await pair(sandbox, more={"metrics": port, "on_change": command}) as paired:
        registry.register(paired.collector())
        paired.watch("orders")
        paired.force("orders", by="test")
        await until(lambda: told.exists() and "orders forced" in told.read_text())
        await until(lambda: b'paired_entity_state{entity="orders"' in generate_latest(registry))

        async def served() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer

        assert b"paired_refused_messages_total" in await served()
    assert b"paired_entity_state{" not in generate_latest(registry), "an engine that has ended has no figures"
    with pytest.raises(OSError, match=r"(?i)connect"):
        await served()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"metrics": "everywhere"}, "^metrics is 'everywhere'; it is a port"),
        ({"on_change": "'"}, "^on_change is .* cannot be split into words"),
        ({"control": False, "metrics": 9464}, "^metrics needs an engine: pass control=True$"),
        ({"control": False, "on_change": "x"}, "^on_change needs an engine: pass control=True$"),
    ],
)
async def test_metrics_and_on_change_are_checked_before_anything_is_contacted(
    sandbox: Sandbox, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        await pair(sandbox, more=more)
    assert local_engines() == ()


# -- The public door: `pair_namespaces` by `Namespace`, awaitable and a context manager ------------------------------

ROOT = Path(__file__).parents[2]
USE = """
from azure.servicebus import ServiceBusMessage

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus import sync

here = Namespace.from_connection_string("x")


async def main() -> None:
    async with pair_namespaces(here, here, enable_syphon=True, control=True) as paired:
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
            await sender.send_messages(42)  # wrong
        async with paired.get_queue_receiver("orders") as receiver:
            for message in await receiver.receive_messages():
                await receiver.complete_message(message)
                await receiver.complete_mesage(message)  # wrong
        paired.forse("orders")  # wrong
    awaited = await pair_namespaces(here, here, enable_sypon=True)  # wrong


def blocking() -> None:
    with sync.pair_namespaces(here, here, enable_sypon=True) as paired:  # wrong
        paired.force("orders", by="me").upper()
        paired.forse("orders")  # wrong
        with paired.get_queue_receiver("orders") as receiver:
            for message in receiver:
                receiver.complete_message(message)
                receiver.complete_mesage(message)  # wrong
        paired.get_queue_sender("orders").send_messages(42)  # wrong
"""


def namespaces(sandbox: Sandbox) -> tuple[Namespace, Namespace]:
    def one(name: str) -> Namespace:
        options = {"connection_verify": str(sandbox.ca_file)}
        return Namespace.from_connection_string(sandbox[name].connection_string, options=options)

    return one("primary"), one("secondary")


async def test_it_is_entered_and_closes_what_it_made(sandbox: Sandbox) -> None:
    async with pair_namespaces(*namespaces(sandbox), backlog_queue_count=1) as paired:
        assert paired.backlog_queue_indices == (0,)
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
    with pytest.raises(paired_servicebus.PairingClosedError):
        paired.get_queue_sender("orders")


@pytest.mark.parametrize("run", [asyncio.ensure_future, asyncio.create_task, lambda opener: opener])
async def test_it_is_awaited_as_a_coroutine_is(sandbox: Sandbox, run: Any) -> None:
    paired = await asyncio.wait_for(run(pair_namespaces(*namespaces(sandbox), backlog_queue_count=1)), 60)
    assert paired.backlog_queue_count == 1
    await paired.close()


async def test_the_clients_made_here_are_closed_when_pairing_fails(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    close = ServiceBusClient.close

    async def closes(self: ServiceBusClient) -> None:
        closed.append(self)
        await close(self)

    monkeypatch.setattr(ServiceBusClient, "close", closes)
    primary, _ = namespaces(sandbox)
    with pytest.raises(paired_servicebus.SameNamespaceError):
        await pair_namespaces(primary, primary)
    assert len(closed) == 3  # the primary's for senders, the primary's for receivers, the secondary's


async def test_a_misspelt_option_is_a_type_error(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError, match=r"no option enable_sypon; it has .*enable_syphon"):
        await pair_namespaces(*namespaces(sandbox), enable_sypon=True)  # type: ignore[call-overload]


async def test_options_by_name_do_not_go_with_clients() -> None:
    with pytest.raises(TypeError, match="enable_syphon"):
        await pair_namespaces(object(), object(), enable_syphon=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("other", ["Endpoint=sb://x/;SharedAccessKey=c4n4ry", None, object()])
async def test_one_namespace_alone_is_refused_and_no_text_repeated(other: Any) -> None:
    here = Namespace.from_connection_string("Endpoint=sb://y/")
    with pytest.raises(ConfigurationError, match=r"^secondary is a \w+; it has to be a Namespace") as raised:
        await pair_namespaces(here, other)
    assert "c4n4ry" not in str(raised.value)


def test_the_options_by_name_are_those_of_the_dataclass() -> None:
    values = {field.name for field in fields(SendAvailabilityPairedNamespaceOptions)}
    hints, theirs = get_type_hints(PairingOptions), get_type_hints(SendAvailabilityPairedNamespaceOptions)
    assert set(hints) == values - {"secondary_client", "secondary_admin"}
    assert {name: hints[name] for name in hints} == {name: theirs[name] for name in hints}


def test_dir_lists_the_public_names() -> None:
    assert set(paired_servicebus.__all__) <= set(dir(paired_servicebus))


@pytest.mark.slow
def test_a_type_checker_finds_each_mistake_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    said, complaints, _ = mypy.api.run(["--strict", "--config-file=", "--no-error-summary", str(tmp_path / "use.py")])
    wrong = {number for number, line in enumerate(USE.splitlines(), 1) if line.endswith("# wrong")}
    found = {int(line.split(":")[1]) for line in said.splitlines() if "use.py" in line and ": error:" in line}
    assert found == wrong, said + complaints


# -- What other engines here use of the same namespaces: by the indices in their queues' paths, never by their number

Engine = Callable[..., Any]
NOT_HERE = Path("/nowhere")


@pytest.fixture
def hold(short: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Path], None]]:
    """Takes the lock of an engine that listens at a socket."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    held: list[int] = []

    def take_it(name: str, socket: Path) -> None:
        places = engine_paths(name)
        places.prepare()
        held.append(acquire(places.lock, LockHolder(pid=4711, socket=str(socket), log="/x.log")))

    yield take_it
    for lock in held:
        with suppress(OSError):
            os.close(lock)


async def test_the_indices_of_another_engine_are_those_of_its_paths(
    engine: Engine, pairing: FakePairing, hold: Callable[[str, Path], None]
) -> None:
    """Section 4.3: "its real indices, not their number: creation may leave gaps"."""
    pairing.indices = (0, 2, 3)
    async with engine() as hosted:
        hold("other", hosted.socket)
        assert await queues_in_use(FakePairing(), besides=NOT_HERE) == {0, 2, 3}
        assert await read_local_usage(FakePairing(), besides=NOT_HERE) == QueueUsage(
            used=frozenset({0, 2, 3}), moved=frozenset({0, 2, 3})
        )
        assert await queues_in_use(FakePairing(), besides=hosted.socket) == frozenset()
        assert await queues_in_use(FakePairing(secondary_name="another"), besides=NOT_HERE) == frozenset()


@pytest.mark.parametrize(
    ("status", "moves", "is_busy"),
    [
        (SyphonStatus.OFF, False, False),
        (SyphonStatus.PAUSED, False, False),
        (SyphonStatus.STUCK, False, False),
        (SyphonStatus.RUNNING, True, True),
        (SyphonStatus.WAITING, True, True),
        (SyphonStatus.IDLE, True, False),
    ],
)
async def test_what_a_syphon_moves_or_is_busy_with_elsewhere_is_known_by_its_status(
    engine: Engine,
    pairing: FakePairing,
    hold: Callable[[str, Path], None],
    status: SyphonStatus,
    moves: bool,
    is_busy: bool,
) -> None:
    """No engine calls its syphon stuck for messages that another one has in hand."""
    pairing.syphon, pairing.indices = SyphonView(status=status, text=""), (0, 1)
    async with engine() as hosted:
        hold("other", hosted.socket)
        found = await read_local_usage(FakePairing(), besides=NOT_HERE)
    assert (found.moved, found.busy) == (frozenset({0, 1} if moves else ()), frozenset({0, 1} if is_busy else ()))


async def test_an_engine_that_does_not_answer_may_use_it_and_nothing_is_deleted(
    hold: Callable[[str, Path], None],
) -> None:
    hold("other", NOT_HERE)
    with pytest.raises(CleanUpError, match="the engine of other may use it"):
        await queues_in_use(FakePairing(), besides=Path("/elsewhere"))
    assert await read_local_usage(FakePairing(), besides=Path("/elsewhere")) == QueueUsage()
