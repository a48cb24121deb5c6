"""Pairing itself (SPEC.md section 4): backlog queues found and made, and what is refused."""

from __future__ import annotations

import logging
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.errors import ConfigurationError, SameNamespaceError
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.engine.clients.start_checks import look_up_name, read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces, tls_context
from paired_servicebus.pairing.management import primary_name
from paired_servicebus.pairing.management.primary_name import alias_remark, name_of
from paired_servicebus.secret import Secret

from .backlogs import parked, put, queue_path
from .conftest import World, until


async def test_a_namespace_paired_with_itself_is_an_error(world: World) -> None:
    """The two are different namespaces (else an error)."""
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=world.admin("primary"), secondary_client=world.client("primary")
    )
    with pytest.raises(SameNamespaceError, match="paired with itself"):
        await pair_namespaces(world.client("primary"), options)
    await options.secondary_admin.close()


async def test_an_option_out_of_range_is_named_before_anything_is_contacted(world: World) -> None:
    """Out of range: ValueError naming the option, the value and the range, before anything is contacted."""
    admin = world.admin("secondary")
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=world.client("secondary"), ping_timeout=timedelta(minutes=3)
    )
    async with admin:
        with pytest.raises(ValueError, match=r"ping_timeout is 180\.0; it must be 1 to 120 seconds") as refused:
            await pair_namespaces(world.client("primary"), options)
    assert isinstance(refused.value, ConfigurationError)
    assert list(world.sandbox["secondary"].node.namespace.queues()) == []


@pytest.mark.parametrize("name", [field.name for field in fields(SendAvailabilityPairedNamespaceOptions)])
def test_the_help_tells_of_every_option(name: str) -> None:
    """What an editor shows of the class is where a developer looks first."""
    told = SendAvailabilityPairedNamespaceOptions.__doc__ or ""
    assert re.search(rf"^ +([\w, ]+, )?{name}(, [\w, ]+)?: ", told, re.MULTILINE)


# -- An application with more backlog queues than the syphon beside it: what nothing moves is said (SPEC.md section
# 4).


async def test_an_unused_queue_in_which_an_application_parks_is_an_alarm(world: World) -> None:
    """Section 12: "Stranded, refused, dead-lettered messages … are in all of them"."""
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(3))
    narrow = await world.pair(backlog_queue_count=2, enable_syphon=True)
    await until(lambda: narrow.unused_view().read_at is not None)
    assert narrow.alarms() == ()
    put(world, [parked("orders", "m1")], path=queue_path(3))
    for _ in range(2):
        await narrow._unused.look()
    (alarm,) = narrow.alarms()
    assert alarm.startswith("backlog queue 3 is unused by this engine and grows: ")
    assert "set backlog_queue_count to 4 or more" in alarm
    narrow.know_usage(QueueUsage(used=frozenset({0, 1, 2, 3}), moved=frozenset({0, 1, 2, 3})))
    assert narrow.alarms() == ()  # another syphon has it


async def test_parked_messages_in_queues_that_the_known_syphon_lacks_are_a_warning(world: World) -> None:
    """Section 4.6: "Parked messages and no syphon known to run"; one with fewer queues does not have them all."""
    paired = await world.pair(backlog_queue_count=4)
    put(world, [parked("orders", "m1")], path=queue_path(3))
    await until(lambda: paired.queue_views()[3].depth == 1)
    assert paired.troubles()[0].reason.startswith("1 message is parked")
    paired.know_syphons(("engine",))
    assert paired.troubles() == ()
    paired.know_usage(QueueUsage(used=frozenset({0, 1}), moved=frozenset({0, 1})))
    (notice,) = paired.troubles()
    assert notice.what == "backlog queues 2, 3"
    assert notice.reason.startswith("1 message is parked there; ")
    paired.know_usage(QueueUsage(used=frozenset(range(4)), moved=frozenset(range(4))))
    assert paired.troubles() == ()
    assert paired.alarms() == ()


# -- One name of the primary for engine and application (SPEC.md section 4.1), whatever its host is called.


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
