"""Tokens from each kind of credential, and when they are due again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireAuthenticationError
from paired_servicebus.pairing.amqp_client.cbs_tokens import JWT, SAS, SCOPE, CbsToken, sign, token_for
from servicebus_sandbox.access.authorization import read_token

AUDIENCE = "sb://contoso.servicebus.windows.net/x-servicebus transfer/0"
NOW = 1_700_000_000.0


class Given(NamedTuple):
    token: str
    expires_on: int


@dataclass
class Credential:
    """As azure-identity's asynchronous ones."""

    failure: Exception | None = None
    scopes: tuple[str, ...] = ()

    async def get_token(self, *scopes: str, **_: Any) -> Given:
        self.scopes = scopes
        if self.failure is not None:
            raise self.failure
        return Given("header.claims.signature", int(NOW) + 600)


async def test_a_named_key_signs_for_the_audience() -> None:
    token = await token_for(AzureNamedKeyCredential("Root", "top+secret/="), AUDIENCE, now=NOW)
    read = read_token(token.text)
    assert (token.kind, token.expires_at) == (SAS, NOW + 3600)
    assert (read.key_name, read.resource, read.expires_at) == ("Root", AUDIENCE, NOW + 3600)
    assert read.is_signed_with("top+secret/=")
    assert not read.is_signed_with("another")


async def test_a_key_that_was_changed_in_place_signs_the_next_token() -> None:
    credential = AzureNamedKeyCredential("Root", "old")
    await token_for(credential, AUDIENCE, now=NOW)
    credential.update("Root", "new")
    assert read_token((await token_for(credential, AUDIENCE, now=NOW)).text).is_signed_with("new")


async def test_a_ready_signature_is_used_as_it_is() -> None:
    ready = sign(AUDIENCE, "Root", "key", NOW + 60).text
    assert await token_for(AzureSasCredential(ready), AUDIENCE, now=NOW) == CbsToken(ready, SAS, NOW + 60)
    without_expiry = await token_for(AzureSasCredential("SharedAccessSignature sr=x&sig=y&skn=z"), AUDIENCE, now=NOW)
    assert without_expiry.expires_at == NOW + 3600


async def test_an_identity_is_asked_for_the_scope_of_service_bus() -> None:
    credential = Credential()
    token = await token_for(credential, AUDIENCE, now=NOW)
    assert token == CbsToken("header.claims.signature", JWT, NOW + 600)
    assert credential.scopes == (SCOPE,)


async def test_a_connection_strings_key_is_asked_for_the_audience() -> None:
    text = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=Root;SharedAccessKey=key"
    client = ServiceBusClient.from_connection_string(text)
    token = await token_for(client._credential, AUDIENCE, now=NOW)
    assert token.kind == SAS
    assert read_token(token.text).resource == AUDIENCE
    assert read_token(token.text).is_signed_with("key")


async def test_a_credential_that_gives_none_is_an_error_with_its_own_reason() -> None:
    failure = RuntimeError("no managed identity endpoint found")
    with pytest.raises(WireAuthenticationError, match=r"Credential gave no token for sb:.*no managed") as told:
        await token_for(Credential(failure), AUDIENCE, now=NOW)
    assert told.value.__cause__ is failure


@pytest.mark.parametrize(("life", "early"), [(3600, 360), (86400, 8640), (1200, 300), (60, 30), (2, 1), (0, 0)])
def test_a_token_is_due_before_it_ends(life: float, early: float) -> None:
    assert CbsToken("t", JWT, NOW + life).renew_at(NOW) == NOW + life - early


def test_a_token_is_not_in_what_it_prints() -> None:
    assert "canary" not in repr(CbsToken("canary", JWT, NOW))
