"""Keys, tokens and refusals of the gateway (GATEWAY.md sections 3.2 and 3.5)."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import azure.servicebus.exceptions as sdk
import pytest

import paired_servicebus.engine.gateway
import servicebus_amqp.nodes
import servicebus_amqp.protocol
from paired_servicebus.core import errors
from paired_servicebus.core.errors import ConfigurationError, UnreadableError
from paired_servicebus.core.model.verdict import KIND_BY_CONDITION, FailureKind
from paired_servicebus.engine.gateway.gateway_keys import (
    GatewayRight,
    KeyRing,
    keys_of,
    new_key,
    read_keys,
    rotate_keys,
    write_keys,
)
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT, refusal_of_send, rejection_of
from servicebus_amqp.access import TokenError, sign
from servicebus_amqp.encoding.codec import Int
from servicebus_amqp.encoding.performatives import Rejected
from servicebus_amqp.protocol_errors import Condition
from tests.approval import Approve

from .rough_clients import LISTEN, PATIENCE, SEND, FakePairing, Refused, client_of, gateway_of

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
        ("eyJhbGciOiJub25lIn0.eyJhdWQiOiJzYiJ9.", "MalformedToken: .*no token of Azure.*'paired gateway' prints"),
    ],
    ids=["wrong key", "unknown key", "expired", "other audience", "token of Azure", "without an algorithm"],
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
        assert detach.error.condition == "amqp:link:detach-forced"
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
        assert detach.error.condition == "amqp:link:detach-forced"
        token = sign("sb://x/", SEND.name, SEND.key, time.time() + 60)
        assert (await old.put_token("sb://x/", token))["status-code"] == 401
        await old.prove(gateway, fresh)
        await old.send(await old.attach("orders"))
        await untouched.send(kept)
        assert untouched.detach_of(kept) is None


async def test_a_key_without_the_right_is_named_in_the_refusal(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_of() as gateway, client_of(gateway) as client:
        await client.prove(gateway, LISTEN)
        with pytest.raises(Refused, match=r"^amqp:unauthorized-access: Unauthorized access. 'Send' claim"):
            await client.attach("orders")
    (line,) = caplog.messages
    assert "amqp:unauthorized-access" in line
    assert "'Send'" in line


# -- The gateway's own keys: their file, and what their tokens prove -------------------------------------------------

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


# -- GATEWAY.md section 3.5: "only accepted, or rejected with condition, description, info", and two conditions never
# "**Never** `amqp:connection:forced` or `amqp:internal-error` on a link (Go drops its whole connection); never released
# or modified to a sender (Python ≤ 7.14 hangs)."

NEVER = {"amqp:connection:forced", "amqp:internal-error"}
CONDITIONS = sorted({*KIND_BY_CONDITION, *Condition, "something:new"})
PLAIN = (
    *(TimeoutError(), OSError("gone"), KeyError("ours"), RuntimeError("ours"), AssertionError()),
    errors.PairingClosedError("the pairing was closed", in_doubt=True),
    errors.BacklogUnavailableError("no backlog queue took it"),
    errors.BacklogMessageSizeError(size=2, limit=1, message_id="m"),
    errors.ReservedPropertyError("x-ms-path"),
    errors.UnreadableError("no message"),
    *(sdk.ServiceBusError("x"), sdk.ServiceBusConnectionError(message="x"), sdk.ServiceBusServerBusyError(message="x")),
)
FAILURES = [
    *(kind("x", condition) for condition in CONDITIONS for kind in (errors.WireLinkError, errors.WireOutcomeError)),
    *PLAIN,
]
WORTH_ANOTHER_TRY = [
    *(errors.WireOutcomeError("x", condition) for condition in sorted(NEVER)),
    *(errors.WireOutcomeError("released"), errors.WireTimeoutError("x"), errors.WireConnectionError("x")),
    *(errors.WireLinkError("x", "com.microsoft:entity-disabled"), errors.WireLinkError("x", "amqp:not-found")),
    *PLAIN[:3],
    *PLAIN[5:7],
]


def named(error: BaseException) -> str:
    return f"{type(error).__name__} {getattr(error, 'condition', '')}"


@pytest.mark.parametrize("error", FAILURES, ids=named)
def test_every_failure_of_a_send_becomes_a_rejection_that_no_sdk_stumbles_over(error: Exception) -> None:
    outcome = rejection_of(error)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition not in NEVER
    assert outcome.error.description
    assert outcome.error.info


@pytest.mark.parametrize("error", WORTH_ANOTHER_TRY, ids=named)
def test_what_another_try_may_mend_is_answered_with_what_every_sdk_retries(error: Exception) -> None:
    assert refusal_of_send(error).condition == TIMEOUT == "com.microsoft:timeout"


@pytest.mark.parametrize(
    "condition", sorted(each for each, kind in KIND_BY_CONDITION.items() if kind is FailureKind.ARGUMENT)
)
def test_a_namespaces_refusal_of_a_message_keeps_its_condition(condition: str) -> None:
    """Go takes `amqp:not-allowed` as final; for an argument error it gives up its connection and tries again."""
    refusal = refusal_of_send(errors.WireOutcomeError("no session id", condition))
    assert (refusal.condition, refusal.status) == (condition, 400)


def test_no_refusal_in_the_code_has_a_condition_that_drops_connections() -> None:
    found = [entry for folder in _folders() for path in folder.glob("*.py") for entry in _conditions(path)]
    assert len(found) > 15, "the search finds the refusals"
    assert "amqp:not-implemented" in {condition for _, condition in found}
    assert "TRANSFER_LIMIT_EXCEEDED" in {condition for _, condition in found}
    never = {*NEVER, *(condition.name for condition in Condition if condition in NEVER)}
    assert [place for place, condition in found if condition in never] == []


async def test_a_sender_gets_accepted_or_rejected_and_nothing_else() -> None:
    pairing = FakePairing()
    async with gateway_of(pairing) as gateway, client_of(gateway) as client:
        await client.prove(gateway)
        link = await client.attach("orders")
        for error in FAILURES:
            pairing.failure = error
            assert isinstance(await client.send(link), Rejected), named(error)
        assert client.detach_of(link) is None


def _folders() -> list[Path]:
    rooms = (paired_servicebus.engine.gateway, servicebus_amqp.nodes, servicebus_amqp.protocol)
    return [Path(room.__path__[0]) for room in rooms]


def _conditions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the condition of each refusal of a link or message in a module."""
    makers = {"AmqpRefusal", "Error", "fail", "Released", "Modified"}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        # what ends a connection as a whole is no link's condition
        if name not in makers or path.name == "connection.py":
            continue
        given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "condition")]
        place = f"{path.name}:{node.lineno}"
        if name in ("Released", "Modified"):
            yield place, "amqp:internal-error"
        for value in given:
            if isinstance(value, ast.Constant):
                yield place, str(value.value)
            elif isinstance(value, ast.Attribute):
                yield place, value.attr
