"""The port to a namespace's management, over Atom and over ARM, against a sandbox; descriptions over Atom."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpTransport
from azure.mgmt.servicebus.aio import ServiceBusManagementClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessagingEntityDisabledError
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.backlog import queue_settings
from paired_servicebus.core.backlog.queue_settings import (
    BACKLOG_QUEUE,
    AccessRule,
    QueueFacts,
    QueueStatus,
    QueueWanted,
    TopicFacts,
)
from paired_servicebus.core.errors import BacklogQueueError, NamespaceUnreachableError
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo, ServiceTier
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pairing import ArmAdmin
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management import management_port as atom
from paired_servicebus.pairing.management.management_port import (
    TIMESPAN_MAX,
    AtomAdmin,
    Management,
    RuleManagement,
    is_refusal,
    is_there_already,
    is_transient,
    management_of,
)
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential
from servicebus_sandbox.broker.entity_settings import EntityStatus, QueueSettings, Tier

from .backlogs import SETTINGS, queue_path
from .conftest import World

PREFIX = "primary/x-servicebus-transfer/"
KINDS = ("atom", "arm")
KEY = "a2V5LW9mLWEtdGVzdC1vZi0zMi1ieXRlcy1hYmNkZWY="


def arm(world: World, role: str = "Data Owner", namespace: str = "secondary") -> ArmAdmin:
    credential = AsyncSandboxCredential(world.sandbox.control_url, role)
    client = ServiceBusManagementClient(
        credential, "a-subscription", base_url=world.sandbox.arm_url, connection_verify=str(world.sandbox.ca_file)
    )
    return ArmAdmin(client, resource_group="group", namespace=namespace)


@pytest.fixture(params=KINDS)
async def admin(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Management]:
    """The secondary namespace's management."""
    found = arm(world) if request.param == "arm" else management_of(world.admin("secondary"))
    yield found
    await found.close()


