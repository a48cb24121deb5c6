"""Documents as messages: what is written is read, and nothing on a board raises, costs much or passes for ours."""

from __future__ import annotations

import random
import time
import zlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import (
    MAX_BYTES,
    Board,
    Document,
    DocumentKind,
    Goodbye,
    Order,
    OrderText,
    Posted,
    Report,
    Watch,
)
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    Snapshot,
    SyphonStatus,
    SyphonView,
)
from paired_servicebus.engine.fleet.board_codec import (
    CONTENT_TYPE,
    DEFLATE,
    ENCODING,
    read_post,
    write_body,
    write_post,
)
from servicebus_amqp.encoding.message_sections import (
    Header,
    Properties,
    Sections,
    read_header,
    read_map,
    read_properties,
    split,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
)
from tests.approval import Approve

from .conftest import AUTHOR, presence

TEXT = OrderText(
    primary="p", secondary="s", verb="force", scope="entity", targets=("payments",), engines=None, typed="20",
    reach=20, why="drill", issued_at=5.0, until=14405.0, seen="ab",
)  # fmt: skip
SIGNED = b'{ "v":1,\n "why":"\xc3\xa9", ' + msgspec.json.encode(replace(TEXT, why="")).replace(b'"why":"",', b"")[1:]
ORDER = Order(signed=SIGNED.decode(), signature="-----BEGIN SSH SIGNATURE-----")
DOCUMENTS: list[Document] = [
    presence(),
    Goodbye(id="g", author=AUTHOR, reason="end"),
    Watch(id="w", by="op", look=5.0, report=15.0),
    ORDER,
]


def report(entities: int) -> Report:
    """A report whose figures differ from entity to entity."""
    draw = random.Random(1)
    return Report(
        id="r", presence=presence(), pace=15.0,
        snapshot=Snapshot(
            engine="orders@web-1", boot="b1", pid=1, seq=9, at=1_790_000_000.25, pairing="orders", environment="test",
            primary="primary", secondary="secondary", read_only=False, queues=(), billed=Meter(), times="wall",
            syphon=SyphonView(status=SyphonStatus.IDLE, text="no message is parked"),
            entities=tuple(
                EntityView(
                    path=f"shop/orders-{index:04}", state=State.HEALTHY, since=1_790_000_000 + draw.random() * 9e4,
                    why="", route="primary", sends_per_second=draw.random() * 90, accepted=draw.randrange(10**7),
                    diverted=draw.randrange(10**4), failed=draw.randrange(99), pings=draw.randrange(10**4),
                    last_ping_at=1_790_000_000 + draw.random() * 9e4, last_ping_good=True,
                )
                for index in range(entities)
            ),
        ),
    )  # fmt: skip


def enemy(body: bytes, kind: str = "watch", *, ttl: int | None = 60_000, message_id: str = "w", **mine: Any) -> bytes:
    return Sections(
        header=write_header(Header(ttl=ttl)),
        properties=write_properties(Properties(message_id=message_id, subject=kind, content_type=CONTENT_TYPE)),
        application_properties=write_application_properties({"v": "1"} | mine),
        body=write_data(body),
    ).join()


def read(data: bytes, board: Board = Board.ORDERS) -> Posted:
    return read_post(data, board)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.kind.value)
def test_a_document_is_read_as_it_was_written(document: Document) -> None:
    data = write_post(document, ttl=60.0, posted_by=AUTHOR)
    found = read(data, document.kind.board)
    assert (found.document, found.trouble, found.copies, found.kind) == (document, "", document.id, document.kind)
    assert found.ends_at - found.enqueued_at == 60.0


def test_the_envelope_is_readable_by_an_sdk() -> None:
    sections = split(write_post(presence(), ttl=60.0, posted_by=AUTHOR))
    header, properties = read_header(sections.header), read_properties(sections.properties)
    assert (header.durable, header.ttl) == (True, 60_000)
    assert (properties.subject, properties.content_type) == ("presence", CONTENT_TYPE)
    assert read_map(sections.application_properties) == {
        "v": "1", "pairing": "orders", "engine": "orders@web-1", "boot": "b1",
    }  # fmt: skip


def test_signed_bytes_stay_as_they_are() -> None:
    found = read(write_post(ORDER, ttl=60.0, posted_by=AUTHOR)).document
    assert isinstance(found, Order)
    assert found.signed.encode() == SIGNED


def test_unknown_fields_are_skipped_and_a_newer_version_is_named(approve: Approve) -> None:
    body = b'{"v":1,"id":"w","by":"op","look":5,"report":15,"later":[1]}'
    assert read(enemy(body)).document == Watch(id="w", by="op", look=5.0, report=15.0)
    newer = read(enemy(body, v="2"))
    assert (newer.document, newer.is_newer, newer.copies) == (None, True, "w")
    approve.part(newer.trouble, "orders of a fleet")
    signed = msgspec.json.encode({"id": "o1", "signed": SIGNED.decode().replace('"v":1', '"v":2'), "signature": "s"})
    assert read(enemy(signed, "order", message_id="o1")).is_newer


