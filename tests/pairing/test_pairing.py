"""Pairing itself (SPEC.md sections 3 and 4): what it needs, finds, makes and warns of, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.backlog.queue_settings import QueueFacts
from paired_servicebus.core.errors import (
    BacklogQueueError,
    BacklogUnavailableError,
    ConfigurationError,
    NamespaceUnreachableError,
    SameNamespaceError,
)
from paired_servicebus.core.failover.send_router import Rotation
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.snapshot import TroubleKind
from paired_servicebus.engine.clients.start_checks import look_up_name, read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing import (
    PairedNamespaceOptions,
    SendAvailabilityPairedNamespaceOptions,
    opening,
    pair_namespaces,
    tls_context,
)
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management, management_of
from paired_servicebus.pairing.opening import alias_remark, name_of
from paired_servicebus.secret import Secret
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, QueueSettings, Right

from .backlogs import SETTINGS, parked, put, queue_path
from .conftest import World, until
from .test_opening import wrong_key


async def test_a_namespace_paired_with_itself_is_an_error(world: World) -> None:
    """The two are different namespaces (else an error)."""
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=world.admin("primary"), secondary_client=world.client("primary")
    )
    with pytest.raises(SameNamespaceError, match="paired with itself"):
        await pair_namespaces(world.client("primary"), options)
    await options.secondary_admin.close()


async def test_an_option_out_of_range_is_named_before_anything_is_contacted(world: World) -> None:
    """Out of range: ValueError naming the option, the value and the range, before anything is contacted."""
    admin = world.admin("secondary")
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=world.client("secondary"), ping_timeout=timedelta(minutes=3)
    )
    async with admin:
        with pytest.raises(ValueError, match=r"ping_timeout is 180\.0; it must be 1 to 120 seconds") as refused:
            await pair_namespaces(world.client("primary"), options)
    assert isinstance(refused.value, ConfigurationError)
    assert list(world.sandbox["secondary"].node.namespace.queues()) == []


@pytest.mark.parametrize("name", [field.name for field in fields(SendAvailabilityPairedNamespaceOptions)])
def test_the_help_tells_of_every_option(name: str) -> None:
    """What an editor shows of the class is where a developer looks first."""
    told = SendAvailabilityPairedNamespaceOptions.__doc__ or ""
    assert re.search(rf"^ +([\w, ]+, )?{name}(, [\w, ]+)?: ", told, re.MULTILINE)


# -- An application with more backlog queues than the syphon beside it: what nothing moves is said (SPEC.md section
# 4).


async def test_an_unused_queue_in_which_an_application_parks_is_an_alarm(world: World) -> None:
    """Section 12: "Stranded, refused, dead-lettered messages … are in all of them"."""
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(3))
    narrow = await world.pair(backlog_queue_count=2, enable_syphon=True)
    await until(lambda: narrow.unused_view().read_at is not None)
    assert narrow.alarms() == ()
    put(world, [parked("orders", "m1")], path=queue_path(3))
    for _ in range(2):
        await narrow._unused.look()
    (alarm,) = narrow.alarms()
    assert alarm.startswith("backlog queue 3 is unused by this engine and grows: ")
    assert "set backlog_queue_count to 4 or more" in alarm
    narrow.know_usage(QueueUsage(used=frozenset({0, 1, 2, 3}), moved=frozenset({0, 1, 2, 3})))
    assert narrow.alarms() == ()  # another syphon has it


async def test_parked_messages_in_queues_that_the_known_syphon_lacks_are_a_warning(world: World) -> None:
    """Section 4.6: "Parked messages and no syphon known to run"; one with fewer queues does not have them all."""
    paired = await world.pair(backlog_queue_count=4)
    put(world, [parked("orders", "m1")], path=queue_path(3))
    await until(lambda: paired.queue_views()[3].depth == 1)
    assert paired.troubles()[0].reason.startswith("1 message is parked")
    paired.know_syphons(("engine",))
    assert paired.troubles() == ()
    paired.know_usage(QueueUsage(used=frozenset({0, 1}), moved=frozenset({0, 1})))
    (notice,) = paired.troubles()
    assert notice.what == "backlog queues 2, 3"
    assert notice.reason.startswith("1 message is parked there; ")
    paired.know_usage(QueueUsage(used=frozenset(range(4)), moved=frozenset(range(4))))
    assert paired.troubles() == ()
    assert paired.alarms() == ()


# -- One name of the primary for engine and application (SPEC.md section 4.1), whatever its host is called.


RULE = {
    "as configured": (("alias.servicebus.windows.net", "mine", "contoso"), "mine"),
    "else as the namespace tells it": (("alias.servicebus.windows.net", None, "contoso"), "contoso"),
    "else the first label of its host": (("alias.servicebus.windows.net", None, ""), "alias"),
    "an address stays whole": (("127.0.0.1:5671", None, ""), "127.0.0.1"),
}


@pytest.mark.parametrize("case", RULE)
def test_the_name_follows_the_rule(case: str) -> None:
    """ "`{primary}` is the namespace's name: as configured, else as the namespace tells it, else the first label of its
    host"."""
    (host, configured, reported), name = RULE[case]
    assert name_of(host, configured=configured, reported=reported) == name


