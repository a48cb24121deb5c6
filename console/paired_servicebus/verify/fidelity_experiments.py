"""Experiment about fidelity: messages of every AMQP type, parked and moved home in our envelope, byte for byte."""

from __future__ import annotations

import time
from typing import Any, Final
from uuid import UUID

from paired_servicebus.core.model.envelope import BROKERS, PATH
from paired_servicebus.pairing.syphon.envelope_codec import open_envelope, restore_message
from paired_servicebus.temporary_entities.managed_namespace import NotPermittedError, Side
from paired_servicebus.verify.trial import Experiment, Observation, Trial
from servicebus_amqp.encoding.amqp_types import (
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
)
from servicebus_amqp.encoding.codec import described, encode
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
