"""An application without asyncio that pairs with `control=True` is an engine, on the pairing's thread."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import MessageReceived
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import local_engines, query_engines
from paired_servicebus.engine.instance.engine_paths import engine_paths
from tests.journal_files import read_records

from .test_sync import pair


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where engines of this test are; a socket's path may have some hundred characters."""
    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield Path(folder)


async def forced(entity: str) -> str:
    """What a console does: it finds the engine, looks at it and gives an order; where the engine was found."""
    (places,) = local_engines()
    (standing,) = await query_engines([places])
    assert standing.snapshot is not None
    assert (standing.snapshot.own_process, standing.snapshot.environment) == (False, "test")
    client = await ControlClient.connect(places.socket)
    await client.order("force", targets=(entity,), by="ada", typed=entity)
    await client.close()
    return places.name


def test_a_console_lists_and_commands_it_until_it_is_closed(servicebus_sandbox: Any, short: Path) -> None:
    with pair(servicebus_sandbox, control=True, environment="test") as paired:
        paired.watch("orders")
        assert asyncio.run(forced("orders")) == "primary"
        assert paired.entity_views()[0].state is State.FORCED
    assert local_engines() == ()
    assert "servicebus-pairing" not in [thread.name for thread in threading.enumerate()]
    kinds = [record.event.kind for record in read_records(engine_paths("primary").spool)]
    assert (kinds[0], kinds[-1]) == ("engine-started", "engine-stopped")


def test_each_message_that_a_blocking_receiver_gets_is_in_the_journal(servicebus_sandbox: Any, short: Path) -> None:
    """`record_received`, for an application without asyncio."""
    with pair(servicebus_sandbox, control=True, record_received=True) as paired:
        with paired.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(b"x", message_id=name) for name in ("one", "two")])
        with paired.get_queue_receiver("orders") as receiver:
            receiver.complete_message(*receiver.receive_messages(1, max_wait_time=5))
            receiver.complete_message(next(receiver))
    received = [record.event for record in read_records(engine_paths("primary").spool)]
    assert [one.message_id for one in received if isinstance(one, MessageReceived)] == ["one", "two"]


PROGRAM = """
    import sys
    from paired_servicebus.engine.control.discovery import local_engines
    from paired_servicebus.sync import Namespace, pair_namespaces

    trust = {"connection_verify": sys.argv[3]}
    primary, secondary = (Namespace.from_connection_string(text, options=trust) for text in sys.argv[1:3])
    paired = pair_namespaces(primary, secondary, control=True, primary_name="primary", backlog_queue_count=1)
    print([places.name for places in local_engines()])
"""


def test_one_left_open_ends_with_the_program(servicebus_sandbox: Any, short: Path) -> None:
    sandbox = servicebus_sandbox
    namespaces = [sandbox[name].connection_string for name in ("primary", "secondary")]
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *namespaces, str(sandbox.ca_file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    assert (ended.returncode, ended.stdout.strip()) == (0, "['primary']"), ended.stderr
    assert local_engines() == ()
    assert [record.event.kind for record in read_records(engine_paths("primary").spool)][-1] == "engine-stopped"