@pytest.fixture(params=KINDS)
async def refused(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Management]:
    """Its management for somebody who may send and no more."""
    if request.param == "arm":
        found: Management = arm(world, role="Data Sender")
    else:
        wrong = world.sandbox["secondary"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
        found = management_of(world.admin("secondary", wrong))
    yield found
    await found.close()


def settings(world: World, path: str) -> QueueSettings:
    return world.sandbox["secondary"].node.namespace.queue(path).settings


# -- finding and making --------------------------------------------------------------------------------------------


async def test_queues_are_made_with_exactly_the_settings_of_the_specification(world: World, admin: Management) -> None:
    """MaxSizeInMegabytes 5120, MaxDeliveryCount 2147483647, DefaultMessageTimeToLive and AutoDeleteOnIdle
    TimeSpan.MaxValue, LockDuration 1 min, EnableDeadLetteringOnMessageExpiration true, EnableBatchedOperations true;
    all else default."""
    found = await backlog_queues.ensure(admin, "primary", 2)
    assert found.paths == {0: f"{PREFIX}0", 1: f"{PREFIX}1"}
    assert found.warnings == ()
    assert settings(world, f"{PREFIX}0") == SETTINGS


async def test_a_queue_for_an_experiment_has_the_settings_that_it_needs(world: World, admin: Management) -> None:
    wanted = QueueWanted(
        lock=timedelta(seconds=5),
        sessions=True,
        duplicate_window=timedelta(minutes=1),
        dead_letters_expired=True,
        rules=(AccessRule(name="sender", rights=frozenset({"Send"}), key=KEY),),
    )
    await admin.create_queue("trial", wanted)
    found = settings(world, "trial")
    assert (found.lock_duration, found.duplicate_window) == (wanted.lock, wanted.duplicate_window)
    assert (found.requires_session, found.requires_duplicate_detection, found.dead_letter_on_expiration) == (True,) * 3
    (rule,) = found.authorization_rules
    assert (rule.name, rule.primary_key, rule.rights) == ("sender", KEY, {"Send"})
    await admin.create_queue("plain", QueueWanted())
    assert settings(world, "plain") == QueueSettings()


async def test_a_rule_is_added_and_changed_and_every_other_setting_and_key_stays(
    world: World, admin: RuleManagement
) -> None:
    sender = AccessRule(name="sender", rights=frozenset({"Send"}), key=KEY)
    await admin.create_queue("trial", QueueWanted(lock=timedelta(seconds=5), rules=(sender,)))
    before = settings(world, "trial")
    await admin.put_rule("trial", AccessRule(name="reader", rights=frozenset({"Listen"}), key=KEY.lower()))
    await admin.put_rule("trial", AccessRule(name="sender", rights=frozenset({"Send", "Listen"}), key="another"))
    rules = {one.name: one for one in await admin.rules("trial")}
    assert {name: (sorted(one.rights), one.key) for name, one in rules.items()} == {
        "sender": (["Listen", "Send"], KEY),
        "reader": (["Listen"], KEY.lower()),
    }
    after = replace(settings(world, "trial"), max_message_size_kb=before.max_message_size_kb)
    assert replace(after, authorization_rules=()) == replace(before, authorization_rules=())
    assert KEY not in repr(sender)


async def test_only_queues_under_the_prefix_are_found_over_many_pages(world: World, admin: Management) -> None:
    """List the queues under that prefix first."""
    namespace = world.sandbox["secondary"].node.namespace
    for index in range(230):  # pages hold 100
        namespace.create_queue(f"Primary/X-ServiceBus-Transfer/{index}", QueueSettings())
    namespace.create_queue("primary/other", QueueSettings())
    found = await admin.queues(PREFIX)
    assert len(found) == 230
    assert all(isinstance(one, QueueFacts) and one.path.casefold().startswith(PREFIX) for one in found)


async def test_only_those_missing_are_created_and_others_stay_as_they_are(world: World, admin: Management) -> None:
    """Create only those missing … A queue that exists with other settings is its owner's choice, used as it is, with no
    guarantee; the difference is shown. Extra queues (`…/7` when five are asked for) stay, and are not used. … "already
    exists" by a race counts as found."""
    namespace = world.sandbox["secondary"].node.namespace
    namespace.create_queue(f"{PREFIX}7", QueueSettings())
    namespace.create_queue(f"{PREFIX}1", QueueSettings(max_delivery_count=7, status=EntityStatus.SEND_DISABLED))
    found = await backlog_queues.ensure(admin, "primary", 2)
    assert found.paths == {0: f"{PREFIX}0", 1: f"{PREFIX}1"}
    assert settings(world, f"{PREFIX}1").max_delivery_count == 7
    assert settings(world, f"{PREFIX}0").max_delivery_count == 2147483647
    said = "\n".join(found.warnings)
    assert f"{PREFIX}1 has MaxDeliveryCount 7 instead of 2147483647" in said
    assert f"{PREFIX}1 has Status SendDisabled instead of Active" in said
    assert settings(world, f"{PREFIX}7") == QueueSettings()
    with pytest.raises(ResourceExistsError) as raised:
        await admin.create_queue(f"{PREFIX}1", BACKLOG_QUEUE)
    assert is_there_already(raised.value)
    assert settings(world, f"{PREFIX}1").max_delivery_count == 7


async def test_an_authorization_error_ends_pairing_at_once(refused: Management) -> None:
    """An authorization error ends pairing at once. A namespace that does not tell what it is is unknown, no error."""
    assert await backlog_queues.told(refused) == UNKNOWN_NAMESPACE
    async with asyncio.timeout(60):
        with pytest.raises(NamespaceUnreachableError, match=r"was refused .* check the key or the role; pairing needs"):
            await backlog_queues.ensure(refused, "primary", 2)


# -- one queue -----------------------------------------------------------------------------------------------------


async def test_counts_are_read_with_dead_letters_apart(world: World, admin: Management) -> None:
    await backlog_queues.ensure(admin, "primary", 1)
    assert (await admin.depth(f"{PREFIX}0")).messages == 0
    async with world.client("secondary") as client:
        async with client.get_queue_sender(f"{PREFIX}0") as sender:
            await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b"), ServiceBusMessage("c")])
        async with client.get_queue_receiver(f"{PREFIX}0") as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=5)
            await receiver.dead_letter_message(message, reason="for the count")
    depth = await admin.depth(f"{PREFIX}0")
    assert (depth.messages, depth.dead_lettered) == (2, 1)
    assert depth.size_bytes > 0
    assert depth.last_active is not None


