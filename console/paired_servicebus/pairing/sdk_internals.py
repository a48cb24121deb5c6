"""Every hook into undocumented interiors of azure-servicebus. No other module touches them.

Each hook names the attribute that it relies on, and its behaviour without it. tests/pairing/test_sdk_internals.py has a
contract test for each; `python -m tests.conformance.sdk_releases` runs them against other releases of the SDK.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from functools import cache, partial
from types import FunctionType, SimpleNamespace
from typing import Any, Final, TypeVar, cast
from xml.etree.ElementTree import Element

from azure.core import MatchConditions
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

LOGGERS: Final = tuple(
    f"azure.servicebus._pyamqp.aio.{module}"
    for module in (
        "_connection_async",
        "_link_async",
        "_management_operation_async",
        "_receiver_async",
        "_sender_async",
        "_session_async",
    )
)
"""The private loggers that write records of one connection at WARNING or above."""
BATCH_HOOKS: Final = ("_size", "_count", "_messages", "_message")
"""The attributes of the SDK's batch that `append` changes."""
TRANSPORT_HOOKS: Final = ("encode_message", "to_outgoing_amqp_message", "set_batch_envelope_properties")
"""The methods of the SDK's `_amqp_transport` that `append` and `send_untraced` call."""
SENDER_HOOKS: Final = ("_check_live", "_do_retryable_operation", "_send")
"""The methods of the SDK's sender that `send_untraced` calls, beside its `_amqp_transport`."""
SIGNATURE_MARGIN: Final = 300
"""Seconds before its expiry at which `renew_signatures_early` replaces a signature."""
_DATA_SECTION: Final = 5
"""The index of the data sections in the SDK's raw batch message."""
_OVERHEAD_BYTES: Final = (5, 8)
"""Bytes that a batch adds to a message of fewer bytes than _LARGE_BYTES, and to another one."""
_LARGE_BYTES: Final = 256

T = TypeVar("T")

# -- clients and credentials ----------------------------------------------------------------------------------


def client_config(client: ServiceBusClient) -> Any:
    """Return the client's settings: `ServiceBusClient._config`. Raises AttributeError without it."""
    return client._config


def retry_pauses(client: ServiceBusClient) -> tuple[float, ...]:
    """Return the seconds before each retry, by the client's settings: `retry_total` and more of its `_config`.

    Without these, nothing is retried.
    """
    config = getattr(client, "_config", None)
    total, factor, most = (
        getattr(config, name, 0) for name in ("retry_total", "retry_backoff_factor", "retry_backoff_max")
    )
    is_fixed = getattr(getattr(config, "retry_mode", None), "name", "").upper() == "FIXED"
    return tuple(min(most, factor if is_fixed else factor * 2**number) for number in range(1, total + 1))


def client_credential(client: ServiceBusClient) -> Any:
    """Return the client's credential: `ServiceBusClient._credential`. None without it."""
    return getattr(client, "_credential", None)


def use_credential(client: ServiceBusClient, credential: object) -> None:
    """Have a new client use another credential than its connection string's: `ServiceBusClient._credential`.

    The senders and receivers that it makes afterwards get it. Raises AttributeError without it.
    """
    if not hasattr(client, "_credential"):
        raise AttributeError("this azure-servicebus has no ServiceBusClient._credential")
    client._credential = credential  # type: ignore[assignment]


def is_key(credential: object) -> bool:
    """Return whether a credential signs with a key: "Key" is part of the names of the SDK's classes for keys."""
    return "Key" in type(credential).__name__


def signature_of(credential: object) -> str:
    """Return a credential's ready signature: `signature`, or `token` of the SDK's own class. "" without either."""
    held = getattr(credential, "signature", None) or getattr(credential, "token", None)
    return held.decode() if isinstance(held, bytes) else held if isinstance(held, str) else ""


def token_type(credential: object) -> str | None:
    """Return the kind of a credential's tokens: `token_type` of the SDK's classes for keys. None without it."""
    kind = getattr(credential, "token_type", None)
    return kind.decode() if isinstance(kind, bytes) else kind


# -- log records ----------------------------------------------------------------------------------------------


def connection_name(record: logging.LogRecord) -> str | None:
    """Return the connection that a record of LOGGERS is about: its `amqpConnection`. None without it.

    The name is the client identifier of the sender or receiver that opened the connection.
    """
    return getattr(record, "amqpConnection", None)


def link_names(client: ServiceBusClient) -> Iterator[str | None]:
    """Yield the identifiers of a client's senders and receivers: `_name` of each of `ServiceBusClient._handlers`."""
    for link in tuple(getattr(client, "_handlers", ())):
        yield getattr(link, "_name", None)


