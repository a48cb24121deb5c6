"""Paired sends of a client's bytes: the same rules as those of the SDK's messages, and the bytes as they came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    PairingClosedError,
    ReservedPropertyError,
    UnreadableError,
    WireError,
    WireTimeoutError,
)
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import PATH, RESERVED
from paired_servicebus.core.model.pairing_events import Delivered, Diverted, InDoubt, SendFailed, StateChanged
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing import PairedServiceBusClient, envelope_codec
from paired_servicebus.pairing.sending.encoded_sender import (
    MAX_BATCH_MESSAGES,
    EncodedSender,
    GivenIds,
    Rest,
    read_payload,
)
from servicebus_amqp.encoding.codec import Symbol, Timestamp, UInt, described, encode
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    BATCH_FORMAT,
    MESSAGE_ANNOTATIONS,
    Properties,
    Sections,
    batch,
    read_map,
    read_properties,
    split,
    unbatch,
    write_application_properties,
    write_data,
    write_properties,
)
from tests.amqp.values import write_annotations

from .backlogs import lying_in, queue_path, sections
from .conftest import World, until
from .test_rewrite import NOW, cases, held, read_or_refused, section

PATIENT: dict[str, Any] = {"send_timeout": 30.0, "backlog_queue_count": 1}
BACKLOG = queue_path(0)


def message(name: str | None = "1", body: bytes = b"hello", **parts: Any) -> bytes:
    return Sections(properties=write_properties(Properties(message_id=name)), body=write_data(body), **parts).join()


def for_later(name: str) -> bytes:
    at = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    given = write_annotations(MESSAGE_ANNOTATIONS, {"x-opt-scheduled-enqueue-time": Timestamp(at)})
    return message(name, message_annotations=given)


def in_flight(paired: PairedServiceBusClient) -> int:
    return paired._steering.in_flight.count


def state(paired: PairedServiceBusClient) -> State:
    return paired._steering.machine.entity("orders", at=paired._steering.clock()).state


async def forced(world: World, **options: Any) -> PairedServiceBusClient:
    paired = await world.forced(**PATIENT | options)
    await until(lambda: paired._standby.queues[0].link.is_open)
    return paired


async def straight(sender: EncodedSender, data: bytes, form: int = 0, timeout: float = 60.0) -> Rest | None:
    """Send; return the rest of the call, None if it was accepted."""
    end: asyncio.Future[Rest | None] = asyncio.get_running_loop().create_future()
    assert sender.go_straight(data, form, end.set_result, timeout=timeout)
    return await asyncio.wait_for(end, 60)


async def ready(world: World, **options: Any) -> tuple[PairedServiceBusClient, EncodedSender]:
    """A pairing whose entity has accepted one send, so that the next may go straight."""
    paired = await world.pair(**PATIENT | options)
    sender = paired.get_encoded_sender("orders")
    await sender.send(message("before"))
    return paired, sender


async def plain(sender: EncodedSender, data: bytes) -> None:
    await sender.send(data, timeout=20)


async def straight_on(sender: EncodedSender, data: bytes) -> None:
    """A send that goes straight to the primary, and goes on as every other call where it fails."""
    rest = await straight(sender, data)
    if rest is not None:
        await rest


WAYS = pytest.mark.parametrize("send", [plain, straight_on])
"""Both ways keep the same rules when the primary fails."""
Send = Callable[[EncodedSender, bytes], Awaitable[None]]


def gateways(world: World) -> list[Any]:
    """The primary's connections for encoded links."""
    found = world.sandbox["primary"].node.connections
    return [one for one in found if (one.container_id or "").startswith("gateway-")]


async def test_a_healthy_primary_gets_the_bytes_as_they_came_over_one_connection(world: World) -> None:
    paired = await world.pair(**PATIENT)
    orders, audit = paired.get_encoded_sender("orders"), paired.get_encoded_sender("/Audit/")
    typed = Sections(
        properties=write_properties(Properties(message_id="typed", subject="s")),
        application_properties=write_application_properties({"kind": Symbol("a"), "at": Timestamp(7)}),
        body=write_data(b"1"),
    )
    await orders.send(typed.join())
    await audit.send(message())
    await orders.send(batch([message("2"), message("3")]), BATCH_FORMAT)
    assert world.ids_in("orders") == ["typed", "2", "3"]
    assert sections(lying_in(world, "orders")[0]).application_properties == typed.application_properties
    assert len(gateways(world)) == 1
    assert state(paired) is State.HEALTHY
    assert world.parked(1) == 0


