"""Who gets in, with what, and for how long."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from paired_servicebus.core.errors import (
    WireAuthenticationError,
    WireError,
    WireLinkError,
    WireRequestError,
    WireTimeoutError,
)
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireSender, client_connection
from paired_servicebus.pairing.amqp_client.endpoint import SCOPE, sign
from paired_servicebus.pairing.amqp_client.wire_errors import token_failure
from servicebus_amqp import ACCEPTED
from servicebus_sandbox import AsyncSandboxCredential
from tests.pairing.wire.conftest import Told, World, message, until
from tests.pairing.wire.peer import listening, reply_to


def endpoint(world: World, credential: Any) -> Endpoint:
    return replace(Endpoint.of(world.client()), credential=credential)


def keys(world: World) -> tuple[str, str]:
    found = world.sandbox["contoso"]
    return found.key_name, found.key


async def answer_to(world: World, credential: Any) -> Any:
    """How a message is settled that is sent with it."""
    told = Told()
    sender = await told.sender(world.wire_to(endpoint(world, credential)))
    sender.send(message(), b"1")
    await until(lambda: told.outcomes)
    return told.outcomes[0].state


async def test_a_key_gets_in(world: World) -> None:
    assert await answer_to(world, AzureNamedKeyCredential(*keys(world))) is ACCEPTED


async def test_a_ready_signature_gets_in(world: World) -> None:
    audience = Endpoint.of(world.client()).audience("orders")
    signature = sign(audience, *keys(world), time.time() + 60).text
    assert await answer_to(world, AzureSasCredential(signature)) is ACCEPTED


async def test_an_identity_gets_in_with_a_bearer_token(world: World) -> None:
    identity = AsyncSandboxCredential(world.sandbox.control_url, "Data Owner")
    assert await answer_to(world, identity) is ACCEPTED


async def test_an_identity_without_the_right_is_told_so(world: World) -> None:
    credential = AsyncSandboxCredential(world.sandbox.control_url, "Data Receiver")
    with pytest.raises(WireError) as raised:
        await Told().sender(world.wire_to(endpoint(world, credential)))
    assert kind_of(raised.value) is FailureKind.UNAUTHORIZED


async def test_a_wrong_key_is_an_authentication_error_of_one_line(world: World) -> None:
    with pytest.raises(WireAuthenticationError, match="401") as raised:
        await Told().sender(world.wire_to(endpoint(world, AzureNamedKeyCredential(keys(world)[0], "canary"))))
    assert "canary" not in str(raised.value)
    assert kind_of(raised.value) is FailureKind.UNAUTHENTICATED


async def test_an_entity_that_is_not_there_is_told_from_a_wrong_key(world: World) -> None:
    with pytest.raises(WireAuthenticationError) as raised:
        await Told().sender(world.wire(), "nowhere")
    assert kind_of(raised.value) is FailureKind.NOT_FOUND


async def test_a_signature_for_one_entity_opens_that_one_alone(world: World) -> None:
    audience = Endpoint.of(world.client()).audience("orders")
    credential = AzureSasCredential(sign(audience, *keys(world), time.time() + 60).text)
    wire = world.wire_to(endpoint(world, credential))
    assert (await Told().sender(wire, "orders")).is_up
    with pytest.raises(WireAuthenticationError):
        await Told().sender(wire, "audit")
    assert wire.is_up


@dataclass
class Short:
    """Tokens that live so many seconds, counted."""

    world: World
    life: float
    times: list[float] = field(default_factory=list)

    @property
    def named_key(self) -> None:
        return None

    async def get_token(self, *scopes: str, **_: Any) -> Any:
        self.times.append(time.time())
        real = AsyncSandboxCredential(self.world.sandbox.control_url, "Data Owner", lifetime=self.life)
        return await real.get_token(*scopes)


async def test_a_token_that_ends_is_renewed_before_and_the_links_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "_MIN_CHECK_SECONDS", 0.05)
    credential, told = Short(world, 3.0), Told()
    sender = await told.sender(world.wire_to(endpoint(world, credential)))
    began = time.time()
    while time.time() < began + 4.0:  # longer than the first token lives
        sender.send(message(), str(time.time()).encode())
        await asyncio.sleep(0.1)
    await until(lambda: len(told.outcomes) > 20)
    assert not told.lost
    assert len(credential.times) >= 3


async def test_a_token_that_was_not_renewed_costs_the_link_and_a_new_one_gets_in(world: World) -> None:
    told, wire = Told(), world.wire_to(endpoint(world, AsyncSandboxCredential(world.sandbox.control_url, "Data Owner")))
    await told.sender(wire)
    world.jump(90_000)
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireLinkError)
    assert kind_of(told.lost[0]) is FailureKind.UNAUTHORIZED
    assert (await told.sender(wire)).is_up
    assert wire.connections == 1


async def test_a_key_that_was_changed_in_place_counts_from_the_next_link_on(world: World) -> None:
    credential = AzureNamedKeyCredential(keys(world)[0], "old")
    wire = world.wire_to(endpoint(world, credential))
    with pytest.raises(WireAuthenticationError):
        await Told().sender(wire)
    credential.update(*keys(world))
    assert (await Told().sender(wire)).is_up


class Lasting(NamedTuple):
    """A credential, and the token it gives: for so many seconds."""

    seconds: float
    token: str = "a.b.c"

    @property
    def expires_on(self) -> float:
        return time.time() + self.seconds

    async def get_token(self, *_: str) -> Lasting:
        return self


async def test_a_renewal_that_fails_is_tried_again_while_the_link_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "_MIN_CHECK_SECONDS", 0.05)
    async with listening() as script:
        answers = iter([200, 401, 500])
        script.on_request = lambda _, request: reply_to(request, next(answers, 200))
        wire, told = ReconnectingConnection(replace(script.endpoint, credential=Lasting(2.0))), Told()
        await told.sender(wire)
        await until(lambda: len(script.peer.requests) >= 4)
        assert not told.lost
        await wire.close()


async def test_a_credential_that_never_answers_costs_the_caller_alone(world: World) -> None:
    class Hanging:
        async def get_token(self, *_: str) -> Any:
            if others:
                await asyncio.Event().wait()
            return await AsyncSandboxCredential(world.sandbox.control_url, "Data Owner").get_token(SCOPE)

    others: list[WireSender] = []
    told = Told()
    wire = world.wire_to(endpoint(world, Hanging()))
    others.append(await told.sender(wire))
    with pytest.raises(WireTimeoutError):
        await Told().sender(wire, "audit", timeout=0.2)
    assert others[0].is_up
    assert told.lost == []


async def test_one_token_serves_many_links_of_an_entity() -> None:
    async with listening() as script:
        wire = ReconnectingConnection(script.endpoint)
        await asyncio.gather(*(Told().sender(wire, "orders") for _ in range(5)), Told().receiver(wire, "orders"))
        await Told().sender(wire, "audit")
        assert len(script.peer.requests) == 2
        await wire.close()


async def test_the_next_link_after_a_loss_shows_a_new_token() -> None:
    async with listening() as script:
        wire, told = ReconnectingConnection(script.endpoint), Told()
        await told.sender(wire)
        for link in script.peer.links[-1:]:
            link.detach()
        script.peer.flush()
        await until(lambda: told.lost)
        await told.sender(wire)
        assert len(script.peer.requests) == 2
        await wire.close()


async def test_many_entities_share_the_namespaces_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service accepts 1,000 tokens on one connection: an audience of the namespace serves all entities."""
    monkeypatch.setattr(client_connection, "MAX_TOKENS", 2)
    async with listening() as script:
        wire = ReconnectingConnection(script.endpoint)

        def audience(path: str) -> bytes:
            return script.endpoint.audience(path).encode()

        for path in ("a", "b", "c", "d"):
            await Told().sender(wire, path)
        puts = [
            next(path for path in ("a", "b", "c", "d", "") if audience(path) in put) for put in script.peer.requests
        ]
        assert puts == ["a", "b", ""]
        await wire.close()


