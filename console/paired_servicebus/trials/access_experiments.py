"""Experiments about entry and rights: SASL, tokens, keys."""

from __future__ import annotations

import asyncio
import secrets
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from paired_servicebus.core.backlog.queue_settings import AccessRule, QueueWanted
from paired_servicebus.core.errors import WireError
from paired_servicebus.core.model.envelope import BROKERS, PATH
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.amqp_client.endpoint import connect
from paired_servicebus.pairing.amqp_client.reconnecting import peek
from paired_servicebus.pairing.envelope_codec import open_envelope, restore_message
from paired_servicebus.trials.temporary_entities import NotPermittedError, Side
from paired_servicebus.trials.trial import Experiment, Observation, Trial, TrialReceiver, TrialSender, letter
from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    described,
    encode,
)
from servicebus_amqp.encoding.frames import HEADER_SIZE, SASL_FRAME, SASL_HEADER, read_frame_header
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Properties,
    Sections,
    edit_map,
    split,
    write_properties,
)
from servicebus_amqp.encoding.performatives import SaslMechanisms, read_sasl
from servicebus_amqp.protocol_errors import AmqpError

# Experiment about fidelity: messages of every AMQP type, parked and moved home in our envelope, byte for byte.

SCALARS: Final[dict[str, Any]] = {
    "null": None,
    "boolean": True,
    "ubyte": UByte(7),
    "ushort": UShort(700),
    "uint": UInt(70_000),
    "ulong": ULong(2**40),
    "byte": Byte(-7),
    "short": Short(-700),
    "int": Int(-70_000),
    "long": -(2**40),
    "float": Float(1.5),
    "double": 2.25,
    "decimal32": Decimal32(b"abcd"),
    "decimal64": Decimal64(b"abcdefgh"),
    "decimal128": Decimal128(b"abcdefghijklmnop"),
    "char": Char("ø"),
    "timestamp": Timestamp(1_700_000_000_000),
    "uuid": UUID(int=5),
    "binary": b"\x00\xff",
    "string": "ø",
    "symbol": Symbol("name"),
    "timespan": Described(Symbol("com.microsoft:timespan"), 10_000_000),
}
"""Application properties; AMQP allows scalars there, and the service described ones of its own."""
_NESTED: Final[dict[str, Any]] = {
    **SCALARS,
    "list": [1, "two", None],
    "map": {"a": {"b": [1, None, True]}},
    "array": Array.of(int, [1, 2**40]),
    "described": Described(Symbol("com.example:thing"), ["x", 1]),
}
BODIES: Final = {
    "data": described(DATA, encode(b"x")) + described(DATA, encode(b"y")),
    "sequence": described(SEQUENCE, encode(list(_NESTED.values()))),
    "value": described(VALUE, encode(_NESTED)),
}
_COMPARED: Final = ("properties", "application_properties", "body", "footer")
_BROKERS: Final = tuple(name.encode() for name in BROKERS)


def _original(kind: str, properties: dict[str, Any]) -> Sections:
    return Sections(
        message_annotations=described(MESSAGE_ANNOTATIONS, encode({Symbol("x-verify"): Char("x")})),
        properties=write_properties(Properties(message_id=kind, user_id=b"u", subject="s", group_sequence=3)),
        application_properties=described(APPLICATION_PROPERTIES, encode(properties)),
        body=BODIES[kind],
        footer=described(FOOTER, encode({Symbol("f"): Char("x")})),
    )


async def move_every_type(trial: Trial) -> Observation:
    """Park a message of each kind of body, take it out of its envelope, move it home, and compare the bytes."""
    parking = await trial.queue()
    side = Side.PRIMARY
    try:
        home = await trial.queue(side=side)
    except NotPermittedError:  # the primary needs no Manage for anything else
        side = Side.SECONDARY
        home = await trial.queue()
    park, parked = await trial.sender(parking), await trial.receiver(parking)
    deliver, arrived = await trial.sender(home, side=side), await trial.receiver(home, side=side)
    differences = []
    for kind in BODIES:
        envelope = _original(kind, {**SCALARS, PATH: home})
        await park.send(envelope.join())
        delivery = await parked.one()
        restored = restore_message(open_envelope(delivery.payload), now_ms=int(time.time() * 1000))
        await deliver.send(restored if isinstance(restored, bytes) else b"".join(restored))
        await parked.settle(delivery)
        final = await arrived.one()
        await arrived.settle(final)
        differences += [f"{kind}: {name}" for name in _changed(_original(kind, SCALARS), split(final.payload))]
    where = f"from the secondary to the {side} namespace"
    if differences:
        return Observation(False, f"moved {where}; changed: {', '.join(differences)}")
    return Observation(True, f"{len(SCALARS)} types in {len(BODIES)} kinds of body moved {where}, all bytes equal")


