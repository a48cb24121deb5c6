"""The emulator with Microsoft's own clients: its ports, its key and its administration, as in their samples."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient as SyncServiceBusClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from hypothesis import given
from hypothesis import strategies as st
from tests.ports import free_port

from servicebus_amqp.encoding.frames import SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.performatives import SaslInit, write_performative
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.__main__ import main
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.subscription_rules.rules import CorrelationFilter, SqlAction, SqlFilter, TrueFilter
from servicebus_sandbox.emulator.config_file import default_namespace, load_config
from servicebus_sandbox.emulator.emulator_host import Emulator
from servicebus_sandbox.serving import process_settings
from servicebus_sandbox.serving.process_settings import PUBLIC_KEY
from servicebus_sandbox.spec_file import load_sandbox
from servicebus_sandbox.specs import SandboxConfigError

WAIT = 60
KEY = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={PUBLIC_KEY};UseDevelopmentEmulator=true;"


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator.start(default_namespace(), amqp_port=0, http_port=0) as running:
        yield running


def admin_of(emulator: Emulator, connection_string: str = "") -> ServiceBusAdministrationClient:
    """An administration client with the workaround of Microsoft's sample for plain HTTP on another port."""
    client = ServiceBusAdministrationClient.from_connection_string(
        connection_string or emulator.admin_connection_string
    )
    client._impl._client._base_url = emulator.admin_url
    return client


async def receive(client: ServiceBusClient, queue: str, subscription: str = "") -> list[str]:
    async with (
        client.get_subscription_receiver(queue, subscription) if subscription else client.get_queue_receiver(queue)
    ) as receiver:
        messages = await receiver.receive_messages(max_message_count=10, max_wait_time=1 if subscription else WAIT)
        for message in messages:
            await receiver.complete_message(message)
        return [str(message) for message in messages]


async def test_a_queue_is_made_used_and_deleted(emulator: Emulator) -> None:
    async with (
        admin_of(emulator) as admin,
        ServiceBusClient.from_connection_string(emulator.connection_string) as client,
    ):
        await admin.create_queue("orders", max_delivery_count=7)
        assert (await admin.get_queue("orders")).max_delivery_count == 7
        assert {queue.name async for queue in admin.list_queues()} == {"queue.1", "orders"}
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        assert await receive(client, "orders") == ["one", "two"]
        assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 0
        await admin.delete_queue("orders")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("orders")


async def test_rules_of_the_official_file_filter(emulator: Emulator) -> None:
    matching = [
        ServiceBusMessage("json", content_type="application/json"),
        ServiceBusMessage("property", application_properties={"prop1": "value1"}),
        ServiceBusMessage("plain"),
        ServiceBusMessage("sql", message_id="123456", application_properties={"userProp1": "value1"}),
    ]
    async with ServiceBusClient.from_connection_string(emulator.connection_string) as client:
        async with client.get_topic_sender("topic.1") as sender:
            await sender.send_messages(matching)
        received = [await receive(client, "topic.1", f"subscription.{number}") for number in range(1, 5)]
    assert received == [["json"], ["property"], ["json", "property", "plain", "sql"], ["sql"]]


async def test_the_synchronous_client_and_sessions(emulator: Emulator) -> None:
    async with admin_of(emulator) as admin:
        await admin.create_queue("payments", requires_session=True)
    assert await asyncio.to_thread(send_and_receive_in_session, emulator.connection_string) == ["paid"]


def send_and_receive_in_session(connection_string: str) -> list[str]:
    with SyncServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender("payments") as sender:
            sender.send_messages(ServiceBusMessage("paid", session_id="s"))
        with client.get_queue_receiver("payments", session_id="s", max_wait_time=WAIT) as receiver:
            received = receiver.receive_messages()
            for message in received:
                receiver.complete_message(message)
            return [str(message) for message in received]


async def test_topics_and_rules_are_made_over_http(emulator: Emulator) -> None:
    async with admin_of(emulator) as admin:
        await admin.create_topic("audit")
        await admin.create_subscription("audit", "all")
        names = [rule.name async for rule in admin.list_rules("audit", "all")]
        assert names == ["$Default"]
        assert (await admin.get_namespace_properties()).name == "sbemulatorns"


async def test_health_is_answered_as_documented(emulator: Emulator) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{emulator.admin_url}/health") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "healthy", "message": "Service is healthy."}