async def test_many_sends_of_many_senders_are_in_flight_together(world: World) -> None:
    paired = await world.pair(**PATIENT, journal="all")
    senders = [paired.get_encoded_sender("orders") for _ in range(3)]
    names = [str(number) for number in range(150)]
    await asyncio.gather(*(senders[int(name) % 3].send(message(name)) for name in names))
    assert sorted(world.ids_in("orders"), key=int) == names
    assert sorted((event.message_id for event in world.told(Delivered)), key=int) == names


@pytest.mark.parametrize("pump", ["auto", "sdk"])
async def test_while_failed_over_bytes_and_sdk_messages_share_the_backlog(world: World, pump: str) -> None:
    """Every sender of the pairing, old or new, uses the backlog; a batch is repacked."""
    paired = await forced(world, pump=pump)
    encoded = paired.get_encoded_sender("orders")
    async with paired.get_queue_sender("orders") as sdk:
        await asyncio.gather(
            *(encoded.send(message(f"e{number}")) for number in range(20)),
            *(sdk.send_messages(ServiceBusMessage(b"x", message_id=f"s{number}")) for number in range(20)),
            encoded.send(batch([message("b1"), message("b2")]), BATCH_FORMAT),
        )
    meant = {f"{kind}{number}" for kind in "es" for number in range(20)} | {"b1", "b2"}
    assert set(world.ids_in(BACKLOG, namespace="secondary")) == meant
    assert {event.message_id for event in world.told(Diverted)} == meant
    assert world.depth("orders") == 0


async def test_what_was_parked_reaches_its_entity_as_it_was_sent(world: World) -> None:
    paired = await forced(world, enable_syphon=True)
    sender = paired.get_encoded_sender("orders")
    meant = Sections(
        properties=write_properties(Properties(message_id="1", group_id="cart")),
        application_properties=write_application_properties({"kind": Symbol("a"), "note": PATH}),
        body=write_data(b"a") + write_data(b"b"),
    )
    await sender.send(meant.join())
    paired.pin("orders", by="kim")
    await until(lambda: lying_in(world, "orders"))
    arrived = sections(lying_in(world, "orders")[0])
    assert (arrived.body, arrived.application_properties) == (meant.body, meant.application_properties)
    assert read_properties(arrived.properties).group_id == "cart"


@WAYS
async def test_with_interval_0_the_same_call_goes_on_to_the_backlog(world: World, send: Send) -> None:
    """With interval 0 the same call goes on to the backlog and the caller sees no error."""
    paired, sender = await ready(world, failover_interval=0)
    world.fault("refused")
    await send(sender, message("during"))
    assert world.ids_in(BACKLOG, namespace="secondary") == ["during"]
    assert (state(paired), in_flight(paired)) == (State.FAILED_OVER, 0)


@WAYS
async def test_a_connection_cut_during_a_send_is_made_again_and_starts_the_timer(world: World, send: Send) -> None:
    """An attempt that ends in a lost connection is made again on a fresh link before the failure is raised; the first
    such failure starts the failover timer all the same."""
    paired, sender = await ready(world, failover_interval=10)
    heal = world.fault("unanswered", entity="orders")
    sends = asyncio.gather(*(send(sender, message(name)) for name in "abc"))
    await until(lambda: world.depth("orders") == 4)
    heal()
    for connection in gateways(world):
        connection.abort()
    await sends
    assert sorted(world.ids_in("orders")) == sorted(["before", *"abcabc"])
    assert {event.message_id for event in world.told(InDoubt)} == set("abc")
    assert [event.now for event in world.told(StateChanged)] == [State.HEALTHY, State.SUSPECT, State.HEALTHY]
    assert (state(paired), world.parked(1)) == (State.HEALTHY, 0)


