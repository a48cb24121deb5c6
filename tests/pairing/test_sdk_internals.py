"""The contract of each hook into the SDK's undocumented interiors: a failure here names the interior that has changed.

Nothing is contacted. `python -m tests.conformance.sdk_releases` runs this file with other releases.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceiveMode, __version__
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core.model.verdict import KIND_BY_CLASS
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.sending.sdk_messages import EncodedBatch
from servicebus_amqp.encoding.message_sections import unbatch

from .tracer import RecordedSpan, tracing

HOST = "contoso.servicebus.windows.net"
KEY = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=k;SharedAccessKey=djE="
CHANGED = f"azure-servicebus {__version__} has changed:"


@pytest.fixture
def client() -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(KEY, retry_total=2, retry_backoff_factor=0.001)


@pytest.fixture
def sender(client: ServiceBusClient) -> ServiceBusSender:
    return client.get_queue_sender("orders")


class Handler:
    """Stands in for the AMQP client that a sender opens."""

    closed = 0

    async def close_async(self) -> None:
        self.closed += 1


def refusing(sender: Any, error: Exception) -> list[float]:
    """Have every attach fail; returns the times of the tries."""
    tries: list[float] = []

    async def attach(timeout: float | None = None) -> None:
        tries.append(time.monotonic())
        raise error

    assert callable(getattr(sender, "_open", None)), f"{CHANGED} a sender has no _open"
    sender._open = attach
    return tries


async def refused(attach: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await attach()


def test_client_config(client: ServiceBusClient) -> None:
    config = sdk_internals.client_config(client)
    names = ("use_tls", "transport_type", "custom_endpoint_address", "connection_verify", "ssl_context", "http_proxy")
    missing = [name for name in names if not hasattr(config, name)]
    assert not missing, f"{CHANGED} ServiceBusClient._config lacks {missing}"
    assert (config.use_tls, config.transport_type.name) == (True, "Amqp")


@pytest.mark.parametrize(
    ("credential", "key", "signature"),
    [
        (AzureNamedKeyCredential("k", "djE="), True, ""),
        (AzureSasCredential("SharedAccessSignature sr=x"), False, "SharedAccessSignature sr=x"),
    ],
)
def test_client_credential(credential: Any, key: bool, signature: str) -> None:
    found = sdk_internals.client_credential(ServiceBusClient(HOST, credential))
    assert found is credential, f"{CHANGED} ServiceBusClient._credential is not the given credential"
    assert (sdk_internals.is_key(found), sdk_internals.signature_of(found)) == (key, signature)


def test_credentials_of_connection_strings(client: ServiceBusClient) -> None:
    key = sdk_internals.client_credential(client)
    text = f"Endpoint=sb://{HOST}/;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=k"
    signature = sdk_internals.client_credential(ServiceBusClient.from_connection_string(text))
    assert sdk_internals.is_key(key), f"{CHANGED} the class of a connection string's key is {type(key).__name__}"
    assert not sdk_internals.is_key(signature)
    assert sdk_internals.signature_of(signature).startswith("SharedAccessSignature sr=x"), f"{CHANGED} no token"
    for one in (key, signature):
        assert sdk_internals.token_type(one) == "servicebus.windows.net:sastoken", f"{CHANGED} no token_type"


@pytest.mark.parametrize("name", sdk_internals.LOGGERS)
def test_loggers(name: str) -> None:
    module = importlib.import_module(name)
    assert module._LOGGER.name == name, f"{CHANGED} {name} logs elsewhere"


def test_connection_name() -> None:
    record = logging.makeLogRecord({"amqpConnection": "link-1"})
    assert sdk_internals.connection_name(record) == "link-1"
    source = inspect.getsource(importlib.import_module(sdk_internals.LOGGERS[0]))
    assert '"amqpConnection": self._container_id' in source, f"{CHANGED} records do not name their connection"


async def test_link_names(client: ServiceBusClient) -> None:
    links = [client.get_queue_sender("orders"), client.get_queue_receiver("orders")]
    names = {link.client_identifier for link in links}
    assert set(sdk_internals.link_names(client)) == names, f"{CHANGED} ServiceBusClient._handlers or their _name"
    sender: Any = links[0]
    sender._create_handler(None)
    assert sender._handler._name == sender.client_identifier, f"{CHANGED} a connection is not named after its link"


def test_largest_message(sender: Any) -> None:
    assert vars(sender).get("_max_message_size_on_link") == 0, f"{CHANGED} no _max_message_size_on_link"
    assert "_max_message_size_on_link" in ServiceBusSender._open.__code__.co_names, (
        f"{CHANGED} an attach does not set it"
    )
    sender._max_message_size_on_link = 1000
    assert sdk_internals.largest_message(sender) == 1000
    assert sdk_internals.largest_message(None) == 0


@pytest.mark.parametrize(("error", "number"), [(ServiceBusServerBusyError, 1), (ServiceBusConnectionError, 3)])
async def test_raise_at_once(sender: ServiceBusSender, error: type[Exception], number: int) -> None:
    sdk_internals.raise_at_once(sender, ServiceBusServerBusyError)
    tries = refusing(sender, error(message="no"))
    await refused(sender.__aenter__, error)
    assert len(tries) == number, f"{CHANGED} its pause between two tries is not _backoff"


async def test_raise_at_once_of_a_receiver(client: ServiceBusClient) -> None:
    """The SDK makes "message not found" a failure that it retries, some 5 s by default for each request."""
    receiver: Any = client.get_queue_receiver("orders")
    sdk_internals.raise_at_once(receiver, MessageNotFoundError)
    requests: list[str] = []

    async def answer(*_: Any, **__: Any) -> None:
        requests.append("receive by number")
        condition = b"com.microsoft:message-not-found"
        receiver._amqp_transport.handle_amqp_mgmt_error(logging.getLogger(), "refused", condition, "gone", 404)

    assert callable(getattr(receiver, "_mgmt_request_response", None)), f"{CHANGED} no _mgmt_request_response"
    receiver._mgmt_request_response = answer
    receiver._running = True
    await refused(lambda: receiver.receive_deferred_messages([1], timeout=10.0), MessageNotFoundError)
    assert len(requests) == 1, f"{CHANGED} a request is not retried through _backoff"


async def test_attach_once(sender: ServiceBusSender) -> None:
    sdk_internals.raise_at_once(sender, ServiceBusServerBusyError)
    tries = refusing(sender, ServiceBusConnectionError(message="lost"))
    await refused(lambda: sdk_internals.attach_once(sender), ServiceBusConnectionError)
    assert len(tries) == 1, f"{CHANGED} _backoff does not end the retries of an attach"
    await refused(sender.__aenter__, ServiceBusConnectionError)
    assert len(tries) == 4, "the usual retries are not back"


async def test_keep_unopened(sender: Any) -> None:
    assert sender._running is False, f"{CHANGED} a new sender has no _running"
    sdk_internals.keep_unopened(sender)
    sender._handler = handler = Handler()
    refusing(sender, ServiceBusConnectionError(message="lost"))
    await refused(sender.__aenter__, ServiceBusConnectionError)
    assert handler.closed == 0, f"{CHANGED} a failed attach does not close through _close_handler"
    sdk_internals.allow_closing(sender)
    await sender.close()
    assert handler.closed == 1, f"{CHANGED} close() does not close through _close_handler"


async def test_an_open_sender_closes(sender: Any) -> None:
    sdk_internals.keep_unopened(sender)
    sender._handler, sender._running = handler, _ = Handler(), True
    await sender._close_handler()
    assert handler.closed == 1


async def test_settle_by_token(client: ServiceBusClient) -> None:
    receiver: Any = client.get_queue_receiver("orders")
    requests: list[Any] = []

    async def answer(operation: bytes, message: Any, *_: Any, **__: Any) -> None:
        requests.append((operation, message["disposition-status"], "lock-tokens" in message))

    assert callable(getattr(receiver, "_mgmt_request_response", None)), f"{CHANGED} no _mgmt_request_response"
    receiver._mgmt_request_response = answer
    await sdk_internals.settle_by_token(receiver, "abandoned", ["a", "b"])
    assert requests == [(b"com.microsoft:update-disposition", "abandoned", True)], f"{CHANGED} no settling by token"


@pytest.mark.parametrize("mode", ServiceBusReceiveMode)
def test_has_locks(client: ServiceBusClient, mode: ServiceBusReceiveMode) -> None:
    receiver = client.get_queue_receiver("orders", receive_mode=mode)
    expected = mode is ServiceBusReceiveMode.PEEK_LOCK
    assert sdk_internals.has_locks(receiver) is expected, f"{CHANGED} ServiceBusReceiver._receive_mode"


def test_batch_messages() -> None:
    batch = ServiceBusMessageBatch()
    for body in (b"1", b"2"):
        batch.add_message(ServiceBusMessage(body))
    bodies = [b"".join(message.body) for message in sdk_internals.batch_messages(batch)]
    assert bodies == [b"1", b"2"], f"{CHANGED} ServiceBusMessageBatch._messages"


def test_batch_options(sender: Any) -> None:
    options = sdk_internals.batch_options(sender)
    assert options == {"amqp_transport": sender._amqp_transport}, f"{CHANGED} ServiceBusSender._amqp_transport"
    assert ServiceBusMessageBatch(**options)._amqp_transport is sender._amqp_transport
    assert sdk_internals.batch_options(None) == {}


def several() -> list[Any]:
    return [
        ServiceBusMessage(b"x" * 300, message_id="1", session_id="s", application_properties={"a": 1, "b": "two"}),
        AmqpAnnotatedMessage(data_body=[b"y"], properties={"message_id": "2"}),
        ServiceBusMessage(b"z", message_id="3", partition_key="p"),
    ]


def filled(batch: ServiceBusMessageBatch) -> Any:
    for message in several():
        batch.add_message(message)
    return batch


def test_append(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = EncodedBatch(), filled(ServiceBusMessageBatch())
    transport: Any = ours._amqp_transport
    missing = [name for name in sdk_internals.BATCH_HOOKS if not hasattr(ours, name)]
    missing += [name for name in sdk_internals.TRANSPORT_HOOKS if not hasattr(transport, name)]
    assert not missing, f"{CHANGED} a batch or its transport lacks {missing}"
    encode, encoded = transport.encode_message, []

    def counted(one: object) -> object:
        encoded.append(one)
        return encode(one)

    monkeypatch.setattr(transport, "encode_message", staticmethod(counted))
    filled(ours)
    assert len(encoded) == 3, f"{CHANGED} three messages are encoded {len(encoded)} times"
    assert ours._message == theirs._message, f"{CHANGED} the bytes of a batch differ"
    assert (len(ours), ours.size_in_bytes) == (3, theirs.size_in_bytes)
    assert ours._amqp_transport is theirs._amqp_transport


def test_what_does_not_fit_leaves_a_batch_as_it_was() -> None:
    batch = EncodedBatch(max_size_in_bytes=200)
    batch.add_message(ServiceBusMessage(b"x"))
    before = batch.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * 500))
    assert (len(batch), batch.size_in_bytes, len(batch._message[5])) == (1, before, 1)


def test_where_the_hooks_are_missing_the_sdk_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_internals, "TRANSPORT_HOOKS", ("not_there",))
    assert filled(EncodedBatch())._message == filled(ServiceBusMessageBatch())._message


@pytest.mark.parametrize("body", [b"x", b"x" * 300, b"x" * 70_000])
def test_append_counts_as_the_sdk(body: bytes) -> None:
    ours, theirs = ServiceBusMessageBatch(), ServiceBusMessageBatch()
    for _ in range(3):
        sdk_internals.append(ours, ServiceBusMessage(body))
        theirs.add_message(ServiceBusMessage(body))
    assert (len(ours), ours.size_in_bytes) == (len(theirs), theirs.size_in_bytes), f"{CHANGED} a batch counts otherwise"


def test_encode_batch_and_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, single = ServiceBusMessageBatch(), ServiceBusMessage(b"x", message_id="1", subject="s")
    sdk_internals.append(batch, single)
    transport: Any = batch._amqp_transport
    assert isinstance(getattr(batch, "_message", None), list), f"{CHANGED} a batch's _message is no list of sections"
    whole = sdk_internals.encode_batch(batch)
    encode = importlib.import_module("azure.servicebus._pyamqp._encode").encode_payload
    message = importlib.import_module("azure.servicebus._pyamqp.message")
    assert whole == encode(bytearray(), message.BatchMessage(*batch._message)), f"{CHANGED} a batch's bytes differ"
    alone = transport.to_outgoing_amqp_message(single.raw_amqp_message)
    assert sdk_internals.encode(single) == encode(bytearray(), alone), f"{CHANGED} a message's bytes differ"
    monkeypatch.setattr(sdk_internals, "TRANSPORT_HOOKS", ("not_there",))
    assert sdk_internals.encode(single) == encode(bytearray(), alone), f"{CHANGED} a message's bytes differ in a batch"


async def test_adopt_batch(sender: Any) -> None:
    batch: Any = ServiceBusMessageBatch()
    sdk_internals.append_bytes(batch, sdk_internals.encode(ServiceBusMessage(b"x", message_id="1")))
    sent: list[object] = []

    async def send(*, message: object, **_: Any) -> None:
        sent.append(message)

    sender._running, sender._send = True, send
    assert batch._amqp_transport is not sender._amqp_transport, f"{CHANGED} both have one transport: nothing to adopt"
    with pytest.raises(TypeError, match="cannot copy"):
        await sender.send_messages(batch)
    sdk_internals.adopt_batch(batch, sender)
    await sender.send_messages(batch)
    assert sent == [batch], f"{CHANGED} a batch of the sender's own _amqp_transport is copied"


def test_append_bytes() -> None:
    ours, theirs = ServiceBusMessageBatch(), ServiceBusMessageBatch()
    for name in ("1", "2"):
        single = ServiceBusMessage(b"x", message_id=name)
        theirs.add_message(single)
        transport: Any = theirs._amqp_transport
        alone = transport.to_outgoing_amqp_message(single.raw_amqp_message)
        encode = importlib.import_module("azure.servicebus._pyamqp._encode").encode_payload
        sdk_internals.append_bytes(ours, bytes(encode(bytearray(), alone)))
    assert ours.size_in_bytes == theirs.size_in_bytes, f"{CHANGED} a batch counts bytes differently"
    inner = [list(unbatch(sdk_internals.encode_batch(batch))) for batch in (ours, theirs)]
    assert inner[0] == inner[1], f"{CHANGED} a batch's messages differ"
    with pytest.raises(MessageSizeExceededError):
        sdk_internals.append_bytes(ours, bytes(2**20))


@pytest.mark.parametrize("kind", ["single", "annotated", "list", "batch"])
async def test_send_untraced(sender: Any, kind: str) -> None:
    """It sends what `send_messages` sends, with the same arguments, and makes no span."""
    missing = [name for name in sdk_internals.SENDER_HOOKS if not hasattr(sender, name)]
    assert not missing, f"{CHANGED} a sender lacks {missing}"
    sender._max_message_size_on_link = sender._max_batch_size_on_link = 2**18
    sent: list[dict[str, Any]] = []

    async def record(operation: object, **options: Any) -> None:
        sent.append({**options, "operation": operation, "message": options["message"]._message})

    sender._do_retryable_operation = record
    single = ServiceBusMessage(b"x", message_id="1", application_properties={"a": 1})
    batch = ServiceBusMessageBatch()
    batch.add_message(single)
    payloads = {"single": single, "annotated": single.raw_amqp_message, "list": [single, single], "batch": batch}
    with tracing(RecordedSpan):
        await sdk_internals.send_untraced(sender, payloads[kind], 5)
        assert not RecordedSpan.kept
    await sender.send_messages(payloads[kind], timeout=5)
    assert sent[0] == sent[1], f"{CHANGED} send_messages calls its own methods otherwise"


@pytest.mark.parametrize(
    "options",
    [{}, {"retry_total": 0}, {"retry_mode": "fixed", "retry_total": 2}, {"retry_backoff_max": 4}],
)
def test_retry_pauses(options: dict[str, Any]) -> None:
    client: Any = ServiceBusClient.from_connection_string(KEY, **options)
    backoff = importlib.import_module("azure.servicebus._base_handler")._get_backoff_time
    config = client._config
    pauses = [
        backoff(config.retry_mode, config.retry_backoff_factor, config.retry_backoff_max, number)
        for number in range(1, config.retry_total + 1)
    ]
    assert list(sdk_internals.retry_pauses(client)) == pytest.approx(pauses), f"{CHANGED} the pauses between retries"


def test_a_client_without_retry_settings() -> None:
    nothing: Any = object()
    assert sdk_internals.retry_pauses(nothing) == ()


@pytest.fixture
def admin() -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(KEY)


async def test_renew_signatures_early(admin: Any) -> None:
    sdk_internals.renew_signatures_early(admin)
    sdk_internals.renew_signatures_early(admin)
    policies = [getattr(step, "_policy", None) for step in admin._pipeline._impl_policies]
    signing = [policy for policy in policies if hasattr(policy, "_token_expiry_on")]
    assert len(signing) == 1, f"{CHANGED} no policy with _token_expiry_on in the pipeline"
    await signing[0]._update_token()
    ends = signing[0]._token_expiry_on - time.time()
    assert 3000 < ends <= 3600 - sdk_internals.SIGNATURE_MARGIN, f"{CHANGED} a signature counts for {ends:.0f} s"


async def test_entities_as_xml(admin: Any) -> None:
    """tests/pairing/test_management.py reads and writes entities by them against a sandbox."""
    for name in ("_get_entity_element", "_create_forward_to_header_tokens"):
        assert hasattr(admin, name), f"{CHANGED} there is no {name}"
    for part in ("list_entities", "list_subscriptions", "entity"):
        assert hasattr(admin._impl, part), f"{CHANGED} the client's _impl has no {part}"


@pytest.mark.parametrize("name", [name for name in KIND_BY_CLASS if name.startswith("azure.servicebus.")])
def test_names_of_failures(name: str) -> None:
    """core judges failures by their classes' names, some of them private."""
    module, _, kind = name.rpartition(".")
    assert hasattr(importlib.import_module(module), kind), f"{CHANGED} there is no {name}"


def test_use_credential(client: ServiceBusClient) -> None:
    credential = AzureNamedKeyCredential("other", "key")
    sdk_internals.use_credential(client, credential)
    sender: Any = client.get_queue_sender("orders")
    held = getattr(sender._credential, "_credential", sender._credential)
    assert held is credential, f"{CHANGED} a sender does not get ServiceBusClient._credential"


async def test_adopt_signatures() -> None:
    one, other = (ServiceBusAdministrationClient.from_connection_string(KEY + end) for end in ("", "Mg=="))
    policies = list(sdk_internals._signing_policies(one))
    assert policies, f"{CHANGED} no policy of the management client has _token_expiry_on"
    before = await policies[0]._credential.get_token("https://contoso.servicebus.windows.net/")
    sdk_internals.adopt_signatures(one, other)
    after = await policies[0]._credential.get_token("https://contoso.servicebus.windows.net/")
    assert after.token != before.token, f"{CHANGED} a management client keeps its key"
    assert policies[0]._token_expiry_on == 0