# -- senders and receivers ------------------------------------------------------------------------------------


def largest_message(sender: ServiceBusSender | None) -> int:
    """Return the bytes that a sender's link admits: `_max_message_size_on_link`. 0 without it, or while detached."""
    limit = getattr(sender, "_max_message_size_on_link", 0)
    return limit if isinstance(limit, int) else 0


def raise_at_once(link: ServiceBusSender | ServiceBusReceiver, kind: type[Exception]) -> None:
    """Raise one kind of failure without the SDK's retries: it has no option for one kind.

    Replaces `_backoff`, the pause between two tries; without it, nothing changes. Every other failure is retried as
    the client is configured.
    """
    pause = getattr(link, "_backoff", None)
    if pause is None:
        return

    async def backoff(**state: Any) -> None:
        error = state.get("last_exception")
        if isinstance(error, kind):
            raise error
        await pause(**state)

    setattr(link, "_backoff", backoff)  # noqa: B010 - mypy rejects the assignment


async def attach_once(sender: ServiceBusSender) -> None:
    """Attach without the SDK's retries, which take some 11 s by default even after a refusal.

    Replaces the `_backoff` of `raise_at_once` during the attach; without it, the SDK retries.
    """
    usual = getattr(sender, "_backoff", None)
    raise_at_once(sender, Exception)
    try:
        await sender.__aenter__()
    finally:
        setattr(sender, "_backoff", usual)  # noqa: B010 - mypy rejects the assignment


def keep_unopened(sender: ServiceBusSender) -> None:
    """Stop the SDK from closing a link that did not open; the caller closes it later, after `allow_closing`.

    An attach that exceeds its time leaves the SDK none for closing: it cancels the close and logs a traceback for each.
    Replaces `_close_handler` while `_running` is false; without the first, nothing changes.
    """
    close: Callable[[], Awaitable[Any]] | None = getattr(sender, "_close_handler", None)
    if close is None:
        return

    def close_opened() -> Awaitable[Any]:
        if getattr(sender, "_running", True):
            return close()
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    setattr(sender, "_close_handler", close_opened)  # noqa: B010 - mypy rejects the assignment


def allow_closing(sender: ServiceBusSender) -> None:
    """Undo `keep_unopened`: restore the class's `_close_handler`."""
    vars(sender).pop("_close_handler", None)


async def send_untraced(sender: ServiceBusSender, payload: Any, timeout: float) -> None:
    """Send as `send_messages` of the sender does, without the SDK's tracing spans. Without SENDER_HOOKS: with them.

    The SDK would make the spans in the running task, which may serve several callers.
    """
    sdk: Any = sender
    kind: Any = type(sender)
    transport: Any = getattr(sender, "_amqp_transport", None)
    if not _has_hooks(kind.send_messages, kind, transport):
        await sender.send_messages(payload, timeout=timeout)
        return
    sdk._check_live()
    message: Any = payload
    if isinstance(payload, list):
        message = await sender.create_message_batch()
        for single in payload:
            append(message, single)
    elif not isinstance(payload, ServiceBusMessageBatch):
        raw = payload if isinstance(payload, AmqpAnnotatedMessage) else payload.raw_amqp_message
        message = _Encodable(transport.to_outgoing_amqp_message(raw))
    await sdk._do_retryable_operation(
        sdk._send,
        message=message,
        timeout=timeout,
        operation_requires_timeout=True,
        apply_try_timeout=True,
        require_last_exception=True,
    )


@cache
def _has_hooks(send: Hashable, sender: Hashable, transport: Hashable) -> bool:
    """Return whether a sender's class has the hooks, and `send` is the SDK's: an instrumentation's has to be called."""
    is_sdks = isinstance(send, FunctionType) and not hasattr(send, "__wrapped__")
    hooks = all(hasattr(sender, name) for name in SENDER_HOOKS)
    return is_sdks and hooks and all(hasattr(transport, name) for name in TRANSPORT_HOOKS)


async def settle_by_token(receiver: ServiceBusReceiver, status: str, tokens: list[Any]) -> None:
    """Settle locked messages of the receiver's entity, whichever link they came on: `_settle_message_via_mgmt_link`.

    status: the service's word, such as "abandoned" or "defered". Raises AttributeError without it.
    """
    sdk: Any = receiver
    await sdk._settle_message_via_mgmt_link(status, tokens)


def has_locks(receiver: ServiceBusReceiver) -> bool:
    """Return whether a receiver's messages need settlement: `_receive_mode`. Raises AttributeError without it."""
    return receiver._receive_mode is ServiceBusReceiveMode.PEEK_LOCK


# -- batches --------------------------------------------------------------------------------------------------