async def test_a_queue_can_be_closed_to_senders_and_opened_again(world: World, admin: Management) -> None:
    """Set to SendDisabled, … or set back to Active."""
    await backlog_queues.ensure(admin, "primary", 1)
    before = settings(world, f"{PREFIX}0")
    await admin.set_status(f"{PREFIX}0", QueueStatus.SEND_DISABLED)
    async with world.client("secondary") as client:
        with pytest.raises(MessagingEntityDisabledError):
            await _send(client, f"{PREFIX}0")
        await admin.set_status(f"{PREFIX}0", QueueStatus.ACTIVE)
        await _send(client, f"{PREFIX}0")
    after = settings(world, f"{PREFIX}0")
    assert (after.status, after.max_delivery_count) == (EntityStatus.ACTIVE, before.max_delivery_count)
    assert (after.lock_duration, after.max_size_mb) == (before.lock_duration, before.max_size_mb)


async def _send(client: ServiceBusClient, path: str) -> None:
    async with client.get_queue_sender(path) as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def test_a_queue_can_be_deleted_once(admin: Management) -> None:
    await backlog_queues.ensure(admin, "primary", 1)
    await admin.delete_queue(f"{PREFIX}0")
    assert await admin.queues(PREFIX) == []
    with pytest.raises(ResourceNotFoundError):
        await admin.delete_queue(f"{PREFIX}0")
    with pytest.raises(ResourceNotFoundError):
        await admin.depth(f"{PREFIX}0")


async def test_a_namespace_tells_what_it_is(admin: Management) -> None:
    info = await admin.namespace()
    assert (info.name, info.tier) == ("secondary", ServiceTier.STANDARD)
    if isinstance(admin, ArmAdmin):  # Atom knows neither
        assert (info.region, info.status) == ("northeurope", "Active")


async def test_pairing_with_arm_as_the_secondary_admin(world: World) -> None:
    """`secondary_admin` is the asynchronous admin client, or the ARM adapter."""
    paired = await world.pair(secondary_admin=arm(world))
    assert paired.backlog_queue_count == 2
    assert (paired.secondary_name, paired.secondary_info.region) == ("secondary", "northeurope")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert world.depth("orders") == 1


# -- how often it is tried -----------------------------------------------------------------------------------------


def answered(status: int, text: str = "no") -> HttpResponseError:
    error = HttpResponseError(text)
    error.status_code = status
    return error


