"""The pytest plugin as a stranger uses it: in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servicebus_sandbox import ListenError, NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.pytest_plugin import sandbox_on_a_thread

ROOT = Path(__file__).parents[2]
THEIR_TESTS = """
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient

from servicebus_sandbox import NamespaceSpec, QueueSpec


def test_synchronous(servicebus_sandbox):
    text = servicebus_sandbox["primary"].connection_string
    with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with ServiceBusClient.from_connection_string(text) as client, client.get_queue_receiver("orders") as receiver:
        assert [str(message) for message in receiver.receive_messages(5, max_wait_time=2)] == ["x"]


class TestOwnNamespaces:
    @pytest.fixture
    def servicebus_namespaces(self):
        return [NamespaceSpec("mine", queues=[QueueSpec("only")])]

    async def test_asynchronous(self, servicebus_sandbox):
        (mine,) = servicebus_sandbox.namespaces
        async with AsyncClient.from_connection_string(mine.connection_string) as client:
            async with client.get_queue_sender("only") as sender:
                await sender.send_messages(ServiceBusMessage("x"))
            async with client.get_queue_receiver("only") as receiver:
                assert len(await receiver.receive_messages(5, max_wait_time=2)) == 1


class TestMistake:
    @pytest.fixture
    def servicebus_namespaces(self):
        return [NamespaceSpec("twice"), NamespaceSpec("twice")]

    def test_it_is_told(self, request):
        with pytest.raises(ValueError, match="names of their own"):
            request.getfixturevalue("servicebus_sandbox")
"""


def test_in_a_pytest_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TESTS)
    plugins = ("servicebus_sandbox.pytest_plugin", "pytest_asyncio.plugin", "no:cacheprovider")
    asked = [f"-p{name}" for name in plugins]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-Werror", "-oasyncio_mode=auto", *asked, str(tmp_path)],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_nothing_is_left_behind() -> None:
    with sandbox_on_a_thread([NamespaceSpec("mine", queues=(QueueSpec("q"),))]) as sandbox:
        folder, mine = sandbox.ca_file.parent, sandbox["mine"]
        assert isinstance(sandbox, Sandbox)
        assert folder.exists()
    assert not folder.exists()
    with (
        pytest.raises(ListenError),
        sandbox_on_a_thread([NamespaceSpec("a", port=mine.amqp_port), NamespaceSpec("b", port=mine.amqp_port)]),
    ):
        pass


def test_loading_it_loads_no_server() -> None:
    servers = "{'aiohttp', 'cryptography', 'azure'}"
    call = f"import sys, servicebus_sandbox.pytest_plugin; print(sorted(set(sys.modules) & {servers}))"
    ran = subprocess.run([sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
