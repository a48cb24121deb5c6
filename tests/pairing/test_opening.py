"""What pairing refuses, and how soon: keys, namespaces, certificates, objects (SPEC.md sections 1, 4.4 and 4.5)."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import azure.servicebus
import azure.servicebus.management
import certifi
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

import paired_servicebus
from paired_servicebus import Namespace
from paired_servicebus.core.errors import ConfigurationError, ForeignLoopError, NamespaceUnreachableError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.snapshot import FindingVerdict
from paired_servicebus.core.operator.failover_readiness import SEND
from paired_servicebus.pairing import (
    SendAvailabilityPairedNamespaceOptions,
    opening,
    pair_namespaces,
    paired_client,
    tls_context,
)
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import management_of
from paired_servicebus.pairing.sending import pairing_links
from paired_servicebus.pairing.sending.sender_link import FairLock, OpenLimiter
from servicebus_sandbox import Sandbox

from .backlogs import queue_path
from .conftest import TRUST, World, until

SOON = 60.0
"""Seconds within which bad input is refused."""
ELSEWHERE = "elsewhere.servicebus.windows.net"


def wrong_key(world: World, name: str = "secondary") -> str:
    return re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=", world.sandbox[name].connection_string)


def over_tls(world: World, **options: Any) -> ServiceBusClient:
    """A client of the secondary that sees its certificate."""
    one = world.sandbox["secondary"]
    return ServiceBusClient(
        ELSEWHERE,
        AzureNamedKeyCredential(one.key_name, one.key),
        custom_endpoint_address=f"sb://127.0.0.1:{one.amqp_port}",
        transport_type=TransportType.Amqp,
        ssl_context=TRUST,
        **options,
    )


def of_a_third_namespace(world: World) -> ServiceBusClient:
    """A client whose namespace has none of the queues that the administration of the secondary makes."""
    text = world.sandbox["primary"].connection_string.replace("127.0.0.1", "localhost")
    return ServiceBusClient.from_connection_string(text, retry_total=0, ssl_context=TRUST)


WRONG: dict[str, tuple[Callable[[World], ServiceBusClient], str]] = {
    "a key": (
        lambda world: ServiceBusClient.from_connection_string(wrong_key(world), ssl_context=TRUST),
        "not authenticated; the credential needs Send on the secondary namespace: check its key or role",
    ),
    "a certificate": (over_tls, r"the certificate is not trusted; name its authority: ssl_context=tls_context\("),
    "a namespace": (of_a_third_namespace, "entity not found; secondary_client and secondary_admin have to be of one"),
}


@asynccontextmanager
async def closing(*clients: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for client in clients:
            await client.close()


@pytest.mark.parametrize("what", WRONG)
async def test_a_client_that_can_open_no_backlog_link_is_refused_by_the_pairing_call(
    world: World, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4.5: "Nothing may be sent before pairing completed; bad credentials, failed creation etc. are raised by
    the awaited pairing call itself." The clients have the SDK's own retries."""
    monkeypatch.setattr(pairing_links, "SECOND_TRY_SECONDS", 0.1)
    make, sentence = WRONG[what]
    client, began = make(world), time.monotonic()
    async with closing(client):
        with pytest.raises(NamespaceUnreachableError, match=sentence):
            await world.pair(secondary_client=client, send_timeout=30.0)
        assert time.monotonic() - began < SOON


async def test_what_was_opened_is_closed_where_pairing_fails_and_the_clients_are_still_the_callers(
    world: World,
) -> None:
    primary, admin = world.client("primary"), world.admin("secondary")
    wrong = ServiceBusClient.from_connection_string(wrong_key(world), ssl_context=TRUST)
    before = asyncio.all_tasks()
    with pytest.raises(NamespaceUnreachableError):
        await world.pair(primary_client=primary, secondary_admin=admin, secondary_client=wrong)
    assert [one.node.connections for one in world.sandbox.namespaces] == [set(), set()]
    assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith("the ")]
    paired = await world.pair(primary_client=primary, secondary_admin=admin)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    await paired.close()
    await wrong.close()
    await until(lambda: not any(one.node.connections for one in world.sandbox.namespaces))


async def test_a_queue_that_refuses_beside_one_that_does_not_is_an_alarm_until_it_is_healed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing_links, "CHECK_SECONDS", 0.05)
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(1))
    heal = world.fault("unauthorized", namespace="secondary", entity=queue_path(1))
    paired = await world.pair()
    await until(lambda: paired.alarms())
    (alarm,) = paired.alarms()
    assert alarm.startswith(
        "no link to backlog queue 1: not authorized; the credential needs Send on the secondary namespace: check its "
        "key or role -> "
    )
    heal()
    await until(lambda: not paired.alarms())