def _changed(meant: Sections, found: Sections) -> list[str]:
    """Return the sections whose bytes differ, apart from the annotations of the namespace."""
    changed = [name for name in _COMPARED if getattr(meant, name) != getattr(found, name)]
    own = edit_map(found.message_annotations, MESSAGE_ANNOTATIONS, drop=_BROKERS)
    return changed if own == meant.message_annotations else [*changed, "message_annotations"]


FIDELITY_EXPERIMENTS: Final = (
    Experiment(
        name="bit-for-bit",
        assumption="a message of any AMQP type comes home from the backlog with every byte unchanged",
        why="a failover must not change a message: body and its kind, annotations, properties and footer",
        run=move_every_type,
    ),
)


SASL_SECONDS: Final = 15.0
TOKEN_SECONDS: Final = 60.0
"""The life of a token that is not renewed."""
ENFORCED_SECONDS: Final = 600.0
"""Seconds within which a namespace has to notice its end, or never will."""
KEY_SECONDS: Final = 30.0
"""Seconds until a new rule's key has to be accepted."""
MAX_SASL_BYTES: Final = 64 * 1024
NEEDED_MECHANISMS: Final = ("MSSBCBS", "ANONYMOUS")


class _SaslReader(asyncio.Protocol):
    """Sends the SASL header, and reads the offered mechanisms."""

    def __init__(self) -> None:
        self.offered: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.BaseTransport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(SASL_HEADER)  # type: ignore[attr-defined] # a WebSocket's transport is no WriteTransport

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            self._read()
        except AmqpError as error:
            self._fail(ConnectionError(f"an unreadable answer to the SASL header: {error}"))
        if len(self._data) > MAX_SASL_BYTES:
            self._fail(ConnectionError("an endless answer to the SASL header"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError("the connection was closed after the SASL header"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _read(self) -> None:
        if len(self._data) < HEADER_SIZE + 8 or self.offered.done():
            return
        header = read_frame_header(self._data, HEADER_SIZE, kind=SASL_FRAME, most=MAX_SASL_BYTES)
        if header.size <= len(self._data) - HEADER_SIZE:
            body = self._data[HEADER_SIZE + header.body : HEADER_SIZE + header.size]
            frame, _ = read_sasl(body, 0)
            if isinstance(frame, SaslMechanisms):
                self.offered.set_result(tuple(map(str, frame.sasl_server_mechanisms)))

    def _fail(self, error: Exception) -> None:
        if not self.offered.done():
            self.offered.set_exception(error)


async def offered_mechanisms(endpoint: Endpoint) -> Sequence[str]:
    """Return the SASL mechanisms that a namespace offers. Raises WireError, OSError, TimeoutError."""
    reader = _SaslReader()
    try:
        async with asyncio.timeout(SASL_SECONDS):
            await connect(endpoint, lambda: reader)
            return await reader.offered
    finally:
        reader.close()


async def offer_mechanisms(trial: Trial) -> Observation:
    """Compare the SASL mechanisms of both namespaces with those that clients need."""
    seen, holds = [], True
    for side in trial.namespaces:
        offered = await offered_mechanisms(trial.endpoint(side=side))
        holds &= all(name in offered for name in NEEDED_MECHANISMS)
        seen.append(f"{side} offers {', '.join(offered) or 'none'}")
    return Observation(holds, "; ".join(seen))


async def refuse_deleted_token(trial: Trial) -> Observation:
    """Put a token for a queue that is deleted; without Manage, for one that never existed."""
    try:
        path = await trial.queue()
        await trial.remove(path)
        origin = "a deleted queue"
    except NotPermittedError:
        path, origin = trial.name(), "a queue that never existed"
    try:
        await TrialSender.attach(trial.wire(), path)
    except WireError as error:
        return Observation(kind_of(error) is FailureKind.NOT_FOUND, f"{origin}: {type(error).__name__}: {error}")
    return Observation(False, f"{origin} accepted a token and a link")


async def refuse_peek(trial: Trial) -> Observation:
    """Peek with a key that only sends."""
    refused, seen = await _peek_with(trial, "Send")
    return Observation(refused is not None and kind_of(refused) in CREDENTIALS, seen)


async def peek_listening(trial: Trial) -> Observation:
    """Peek with a key that only listens."""
    refused, seen = await _peek_with(trial, "Listen")
    return Observation(refused is None, seen)


async def _peek_with(trial: Trial, right: str) -> tuple[WireError | None, str]:
    """Peek with a key that has one right; return its refusal, and the evidence."""
    name, key = f"verify-{right.lower()}", b64encode(secrets.token_bytes(32)).decode()
    path = await trial.queue(QueueWanted(rules=(AccessRule(name=name, rights=frozenset({right}), key=key),)))
    limited = replace(trial.endpoint(), credential=AzureNamedKeyCredential(name, key))
    wire = await _accepted(trial, limited, path, right)
    try:
        found = await peek(wire, path, from_number=0, count=1)
    except WireError as error:
        return error, f"a key with {right} alone: {error}"
    return None, f"a key with {right} alone peeked {len(found)} messages"


async def end_token(trial: Trial) -> Observation:
    """Leave a link whose token is not renewed until it is detached."""
    name, key = "verify-brief", b64encode(secrets.token_bytes(32)).decode()
    path = await trial.queue(QueueWanted(rules=(AccessRule(name=name, rights=frozenset({"Listen"}), key=key),)))
    await _accepted(trial, replace(trial.endpoint(), credential=AzureNamedKeyCredential(name, key)), path, "Listen")
    token = sign(trial.endpoint().audience(path), name, key, time.time() + TOKEN_SECONDS)
    receiver = await TrialReceiver.attach(
        trial.wire(endpoint=replace(trial.endpoint(), credential=AzureSasCredential(token))), path
    )
    began = asyncio.get_running_loop().time()
    await asyncio.wait((receiver.lost,), timeout=TOKEN_SECONDS + ENFORCED_SECONDS)
    if not receiver.lost.done():
        return Observation(True, f"a link outlived its token by {ENFORCED_SECONDS:g} s")
    error, lived = receiver.lost.result(), asyncio.get_running_loop().time() - began
    return Observation(kind_of(error) in CREDENTIALS, f"a token of {TOKEN_SECONDS:g} s; after {lived:.0f} s: {error}")


async def _accepted(trial: Trial, endpoint: Endpoint, path: str, right: str) -> ReconnectingConnection:
    """Return a connection on which the new key has a link. Raises WireError: it is not accepted in time."""
    end = asyncio.get_running_loop().time() + KEY_SECONDS
    while True:
        wire = trial.wire(endpoint=endpoint)
        try:
            if right == "Send":
                await (await TrialSender.attach(wire, path)).send(letter("1"))
            else:
                await TrialReceiver.attach(wire, path)
            return wire
        except WireError:
            if asyncio.get_running_loop().time() > end:
                raise
            await asyncio.sleep(1.0)


ACCESS_EXPERIMENTS: Final = (
    Experiment(
        name="sasl-mechanisms",
        assumption="both namespaces offer the SASL mechanisms MSSBCBS and ANONYMOUS",
        why="our AMQP uses ANONYMOUS, Microsoft's .NET client MSSBCBS; a gateway has to offer both",
        run=offer_mechanisms,
    ),
    Experiment(
        name="deleted-entity-token",
        assumption="a link to a deleted entity is refused as not found; its token is not refused as a bad one",
        why="a missing queue counts towards failover and is made again; a bad credential is the caller's error",
        run=refuse_deleted_token,
    ),
    Experiment(
        name="peek-needs-listen",
        assumption="a key with Send alone cannot peek",
        why="the claims that the documents ask for: Listen for an engine that shows a backlog, Send for a sender",
        run=refuse_peek,
    ),
    Experiment(
        name="listen-peeks",
        assumption="a key with Listen alone can peek",
        why="engines read the fleet's orders with Listen alone; if this differs, their key needs Send too",
        run=peek_listening,
    ),
    Experiment(
        name="token-end",
        assumption="a link whose token has ended stays, or is detached as not authorized",
        why="a credential that ends is the owner's to renew: it is said as such, and fails nothing over",
        run=end_token,
        deadline=KEY_SECONDS + TOKEN_SECONDS + ENFORCED_SECONDS + 60,
        is_slow=True,
    ),
)