def batch_messages(batch: ServiceBusMessageBatch) -> list[ServiceBusMessage]:
    """Return a batch's messages: `ServiceBusMessageBatch._messages`. Raises AttributeError without it."""
    return batch._messages


def batch_options(sender: ServiceBusSender | None) -> dict[str, Any]:
    """Return options of a batch for one sender: its `_amqp_transport`; empty without it.

    The SDK copies a batch of another transport before it sends it.
    """
    transport = getattr(sender, "_amqp_transport", None)
    return {} if transport is None else {"amqp_transport": transport}


def adopt_batch(batch: ServiceBusMessageBatch, sender: ServiceBusSender) -> None:
    """Have a sender send a batch as it is: both have an `_amqp_transport`, of the same `KIND`.

    The SDK copies a batch of another transport from its messages' objects, and bytes have none. Without these it
    copies, and refuses one of bytes.
    """
    mine: Any = getattr(batch, "_amqp_transport", None)
    transport: Any = getattr(sender, "_amqp_transport", None)
    if mine is not None and getattr(mine, "KIND", None) == getattr(transport, "KIND", ""):
        batch._amqp_transport = transport


def message_of(raw: AmqpAnnotatedMessage, outgoing: Any = None) -> ServiceBusMessage:
    """Return an annotated message as a message: the constructor's `message` and `raw_amqp_message`."""
    return ServiceBusMessage(None, message=outgoing, raw_amqp_message=raw)


