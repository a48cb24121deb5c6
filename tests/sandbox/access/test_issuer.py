"""Bearer tokens: what the issuer signs it knows again, and nothing else."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_sandbox.access.grants import TokenError
from servicebus_sandbox.access.token_issuer import SERVICE_BUS, AzureRole, Issuer, parse_role
from servicebus_sandbox.broker.entity_settings import Right

NOW = 1_700_000_000.0
SCOPE = f"{SERVICE_BUS}//.default"  # as the SDK asks for it


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(lambda: NOW)


def reason(issuer: Issuer, token: str, *, now: float = NOW) -> str:
    with pytest.raises(TokenError) as caught:
        issuer.judge(token, audiences=(SERVICE_BUS,), now=now)
    return caught.value.reason


def edited(token: str, part: int, **changes: Any) -> str:
    """The token with something else in its header (0) or claims (1), under the old signature."""
    parts = token.split(".")
    values = json.loads(urlsafe_b64decode(parts[part] + "==")) | changes
    parts[part] = urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()
    return ".".join(parts)


@pytest.mark.parametrize(
    ("role", "rights"),
    [
        (AzureRole.SENDER, {Right.SEND}),
        (AzureRole.RECEIVER, {Right.LISTEN}),
        (AzureRole.OWNER, {Right.SEND, Right.LISTEN, Right.MANAGE}),
    ],
)
def test_a_token_carries_its_role(issuer: Issuer, role: AzureRole, rights: set[Right]) -> None:
    token = issuer.issue(role, SCOPE, lifetime=60)
    bearer = issuer.judge(token.token, audiences=(SERVICE_BUS,), now=NOW)
    assert (bearer.roles, bearer.rights, bearer.expires_at) == ({role}, rights, NOW + 60)
    assert token.expires_on == NOW + 60


def test_an_independent_library_reads_it(issuer: Issuer) -> None:
    token = issuer.issue(AzureRole.OWNER, "https://servicebus.azure.net/.default").token
    claims = jwt.decode(
        token,
        issuer._key.public_key(),
        algorithms=["RS256"],
        audience=SERVICE_BUS,
        options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )
    assert claims["roles"] == ["Azure Service Bus Data Owner"]
    assert claims["exp"] - claims["iat"] == 3600


def test_the_end_of_a_token(issuer: Issuer) -> None:
    token = issuer.issue(AzureRole.SENDER, SCOPE, lifetime=60).token
    assert issuer.judge(token, audiences=(SERVICE_BUS,), now=NOW + 59.9).roles == {AzureRole.SENDER}
    assert "expired 0 seconds ago" in reason(issuer, token, now=NOW + 60)
    assert "not good yet" in reason(issuer, token, now=NOW - 301)


def test_another_audience(issuer: Issuer) -> None:
    token = issuer.issue(AzureRole.OWNER, "https://management.azure.com/.default").token
    assert "'https://management.azure.com'; ask for https://servicebus.azure.net" in reason(issuer, token)


def test_another_issuer(issuer: Issuer) -> None:
    assert "another issuer" in reason(issuer, Issuer(lambda: NOW).issue(AzureRole.OWNER, SCOPE).token)


@pytest.mark.parametrize("claim", [{"roles": [AzureRole.OWNER]}, {"exp": NOW + 1e9}, {"aud": "x"}, {"nbf": "soon"}])
def test_changed_claims(issuer: Issuer, claim: dict[str, Any]) -> None:
    token = issuer.issue(AzureRole.SENDER, SCOPE).token
    assert "changed or forged" in reason(issuer, edited(token, 1, **claim))


@pytest.mark.parametrize("algorithm", ["none", "HS256", None, ["RS256"]])
def test_an_algorithm_that_is_not_ours(issuer: Issuer, algorithm: object) -> None:
    token = edited(issuer.issue(AzureRole.SENDER, SCOPE).token, 0, alg=algorithm)
    assert "another issuer" in reason(issuer, token)
    assert "another issuer" in reason(issuer, token.rpartition(".")[0] + ".")


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "e30.W10.", "1.2.3", "{}.{}.{}", "ä.ö.ü", "e30.e30.e30.e30"])
def test_what_is_no_token(issuer: Issuer, token: str) -> None:
    assert "neither a shared access signature nor a JSON Web Token" in reason(issuer, token)


@given(st.lists(st.text(max_size=20) | st.binary(max_size=20), min_size=1, max_size=4))
def test_nothing_makes_it_raise_anything_but_its_own_error(issuer: Issuer, parts: list[str | bytes]) -> None:
    texts = (part if isinstance(part, str) else urlsafe_b64encode(part).decode() for part in parts)
    assert reason(issuer, ".".join(texts))


def test_deep_nesting_is_no_token(issuer: Issuer) -> None:
    deep = urlsafe_b64encode(b"[" * 100_000).decode()
    assert "neither" in reason(issuer, f"{deep}.{deep}.x")


@pytest.mark.parametrize("name", ["Azure Service Bus Data Sender", "Data Sender", "data sender"])
def test_roles_by_name(name: str) -> None:
    assert parse_role(name) is AzureRole.SENDER


def test_a_role_that_is_none() -> None:
    with pytest.raises(ValueError, match="unknown role 'Emperor'; there are Azure Service Bus Data Sender"):
        parse_role("Emperor")
