"""A whole sandbox, in this process and as one of its own, used with the SDK over one connection string."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from tests.ports import free_port

from servicebus_amqp.server.listener import name_remark
from servicebus_sandbox import (
    ListenError,
    NamespaceSpec,
    QueueSettings,
    QueueSpec,
    Sandbox,
    SubscriptionSpec,
    TopicSpec,
    specs,
)
from servicebus_sandbox.sandbox_command import run_sandbox
from servicebus_sandbox.serving import process_settings
from servicebus_sandbox.serving.process_settings import is_loopback

ROOT = Path(__file__).parents[2]
SOON = 60.0


async def send_and_receive(connection_string: str, queue: str) -> str:
    """One message there and back."""
    async with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=5) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("hello"))
        (message,) = await receiver.receive_messages(1)
        await receiver.complete_message(message)
        return str(message)


async def queue_names(connection_string: str, ca_file: object, **options: Any) -> list[str]:
    client = ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=str(ca_file), **options
    )
    async with client:
        return [queue.name async for queue in client.list_queues()]


async def test_one_connection_string_serves_messaging_and_management(sandbox: Sandbox) -> None:
    primary = sandbox["primary"]
    async with asyncio.timeout(SOON):
        assert await queue_names(primary.connection_string, sandbox.ca_file) == ["orders", "payments"]
        assert await send_and_receive(primary.connection_string, "orders") == "hello"
    assert primary.node.namespace.queue("orders").counts().total == 0


async def test_messaging_over_tls(sandbox: Sandbox) -> None:
    primary = sandbox["primary"]
    plain = primary.connection_string.replace(";UseDevelopmentEmulator=true", "")
    address = f"sb://127.0.0.1:{primary.amqp_port}"
    client = ServiceBusClient.from_connection_string(
        plain,
        custom_endpoint_address=address,
        connection_verify=str(sandbox.ca_file),
        transport_type=TransportType.Amqp,
        retry_total=0,
    )
    async with asyncio.timeout(SOON), client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("secret"))
    assert primary.node.namespace.queue("orders").counts().active == 1


async def test_the_default_pair(sandbox: Sandbox) -> None:
    primary, secondary = (sandbox[name].node.namespace for name in ("primary", "secondary"))
    assert [queue.path for queue in primary.queues()] == ["orders", "payments"]
    assert primary.queue("payments").settings.requires_session
    assert [topic.path for topic in primary.topics()] == ["audit"]
    assert [subscription.name for subscription in primary.subscriptions("audit")] == ["all"]
    assert secondary.queues() == secondary.topics() == []
    assert sandbox["primary"].key != sandbox["secondary"].key


async def test_the_standard_ports_serve_every_protocol_by_the_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ports = free_port(), free_port(), free_port()
    monkeypatch.setattr(specs, "STANDARD_PORTS", ports)
    resolve, known = socket.getaddrinfo, {"bus.example": "127.0.0.3"}
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *more, **terms: resolve(known.get(host, host), *more, **terms)
    )
    spec = NamespaceSpec("a", queues=(QueueSpec("q"),), address="127.0.0.3", host="bus.example", standard_ports=True)
    async with asyncio.timeout(SOON), Sandbox.start([spec]) as sandbox:
        (namespace,) = sandbox.namespaces
        assert namespace.standard_connection_string is not None
        assert namespace.standard_connection_string.startswith("Endpoint=sb://bus.example/;SharedAccessKeyName=Root")
        for port in ports:
            string = namespace.standard_connection_string.replace("example/", f"example:{port}")
            assert await queue_names(string, sandbox.ca_file) == ["q"]
            assert await send_and_receive(f"{string};UseDevelopmentEmulator=true", "q") == "hello"
    assert "hosts" not in caplog.text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "does not resolve"),
        (["20.1.2.3"], "resolves to 20.1.2.3"),
        (["127.0.0.2", "20.1.2.3"], "resolves to 127.0.0.2, 20.1.2.3"),
        (["127.0.0.2"], None),
    ],
)
def test_a_name_that_leads_elsewhere_is_reported(
    monkeypatch: pytest.MonkeyPatch, found: list[str], words: str | None
) -> None:
    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        if not found:
            raise socket.gaierror("unknown")
        return [(None, None, None, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    remark = name_remark("a.example", "127.0.0.2")
    rest = "on this machine: write the line '127.0.0.2 a.example' into the hosts file of each client"
    assert remark == (words and f"a.example {words} {rest}")


async def test_ports_without_the_capability_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(ListenError) as caught:
        async with Sandbox.start([NamespaceSpec("a", standard_ports=True)]):
            pass
    assert str(caught.value) == (
        "namespace 'a' cannot listen on 127.0.0.1:5672 (Permission denied); ports below 1024 need the capability "
        "CAP_NET_BIND_SERVICE, or the setting net.ipv4.ip_unprivileged_port_start=443"
    )


async def test_other_namespaces(sandbox: Sandbox) -> None:
    del sandbox
    spec = NamespaceSpec(
        "mine",
        queues=(QueueSpec("a/b", QueueSettings(max_delivery_count=2)),),
        topics=(TopicSpec("t", (SubscriptionSpec("s"),)),),
    )
    async with Sandbox.start([spec]) as other:
        namespace = other["mine"].node.namespace
        assert namespace.queue("a/b").settings.max_delivery_count == 2
        assert [subscription.name for subscription in namespace.subscriptions("t")] == ["s"]
        with pytest.raises(KeyError, match="no namespace 'primary'; there are mine"):
            other["primary"]


async def test_no_key_is_shown(sandbox: Sandbox) -> None:
    primary = sandbox["primary"]
    assert primary.key in primary.connection_string
    assert primary.key not in repr(sandbox)


async def test_nothing_is_left_behind() -> None:
    async with Sandbox.start() as sandbox:
        primary, folder = sandbox["primary"], sandbox.ca_file.parent
        reader, writer = await asyncio.open_connection("127.0.0.1", primary.amqp_port)
        writer.write(b"AMQP\x03\x01\x00\x00")
        await reader.readexactly(8)
        primary.node.faults.add("black-holed")
        swallowed, other_writer = await asyncio.open_connection("127.0.0.1", primary.amqp_port)
        other_writer.write(b"AMQP\x03\x01\x00\x00")
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", primary.amqp_port)
    assert len(asyncio.all_tasks()) == 1
    for stream in (reader, swallowed):
        with suppress(ConnectionResetError):
            await stream.read()  # to the end, which comes
        assert stream.at_eof() or stream.exception()
    for each in (writer, other_writer):
        each.close()


async def test_two_namespaces_of_one_name() -> None:
    with pytest.raises(ValueError, match="names of their own"):
        async with Sandbox.start([NamespaceSpec("a"), NamespaceSpec("a")]):
            pass


async def test_a_taken_port_leaves_nothing_half_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        specs = [NamespaceSpec("first"), NamespaceSpec("second", port=taken.getsockname()[1])]
        with pytest.raises(ListenError, match="namespace 'second' cannot listen"):
            async with asyncio.timeout(SOON), Sandbox.start(specs):
                pass
    assert list(tmp_path.iterdir()) == []
    assert len(asyncio.all_tasks()) == 1


# ---------------------------------------------------------------------- a process of its own


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    load = "import sys; from servicebus_sandbox.sandbox_command import run_sandbox"
    call = f"{load}; sys.exit(run_sandbox({', '.join(arguments)}))"
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", call, cwd=ROOT, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(SOON):
            yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def first_line(running: asyncio.subprocess.Process) -> dict[str, Any]:
    assert running.stdout is not None
    line: dict[str, Any] = json.loads(await running.stdout.readline())
    return line


async def test_a_process_tells_serves_and_ends() -> None:
    async with process("json_line=True") as running:
        told = await first_line(running)
        assert list(told) == ["namespaces", "ca_file", "control_url", "arm_url", "identities"]
        assert [namespace["name"] for namespace in told["namespaces"]] == ["primary", "secondary"]
        primary = told["namespaces"][0]
        assert list(primary) == [
            *("name", "connection_string", "standard_connection_string"),
            *("host", "amqp_port", "admin_url", "key_name", "key"),
        ]
        assert primary["admin_url"] == f"https://127.0.0.1:{primary['amqp_port']}"
        assert await queue_names(primary["connection_string"], told["ca_file"]) == ["orders", "payments"]
        running.send_signal(signal.SIGINT)
        rest, errors = await running.communicate()
        assert (running.returncode, rest, errors) == (0, b"", b"")
        assert not Path(told["ca_file"]).parent.exists()


async def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Sandbox.start([]) as living, process("json_line=True") as running:
        left = Path((await first_line(running))["ca_file"]).parent
        running.kill()
        await running.wait()
        assert set(tmp_path.iterdir()) == {living.ca_file.parent, left}
        async with Sandbox.start([]) as next_one:
            assert set(tmp_path.iterdir()) == {living.ca_file.parent, next_one.ca_file.parent}
        assert living.ca_file.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command writes to stderr when it ends with the status 2, in this process."""
    monkeypatch.setattr(process_settings, "allow_open_files", lambda: None)

    def run(**options: Any) -> str:
        status = run_sandbox(json_line=True, **options)
        told = capsys.readouterr()
        assert (status, told.out) == (2, "")
        return told.err

    return run