class Scripted:
    """A management that fails as it is told to, and counts how often it was asked."""

    def __init__(self, *, listing: tuple[Exception, ...] = (), creating: tuple[Exception, ...] = ()) -> None:
        self.listing, self.creating = list(listing), list(creating)
        self.listed = self.tried = 0

    async def queues(self, prefix: str) -> list[QueueFacts]:
        self.listed += 1
        if self.listing:
            raise self.listing.pop(0)
        return []

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        self.tried += 1
        if self.creating:
            raise self.creating.pop(0)

    async def namespace(self) -> NamespaceInfo:
        return UNKNOWN_NAMESPACE


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries that follow each other at once."""
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.01)


TRANSIENT = (answered(500), answered(503), answered(429), answered(408), ServiceRequestError("reset"), TimeoutError())
CONFLICT = "SubCode=40901. Another conflicting operation is in progress"


@pytest.mark.usefixtures("quick")
async def test_listing_is_retried_on_transient_errors() -> None:
    """Listing is retried for 2 min on transient errors."""
    admin = Scripted(listing=TRANSIENT)
    assert (await backlog_queues.ensure(admin, "primary", 1)).paths == {0: f"{PREFIX}0"}
    assert admin.listed == len(TRANSIENT) + 1
    assert backlog_queues.LIST_SECONDS == 120


@pytest.mark.usefixtures("quick")
async def test_listing_is_given_up_in_the_end() -> None:
    admin = Scripted(listing=(answered(500),) * 1000)
    with pytest.raises(NamespaceUnreachableError, match=r"listing the queues .* failed for 0\.05 s"):
        await backlog_queues.ensure(admin, "primary", 1, patience=0.05)


@pytest.mark.parametrize("error", [answered(400), answered(404)])
async def test_what_will_not_get_better_is_not_tried_again(error: Exception) -> None:
    admin = Scripted(listing=(error, error))
    with pytest.raises(NamespaceUnreachableError, match="failed: no"):
        await backlog_queues.ensure(admin, "primary", 1)
    assert admin.listed == 1


@pytest.mark.usefixtures("quick")
async def test_each_creation_is_tried_three_times() -> None:
    """Each creation 3 times. … Fewer than asked: pairing succeeds, the count says so, the console warns."""
    admin = Scripted(creating=(answered(500),) * 3)
    found = await backlog_queues.ensure(admin, "primary", 2)
    assert found.paths == {1: f"{PREFIX}1"}
    assert admin.tried == 3 + 1
    assert found.warnings == (f"1 of 2 backlog queues are ready (1): {PREFIX}0: no",)


FULL = "SubCode=40300. The maximum number of resources is reached"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("answer", "error", "text", "tried"),
    [
        (FULL, BacklogQueueError, r"none of the 2 backlog queues .* could be created: .*SubCode=40300", 6),
        ("(AuthorizationFailed) no role", NamespaceUnreachableError,
         f"creating {PREFIX}0 in the secondary namespace was refused", 1),
    ],
    ids=["no room", "no right"],
)  # fmt: skip
async def test_no_queue_in_the_end_is_an_error(answer: str, error: type[Exception], text: str, tried: int) -> None:
    """No queue in the end: `BacklogQueueError`. An authorization error ends pairing at once."""
    admin = Scripted(creating=(answered(403, answer),) * 6)
    with pytest.raises(error, match=text):
        await backlog_queues.ensure(admin, "primary", 2)
    assert admin.tried == tried


@pytest.mark.usefixtures("quick")
async def test_a_conflict_with_another_operation_is_tried_again_and_a_queue_that_is_there_is_found() -> None:
    """… "already exists" by a race counts as found."""
    conflict, there = ResourceExistsError(CONFLICT), ResourceExistsError("SubCode=40900. Conflict.")
    admin = Scripted(creating=(conflict, there))
    assert (await backlog_queues.ensure(admin, "primary", 1)).paths == {0: f"{PREFIX}0"}
    assert admin.tried == 2


@pytest.mark.parametrize(
    ("error", "refusal", "transient"),
    [
        (ClientAuthenticationError("no token could be had"), True, True),
        (answered(401), True, False),
        (answered(403, "(AuthorizationFailed)"), True, False),
        (answered(403, "SubCode=40300. Quota"), False, False),
        (answered(409, CONFLICT), False, True),
        (answered(409), False, True),
        (answered(502), False, True),
        (OSError("reset"), False, True),
    ],
)
def test_what_a_failed_request_means(error: AzureError, refusal: bool, transient: bool) -> None:
    assert (is_refusal(error), is_transient(error)) == (refusal, transient)


# -- what is said --------------------------------------------------------------------------------------------------


async def test_fewer_queues_than_asked_are_said_and_counted(world: World) -> None:
    """Fewer than asked: pairing succeeds, the count says so, the console warns."""

    class Missing(Scripted):
        async def create_queue(self, path: str, wanted: QueueWanted) -> None:
            if path.endswith("/0"):
                raise answered(400, "that one is not allowed")
            await made.create_queue(path, wanted)

        def __getattr__(self, name: str) -> Any:
            return getattr(made, name)

    made = management_of(world.admin("secondary"))
    world.stack.push_async_callback(made.close)
    paired = await world.pair(secondary_admin=Missing())
    assert paired.backlog_queue_count == 1
    assert any("1 of 2 backlog queues are ready" in warned.text for warned in world.told(Warned))


async def test_while_no_link_has_said_it_the_tier_tells_how_large_a_message_may_be(world: World) -> None:
    """Limits by tier: 256 KB Standard, more on Premium."""
    client, tasks = world.client("secondary"), TaskOwner()
    world.stack.push_async_callback(client.close)
    for tier, limit in ((ServiceTier.STANDARD, 256 * 1024), (ServiceTier.PREMIUM, 1024 * 1024)):
        assert SdkSenderLink(client, "q", tasks, assumed=NamespaceInfo(tier=tier).message_limit).limit() == limit


@pytest.mark.parametrize(("parks", "limit"), [(True, 1024 * 1024), (False, 2048 * 1024)])
async def test_a_link_of_the_sdk_parks_no_more_than_a_batch_holds(world: World, parks: bool, limit: int) -> None:
    """A link of the SDK parks in batches only, of 1 MB at most."""
    namespace, tasks = world.sandbox["secondary"].node.namespace, TaskOwner()
    namespace.tier = Tier.PREMIUM
    namespace.create_queue("large", QueueSettings(max_message_size_kb=2048))
    await tasks.open()
    client = world.client("secondary")
    link = SdkSenderLink(client, "large", tasks, assumed=1024 * 1024, parks=parks)
    await link.open(30.0)
    assert link.limit() == limit
    await link.close()
    await client.close()
    await tasks.close()


async def test_topics_are_made_listed_with_their_note_and_deleted(admin: Any) -> None:
    await admin.create_topic("drill/topic", metadata="a note")
    await admin.create_subscription("drill/topic", "receiver")
    await admin.create_topic("other", metadata="")
    assert await admin.topics("Drill/") == [TopicFacts(path="drill/topic", metadata="a note")]
    assert await admin.queues("drill/") == []
    assert {one.path for one in await admin.topics("")} == {"drill/topic", "other"}
    await admin.delete_topic("drill/topic")
    assert await admin.topics("drill/") == []
    with pytest.raises(ResourceNotFoundError):
        await admin.delete_topic("drill/topic")


# -- What the port over Atom sends for a backlog queue: the text on the wire.


MAX_VALUE = "P10675199DT2H48M5.4775807S"


class Recording(AioHttpTransport):
    """Sends requests, and keeps their bodies."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.bodies: list[str] = []

    async def send(self, request: Any, **options: Any) -> Any:
        if request.method == "PUT":
            self.bodies.append(bytes(request.body).decode())
        return await super().send(request, **options)

    def spans(self) -> list[str]:
        """Both spans of the latest request."""
        return [
            text
            for name in ("DefaultMessageTimeToLive", "AutoDeleteOnIdle")
            for text in re.findall(f"<(?:\\w+:)?{name}>([^<]*)<", self.bodies[-1])
        ]