def append(batch: ServiceBusMessageBatch, message: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
    """Add a message as the SDK's `add_message` does, with one encoding instead of two, and without its tracing span.

    Without BATCH_HOOKS and TRANSPORT_HOOKS the SDK's own is called. Raises MessageSizeExceededError.
    """
    transport: Any = getattr(batch, "_amqp_transport", None)
    if not all(hasattr(batch, name) for name in BATCH_HOOKS) or not all(
        hasattr(transport, name) for name in TRANSPORT_HOOKS
    ):
        ServiceBusMessageBatch.add_message(batch, message)
        return
    raw = message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message
    outgoing = transport.to_outgoing_amqp_message(raw)
    single = message_of(raw, outgoing) if isinstance(message, AmqpAnnotatedMessage) else message
    _append(batch, transport.encode_message(_Encodable(outgoing)), single)


def append_bytes(batch: ServiceBusMessageBatch, encoded: bytes) -> None:
    """Add a message that is encoded already; BATCH_HOOKS.

    Raises MessageSizeExceededError, or AttributeError without these.
    """
    _append(batch, encoded, _BYTES_ALONE)


def _append(batch: Any, encoded: bytes | bytearray, message: ServiceBusMessage) -> None:
    size = batch._size + len(encoded) + _OVERHEAD_BYTES[len(encoded) >= _LARGE_BYTES]
    if size > batch.max_size_in_bytes:
        raise MessageSizeExceededError(message=f"the batch has reached its limit of {batch.max_size_in_bytes} bytes")
    batch._message[_DATA_SECTION].append(encoded)
    batch._size = size
    batch._count += 1
    batch._messages.append(message)
    if batch._count == 1:  # the batch itself has the first one's id, session and partition key
        batch._amqp_transport.set_batch_envelope_properties(
            batch._message, message.message_id, message.session_id, message.partition_key
        )


class _BytesAlone(ServiceBusMessage):
    """Stands for a message that its batch has in bytes alone."""

    @property
    def raw_amqp_message(self) -> AmqpAnnotatedMessage:
        """Raises TypeError: a copy of the batch would have an empty message instead."""
        raise TypeError("the batch has its messages in bytes alone, and the SDK cannot copy it")


_BYTES_ALONE: Final = _BytesAlone(b"")
"""One for all batches: making one for each message costs as much as its encoding."""


class _Encodable:
    """The part of a message that the SDK's encoder and its `_send` read."""

    __slots__ = ("_message",)

    def __init__(self, message: Any) -> None:
        self._message = message


def encode_batch(batch: ServiceBusMessageBatch) -> bytes:
    """Return a batch as one AMQP message: its `_message`, by `encode_message` of its `_amqp_transport`.

    Raises AttributeError without these.
    """
    return bytes(batch._amqp_transport.encode_message(_Encodable(batch._message)))


def encode(message: ServiceBusMessage | AmqpAnnotatedMessage) -> bytes:
    """Return a message as the SDK encodes it. Without TRANSPORT_HOOKS: as in the `_message` of a batch with this one.

    Raises AttributeError without these.
    """
    batch: Any = ServiceBusMessageBatch(sys.maxsize)
    transport = batch._amqp_transport
    if not all(hasattr(transport, name) for name in TRANSPORT_HOOKS):
        batch.add_message(message)
        return bytes(batch._message[_DATA_SECTION][0])
    raw = message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message
    return bytes(transport.encode_message(_Encodable(transport.to_outgoing_amqp_message(raw))))


# -- management -----------------------------------------------------------------------------------------------


def renew_signatures_early(client: ServiceBusAdministrationClient) -> None:
    """Renew a management client's signatures before they expire; a client with an identity is unchanged.

    With a key the SDK signs for an hour, and again a minute after the expiry (azure-servicebus 7.15). The service would
    refuse that minute's requests. Wraps `_credential` of the policy with a `_token_expiry_on` in the client's
    `_pipeline._impl_policies`; without these, nothing changes.
    """
    for policy in _signing_policies(client):
        if not isinstance(policy._credential, _EarlyExpiry):
            policy._credential = _EarlyExpiry(policy._credential)


def adopt_signatures(client: ServiceBusAdministrationClient, other: ServiceBusAdministrationClient) -> None:
    """Have a management client sign its next requests as `other` would; hooks as `renew_signatures_early`.

    Raises AttributeError without them: the client goes on with its present key.
    """
    mine, theirs = list(_signing_policies(client)), list(_signing_policies(other))
    if not mine or len(mine) != len(theirs):
        raise AttributeError("this azure-servicebus has no _token_expiry_on in its management client's policies")
    for policy, new in zip(mine, theirs, strict=True):
        policy._credential, policy._token_expiry_on = _EarlyExpiry(new._credential), 0


def _signing_policies(client: ServiceBusAdministrationClient) -> Iterator[Any]:
    for step in getattr(getattr(client, "_pipeline", None), "_impl_policies", ()):
        policy: Any = getattr(step, "_policy", None)
        if hasattr(policy, "_token_expiry_on"):
            yield policy


class _EarlyExpiry:
    """A credential whose tokens expire SIGNATURE_MARGIN earlier."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        token = await self._credential.get_token(*scopes, **options)
        return AccessToken(token.token, token.expires_on - SIGNATURE_MARGIN)


async def read_entity(client: ServiceBusAdministrationClient, path: str, **options: Any) -> Element:
    """Return the XML of a queue's or topic's entry: `_get_entity_element`. Raises AttributeError without it."""
    return cast(Element, await client._get_entity_element(path, **options))


def list_entities(
    client: ServiceBusAdministrationClient, kind: str, page: int, *, topic: str = "", **options: Any
) -> AsyncIterator[Element]:
    """Yield the XML of each page of a list: `list_entities`, or `list_subscriptions`, of the client's `_impl`.

    Args:
        kind: "queues" or "topics"; "subscriptions" are a topic's.
        page: the entities of a page, at most 100.

    Raises AttributeError without them.
    """
    sdk: Any = client._impl
    read = partial(sdk.list_subscriptions, topic) if topic else partial(sdk.list_entities, kind)
    return _pages(lambda skip: read(skip=skip, top=page, **options), page)


async def _pages(read: Callable[[int], Awaitable[Any]], page: int) -> AsyncIterator[Element]:
    """Yield pages until one has no link to a next page."""
    skip = 0
    while True:
        feed = cast(Element, await _with_detail(read(skip)))
        yield feed
        if not any(link.get("rel") == "next" for link in feed.iterfind("{http://www.w3.org/2005/Atom}link")):
            return
        skip += page


async def write_entity(
    client: ServiceBusAdministrationClient,
    path: str,
    body: Element,
    *,
    update: bool = False,
    forwards: tuple[str, str] = ("", ""),
    **options: Any,
) -> None:
    """Create a queue or topic, or update an existing one: `entity.put` of the client's `_impl`.

    The SDK's policy removes the prefix of the second namespace that it writes, which the service does not accept.
    Raises AttributeError without it.

    Args:
        body: an Atom entry whose content is the description.
        forwards: where the entity forwards messages and dead letters to; `_create_forward_to_header_tokens` signs both.
    """
    if update:
        options["match_condition"] = MatchConditions.IfPresent
    if any(forwards):
        targets = SimpleNamespace(forward_to=forwards[0], forward_dead_lettered_messages_to=forwards[1])
        sign: Any = client._create_forward_to_header_tokens
        await sign(targets, options)
    request: Any = body  # its declared type is the answer's
    await _with_detail(client._impl.entity.put(path, request, **options))


async def _with_detail(request: Awaitable[T]) -> T:
    """Await a request; the error of a refusal has the service's sentence, as the SDK's own methods have it."""
    try:
        return await request
    except HttpResponseError as error:
        detail = getattr(getattr(error, "model", None), "detail", None)
        if not detail:
            raise
        raise HttpResponseError(message=detail, response=error.response, model=error.model) from None
