"""What the library's logger says of a failover, and what it does not."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._async_utils import close_handler_for_cleanup
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.accounting import refused_calls
from paired_servicebus.core.model.pairing_events import Event, PingFailed, QueuePulled, StateChanged, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.pairing.runtime import pairing_runtime as event_log
from paired_servicebus.pairing.runtime.pairing_runtime import (
    FOLD_SECONDS,
    MAX_LINES,
    EventLog,
    register_client,
    register_link,
)
from paired_servicebus.pairing.sdk_internals import LOGGERS, keep_unopened
from tests.approval import Approve

from .conftest import World, until

PROGRAM = """
    import asyncio, logging, sys
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient as Admin
    from paired_servicebus import SendAvailabilityPairedNamespaceOptions, pair_namespaces, tls_context
    from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox

    logging.basicConfig(level=logging.INFO, format="%(levelname)s|%(name)s|%(message)s")

    async def main(faults):
        specs = NamespaceSpec("contoso", queues=[QueueSpec("orders")]), NamespaceSpec("backup")
        async with Sandbox.start(specs) as sandbox:
            one, two = sandbox["contoso"], sandbox["backup"]
            shared = {"retry_total": 0, "ssl_context": tls_context()}
            primary, secondary = (
                ServiceBusClient.from_connection_string(n.connection_string, **shared) for n in (one, two)
            )
            admin = Admin.from_connection_string(two.connection_string, connection_verify=str(sandbox.ca_file))
            options = SendAvailabilityPairedNamespaceOptions(
                secondary_client=secondary, secondary_admin=admin, backlog_queue_count=2, enable_syphon=True,
                primary_name="contoso",
                failover_interval=0.3, ping_primary_interval=1, ping_timeout=60, send_timeout=60,
            )
            async with await pair_namespaces(primary, options) as paired, paired.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage(b"x"))
                view = lambda: paired.entity_views()[0]
                boards = one.node.faults, two.node.faults
                for board in boards:
                    board.add("disconnected")
                ids = [board.add(fault).id for board, fault in zip(boards, faults)]
                while view().route != "nowhere" or view().refused < 10:
                    try:
                        await sender.send_messages(ServiceBusMessage(b"y"))
                    except Exception:
                        await asyncio.sleep(0.02)
                for board, id in zip(boards, ids):
                    board.remove(id)
                while view().state != "healthy" or not all(queue.in_rotation for queue in paired.queue_views()):
                    await asyncio.sleep(0.05)

    asyncio.run(main(sys.argv[1:]))
"""


OUTAGE = [
    r"WARNING\|paired_servicebus\.pairing\|orders is suspect: [a-z ]+; fails over in 0\.3 s unless a send succeeds",
    r"WARNING\|paired_servicebus\.pairing\|sends to orders are refused at their callers: [a-z ]+",
    r"WARNING\|paired_servicebus\.pairing\|orders failed over, sends go to the backlog: "
    r"no send accepted for 0\.3 s after .+",
    r"WARNING\|paired_servicebus\.pairing\|backlog queue 0 left the rotation: [a-z ]+",
    r"WARNING\|paired_servicebus\.pairing\|backlog queue 1 left the rotation: [a-z ]+",
    r"INFO\|paired_servicebus\.pairing\|backlog queue 0 is in the rotation again",
    r"INFO\|paired_servicebus\.pairing\|backlog queue 1 is in the rotation again",
    r"INFO\|paired_servicebus\.pairing\|orders failed back, sends go to the primary: a ping was accepted",
    r"INFO\|paired_servicebus\.pairing\|sends to orders are refused no longer: \d+ messages in [\d.]+ s \(.+ \d+\)",
]


def test_a_whole_outage_is_told_in_these_lines_and_in_no_traceback() -> None:
    """Nothing about a failover is silent: state changes, pulled queues, warnings and refused calls are logged by the
    library's logger."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), "refused", "refused"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert "Traceback" not in ended.stderr
    lines = re.findall(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\|.*", ended.stderr, re.MULTILINE)
    assert [line for line in lines if re.match(r"(WARNING|ERROR|CRITICAL)\|(?!paired_servicebus\.)", line)] == []
    ours = [line for line in lines if line.split("|")[1].startswith("paired_servicebus")]
    found = Counter(next((each for each in OUTAGE if re.fullmatch(each, line)), line) for line in ours)
    assert found == Counter(OUTAGE)


def note(log: EventLog, event: Event) -> None:
    """Pass an event as the pairing does."""
    write = log.writers.get(type(event))
    if write is not None:
        write(event)


def changed(was: str, now: str, at: float = 0.0, *, entity: str = "orders", why: str = "timeout") -> StateChanged:
    return StateChanged(at=at, entity=entity, was=was, now=now, why=why)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="paired_servicebus.pairing")
    return caplog


def test_an_entity_that_flaps_is_folded_and_its_last_state_is_written(
    said: pytest.LogCaptureFixture, approve: Approve
) -> None:
    log = EventLog(Policy(failover_interval=0))
    for second in range(0, 40, 2):
        note(log, changed("healthy", "suspect", second))
        note(log, changed("suspect", "healthy", second + 1, why="a send was accepted"))
    assert len(said.messages) == MAX_LINES
    log.tick(FOLD_SECONDS - 1)
    assert len(said.messages) == MAX_LINES
    log.tick(FOLD_SECONDS)
    assert said.messages[MAX_LINES:] == ["orders is healthy again: a send was accepted (and 33 more like it)"]
    log.tick(3 * FOLD_SECONDS)
    note(log, changed("healthy", "suspect", 3 * FOLD_SECONDS))
    approve.part(said.messages[-1], "errors of the library")


