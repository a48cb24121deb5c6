"""The gateway of an engine: its start, its verbs, its check, what it keeps over restarts, and its end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from paired_servicebus import cli
from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.connection_string import complaint, is_emulated, parts_of
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.snapshot import FindingVerdict, TroubleKind
from paired_servicebus.engine.gateway import gateway_listener, gateway_tls, known_entities
from paired_servicebus.engine.gateway.gateway_keys import (
    GatewayRight,
    KeyRing,
    LocalKey,
    add_key,
    connection_string,
    keys_of,
    new_key,
    remove_key,
    rotate_keys,
    write_keys,
)
from paired_servicebus.engine.gateway.gateway_listener import (
    Gateway,
    GatewayPairingOptions,
    GatewayPart,
    NoGateway,
    open_gateway,
)
from paired_servicebus.engine.gateway.gateway_tls import GatewayCertificates
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions
from paired_servicebus.sections import gateway_options as gateway_options_module
from paired_servicebus.sections.gateway_options import GatewayOptions
from paired_servicebus.verbs import gateway_check, gateway_verb
from paired_servicebus.verbs.gateway_check import check_gateway
from servicebus_amqp.server import listener
from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import FaultTerms
from tests.approval import Approve
from tests.core.test_fleet_sentences import snapshot
from tests.pairing.backlogs import queue_path
from tests.pairing.conftest import TRUST, World, until
from tests.ports import free_port


@pytest.fixture
def places(tmp_path: Path) -> EnginePaths:
    return EnginePaths(state=tmp_path, socket=tmp_path / "sock")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack)


def part_of(places: EnginePaths, warn: Callable[[str], object] = str, **options: object) -> GatewayPart:
    part = open_gateway(GatewayOptions(**{"port": free_port()} | options), places, primary="contoso", warn=warn)  # type: ignore[arg-type]
    assert isinstance(part, GatewayPart)
    return part


def client_of(key: LocalKey, port: int) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(connection_string(key, port), retry_total=0, ssl_context=TRUST)


async def test_a_taken_port_is_an_alarm_until_it_is_free(places: EnginePaths, world: World) -> None:
    """What is away is an alarm, not an exit status."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        part = part_of(places, port=port)
        await world.stack.enter_async_context(part)
        await part.serve(await world.pair(backlog_queue_count=1))
        (alarm,) = [one.reason for one in part.troubles]
        assert f"127.0.0.1:{port} " in alarm
        assert alarm.endswith("choose another port in [gateway]")
        assert part.gateway is None
    await until(lambda: not part.troubles and part.gateway is not None)
    async with (
        client_of(keys_of(places.gateway_keys).keys[0], port) as client,
        client.get_queue_sender("orders") as one,
    ):
        await one.send_messages(ServiceBusMessage("x", message_id="later"))
    assert world.ids_in("orders") == ["later"]


