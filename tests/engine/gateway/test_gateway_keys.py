"""The gateway's own keys: their file, and what their tokens prove."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError, UnreadableError
from paired_servicebus.engine.gateway.gateway_keys import (
    GatewayRight,
    KeyRing,
    keys_of,
    new_key,
    read_keys,
    rotate_keys,
    write_keys,
)
from servicebus_amqp.access.sas_tokens import TokenError, sign
from tests.approval import Approve

NOW = 1_800_000_000.0
AUDIENCE = "sb://127.0.0.1:5672/orders"


def test_the_file_is_made_with_one_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "gateway.keys"
    (key,) = keys_of(path).keys
    assert (key.name, key.rights) == ("gateway", {GatewayRight.SEND, GatewayRight.LISTEN})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys_of(path).keys == (key,)
    assert key.key not in repr(key)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.keys"
    keys_of(path)
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="0640"):
        read_keys(path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"keys": [{"name": "a", "rights": ["Send"], "key": "short"}]}', '{"keys": [7]}']
)
def test_a_file_of_something_else_is_refused_without_a_quote(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gateway.keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UnreadableError) as refusal:
        read_keys(path)
    assert "short" not in str(refusal.value)


def test_rotating_replaces_every_key_and_keeps_names_and_rights(tmp_path: Path) -> None:
    path = tmp_path / "gateway.keys"
    before = [new_key("a", [GatewayRight.SEND]), new_key("b", [GatewayRight.LISTEN])]
    write_keys(path, before)
    after = rotate_keys(path).keys
    assert [(key.name, key.rights) for key in after] == [(key.name, key.rights) for key in before]
    assert not {key.key for key in after} & {key.key for key in before}
    assert read_keys(path).keys == after


def test_a_token_proves_the_rights_of_its_key_for_its_audience() -> None:
    key = new_key("web", [GatewayRight.SEND])
    ring = KeyRing([key])
    access = ring.judge(sign(AUDIENCE, key.name, key.key, NOW + 60), AUDIENCE.upper().replace("SB:", "amqp:"), NOW)
    assert (access.path.lower(), access.rights, access.expires_at, access.key) == (
        "orders",
        key.rights,
        NOW + 60,
        "web",
    )


def test_what_proves_nothing_is_refused_with_its_flaw_and_no_key() -> None:
    key = new_key("web", [GatewayRight.SEND])
    ring, good = KeyRing([key]), sign(AUDIENCE, "web", key.key, NOW + 60)
    for token, audience, words in (
        (sign(AUDIENCE, "web", "wrong", NOW + 60), AUDIENCE, "InvalidSignature.*'web'"),
        (sign(AUDIENCE, "other", key.key, NOW + 60), AUDIENCE, "InvalidSignature.*no key named 'other'"),
        (sign(AUDIENCE, "web", key.key, NOW - 1), AUDIENCE, "ExpiredToken"),
        (good, "sb://127.0.0.1:5672/audit", "InvalidAudience"),
        (good, "x" * 2000, "InvalidAudience"),
        ("eyJ0eXAi.e30.sig", AUDIENCE, "MalformedToken.*no token of Azure"),
    ):
        with pytest.raises(TokenError, match=words) as refusal:
            ring.judge(token, audience, NOW)
        assert key.key not in str(refusal.value)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve) -> None:
    path = tmp_path / "gateway.keys"
    keys_of(path)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        own = os.geteuid()
        monkeypatch.setattr("os.geteuid", lambda: own + 1)
    with pytest.raises(ConfigurationError) as refused:
        read_keys(path)
    approve.part(refused.value, "errors of the gateway")


def test_two_processes_that_make_the_file_agree_on_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "gateway.keys"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(keys_of, [path] * 16))
    assert len({ring.keys for ring in made}) == 1
