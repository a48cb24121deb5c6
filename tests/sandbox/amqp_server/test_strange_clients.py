"""Clients that speak AMQP as nobody does and anybody may: other encodings, other channels, smaller frames."""

import struct
from uuid import UUID

import pytest
from tests.sandbox.amqp_server.conftest import Peer

from servicebus_amqp.encoding.codec import (
    Array,
    Described,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    UShort,
    _Ranged,
    decode,
    encode,
    skip,
)
from servicebus_amqp.encoding.frames import build_frame, unpack_frame_header
from servicebus_amqp.encoding.message_sections import (
    BATCH_FORMAT,
    Header,
    Properties,
    Sections,
    batch,
    read_properties,
    split,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Accepted,
    Attach,
    Modified,
    Source,
    Target,
    Transfer,
    write_performative,
)
from servicebus_amqp.protocol.links import (
    AttachRequested,
    Closed,
    DeliveryReceived,
    Detached,
    DispositionReceived,
    FlowReceived,
    SessionBegun,
)

AMQP_FRAME, OPEN, BEGIN = 0, 0x10, 0x11


def widest(value) -> bytes:
    """The value in the longest encoding of its type, throughout."""
    match value:
        case Described():
            return b"\0" + widest(value.descriptor) + widest(value.value)
        case bool():
            return b"\x56" + bytes([value])
        case ULong():
            return b"\x80" + value.to_bytes(8, "big")
        case UInt():
            return b"\x70" + value.to_bytes(4, "big")
        case Timestamp() | _Ranged() | UUID() | float() | None | Array():
            return encode(value)
        case int():
            return b"\x81" + value.to_bytes(8, "big", signed=True)
        case Symbol():
            return _sized(0xB3, value.encode())
        case str():
            return _sized(0xB1, value.encode())
        case bytes():
            return _sized(0xB0, value)
        case list():
            return _compound(0xD0, [widest(item) for item in value])
        case dict():
            return _compound(0xD1, [widest(item) for pair in value.items() for item in pair])
    raise TypeError(f"no encoding for {type(value).__name__}")


def _sized(code: int, data: bytes) -> bytes:
    return struct.pack(">BI", code, len(data)) + data


def _compound(code: int, items: list[bytes]) -> bytes:
    return struct.pack(">BII", code, 4 + sum(map(len, items)), len(items)) + b"".join(items)


def widest_message(data: bytes) -> bytes:
    """An encoded message with every section in its longest encoding."""
    found, at = [], 0
    while at < len(data):
        found.append(widest(decode(data, at)[0]))
        at = skip(data, at)
    return b"".join(found)


class RewritingPeer(Peer):
    """Writes each frame of AMQP as `rewrite` makes it."""

    def rewrite(self, channel: int, body: bytes) -> bytes:
        raise NotImplementedError

    def flush(self) -> None:
        data = self.amqp.data_to_send()
        at = 0
        while at < len(data):
            if data[at : at + 4] == b"AMQP":
                self.transport.write(data[at : at + 8])
                at += 8
                continue
            size, offset, kind, channel = unpack_frame_header(data, at)
            body = data[at + 4 * offset : at + size]
            is_plain = kind == AMQP_FRAME and body
            self.transport.write(self.rewrite(channel, body) if is_plain else data[at : at + size])
            at += size


class WidePeer(RewritingPeer):
    """Writes everything in the longest encodings there are; messages have to fit one frame."""

    def rewrite(self, channel: int, body: bytes) -> bytes:
        performative, at = decode(body)
        payload = body[at:]
        return build_frame(channel, widest(performative) + (widest_message(payload) if payload else b""))


class ShiftedPeer(RewritingPeer):
    """Numbers its channels from 1000 on, and so answers on others than the namespace does."""

    shift = 1000

    def rewrite(self, channel: int, body: bytes) -> bytes:
        return build_frame(channel + (0 if decode(body)[0].descriptor == OPEN else self.shift), body)

    def connection_made(self, transport) -> None:
        self.rest = b""
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """What answers a begin names our channel, which our own AMQP knows by another number."""
        data, at, out = self.rest + data, 0, b""
        while len(data) - at >= 8:
            is_header = data[at : at + 4] == b"AMQP"
            size, _, kind, channel = (8, 2, AMQP_FRAME, 0) if is_header else unpack_frame_header(data, at)
            if len(data) - at < size:
                break
            body = b"" if is_header or kind != AMQP_FRAME else data[at + 8 : at + size]
            begin = decode(body)[0] if body else None
            if begin is not None and begin.descriptor == BEGIN:
                assert channel < self.shift, "the namespace numbers its channels itself"
                begin.value[0] = UShort(begin.value[0] - self.shift)
                out += build_frame(channel, encode(begin))
            else:
                out += data[at : at + size]
            at += size
        self.rest = data[at:]
        super().data_received(out)


