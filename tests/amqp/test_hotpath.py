"""The quick readers and writers, held to the general ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.encoding.codec import UInt, encode
from servicebus_amqp.encoding.frames import (
    DISPOSITION_PREFIX,
    TRANSFER_PREFIX,
    TRANSFER_ROOM,
    DispositionHead,
    head_of_disposition,
    head_of_transfer,
    read_disposition,
    read_transfer,
    unpack_frame_header,
    write_continuation,
    write_disposition,
    write_transfer,
)
from servicebus_amqp.encoding.performatives import (
    Disposition,
    Transfer,
    read_list,
    read_performative,
    write_performative,
)
from servicebus_amqp.protocol_errors import DecodeError
from tests.amqp.test_performatives import DISPOSITIONS, STATES, TRANSFERS, UINTS

_UINT = st.one_of(
    UINTS.map(lambda number: encode(UInt(number))),
    UINTS.map(lambda number: b"\x70" + number.to_bytes(4, "big")),
    st.integers(0, 255).map(lambda number: bytes((0x52, number))),
)
_NULL = st.just(b"\x40")
_FLAG = st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
_TAG = st.binary(max_size=32).map(encode) | st.just(b"\xb0\x00\x00\x00\x01t") | _NULL
_STATE = STATES.map(write_performative) | _NULL
_FIELDS_OF_TRANSFER = [
    _UINT,
    _UINT | _NULL,
    _TAG,
    _UINT | _NULL,
    _FLAG,
    _FLAG,
    _NULL,
    _NULL | _STATE,
    _FLAG,
    _FLAG,
    _FLAG,
    _NULL,
]
_FIELDS_OF_DISPOSITION = [_FLAG, _UINT, _UINT | _NULL, _FLAG, _STATE, _FLAG, _NULL]


def _body(prefix: bytes, fields: list[st.SearchStrategy[bytes]]) -> st.SearchStrategy[bytes]:
    """List8 bodies of the first fields, in all their encodings."""

    def build(items: tuple[bytes, ...]) -> bytes:
        joined = b"".join(items)
        return prefix + bytes((min(len(joined) + 1, 255), len(items))) + joined

    return st.integers(1, len(fields)).flatmap(lambda count: st.tuples(*fields[:count]).map(build))


def _damaged(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    def change(body: bytes, at: int, byte: int) -> bytes:
        at = 4 + at % (len(body) - 4)
        return body[:at] + bytes((byte,)) + body[at + 1 :]

    return st.builds(change, bodies, st.integers(0, 300), st.integers(0, 255))


def _generally(body: bytes) -> Any:
    try:
        performative, end = read_performative(body, 0)
    except DecodeError:
        return None
    if isinstance(performative, Transfer):
        return head_of_transfer(performative, end)
    assert isinstance(performative, Disposition)
    return head_of_disposition(performative)


_TRANSFER_BODIES = _body(TRANSFER_PREFIX, _FIELDS_OF_TRANSFER)
_DISPOSITION_BODIES = _body(DISPOSITION_PREFIX, _FIELDS_OF_DISPOSITION)


@given(_TRANSFER_BODIES | _damaged(_TRANSFER_BODIES), st.binary(max_size=40))
def test_the_quick_reader_of_transfers_says_what_the_general_one_says(body: bytes, payload: bytes) -> None:
    quick = read_transfer(body + payload, 0, len(body + payload))
    assert quick is None or quick == _generally(body + payload)


@given(_DISPOSITION_BODIES | _damaged(_DISPOSITION_BODIES))
def test_the_quick_reader_of_dispositions_says_what_the_general_one_says(body: bytes) -> None:
    quick = read_disposition(body, 0, len(body))
    assert quick is None or quick == _generally(body)


@given(_TRANSFER_BODIES, st.data())
def test_a_transfer_that_runs_over_its_frame_is_left_to_the_general_reader(body: bytes, data: st.DataObject) -> None:
    stop = data.draw(st.integers(6, len(body) - 1))
    assert read_transfer(body, 0, stop) is None


@given(TRANSFERS)
def test_the_quick_reader_reads_every_plain_transfer(transfer: Transfer) -> None:
    body = write_performative(transfer)
    is_plain = not transfer.aborted and transfer.state is None
    if is_plain:
        assert read_transfer(body, 0, len(body)) == head_of_transfer(transfer, len(body))
    else:
        assert read_transfer(body, 0, len(body)) is None


@given(DISPOSITIONS)
def test_the_quick_reader_reads_every_short_disposition(disposition: Disposition) -> None:
    body = write_performative(disposition)
    if body.startswith(DISPOSITION_PREFIX):
        assert read_disposition(body, 0, len(body)) == head_of_disposition(disposition)


@given(
    channel=st.integers(0, 65535),
    handle=UINTS,
    delivery_id=UINTS,
    tag=st.binary(max_size=32),
    message_format=UINTS,
    settled=st.booleans(),
    more=st.booleans(),
    payload=st.binary(max_size=300),
)
def test_what_the_quick_writer_writes_the_general_reader_reads(
    channel: int,
    handle: int,
    delivery_id: int,
    tag: bytes,
    message_format: int,
    settled: bool,
    more: bool,
    payload: bytes,
) -> None:
    head = write_transfer(
        channel,
        encode(UInt(handle)),
        delivery_id,
        tag,
        encode(UInt(message_format)),
        settled=settled,
        more=more,
        payload=len(payload),
    )
    frame = head + payload
    assert unpack_frame_header(frame, 0) == (len(frame), 2, 0, channel)
    assert len(head) <= TRANSFER_ROOM
    expected = Transfer(
        handle=handle,
        delivery_id=delivery_id,
        delivery_tag=tag,
        message_format=message_format,
        settled=settled,
        more=more,
    )
    assert read_performative(frame, 8) == (expected, len(head))


@given(handle=UINTS, more=st.booleans(), payload=st.binary(max_size=300))
def test_a_continuation_carries_handle_and_more_only(handle: int, more: bool, payload: bytes) -> None:
    head = write_continuation(3, encode(UInt(handle)), more=more, payload=len(payload))
    frame = head + payload
    assert unpack_frame_header(frame, 0) == (len(frame), 2, 0, 3)
    assert read_performative(frame, 8) == (Transfer(handle=handle, more=more), len(head))


def _fields(frame: bytes) -> int:
    """How many fields the list has that a frame's performative is."""
    return read_list(frame, 8 + 3)[0]


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_every_transfer_has_all_its_fields(settled: bool, more: bool) -> None:
    """azure-servicebus below 7.15 finds the payload behind the eleventh field, wherever that is."""
    all_fields = len(dataclasses.fields(Transfer))  # type: ignore[arg-type] # a dataclass by its decorator
    first = write_transfer(0, b"\x43", 1, b"tag", b"\x43", settled=settled, more=more, payload=0)
    assert _fields(first) == _fields(write_continuation(0, b"\x43", more=more, payload=0)) == all_fields == 11


@given(st.booleans(), UINTS, UINTS, st.booleans(), st.none() | STATES)
def test_a_disposition_is_read_as_it_was_written(
    is_receiver: bool, first: int, last: int, settled: bool, state: Any
) -> None:
    head = DispositionHead(is_receiver, first, last, settled, state)
    found, _ = read_performative(write_disposition(head), 0)
    assert found == Disposition(role=is_receiver, first=first, last=last, settled=settled, state=state)


@pytest.mark.parametrize("body", [TRANSFER_PREFIX, TRANSFER_PREFIX + b"\x05", TRANSFER_PREFIX + b"\x01\x00"])
def test_the_end_of_the_data_is_left_to_the_general_reader(body: bytes) -> None:
    assert read_transfer(body, 0, len(body)) is None
