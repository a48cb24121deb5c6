"""GATEWAY.md sections 1, 3 and 4: what does not work through it, the answer to each, and one line for the operator."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    WireConnectionError,
    WireLinkError,
    WireTimeoutError,
)
from paired_servicebus.core.model.envelope import RESERVED
from servicebus_amqp.encoding.amqp_types import Symbol
from servicebus_amqp.encoding.messaging_types import Coordinator, Rejected
from servicebus_amqp.protocol.protocol_events import Attached
from tests.engine.gateway.rough_clients import (
    FakePairing,
    Refused,
    RoughClient,
    client_of,
    gateway_of,
    message,
    raw_socket,
    read_all,
)

SEND_VIA = {Symbol("com.microsoft:transfer-destination-address"): "other"}
GET = b"GET /$Resources/queues HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
PUT = b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000)


# -- other protocols --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (GET, "turned a client away, HTTP: .* administration clients need the namespace's own connection string"),
        (PUT, "turned a client away, HTTP: .* administration clients"),
        (UPGRADE, "turned a client away, WebSocket: .* set its transport to plain AMQP"),
    ],
    ids=["GET", "PUT with a body", "WebSocket upgrade"],
)
async def test_http_gets_501_with_where_to_point_the_client(
    first: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Atom over the same string: 501 with the sentence."""
    async with gateway_of() as gateway, raw_socket(gateway) as plain:
        await asyncio.get_running_loop().sock_sendall(plain, first)
        answer = await read_all(plain)
    assert answer.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    assert b"at the namespace's own connection string" in answer
    assert_one_line(caplog, words)