# Clients that do what AMQP allows and the SDK never does: each gets on like any other.


MESSAGE = Sections(body=write_data(b"hello")).join()
NODE = "orders/$management"
PEEK = {"operation": "com.microsoft:peek-message"}
PEEKED = {"from-sequence-number": 0, "message-count": Int(10)}


async def received(peer, link, credit=1):
    """The next message; the credit for it is granted here."""
    link.flow(credit)
    peer.flush()
    return await peer.next(DeliveryReceived)


async def settled(peer, delivery, state=ACCEPTED):
    """The namespace's answer to our outcome."""
    delivery.link.settle(delivery.delivery_id, state, settled=False)
    peer.flush()
    return (await peer.next(DispositionReceived)).state


def request(message_id, properties=PEEK, body=PEEKED, reply_to=None):
    return Sections(
        properties=write_properties(Properties(message_id=message_id, reply_to=reply_to)),
        application_properties=write_application_properties(properties),
        body=write_value(body),
    ).join()


async def new_session(peer):
    session = peer.amqp.begin()
    peer.flush()
    await peer.next(SessionBegun)
    return session


async def attached(peer, link):
    peer.flush()
    return await peer.attached(link)


def links_of(port):
    """The links of the one connection there is."""
    (connection,) = port.node.connections
    return connection.links


# ---------------------------------------------------------------- whole conversations