async def test_time_to_live_and_auto_delete_are_timespans_maximum(world: World) -> None:
    """Section 4.2: "DefaultMessageTimeToLive and AutoDeleteOnIdle TimeSpan.MaxValue". Closing the queue and opening it
    again changes nothing."""
    transport = Recording(connection_verify=str(world.sandbox.ca_file))
    admin = AtomAdmin(
        ServiceBusAdministrationClient.from_connection_string(
            world.sandbox["secondary"].connection_string, transport=transport
        )
    )
    await admin.create_queue(queue_path(), BACKLOG_QUEUE)
    assert transport.spans() == [MAX_VALUE, MAX_VALUE]
    await admin.set_status(queue_path(), QueueStatus.SEND_DISABLED)
    assert len(transport.bodies) == 2
    assert transport.spans() == [MAX_VALUE, MAX_VALUE]
    await admin.close()


# -- Signatures of a management client that an application made from a key, over hours.


KEY = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=czNjcmV0"


class Nowhere(AioHttpTransport):  # type: ignore[misc]
    """Notes until when each request is signed, and sends none."""

    def __init__(self) -> None:
        super().__init__()
        self.signed_until: list[int] = []

    async def send(self, request: Any, **options: Any) -> Any:
        found = re.search(r"se=(\d+)", request.headers["Authorization"])
        assert found is not None
        self.signed_until.append(int(found.group(1)))
        raise ServiceRequestError("nowhere")


async def test_no_request_is_signed_by_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: once an hour everything was refused for a minute, which was an alarm."""
    nowhere, now = Nowhere(), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    admin = AtomAdmin(ServiceBusAdministrationClient.from_connection_string(KEY, transport=nowhere, retry_total=0))
    left = []
    for _ in range(3 * 60):
        with pytest.raises(ServiceRequestError):
            await admin.depth("orders")
        left.append(nowhere.signed_until[-1] - now)
        now += 60
    await admin.close()
    assert min(left) > 60
    assert len(set(nowhere.signed_until)) == 4, "and it is signed once an hour or so"


# -- Descriptions over Atom: what the service was recorded to answer is read, and what is written has its order ------

ATOM = "http://www.w3.org/2005/Atom"
CONNECT = atom.CONNECT[1:-1]
USUAL = {
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "5120",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": TIMESPAN_MAX,
    "DeadLetteringOnMessageExpiration": "true",
    "MaxDeliveryCount": "2147483647",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "MessageCount": "3",
    "IsAnonymousAccessible": "false",
    "Status": "Active",
    "CreatedAt": "2026-11-26T10:00:00.6Z",
    "UpdatedAt": "2026-11-26T10:00:00.6333333Z",
    "AccessedAt": "0001-01-01T00:00:00Z",
    "SupportOrdering": "true",
    "CountDetails": "<d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount>",
    "AutoDeleteOnIdle": TIMESPAN_MAX,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


def described(settings: dict[str, str], *, behind: str = "", kind: str = "QueueDescription") -> str:
    inside = "".join(f"<{name}>{settings[name]}</{name}>" for name in atom.QUEUE_ORDER if name in settings)
    return f'<{kind} xmlns="{CONNECT}" xmlns:d2p1="{COUNTS}">{inside}{behind}</{kind}>'


def entry(name: str, description: str) -> str:
    return (
        f'<entry xmlns="{ATOM}"><title type="text">{name}</title>'
        f'<content type="application/xml">{description}</content></entry>'
    )


def feed(*entries: str) -> str:
    return f'<feed xmlns="{ATOM}"><title type="text">Queues</title>{"".join(entries)}</feed>'


def one(description: str, name: str = f"{PREFIX}0") -> atom.Description:
    return atom.read_entry(ElementTree.fromstring(entry(name, description)))


class Credential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken("token", 1 << 40)

    async def close(self) -> None:
        pass


class Answers(AsyncHttpTransport):  # type: ignore[type-arg] # the SDK's own classes leave its parameters open
    """The namespace's answers by the request's path, and what was put."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.put: list[ElementTree.Element] = []
        self.headers: list[dict[str, str]] = []

    async def send(self, request: Any, **options: Any) -> Any:
        if request.method == "PUT":
            self.put.append(ElementTree.fromstring(request.body))
            self.headers.append(dict(request.headers))
        lists = "$Resources/queues" in request.url or "%24Resources/queues" in request.url
        return Answer(request, self.answers["listed" if lists else "found"])

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *ended: object) -> None:
        pass