@pytest.mark.parametrize(
    ("first", "answer", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"", "turned a client away, TLS: .*lacks UseDevelopmentEmulator=true"),
        (GET, b"HTTP/1.1 501 ", "turned a client away, HTTP: "),
    ],
    ids=["TLS", "HTTP"],
)
async def test_first_bytes_that_come_one_by_one_are_recognized_too(
    first: bytes, answer: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A TLS hello on the port: closed, with a log line that names the missing flag."""
    async with gateway_of() as gateway, raw_socket(gateway) as plain:
        for byte in first[:8]:
            await asyncio.get_running_loop().sock_sendall(plain, bytes([byte]))
            await asyncio.sleep(0.005)
        assert (await read_all(plain)).startswith(answer)
    assert_one_line(caplog, words)


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        (Coordinator(), {}, "^amqp:not-implemented: transactions do not pass .*ReceiveOnly"),
        ("orders", {"properties": SEND_VIA}, "^amqp:not-implemented: send-via is not served: .*ReceiveOnly"),
        (None, {}, "^amqp:not-implemented: a link needs an address"),
        ("a" * 3000, {}, "^com.microsoft:argument-error: the address of the link "),
        ("or\x00ders", {}, "^com.microsoft:argument-error: the address of the link "),
        ("nowhere", {}, "^amqp:not-found: The messaging entity 'nowhere' could not be found"),
    ],
    ids=["coordinator", "send-via", "no address", "long address", "strange address", "unknown entity"],
)
async def test_a_link_that_cannot_be_is_refused_with_a_null_target(
    address: Any, options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Coordinator link: null target, detach `amqp:not-implemented`, one sentence that names ReceiveOnly."""
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        for _ in range(2):
            client.events.clear()
            with pytest.raises(Refused, match=words):
                await client.attach(address, **options)
            (answer,) = [event for event in client.events if isinstance(event, Attached)]
            assert answer.attach.target is None
        await client.send(await client.attach("orders"))
    assert_one_line(caplog, f"refused a client's link, {words[1:]}")


async def test_a_link_without_a_token_is_refused() -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.wait(lambda: client.amqp.remote)
        with pytest.raises(Refused, match=r"^amqp:unauthorized-access: no good token gives 'Send' for 'orders'"):
            await client.attach("orders")


@pytest.mark.parametrize(
    "away",
    [
        WireTimeoutError("silent"),
        WireConnectionError("refused"),
        WireLinkError("disabled", "com.microsoft:entity-disabled"),
        WireLinkError("ill", "amqp:internal-error"),
        WireConnectionError("forced", "amqp:connection:forced"),
    ],
    ids=["silent", "refused", "disabled", "internal error", "forced"],
)
async def test_primary_away_what_was_seen_is_accepted_and_the_unknown_is_to_be_tried_again(
    away: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Primary away: accepted if configured or seen before, else refused with `com.microsoft:timeout`."""
    pairing = FakePairing(away=away, diverting={"orders": False})
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        seen = await client.attach("orders")
        assert seen.remote is not None
        assert seen.remote.max_message_size == 262_144  # until known
        with pytest.raises(Refused, match=r"^com.microsoft:timeout: "):
            await client.attach("unknown")
    assert_one_line(caplog, "refused a client's link, com.microsoft:timeout: ")


async def test_an_attach_tells_the_primarys_sizes_and_the_open_ours() -> None:
    """Any hostname; max-frame 65,536; idle-time-out 240 s. `max-message-size` and the batch's of the primary."""
    async with gateway_of(FakePairing(entities={"orders": (1_048_576, 500_000)})) as gateway, client_of(gateway) as one:
        await one.prove(gateway)
        link = await one.attach("orders")
        assert one.amqp.remote is not None
        assert (one.amqp.remote.max_frame_size, one.amqp.remote.idle_time_out) == (65_536, 240_000)
        assert link.remote is not None
        assert link.remote.max_message_size == 1_048_576
        assert (link.remote.properties or {})["com.microsoft:max-message-batch-size"] == 500_000
        assert link.credit > 0


# -- messages ---------------------------------------------------------------------------------------------------------


async def proven_sender(client: RoughClient, gateway: Any) -> Any:
    await client.prove(gateway)
    return await client.attach("orders")


@pytest.mark.parametrize("name", sorted(RESERVED))
async def test_reserved_names_are_rejected_and_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        state = await client.send(link, message(b"x", **{name: "x"}))
        assert_rejected(state, "com.microsoft:argument-error", repr(name))
        await client.send(link)
    assert_one_line(caplog, f"refused a client's message, com.microsoft:argument-error: .*{name}")


@pytest.mark.parametrize("payload", [b"\x00", b"Sp", b"\x00Sp\xa0\x05x"], ids=["cut", "no section", "short section"])
async def test_bytes_that_are_no_message_are_rejected_alone(payload: bytes) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        assert_rejected(await client.send(link, payload), "com.microsoft:argument-error", "")
        await client.send(link)


async def test_a_message_above_the_primarys_size_is_rejected_with_both_sizes() -> None:
    async with gateway_of(FakePairing(entities={"orders": (1000, 1000)})) as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        large = message(bytes(2000))
        state = await client.send(link, large)
        assert_rejected(state, "amqp:link:message-size-exceeded", f"{len(large)} bytes, the link takes 1000")


async def test_a_message_above_the_backlogs_size_is_rejected_with_both_sizes(caplog: pytest.LogCaptureFixture) -> None:
    """Over 256 KB while failed over: rejected, named, with both sizes."""
    pairing = FakePairing(failure=BacklogMessageSizeError(size=300_000, limit=262_144, message_id="big"))
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        link = await proven_sender(client, gateway)
        state = await client.send(link)
        assert_rejected(state, "amqp:link:message-size-exceeded", "'big' takes 300000 bytes")
        assert_rejected(state, "amqp:link:message-size-exceeded", "accept 262144")
    assert_one_line(caplog, "refused a client's message, amqp:link:message-size-exceeded: .*300000.*262144")


@pytest.mark.parametrize("body", [{}, {"sequence-numbers": 7}, {"sequence-numbers": [{}, "a"]}, "text", None])
async def test_a_cancel_of_what_is_no_number_is_a_bad_argument(body: Any) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        reply = await client.ask("orders/$management", "com.microsoft:cancel-scheduled-message", body)
    assert (reply["statusCode"], reply["errorCondition"]) == (400, "com.microsoft:argument-error")


def assert_rejected(state: Any, condition: str, words: str) -> None:
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == condition
    assert words in state.error.description


def assert_one_line(caplog: pytest.LogCaptureFixture, pattern: str) -> None:
    (line,) = caplog.messages
    assert re.search(pattern, line), line
