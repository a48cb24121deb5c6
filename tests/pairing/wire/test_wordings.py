"""What the service was seen to say, with and without its tracking tail: judged alike by each way that it reaches us."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

import pytest
from azure.servicebus._pyamqp import error as amqp
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from paired_servicebus.core.errors import PairedError, WireConnectionError, WireError, WireLinkError, WireRequestError
from paired_servicebus.core.model.verdict import LOST_LINKS, FailureKind, judge, kind_of
from paired_servicebus.engine.gateway.relay_connection import error_of_end, error_of_refusal
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, is_idle_detach
from paired_servicebus.pairing.amqp_client.endpoint import connection_failure, failure_of, link_failure, token_failure
from servicebus_amqp.encoding.codec import Symbol
from servicebus_amqp.encoding.performatives import Error, Rejected
from tests.pairing.wire.conftest import Told
from tests.pairing.wire.peer import listening, reply_to

TRACKING: Final = (
    "TrackingId:5c1c6c2a-7cb5-4f2e-9d0c-000000000001_G3_B2, SystemTracker:{}, Timestamp:2022-03-24T18:24:01"
)
TAILS: Final = {
    "no tail": "",
    "a tail": " " + TRACKING.format("contoso:Queue:orders"),
    "a gateway's tail": " " + TRACKING.format("gateway7"),
    "a partition's tail": " " + TRACKING.format("gi::G3:1, bi::contoso:queue:orders|B2"),
    "two tails": f". {TRACKING.format('contoso:Queue:orders')}. {TRACKING.format('gateway7')}",
    "a reference": " Reference:0f9e, " + TRACKING.format("contoso:Queue:orders"),
}
DETACH, CLOSE = "amqp:link:detach-forced", "amqp:connection:forced"
K = FailureKind


class Wording(NamedTuple):
    """way: of the error; idle: whether it is only the end of an idle link or connection."""

    way: str
    condition: str
    text: str
    kind: FailureKind
    idle: bool = False


SEND_CLAIM = "Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource: 'sb://c/orders'."
WORDINGS: Final[dict[str, Wording]] = {
    "missing right": Wording("link", "amqp:unauthorized-access", SEND_CLAIM, K.UNAUTHORIZED),
    "missing right on a subscription": Wording(
        "link",
        "amqp:unauthorized-access",
        "Unauthorized access. 'Listen,Manage,SubscriptionRuleRead' claim(s) are required to perform this operation.",
        K.UNAUTHORIZED,
    ),
    "token ended": Wording(
        "link", DETACH, f"The link 'G3:1' is force detached. Code: RenewToken. Details: {SEND_CLAIM}", K.REVOKED
    ),
    "idle sender": Wording(
        "link",
        DETACH,
        "The link 'G5:1:s' is force detached. Code: publisher(link30). Details: "
        "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00.",
        K.DETACHED,
        idle=True,
    ),
    "idle receiver": Wording(
        "link",
        DETACH,
        "The link 'G5:1:r' is force detached. Code: consumer(link30). Details: "
        "AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00.",
        K.DETACHED,
        idle=True,
    ),
    "idle, older": Wording(
        "link",
        DETACH,
        "The link 'G5:1:s' is force detached by the broker due to errors occurred in publisher(link30). Detach origin: "
        "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00.",
        K.DETACHED,
        idle=True,
    ),
    "no links for a minute": Wording(
        "connection",
        CLOSE,
        "The connection was closed by container '8a6f_G3' because it did not have any active links in the past 60000 "
        "milliseconds.",
        K.CONNECTION,
        idle=True,
    ),
    "inactive, older": Wording(
        "connection",
        CLOSE,
        "The connection was inactive for more than the allowed 300000 milliseconds and is closed by container "
        "'LinkTracker'.",
        K.CONNECTION,
        idle=True,
    ),
    "disabled under a receiver": Wording(
        "link",
        DETACH,
        "The link 'G3:1:r' is force detached. Code: consumer(link1). Details: InnerMessageReceiver was closed.",
        K.DETACHED,
    ),
    "attach to a disabled entity": Wording(
        "link",
        "com.microsoft:entity-disabled",
        "Messaging entity 'sb://contoso/orders' is currently disabled.",
        K.DISABLED,
    ),
    "closed to sends": Wording(
        "link",
        "com.microsoft:entity-disabled",
        "'contoso:Queue:orders' is currently disabled for Send operations.",
        K.DISABLED,
    ),
    "a missing entity": Wording(
        "link",
        "amqp:not-found",
        "The messaging entity 'sb://contoso/orders' could not be found. To know more visit https://aka.ms/x.",
        K.NOT_FOUND,
    ),
    "sessions needed": Wording(
        "link",
        "amqp:not-allowed",
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        K.ARGUMENT,
    ),
    "no session free": Wording(
        "link",
        "com.microsoft:timeout",
        "The operation did not complete within the allotted timeout of 00:00:59. The time allotted to this operation "
        "may have been a portion of a longer timeout.",
        K.TIMEOUT,
    ),
    "session taken": Wording(
        "link",
        "com.microsoft:session-cannot-be-locked",
        "The requested session 'x' cannot be accepted. It may be locked by another receiver.",
        K.UNLISTED,
    ),
    "busy": Wording(
        "outcome",
        "com.microsoft:server-busy",
        "The request was terminated because the namespace contoso is being throttled. Error code : 50009. Please wait "
        "2 seconds and try again. To know more visit https://aka.ms/x.",
        K.BUSY,
    ),
    "full": Wording(
        "outcome",
        "amqp:resource-limit-exceeded",
        "The maximum entity size has been reached or exceeded for Queue: 'CONTOSO:QUEUE:ORDERS'. Size of entity in "
        "bytes:1073742354, Max entity size in bytes: 1073741824. QuotaType: EntitySize",
        K.FULL,
    ),
    "internal": Wording(
        "outcome",
        "amqp:internal-error",
        "The service was unable to process the request; please retry the operation. For more information on exception "
        "types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101",
        K.INTERNAL,
    ),
    "internal at an attach": Wording(
        "link",
        "amqp:internal-error",
        "The service was unable to process the request; please retry the operation.",
        K.INTERNAL,
    ),
    "lock lost": Wording(
        "outcome",
        "com.microsoft:message-lock-lost",
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue.",
        K.UNLISTED,
    ),
    "firewall": Wording(
        "link", "amqp:unauthorized-access", "Ip has been prevented to connect to the endpoint.", K.UNAUTHORIZED
    ),
}


def by_our_wire(wording: Wording, text: str) -> WireError:
    error = Error(condition=Symbol(wording.condition), description=text)
    if wording.way == "link":
        return link_failure("orders", error)
    if wording.way == "connection":
        return connection_failure("contoso", error)
    found = failure_of(Rejected(error=error), "orders")
    assert found is not None
    return found


def by_the_sdk(wording: Wording, text: str) -> Exception:
    condition: Any = wording.condition.encode()
    if condition in {each.value for each in amqp.ErrorCondition}:
        condition = amqp.ErrorCondition(condition)
    kinds = {"link": amqp.AMQPLinkError, "connection": amqp.AMQPConnectionError, "outcome": amqp.MessageSendFailed}
    raised = kinds[wording.way](condition, description=text)
    return PyamqpTransport.create_servicebus_exception(logging.getLogger(__name__), raised)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("name", WORDINGS)
def test_the_services_words_have_one_kind_whatever_is_behind_them(name: str, tail: str) -> None:
    """Section 5: "One replaceable function (`exception -> verdict`), one table"."""
    wording = WORDINGS[name]
    text = wording.text + TAILS[tail]
    ours, theirs = by_our_wire(wording, text), by_the_sdk(wording, text)
    assert kind_of(ours) is wording.kind
    assert kind_of(theirs) is wording.kind or {kind_of(theirs), wording.kind} <= LOST_LINKS
    assert is_idle_detach(ours) is wording.idle
    for error in (ours, theirs):
        reason = judge(error).reason
        assert reason == reason.strip()
        assert "\n" not in reason
        assert "TrackingId" not in reason, "one cause has one reason"


@pytest.mark.parametrize(
    "error",
    [
        WireLinkError("the entity has moved", DETACH),
        WireLinkError("idle talk", "amqp:internal-error"),
        WireLinkError("idle"),
        WireConnectionError("idle"),
        WireError("idle", DETACH),
    ],
)
def test_an_idle_end_is_known_by_condition_and_words_together(error: WireError) -> None:
    assert not is_idle_detach(error)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("name", [name for name, each in WORDINGS.items() if each.way == "link"])
def test_a_client_of_the_gateway_reads_the_services_own_words(name: str, tail: str) -> None:
    """A relayed link is refused, or detached, with the primary's own error."""
    wording = WORDINGS[name]
    text = wording.text + TAILS[tail]
    error = by_our_wire(wording, text)
    assert isinstance(error, WireLinkError)
    for answer in (error_of_refusal(error), error_of_end(error)):
        assert answer is not None
        assert (answer.condition, answer.description) == (wording.condition, text)


