"""What a pairing needs, tells and refuses before anything is sent (SPEC.md sections 3 and 4)."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.errors import NamespaceUnreachableError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.snapshot import TroubleKind
from paired_servicebus.pairing import PairedNamespaceOptions, SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.management_port import Management, QueueFacts
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Right

from .conftest import World, until

SHORT = {"send_timeout": 1.0, "failover_interval": 0.0}


def key_with(world: World, namespace: str, *rights: Right) -> str:
    """A connection string whose key has these rights alone."""
    one = world.sandbox[namespace]
    rule = AuthorizationRule(name="+".join(rights), rights=frozenset(rights), primary_key="k1", secondary_key="k2")
    one.node.authorization.rules = (*one.node.authorization.rules, rule)
    return one.connection_string_for(rule.name, rule.primary_key)


def client_with(world: World, namespace: str, *rights: Right) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(key_with(world, namespace, *rights), retry_total=0)


# -- claims --------------------------------------------------------------------------------------------------------


async def test_send_is_enough_for_the_secondary_client_of_a_pairing_without_a_syphon(world: World) -> None:
    """Claims: Manage to pair, Send always, Listen only with the syphon."""
    client = client_with(world, "secondary", Right.SEND)
    paired = await world.pair(secondary_client=client, **SHORT)
    end = world.fault("disabled", entity="orders")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    end()
    assert world.parked() == 1
    assert world.told(Warned) == []


async def test_send_and_listen_are_enough_with_the_syphon(world: World) -> None:
    """Listen only with the syphon."""
    client = client_with(world, "secondary", Right.SEND, Right.LISTEN)
    paired = await world.pair(secondary_client=client, enable_syphon=True, **SHORT)
    end = world.fault("disabled", entity="orders")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    end()
    await until(lambda: world.depth("orders") == 1)
    assert world.told(Warned) == []


async def test_without_send_on_the_secondary_there_is_no_pairing(world: World) -> None:
    """Send always."""
    client = client_with(world, "secondary", Right.LISTEN)
    async with client:
        with pytest.raises(NamespaceUnreachableError, match="the credential needs Send on the secondary"):
            await world.pair(secondary_client=client)


async def test_without_manage_there_is_no_pairing(world: World) -> None:
    """Manage to pair."""
    admin = world.admin("secondary", key_with(world, "secondary", Right.SEND, Right.LISTEN))
    world.stack.push_async_callback(admin.close)
    with pytest.raises(NamespaceUnreachableError, match="pairing needs Manage on the secondary"):
        await world.pair(secondary_admin=admin)


# -- what is told --------------------------------------------------------------------------------------------------


def test_send_availability_is_the_only_kind_of_pairing() -> None:
    """`PairedNamespaceOptions` is the base of pairing kinds; send availability is the only kind."""
    assert PairedNamespaceOptions.__subclasses__() == [SendAvailabilityPairedNamespaceOptions]


async def test_without_a_name_the_first_label_of_the_host_is_taken(world: World) -> None:
    """… else the first label of its host."""
    client = ServiceBusClient("contoso.servicebus.windows.net", credential=_Nobody(), retry_total=0)
    paired = await world.pair(primary_client=client, primary_name=None)
    assert [queue.path for queue in paired.queue_views()] == [f"contoso/x-servicebus-transfer/{i}" for i in range(2)]


class _Nobody:
    async def get_token(self, *scopes: str, **_: object) -> None:
        raise ServiceBusError("no token is wanted here")

    async def close(self) -> None:
        pass


async def test_a_client_that_is_handed_in_keeps_its_own_retry_policy(world: World) -> None:
    """A client that is handed in keeps its own retry policy inside `send_timeout`."""
    client = ServiceBusClient.from_connection_string(world.sandbox["primary"].connection_string, retry_total=7)
    paired = await world.pair(primary_client=client)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert client._config.retry_total == 7
    assert world.depth("orders") == 1


# -- before pairing has completed ----------------------------------------------------------------------------------


class Hindered:
    """A management whose listing waits until a test lets it go on."""

    def __init__(self, real: Management) -> None:
        self._real = real
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def queues(self, prefix: str) -> list[QueueFacts]:
        self.asked.set()
        await self.go.wait()
        return await self._real.queues(prefix)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


async def test_nothing_may_be_sent_before_pairing_completed(world: World) -> None:
    """Nothing may be sent before pairing completed: there is no paired client to send with, and nothing was opened."""
    slow = Hindered(management_of(world.admin("secondary")))
    pairing = asyncio.create_task(world.pair(secondary_admin=slow))
    await slow.asked.wait()
    await asyncio.sleep(0.1)
    assert not pairing.done()
    assert not any(one.node.connections for one in world.sandbox.namespaces)
    slow.go.set()
    paired = await pairing
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert world.depth("orders") == 1


async def test_two_pairings_at_once_make_the_queues_once(world: World) -> None:
    """… "already exists" by a race counts as found."""
    pairings = await asyncio.gather(*(world.pair(backlog_queue_count=3) for _ in range(3)))
    assert [paired.backlog_queue_count for paired in pairings] == [3, 3, 3]
    assert len(list(world.sandbox["secondary"].node.namespace.queues())) == 3


# -- who moves what was parked -------------------------------------------------------------------------------------


async def test_parked_messages_without_a_known_syphon_are_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… "At least one executable program should be actively running the syphon." Parked messages and no syphon known
    to run: "syphon unknown", a notice."""
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.depth_poller.MIN_READ_SECONDS", 0.1)
    paired = await world.pair(**SHORT)
    assert paired.troubles() == ()
    async with world.to_backlog() as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    await until(lambda: paired.queue_views() and paired.troubles() != ())
    (notice,) = paired.troubles()
    assert (notice.kind, notice.reason) == (
        TroubleKind.SYPHON_UNKNOWN,
        "1 message is parked, and no syphon is known here; one of another host or user may run",
    )
    assert f"syphon unknown: {notice.reason}" in paired.syphon_view().text
    assert not [text for text in paired.alarms() if "syphon" in text]