CLIENTS = {
    "usual": (Peer, {}),
    "longest encodings": (WidePeer, {}),
    "channels that differ by direction": (ShiftedPeer, {}),
    "frames of 512 bytes": (Peer, {"max_frame_size": 512}),
    "a window of two frames": (Peer, {"max_frame_size": 512, "incoming_window": 2}),
    "counters about to wrap": (Peer, {"first_outgoing_id": 2**32 - 2, "first_delivery_id": 2**32 - 3}),
    "no SASL": (Peer, {"sasl": False}),
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_whole_conversation(port, connect, name):
    kind, settings = CLIENTS[name]
    peer = await connect(kind=kind, **settings)
    await peer.authorize("")
    body = bytes(range(256)) * 12
    message = Sections(
        header=write_header(Header(durable=True, ttl=UInt(3_600_000))),
        properties=write_properties(Properties(message_id="m", subject="s", content_type=Symbol("c"), group_id="g")),
        application_properties=write_application_properties({"a": UInt(1), "long": "x" * 300}),
        body=write_data(body),
    ).join()
    sender = await peer.attached(peer.sender("payments"))
    assert isinstance(await peer.outcome(sender, message), Accepted)
    assert isinstance(await peer.outcome(sender, batch([message, message]), message_format=BATCH_FORMAT), Accepted)
    assert port.counts("payments").active == 3
    session = {Symbol("com.microsoft:session-filter"): "g"}
    link = await peer.attached(peer.receiver("payments", Source(address="payments", filter=session)))
    for _ in range(3):
        delivery = await received(peer, link)
        sections = split(delivery.payload)
        assert decode(sections.body)[0].value == body
        assert read_properties(sections.properties).group_id == "g"
        assert isinstance(await settled(peer, delivery), Accepted)
    assert port.counts("payments").active == 0
    peer.amqp.close()
    peer.flush()
    await peer.lost()
    await port.until(lambda: not port.node.connections)


@pytest.mark.parametrize("kind", [Peer, WidePeer])
async def test_requests_come_and_go_with_every_type_of_message_id(connect, kind):
    """The reply is correlated in the type that the id came in: the SDK sends a UUID, others strings."""
    peer = await connect(kind=kind)
    await peer.authorize("orders")
    for message_id in ("text", UUID(int=7), ULong(9), ULong(2**40), b"bytes"):
        answer, _ = await peer.request(NODE, PEEK, PEEKED, message_id=message_id)
        assert answer["statusCode"] == 204
    schedule = {"operation": "com.microsoft:schedule-message"}
    answer, body = await peer.request(NODE, schedule, {"messages": [{"message-id": "a", "message": MESSAGE}]})
    assert (answer["statusCode"], body) == (200, {"sequence-numbers": Array.of(int, [1])})


# ---------------------------------------------------------------- sessions, names, handles


async def test_every_link_may_have_a_session_of_its_own(port, peer):
    await peer.authorize("")
    sending, receiving = await new_session(peer), await new_session(peer)
    sender = await attached(peer, sending.attach_sender("mine", Source(address="here"), Target(address="orders")))
    link = await attached(peer, receiving.attach_receiver("mine", Source(address="orders"), Target(address="here")))
    assert isinstance(await peer.outcome(sender, MESSAGE), Accepted)
    assert isinstance(await settled(peer, await received(peer, link)), Accepted)
    sending.end()
    peer.flush()
    await port.until(lambda: len(links_of(port)) == 1)
    assert port.counts("orders").active == 0


async def test_replies_go_to_the_session_of_their_request(peer):
    """One client has a pair of links in each of two sessions, and names no reply-to."""
    await peer.authorize("orders")
    both, pairs = (Source(address=NODE), Target(address=NODE)), []
    for _ in range(2):
        session = await new_session(peer)
        replies = await attached(peer, session.attach_receiver("replies", *both))
        pairs.append((replies, await attached(peer, session.attach_sender("requests", *both))))
    for replies, requests in pairs:
        replies.flow(1)
        peer.send(requests, request("id"))
        assert (await peer.next(DeliveryReceived)).link is replies


async def test_replies_stay_on_the_connection_of_their_request(connect):
    """Two clients call their reply links alike."""
    for _ in range(2):
        peer = await connect()
        await peer.authorize("orders")
        replies = await peer.attached(peer.receiver(NODE))
        requests = await peer.attached(peer.sender(NODE))
        replies.flow(1)
        peer.send(requests, request("id", reply_to="here"))
        assert (await peer.next(DeliveryReceived)).link is replies


async def test_a_reply_is_held_until_its_link_has_credit(peer):
    await peer.authorize("orders")
    replies = await peer.attached(peer.receiver(NODE))
    requests = await peer.attached(peer.sender(NODE))
    for number in range(3):
        assert isinstance(await peer.outcome(requests, request(f"{number}")), Accepted)
    for number in range(3):
        reply = split((await received(peer, replies)).payload)
        assert read_properties(reply.properties).correlation_id == f"{number}"


async def test_a_link_name_may_be_used_again_after_its_detach(port, peer):
    await peer.authorize("orders")
    for _ in range(3):
        link = await peer.attached(peer.sender("orders"))
        assert isinstance(await peer.outcome(link, MESSAGE), Accepted)
        link.detach()
        peer.flush()
        await peer.next(Detached)
    assert port.counts("orders").active == 3


async def test_a_session_has_as_many_links_as_a_byte_can_count(port, peer):
    """README: "A session has at most 256 links"."""
    await peer.authorize("")
    for _ in range(2):
        await peer.next(Detached)  # those of the token
    here, orders = Source(address="here"), Target(address="orders")
    links = [peer.session.attach_sender(f"link {number}", here, orders) for number in range(256)]
    for link in links:
        await attached(peer, link)
    assert links[-1].handle == 255
    assert isinstance(await peer.outcome(links[-1], MESSAGE), Accepted)
    assert port.counts("orders").active == 1
    peer.session.write(Attach(name="beyond", handle=256, role=False, source=here, target=orders))
    peer.flush()
    assert (await peer.next(Closed)).error.condition == "amqp:connection:framing-error"


async def test_an_attach_may_tell_of_deliveries_unsettled_elsewhere(peer):
    """Who resumes a link tells what it holds; the namespace begins anew."""
    await peer.authorize("orders")
    resumed = Attach(
        name="resumed",
        handle=40,
        role=False,
        source=Source(address="here"),
        target=Target(address="orders"),
        unsettled={b"tag": None, b"other": Described(ULong(0x24), [])},
        incomplete_unsettled=True,
        initial_delivery_count=7,
    )
    peer.session.write(resumed)
    peer.flush()
    answer = (await peer.next(AttachRequested)).attach  # our own AMQP did not send the question
    assert (answer.name, answer.target.address) == ("resumed", "orders")
    assert (await peer.next(FlowReceived)).credit == 7 + 1000  # beyond the seven that it had counted before


# ---------------------------------------------------------------- transfers


def transfer(peer, link, payload, **fields):
    """A transfer as our own AMQP would not write it."""
    body = write_performative(Transfer(handle=link.handle, **fields)) + payload
    peer.amqp.write_body(link.session.channel, body)
    peer.flush()


@pytest.mark.parametrize("wrap", [lambda message: (message, 0), lambda message: (batch([message]), BATCH_FORMAT)])
async def test_a_message_without_id_arrives_with_one_and_is_else_as_it_was_sent(peer, wrap):
    """A client needs an id to renew and settle by; the Python SDK always sends one, others do not."""
    await peer.authorize("orders")
    sent = Properties(subject="s", correlation_id=ULong(3), content_type=Symbol("c"), creation_time=5)
    data, kind = wrap(Sections(properties=write_properties(sent), body=write_data(b"hello")).join())
    await peer.outcome(await peer.attached(peer.sender("orders")), data, message_format=kind)
    await peer.outcome(await peer.attached(peer.sender("orders")), MESSAGE)
    link = await peer.attached(peer.receiver("orders"))
    first, second = [split((await received(peer, link)).payload) for _ in range(2)]
    ids = [read_properties(sections.properties).message_id for sections in (first, second)]
    assert len({UUID(hex=found) for found in ids}) == 2
    assert first.properties == write_properties(sent._replace(message_id=ids[0]))
    assert second.properties == write_properties(Properties(message_id=ids[1]))


async def test_an_aborted_message_is_not_there_and_the_next_one_is(port, peer):
    await peer.authorize("orders")
    link = await peer.attached(peer.sender("orders"))
    transfer(peer, link, MESSAGE[:4], delivery_id=500, delivery_tag=b"a", message_format=0, more=True)
    transfer(peer, link, b"", aborted=True)
    transfer(peer, link, b"", delivery_id=501, delivery_tag=b"b", message_format=0, aborted=True)
    assert isinstance(await peer.outcome(link, MESSAGE), Accepted)
    assert port.counts("orders").active == 1


async def test_a_later_frame_may_say_that_a_message_is_settled(port, peer):
    await peer.authorize("orders")
    link = await peer.attached(peer.sender("orders"))
    transfer(peer, link, MESSAGE[:4], delivery_id=500, delivery_tag=b"a", message_format=0, more=True)
    transfer(peer, link, MESSAGE[4:], settled=True)
    await port.until(lambda: port.counts("orders").active == 1)
    assert isinstance(await peer.outcome(link, MESSAGE), Accepted)


async def test_a_batch_of_many_is_counted_by_its_messages(port, peer):
    await peer.authorize("orders")
    link = await peer.attached(peer.sender("orders"))
    assert isinstance(await peer.outcome(link, batch([MESSAGE] * 250), message_format=BATCH_FORMAT), Accepted)
    assert port.counts("orders").active == 250


@pytest.mark.parametrize("mode", [0, 1])
async def test_who_settles_first_and_who_settles_second(port, peer, mode):
    """Receivers that settle first say it once; those that settle second wait for the namespace's word."""
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    for _ in range(2):
        await peer.outcome(sender, MESSAGE)
    link = await peer.attached(peer.receiver("orders", settle_modes=(0, mode)))
    assert link.remote.rcv_settle_mode == mode
    delivery = await received(peer, link)
    assert not delivery.settled
    if mode:
        assert isinstance(await settled(peer, delivery), Accepted)
    else:
        link.settle(delivery.delivery_id, ACCEPTED)
        peer.flush()
    await port.until(lambda: port.counts("orders").active == 1)


async def test_what_is_settled_on_delivery_has_no_name_and_no_lock(port, peer):
    await peer.authorize("orders")
    await peer.outcome(await peer.attached(peer.sender("orders")), MESSAGE)
    link = await peer.attached(peer.receiver("orders", settle_modes=(1, 0)))
    delivery = await received(peer, link)
    assert (delivery.settled, delivery.tag) == (True, b"")
    assert decode(split(delivery.payload).delivery_annotations)[0].value == {}
    assert port.counts("orders").active == 0


async def test_credit_in_small_steps_and_an_echo_asked_for(peer):
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    await peer.outcome(sender, batch([MESSAGE] * 5), message_format=BATCH_FORMAT)
    link = await peer.attached(peer.receiver("orders"))
    for _ in range(5):
        link.settle((await received(peer, link)).delivery_id, ACCEPTED)
    link.flow(3, echo=True)
    peer.flush()
    assert (await peer.next(FlowReceived)).credit == 3
    assert link.delivery_count == 5


async def test_outcomes_of_a_range_are_answered_for_each_of_it(port, peer):
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    await peer.outcome(sender, batch([MESSAGE] * 6), message_format=BATCH_FORMAT)
    link = await peer.attached(peer.receiver("orders"))
    link.flow(6)
    peer.flush()
    ids = [(await peer.next(DeliveryReceived)).delivery_id for _ in range(6)]
    link.settle(range(ids[0], ids[3] + 1), ACCEPTED, settled=False)
    link.settle(range(ids[4], ids[5] + 1), Modified(delivery_failed=True), settled=False)
    peer.flush()
    answers = [await peer.next(DispositionReceived) for _ in range(6)]
    assert [answer.delivery_id for answer in answers] == ids
    assert [type(answer.state) for answer in answers] == [Accepted] * 4 + [Modified] * 2
    assert all(answer.settled for answer in answers)
    assert port.counts("orders").active == 2
