"""Shared access signatures: what is good, what is refused and why; the SDK and this module read each other."""

from __future__ import annotations

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.access import SasToken, TokenError, read_token, sign

KEYS = {"Root": "s3cret+/=", "Other": "different"}
NOW = 1_700_000_000.0
QUEUE = "sb://127.0.0.1:5672/orders"


def good(resource: str = QUEUE, *, name: str = "Root", expires_at: float = NOW + 60) -> str:
    return sign(resource, name, KEYS.get(name, "unknown"), expires_at)


def verify(text: str, audience: str = QUEUE, *, key: str = KEYS["Root"]) -> SasToken:
    token = read_token(text)
    assert token.is_signed_with(key)
    token.check(audience, NOW)
    return token


def reason(token: str, audience: str = QUEUE) -> str:
    with pytest.raises(TokenError) as caught:
        verify(token, audience)
    assert KEYS["Root"] not in caught.value.reason
    return caught.value.reason


@pytest.mark.parametrize(
    ("resource", "audience"),
    [
        (QUEUE, QUEUE),
        ("sb://127.0.0.1:5672", QUEUE),
        ("sb://127.0.0.1:5672/", QUEUE),
        ("https://127.0.0.1/orders/", QUEUE),
        ("SB://127.0.0.1:5672/ORDERS", "amqps://127.0.0.1/orders/$DeadLetterQueue"),
        (QUEUE, "sb://127.0.0.1:5672/Orders/Subscriptions/all"),
        ("https://127.0.0.1:5672", "https://127.0.0.1:5672/contoso%2Fx-servicebus-transfer%2F0"),
        ("sb://127.0.0.1/contoso", "https://127.0.0.1:5672/contoso%2Fx-servicebus-transfer%2F0"),
        ("sb://[::1]:5672/q", "amqp://[::1]/q"),
        ("127.0.0.1:5672/orders", QUEUE),
    ],
)
def test_a_token_covers_its_resource_and_what_lies_below(resource: str, audience: str) -> None:
    token = verify(good(resource), audience)
    assert (token.key_name, token.resource, token.expires_at) == ("Root", resource, NOW + 60)


@pytest.mark.parametrize(
    "audience",
    [
        "sb://127.0.0.1:5672/orders2",
        "sb://127.0.0.1:5672/",
        "sb://127.0.0.1:5673/orders",
        "sb://127.0.0.2:5672/orders",
        "sb://127.0.0.1:5672/other/orders",
    ],
)
def test_a_token_covers_nothing_else(audience: str) -> None:
    assert "does not cover" in reason(good(), audience)


def test_a_resource_without_a_host_covers_nothing() -> None:
    assert "does not cover" in reason(good("/orders"), "/orders")


def test_an_expired_token() -> None:
    assert "5 seconds ago" in reason(good(expires_at=NOW - 5))


def test_a_token_expires_at_the_very_second() -> None:
    assert "expired" in reason(good(expires_at=NOW))


def test_a_token_signed_with_another_key() -> None:
    token = read_token(sign(QUEUE, "Root", KEYS["Other"], NOW + 60))
    assert token.is_signed_with(KEYS["Other"])
    assert not token.is_signed_with(KEYS["Root"])


def test_a_later_expiry_written_into_a_signed_token() -> None:
    assert not read_token(good().replace(f"se={NOW + 60:.0f}", f"se={NOW + 999:.0f}")).is_signed_with(KEYS["Root"])


def test_no_signature_is_shown() -> None:
    token = read_token(good())
    assert token._signature not in repr(token)


def test_what_is_not_percent_encoded() -> None:
    assert "beyond ASCII" in reason(good().replace("skn=Root", "skn=Röot"))


@pytest.mark.parametrize("field", ["sr", "sig", "se", "skn"])
def test_a_missing_field_is_named(field: str) -> None:
    assert f"no {field};" in reason(good().replace(f"{field}=", "x="))


@pytest.mark.parametrize("token", ["", "Bearer abc", "SharedAccessSignature", "sr=a&sig=b&se=1&skn=Root"])
def test_what_is_no_signature_at_all(token: str) -> None:
    assert "not a shared access signature" in reason(token)


def test_an_expiry_that_is_no_number() -> None:
    assert "not a number" in reason(good().replace(f"se={NOW + 60:.0f}", "se=soon"))


@given(st.text(max_size=40))
def test_no_text_makes_it_raise_anything_but_its_own_error(text: str) -> None:
    for token in (
        text,
        "SharedAccessSignature " + text,
        f"SharedAccessSignature sr={text}&sig={text}&se=1&skn=Root",
    ):
        with pytest.raises(TokenError):
            read_token(token).check(text, NOW)


PATHS = st.text(st.characters(codec="utf-8", exclude_characters="?#\\"), max_size=30).map(lambda text: text.strip("/"))


@given(PATHS, st.text(min_size=1, max_size=20), st.text(min_size=1))
def test_what_is_signed_verifies(path: str, key_name: str, key: str) -> None:
    resource = f"sb://localhost:1/{path}"
    token = verify(sign(resource, key_name, key, NOW + 1), resource, key=key)
    assert token.key_name == key_name


@pytest.mark.parametrize("name", ["Root", "with space", "a+b", "ä%&="])
def test_the_sdk_and_this_module_agree(name: str) -> None:
    made_there = generate_sas_token(QUEUE, name, "k+/=", int(NOW) + 60)
    assert name in verify(made_there, key="k+/=").key_names
    if name == "Root":  # the SDK encodes other names twice
        assert sign(QUEUE, name, "k+/=", NOW + 60) == made_there