async def test_administration_needs_the_key(emulator: Emulator) -> None:
    wrong = emulator.admin_connection_string.replace(PUBLIC_KEY, "another")
    async with admin_of(emulator, wrong) as admin:
        with pytest.raises(ClientAuthenticationError):
            await admin.create_queue("orders")
    async with ServiceBusClient.from_connection_string(
        emulator.connection_string.replace(PUBLIC_KEY, "another"), retry_total=0
    ) as client:
        with pytest.raises(ServiceBusError):
            await client.get_queue_sender("queue.1").send_messages(ServiceBusMessage("no"))


async def test_the_public_key_opens_no_other_namespace() -> None:
    spec = NamespaceSpec("contoso", queues=[QueueSpec("orders")])
    async with Sandbox.start([spec]) as sandbox:
        address = f"Endpoint=sb://127.0.0.1:{sandbox['contoso'].amqp_port}"
        async with ServiceBusClient.from_connection_string(f"{address};{KEY}", retry_total=0) as client:
            with pytest.raises(ServiceBusAuthenticationError):
                await client.get_queue_sender("orders").send_messages(ServiceBusMessage("no"))


@pytest.mark.parametrize("key", ["primary_key", "secondary_key"])
def test_no_file_gives_another_namespace_the_public_key(tmp_path: Path, key: str) -> None:
    keys = {"primary_key": "mine", key: PUBLIC_KEY}
    written = ", ".join(f'{name} = "{value}"' for name, value in keys.items())
    file = tmp_path / "namespaces.toml"
    file.write_text(f'[[namespace]]\nname = "contoso"\nkeys = [{{ name = "app", rights = ["Send"], {written} }}]')
    with pytest.raises(SandboxConfigError, match=r"key 'app': SAS_KEY_VALUE is the emulator's public key; choose"):
        load_sandbox(file)


