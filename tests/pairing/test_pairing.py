"""Pairing itself (SPEC.md section 4): backlog queues found and made, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import ConfigurationError, NamespaceUnreachableError, SameNamespaceError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces

from .conftest import World


async def test_backlog_queues_are_created_with_exactly_the_settings_of_the_specification(world: World) -> None:
    """MaxSizeInMegabytes 5120, MaxDeliveryCount 2147483647, … LockDuration 1 min, … all else default."""
    paired = await world.pair(backlog_queue_count=3)
    settings = [world.sandbox["secondary"].node.namespace.queue(queue.path).settings for queue in paired.queue_views()]
    assert paired.backlog_queue_count == 3
    assert [queue.path for queue in paired.queue_views()] == [f"primary/x-servicebus-transfer/{i}" for i in range(3)]
    for one in settings:
        assert one.max_size_mb == 5120
        assert one.max_delivery_count == 2147483647
        assert one.lock_duration == timedelta(minutes=1)
        assert one.dead_letter_on_expiration
        assert one.enable_batched_operations
        assert (one.default_ttl, one.auto_delete_on_idle) == (None, None)
        assert not one.requires_session


async def test_queues_that_exist_are_used_as_they_are_and_extra_ones_stay(world: World) -> None:
    """A queue that exists with other settings is its owner's choice, used as it is; the difference is shown."""
    admin = world.admin("secondary")
    async with admin:
        await admin.create_queue("primary/x-servicebus-transfer/0", max_delivery_count=10)
        await admin.create_queue("primary/x-servicebus-transfer/7")
    paired = await world.pair(backlog_queue_count=2)
    namespace = world.sandbox["secondary"].node.namespace
    assert paired.backlog_queue_count == 2
    assert namespace.queue("primary/x-servicebus-transfer/0").settings.max_delivery_count == 10
    assert namespace.queue("primary/x-servicebus-transfer/7").counts().active == 0
    assert any("MaxDeliveryCount 10 instead of 2147483647" in warned.text for warned in world.told(Warned))


async def test_a_namespace_paired_with_itself_is_an_error(world: World) -> None:
    """The two are different namespaces (else an error)."""
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=world.admin("primary"), secondary_client=world.client("primary")
    )
    with pytest.raises(SameNamespaceError, match="paired with itself"):
        await pair_namespaces(world.client("primary"), options)
    await options.secondary_admin.close()


async def test_bad_credentials_are_raised_by_the_awaited_pairing_call_itself(world: World) -> None:
    """Bad credentials, failed creation etc. are raised by the awaited pairing call itself."""
    wrong = world.sandbox["secondary"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    admin = ServiceBusAdministrationClient.from_connection_string(wrong, connection_verify=str(world.sandbox.ca_file))
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=ServiceBusClient.from_connection_string(wrong)
    )
    async with admin:
        with pytest.raises(NamespaceUnreachableError, match="check the key"):
            await pair_namespaces(world.client("primary"), options)


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