@WAYS
async def test_a_silent_entity_fails_over_and_a_held_send_sees_no_error(world: World, send: Send) -> None:
    _, sender = await ready(world, send_timeout=1.0, hold_until_failover=True)
    world.fault("unanswered", entity="orders")
    await send(sender, message("during"))
    assert world.ids_in(BACKLOG, namespace="secondary") == ["during"]


@WAYS
async def test_a_message_without_an_id_that_arrived_unheard_keeps_its_id_when_it_comes_again(
    world: World, send: Send
) -> None:
    """Section 7.3: "so that duplicate detection recognises a send that timed out but arrived"."""
    paired, sender = await ready(world, send_timeout=1.0, failover_interval=60)
    heal = world.fault("unanswered", entity="orders")
    with pytest.raises(TimeoutError):
        await send(sender, message(None))
    heal()
    paired.force("orders", by="kim")
    await sender.send(message(None))
    first = world.ids_in("orders")[1:]
    assert len(first) == 1
    assert world.ids_in(BACKLOG, namespace="secondary") == first


async def test_scheduling_and_cancelling_go_to_the_primary_by_its_numbers(world: World) -> None:
    paired = await world.pair(**PATIENT)
    sender = paired.get_encoded_sender("orders")
    entries = [{"message-id": name, "message": for_later(name)} for name in "ab"]
    numbers = await sender.schedule(entries)
    assert [stored.sequence_number for stored in lying_in(world, "orders")] == numbers
    assert world.depth("orders") == 0
    await sender.cancel(numbers[:1])
    assert world.ids_in("orders") == ["b"]


async def test_what_no_namespace_may_get_is_refused_alone(world: World) -> None:
    """… healthy and failed over."""
    paired = await world.pair(**PATIENT)
    sender = paired.get_encoded_sender("orders")
    reserved = message(application_properties=write_application_properties({PATH: "x"}))
    refused = [(b"\x00\x53", UnreadableError), (reserved, ReservedPropertyError)]
    for where in ({"path": "orders"}, {"path": BACKLOG, "namespace": "secondary"}):
        if where["path"] == BACKLOG:
            paired.force("orders", by="kim")
        good = [asyncio.ensure_future(sender.send(message(name))) for name in "ab"]
        for data, error in refused:
            with pytest.raises(error):
                await sender.send(data)
        await asyncio.gather(*good)
        assert world.ids_in(**where) == ["a", "b"]
    assert not world.told(SendFailed)


async def test_an_entitys_limit_is_told_and_refuses_larger_messages(world: World) -> None:
    """Asking for an entity moves no state."""
    paired = await world.pair(**PATIENT)
    assert await paired.find_entity("orders", 5) == (262_144, 262_144)
    with pytest.raises(WireError) as missing:
        await paired.find_entity("nowhere", 5)
    assert kind_of(missing.value) is FailureKind.NOT_FOUND
    assert (paired.is_diverting("orders"), paired.is_diverting("nowhere")) == (None, None)
    assert not world.told(SendFailed)
    sender = paired.get_encoded_sender("orders")
    assert paired.is_diverting("Orders") is False
    with pytest.raises(WireError, match="accepts 262144") as refusal:
        await sender.send(message(body=bytes(300_000)))
    assert kind_of(refusal.value) is FailureKind.TOO_LARGE
    assert not [event for event in world.told(StateChanged) if event.now is State.SUSPECT]
    paired.force("orders", by="kim")
    with pytest.raises(BacklogMessageSizeError):
        await sender.send(message(body=bytes(262_110)))


async def test_a_closed_pairing_ends_the_sends_under_way(world: World) -> None:
    paired = await world.pair(**PATIENT, close_grace=0.1)
    sender = paired.get_encoded_sender("orders")
    await sender.send(message("before"))
    world.fault("unanswered", entity="orders")
    under_way = asyncio.ensure_future(sender.send(message("during")))
    await asyncio.sleep(0)
    await paired.close()
    with pytest.raises(PairingClosedError):
        await under_way
    with pytest.raises(PairingClosedError):
        await sender.send(message("after"))