@pytest.mark.parametrize(
    ("option", "who"), [("secondary_port", "namespace 'secondary'"), ("control_port", "the control URL")]
)
def test_a_taken_port_is_one_sentence(refusal: Callable[..., str], option: str, who: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refusal(**{option: port}) == (
            f"paired sandbox: {who} cannot listen on 127.0.0.1:{port} (Address already in use); "
            "choose another port, or 0 for any that is free\n"
        )


async def test_a_process_for_a_file_and_for_people(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.toml"
    file.write_text('[[namespace]]\nname = "mine"\nqueues = ["a/b", "c"]\n')
    async with process("json_line=False", f"config=__import__('pathlib').Path({str(file)!r})") as running:
        assert running.stdout is not None
        name, connection_string = (await running.stdout.readline()).decode().split()
        assert (name, await send_and_receive(connection_string, "a/b")) == ("mine", "hello")
        running.terminate()
        assert await running.wait() == 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({}, "s.toml, namespace 'mine': there is nothing called queue here; did you mean queues?"),
        ({"primary_port": 7}, "with --config, ports belong in the file: write port = … or standard_ports = true under"),
    ],
)
def test_a_wrong_file_is_one_sentence(
    refusal: Callable[..., str], tmp_path: Path, more: dict[str, int], sentence: str
) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[[namespace]]\nname = "mine"\nqueue = []\n')
    told = refusal(config=file, **more)
    assert told.startswith("paired sandbox: ")
    assert sentence in told
    assert told.count("\n") == 1


