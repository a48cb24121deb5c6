"""GATEWAY.md section 3.5: "only accepted, or rejected with condition, description, info", and two conditions never.

"**Never** `amqp:connection:forced` or `amqp:internal-error` on a link (Go drops its whole connection); never released
or modified to a sender (Python ≤ 7.14 hangs)."
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import azure.servicebus.exceptions as sdk
import pytest

import paired_servicebus.engine.gateway
import servicebus_amqp.nodes
import servicebus_amqp.protocol
from paired_servicebus.core import errors
from paired_servicebus.core.model.verdict import KIND_BY_CONDITION, FailureKind
from paired_servicebus.engine.gateway.send_refusals import TIMEOUT, refusal_of_send, rejection_of
from servicebus_amqp.encoding.messaging_types import Rejected
from servicebus_amqp.protocol_errors import Condition
from tests.engine.gateway.rough_clients import FakePairing, client_of, gateway_of

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