# -- A healthy send of a client's bytes goes straight to the primary; when it fails, it goes on as every other call


async def test_accepted_sends_are_counted_as_those_of_all_calls(world: World) -> None:
    paired, sender = await ready(world)
    meter, tally = paired._steering.meter, paired._steering.tally("orders")
    sends, size = meter.sends, meter.sent_bytes
    assert await straight(sender, message("1", b"12345")) is None
    assert await straight(sender, batch([message("2", b""), message("3", b"")]), BATCH_FORMAT) is None
    assert world.ids_in("orders") == ["before", "1", "2", "3"]
    assert sum(paired.take_send_times()["orders"].values()) == 3, "calls, the first one included"
    assert (meter.sends - sends, tally.accepted, in_flight(paired)) == (3, 4, 0)
    empty = len(message("2", b"")) - len(message("2", b"").removesuffix(b"\x00S\x75\xa0\x00"))
    assert meter.sent_bytes - size == 5 + 3 * empty
    # many are in flight together and arrive in order
    ends: list[Rest | None] = []
    names = [f"many-{number}" for number in range(300)]
    for name in names:
        assert sender.go_straight(message(name), 0, ends.append)
    assert in_flight(paired) == 300
    await until(lambda: len(ends) == 300)
    assert not any(ends)
    assert world.ids_in("orders")[4:] == names


@pytest.mark.parametrize("case", ["never sent", "journal", "failed over", "suspect", "no link", "too large"])
async def test_it_is_left_to_the_calls_rules_when_they_have_something_to_decide(world: World, case: str) -> None:
    """Nothing is done then, and `send` takes the same bytes."""
    paired = await world.pair(**PATIENT, journal="all" if case == "journal" else "diverted")
    sender, data = paired.get_encoded_sender("orders"), message("1")
    if case != "never sent":
        await sender.send(message("before"))
    if case == "failed over":
        paired.force("orders", by="kim")
    elif case == "suspect":
        heal = world.fault("refused")
        with pytest.raises(ServiceBusConnectionError):
            await sender.send(message("during"), timeout=1.0)
        heal()
        assert state(paired) is State.SUSPECT
    elif case == "no link":
        sender._link.retire()
    elif case == "too large":
        data = message("1", bytes(300_000))
    assert not sender.go_straight(data, 0, pytest.fail)
    assert in_flight(paired) == 0


async def test_a_bad_message_is_refused_before_anything_is_sent(world: World) -> None:
    paired, sender = await ready(world)
    reserved = message(application_properties=write_application_properties({PATH: "x"}))
    with pytest.raises(ReservedPropertyError):
        sender.go_straight(reserved, 0, pytest.fail)
    assert (world.ids_in("orders"), in_flight(paired)) == (["before"], 0)


async def test_each_ends_at_its_own_time_though_all_share_one_timer(world: World) -> None:
    _, sender = await ready(world)
    world.fault("unanswered", entity="orders")
    loop, ended = asyncio.get_running_loop(), dict[float, tuple[float, object]]()
    began, link = loop.time(), sender._link
    for seconds in (0.3, 0.1, 0.2):  # the second is due before the timer that the first has set

        def end(failure: object, seconds: float = seconds) -> None:
            ended[seconds] = loop.time() - began, failure

        assert link.put(message(str(seconds)), 0, seconds, end, began=began)
        await asyncio.sleep(0)
        await until(lambda: world.depth("orders") > 0)
        link.wire._line.reads += 1  # type: ignore[union-attr] # the connection is not silent
    await until(lambda: len(ended) == 3)
    assert all(seconds <= took < seconds + 2 for seconds, (took, _) in ended.items())
    assert [took for took, _ in ended.values()] == sorted(took for took, _ in ended.values())
    assert list(ended) == [0.1, 0.2, 0.3]
    assert all(isinstance(failure, WireTimeoutError) for _, failure in ended.values())


async def test_an_accepted_message_without_an_id_is_a_new_one_when_it_is_sent_again(world: World) -> None:
    _, sender = await ready(world)
    assert await straight(sender, message(None)) is None
    assert await straight(sender, message(None)) is None
    _, first, second = world.ids_in("orders")
    assert first
    assert first != second