def test_300_entities_have_a_line_each(said: pytest.LogCaptureFixture) -> None:
    log = EventLog(Policy())
    for number in range(300):
        note(log, changed("suspect", "failed over", entity=f"orders-{number}"))
    assert len(set(said.messages)) == 300


def test_warnings_of_one_kind_are_one_line(said: pytest.LogCaptureFixture) -> None:
    log = EventLog(Policy())
    for number in range(10):
        note(log, Warned(at=0.0, about="secondary", text=f"the link to {number} is not open: not authorized"))
    assert said.messages == []
    log.tick(1.0)
    assert said.messages == ["secondary: the link to 0 is not open: not authorized (and 9 more like it)"]
    note(log, Warned(at=2.0, about="secondary", text="again"))
    log.tick(3.0)
    assert len(said.messages) == 1
    log.close()
    assert said.messages[1:] == ["secondary: again"]


def test_nothing_else_is_written_and_what_is_written_is_one_harmless_line(
    said: pytest.LogCaptureFixture, approve: Approve
) -> None:
    log = EventLog(Policy())
    note(log, PingFailed(at=0.0, entity="orders", number=1, reason="timeout", took=1.0))
    note(log, changed("unknown", "healthy"))
    assert said.messages == []
    note(log, QueuePulled(at=0.0, queue=3, reason="a\nb \x1b[2J" + "x" * 1000))
    (line,) = said.messages
    approve.part(line, "errors of the library", has=("3 left",))
    assert len(line) == event_log.MAX_CHARACTERS


async def test_a_misspelt_queue_whose_sends_succeed_is_named_once(world: World, said: pytest.LogCaptureFixture) -> None:
    paired = await world.pair(failover_interval=0)
    async with paired.get_queue_sender("ordres") as sender:
        for _ in range(3):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert world.parked() == 3
    named = [one for one in said.messages if "no such entity" in one]
    assert named == [
        "ordres failed over, sends go to the backlog: entity not found; check the name, the primary namespace has no "
        "such entity"
    ]


@pytest.mark.parametrize("quiet", [0.2, 60.0], ids=["after a quiet time", "when the pairing is closed"])
async def test_what_refused_calls_came_to_is_written_once(
    world: World, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, quiet: float
) -> None:
    monkeypatch.setattr(refused_calls, "EPISODE_GAP_SECONDS", quiet)

    def ends() -> int:
        return sum(
            "orders are refused no longer: 1 message in 0.1 s (not authorized 1)" in one for one in said.messages
        )

    paired = await world.pair()
    world.fault("unauthorized", entity="orders")
    with pytest.raises(ServiceBusError):
        await paired.get_queue_sender("orders").send_messages(ServiceBusMessage(b"x"))
    if quiet < 1:
        await until(ends)
    assert ends() == (quiet < 1)
    await paired.close()
    assert ends() == 1


async def test_records_of_links_that_the_pairing_judges_are_dropped_and_no_others() -> None:
    text = "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    async with (
        ServiceBusClient.from_connection_string(text) as ours,
        ServiceBusClient.from_connection_string(text) as theirs,
    ):
        register_client(ours)
        mine, own = ours.get_queue_receiver("q"), register_link(theirs.get_queue_sender("q"))
        foreign = theirs.get_queue_sender("q")
        for name in LOGGERS:
            logger = logging.getLogger(name)
            for link, level, passes in (
                (mine, logging.WARNING, False),
                (own, logging.ERROR, False),
                (own, logging.INFO, True),
                (foreign, logging.WARNING, True),
            ):
                extra = {"amqpConnection": link.client_identifier}
                record = logger.makeRecord(name, level, "f", 1, "text", (), None, extra=extra)
                assert bool(logger.filter(record)) is passes


# -- An outage prints nothing where an application has set up no logging.


QUIET_PROGRAM = """
    import asyncio, sys
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient as Admin
    from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces
    from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox

    async def main():
        specs = NamespaceSpec("contoso", queues=[QueueSpec("orders")]), NamespaceSpec("backup")
        async with Sandbox.start(specs) as sandbox:
            one, two = sandbox["contoso"], sandbox["backup"]
            primary, secondary = (ServiceBusClient.from_connection_string(n.connection_string) for n in (one, two))
            admin = Admin.from_connection_string(two.connection_string, connection_verify=str(sandbox.ca_file))
            options = SendAvailabilityPairedNamespaceOptions(
                secondary_client=secondary, secondary_admin=admin, backlog_queue_count=1, primary_name="contoso",
                failover_interval=0, ping_primary_interval=1, ping_timeout=1, send_timeout=1,
            )
            async with await pair_namespaces(primary, options) as paired, paired.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage(b"x"), timeout=60)
                one.node.faults.add(sys.argv[1])
                await sender.send_messages(ServiceBusMessage(b"y"))
                while paired.entity_views()[0].last_ping_good is None:
                    await asyncio.sleep(0.05)
        print("pinged")

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.real_time
def test_no_send_and_no_ping_of_an_outage_prints_anything() -> None:
    command = [sys.executable, "-c", textwrap.dedent(QUIET_PROGRAM), "black-holed"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "pinged\n", "")


def _client() -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    )


@pytest.mark.parametrize("ours", [False, True])
async def test_the_sdk_complains_of_links_that_it_has_no_time_to_close(
    ours: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's part is a contract: where it has changed, our part is needless."""
    async with _client() as client:
        sender = client.get_queue_sender("orders")
        if ours:
            keep_unopened(sender)
        await close_handler_for_cleanup(sender._close_handler(), time.monotonic() - 1)
    assert [record.message for record in caplog.records] == (
        [] if ours else ["Handler cleanup did not complete; preserving the original error."]
    )