async def test_faults_and_the_clock_are_there_too(emulator: Emulator) -> None:
    wanted = {"namespace": emulator.name, "fault": "full", "entity": "queue.1"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{emulator.control_url}/faults", json=wanted) as answer:
            assert answer.status == 201
        async with session.post(f"{emulator.control_url}/clock", json={"advance_s": 60}) as answer:
            assert answer.status == 200
    async with ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client:
        with pytest.raises(ServiceBusError, match="maximum entity size has been reached"):
            await client.get_queue_sender("queue.1").send_messages(ServiceBusMessage("no"))


async def test_connection_strings_name_unofficial_ports_only(emulator: Emulator) -> None:
    assert emulator.connection_string == f"Endpoint=sb://localhost:{emulator.amqp_port};{KEY}"
    assert emulator.admin_connection_string == f"Endpoint=sb://localhost:{emulator.http_port};{KEY}"
    official = replace(emulator, amqp_port=5672, http_port=5300)
    assert official.connection_string == f"Endpoint=sb://localhost;{KEY}"
    assert official.admin_connection_string == f"Endpoint=sb://localhost:5300;{KEY}"


async def test_beyond_loopback_it_warns_that_the_key_is_public(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with Emulator.start(default_namespace(), listen="0.0.0.0", amqp_port=0, http_port=0):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "the emulator listens on 0.0.0.0 with a key that is public: any host that reaches this machine can read, send "
        "and delete everything in it; without --listen it is on loopback"
    ]


# -- The official emulator's config.json: what it declares, and one sentence with the path for every mistake.


RULE = {"Name": "west", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Label": "w"}}}
SQL_RULE = {
    "Name": "large",
    "Properties": {
        "FilterType": "Sql",
        "SqlFilter": {"SqlExpression": "size > 10"},
        "Action": {"SqlExpression": "SET sys.To = 'Entity'"},
    },
}
WHOLE: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "errors"},
                    {
                        "Name": "orders",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT30M",
                            "DuplicateDetectionHistoryTimeWindow": "PT5S",
                            "ForwardDeadLetteredMessagesTo": "errors",
                            "ForwardTo": "",
                            "LockDuration": "PT5S",
                            "MaxDeliveryCount": 10,
                            "RequiresDuplicateDetection": True,
                            "RequiresSession": True,
                        },
                    },
                ],
                "Topics": [
                    {
                        "Name": "audit",
                        "Properties": {"DefaultMessageTimeToLive": "PT5M"},
                        "Subscriptions": [
                            {"Name": "all"},
                            {"Name": "empty", "Rules": []},
                            {"Name": "some", "Properties": {"ForwardTo": "errors"}, "Rules": [RULE, SQL_RULE]},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}
NAMESPACE = "UserConfig.Namespaces[0]"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def refusal(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(SandboxConfigError) as caught:
        load_config(file)
    return str(caught.value)


def test_everything_in_the_file_is_read(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(json.dumps(WHOLE))
    with caplog.at_level(logging.WARNING):
        spec = load_config(file)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: UserConfig.Logging is ignored: the log goes to standard error"
    ]
    assert spec.name == "sbemulatorns"
    assert [queue.path for queue in spec.queues] == ["errors", "orders"]
    assert spec.queues[1].settings == QueueSettings(
        dead_letter_on_expiration=True,
        default_ttl=timedelta(minutes=30),
        duplicate_window=timedelta(seconds=5),
        forward_dead_lettered_to="errors",
        lock_duration=timedelta(seconds=5),
        max_delivery_count=10,
        requires_duplicate_detection=True,
        requires_session=True,
    )
    (topic,) = spec.topics
    assert topic.settings.default_ttl == timedelta(minutes=5)
    everything, empty, some = topic.subscriptions
    assert [type(rule.filter) for rule in (*everything.rules, *empty.rules)] == [TrueFilter, TrueFilter]
    assert some.settings.forward_to == "errors"
    assert [rule.filter for rule in some.rules] == [CorrelationFilter(label="w"), SqlFilter("size > 10")]
    assert some.rules[1].action == SqlAction("SET sys.To = 'Entity'")


def test_what_is_left_out_has_the_official_defaults(file: Path) -> None:
    file.write_text(json.dumps(WHOLE))
    settings = load_config(file).queues[0].settings
    assert settings == QueueSettings(
        default_ttl=timedelta(hours=1), duplicate_window=timedelta(seconds=20), max_delivery_count=3
    )


def test_without_a_file_there_are_the_entities_of_the_official_one() -> None:
    spec = default_namespace()
    assert (spec.name, [queue.path for queue in spec.queues]) == ("sbemulatorns", ["queue.1"])
    assert [each.name for each in spec.topics[0].subscriptions] == [f"subscription.{number}" for number in range(1, 5)]


def test_comments_last_commas_and_a_byte_order_mark_are_allowed(file: Path) -> None:
    text = """\ufeff// the whole
    {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", /* two
    lines */ "Queues": [{"Name": "orders"}, ], "Topics": [
      {"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [{"Name": "r", "Properties":
        {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = '//no, /*comment*/ ,]'"}}}]}]}],}]}}"""
    file.write_text(text, encoding="utf-8")
    spec = load_config(file)
    assert spec.topics[0].subscriptions[0].rules[0].filter == SqlFilter("a = '//no, /*comment*/ ,]'")


def set_at(*path: str | int, value: object) -> Change:
    def change(whole: dict[str, Any]) -> None:
        place: Any = whole["UserConfig"]["Namespaces"][0]
        for step in path[:-1]:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        place[path[-1]] = value

    return change


def queue(name: str, value: object) -> Change:
    return set_at("Queues", 1, "Properties", name, value=value)


def rule(name: str, value: object) -> Change:
    return set_at("Topics", 0, "Subscriptions", 2, "Rules", 0, "Properties", name, value=value)


PROPERTIES = f"{NAMESPACE}.Queues[1].Properties"
RULES = f"{NAMESPACE}.Topics[0].Subscriptions[2].Rules"


@pytest.mark.parametrize(
    ("change", "path", "sentence"),
    [
        (queue("MaxDeliveryCount", 0), f"{PROPERTIES}.MaxDeliveryCount", "it is 0; allowed is 1 to 2147483647"),
        (queue("MaxDeliveryCount", "3"), f"{PROPERTIES}.MaxDeliveryCount", 'it is "3"; it has to be a whole number'),
        (queue("MaxDeliveryCount", True), f"{PROPERTIES}.MaxDeliveryCount", "it is true; it has to be a whole number"),
        (queue("LockDuration", "1m"), f"{PROPERTIES}.LockDuration", 'it is "1m"; it has to be a duration'),
        (queue("LockDuration", "PT6M"), f"{PROPERTIES}.LockDuration", "it is 0:06:00; allowed is more than 0, at most"),
        (queue("LockDuration", "P10675199D"), f"{PROPERTIES}.LockDuration", "it is unlimited; allowed is"),
        (queue("DuplicateDetectionHistoryTimeWindow", "P8D"), f"{PROPERTIES}.DuplicateDetection", "it is 8 days"),
        (queue("DuplicateDetectionHistoryTimeWindow", "P10675199D"), f"{PROPERTIES}.Duplicate", "it is unlimited"),
        (queue("RequiresSession", "yes"), f"{PROPERTIES}.RequiresSession", 'it is "yes"; it has to be true or false'),
        (queue("maxDeliveryCount", 3), f"{PROPERTIES}.maxDeliveryCount", "did you mean MaxDeliveryCount?"),
        (queue("Colour", 3), f"{PROPERTIES}.Colour", "there is nothing of this name; known are Default"),
        (queue("ForwardTo", "errors"), f"{PROPERTIES}.ForwardTo", "an entity with RequiresSession cannot forward"),
        (
            queue("ForwardDeadLetteredMessagesTo", "x"),
            f"{PROPERTIES}.ForwardDead",
            "'x' is no queue or topic of this file",
        ),
        (queue("ForwardDeadLetteredMessagesTo", "Orders"), f"{PROPERTIES}.ForwardDead", "would forward to itself"),
        (
            queue("ForwardDeadLetteredMessagesTo", "audit/subscriptions/all"),
            f"{PROPERTIES}.ForwardDead",
            "is a subscription; messages can be forwarded to queues and topics",
        ),
        (set_at("Queues", 1, "Properties", value=[]), PROPERTIES, "it is []; it has to be an object in braces"),
        (set_at("Queues", 1, "Name", value="ERRORS"), f"{NAMESPACE}.Queues[1].Name", "already exists"),
        (set_at("Queues", 1, "Name", value="a b"), f"{NAMESPACE}.Queues[1].Name", "'a b' is no name for an entity"),
        (set_at("Queues", 1, "Name", value=None), f"{NAMESPACE}.Queues[1].Name", "it is missing"),
        (set_at("Queues", 1, "Rules", value=[]), f"{NAMESPACE}.Queues[1].Rules", "there is nothing of this name"),
        (set_at("Queues", value={}), f"{NAMESPACE}.Queues", "it is {}; it has to be a list in brackets"),
        (set_at("Topics", 0, "Name", value="orders"), f"{NAMESPACE}.Topics[0].Name", "already exists"),
        (
            set_at("Topics", 0, "Subscriptions", 1, "Name", value="ALL"),
            f"{NAMESPACE}.Topics[0].Subscriptions[1].Name",
            "already exists",
        ),
        (
            set_at("Topics", 0, "Subscriptions", 2, "Rules", 1, "Name", value="west"),
            f"{RULES}[1].Name",
            "already exists",
        ),
        (rule("FilterType", "Regex"), f"{RULES}[0].Properties.FilterType", "has to be one of Correlation, Sql"),
        (rule("FilterType", "Sql"), f"{RULES}[0].Properties.CorrelationFilter", 'FilterType is "Sql"; leave this out'),
        (rule("SqlFilter", {}), f"{RULES}[0].Properties.SqlFilter", 'FilterType is "Correlation"; leave this out'),
        (rule("CorrelationFilter", None), f"{RULES}[0].Properties.CorrelationFilter", "it is missing, and FilterType"),
        (rule("CorrelationFilter", {}), f"{RULES}[0].Properties.CorrelationFilter", "names no property"),
        (rule("CorrelationFilter", {"Subject": "x"}), f"{RULES}[0].Properties.CorrelationFilter.Subject", "known are"),
        (
            rule("CorrelationFilter", {"Properties": {"a": []}}),
            f"{RULES}[0].Properties.CorrelationFilter.Properties.a",
            "it is []; it has to be a string, a number, true or false",
        ),
        (
            rule("Action", {"SqlExpression": "SOT a = 1"}),
            f"{RULES}[0].Properties.Action.SqlExpression",
            "",
        ),
        (
            set_at(
                "Topics", 0, "Subscriptions", 2, "Rules", 1, "Properties", "SqlFilter", value={"SqlExpression": "a ="}
            ),
            f"{RULES}[1].Properties.SqlFilter.SqlExpression",
            "",
        ),
        (set_at("Name", value="my ns"), f"{NAMESPACE}.Name", "it may have up to 50 letters"),
        (set_at("Keys", value=[]), f"{NAMESPACE}.Keys", "known are Name, Queues, Topics"),
        (lambda whole: whole["UserConfig"].update(Namespaces=[]), "UserConfig.Namespaces", "it holds 0 namespaces"),
        (
            lambda whole: whole["UserConfig"]["Namespaces"].append({"Name": "two"}),
            "UserConfig.Namespaces",
            "it holds 2 namespaces, and exactly one is served",
        ),
        (lambda whole: whole["UserConfig"].pop("Namespaces"), "UserConfig.Namespaces", "it is missing"),
        (lambda whole: whole.pop("UserConfig"), "UserConfig", "it is missing"),
        (lambda whole: whole.update(Other=1), "Other", "known are UserConfig"),
    ],
)
def test_every_mistake_is_one_sentence_with_its_path(file: Path, change: Change, path: str, sentence: str) -> None:
    whole = copy.deepcopy(WHOLE)
    change(whole)
    told = refusal(file, json.dumps(whole))
    assert told.startswith(f"{file}: {path}")
    assert sentence in told
    assert "\n" not in told


def test_a_name_that_occurs_twice_contradicts_itself(file: Path) -> None:
    told = refusal(file, '{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [], "Queues": []}]}}')
    assert told == f"{file}: {NAMESPACE}.Queues: the name occurs twice in this object; remove one of the two"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON: Expecting value: line 1 column 1"),
        ("// no\n{a}", "is not JSON: Expecting property name enclosed in double quotes: line 2 column 2"),
        ("[[namespace]]\nname = 1", "is not JSON: "),
        ("[" * 100_000, "is not JSON: "),
        ("[]", ": the whole file: it is []; it has to be an object in braces"),
    ],
)
def test_a_file_that_is_no_object_of_json(file: Path, text: str, sentence: str) -> None:
    assert sentence in refusal(file, text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SandboxConfigError, match=r"missing\.json cannot be read: No such file"):
        load_config(tmp_path / "missing.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["UserConfig", "Namespaces", "Queues", "Topics", "Name", "Properties", "Rules", "LockDuration"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(value=JSON)
def test_any_json_is_read_or_refused(value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}.json"
    file.write_text(json.dumps(value))
    with suppress(SandboxConfigError):
        load_config(file)


# `servicebus-sandbox --emulator` as a process: what it prints, and one sentence for what it cannot do.


COMMAND = [sys.executable, "-m", "servicebus_sandbox"]
FREE = ["--emulator", "--amqp-port", "0", "--http-port", "0"]
PATIENCE = 60


@contextmanager
def running(*options: str, **environment: str) -> Iterator[dict[str, Any]]:
    command = [*COMMAND, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | environment) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """What it writes to stderr, in one line, when it ends with the status 2. It runs in this process."""
    monkeypatch.setattr(process_settings, "allow_open_files", lambda: None)

    def run(*options: str, **environment: str) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            status: object = main(options)
        except SystemExit as ended:
            status = ended.code
        told = capsys.readouterr()
        assert (status, told.out) == (2, "")
        return told.err.rstrip("\n")

    yield run
    gc.enable()  # which the command does once it serves


def taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_it_prints_its_addresses_and_ends_on_a_signal() -> None:
    port = free_port()
    with running("--emulator", "--amqp-port", "0", EMULATOR_HTTP_PORT=str(port)) as facts:
        assert facts["health_url"] == f"http://localhost:{port}/health"
        (namespace,) = facts["namespaces"]
        assert namespace["key"] == "SAS_KEY_VALUE"
        assert namespace["connection_string"].startswith(f"Endpoint=sb://localhost:{namespace['amqp_port']};")
        with urllib.request.urlopen(facts["health_url"], timeout=PATIENCE) as answer:
            assert json.load(answer)["status"] == "healthy"


@pytest.mark.parametrize("text", ["http", "-1", "65536", "5300.0"])
def test_a_port_of_the_environment_that_is_none(refused: Callable[..., str], text: str) -> None:
    told = refused("--emulator", "--amqp-port", "0", EMULATOR_HTTP_PORT=text)
    assert told == f"servicebus-sandbox: EMULATOR_HTTP_PORT is '{text}'; it has to be a port, as in 5300"


@pytest.mark.parametrize(("name", "other"), [("amqp", "http"), ("http", "amqp")])
def test_a_taken_port_is_one_sentence(refused: Callable[..., str], name: str, other: str) -> None:
    with taken() as server:
        port = server.getsockname()[1]
        told = refused("--emulator", f"--{name}-port", str(port), f"--{other}-port", "0")
    assert told == (
        f"servicebus-sandbox: {name.upper()} cannot listen on 127.0.0.1:{port} (Address already in use); end the "
        f"program that uses the port, or choose another with --{name}-port, 0 for any that is free"
    )


def test_a_mistake_in_the_file_is_one_sentence(refused: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    queues = [{"Name": "a"}, {"Name": "b"}, {"Name": "c", "Properties": {"MaxDeliveryCount": 0}}]
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": queues}]}}))
    assert refused(*FREE, "--config", str(file)) == (
        f"servicebus-sandbox: {file}: UserConfig.Namespaces[0].Queues[2].Properties.MaxDeliveryCount: it is 0; "
        "allowed is 1 to 2147483647"
    )


def test_options_of_the_other_mode_are_refused(refused: Callable[..., str]) -> None:
    assert "--primary-port is not an option with --emulator" in refused(*FREE, "--primary-port", "0")
    assert "--amqp-port is not an option without --emulator" in refused("--amqp-port", "0")


def test_amqp_is_answered_without_importing_http_first() -> None:
    """The first frame may not wait for imports that AMQP does not need."""
    code = (
        "import sys, servicebus_sandbox.emulator.emulator_host; "
        "print(sorted({'aiohttp', 'cryptography', 'tomllib'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- A client that speaks the wrong protocol to a port: one log line with what it tried and what would work.


SOON = 60.0
AMQP_1_0 = b"AMQP\x00\x01\x00\x00"
AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"
SSH = b"SSH-2.0-x\r\n"


@pytest.fixture(scope="module")
def hello() -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


async def answer_to(port: int, request: bytes) -> bytes:
    """Everything that the server answers until it ends the connection."""
    async with asyncio.timeout(SOON):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = b""
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                answer += piece
        writer.close()
    return answer


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def log_of(caplog: pytest.LogCaptureFixture, port: int, request: bytes) -> str:
    """The one line in the log after the request was sent three times."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await answer_to(port, request)
    (line,) = lines(caplog)
    return line


SCRAM = SASL_HEADER + build_frame(
    0, write_performative(SaslInit(mechanism="SCRAM-SHA-256", initial_response=b"")), SASL_FRAME
)


@pytest.mark.parametrize(
    ("request_bytes", "part"),
    [
        (SSH, "neither AMQP nor HTTP: the client speaks SSH. This port serves AMQP 1.0, HTTP"),
        (AMQP_0_9_1, "as clients of RabbitMQ do: use a client of AMQP 1.0"),
        (SCRAM, "SASL mechanism 'SCRAM-SHA-256' was not offered; use one of MSSBCBS, PLAIN, ANONYMOUS"),
    ],
    ids=["SSH", "AMQP 0-9-1", "SASL"],
)
async def test_a_wrong_protocol_is_one_line_with_what_would_work(
    emulator: Emulator, caplog: pytest.LogCaptureFixture, request_bytes: bytes, part: str
) -> None:
    assert part in await log_of(caplog, emulator.amqp_port, request_bytes)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("port", ["amqp_port", "http_port"])
async def test_each_port_serves_amqp_administration_and_websockets(emulator: Emulator, port: str, scheme: str) -> None:
    """Each port of the sandbox, of the emulator and of the gateway serves AMQP, administration and WebSockets."""
    number, tls = getattr(emulator, port), scheme == "https"
    trust = ssl.create_default_context(cafile=emulator.ca_file)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{scheme}://localhost:{number}/health", ssl=trust) as answer:
            assert answer.status == 200
        address = f"{scheme}://localhost:{number}/$servicebus/websocket/"
        async with session.ws_connect(address, protocols=["AMQPWSB10"], ssl=trust) as websocket:
            await websocket.send_bytes(SASL_HEADER)
            assert (await websocket.receive_bytes()).startswith(SASL_HEADER)
    reader, writer = await asyncio.open_connection("localhost", number, ssl=trust if tls else None)
    writer.write(SASL_HEADER)
    assert await reader.readexactly(8) == SASL_HEADER
    writer.close()


async def test_amqp_and_tls_to_the_control_url(hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox.start() as sandbox:
        port = int(sandbox.control_url.rpartition(":")[2].partition("/")[0])
        assert "It serves HTTP; AMQP has the port of" in await log_of(caplog, port, AMQP_1_0)
        caplog.clear()
        assert "It serves plain HTTP; use http://" in await log_of(caplog, port, hello)