class Answer:
    """One answer, as a transport returns it."""

    def __init__(self, request: Any, text: str) -> None:
        self.request, self._text = request, text
        self.status_code, self.reason, self.content_type = 200, "OK", "application/atom+xml"
        self.headers = {"Content-Type": "application/atom+xml;charset=utf-8"}
        self.block_size = 4096

    def text(self, encoding: str | None = None) -> str:
        return self._text

    def body(self) -> bytes:
        return self._text.encode()

    async def load_body(self) -> None:
        pass

    async def read(self) -> bytes:
        return self.body()


@pytest.fixture
async def served() -> AsyncIterator[Any]:
    """A maker of the port over given answers."""
    made: list[AtomAdmin] = []

    def serve(answers: Answers) -> AtomAdmin:
        client = ServiceBusAdministrationClient("contoso.servicebus.windows.net", Credential(), transport=answers)  # type: ignore[arg-type]
        made.append(AtomAdmin(client))
        return made[-1]

    yield serve
    for admin in made:
        await admin.close()


DOUBLED = "<IsAnonymousAccessible>false</IsAnonymousAccessible><SupportOrdering>true</SupportOrdering>"


async def test_a_queue_with_doubled_elements_hides_no_other(served: Any) -> None:
    """An entity that the SDK cannot read (doubled elements of a PUT in another order) is one line about one name; the
    others count."""
    listed = feed(
        entry(f"{PREFIX}0", described(USUAL, behind=DOUBLED)),
        entry("strange", "<Foreign/>"),
        f'<entry xmlns="{ATOM}"><title type="text">empty</title></entry>',
        entry(f"{PREFIX}1", described({**USUAL, "LockDuration": "soon", "MaxDeliveryCount": "many"})),
    )
    admin = served(Answers(listed=listed))
    found = {queue.path: queue for queue in await admin.queues("")}
    assert list(found) == [f"{PREFIX}0", "strange", "empty", f"{PREFIX}1"]
    assert queue_settings.differences(found[f"{PREFIX}0"]) == []
    assert (found["strange"].status, found["strange"].lock, found["empty"].duplicates) == ("", None, None)
    assert queue_settings.differences(found[f"{PREFIX}1"]) == [
        "MaxDeliveryCount unknown instead of 2147483647",
        "LockDuration unknown instead of 0:01:00",
    ]
    assert {path: depth.messages for path, depth in (await admin.depths("", pages=1)).items()} == {
        f"{PREFIX}0": 2,
        f"{PREFIX}1": 2,
    }
    assert (await backlog_queues.ensure(admin, "primary", 2)).paths == {0: f"{PREFIX}0", 1: f"{PREFIX}1"}


async def test_counts_that_cannot_be_read_are_that_queues_failure(served: Any) -> None:
    admin = served(Answers(found=entry("q", described({**USUAL, "MessageCount": "none"}))))
    with pytest.raises(DecodeError, match="the description of q has no readable counts"):
        await admin.depth("q")
    with pytest.raises(ResourceNotFoundError, match="there is no queue q"):
        await served(Answers(found=feed())).depth("q")


def elements(put: ElementTree.Element) -> dict[str, str]:
    description = put[0][0]
    return {child.tag.rpartition("}")[2]: child.text or "" for child in description}


