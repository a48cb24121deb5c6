"""Code written for the SDK's synchronous client works with a paired one: same names, same parameters."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, _session_browser
from azure.servicebus.aio import _session_browser_async

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.sync import PairedServiceBusClient
from servicebus_sandbox.broker.topology.messaging_entities import QueueSettings
from tests.surface import differences

from .test_sync import pair


@pytest.fixture
def paired(servicebus_sandbox: Any) -> Any:
    with pair(servicebus_sandbox) as made:
        yield made


def test_every_name_and_parameter_of_the_sdks_client_sender_and_receiver_is_accepted(
    servicebus_sandbox: Any, paired: PairedServiceBusClient
) -> None:
    text = servicebus_sandbox["primary"].connection_string
    with ServiceBusClient.from_connection_string(text) as plain:
        assert differences(plain, paired, refused={"from_connection_string"}) == []
        assert differences(plain.get_queue_sender("orders"), paired.get_queue_sender("orders"), refused=set()) == []
        theirs, ours = plain.get_queue_receiver("orders"), paired.get_queue_receiver("orders")
        assert differences(theirs, ours, refused=set()) == []
    with pytest.raises(ConfigurationError, match="pass two of Namespace to pair_namespaces"):
        PairedServiceBusClient.from_connection_string(text)
    with pytest.raises(TypeError, match=r"auto_lock_renewer is an azure.servicebus.AutoLockRenewer, not object"):
        paired.get_queue_receiver("orders", auto_lock_renewer=object())


def test_options_of_senders_and_sessions_are_the_sdks(
    servicebus_sandbox: Any, paired: PairedServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_session_browser, _session_browser_async):
        monkeypatch.setattr(module, "_PAGE_SIZE", 2)
    servicebus_sandbox["primary"].node.namespace.create_queue("by-session", QueueSettings(requires_session=True))
    with paired.get_queue_sender("by-session", client_identifier="checkout-7", socket_timeout=2.0) as sender:
        assert (sender.client_identifier, "checkout-7" in str(sender)) == ("checkout-7", True)
        assert sender.fully_qualified_namespace == paired.fully_qualified_namespace
        for name in "abc":  # more than a page
            sender.send_messages(ServiceBusMessage(b"x", session_id=name))
    listed = paired.list_queue_sessions("by-session", timeout=20)
    assert sorted(listed) == ["a", "b", "c"]
