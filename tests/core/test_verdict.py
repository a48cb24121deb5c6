"""Which failure counts (SPEC.md section 5): real exceptions, as the SDK makes them, against the table."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import socket
import ssl
from typing import Any

import pytest
from azure.core import exceptions as core_errors
from azure.servicebus import ServiceBusMessage
from azure.servicebus import exceptions as sdk
from azure.servicebus._pyamqp import error as amqp
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st
from tests.alarm_views import condition
from tests.approval import Approve
from tests.fleet_views import own

from paired_servicebus.core.accounting.refused_calls import (
    EPISODE_GAP_SECONDS,
    MAX_REASONS,
    OTHER_REASONS,
    Refusals,
    ThrottledCalls,
    closed_reason,
)
from paired_servicebus.core.accounting.send_times import (
    WINDOW_SECONDS,
    SendAttempt,
    SendTimes,
    detection_start,
    diversion_seconds,
)
from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    EnvelopeError,
    PairedClientError,
    PairingClosedError,
    ReservedPropertyError,
    WireAuthenticationError,
    WireConnectionError,
    WireError,
    WireLinkError,
    WireOutcomeError,
    WireRequestError,
    WireTimeoutError,
)
from paired_servicebus.core.model.verdict import (
    DOUBTFUL,
    KIND_BY_CLASS,
    KIND_BY_CONDITION,
    VERDICTS,
    FailureKind,
    Verdict,
    at_backlog,
    judge,
    kind_of,
)
from paired_servicebus.core.operator.alarms import alarms
from servicebus_sandbox import Sandbox

K = FailureKind

SPECIFIED = {
    Verdict.COUNTS: {
        *(K.TIMEOUT, K.CONNECTION, K.COMMUNICATION, K.INTERNAL, K.DETACHED, K.UNEXPLAINED),
        *(K.DISABLED, K.NOT_FOUND, K.FULL),
    },
    Verdict.THROTTLED: {K.BUSY},
    Verdict.CALLERS: {K.UNAUTHENTICATED, K.UNAUTHORIZED, K.REVOKED, K.TOO_LARGE, K.ARGUMENT, K.IMPOSSIBLE, K.UNLISTED},
}

SDK_CLASSES = {
    "ServiceBusError": K.UNEXPLAINED,
    "ServiceBusConnectionError": K.CONNECTION,
    "ServiceBusCommunicationError": K.COMMUNICATION,
    "OperationTimeoutError": K.TIMEOUT,
    "MessagingEntityDisabledError": K.DISABLED,
    "MessagingEntityNotFoundError": K.NOT_FOUND,
    "ServiceBusQuotaExceededError": K.FULL,
    "ServiceBusServerBusyError": K.BUSY,
    "ServiceBusAuthenticationError": K.UNAUTHENTICATED,
    "ServiceBusAuthorizationError": K.UNAUTHORIZED,
    "MessageSizeExceededError": K.TOO_LARGE,
    "MessageAlreadySettled": K.ARGUMENT,
    # Outcomes of one message, one session or one call of management: nothing is wrong with the entity.
    "MessageLockLostError": K.UNLISTED,
    "MessageNotFoundError": K.UNLISTED,
    "SessionLockLostError": K.UNLISTED,
    "SessionCannotBeLockedError": K.UNLISTED,
    "MessagingEntityAlreadyExistsError": K.UNLISTED,
    "AutoLockRenewFailed": K.UNLISTED,
    "AutoLockRenewTimeout": K.UNLISTED,
}

CONDITIONS = {
    b"amqp:internal-error": K.INTERNAL,
    b"amqp:resource-locked": K.INTERNAL,
    b"com.microsoft:operation-cancelled": K.INTERNAL,
    b"com.microsoft:something-new": K.INTERNAL,
    b"amqp:connection:forced": K.CONNECTION,
    b"amqp:socket-error": K.INTERNAL,
    b"amqp:unknown-error": K.CONNECTION,
    b"amqp:link:detach-forced": K.CONNECTION,
    b"com.microsoft:timeout": K.TIMEOUT,
    b"com.microsoft:server-busy": K.BUSY,
    b"com.microsoft:entity-disabled": K.DISABLED,
    b"amqp:not-found": K.NOT_FOUND,
    b"amqp:resource-limit-exceeded": K.FULL,
    b"amqp:link:message-size-exceeded": K.TOO_LARGE,
    b"amqp:unauthorized-access": K.UNAUTHORIZED,
    b"com.microsoft:auth-failed": K.UNAUTHORIZED,
    b"com.microsoft:argument-error": K.ARGUMENT,
    b"com.microsoft:argument-out-of-range": K.ARGUMENT,
    b"amqp:not-allowed": K.ARGUMENT,
    b"amqp:not-implemented": K.ARGUMENT,
    b"amqp:decode-error": K.ARGUMENT,
    b"com.microsoft:message-lock-lost": K.UNLISTED,
    b"com.microsoft:message-not-found": K.UNLISTED,
    b"com.microsoft:session-lock-lost": K.UNLISTED,
    b"com.microsoft:session-cannot-be-locked": K.UNLISTED,
    b"com.microsoft:entity-already-exists": K.UNLISTED,
}
"""What a namespace says, to what becomes of it on its way through the SDK."""

OTHERS = [
    (TimeoutError(), K.TIMEOUT),
    (ConnectionRefusedError(111, "refused"), K.CONNECTION),
    (ConnectionResetError(104, "reset"), K.CONNECTION),
    (BrokenPipeError(), K.CONNECTION),
    (socket.gaierror(-2, "Name or service not known"), K.CONNECTION),
    (ssl.SSLCertVerificationError("self-signed"), K.CONNECTION),
    (OSError("no route to host"), K.CONNECTION),
    (ValueError("bad"), K.ARGUMENT),
    (TypeError("not a message"), K.ARGUMENT),
    (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), K.ARGUMENT),
    (BacklogMessageSizeError(size=2, limit=1, message_id="m"), K.ARGUMENT),
    (ReservedPropertyError("x-ms-path"), K.ARGUMENT),
    (EnvelopeError("no path"), K.UNLISTED),
    (KeyError("x"), K.UNLISTED),
    (RuntimeError("x"), K.UNLISTED),
    (MemoryError(), K.UNLISTED),
    (asyncio.CancelledError(), K.UNLISTED),
    (core_errors.ClientAuthenticationError("no"), K.UNAUTHENTICATED),
    (core_errors.ServiceRequestError("refused"), K.CONNECTION),
    (core_errors.ServiceResponseTimeoutError("late"), K.CONNECTION),
    (core_errors.ResourceExistsError("there"), K.UNLISTED),
]


def through_the_sdk(condition: bytes, description: str | None = None) -> sdk.ServiceBusError:
    """The exception that the SDK raises for a rejected transfer with `condition`."""
    failed = amqp.MessageSendFailed(_enumerated(condition), description=description)
    return PyamqpTransport.create_servicebus_exception(logging.getLogger(__name__), failed)


def _enumerated(condition: bytes) -> bytes:
    try:
        return amqp.ErrorCondition(condition)
    except ValueError:
        return condition


TAIL = " TrackingId:0b2c_G3_B2, SystemTracker:gateway7, Timestamp:2026-11-26T18:24:01"
RENEW = (
    "The link 'G3:1:orders' is force detached. Code: RenewToken. Details: Unauthorized access. 'Send' claim(s) are "
    "required to perform this operation."
)


@pytest.mark.parametrize("tail", ["", TAIL])
def test_a_link_that_its_token_ended_is_no_failure_of_the_entity(tail: str) -> None:
    """A token that ended, or a right taken away: not authorized, and a message on its way is in doubt."""
    wire = WireLinkError("orders detached a link: " + RENEW + tail, "amqp:link:detach-forced")
    through_sdk = PyamqpTransport.create_servicebus_exception(
        logging.getLogger(__name__), amqp.AMQPLinkError(amqp.ErrorCondition.LinkDetachForced, description=RENEW + tail)
    )
    assert {kind_of(wire), kind_of(through_sdk)} == {K.REVOKED}
    assert (VERDICTS[K.REVOKED], K.REVOKED in DOUBTFUL) == (Verdict.CALLERS, True)
    assert at_backlog(judge(wire)) is Verdict.COUNTS
    other = WireLinkError("orders detached a link: InnerMessageReceiver was closed." + tail, "amqp:link:detach-forced")
    assert kind_of(other) is K.DETACHED


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        (None, K.UNAUTHENTICATED),
        ("com.microsoft:auth-failed", K.UNAUTHENTICATED),
        ("amqp:unauthorized-access", K.UNAUTHENTICATED),
        ("amqp:not-found", K.NOT_FOUND),
        ("com.microsoft:entity-disabled", K.DISABLED),
        ("amqp:resource-limit-exceeded", K.FULL),
        ("com.microsoft:server-busy", K.BUSY),
        ("com.microsoft:timeout", K.TIMEOUT),
        ("com.microsoft:argument-error", K.UNAUTHENTICATED),
    ],
)
def test_a_refused_token_is_the_entitys_failure_where_its_condition_says_so(
    condition: str | None, kind: FailureKind
) -> None:
    assert kind_of(WireAuthenticationError("the token was refused", condition)) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The messaging entity 'sb://contoso/orders' could not be found. To know more visit …", K.NOT_FOUND),
        ("Messaging entity 'sb://contoso/orders' is currently disabled.", K.DISABLED),
        ("'contoso:Queue:orders' is currently disabled for Send operations.", K.DISABLED),
        ("The request was terminated because the namespace contoso is being throttled. Error code : 50009.", K.BUSY),
        ("InvalidSignature: The token has an invalid signature.", K.UNAUTHENTICATED),
        ("ExpiredToken: The token is expired. Expiration time: '2026-11-26T18:24:01Z'", K.UNAUTHENTICATED),
    ],
)
@pytest.mark.parametrize("tail", ["", TAIL])
def test_the_words_of_a_refused_token_say_whose_fault_it_is(text: str, kind: FailureKind, tail: str) -> None:
    assert kind_of(sdk.ServiceBusAuthenticationError(message=text + tail)) is kind
    assert kind_of(WireAuthenticationError(text + tail, None)) is kind


def _instance(name: str) -> Exception:
    cls = getattr(sdk, name)
    return cls(action="complete") if name == "MessageAlreadySettled" else cls(message="said so")


def test_every_kind_has_the_verdict_that_the_specification_gives_it() -> None:
    found = {verdict: {kind for kind in K if VERDICTS[kind] is verdict} for verdict in Verdict}
    assert found == SPECIFIED


@pytest.mark.parametrize("name", KIND_BY_CLASS)
def test_every_class_named_by_the_table_exists(name: str) -> None:
    """Classes are named, not imported: a class that an SDK renames would be missed without a word."""
    module, _, cls = name.rpartition(".")
    homes = {"azure.servicebus.exceptions": sdk, "azure.core.exceptions": core_errors}
    homes["azure.servicebus._pyamqp.error"] = amqp
    home = homes.get(module) or importlib.import_module(module)
    assert issubclass(getattr(home, cls), BaseException)


def test_every_exception_of_the_sdk_is_looked_at_here() -> None:
    found = {
        name
        for name, cls in inspect.getmembers(sdk, inspect.isclass)
        if issubclass(cls, Exception) and cls.__module__ == sdk.__name__
    }
    assert found == set(SDK_CLASSES)


@pytest.mark.parametrize(("name", "kind"), SDK_CLASSES.items())
def test_every_exception_of_the_sdk_has_its_kind(name: str, kind: FailureKind) -> None:
    assert kind_of(_instance(name)) is kind


@pytest.mark.parametrize("description", [None, "The service was unable to process the request. TrackingId:1"])
@pytest.mark.parametrize(("condition", "kind"), CONDITIONS.items())
def test_every_condition_has_its_kind_as_the_sdk_writes_it(
    condition: bytes, kind: FailureKind, description: str | None
) -> None:
    assert kind_of(through_the_sdk(condition, description)) is kind


@pytest.mark.parametrize(("condition", "kind"), KIND_BY_CONDITION.items())
@pytest.mark.parametrize("more", [{}, {"status_code": 500}])
def test_a_bare_error_is_told_by_the_condition_in_its_text(condition: str, kind: FailureKind, more: dict) -> None:
    assert kind_of(sdk.ServiceBusError("failed.", condition=condition.encode(), **more)) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Handler failed: list index out of range.", K.UNEXPLAINED),
        ("Handler failed: 'NoneType' object has no attribute 'send'.", K.UNEXPLAINED),
        (None, K.UNEXPLAINED),
        ("The handler was shut down", K.UNEXPLAINED),
    ],
)
def test_a_failure_inside_of_the_sdk_has_no_condition_and_counts(text: str | None, kind: FailureKind) -> None:
    judged = judge(sdk.ServiceBusError(text))
    assert (judged.kind, judged.verdict) == (kind, Verdict.COUNTS)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_message_refused_on_a_connection_of_our_own_is_judged_as_by_the_sdk(condition: bytes) -> None:
    error = WireOutcomeError("orders rejected the message", condition.decode())
    assert judge(error).verdict is judge(through_the_sdk(condition)).verdict


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WireTimeoutError("attaching"), K.TIMEOUT),
        (WireConnectionError("reset", "amqp:socket-error"), K.CONNECTION),
        (WireConnectionError("closed", "amqp:connection:forced"), K.CONNECTION),
        (WireConnectionError("broke the protocol", "amqp:decode-error"), K.CONNECTION),
        (WireConnectionError("closed", "com.microsoft:server-busy"), K.BUSY),
        (WireAuthenticationError("401", "com.microsoft:auth-failed"), K.UNAUTHENTICATED),
        (WireAuthenticationError("404 The messaging entity 'sb://x/y' could not be found."), K.NOT_FOUND),
        (WireLinkError("detached"), K.DETACHED),
        (WireLinkError("detached", "amqp:link:detach-forced"), K.DETACHED),
        (WireLinkError("refused", "amqp:not-found"), K.NOT_FOUND),
        (WireLinkError("refused", "amqp:unauthorized-access"), K.UNAUTHORIZED),
        (WireLinkError("refused", "com.microsoft:entity-disabled"), K.DISABLED),
        (WireLinkError("refused", "contoso:something-new"), K.DETACHED),
        (WireOutcomeError("released"), K.UNEXPLAINED),
        (WireRequestError("410", "com.microsoft:message-lock-lost", status=410), K.UNLISTED),
        (WireRequestError("503", "com.microsoft:server-busy", status=503), K.BUSY),
        (WireError("a reply that cannot be read"), K.UNEXPLAINED),
    ],
)
def test_failures_of_connections_of_our_own_have_their_kind(error: WireError, kind: FailureKind) -> None:
    assert kind_of(error) is kind


@pytest.mark.parametrize(("error", "kind"), OTHERS, ids=lambda value: type(value).__name__)
def test_other_exceptions_have_their_kind(error: BaseException, kind: FailureKind) -> None:
    assert kind_of(error) is kind


def test_a_subclass_is_judged_by_its_nearest_listed_class() -> None:
    class Busier(sdk.ServiceBusServerBusyError):
        pass

    assert kind_of(Busier()) is K.BUSY


def test_whether_the_sdk_calls_it_retryable_is_never_asked() -> None:
    """The SDK calls "entity disabled" and "auth failed" retryable alike; only one of them counts."""
    verdicts = {}
    for name in (b"com.microsoft:entity-disabled", b"com.microsoft:auth-failed"):
        error = through_the_sdk(name)
        assert error._retryable
        verdicts[name] = judge(error).verdict
    assert set(verdicts.values()) == {Verdict.COUNTS, Verdict.CALLERS}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError("whatever"), "timeout"),
        (sdk.ServiceBusServerBusyError(), "server busy"),
        (sdk.ServiceBusError("Handler failed: x."), "failure without a condition: Handler failed: x."),
        (ValueError(), "bad argument: ValueError"),
        (RuntimeError("two\n  lines"), "not listed: two lines"),
    ],
)
def test_a_reason_says_the_kind_and_what_the_failure_adds(error: BaseException, reason: str) -> None:
    assert judge(error).reason == reason


@given(text=st.text(max_size=400))
def test_a_reason_fits_one_line_of_a_screen(text: str) -> None:
    reason = judge(RuntimeError(text)).reason
    assert len(reason) <= 160
    assert reason == " ".join(reason.split())


@pytest.mark.parametrize(
    "description", ["The messaging entity 'sb://c/q' could not be found.", b"it could not be found"]
)
def test_a_token_refused_for_a_missing_entity_is_not_found_and_counts(description: str | bytes) -> None:
    """Entity disabled, not found, full: yes; not authenticated: no."""
    inner = amqp.TokenAuthFailure(404, description)
    error = sdk.ServiceBusAuthenticationError(message="Put token failed.", error=inner)
    assert kind_of(error) is FailureKind.NOT_FOUND
    wrong_key = sdk.ServiceBusAuthenticationError(error=amqp.TokenAuthFailure(401, "wrong key"))
    assert kind_of(wrong_key) is FailureKind.UNAUTHENTICATED


def deep() -> list[object]:
    value: list[object] = []
    for _ in range(3000):
        value = [value]
    return value


@pytest.mark.parametrize("value", [2**70, deep(), "\ud800", object()], ids=["number", "deep", "surrogate", "object"])
async def test_a_message_that_the_sdk_cannot_write_is_its_callers_matter(value: object) -> None:
    """Message too large, bad argument or type, and anything not listed: no; raised to the caller."""
    async with (
        Sandbox.start() as sandbox,
        ServiceBusClient.from_connection_string(sandbox["primary"].connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        properties: dict[str, Any] = {"name": value}
        with pytest.raises(sdk.ServiceBusError) as caught:
            await sender.send_messages(ServiceBusMessage(b"x", application_properties=properties))
    assert judge(caught.value).kind is K.ARGUMENT


@pytest.mark.parametrize("kind", [sdk.ServiceBusConnectionError, WireConnectionError])
def test_a_lost_connection_names_an_expired_certificate(kind: Any) -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "certificate has expired"
    error = kind(message="lost") if kind is sdk.ServiceBusConnectionError else kind("lost")
    assert judge(error).reason == "connection lost"
    error.__cause__ = cause
    assert judge(error).reason == "connection lost: certificate has expired"


def test_a_broken_connection_is_not_taken_for_the_callers_values() -> None:
    broken = sdk.ServiceBusError("Handler failed", error=TypeError("'NoneType' object is not subscriptable"))
    assert judge(broken).kind is K.UNEXPLAINED


# -- Refused calls as values: episodes, rates, series, reasons, and the sentence about them.


NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def test_an_episode_ends_after_a_quiet_time_and_is_given_once() -> None:
    one = Refusals()
    assert one.add(2, "timeout", at=NOON, accepted=0)
    assert not one.add(3, "connection lost", at=NOON + 4, accepted=0)
    assert one.over(NOON + 4 + EPISODE_GAP_SECONDS - 0.1) is None
    episode = one.over(NOON + 4 + EPISODE_GAP_SECONDS)
    assert episode is not None
    assert (episode.number, episode.began, episode.latest) == (5, NOON, NOON + 4)
    assert one.over(NOON + 100) is None
    assert one.add(1, "timeout", at=NOON + 100, accepted=0)
    assert (one.total, dict(one.reasons)) == (6, {"timeout": 3, "connection lost": 3})


def test_a_series_runs_until_a_call_is_accepted() -> None:
    """None: the latest call did not end in an error."""
    one = Refusals()
    assert one.since(0) is None
    one.add(1, "timeout", at=NOON, accepted=5)
    one.add(1, "timeout", at=NOON + 1, accepted=5)
    assert one.since(5) == NOON
    assert one.since(6) is None
    one.add(1, "timeout", at=NOON + 2, accepted=6)
    assert one.since(6) == NOON + 2


def test_the_rate_is_over_the_last_seconds() -> None:
    one = Refusals()
    one.add(10, "timeout", at=NOON, accepted=0)
    assert one.per_second(NOON) == 10.0
    for second in range(1, 30):
        one.add(10, "timeout", at=NOON + second, accepted=0)
    assert one.per_second(NOON + 29) == pytest.approx(10.0)
    assert 0 < one.per_second(NOON + 29 + EPISODE_GAP_SECONDS / 2) < 10.0
    assert one.per_second(NOON + 29 + EPISODE_GAP_SECONDS) == 0.0


def test_reasons_are_bounded_and_add_up() -> None:
    one = Refusals()
    for number in range(3 * MAX_REASONS):
        one.add(1, f"reason {number}", at=NOON, accepted=0)
    assert len(one.reasons) == MAX_REASONS + 1
    assert one.reasons[OTHER_REASONS] == 2 * MAX_REASONS
    assert one.reasons.total() == one.total


def test_what_was_refused_before_a_failover_is_no_loss_once_sends_are_parked() -> None:
    orders = Refusals()
    orders.add(18, "timeout", at=NOON, accepted=5)
    orders.turn(NOON + 3)
    assert orders.per_second(NOON + 4) == 0
    orders.add(2, "no backlog queue took it", at=NOON + 5, accepted=6)
    assert orders.per_second(NOON + 5) == 1
    assert orders.total == 20


def test_refused_calls_of_the_present_outage_are_counted_apart() -> None:
    orders = Refusals()
    assert (orders.in_outage, orders.latest_at) == (0, None)
    orders.add(4, "timeout", at=NOON, accepted=0)
    orders.begin_outage()
    orders.add(3, "timeout", at=NOON + 60, accepted=1)
    assert (orders.in_outage, orders.latest_at, orders.total) == (3, NOON + 60, 7)


def test_an_ended_pairing_has_few_words(approve: Approve) -> None:
    approve.part(closed_reason(PairingClosedError("…")), "rules")
    approve.part(closed_reason(PairedClientError("…")), "rules")


# -- How long calls took: what was taken, and the last minute (SPEC.md section 8).


def test_each_call_is_taken_once() -> None:
    times = SendTimes()
    times.add(0.1)
    times.count()
    assert sum(times.take().values()) == 1
    assert not times.take()
    times.add(0.1)
    assert sum(times.take().values()) == 1


def test_the_p99_is_of_the_last_minute() -> None:
    times = SendTimes()
    assert times.p99 is None
    for _ in range(98):
        times.add(0.001)
    times.add(5.0)
    times.add(5.0)
    times.count()
    assert times.p99 == pytest.approx(5.0, rel=0.07)
    for _ in range(1000):
        times.add(0.001)
    times.count()
    assert times.p99 == pytest.approx(0.001, rel=0.07)
    for _ in range(WINDOW_SECONDS + 1):
        times.count()
    assert times.p99 is None


# -- Calls that wait for a busy namespace: counted while they wait, with the longest wait.


def waiting(waits: ThrottledCalls, at: float) -> list[str]:
    """What the alarm says of the waiting calls at that time."""
    entities = []
    for path in ("orders", "audit"):
        number, since = waits.waiting(path, at)
        entities.append(own(path, throttled=number, throttled_since=since))
    found = alarms(condition(at=at, read_at=at, entities=tuple(entities)))
    return [one.sentence for one in found if one.name == "throttled"]


def test_the_alarm_has_each_entity_its_calls_and_the_longest_wait() -> None:
    waits = ThrottledCalls()
    assert waiting(waits, 0.0) == []
    waits.wait("orders", 1, at=10.0)
    waits.wait("orders", 2, at=12.0)
    waits.wait("orders", 1, at=20.0)
    waits.wait("audit", 3, at=21.5)
    assert "(orders: 2 calls for up to 12 s)" in waiting(waits, 22.0)[0]
    assert "(audit: 1 call for up to 2 s; orders: 2 calls for up to 14 s)" in waiting(waits, 23.5)[0]


def test_a_call_that_ended_is_not_counted() -> None:
    waits = ThrottledCalls()
    waits.wait("orders", 1, at=0.0)
    waits.end("orders", 1)
    waits.end("orders", 1)
    waits.end("audit", 1)
    assert waits.waiting("orders", 1.0) == (0, None)


def test_calls_that_give_up_one_after_the_other_are_one_wait() -> None:
    """Section 5: "calls that give up their wait less than 10 s apart count as one wait"."""
    waits = ThrottledCalls()
    for number in range(8):
        waits.wait("orders", number, at=10.0 + number)
        waits.end("orders", number, gave_up_at=10.5 + number)
    assert "(orders: 8 calls for up to 9 s)" in waiting(waits, 19.0)[0]
    waits.wait("orders", 8, at=20.0)
    assert waits.waiting("orders", 20.0) == (9, 10.0)
    waits.end("orders", 8)
    assert waits.waiting("orders", 27.5) == (0, None)


# -- Detection counts from the first failure of the last suspicion; diversion from the first call after the
# failover.


Call = tuple[float, float, bool]


def calls(*each: Call) -> list[SendAttempt]:
    return [SendAttempt("orders", began, ended, is_accepted=accepted) for began, ended, accepted in each]


@pytest.mark.parametrize(
    ("each", "start"),
    [
        ([(1, 2, True), (3, 4, False), (5, 6, False)], 3),
        ([(1, 2, False), (3, 4, True), (5, 6, False)], 5),
        ([(1, 2, True), (3, 9, False)], 3),
        ([(1, 2, True), (7, 12, True)], 7),
        ([(1, 2, True), (3, 4, False), (11, 12, True)], 3),
        ([(1, 2, False)], 1),
        ([(1, 2, True)], None),
        ([], None),
        ([(11, 12, True)], None),
    ],
)
def test_detection_begins_with_the_first_failure_after_the_last_accepted_send(
    each: list[Call], start: float | None
) -> None:
    assert detection_start(calls(*each), 10.0) == start


@pytest.mark.parametrize(
    ("each", "seconds"),
    [
        ([(1, 2, True), (11, 12, True)], 1),
        ([(11, 12, False), (13, 15, True), (16, 17, True)], 4),
        ([(9, 12, True)], None),
        ([(11, 12, False)], None),
        ([], None),
    ],
)
def test_a_diversion_lasts_until_the_first_accepted_send(each: list[Call], seconds: float | None) -> None:
    assert diversion_seconds(calls(*each), 10.0) == seconds
