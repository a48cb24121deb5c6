"""GATEWAY.md section 3.2: "any number of pairs, in parallel and in sequence", audiences of every form, expiry."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from servicebus_amqp.access.sas_tokens import sign
from servicebus_amqp.encoding.amqp_types import Int
from tests.engine.gateway.rough_clients import LISTEN, PATIENCE, SEND, FakePairing, Refused, client_of, gateway_of

NOW = 1_800_000_000.0
AUDIENCES = (
    "sb://127.0.0.1:{port}/orders",
    "amqp://127.0.0.1:{port}/orders",
    "amqps://127.0.0.1:{port}/orders",
    "sb://127.0.0.1/orders",
    "amqps://127.0.0.1/orders",
    "sb://127.0.0.1:{port}//orders",
    "sb://127.0.0.1:{port}/orders/",
    "sb://127.0.0.1:{port}/%6Frders",
    "SB://127.0.0.1:{port}/ORDERS",
    "amqp://any.example/Orders",
    "sb://127.0.0.1:{port}/",
    "sb://127.0.0.1:{port}",
)


@pytest.mark.parametrize("form", AUDIENCES)
async def test_audiences_of_every_form_open_the_entity(form: str) -> None:
    """`sb|amqp|amqps`, with or without port, entity with leading slash or percent-encoded, any case."""
    async with gateway_of() as gateway, client_of(gateway) as client:
        audience = form.format(port=gateway.port)
        reply = await client.put_token(audience, sign(audience, SEND.name, SEND.key, time.time() + 60))
        assert reply["status-code"] == 202, reply
        await client.attach("amqps://127.0.0.1/orders")


async def test_a_percent_encoded_audience_opens_an_entity_with_slashes() -> None:
    pairing = FakePairing(entities={"contoso/orders": (1000, 1000)})
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        await client.prove(gateway, path="contoso%2Forders")
        await client.attach("contoso/orders")
        with pytest.raises(Refused, match="unauthorized-access"):
            await client.attach("contoso")


async def test_the_status_code_is_an_int32() -> None:
    """`status-code` int32: the Java client casts it."""
    async with gateway_of() as gateway, client_of(gateway) as client:
        good = await client.put_token("sb://x/", sign("sb://x/", SEND.name, SEND.key, time.time() + 60))
        bad = await client.put_token("sb://x/", "nonsense")
    # the reader returns Int for AMQP's int alone: long, uint and smallint have types of their own
    assert [(type(reply["status-code"]), reply["status-code"]) for reply in (good, bad)] == [(Int, 202), (Int, 401)]


async def test_pairs_in_parallel_and_in_sequence() -> None:
    """Go opens and closes a pair for every claim."""
    async with gateway_of() as gateway, client_of(gateway) as client:
        token = sign("sb://x/", SEND.name, SEND.key, time.time() + 60)
        pairs = [client.cbs_pair(f"pair {number}") for number in range(5)]
        replies = await asyncio.gather(*(client.put_token("sb://x/", token, pair) for pair in pairs))
        assert [reply["status-code"] for reply in replies] == [202] * 5
        for number in range(150):  # more than a stranger may attach: the first good token ends that limit
            pair = client.cbs_pair(f"again {number}")
            assert (await client.put_token("sb://x/", token, pair))["status-code"] == 202
            for link in pair:
                link.detach()
            client.flush()
            await client.wait(lambda pair=pair: all(client.detach_of(link) for link in pair) or None)


@pytest.mark.parametrize(
    ("token", "description"),
    [
        (sign("sb://x/", SEND.name, "d3Jvbmc=", NOW + 60), "InvalidSignature: .* 'web'"),
        (sign("sb://x/", "nobody", SEND.key, NOW + 60), "InvalidSignature: .*no key named 'nobody'"),
        (sign("sb://x/", SEND.name, SEND.key, NOW - 60), "ExpiredToken: "),
        (sign("sb://y/", SEND.name, SEND.key, NOW + 60), "InvalidAudience: "),
        ("eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJzYiJ9.c2ln", "MalformedToken: .*no token of Azure.*'paired gateway' prints"),
    ],
    ids=["wrong key", "unknown key", "expired", "other audience", "token of Azure"],
)
async def test_a_bad_token_gets_401_and_the_operator_one_line(
    token: str, description: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_of(clock=lambda: NOW) as gateway, client_of(gateway) as client:
        replies = [await client.put_token("sb://x/", token) for _ in range(3)]
    for reply in replies:
        assert (reply["status-code"], reply["error-condition"]) == (401, "com.microsoft:auth-failed")
        assert re.search(description, reply["status-description"])
    (line,) = caplog.messages
    assert re.search(f"refused a client's token: {description}", line)
    assert SEND.key not in caplog.text


@pytest.mark.real_time
async def test_the_end_of_a_token_detaches_its_links_and_no_others() -> None:
    """Expiry enforced."""
    begin = time.monotonic() - 0.8  # a token's end is a whole second: the next one comes 0.2 s from now
    pairing = FakePairing(entities={"orders": (1000, 1000), "audit": (1000, 1000)})
    async with (
        gateway_of(pairing, clock=lambda: 1_800_000_000 + time.monotonic() - begin) as gateway,
        client_of(gateway) as client,
    ):
        await client.prove(gateway, path="audit")
        await client.prove(gateway, path="orders", seconds=0.7)
        ends, stays = await client.attach("orders"), await client.attach("audit")
        await client.wait(lambda: client.detach_of(ends))
        detach = client.detach_of(ends)
        assert detach is not None
        assert detach.error is not None
        assert detach.error.condition == "amqp:unauthorized-access"
        with pytest.raises(Refused, match="unauthorized-access"):
            await client.attach("orders")
        await client.send(stays)
        await client.prove(gateway, path="orders")
        await client.attach("orders")


@pytest.mark.real_time
async def test_a_token_put_again_in_time_keeps_its_links() -> None:
    begin = time.monotonic() - 0.8
    async with (
        gateway_of(clock=lambda: 1_800_000_000 + time.monotonic() - begin) as gateway,
        client_of(gateway) as client,
    ):
        await client.prove(gateway, seconds=0.7)
        link = await client.attach("orders")
        await client.prove(gateway)
        (connection,) = gateway.connections
        async with asyncio.timeout(PATIENCE):  # until the first token's end has passed
            while connection.grants.next_end is None or connection.grants.next_end < gateway.clock() + 300:
                await asyncio.sleep(0.02)
        await client.send(link)
        assert client.detach_of(link) is None


async def test_rotated_keys_count_on_a_running_gateway_at_once() -> None:
    """Old tokens stop counting, and so do links that they opened; the other key's clients notice nothing."""
    other = new_key("other", [GatewayRight.SEND])
    async with gateway_of(None, SEND, other) as gateway, client_of(gateway) as old, client_of(gateway) as untouched:
        await old.prove(gateway, SEND)
        await untouched.prove(gateway, other)
        link, kept = await old.attach("orders"), await untouched.attach("orders")
        fresh = new_key(SEND.name, SEND.rights)
        gateway.keys = KeyRing([fresh, other])
        gateway.revoke(frozenset({fresh.name}))
        detach = await old.wait(lambda: old.detach_of(link))
        assert detach.error is not None
        assert detach.error.condition == "amqp:unauthorized-access"
        token = sign("sb://x/", SEND.name, SEND.key, time.time() + 60)
        assert (await old.put_token("sb://x/", token))["status-code"] == 401
        await old.prove(gateway, fresh)
        await old.send(await old.attach("orders"))
        await untouched.send(kept)
        assert untouched.detach_of(kept) is None


async def test_a_key_without_the_right_is_named_in_the_refusal(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway, LISTEN)
        with pytest.raises(Refused, match=r"^amqp:unauthorized-access: no good token gives 'Send' for 'orders'"):
            await client.attach("orders")
    (line,) = caplog.messages
    assert "amqp:unauthorized-access" in line
    assert "'Send'" in line