async def test_a_process_that_others_can_reach_says_so_loudly() -> None:
    async with process("json_line=True", "listen='0.0.0.0'") as running:
        told = await first_line(running)
        assert told["namespaces"][0]["connection_string"].startswith("Endpoint=sb://127.0.0.1:")
        assert told["control_url"].startswith("http://127.0.0.1:")
        assert await queue_names(told["namespaces"][0]["connection_string"], told["ca_file"]) == ["orders", "payments"]
        running.terminate()
        _, errors = await running.communicate()
    assert errors.startswith(
        b"paired sandbox: WARNING: the namespaces listen on 0.0.0.0: any host that reaches this machine"
    )
    assert errors.count(b"\n") == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_what_is_loopback(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.1", "myhost"])
def test_what_is_not(address: str) -> None:
    assert not is_loopback(address)


async def test_another_loopback_address_is_no_reason_to_shout(caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox.start([NamespaceSpec("a", queues=(QueueSpec("q"),))], listen="127.0.0.7") as sandbox:
        assert sandbox["a"].admin_url.startswith("https://127.0.0.7:")
        assert await send_and_receive(sandbox["a"].connection_string, "q") == "hello"
        assert await queue_names(sandbox["a"].connection_string, sandbox.ca_file) == ["q"]
    assert not [record for record in caplog.records if record.name.startswith("servicebus_sandbox")]


async def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ListenError, match=r"namespace 'a' cannot listen on 203\.0\.113\.1:0"):
        async with Sandbox.start([NamespaceSpec("a")], listen="203.0.113.1"):
            pass


async def test_a_renewed_sandbox_is_as_at_its_start(sandbox: Sandbox) -> None:
    addresses = [(each.name, each.connection_string) for each in sandbox.namespaces]
    await send_and_receive(sandbox["primary"].connection_string, "orders")
    sandbox["primary"].node.namespace.delete("orders")
    sandbox["primary"].node.faults.add("refused")
    sandbox.advance(3600)
    await sandbox.end("secondary")
    old = sandbox["primary"].node
    await sandbox.renew()
    assert [(each.name, each.connection_string) for each in sandbox.namespaces] == addresses
    assert not old.connections
    assert sandbox["primary"].node.clock() == pytest.approx(sandbox["primary"].node.time_of_day(), abs=1)
    assert await send_and_receive(sandbox["primary"].connection_string, "orders") == "hello"
    assert await queue_names(sandbox["primary"].connection_string, sandbox.ca_file) == ["orders", "payments"]


async def test_resource_manager_serves_the_renewed_namespaces(sandbox: Sandbox) -> None:
    await sandbox.renew()
    await sandbox.renew()
    url = f"{sandbox.arm_url}/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/secondary"
    async with aiohttp.ClientSession() as session:
        wanted = {"role": "Data Owner", "scope": "https://management.azure.com/.default"}
        async with session.post(f"{sandbox.control_url}/tokens", json=wanted) as answer:
            token = (await answer.json())["token"]
        tls = ssl.create_default_context(cafile=sandbox.ca_file)
        headers = {"Authorization": f"Bearer {token}"}
        queue = f"{url}/queues/made?api-version=2021-11-01"
        async with session.put(queue, json={"properties": {}}, headers=headers, ssl=tls) as answer:
            assert answer.status == 200, await answer.text()
    assert [each.path for each in sandbox["secondary"].node.namespace.queues()] == ["made"]