@pytest.mark.parametrize(
    ("status", "condition", "kind"),
    [
        (401, "com.microsoft:auth-failed", FailureKind.UNAUTHENTICATED),
        (403, None, FailureKind.UNAUTHENTICATED),
        (404, None, FailureKind.NOT_FOUND),
        (408, None, FailureKind.TIMEOUT),
        (410, "com.microsoft:entity-disabled", FailureKind.DISABLED),
        (429, None, FailureKind.BUSY),
        (400, "com.microsoft:argument-error", FailureKind.UNAUTHENTICATED),
        (500, None, FailureKind.INTERNAL),
        (503, None, FailureKind.BUSY),
        (503, "com.microsoft:timeout", FailureKind.TIMEOUT),
    ],
)
def test_a_token_that_was_not_taken_is_the_credentials_fault_or_the_namespaces(
    status: int, condition: str | None, kind: FailureKind
) -> None:
    failure = token_failure("sb://contoso/orders", status, "said so", condition)
    assert kind_of(failure) is kind
    assert isinstance(failure, WireRequestError) is (status >= 500)


async def test_a_busy_token_node_is_busy() -> None:
    async with listening() as script:
        script.on_request = lambda _, request: reply_to(request, 503)
        wire = ReconnectingConnection(script.endpoint)
        with pytest.raises(WireRequestError) as raised:
            await Told().sender(wire)
        assert kind_of(raised.value) is FailureKind.BUSY
        await wire.close()