async def test_one_that_would_not_survive_a_failover_is_counted(world: World) -> None:
    """Section 7.4: such messages are counted."""
    paired, sender = await ready(world)
    assert await straight(sender, message("small", bytes(100_000))) is None
    largest = 262_144 - len(message("large", bytes(100_000))) + 100_000
    assert await straight(sender, message("large", bytes(largest))) is None
    assert paired._steering.tally("orders").too_large == 1


async def test_a_closed_pairing_ends_those_under_way_in_doubt(world: World) -> None:
    paired, sender = await ready(world, close_grace=0.1)
    world.fault("unanswered", entity="orders")
    end: asyncio.Future[Rest | None] = asyncio.get_running_loop().create_future()
    assert sender.go_straight(message("during"), 0, end.set_result)
    await until(lambda: world.depth("orders") == 2)
    await paired.close()
    rest = await end
    assert rest is not None
    with pytest.raises(PairingClosedError) as refusal:
        await rest
    assert refusal.value.in_doubt
    assert not sender.go_straight(message("after"), 0, pytest.fail)


# -- A client's encoded message into its backlog envelope and back: bit for bit, and as the SDK's path does it -------

BODY = write_data(b"hello")


def named(name: str = "1", **sections: Any) -> bytes:
    return Sections(properties=write_properties(Properties(message_id=name)), **{"body": BODY} | sections).join()


def parked(data: bytes, path: str = "orders/EU") -> bytes:
    return envelope_codec.park(envelope_codec.read_message(data), path).data


def in_backlog(data: bytes) -> bytes:
    """As the backlog queue hands it over."""
    sections = split(data)
    return sections._replace(message_annotations=held(sections.message_annotations)).join()