async def test_more_ports_serve_the_same_and_one_that_cannot_be_had_is_a_warning(
    places: EnginePaths, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`emulator_port` and `standard_ports` are more ports; without one of them the others serve."""
    monkeypatch.setattr(gateway_options_module, "STANDARD_PORTS", (free_port(), free_port()))
    listen, forbidden = gateway_listener.listen, gateway_options_module.STANDARD_PORTS[1]

    def refuse(host: str, port: int, *, backlog: int) -> socket.socket:
        if port == forbidden:
            raise PermissionError(errno.EACCES, "Permission denied")
        return listen(host, port, backlog=backlog)

    monkeypatch.setattr(gateway_listener, "listen", refuse)
    part = part_of(places, emulator_port=free_port(), standard_ports=True)
    await world.stack.enter_async_context(part)
    await part.serve(await world.pair(backlog_queue_count=1))
    (trouble,) = part.troubles
    assert (trouble.kind, "CAP_NET_BIND_SERVICE" in trouble.reason) == (TroubleKind.PORT_IN_USE, True)
    for port in part._options.ports[:-1]:
        async with client_of(keys_of(places.gateway_keys).keys[0], port) as client:
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("x", message_id=str(port)))
    assert part.gateway is not None
    assert part.gateway.port == part._options.port
    assert world.ids_in("orders") == [str(port) for port in part._options.ports[:-1]]
    monkeypatch.setattr(gateway_listener, "listen", listen)
    await until(lambda: not part.troubles)


async def test_keys_that_cannot_be_made_in_the_engines_own_folder_are_an_alarm(tmp_path: Path, world: World) -> None:
    places = EnginePaths(state=tmp_path / "later", socket=tmp_path / "s")
    async with part_of(places) as part:
        await part.serve(await world.pair(backlog_queue_count=1))
        (alarm,) = [one.reason for one in part.troubles]
        assert "gateway.keys cannot be read or made: No such file or directory; or name another" in alarm
        places.prepare()
        await until(lambda: not part.troubles and part.gateway is not None)


async def test_a_client_of_the_first_moment_waits_in_the_port_and_is_served(places: EnginePaths, world: World) -> None:
    async with part_of(places) as part:
        view = part.add_to(snapshot()).gateway
        assert view is not None
        assert view.listens, "no operator reads that it does not listen"

        async def send() -> None:
            key = keys_of(places.gateway_keys).keys[0]
            async with client_of(key, part._options.port) as client, client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("early", message_id="early"))

        sent = asyncio.create_task(send())
        paired = await world.pair(backlog_queue_count=1)
        assert not sent.done()
        await part.serve(paired)
        await sent
    assert world.ids_in("orders") == ["early"]


async def test_what_is_in_the_way_of_a_gateway_is_an_alarm_or_an_error_with_a_remedy(
    places: EnginePaths, tmp_path: Path, approve: Approve
) -> None:
    """What is away is an alarm, not an exit status; a file of keys that the owner named is configuration."""
    with pytest.raises(ConfigurationError) as refused:
        await part_of(places, keys=tmp_path / "missing" / "k").__aenter__()
    said = [f"error: {refused.value}"]
    async with part_of(places, address="192.0.2.1") as part:
        said += [re.sub(r":\d+ ", ":PORT ", one.reason) for one in part.troubles]
    places.gateway_keys.write_text("not a file of keys")
    places.gateway_keys.chmod(0o644)
    async with part_of(places) as part:
        said += [part.troubles[0].reason]
    places.gateway_keys.chmod(0o600)
    async with part_of(places) as part:
        said += [part.troubles[0].reason]
    remedies = ("name another file", "choose the address in [gateway]", "chmod 600", "(JSONDecodeError): remove it")
    approve.part(said, "errors of the gateway", has=remedies)


async def test_the_start_makes_the_keys_and_keeps_those_that_there_are(places: EnginePaths) -> None:
    async with part_of(places):
        made = places.gateway_keys.read_bytes()
    async with part_of(places):
        assert places.gateway_keys.read_bytes() == made


async def test_an_engine_without_the_section_has_no_gateway(places: EnginePaths) -> None:
    assert type(open_gateway(None, places, primary="contoso", warn=str)) is NoGateway
    assert list(places.state.iterdir()) == []


async def test_senders_drain_before_their_connection_closes(places: EnginePaths, world: World) -> None:
    # "Stopping: senders drain for close_grace, then the connection closes"
    async with part_of(places) as part:
        paired = await world.pair(backlog_queue_count=1)
        await part.serve(paired)
        assert part.gateway is not None
        string = connection_string(keys_of(places.gateway_keys).keys[0], part.gateway.port)
        client = ServiceBusClient.from_connection_string(string, retry_total=0, ssl_context=TRUST)
        async with client, client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="first"))
            world.sandbox["primary"].node.faults.add("latency", terms=FaultTerms(delay_s=0.2))
            sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage(b"x", message_id="last")))
            await until(lambda: part.gateway is not None and part.gateway.in_hand.size > 0)
            await part.close(5.0)
            await sending
            await until(lambda: part.gateway is not None and not part.gateway.connections)
    assert world.ids_in("orders") == ["first", "last"]


async def test_a_rotated_key_ends_its_links_and_the_fresh_one_serves_immediately(
    places: EnginePaths, world: World
) -> None:
    warnings: list[str] = []
    async with part_of(places, warnings.append) as part:
        await part.serve(await world.pair(backlog_queue_count=1))
        assert part.gateway is not None
        port = part.gateway.port
        old = keys_of(places.gateway_keys).keys[0]
        other = add_key(places.gateway_keys, "other", old.rights).keys[1]
        stale, kept = client_of(old, port), client_of(other, port)
        async with stale, kept, stale.get_queue_sender("orders") as sender, kept.get_queue_sender("orders") as stays:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="before"))
            remove_key(places.gateway_keys, "gateway")
            add_key(places.gateway_keys, "gateway", old.rights)
            fresh = client_of(keys_of(places.gateway_keys).keys[1], port)
            async with fresh, fresh.get_queue_sender("orders") as new:  # no wait for the next look at the file
                await new.send_messages(ServiceBusMessage(b"x", message_id="after"))
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage(b"x", message_id="stale"))
            await stays.send_messages(ServiceBusMessage(b"x", message_id="other"))
        assert [warning for warning in warnings if old.key in warning] == []
        assert "their links end: gateway" in warnings[0]
    assert world.ids_in("orders") == ["before", "after", "other"]


async def test_a_running_engine_looks_at_its_keys_without_a_new_client(
    places: EnginePaths, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_listener, "LOOK_SECONDS", 0.01)
    warnings: list[str] = []
    async with part_of(places, warnings.append) as part:
        await part.serve(await world.pair(backlog_queue_count=1))
        rotate_keys(places.gateway_keys)
        await until(lambda: warnings)
        places.gateway_keys.chmod(0o640)
        await until(lambda: len(warnings) > 1)
        await asyncio.sleep(0.05)
    assert "their links end: gateway" in warnings[0]
    assert "the earlier ones stay in force" in warnings[1]
    assert len(warnings) == 2


def test_the_gateways_own_times_are_no_reason_for_a_warning() -> None:
    options = {"secondary_admin": None, "secondary_client": None, "hold_until_failover": True, "send_timeout": 10.0}
    assert SendAvailabilityPairedNamespaceOptions(**options).policy().remarks  # type: ignore[arg-type]
    policy = GatewayPairingOptions(**options).policy()  # type: ignore[arg-type]
    assert (policy.remarks, policy.send_timeout, policy.hold_until_failover) == ((), 10.0, True)


# -- `paired gateway`: whole connection strings, and changes of the keys ---------------------------------------------

Run = Callable[..., tuple[int, str, str]]
NAMESPACE = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry=;UseDevelopmentEmulator=true"
FILE = f"""
[pairing]
name = "orders"
[primary]
connection_string = "{NAMESPACE}"
[secondary]
connection_string = "{NAMESPACE}"
"""


@pytest.fixture
def paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line over a pairing.toml with a gateway: exit status, standard output and error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    config = tmp_path / "pairing.toml"
    config.write_text(f"{FILE}[gateway]\nport = 5680\n")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["gateway", "--config", str(config), *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def strings(out: str) -> dict[str, str]:
    return {parts_of(line)["sharedaccesskeyname"]: line for line in out.splitlines()}


def test_it_prints_the_whole_string_so_that_nobody_assembles_it(paired: Run) -> None:
    status, out, err = paired()
    assert status == 0
    parts = parts_of(out.strip())
    assert not complaint(parts)
    assert is_emulated(parts)
    assert parts["endpoint"] == "sb://127.0.0.1:5680"
    assert err == "gateway: Listen, Send\nno engine of orders runs here: start one with paired up\n"
    assert paired()[1] == out, "the same string, however often it is asked for"
    places = engine_paths("orders")
    places.prepare()
    fd = acquire(places.lock, LockHolder(pid=os.getpid(), socket="-", log="-"))
    assert "no engine" not in paired()[2]
    os.close(fd)


def test_it_prints_the_authority_of_its_tls_and_keeps_it(paired: Run) -> None:
    status, out, _ = paired("--ca")
    assert status == 0
    assert ssl.create_default_context(cadata=out).get_ca_certs()[0]["subject"] == (
        (("commonName", "Paired Gateway Authority"),),
    )
    assert paired("--ca")[1] == out
    folder = engine_paths("orders").gateway_keys.with_name("gateway.tls") / "127.0.0.1"
    assert {each.name for each in folder.iterdir()} == {"ca.pem", "server.pem", "server.key"}
    assert (folder / "server.key").stat().st_mode & 0o777 == 0o600
    (folder / "server.pem").write_text("damaged")
    assert paired("--ca")[1] != out


def test_with_standard_ports_the_string_has_neither_port_nor_flag(paired: Run, tmp_path: Path) -> None:
    config = tmp_path / "pairing.toml"
    config.write_text(
        config.read_text().replace("[gateway]", "[gateway]\nstandard_ports = true\naddress = '127.0.0.5'")
    )
    parts = parts_of(paired()[1].strip())
    assert (parts["endpoint"], is_emulated(parts)) == ("sb://127.0.0.5/", False)


@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.5", "localhost resolves to "), ("127.0.0.1", ""), ("0.0.0.0", "")],
)
def test_a_host_that_leads_elsewhere_is_reported(
    paired: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    """`paired gateway` reports a `host` that leads elsewhere on its machine."""
    found = [(None, None, None, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(listener.socket, "getaddrinfo", lambda *_, **__: found)
    config = tmp_path / "pairing.toml"
    more = "\nallow_other_hosts = true" if address == "0.0.0.0" else ""
    text = config.read_text().replace("[gateway]", f"[gateway]\nhost = 'localhost'\naddress = '{address}'{more}")
    config.write_text(text)
    status, string, said = paired()
    assert (status, "Endpoint=sb://localhost" in string) == (0, True)
    assert (words in said, "hosts file" in said) == (True, bool(words))


def test_certificates_that_end_soon_are_made_anew_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gateway_tls, "LIFETIME", timedelta(days=29))
    first = GatewayCertificates(tmp_path / "tls", "::1", warn=said.append).authority()
    assert said == []
    monkeypatch.undo()
    assert GatewayCertificates(tmp_path / "tls", "::1", warn=said.append).authority() != first
    assert "clients need what 'paired gateway --ca' prints now" in said[0]


def test_rotating_changes_the_keys_and_nothing_else(paired: Run) -> None:
    (old,), (new,) = paired()[1].splitlines(), paired("--rotate")[1].splitlines()
    assert parts_of(old).pop("sharedaccesskey") != parts_of(new).pop("sharedaccesskey")
    assert {**parts_of(old), "sharedaccesskey": ""} == {**parts_of(new), "sharedaccesskey": ""}
    assert paired()[1].splitlines() == [new]


def test_keys_are_added_with_their_rights_and_removed(paired: Run) -> None:
    first = strings(paired()[1])
    both = strings(paired("--add", "web", "--rights", "send")[1])
    assert list(both) == ["gateway", "web"]
    assert both["gateway"] == first["gateway"]
    listed = json.loads(paired("--json")[1])
    assert [(key["name"], key["rights"]) for key in listed["keys"]] == [
        ("gateway", ["Listen", "Send"]),
        ("web", ["Send"]),
    ]
    assert listed["keys"][1]["connection_string"] == both["web"]
    assert (listed["address"], listed["port"], listed["running"]) == ("127.0.0.1", 5680, False)
    assert list(strings(paired("--remove", "gateway")[1])) == ["web"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rotate", "--remove", "gateway"), "choose one of them"),
        (("--rights", "Send"), "name it with --add"),
        (("--add", "web", "--rights", "Send,Own"), "Own is not a right; --rights lists Send, Listen, Manage"),
        (("--add", "a;b"), "1 to 64 letters"),
        (("--add", "GATEWAY"), "already"),
        (("--remove", "web"), "no key named web; there are gateway"),
        (("--remove", "gateway"), "the only key"),
    ],
)
def test_a_mistake_changes_nothing_and_gets_a_sentence(paired: Run, arguments: tuple[str, ...], words: str) -> None:
    before = paired()[1]
    status, out, err = paired(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert paired()[1] == before


def test_without_the_section_it_says_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = tmp_path / "pairing.toml"
    config.write_text(FILE)
    assert cli.main(["gateway", "--config", str(config)]) == 2
    assert "add the line [gateway]" in capsys.readouterr().err
    assert not (tmp_path / "paired").exists()


def test_it_makes_no_keys_that_a_service_would_never_read(
    paired: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "orders.sock"
    socket.touch()
    service = EnginePaths(state=tmp_path / "orders", socket=socket, is_service=True)
    monkeypatch.setattr(gateway_verb, "local_engines", lambda: (service,))
    status, out, err = paired()
    assert (status, out) == (2, "")
    assert f'keys = "FILE" to [gateway], and run this as {socket.owner()}' in err
    assert not (tmp_path / "paired").exists()
    with (tmp_path / "pairing.toml").open("a") as file:
        file.write('keys = "keys"\n')
    status, out, err = paired()
    assert (status, "no engine" in err) == (0, False)
    assert len(out.splitlines()) == 1


# -- `paired check` sends a ping through the gateway, and no message to an entity of the user ------------------------

PINGED = f"""
[pairing]
name = "orders"
entities = ["Orders"]
[primary]
connection_string = "{NAMESPACE}"
[secondary]
connection_string = "{NAMESPACE}"
[gateway]
"""


class Setting:
    def __init__(self, world: World, paired: PairedServiceBusClient, gateway: Gateway, places: EnginePaths) -> None:
        self.world = world
        self.paired = paired
        self.places = places
        self.options = GatewayOptions(port=gateway.port)
        (places.state / "pairing.toml").write_text(PINGED)
        self.config: PairingConfig = load_config(places.state / "pairing.toml")

    async def check(self) -> tuple[FindingVerdict, str]:
        found = await check_gateway(self.config, self.options, self.places)
        return found.verdict, found.evidence


@pytest.fixture
async def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "sock")
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(backlog_queue_count=1)
        paired.watch("orders")
        gateway = Gateway(paired, keys_of(places.gateway_keys))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)

        async def first_snapshot(_: Path) -> Any:
            return SimpleNamespace(entities=paired.entity_views())

        monkeypatch.setattr(gateway_check, "find_socket", lambda places: places.socket)
        monkeypatch.setattr(gateway_check, "first_snapshot", first_snapshot)
        yield Setting(world, paired, gateway, places)


@pytest.mark.parametrize(("ping", "sends"), [("message", 1), ("link", 0)])
async def test_a_ping_or_a_link_goes_through_and_no_entity_of_the_user_gets_a_message(
    setting: Setting, approve: Approve, ping: str, sends: int
) -> None:
    # "paired check sends one through it"
    setting.config = replace(setting.config, policy=replace(setting.config.policy, ping=ping))
    verdict, evidence = await setting.check()
    assert (verdict, setting.paired.billed().sends) == (FindingVerdict.OK, sends)
    approve.part(re.sub(r"\d+ ms", "N ms", evidence), "errors of the gateway", has=("Orders", " ms"))
    assert setting.world.ids_in("orders") == []


async def test_no_ping_is_parked_in_the_backlog(setting: Setting) -> None:
    setting.paired.force("orders", by="kim")
    assert (await setting.check())[0] is FindingVerdict.UNKNOWN
    assert setting.world.depth("primary/x-servicebus-transfer/0", namespace="secondary") == 0


async def test_a_gateway_that_does_not_let_a_client_send_is_a_no(setting: Setting) -> None:
    write_keys(setting.places.gateway_keys, [new_key("gateway", [GatewayRight.SEND])])  # the running one has others
    verdict, evidence = await setting.check()
    assert verdict is FindingVerdict.NO
    assert "a client cannot send to Orders" in evidence
    setting.options = GatewayOptions(port=1)
    assert (await setting.check())[0] is FindingVerdict.NO
    write_keys(setting.places.gateway_keys, [new_key("reader", [GatewayRight.LISTEN])])
    found = await check_gateway(setting.config, setting.options, setting.places)
    assert (found.verdict, found.todo) == (FindingVerdict.WARN, "paired gateway --add NAME --rights Send")


# -- The primary's entities, kept over restarts: for clients that connect while the primary is away ------------------

KEY = new_key("web", [GatewayRight.SEND])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.entities"


def reopened(path: Path, primary: str = "contoso") -> tuple[KnownEntities, list[str]]:
    warnings: list[str] = []
    known = KnownEntities(path, primary=primary, warn=warnings.append)
    known.read()
    return known, warnings


def test_what_was_seen_is_known_after_a_restart_in_any_case(path: Path) -> None:
    known, _ = reopened(path)
    known.note("Orders", (1_048_576, 262_144))
    known.note("gone", (1, 1))
    known.forget("GONE")
    known.write()
    again, warnings = reopened(path)
    assert again.limits("orders") == again.limits("ORDERS") == (1_048_576, 262_144)
    assert again.limits("gone") is None
    assert reopened(path, primary="elsewhere")[0].limits("orders") is None, "those of another primary do not count"
    assert warnings == []
    assert not again.is_changed


def test_the_file_is_written_only_if_it_lacks_something(path: Path) -> None:
    known, _ = reopened(path)
    known.write()
    assert not path.exists()
    known.note("orders", (1, 1))
    known.write()
    before = path.stat().st_ino
    known.note("orders", (1, 1))
    known.write()
    assert path.stat().st_ino == before


def test_there_is_a_bound_and_the_oldest_leaves(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_entities, "MAX_ENTITIES", 2)
    known, _ = reopened(path)
    for name in ("a", "b", "c"):
        known.note(name, (1, 1))
    assert [known.limits(name) is not None for name in ("a", "b", "c")] == [False, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"primary": "contoso", "entities": {"orders": [1]}}',
        '{"primary": "contoso", "entities": {"orders": [0, 1]}}',
        '{"primary": "contoso", "entities": {"orders": [1, 99999999999]}}',
        '{"primary": "contoso", "entities": {"a//b\\u0000": [1, 1]}}',
        '{"primary": "contoso", "entities": {}, "more": 1}',
        json.dumps({"primary": "contoso", "entities": {f"e{index}": [1, 1] for index in range(10_001)}}),
        "[" * 100_000,
    ],
    ids=["empty", "list", "short", "none", "huge", "path", "more", "many", "deep"],
)
def test_a_strangers_file_is_not_used_and_named_once(path: Path, text: str) -> None:
    path.write_text(text)
    known, warnings = reopened(path)
    assert known.limits("orders") is None
    assert len(warnings) == 1
    assert str(path) in warnings[0]


async def test_while_the_primary_is_away_only_an_entity_that_was_seen_before_is_served(world: World) -> None:
    # "primary away: accepted if configured or seen before, else refused with com.microsoft:timeout"
    known = KnownEntities()
    known.note("orders", (262_144, 262_144))
    paired = await world.pair(backlog_queue_count=1, send_timeout=1.0, failover_interval=0.3, hold_until_failover=True)
    gateway = Gateway(paired, KeyRing([KEY]), known=known)
    await gateway.listen(0)
    world.stack.push_async_callback(gateway.close, 0.1)
    world.fault("refused")
    client = await world.stack.enter_async_context(
        ServiceBusClient.from_connection_string(gateway.connection_string(KEY), retry_total=0, ssl_context=TRUST)
    )
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="parked"))
    assert world.ids_in(queue_path(0), namespace="secondary") == ["parked"]
    with pytest.raises(OperationTimeoutError):
        await client.get_queue_sender("payments").__aenter__()


async def test_an_entity_that_a_client_found_is_noted_and_a_deleted_one_forgotten(world: World) -> None:
    known = KnownEntities()
    known.note("nowhere", (1, 1))
    paired = await world.pair(backlog_queue_count=1)
    gateway = Gateway(paired, KeyRing([KEY]), known=known)
    await gateway.listen(0)
    world.stack.push_async_callback(gateway.close, 0.1)
    client = await world.stack.enter_async_context(
        ServiceBusClient.from_connection_string(gateway.connection_string(KEY), retry_total=0, ssl_context=TRUST)
    )
    await client.get_queue_sender("orders").__aenter__()
    assert known.limits("orders") == paired.get_encoded_sender("orders").limits
    with pytest.raises(Exception, match="nowhere"):
        await client.get_queue_sender("nowhere").__aenter__()
    assert known.limits("nowhere") is None