async def test_a_changed_status_keeps_forwarding_and_the_order_of_the_service(served: Any) -> None:
    """What is written over Atom is in the service's order of elements; a setting that would be lost by that is never
    written."""
    settings = {
        **USUAL,
        "ForwardTo": "https://contoso.servicebus.windows.net/other",
        "UserMetadata": "of Ada",
        "ForwardDeadLetteredMessagesTo": "https://contoso.servicebus.windows.net/dead",
    }
    answers = Answers(found=entry("q", described(settings, behind=DOUBLED)))
    await served(answers).set_status("q", QueueStatus.SEND_DISABLED)
    (put,) = answers.put
    written = elements(put)
    assert list(written) == [name for name in atom.QUEUE_ORDER if name in written]
    assert written == {
        **{name: text for name, text in settings.items() if name not in atom.NOT_SETTINGS},
        "Status": "SendDisabled",
    }
    assert answers.headers[0]["If-Match"] == "*"
    assert {"ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"} <= set(
        answers.headers[0]
    )


async def test_an_element_behind_its_place_has_no_effect_and_is_not_written(served: Any) -> None:
    """An element behind its place has no effect, and comes back at the end in every later answer: written in its place,
    it would take effect."""
    behind = "<ForwardTo>https://contoso.servicebus.windows.net/other</ForwardTo><LockDuration>PT5S</LockDuration>"
    answers = Answers(found=entry("q", described(USUAL, behind=behind)))
    await served(answers).set_status("q", QueueStatus.ACTIVE)
    written = elements(answers.put[0])
    assert (written["LockDuration"], "ForwardTo" in written) == ("PT1M", False)


async def test_the_body_has_no_prefix_in_the_description(served: Any) -> None:
    """For the service the description's elements have to be in the default namespace."""
    answers = Answers(found=entry("q", described(USUAL)))
    sent: list[bytes] = []
    put = answers.send

    async def keep(request: Any, **options: Any) -> Any:
        if request.method == "PUT":
            sent.append(request.body)
        return await put(request, **options)

    answers.send = keep  # type: ignore[method-assign]
    await served(answers).create_queue("q", BACKLOG_QUEUE)
    assert b"<QueueDescription><LockDuration>PT1M</LockDuration>" in sent[0]
    assert elements(answers.put[0])["DefaultMessageTimeToLive"] == "P10675199DT2H48M5.4775807S"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (entry("q", described(USUAL)), "q"),
        (entry("q", described({**USUAL, "DeadLetteringOnMessageExpiration": "false"})), ""),
        (entry("q", described({**USUAL, "DeadLetteringOnMessageExpiration": "perhaps"})), None),
        (feed(), None),
    ],
)
async def test_a_missing_or_unreadable_entity_is_unknown(served: Any, answer: str, kept: str | None) -> None:
    """What nobody here can know is "unknown"."""
    assert await served(Answers(found=answer)).keeps_expired("q") == kept


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("PT11M2S", timedelta(minutes=11, seconds=2)),
        ("P2D", timedelta(days=2)),
        ("P428DT3H11M2S", timedelta(days=428, hours=3, minutes=11, seconds=2)),
        ("P1Y2M3DT3H11M2S", timedelta(days=366 + 60 + 3, hours=3, minutes=11, seconds=2)),
        ("", None),
        ("tomorrow", None),
        ("P" + "9" * 40 + "D", None),
    ],
)
def test_durations(text: str, span: timedelta | None) -> None:
    found = one(described({"LockDuration": text})).span("LockDuration")
    assert found == span or (span is not None and found is not None and abs(found - span) < timedelta(days=2))


def test_the_longest_duration_is_not_finite() -> None:
    found = one(described(USUAL)).span("DefaultMessageTimeToLive")
    assert found is not None
    assert found >= queue_settings.LONGEST


def test_times() -> None:
    found = one(described(USUAL))
    assert found.time("AccessedAt") is None
    assert found.time("CreatedAt") == pytest.approx(1795687200.6)
    assert one(described({"AccessedAt": "0001-01-01T00:00:00"})).time("AccessedAt") is None