def trusting(world: World, text: str = "") -> ServiceBusClient:
    """A client of the primary, whose host 127.0.0.1 is an alias of it, that trusts the certificate of management."""
    trust = tls_context(world.sandbox.ca_file)
    text = text or world.sandbox["primary"].connection_string
    return ServiceBusClient.from_connection_string(text, retry_total=0, ssl_context=trust)


async def test_an_engine_and_an_application_agree_behind_an_alias(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine's syphon moves what the application parks, though the first label of the host names neither."""
    one = world.sandbox["primary"]
    engines = NamespaceConfig(
        host=f"127.0.0.1:{one.amqp_port}",
        connection_string=Secret(one.connection_string),
        ca_file=world.sandbox.ca_file,
    )
    places = EnginePaths(state=tmp_path, socket=tmp_path / "s")
    with caplog.at_level(logging.INFO, logger="paired_servicebus"):
        application = await world.pair(primary_client=trusting(world), primary_name=None, failover_interval=0)
    engine = await world.pair(primary_name=await look_up_name(engines, places), enable_syphon=True)
    assert first_label(engines.host) == "127.0.0.1"
    assert {
        application.primary_name,
        engine.primary_name,
        (await read_primary_info(engines, places)).name,
    } == {"primary"}
    assert [view.path for view in application.queue_views()] == [view.path for view in engine.queue_views()]
    assert alias_remark(engines.host, "primary") in caplog.messages
    end = world.fault("disabled", entity="orders")
    async with application.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    end()
    await until(lambda: world.depth("orders") == 1)


async def test_a_namespace_that_does_not_tell_leaves_its_host(world: World) -> None:
    """A key may not be allowed to ask at all."""
    wrong = world.sandbox["primary"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    async with trusting(world, wrong) as client:
        assert await opening.reported_name(client) == ""
    async with trusting(world) as client:
        assert await opening.reported_name(client) == "primary"
        world.fault("refused")
        assert await opening.reported_name(client) == ""


@pytest.mark.parametrize(
    "answer",
    [
        "<entry/>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><entry>&b;</entry>",
        "<entry",
        "<Name xmlns='http://schemas.microsoft.com/netservices/2010/10/servicebus/connect'>a/b\x07</Name>",
    ],
)
def test_an_answer_that_is_no_name_is_none(answer: str) -> None:
    try:
        found = opening._read_name(b"<x>" + answer.encode() + b"</x>")
    except opening.ElementTree.ParseError:
        found = ""
    assert found == ""


async def test_backlog_queues_under_the_other_name_are_warned_of(world: World) -> None:
    """A program that may not ask parks under the label of the host, where no syphon of the right name looks."""
    async with world.admin("secondary") as admin:
        await admin.create_queue("127.0.0.1/x-servicebus-transfer/0")
    await world.pair()
    (warned,) = [event.text for event in world.told(Warned)]
    assert "the secondary also has 1 backlog queues under 127.0.0.1/x-servicebus-transfer/" in warned
    assert 'set its primary_name="primary"' in warned


# -- What a pairing needs, tells and refuses before anything is sent (SPEC.md sections 3 and 4) ----------------------

SHORT = {"send_timeout": 1.0, "failover_interval": 0.0}


def key_with(world: World, namespace: str, *rights: Right) -> str:
    """A connection string whose key has these rights alone."""
    one = world.sandbox[namespace]
    rule = AuthorizationRule(name="+".join(rights), rights=frozenset(rights), primary_key="k1", secondary_key="k2")
    one.node.authorization.rules = (*one.node.authorization.rules, rule)
    return one.connection_string_for(rule.name, rule.primary_key)


def client_with(world: World, namespace: str, *rights: Right) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(key_with(world, namespace, *rights), retry_total=0)


# -- claims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "enable_syphon"), [((Right.SEND,), False), ((Right.SEND, Right.LISTEN), True)], ids=["plain", "syphon"]
)
async def test_a_secondary_client_needs_listen_for_the_syphon_alone(
    world: World, rights: tuple[Right, ...], enable_syphon: bool
) -> None:
    """Claims: Manage to pair, Send always, Listen only with the syphon."""
    client = client_with(world, "secondary", *rights)
    paired = await world.pair(secondary_client=client, enable_syphon=enable_syphon, **SHORT)
    end = world.fault("disabled", entity="orders")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    end()
    await until(lambda: (world.parked(), world.depth("orders")) == ((0, 1) if enable_syphon else (1, 0)))
    assert world.told(Warned) == []


async def test_without_send_on_the_secondary_there_is_no_pairing(world: World) -> None:
    """Send always."""
    client = client_with(world, "secondary", Right.LISTEN)
    async with client:
        with pytest.raises(NamespaceUnreachableError, match="the credential needs Send on the secondary"):
            await world.pair(secondary_client=client)


async def test_without_manage_there_is_no_pairing(world: World) -> None:
    """Manage to pair."""
    admin = world.admin("secondary", key_with(world, "secondary", Right.SEND, Right.LISTEN))
    world.stack.push_async_callback(admin.close)
    with pytest.raises(NamespaceUnreachableError, match="pairing needs Manage on the secondary"):
        await world.pair(secondary_admin=admin)


# -- what is told --------------------------------------------------------------------------------------------------


def test_send_availability_is_the_only_kind_of_pairing() -> None:
    """`PairedNamespaceOptions` is the base of pairing kinds; send availability is the only kind."""
    assert PairedNamespaceOptions.__subclasses__() == [SendAvailabilityPairedNamespaceOptions]


async def test_without_a_name_the_first_label_of_the_host_is_taken(world: World) -> None:
    """… else the first label of its host."""
    client = ServiceBusClient("contoso.servicebus.windows.net", credential=_Nobody(), retry_total=0)
    paired = await world.pair(primary_client=client, primary_name=None)
    assert [queue.path for queue in paired.queue_views()] == [f"contoso/x-servicebus-transfer/{i}" for i in range(2)]


class _Nobody:
    async def get_token(self, *scopes: str, **_: object) -> None:
        raise ServiceBusError("no token is wanted here")

    async def close(self) -> None:
        pass


async def test_a_client_that_is_handed_in_keeps_its_own_retry_policy(world: World) -> None:
    """A client that is handed in keeps its own retry policy inside `send_timeout`."""
    client = ServiceBusClient.from_connection_string(world.sandbox["primary"].connection_string, retry_total=7)
    paired = await world.pair(primary_client=client)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert client._config.retry_total == 7
    assert world.depth("orders") == 1


# -- before pairing has completed ----------------------------------------------------------------------------------


class Hindered:
    """A management whose listing waits until a test lets it go on."""

    def __init__(self, real: Management) -> None:
        self._real = real
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def queues(self, prefix: str) -> list[QueueFacts]:
        self.asked.set()
        await self.go.wait()
        return await self._real.queues(prefix)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


async def test_nothing_may_be_sent_before_pairing_completed(world: World) -> None:
    """Nothing may be sent before pairing completed: there is no paired client to send with, and nothing was opened."""
    slow = Hindered(management_of(world.admin("secondary")))
    pairing = asyncio.create_task(world.pair(secondary_admin=slow))
    await slow.asked.wait()
    await asyncio.sleep(0.1)
    assert not pairing.done()
    assert not any(one.node.connections for one in world.sandbox.namespaces)
    slow.go.set()
    paired = await pairing
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert world.depth("orders") == 1


async def test_two_pairings_at_once_make_the_queues_once(world: World) -> None:
    """… "already exists" by a race counts as found."""
    pairings = await asyncio.gather(*(world.pair(backlog_queue_count=3) for _ in range(3)))
    assert [paired.backlog_queue_count for paired in pairings] == [3, 3, 3]
    assert len(list(world.sandbox["secondary"].node.namespace.queues())) == 3


# -- who moves what was parked -------------------------------------------------------------------------------------


async def test_parked_messages_without_a_known_syphon_are_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… "At least one executable program should be actively running the syphon." Parked messages and no syphon known
    to run: "syphon unknown", a notice."""
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.backlog_inspection.MIN_READ_SECONDS", 0.1)
    paired = await world.pair(**SHORT)
    assert paired.troubles() == ()
    async with world.to_backlog() as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    await until(lambda: paired.queue_views() and paired.troubles() != ())
    (notice,) = paired.troubles()
    assert (notice.kind, notice.reason) == (
        TroubleKind.SYPHON_UNKNOWN,
        "1 message is parked, and no syphon is known here; one of another host or user may run",
    )
    assert f"syphon unknown: {notice.reason}" in paired.syphon_view().text
    assert not [text for text in paired.alarms() if "syphon" in text]


# -- A pairing that starts although its secondary does not answer, where its owner wants that ------------------------


@pytest.fixture
def brief_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "START_SECONDS", 0.2)
    monkeypatch.setattr(backlog_queues, "COMPLETION_SECONDS", 0.1)
    monkeypatch.setattr(backlog_queues, "TRY_SECONDS", 0.2)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.05)


def alarms(paired: object) -> list[str]:
    return [text for text in paired.alarms() if text.startswith("the pairing started degraded: ")]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("brief_tries")
async def test_sends_go_to_the_primary_and_the_pairing_is_completed_when_the_secondary_answers(world: World) -> None:
    """`start_degraded`: pair though the secondary does not answer, and keep trying in the background."""
    heal = world.fault("refused", namespace="secondary")
    paired = await world.pair(start_degraded=True, ping_primary_interval=30.0, send_timeout=60.0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        assert world.depth("orders") == 1
        (alarm,) = alarms(paired)
        assert "sends that need the backlog are refused until a try to complete it succeeds" in alarm
        assert (paired.backlog_queue_count, paired.backlog_queue_indices) == (0, ())
        assert not any(queue.in_rotation for queue in paired.queue_views())
        paired.force("orders", by="ada")
        began = time.monotonic()
        with pytest.raises(BacklogUnavailableError, match=r"no backlog queue .* You still own it"):
            await sender.send_messages(ServiceBusMessage("y"))
        assert time.monotonic() - began < 30.0  # at once, rather than when the time of the send is over
        heal()
        await until(lambda: not alarms(paired) and any(queue.in_rotation for queue in paired.queue_views()))
        await sender.send_messages(ServiceBusMessage("y"))
    assert sum(world.depth(queue_path(index), namespace="secondary") for index in range(2)) == 1
    assert (paired.backlog_queue_count, paired.secondary_name) == (2, "secondary")
    assert "the secondary answers: the pairing is complete" in [event.text for event in world.told(Warned)]


@pytest.mark.usefixtures("brief_tries")
async def test_a_mistake_is_raised_all_the_same(world: World) -> None:
    """Section 4.5: "bad credentials, failed creation etc. are raised by the awaited pairing call itself"."""
    admin = world.admin("secondary", wrong_key(world))
    async with admin:
        with pytest.raises(NamespaceUnreachableError, match="check the key or the role"):
            await world.pair(start_degraded=True, secondary_admin=admin)


@pytest.mark.usefixtures("brief_tries")
async def test_without_the_option_an_outage_of_the_secondary_ends_pairing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fault("refused", namespace="secondary")
    ensure = backlog_queues.ensure
    monkeypatch.setattr(backlog_queues, "ensure", lambda *given, **named: ensure(*given, **named | {"patience": 0.1}))
    with pytest.raises(NamespaceUnreachableError, match="start_degraded") as refused:
        await world.pair()
    assert refused.value.is_outage


# -- Backlog queues whose settings can lose an accepted message (SPEC.md section 4.2) --------------------------------

UNSAFE: dict[str, tuple[dict[str, Any], str]] = {
    "duplicate detection": ({"requires_duplicate_detection": True}, "RequiresDuplicateDetection"),
    "time to live": (
        {"default_ttl": timedelta(hours=1), "dead_letter_on_expiration": False},
        "DefaultMessageTimeToLive 1:00:00",
    ),
    "idle": ({"auto_delete_on_idle": timedelta(minutes=5)}, "AutoDeleteOnIdle 0:05:00"),
    "forwarding": ({"forward_to": "elsewhere"}, "ForwardTo"),
    "dead letters forwarded": ({"forward_dead_lettered_to": "elsewhere"}, "ForwardDeadLetteredMessagesTo"),
    "sessions": ({"requires_session": True}, "RequiresSession"),
}
TOGETHER = {name: value for changes, _ in list(UNSAFE.values())[:3] for name, value in changes.items()}


def make(world: World, *indices: int, **changes: Any) -> None:
    namespace = world.sandbox["secondary"].node.namespace
    if "elsewhere" in changes.values() and "elsewhere" not in {queue.path for queue in namespace.queues()}:
        namespace.create_queue("elsewhere", QueueSettings())
    for index in indices:
        namespace.create_queue(queue_path(index), replace(SETTINGS, **changes))


@pytest.mark.parametrize(("changes", "setting"), [*UNSAFE.values(), (TOGETHER, "RequiresDuplicateDetection")])
async def test_a_queue_that_can_lose_messages_gets_none(world: World, changes: dict[str, Any], setting: str) -> None:
    """… except one that can lose an accepted message … It stays out of the rotation, with an alarm that names setting,
    queue and remedy."""
    make(world, 1, **changes)
    paired = await world.pair(backlog_queue_count=3, enable_syphon=True)
    (view,) = [view for view in paired.queue_views() if not view.in_rotation]
    assert (view.index, setting in view.pulled_reason) == (1, True)
    (alarm,) = [alarm for alarm in paired.alarms() if "gets no messages" in alarm]
    assert alarm.startswith("backlog queue 1 ")
    assert setting in alarm
    assert any(word in alarm for word in ("delete the empty queue", "set it to the maximum", "remove it"))
    checked = {finding.what: finding for finding in (await paired.check()).findings}
    assert f"{queue_path(1)} gets no messages: {setting}" in checked["send to the backlog"].evidence
    paired.watch("orders")
    paired.watch("payments")
    for path in ("orders", "payments"):
        paired.force(path, by="ada")
    for number in range(6):
        for path in ("orders", "payments"):  # one id for two entities
            async with paired.get_queue_sender(path) as sender:
                await sender.send_messages(ServiceBusMessage("event", message_id=f"event-{number}", session_id="s"))
    namespace = world.sandbox["secondary"].node.namespace
    assert len(namespace.queue(queue_path(1)).messages.peek(0, 100)) == 0
    for path in ("orders", "payments"):
        paired.pin(path, by="ada")
    await until(lambda: (world.depth("orders"), world.depth("payments")) == (6, 6), 60)


async def test_there_is_no_pairing_without_a_safe_queue(world: World) -> None:
    """… and pairing raises `BacklogQueueError` if there is none from the start."""
    for index, (changes, _) in enumerate(UNSAFE.values()):
        make(world, index, **changes)
    told = "each of the 6 backlog queues .* can lose messages .*RequiresDuplicateDetection"
    with pytest.raises(BacklogQueueError, match=told):
        await world.pair(backlog_queue_count=len(UNSAFE))


async def test_check_is_not_ready_when_none_is_left_and_recovers(world: World) -> None:
    """`check` is not ready when none is left."""
    paired = await world.pair(backlog_queue_count=1)
    namespace = world.sandbox["secondary"].node.namespace
    namespace.update(namespace.queue(queue_path(0)), replace(SETTINGS, auto_delete_on_idle=timedelta(minutes=5)))
    paired._inspection._settings_at = 0.0
    found = await paired.check()
    assert not found.ready
    assert "AutoDeleteOnIdle" in next(one for one in found.findings if one.what == "send to the backlog").evidence
    namespace.update(namespace.queue(queue_path(0)), SETTINGS)
    paired._inspection._settings_at = 0.0
    await until(lambda: paired.queue_views()[0].in_rotation is False)
    await paired.check()
    await until(lambda: paired.queue_views()[0].in_rotation, 60)
    assert (await paired.check()).ready


async def test_expiry_with_dead_lettering_is_a_difference_and_no_hazard(world: World) -> None:
    """A finite time to live with dead-lettering on expiry is a difference, and its messages are counted and re-driven
    like any dead letter."""
    make(world, 0, default_ttl=timedelta(hours=1))
    paired = await world.pair(backlog_queue_count=1)
    (view,) = paired.queue_views()
    assert (view.in_rotation, view.differences) == (
        True,
        ("DefaultMessageTimeToLive 1:00:00 instead of no limit",),
    )


def test_no_probe_returns_a_withheld_queue() -> None:
    rotation = Rotation((0, 1), probe_interval=10.0)
    assert rotation.withhold(0, at=1.0, reason="it forwards")
    assert not rotation.withhold(0, at=2.0, reason="it forwards")
    assert not rotation.probed(0, at=3.0, accepted=True)
    assert rotation.next_probe() is None
    assert rotation.pick(0.0) == 1
    assert rotation.admit(0, at=4.0)
    assert not rotation.admit(0, at=4.0)
    assert rotation.probes_due(4.0) == [0]
    assert rotation.probed(0, at=5.0, accepted=True)
    assert rotation.holds(0)