async def test_without_an_engine_the_log_has_the_beginning_and_the_end_of_an_alarm(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 12: "the library's logger, readiness and the shipped alert rules render the table"."""
    monkeypatch.setattr(pairing_links, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(paired_client, "ALARM_SECONDS", 1)
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(1))
    heal = world.fault("unauthorized", namespace="secondary", entity=queue_path(1))

    def logged(head: str) -> bool:
        return any(record.getMessage().startswith(head) for record in caplog.records)

    with caplog.at_level(logging.INFO, "paired_servicebus.pairing"):
        await world.pair()
        await until(lambda: logged("alarm: warning backlog_link: no link to backlog queue 1: "))
        heal()
        await until(lambda: logged("alarm: over: warning backlog_link: "))


async def test_a_secondary_that_is_only_away_for_messaging_hinders_no_pairing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage is no mistake: only what time does not mend is refused."""
    monkeypatch.setattr(opening, "FIRST_LINK_SECONDS", 0.3)
    world.fault("disabled", namespace="secondary")
    paired = await world.pair()
    await until(lambda: any("no link to backlog queue 0, 1: entity disabled" in text for text in paired.alarms()))


async def test_an_application_can_ask_whether_a_failover_would_work(world: World) -> None:
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    assert (await paired.check()).ready
    world.fault("unauthorized", namespace="secondary")
    found = await paired.check()
    assert not found.ready
    assert next(one for one in found.findings if one.what == SEND).verdict is FindingVerdict.NO


# -- the secondary's administration --------------------------------------------------------------------------------


async def refused_by(admin: Any, host: str = "127.0.0.1:1") -> str:
    """What `ensure` raises at once, and how soon."""
    began = time.monotonic()
    with pytest.raises(NamespaceUnreachableError) as caught:
        await backlog_queues.ensure(management_of(admin), "primary", 1, host=host)
    assert time.monotonic() - began < SOON
    assert not caught.value.is_outage
    return str(caught.value)


async def test_a_certificate_that_is_not_trusted_is_refused_at_once(world: World) -> None:
    text = world.sandbox["secondary"].connection_string
    async with ServiceBusAdministrationClient.from_connection_string(text) as admin:
        said = await refused_by(admin, "contoso-backup")
    assert said.startswith("listing the queues of the secondary contoso-backup failed: its certificate is not trusted")
    assert "name the authority to trust: connection_verify of secondary_admin, or ca_file in pairing.toml" in said


async def test_a_host_without_an_address_is_refused_after_a_short_retry(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    usual = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if host != ELSEWHERE:
            return usual(host, *rest, **options)
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(backlog_queues, "UNKNOWN_HOST_SECONDS", 0.2)
    text = f"Endpoint=sb://{ELSEWHERE}/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    async with ServiceBusAdministrationClient.from_connection_string(text) as admin:
        said = await refused_by(admin, ELSEWHERE)
    assert "the host is not known" in said
    assert "check the host of secondary_admin" in said
    assert 1 < len(asked) < 10


async def test_an_administration_client_that_was_closed_is_refused(world: World) -> None:
    admin = world.admin("secondary")
    async with admin:
        pass
    assert "already been closed" in await refused_by(admin)


async def test_what_pairing_waits_for_is_logged(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 4.4: "Listing is retried for 2 min on transient errors"."""
    monkeypatch.setattr(backlog_queues, "LOG_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.05)
    heal = world.fault("refused", namespace="secondary")
    pairing = asyncio.create_task(world.pair())
    await until(lambda: "does not answer" in caplog.text)
    assert caplog.messages == [
        f"the secondary 127.0.0.1:{world.sandbox['secondary'].amqp_port} does not answer; trying for up to 120 s"
    ]
    heal()
    assert (await pairing).backlog_queue_count == 2


# -- what is handed in ---------------------------------------------------------------------------------------------

SECRET = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c4n4ry="
OBJECTS: dict[str, tuple[str, Callable[[], Any], str]] = {
    "a synchronous client": (
        "primary_client",
        lambda: azure.servicebus.ServiceBusClient.from_connection_string(SECRET),
        "primary_client is the synchronous ServiceBusClient: "
        "use the one of azure.servicebus.aio, or .* paired_servicebus.sync",
    ),
    "a synchronous secondary": (
        "secondary_client",
        lambda: azure.servicebus.ServiceBusClient.from_connection_string(SECRET),
        "secondary_client is the synchronous ServiceBusClient",
    ),
    "a text": ("primary_client", lambda: SECRET, "primary_client is a text; it is a ServiceBusClient of azure"),
    "nothing": ("secondary_client", lambda: None, "secondary_client is a builtins NoneType; it is a ServiceBusClient"),
    "a synchronous administration": (
        "secondary_admin",
        lambda: azure.servicebus.management.ServiceBusAdministrationClient.from_connection_string(SECRET),
        r"secondary_admin is a .*: use the one of azure\.servicebus\.aio\.management",
    ),
    "a text for administration": (
        "secondary_admin",
        lambda: SECRET,
        "secondary_admin is a text: it is a ServiceBusAdm",
    ),
    "a messaging client for administration": (
        "secondary_admin",
        lambda: ServiceBusClient.from_connection_string(SECRET),
        "secondary_admin is a azure.* ServiceBusClient: it is a ServiceBusAdministrationClient of azure.*, or an A",
    ),
}


@pytest.mark.parametrize("which", OBJECTS)
async def test_a_wrong_object_is_refused_at_the_door(which: str) -> None:
    """A ValueError that says what would be right, and repeats no connection string."""
    name, make, sentence = OBJECTS[which]
    right: dict[str, Any] = {
        "primary_client": ServiceBusClient.from_connection_string(SECRET),
        "secondary_client": ServiceBusClient.from_connection_string(SECRET.replace("contoso", "backup")),
        "secondary_admin": ServiceBusAdministrationClient.from_connection_string(SECRET.replace("contoso", "backup")),
    }
    given = right | {name: make()}
    primary = given.pop("primary_client")
    async with closing(*right.values()):
        with pytest.raises(ConfigurationError, match=sentence) as refused:
            await pair_namespaces(primary, SendAvailabilityPairedNamespaceOptions(**given))
    assert isinstance(refused.value, ValueError)
    assert "c4n4ry" not in str(refused.value)


async def test_options_of_another_kind_are_refused() -> None:
    async with ServiceBusClient.from_connection_string(SECRET) as client:
        with pytest.raises(ConfigurationError, match="options is a builtins dict; it is SendAvailabilityPairedName"):
            await pair_namespaces(client, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("which", ["primary_client", "secondary_client", "secondary_admin"])
async def test_a_client_belongs_to_one_pairing_until_that_is_closed(world: World, which: str) -> None:
    """Closing a pairing closes both sides (section 9): a second one would lose its clients with the first."""
    made = world.admin("secondary") if which == "secondary_admin" else world.client(which.removesuffix("_client"))
    first = await world.pair(**{which: made})
    spare = {name: world.client(name.removesuffix("_client")) for name in ("primary_client", "secondary_client")}
    spare["secondary_admin"] = world.admin("secondary")  # type: ignore[assignment]
    async with closing(*spare.values()):
        with pytest.raises(ConfigurationError, match=f"{which} is part of another pairing"):
            await world.pair(**(spare | {which: made}))
    await first.close()
    if which != "secondary_admin":  # the SDK opens a messaging client again, and no administration client
        await world.pair(**{which: made})


async def test_a_paired_client_is_no_client_to_pair(world: World) -> None:
    paired = await world.pair()
    with pytest.raises(ConfigurationError, match="primary_client is a paired client already"):
        await world.pair(primary_client=paired)


# -- options that do not go together -------------------------------------------------------------------------------


async def test_holding_for_less_than_a_failover_takes_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Section 6, `hold_until_failover`: "the send waits instead of raising, bounded by its timeout"."""
    with caplog.at_level(logging.WARNING):
        await world.pair(hold_until_failover=True, send_timeout=1.0, failover_interval=2.0)
        (warned,) = [event.text for event in world.told(Warned)]
        await until(lambda: [message for message in caplog.messages if message.endswith(warned)])
    assert warned == (
        "hold_until_failover waits until send_timeout (1 s) has passed, and failover_interval is 2 s: a send without a "
        "timeout of its own raises before the failover; set send_timeout above failover_interval"
    )


async def test_the_recipe_of_the_readme_raises_nothing_in_an_outage(world: World) -> None:
    """`hold_until_failover`, `send_timeout` above `failover_interval`, and a timeout for the whole call above both of
    them and one more `send_timeout`."""
    paired = await world.pair(hold_until_failover=True, send_timeout=1.0, failover_interval=0.6)
    assert world.told(Warned) == []
    async with paired.get_queue_sender("orders") as sender:
        world.fault("black-holed")
        await sender.send_messages(ServiceBusMessage("x"), timeout=4.0)
    assert world.parked() == 1


# -- One TLS context for all links of a client.


def test_it_trusts_whom_the_sdk_trusts_and_checks_names() -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.load_verify_locations(certifi.where())
    ours = tls_context()
    assert ours.cert_store_stats() == theirs.cert_store_stats()
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(OSError, match="No such file"):
        tls_context(tmp_path / "missing.pem")
    with pytest.raises(ssl.SSLError):
        tls_context(empty)


# -- The gate that links open through.


class Crowd:
    """Tasks that want through, and who is inside."""

    def __init__(self, gate: OpenLimiter) -> None:
        self.gate = gate
        self.inside: list[str] = []
        self.leave = asyncio.Event()

    async def enter(self, name: str, *, urgent: bool = False) -> None:
        async with self.gate.slot(urgent=urgent):
            self.inside.append(name)
            await self.leave.wait()

    def start(self, name: str, *, urgent: bool = False) -> asyncio.Task[None]:
        return asyncio.create_task(self.enter(name, urgent=urgent))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("width", "names", "cancelled", "inside"),
    [
        (2, "a b c d", "", "a b c d"),
        (1, "a ping send!", "", "a send! ping"),
        (1, "a b c", "b", "a c"),
        (1, "a b c", "a b", "a c"),  # the turn is b's then, and it has not run yet
    ],
    ids=["in their order", "an application's first", "one leaves the line", "one leaves when it is called"],
)
async def test_so_many_at_once_and_each_in_its_turn(width: int, names: str, cancelled: str, inside: str) -> None:
    crowd = Crowd(OpenLimiter(width=width, lease=60))
    tasks = {name: crowd.start(name, urgent=name.endswith("!")) for name in names.split()}
    await turns()
    assert crowd.inside == names.split()[:width]
    for name in cancelled.split():
        tasks[name].cancel()
        await asyncio.sleep(0)
    crowd.leave.set()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert crowd.inside == inside.split()


async def test_one_that_gets_no_answer_makes_way() -> None:
    crowd = Crowd(OpenLimiter(width=1, lease=0.01))
    tasks = [crowd.start("silent"), crowd.start("next")]
    await until(lambda: crowd.inside == ["silent", "next"])
    crowd.leave.set()
    await asyncio.gather(*tasks)
    third = crowd.start("third")  # nobody's place was given back twice
    fourth = crowd.start("fourth")
    await asyncio.gather(third, fourth)
    assert crowd.inside == ["silent", "next", "third", "fourth"]


async def test_a_released_lock_is_the_next_ones_and_nobody_comes_in_between() -> None:
    lock, had = FairLock(), list[str]()

    async def wait(name: str) -> None:
        await lock.acquire()
        had.append(name)

    assert lock.acquire_nowait()
    assert not lock.acquire_nowait()
    tasks = [asyncio.create_task(wait(name)) for name in ("first", "second")]
    for count in (1, 2):
        await turns()
        lock.release()
        assert not lock.acquire_nowait()
        await turns()
        assert had == ["first", "second"][:count]
    await asyncio.gather(*tasks)
    lock.release()
    assert lock.acquire_nowait()


# -- A pairing lives in the event loop that made it (a second one would work until the first outage).


def elsewhere(work: Callable[[], Coroutine[Any, Any, Any]]) -> BaseException | None:
    """What a coroutine raises in an event loop of its own, on another thread."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return raised[0] if raised else None


async def test_use_from_another_event_loop_is_refused_in_one_sentence(world: World) -> None:
    paired = await world.pair()
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("here"))

    async def get() -> None:
        paired.get_queue_sender("payments")

    async def receive() -> None:
        paired.get_queue_receiver("orders")

    uses: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "a send": lambda: sender.send_messages(ServiceBusMessage("there")),
        "opening": lambda: paired.get_queue_sender("orders").__aenter__(),
        "a sender": get,
        "a receiver": receive,
        "a check": paired.check,
        "closing": paired.close,
    }
    unopened = paired.get_queue_sender("audit")
    uses["opening"] = unopened.__aenter__
    for what, use in uses.items():
        error = await asyncio.to_thread(elsewhere, use)
        assert isinstance(error, ForeignLoopError), what
        assert isinstance(error, RuntimeError)
        assert "belongs to the event loop in which it was made" in str(error)
        assert "paired_servicebus.sync" in str(error)
    await sender.send_messages(ServiceBusMessage("here again"))
    assert world.depth("orders") == 2
    assert [view.path for view in paired.entity_views()] == ["orders", "audit"]


def test_a_client_may_be_made_in_a_plain_function() -> None:
    """As the SDK's: made without a running loop, entered and used by its own name in one."""

    async def main() -> list[str]:
        async with Sandbox.start() as sandbox:
            made = in_a_plain_function(sandbox)
            with pytest.raises(AttributeError, match="the pairing is not made yet"):
                made.get_queue_sender("orders")
            async with made:
                async with made.get_queue_sender("orders") as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
                async with made.get_queue_receiver("orders") as receiver:
                    found = [str(message) for message in await receiver.receive_messages(1, max_wait_time=30)]
                await made.close()
            return found

    def in_a_plain_function(sandbox: Sandbox) -> Any:
        options = {"connection_verify": str(sandbox.ca_file)}
        texts = (sandbox[name].connection_string for name in ("primary", "secondary"))
        both = [Namespace.from_connection_string(text, options=options) for text in texts]
        return paired_servicebus.pair_namespaces(*both, primary_name="primary", backlog_queue_count=1)

    assert asyncio.run(main()) == ["x"]
