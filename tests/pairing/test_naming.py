"""One name of the primary for engine and application (SPEC.md section 4.1), whatever its host is called."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.engine.clients.start_checks import look_up_name, read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing import tls_context
from paired_servicebus.pairing.management import primary_name
from paired_servicebus.pairing.management.primary_name import alias_remark, name_of
from paired_servicebus.secret import Secret

from .conftest import World, until

RULE = {
    "as configured": (("alias.servicebus.windows.net", "mine", "contoso"), "mine"),
    "else as the namespace tells it": (("alias.servicebus.windows.net", None, "contoso"), "contoso"),
    "else the first label of its host": (("alias.servicebus.windows.net", None, ""), "alias"),
    "an address stays whole": (("127.0.0.1:5671", None, ""), "127.0.0.1"),
}


@pytest.mark.parametrize("case", RULE)
def test_the_name_follows_the_rule(case: str) -> None:
    """ "`{primary}` is the namespace's name: as configured, else as the namespace tells it, else the first label of its
    host"."""
    (host, configured, reported), name = RULE[case]
    assert name_of(host, configured=configured, reported=reported) == name


def trusting(world: World, text: str = "") -> ServiceBusClient:
    """A client of the primary, whose host 127.0.0.1 is an alias of it, that trusts the certificate of management."""
    trust = tls_context(world.sandbox.ca_file)
    text = text or world.sandbox["primary"].connection_string
    return ServiceBusClient.from_connection_string(text, retry_total=0, ssl_context=trust)


async def test_an_engine_and_an_application_agree_behind_an_alias(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine's syphon moves what the application parks, though the first label of the host names neither."""
    one = world.sandbox["primary"]
    engines = NamespaceConfig(
        host=f"127.0.0.1:{one.amqp_port}",
        connection_string=Secret(one.connection_string),
        ca_file=world.sandbox.ca_file,
    )
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    with caplog.at_level(logging.INFO, logger="paired_servicebus"):
        application = await world.pair(primary_client=trusting(world), primary_name=None, failover_interval=0)
    engine = await world.pair(primary_name=await look_up_name(engines, places), enable_syphon=True)
    assert first_label(engines.host) == "127.0.0.1"
    assert {
        application.primary_name,
        engine.primary_name,
        (await read_primary_info(engines, places)).name,
    } == {"primary"}
    assert [view.path for view in application.queue_views()] == [view.path for view in engine.queue_views()]
    assert alias_remark(engines.host, "primary") in caplog.messages
    end = world.fault("disabled", entity="orders")
    async with application.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    end()
    await until(lambda: world.depth("orders") == 1)


async def test_a_namespace_that_does_not_tell_leaves_its_host(world: World) -> None:
    """A key may not be allowed to ask at all."""
    wrong = world.sandbox["primary"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    async with trusting(world, wrong) as client:
        assert await primary_name.reported_name(client) == ""
    async with trusting(world) as client:
        assert await primary_name.reported_name(client) == "primary"
        world.fault("refused")
        assert await primary_name.reported_name(client) == ""


@pytest.mark.parametrize(
    "answer",
    [
        "<entry/>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><entry>&b;</entry>",
        "<entry",
        "<Name xmlns='http://schemas.microsoft.com/netservices/2010/10/servicebus/connect'>a/b\x07</Name>",
    ],
)
def test_an_answer_that_is_no_name_is_none(answer: str) -> None:
    try:
        found = primary_name._read(b"<x>" + answer.encode() + b"</x>")
    except primary_name.ElementTree.ParseError:
        found = ""
    assert found == ""


async def test_backlog_queues_under_the_other_name_are_warned_of(world: World) -> None:
    """A program that may not ask parks under the label of the host, where no syphon of the right name looks."""
    async with world.admin("secondary") as admin:
        await admin.create_queue("127.0.0.1/x-servicebus-transfer/0")
    await world.pair()
    (warned,) = [event.text for event in world.told(Warned)]
    assert "the secondary also has 1 backlog queues under 127.0.0.1/x-servicebus-transfer/" in warned
    assert 'set its primary_name="primary"' in warned