# -- answers to tokens -------------------------------------------------------------------------------------------------

BAD: Final = (
    *(-(2**31), -1, 0, 1, 100, 199),
    *(300, 301, 302, 304, 307, 399),
    *(400, 401, 402, 403, 404, 405, 408, 409, 410, 412, 413, 429, 451, 499),
    *(500, 501, 502, 503, 504, 599, 600, 999, 2**31 - 1),
)
COUNTED: Final = {404: K.NOT_FOUND, 408: K.TIMEOUT, 429: K.BUSY, 503: K.BUSY}


@pytest.mark.parametrize("status", [200, 202, 299])
async def test_a_token_is_accepted_by_every_status_of_success(status: int) -> None:
    async with listening() as script:
        script.on_request = lambda _, request: reply_to(request, status)
        wire = ReconnectingConnection(script.endpoint)
        assert (await Told().sender(wire)).is_up
        await wire.close()


@pytest.mark.parametrize(("status", "kind"), [(199, K.UNAUTHENTICATED), (300, K.UNAUTHENTICATED), (503, K.BUSY)])
async def test_every_other_status_refuses_the_token(status: int, kind: FailureKind) -> None:
    async with listening() as script:
        script.on_request = lambda _, request: reply_to(request, status)
        wire = ReconnectingConnection(script.endpoint)
        with pytest.raises(WireError, match=str(status)) as raised:
            await Told().sender(wire)
        await wire.close()
    assert kind_of(raised.value) is kind