@given(st.lists(st.sampled_from(atom.QUEUE_ORDER), max_size=40))
def test_any_order_of_elements_is_read_and_written_in_the_services(names: list[str]) -> None:
    """Entity lists with doubled, missing and misordered elements: no error, and the first in its place is in force."""
    inside = "".join(f"<{name}>{place}</{name}>" for place, name in enumerate(names))
    found = one(f'<QueueDescription xmlns="{CONNECT}">{inside}</QueueDescription>')
    atom.queue_facts(found)
    atom.queue_depth(found)
    force = atom.settings_in_force(found)
    places = [atom.QUEUE_ORDER.index(name) for name in force]
    assert places == sorted(places)
    assert all(force[name].text == str(names.index(name)) for name in force)
    body = atom.queue_body(force)
    assert [child.tag for child in body[0][0]] == [f"{atom.CONNECT}{name}" for name in force]


STRANGE = st.sampled_from(["LockDuration", "Status", "CountDetails", "MessageCount", "FutureSetting", "x", "Δ"])
XML = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))


@given(st.lists(st.tuples(STRANGE, st.sampled_from(["", CONNECT, ATOM, COUNTS, "urn:x"]), XML), max_size=30))
def test_unknown_elements_namespaces_and_texts_are_no_error(children: list[tuple[str, str, str]]) -> None:
    """Entity lists with unknown elements: what cannot be read is unknown, and the entity is listed."""
    description = ElementTree.Element(f"{atom.CONNECT}QueueDescription")
    for name, namespace, text in children:
        ElementTree.SubElement(description, f"{{{namespace}}}{name}" if namespace else name).text = text
    listed = ElementTree.fromstring(feed(entry("q", ElementTree.tostring(description, "unicode")), entry("r", "")))
    found, other = atom.read_feed(listed)
    facts = atom.queue_facts(found)
    assert (facts.path, other.name) == ("q", "r")
    assert queue_settings.differences(facts)
    atom.queue_depth(found)
    force = atom.settings_in_force(found)
    written = [child.tag for child in atom.queue_body({**force, "Status": "Active"})[0][0]]
    assert [tag for tag in written if tag != f"{atom.CONNECT}Status"] == [
        force[name].tag for name in force if name != "Status"
    ]


async def test_an_update_keeps_a_setting_that_is_not_known_here(served: Any) -> None:
    """A setting that would be lost by that is never written; one of a later version is written back in its place."""
    text = described(USUAL).replace("<Status>", "<FutureSetting>PT7S</FutureSetting><Status>")
    text = text.replace("</QueueDescription>", "<LatestSetting>7</LatestSetting></QueueDescription>")
    answers = Answers(found=entry("q", text))
    await served(answers).set_status("q", QueueStatus.SEND_DISABLED)
    written = list(elements(answers.put[0]).items())
    place = written.index(("FutureSetting", "PT7S"))
    assert written[place + 1] == ("Status", "SendDisabled")
    assert written[-1] == ("LatestSetting", "7")


class Pages(Answers):
    """A list of many pages."""

    def __init__(self, entries: list[str]) -> None:
        super().__init__()
        self.entries = entries
        self.asked = 0

    async def send(self, request: Any, **options: Any) -> Any:
        skip, top = (int(parse_qs(urlsplit(request.url).query)[name][0]) for name in ("$skip", "$top"))
        self.asked += 1
        more = '<link rel="next" href="x"/>' if skip + top < len(self.entries) else ""
        return Answer(request, feed(*self.entries[skip : skip + top], more))


@pytest.mark.slow
async def test_ten_thousand_entities_of_which_many_are_strange_are_each_listed_once(served: Any) -> None:
    """Entity lists with doubled, missing, unknown and misordered elements, 10,000 entities."""
    kinds = (
        described(USUAL),
        described(USUAL, behind=DOUBLED),
        described({name: text for name, text in USUAL.items() if name != "MessageCount"}),
        described(USUAL, behind="<FutureSetting>1</FutureSetting>"),
        described({}, behind="<Status>Active</Status><LockDuration>PT1M</LockDuration>"),
        "<Foreign/>",
    )
    names = [f"{PREFIX}{number}" if number < 10 else f"app/{number}" for number in range(10_000)]
    pages = Pages([entry(name, kinds[number % len(kinds)]) for number, name in enumerate(names)])
    admin = served(pages)
    assert [queue.path for queue in await admin.queues("")] == names
    assert pages.asked == 100
    found = await backlog_queues.ensure(admin, "primary", 10)
    assert found.paths == {number: f"{PREFIX}{number}" for number in range(10)}
    depths = await admin.depths("", pages=1000)
    assert set(depths) == {name for number, name in enumerate(names) if number % len(kinds) in (0, 1, 3)}