@settings(max_examples=settings.default.max_examples // 3)
@given(case=cases())
def test_what_is_parked_comes_back_bit_for_bit(case: tuple[Sections, bytes]) -> None:
    """Body and its kind [...] and every application property survive the round trip [...] bit for bit."""
    original, _ = case
    found = envelope_codec.open_envelope(in_backlog(parked(original.join())))
    assert found.enclosed.path == "orders/EU"
    moved = split(envelope_codec.restore_message(found, now_ms=NOW))
    assert moved._replace(message_annotations=None) == original._replace(message_annotations=None)
    assert read_map(moved.message_annotations) == read_map(original.message_annotations)


@settings(max_examples=settings.default.max_examples // 3)
@given(case=cases(), at=st.floats(0, 1), flipped=st.integers(1, 255))
def test_what_is_parked_can_be_opened_again_however_damaged_it_came(
    case: tuple[Sections, bytes], at: float, flipped: int
) -> None:
    """A message that a queue took and nobody can open would be lost to its sender."""
    data = bytearray(case[0].join())
    data[int(at * (len(data) - 1))] ^= flipped
    try:
        found = read_payload(bytes(data), 0, GivenIds())
        data_ = envelope_codec.park(found.messages[0], "orders").data
    except (UnreadableError, ReservedPropertyError):
        return
    assert read_or_refused(in_backlog(data_)) == "orders"


@given(data=st.binary(max_size=200), message_format=st.sampled_from([0, BATCH_FORMAT]))
def test_anything_is_either_read_or_refused_in_words(data: bytes, message_format: int) -> None:
    try:
        words = read_payload(data, message_format, GivenIds()).messages[0].message_id
    except (UnreadableError, ReservedPropertyError) as error:
        words = str(error)
    assert words


HOSTILE = [
    (b"\x00\x53", "the message cannot be read"),
    (named(header=b"\x00\x53\x70\xc0\x04\x03\x40\x40\x41"), "ttl is of type bool"),
    (Sections(properties=described(0x73, encode([None] * 10 + [7])), body=BODY).join(), "group-id is of type"),
    (Sections(properties=described(0x73, encode([7.5])), body=BODY).join(), "message-id is of type float"),
    (named(message_annotations=section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-scheduled-enqueue-time"): "now"})), "one"),
    (named(application_properties=b"\x00\x53\x74\xc1\x05\x02\xa1\x09a"), "the message cannot be read"),
    (named(message_annotations=b"\x00\x53\x72\xc1\x05\x02\xa3\x09a"), "the message cannot be read"),
    (
        named(
            message_annotations=section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(2**62)})
        ),
        "the message cannot be read",
    ),
]


@pytest.mark.parametrize(("data", "words"), HOSTILE)
def test_a_section_that_cannot_be_translated_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableError, match=words):
        envelope_codec.park(read_payload(data, 0, GivenIds()).messages[0], "orders")


@pytest.mark.parametrize("name", sorted(RESERVED))
@pytest.mark.parametrize("key", [str, Symbol])
def test_a_message_with_a_reserved_name_is_refused_alone_and_in_a_batch(name: str, key: Any) -> None:
    """A message that already carries one of the four names is refused with a ValueError at any time."""
    data = named(application_properties=section(APPLICATION_PROPERTIES, {key(name): "x"}))
    for payload, message_format in ((data, 0), (batch([named(), data]), BATCH_FORMAT)):
        with pytest.raises(ReservedPropertyError, match=name):
            read_payload(payload, message_format, GivenIds())


def test_a_reserved_name_elsewhere_in_a_message_is_nobodys_business() -> None:
    data = named(application_properties=section(APPLICATION_PROPERTIES, {"note": PATH}), body=write_data(PATH.encode()))
    assert read_payload(data, 0, GivenIds()).data == data


def test_a_batch_that_holds_nothing_or_too_much_is_refused() -> None:
    for count in (0, MAX_BATCH_MESSAGES + 1):
        with pytest.raises(UnreadableError, match="a batch holds 1 to"):
            read_payload(batch([named()] * count), BATCH_FORMAT, GivenIds())


def test_messages_with_ids_are_sent_as_they_came() -> None:
    data = batch([named("1"), named("2")], annotations=section(MESSAGE_ANNOTATIONS, {Symbol("k"): UInt(1)}))
    found = read_payload(data, BATCH_FORMAT, GivenIds())
    assert found.data is data
    assert [message.message_id for message in found.messages] == ["1", "2"]
    assert found.given_ids == []


def test_a_message_without_an_id_gets_one_and_keeps_all_else() -> None:
    bare = Sections(properties=write_properties(Properties(subject="s")), body=BODY).join()
    outer = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): "p"})
    single = read_payload(bare, 0, GivenIds())
    whole = read_payload(batch([named("1"), bare], annotations=outer), BATCH_FORMAT, GivenIds())
    for data, given_id in ((single.data, single.given_ids[0]), (list(unbatch(whole.data))[1], whole.given_ids[0])):
        assert read_properties(split(data).properties) == Properties(message_id=given_id, subject="s")
        assert split(data).body == BODY
    assert split(whole.data).message_annotations == outer
    assert next(unbatch(whole.data)) == named("1")


def test_the_same_bytes_keep_their_id_until_they_are_accepted() -> None:
    ids, bare = GivenIds(), Sections(body=BODY).join()

    def given_for(data: bytes) -> str:
        return read_payload(data, 0, ids).given_ids[0]

    first = given_for(bare)
    beside = given_for(bare)
    assert beside != first, "two in flight are two messages"
    ids.release(first, accepted=False)
    assert given_for(Sections(body=write_data(b"other")).join()) != first
    assert given_for(bare) == first
    ids.release(first, accepted=True)
    assert given_for(bare) not in (first, beside)


def test_no_more_ids_are_kept_than_the_limit() -> None:
    ids = GivenIds(most=2)
    taken = [(digest, ids.take(digest)) for digest in (b"1", b"2", b"3")]
    for _, given_id in taken:
        ids.release(given_id, accepted=False)
    assert [ids.take(digest) == given_id for digest, given_id in taken] == [False, True, True]


def test_a_message_too_large_for_the_backlog_is_found_before_the_wire() -> None:
    message = envelope_codec.read_message(named(body=write_data(bytes(1000))))
    size = len(envelope_codec.park(message, "orders").data)
    assert not envelope_codec.exceeds(message, "orders", size)
    assert envelope_codec.exceeds(message, "orders", size - 1)