def bomb(size: int) -> bytes:
    return zlib.compress(b'{"id":"' + b"x" * size + b'"}', 9)


GOOD = msgspec.json.encode(DOCUMENTS[2])
LARGE = msgspec.json.encode({"signed": SIGNED.decode().replace('"reach":20', f'"reach":{10**16}'), "signature": ""})


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (enemy(b"x" * 1_000_000), "has 1,000,"),
        (enemy(b"x" * 30_000), "a watch has at most 16,384"),
        (enemy(b"[" * 10_000), ""),
        (enemy(b'{"id":' + b'{"a":' * 3_000), ""),
        (enemy(b'{"id":"\xff\xfe"}'), ""),
        (enemy(bomb(10_000_000), **{ENCODING: DEFLATE}), "inflates to more than"),
        (enemy(zlib.compress(GOOD)[:-6], **{ENCODING: DEFLATE}), "is cut short"),
        (enemy(GOOD, **{ENCODING: "zstd"}), "has an unknown encoding"),
        (enemy(GOOD, message_id="other"), "has another message id"),
        (enemy(GOOD, "presence"), "has no place on the board orders"),
        (enemy(GOOD, "dance"), "is of an unknown kind"),
        (enemy(GOOD, ttl=None), "has no time to live"),
        (enemy(GOOD, v=1), "has no version"),
        (enemy(GOOD, v="٣"), "has no version"),
        (enemy(LARGE, "order"), "the order's field 'reach' is missing or has the wrong form"),
        (enemy(b""), ""),
        (b"", ""),
        (b"\x00\x53", ""),
    ],
    ids=range(18),
)  # fmt: skip
def test_what_is_foreign_or_broken_has_a_reason_and_costs_little(data: bytes, trouble: str) -> None:
    began = time.process_time()
    found = read(data)
    assert time.process_time() - began < 0.2
    assert found.document is None
    assert found.trouble
    assert trouble in found.trouble


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_a_wrong_type_in_any_field_is_no_exception(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(DOCUMENTS))
    kind = document.kind
    content = msgspec.json.decode(write_body(document)[0])
    inner = msgspec.json.decode(SIGNED) if kind is DocumentKind.ORDER and data.draw(st.booleans()) else content
    inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JSON)
    if inner is not content:
        content["signed"] = msgspec.json.encode(inner).decode()
    found = read(enemy(msgspec.json.encode(content), kind.value, message_id=document.id), kind.board)
    assert (found.document is None) == bool(found.trouble)


@given(st.binary(max_size=200), st.sampled_from(list(Board)))
def test_arbitrary_bytes_are_no_exception(data: bytes, board: Board) -> None:
    assert read(data, board).trouble


@given(st.sampled_from(DOCUMENTS), st.data())
def test_changed_bytes_are_no_exception(document: Document, data: st.DataObject) -> None:
    message = bytearray(write_post(document, ttl=60.0, posted_by=AUTHOR))
    message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(message), document.kind.board)
    assert (found.document is None) == bool(found.trouble)


def test_a_document_that_is_too_large_is_refused_and_a_presence_shortened(approve: Approve) -> None:
    noise = "".join(chr(0x4E00 + (index * 7919) % 20_000) for index in range(20_000))
    with pytest.raises(FleetBoardError) as refused:
        write_post(Goodbye(id="g", author=AUTHOR, reason=noise), ttl=60.0, posted_by=AUTHOR)
    approve.part(refused.value, "orders of a fleet", has=("16,384",))
    long = [f"{index}-" + "".join(chr(0x4E00 + (index * 7919 + at * 104_729) % 20_000) for at in range(255))
            for index in range(50)]  # fmt: skip
    crowded = presence(not_well=tuple(FleetEntityState(path=path, state=State.FAILED_OVER, since=9.0) for path in long))
    found = read(write_post(crowded, ttl=60.0, posted_by=AUTHOR), Board.REPORTS).document
    assert found is not None
    assert 0 < len(found.not_well) < 50  # type: ignore[union-attr]
    assert len(write_body(found)[0]) <= MAX_BYTES


def test_a_report_that_is_too_large_has_fewer_entities() -> None:
    document = report(1000)
    draw = random.Random(2)
    wide = tuple(
        replace(one, path="".join(chr(draw.randrange(0x4E00, 0x9000)) for _ in range(260)))
        for one in document.snapshot.entities
    )
    large = replace(document, snapshot=replace(document.snapshot, entities=wide))
    data = write_post(large, ttl=120.0, posted_by=AUTHOR)
    found = read(data, Board.REPORTS).document
    assert isinstance(found, Report)
    assert found.snapshot.entities == wide[: len(found.snapshot.entities)]
    assert 100 < len(found.snapshot.entities) < 1000


@pytest.mark.parametrize("entities", [30, 1000])
def test_a_report_fits_and_is_read_as_it_was_written(entities: int) -> None:
    document = report(entities)
    data = write_post(document, ttl=120.0, posted_by=AUTHOR)
    found = read(data, Board.REPORTS)
    assert (found.document, found.trouble) == (document, "")
    assert len(data) < (8 * 1024 if entities == 30 else 192 * 1024)