@pytest.mark.parametrize(
    ("status", "condition", "kind"),
    [
        *((status, None, COUNTED.get(status, K.INTERNAL if status >= 500 else K.UNAUTHENTICATED)) for status in BAD),
        (401, "com.microsoft:auth-failed", K.UNAUTHENTICATED),
        (410, "com.microsoft:entity-disabled", K.DISABLED),
        (400, "com.microsoft:argument-error", K.UNAUTHENTICATED),
        (503, "com.microsoft:timeout", K.TIMEOUT),
    ],
)
def test_a_refused_token_is_the_credentials_fault_or_the_namespaces(
    status: int, condition: str | None, kind: FailureKind
) -> None:
    """Below 500 the credential is refused unless the status says otherwise; from there on the namespace fails."""
    failure = token_failure("sb://contoso/orders", status, "said so", condition)
    assert kind_of(failure) is kind
    assert isinstance(failure, WireRequestError) is (status >= 500)
    assert str(status) in str(failure)


@pytest.mark.parametrize("said", [None, "202", 202.0, True, [202], {}], ids=repr)
async def test_an_answer_without_a_readable_status_is_an_error_of_ours(said: Any) -> None:
    async with listening() as script:
        script.on_request = lambda _, request: reply_to(request, **{"status-code": said, "statusCode": said})
        wire = ReconnectingConnection(script.endpoint)
        with pytest.raises(PairedError):
            await Told().sender(wire, timeout=2)
        await wire.close()
