"""What management refuses and how, without a socket; and what HTTP adds, with one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import aiohttp
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import AccessRights, AuthorizationRule
from azure.servicebus.management import EntityStatus as SdkStatus
from azure.servicebus.management import ServiceBusAdministrationClient as SyncAdministrationClient
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.conftest import IMPATIENT

from servicebus_amqp.access import sign
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.authorization import Authorization, root_rule
from servicebus_sandbox.atom.management_api import AtomRequest, AtomResponse, ManagementApi
from servicebus_sandbox.broker.entity_settings import QueueSettings, Tier
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import FaultTerms, Operation
from servicebus_sandbox.serving.amqp_conditions import RefusalLog

if TYPE_CHECKING:
    from tests.sandbox.conftest import Port

KEYS = {"Root": "top+secret/="}
HOST = "localhost:5671"
ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{}'
    "</QueueDescription></content></entry>"
)


def token(resource: str = f"https://{HOST}", *, expires_in: float = 3600) -> str:
    return sign(resource, "Root", KEYS["Root"], time.time() + expires_in)


class Desk:
    """A namespace's management with the words left out that every request says."""

    def __init__(self, tier: Tier = Tier.STANDARD) -> None:
        self.now = time.time()
        self.namespace = BrokerNamespace("contoso", clock=lambda: self.now, tier=tier)
        self.changes = 0
        authorization = Authorization(self.namespace, [root_rule("Root", KEYS["Root"])])
        self.management = ManagementApi(
            self.namespace,
            authorization=authorization,
            clock=time.time,
            changed=self.count,
            complaints=RefusalLog("contoso"),
        )

    def count(self) -> None:
        self.changes += 1

    def ask(self, method: str, target: str, body: str = "", **headers: str) -> AtomResponse:
        named = {"host": HOST, "authorization": token()} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        return self.management.answer(AtomRequest(method=method, target=target, headers=named, body=body.encode()))

    def refusal(self, status: int, method: str, target: str, body: str = "", **headers: str) -> str:
        changes, answer = self.changes, self.ask(method, target, body, **headers)
        assert answer.status == status
        assert self.changes == changes
        error = ElementTree.fromstring(answer.body)
        assert error.findtext("Code") == str(status)
        return error.findtext("Detail") or ""


@pytest.fixture
def desk() -> Iterator[Desk]:
    return Desk()


@pytest.mark.parametrize(
    ("authorization", "complaint"),
    [
        ("", "has no claim"),
        ("Bearer x", "not a shared access signature"),
        (token(expires_in=-5), "expired"),
        (token(f"https://{HOST}/other"), "does not cover"),
        (token("https://elsewhere"), "does not cover"),
        (token()[:-8] + "skn=None", "no key named 'None'"),
    ],
    ids=["nothing", "bearer", "expired", "other entity", "other host", "unknown key"],  # tokens differ every second
)
def test_who_may_not(desk: Desk, authorization: str, complaint: str) -> None:
    assert complaint in desk.refusal(401, "GET", "/orders", authorization=authorization)


def test_a_token_for_one_entity_is_enough_for_it(desk: Desk) -> None:
    mine = token(f"sb://{HOST}/contoso/x")
    assert desk.ask("PUT", "/contoso%2Fx%2F0", ENTRY.format(""), authorization=mine).status == 201
    assert "does not cover" in desk.refusal(401, "GET", "/orders", authorization=mine)


def test_forwarding_needs_a_token_for_the_target(desk: Desk) -> None:
    body, mine = ENTRY.format(f"<ForwardTo>sb://{HOST}/there</ForwardTo>"), token(f"https://{HOST}/here")
    assert "/there" in desk.refusal(401, "PUT", "/here", body, authorization=mine)
    supplement = {"servicebussupplementaryauthorization": token(f"sb://{HOST}/there")}
    assert "'there', which is no queue" in desk.refusal(400, "PUT", "/here", body, authorization=mine, **supplement)
    desk.namespace.create_queue("there")
    assert desk.ask("PUT", "/here", body, authorization=mine, **supplement).status == 201


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("", "not well-formed"),
        ("<entry", "not well-formed"),
        ("<a/>", "not an Atom entry"),
        ('<entry xmlns="http://www.w3.org/2005/Atom"/>', "not an Atom entry"),
        ('<!DOCTYPE a [<!ENTITY b "cc">]><a>&b;</a>', "DOCTYPE"),
        ('<!DOCTYPE a [<!ENTITY % b SYSTEM "file:///etc/passwd">%b;]>' + ENTRY.format(""), "DOCTYPE"),
        (ENTRY.replace("www.w3.org/2005/Atom", "elsewhere.example/Atom").format(""), "not an Atom entry"),
        (ENTRY.replace("netservices/2010/10", "netservices/2099/10").format(""), "is none of QueueDescription, "),
        (ENTRY.replace("QueueDescription", "Relay").format(""), "Relay> is none of QueueDescription, "),
        (ENTRY.replace("QueueDescription", "SubscriptionDescription").format(""), "does not fit the address '/orders'"),
    ],
)
def test_bodies_that_say_nothing(desk: Desk, body: str, complaint: str) -> None:
    assert complaint in desk.refusal(400, "PUT", "/orders", body)
    assert desk.namespace.queues() == []


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", "/orders", 405),
        ("PUT", "/$namespaceinfo", 405),
        ("DELETE", "/$Resources/queues", 405),
        ("GET", "/$cbs", 404),
        ("GET", "/", 404),
        ("GET", "/nowhere/subscriptions", 404),
        ("GET", "/nowhere/subscriptions/all/rules", 404),
        ("DELETE", "/nowhere", 404),
        ("GET", "/$Resources/queues?$top=-1", 400),
        ("GET", "/$Resources/queues?$skip=x", 400),
        ("GET", f"/$Resources/queues?$skip={2**63}", 400),
        ("GET", f"/$Resources/topics?$top={'9' * 5000}", 400),
        ("GET", "/orders?api-version=2199-01", 400),
        ("PUT", "/with%20space", 400),
    ],
)
def test_what_does_not_apply(desk: Desk, method: str, target: str, status: int) -> None:
    assert desk.refusal(status, method, target, ENTRY.format(""))


@pytest.mark.parametrize("version", ["2013-10", "2017-04", "2021-05", "2024-05"])
def test_versions_of_the_interface(desk: Desk, version: str) -> None:
    assert desk.ask("GET", f"/$Resources/queues?api-version={version}").status == 200


def test_control_characters_in_a_path_come_back_harmless(desk: Desk) -> None:
    assert "The messaging entity 'a?b'" in desk.refusal(404, "DELETE", "/a%01b")


def test_etags(desk: Desk) -> None:
    """An ETag is the ticks of the latest change before the request; If-Match is compared with it."""
    assert "ETag" not in desk.ask("PUT", "/orders", ENTRY.format("")).headers
    etag = desk.ask("GET", "/orders").headers["ETag"]
    desk.now += 0.001
    changed = ENTRY.format("<MaxDeliveryCount>3</MaxDeliveryCount>")
    for condition in ('"other"', "", "W/", "1", f"{etag}0", "x" * 9000):
        assert "was changed since" in desk.refusal(412, "PUT", "/orders", changed, if_match=condition)
    updated = desk.ask("PUT", "/orders", changed, if_match=f'"x", W/"{etag}"')
    assert (updated.status, desk.namespace.queue("orders").settings.max_delivery_count) == (200, 3)
    assert updated.headers["ETag"] == etag
    assert desk.ask("GET", "/orders").headers["ETag"] == str(int(etag) + 10_000)
    assert "was changed since" in desk.refusal(412, "PUT", "/orders", ENTRY.format(""), if_match=etag)
    assert "was changed since" in desk.refusal(412, "DELETE", "/orders", if_match=etag)
    assert desk.ask("DELETE", "/orders", if_match="*").status == 200


@pytest.mark.parametrize(
    ("sent", "settings", "back"),
    [
        (
            "<EnableExpress>false</EnableExpress><LockDuration>PT9S</LockDuration>",
            QueueSettings(),
            ["MaxMessageSizeInKilobytes 256", "LockDuration PT9S"],
        ),
        (
            "<LockDuration>PT9S</LockDuration><LockDuration>PT8S</LockDuration><Unheard a='1'><Of/></Unheard>",
            QueueSettings(lock_duration=timedelta(seconds=9)),
            ["LockDuration PT8S", "Unheard "],
        ),
        (
            "<LockDuration xmlns='urn:x'>PT9S</LockDuration><o:Status xmlns:o='urn:x'>Disabled</o:Status>"
            "<Status xmlns=''>Disabled</Status>",
            QueueSettings(),
            ["LockDuration PT9S", "Status Disabled", "Status Disabled"],
        ),
        (
            "<AutoDeleteOnIdle>PT10M</AutoDeleteOnIdle><ForwardTo>sb://x/there</ForwardTo>",
            QueueSettings(auto_delete_on_idle=timedelta(minutes=10)),
            ["ForwardTo sb://x/there"],
        ),
        (
            "<ForwardTo>http://x/there</ForwardTo><AutoDeleteOnIdle>PT10M</AutoDeleteOnIdle>",
            QueueSettings(forward_to="there"),
            ["MaxMessageSizeInKilobytes 256"],
        ),
        (f"<Unheard>{'x' * 1_000_000}</Unheard>", QueueSettings(), [f"Unheard {'x' * 1_000_000}"]),
    ],
    ids=["behind its place", "twice and unknown", "other namespaces", "forwarding behind", "forwarding", "1 MB"],
)
def test_elements_that_have_no_effect_come_back(
    desk: Desk, sent: str, settings: QueueSettings, back: list[str]
) -> None:
    """SPEC.md section 12: "An element behind its place, a repeated one and an unknown one have no effect, and come back
    at the end of later answers."."""
    desk.namespace.create_queue("there")
    assert desk.ask("PUT", "/q", ENTRY.format(sent)).status == 201
    assert desk.namespace.queue("q").settings == settings
    (described,) = ElementTree.fromstring(desk.ask("GET", "/q").body).iterfind("{*}content/*")
    assert [f"{child.tag.rpartition('}')[2]} {child.text or ''}" for child in described][-len(back) :] == back
    assert desk.ask("PUT", "/q", ENTRY.format(""), if_match="*").status == 200
    assert b"Unheard" not in desk.ask("GET", "/q").body, "the next description replaces them"


def test_a_description_that_nests_deeply_is_refused(desk: Desk) -> None:
    deep = "<a>" * 50_000 + "</a>" * 50_000
    assert "more than 20 deep" in desk.refusal(400, "PUT", "/q", ENTRY.format(deep))


def test_one_partition_of_sixteen(desk: Desk) -> None:
    """SPEC.md section 12: "a partitioned entity has 16 times the size"."""
    body = "<MaxSizeInMegabytes>{}</MaxSizeInMegabytes><EnablePartitioning>true</EnablePartitioning>"
    for size, status in ((2048, 201), (2048 * 16, 200), (2048, 200), (3072, 200), (1000, 400)):
        headers = {} if status == 201 else {"if_match": "*"}
        assert desk.ask("PUT", "/q", ENTRY.format(body.format(size)), **headers).status == status
    assert desk.namespace.queue("q").settings.total_size_mb == 3072 * 16


RULE = ENTRY.replace("QueueDescription", "RuleDescription")


def test_subscriptions_and_rules_have_their_topics_etag(desk: Desk) -> None:
    desk.namespace.create_topic("t")
    desk.namespace.create_subscription("t", "s")
    place, etag = "/t/subscriptions/s/rules/$Default", desk.ask("GET", "/t").headers["ETag"]
    false = RULE.format('<Filter type="FalseFilter"/>')
    assert "was changed since" in desk.refusal(412, "PUT", place, false, if_match='"other"')
    answers = [
        desk.ask("GET", place),
        desk.ask("PUT", place, false, if_match=etag),
        desk.ask("GET", "/t/subscriptions"),
        desk.ask("DELETE", place, if_match=etag),
        desk.ask("GET", place),
        desk.ask("GET", place, authorization="Bearer x"),
    ]
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 404, 401]
    assert {answer.headers["ETag"] for answer in answers} == {etag}
    assert "'contoso:Topic:t|s|$Default' was not found" in desk.refusal(404, "GET", place)


def test_a_subscription_may_begin_with_a_rule_of_its_own(desk: Desk) -> None:
    desk.namespace.create_topic("t")
    kind = ENTRY.replace("QueueDescription", "SubscriptionDescription")
    rule = "<DefaultRuleDescription>{}<Name>mine</Name></DefaultRuleDescription>"
    bad = '<Filter type="SqlFilter"><SqlExpression>a</SqlExpression></Filter>'
    assert "a condition such as" in desk.refusal(400, "PUT", "/t/subscriptions/s", kind.format(rule.format(bad)))
    good = kind.format(rule.format('<Filter type="FalseFilter"/>'))
    assert desk.ask("PUT", "/t/subscriptions/s", good).status == 201
    assert [each.name for each in desk.namespace.subscription("t", "s").rules] == ["mine"]


@pytest.mark.parametrize("path", ["/nowhere", "/a%2Fb", "/a/$DeadLetterQueue"])
def test_a_missing_entity_is_an_empty_feed(desk: Desk, path: str) -> None:
    answer = desk.ask("GET", path)
    feed = ElementTree.fromstring(answer.body)
    assert (answer.status, feed.findtext("{*}title"), feed.findall("{*}entry")) == (200, "Publicly Listed Services", [])


def test_what_was_declared_otherwise_may_stay(desk: Desk) -> None:
    """A quota smaller than management gives survives an update that leaves it as it is."""
    desk.namespace.create_queue("small", QueueSettings(max_size_mb=1, auto_delete_on_idle=timedelta(seconds=9)))
    body = "<MaxSizeInMegabytes>{}</MaxSizeInMegabytes><AutoDeleteOnIdle>PT9S</AutoDeleteOnIdle>"
    assert desk.ask("PUT", "/small", ENTRY.format(body.format(1)), if_match="*").status == 200
    assert "MaxSizeInMegabytes is 2" in desk.refusal(400, "PUT", "/small", ENTRY.format(body.format(2)), if_match="*")


@pytest.mark.parametrize(
    ("tier", "kind", "inside", "status"),
    [
        (Tier.PREMIUM, "Queue", "<MaxMessageSizeInKilobytes>102400</MaxMessageSizeInKilobytes>", 201),
        (Tier.PREMIUM, "Topic", "<MaxMessageSizeInKilobytes>1023</MaxMessageSizeInKilobytes>", 400),
        (Tier.PREMIUM, "Queue", "<MaxMessageSizeInKilobytes>102401</MaxMessageSizeInKilobytes>", 400),
        (Tier.PREMIUM, "Queue", "<MaxSizeInMegabytes>81920</MaxSizeInMegabytes>", 201),
        (Tier.STANDARD, "Queue", "<MaxSizeInMegabytes>81920</MaxSizeInMegabytes>", 400),
        (Tier.STANDARD, "Queue", "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>", 201),
        (Tier.BASIC, "Queue", "", 201),
        (Tier.BASIC, "Queue", "<RequiresSession>true</RequiresSession>", 400),
        (Tier.BASIC, "Queue", "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>", 400),
        (Tier.BASIC, "Queue", "<DefaultMessageTimeToLive>P1D</DefaultMessageTimeToLive>", 400),
        (Tier.BASIC, "Queue", "<DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>", 201),
        (Tier.BASIC, "Queue", "<AutoDeleteOnIdle>P1D</AutoDeleteOnIdle>", 400),
        (Tier.BASIC, "Queue", "<ForwardTo>orders</ForwardTo>", 400),
        (Tier.BASIC, "Topic", "", 400),
    ],
)
def test_what_a_tier_allows(tier: Tier, kind: str, inside: str, status: int) -> None:
    desk = Desk(tier)
    body = ENTRY.replace("QueueDescription", f"{kind}Description").format(inside)
    assert desk.ask("PUT", "/x", body).status == status


def test_an_update_of_nothing(desk: Desk) -> None:
    assert "The messaging entity 'orders'" in desk.refusal(404, "PUT", "/orders", ENTRY.format(""), if_match="*")


@pytest.mark.parametrize("target", ["/gone", "/gone/subscriptions/s", "/gone/Subscriptions/s/Rules/r"])
def test_a_deletion_of_nothing_has_no_sub_code(desk: Desk, target: str) -> None:
    assert desk.refusal(404, "DELETE", target).startswith("The messaging entity 'gone' could not be found")


def test_a_queue_does_not_become_a_topic(desk: Desk) -> None:
    desk.namespace.create_queue("orders")
    body = ENTRY.replace("QueueDescription", "TopicDescription").format("")
    assert desk.refusal(404, "PUT", "/orders", body, if_match="*")
    assert desk.refusal(409, "PUT", "/orders", body)


def test_an_empty_page_and_what_lies_past_the_end(desk: Desk) -> None:
    for name in "abc":
        desk.namespace.create_queue(name)
    for query, links in (("$top=0", 2), ("$skip=3", 1), ("$skip=99", 1), (f"$skip={2**31 - 1}", 1)):
        feed = ElementTree.fromstring(desk.ask("GET", f"/$Resources/queues?{query}").body)
        assert feed.findall("{*}entry") == []
        assert len(feed.findall("{*}link")) == links


@given(st.sampled_from(("GET", "PUT", "DELETE")), st.binary(max_size=200), st.text(max_size=30))
def test_whatever_is_sent_gets_an_answer(method: str, body: bytes, path: str) -> None:
    headers = {"host": HOST, "authorization": token()}
    answer = Desk().management.answer(AtomRequest(method=method, target="/" + path, headers=headers, body=body))
    assert 400 <= answer.status < 500 or answer.status == 200


# ---------------------------------------------------------------------- over HTTP


def url(port: Port, path: str = "/$namespaceinfo") -> str:
    return f"https://127.0.0.1:{port.number}{path}"


def authorized(port: Port) -> dict[str, str]:
    return {"Authorization": token(f"https://127.0.0.1:{port.number}")}


async def test_one_connection_serves_many_requests(port: Port) -> None:
    connector = aiohttp.TCPConnector(ssl=port.client_tls(), limit=1)
    async with aiohttp.ClientSession(connector=connector, headers=authorized(port)) as session:
        for _ in range(5):
            async with session.get(url(port)) as answer:
                assert answer.status == 200
                await answer.read()
        assert port.https.connections == 1


async def test_a_body_in_chunks(port: Port) -> None:
    async def chunks() -> object:
        for byte in ENTRY.format(""):
            yield byte.encode()

    connector = aiohttp.TCPConnector(ssl=port.client_tls())
    session = aiohttp.ClientSession(connector=connector, headers=authorized(port))
    async with session, session.put(url(port, "/orders"), data=chunks()) as answer:
        assert answer.status == 201
    assert [queue.path for queue in port.namespace.queues()] == ["orders"]


async def exchange(port: Port, data: bytes) -> bytes:
    """What the server says until it closes."""
    async with asyncio.timeout(60):
        tls = port.client_tls()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number, ssl=tls, server_hostname="127.0.0.1")
        writer.write(data)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@IMPATIENT
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", b"408"),
        (b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"x" * 20000 + b"\r\n\r\n", b"400"),
        (b"GET \x00\x01 HTTP/9.9\r\n\r\n", b"400"),
        (
            b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\nConnection: close\r\n\r\n" + b"x" * 2000000,
            b"413",
        ),
    ],
)
async def test_broken_requests(port: Port, data: bytes, status: bytes) -> None:
    assert (await exchange(port, data)).split(b" ", 2)[1:2] == [status]
    assert b" 401 " in await exchange(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


async def test_half_a_request_is_cut_when_refusing_begins(port: Port) -> None:
    pending = asyncio.create_task(exchange(port, b"GET / HTTP/1.1\r\nHost"))
    async with asyncio.timeout(60):
        while not port.https.connections:
            await asyncio.sleep(0.01)
    port.board.add("refused")
    assert await pending == b""


async def talk(port: Port) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which one request was answered already."""
    tls = port.client_tls()
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number, ssl=tls, server_hostname="127.0.0.1")
    writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 401 " in await reader.readuntil(b"</Error>")
    return reader, writer


async def test_a_black_holed_request_is_neither_done_nor_answered(port: Port) -> None:
    reader, writer = await talk(port)
    fault = port.board.add("black-holed")
    body, headers = ENTRY.format("").encode(), f"Host: x\r\nAuthorization: {token('https://x')}\r\n".encode()
    writer.write(b"PUT /orders HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (headers, len(body), body))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reader.read()
    port.board.remove(fault.id)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    assert port.namespace.queues() == []
    writer.close()


async def test_closing_ends_swallowed_requests(port: Port) -> None:
    reader, writer = await talk(port)
    port.board.add("black-holed")
    writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    async with asyncio.timeout(60):
        await port.https.close()
        assert await reader.read() == b""
    writer.close()


# -- Faults that reach the management API over HTTPS: alone, or with everything else.


MANAGE = FaultTerms(operations=frozenset({Operation.MANAGE}))


async def ask(sandbox: Sandbox, path: str, seconds: float = 60.0) -> int:
    """The status of a request to the primary namespace; without a token, served ones are answered 401."""
    url = f"{sandbox['primary'].admin_url}/{path}?api-version=2021-05"
    async with asyncio.timeout(seconds), aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
        return answer.status


async def send(sandbox: Sandbox, entity: str = "orders") -> int:
    connection_string = sandbox["primary"].connection_string
    client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
    async with asyncio.timeout(60), client, client.get_queue_sender(entity) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    return sandbox["primary"].node.namespace.queue(entity).counts().active


@pytest.mark.parametrize(("kind", "status"), [("busy", 503), ("not-found", 404), ("unauthorized", 401)])
async def test_management_fails_with_a_status_while_messages_pass(sandbox: Sandbox, kind: str, status: int) -> None:
    sandbox["primary"].node.faults.add(kind, terms=MANAGE)
    assert await ask(sandbox, "orders") == status
    assert await send(sandbox) == 1


async def test_management_of_one_entity_is_swallowed_until_that_ends(sandbox: Sandbox) -> None:
    board = sandbox["primary"].node.faults
    fault = board.add("black-holed", entity="orders", terms=MANAGE)
    with pytest.raises(TimeoutError):
        await ask(sandbox, "orders", seconds=0.5)
    assert await ask(sandbox, "payments") == 401
    board.remove(fault.id)
    assert await ask(sandbox, "orders") == 401


async def test_a_half_open_management_connection_is_dead_and_a_new_one_served(sandbox: Sandbox) -> None:
    board, url = sandbox["primary"].node.faults, f"{sandbox['primary'].admin_url}/orders?api-version=2021-05"
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.get(url, ssl=False) as answer:
            assert await answer.read()
        fault = board.add("half-open")
        held = asyncio.ensure_future(session.post(url, ssl=False))  # on the connection it kept; not tried anew
        assert await ask(sandbox, "orders") == 401
        assert not held.done()
        board.remove(fault.id)
        with pytest.raises(aiohttp.ClientError):
            await held
        async with session.get(url, ssl=False) as answer:
            assert answer.status == 401


# Management as the real SDK asks for it: every property there and back, lists in pages, errors by their class.


BACKLOG = "contoso/x-servicebus-transfer/0"
FOR_EVER = "P10675199DT2H48M5.4775807S"


@pytest.fixture
async def admin(port: Port) -> AsyncIterator[ServiceBusAdministrationClient]:
    client = ServiceBusAdministrationClient.from_connection_string(
        port.connection_string, connection_verify=str(port.ca_file), retry_total=0
    )
    async with client, asyncio.timeout(60):
        yield client


async def test_a_backlog_queue_as_pairing_creates_it(admin: ServiceBusAdministrationClient, port: Port) -> None:
    made = await admin.create_queue(
        BACKLOG,
        max_size_in_megabytes=5120,
        max_delivery_count=2147483647,
        default_message_time_to_live=FOR_EVER,
        auto_delete_on_idle=FOR_EVER,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )
    read = await admin.get_queue(BACKLOG)
    for queue in (made, read):
        assert queue.name == BACKLOG
        assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (5120, 2147483647)
        assert queue.default_message_time_to_live.days == queue.auto_delete_on_idle.days == 10675199
        assert queue.lock_duration == timedelta(minutes=1)
        assert queue.dead_lettering_on_message_expiration
        assert queue.enable_batched_operations
    assert port.namespace.queue(BACKLOG).settings == QueueSettings(
        max_size_mb=5120, max_delivery_count=2147483647, dead_letter_on_expiration=True
    )
    assert len(port.changes) == 1


async def test_every_queue_property_survives(admin: ServiceBusAdministrationClient) -> None:
    wanted = {
        "auto_delete_on_idle": timedelta(minutes=7),
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(days=2, hours=3, seconds=4.5),
        "duplicate_detection_history_time_window": timedelta(minutes=5),
        "enable_batched_operations": False,
        "enable_partitioning": True,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 17,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "user_metadata": "<owner> & “co”",
    }
    await admin.create_queue("everything", **wanted)
    read = await admin.get_queue("everything")
    assert {name: getattr(read, name) for name in wanted} == wanted | {"max_size_in_megabytes": 16 * 3072}
    assert read.status == SdkStatus.ACTIVE


async def test_defaults_are_the_services(admin: ServiceBusAdministrationClient, port: Port) -> None:
    read = await admin.create_queue("plain")
    assert port.namespace.queue("plain").settings == QueueSettings()
    assert (read.max_delivery_count, read.max_size_in_megabytes, read.lock_duration.seconds) == (10, 1024, 60)
    assert read.default_message_time_to_live.days == 10675199


async def test_authorization_rules_are_kept(admin: ServiceBusAdministrationClient, port: Port) -> None:
    given = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="mine",
        primary_key="one",
        secondary_key="two",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
    )
    queue = await admin.create_queue("orders", authorization_rules=[given])
    (read,) = (await admin.get_queue("orders")).authorization_rules
    names = ("type", "claim_type", "claim_value", "key_name", "primary_key", "secondary_key")
    assert [getattr(read, name) for name in names] == [getattr(given, name) for name in names]
    assert read.rights == ["Send", "Listen"]
    queue.authorization_rules = []
    await admin.update_queue(queue)
    assert port.namespace.queue("orders").settings.authorization_rules == ()


async def test_updating_a_queue(admin: ServiceBusAdministrationClient, port: Port) -> None:
    queue = await admin.create_queue("orders", requires_session=True)
    queue.status = SdkStatus.SEND_DISABLED
    queue.max_delivery_count = 3
    await admin.update_queue(queue)
    read = await admin.get_queue("orders")
    assert (read.status, read.max_delivery_count) == (SdkStatus.SEND_DISABLED, 3)
    assert port.namespace.queue("orders").settings.requires_session


async def test_what_is_fixed_cannot_be_updated(admin: ServiceBusAdministrationClient) -> None:
    queue = await admin.create_queue("orders")
    queue.requires_session = True
    with pytest.raises(
        HttpResponseError, match="The value for the RequiresSession property of an existing Queue cannot be changed"
    ) as caught:
        await admin.update_queue(queue)
    assert caught.value.status_code == 400


async def test_forwarding_is_written_as_an_address(admin: ServiceBusAdministrationClient, port: Port) -> None:
    await admin.create_queue("target")
    await admin.create_queue("source", forward_to="target", forward_dead_lettered_messages_to="target")
    assert port.namespace.queue("source").settings.forward_to == "target"
    read = await admin.get_queue("source")
    assert read.forward_to == read.forward_dead_lettered_messages_to == f"sb://127.0.0.1:{port.number}/target"
    read.forward_to = None
    await admin.update_queue(read)
    assert port.namespace.queue("source").settings.forward_to is None


async def test_runtime_properties(admin: ServiceBusAdministrationClient, port: Port) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    await admin.create_queue("orders")
    port.namespace.queue("orders").intake.send([Message(payload=b"x" * 100, size=100)])
    counts = await admin.get_queue_runtime_properties("orders")
    assert (counts.total_message_count, counts.active_message_count) == (1, 1)
    assert (counts.dead_letter_message_count, counts.scheduled_message_count) == (0, 0)
    assert (counts.transfer_message_count, counts.transfer_dead_letter_message_count) == (0, 0)
    assert counts.size_in_bytes >= 100
    for moment in (counts.created_at_utc, counts.updated_at_utc, counts.accessed_at_utc):
        assert before < moment.replace(tzinfo=UTC) < datetime.now(UTC) + timedelta(seconds=1)
    listed = [item.name async for item in admin.list_queues_runtime_properties()]
    assert listed == ["orders"]


async def test_deleting(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue(BACKLOG)
    await admin.delete_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError):
        await admin.get_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError, match=f"The messaging entity '{BACKLOG}'"):
        await admin.delete_queue(BACKLOG)


async def test_lists_come_in_pages(admin: ServiceBusAdministrationClient, port: Port) -> None:
    names = [f"contoso/x-servicebus-transfer/{index:03}" for index in range(250)]
    for name in names:
        port.namespace.create_queue(name)
    port.namespace.create_topic("a-topic")
    assert [queue.name async for queue in admin.list_queues()] == names
    assert [queue.name async for queue in admin.list_queues(max_page_size=7, start_index=200)] == names[200:]
    assert [topic.name async for topic in admin.list_topics()] == ["a-topic"]


async def test_topics(admin: ServiceBusAdministrationClient) -> None:
    wanted = {
        "default_message_time_to_live": timedelta(hours=1),
        "max_size_in_megabytes": 2048,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=2),
        "enable_batched_operations": False,
        "support_ordering": False,
        "auto_delete_on_idle": timedelta(minutes=10),
        "enable_partitioning": True,
        "user_metadata": "audit trail",
    }
    await admin.create_topic("audit", **wanted)
    topic = await admin.get_topic("audit")
    assert {name: getattr(topic, name) for name in wanted} == wanted | {"max_size_in_megabytes": 16 * 2048}
    topic.user_metadata = "changed"
    await admin.update_topic(topic)
    assert (await admin.get_topic("audit")).user_metadata == "changed"
    await admin.create_subscription("audit", "all")
    runtime = await admin.get_topic_runtime_properties("audit")
    assert (runtime.subscription_count, runtime.scheduled_message_count, runtime.size_in_bytes) == (1, 0, 0)
    await admin.delete_topic("audit")
    with pytest.raises(ResourceNotFoundError):
        await admin.get_topic("audit")


async def test_subscriptions(admin: ServiceBusAdministrationClient, port: Port) -> None:
    await admin.create_topic("audit")
    wanted = {
        "lock_duration": timedelta(seconds=20),
        "requires_session": True,
        "default_message_time_to_live": timedelta(hours=2),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 4,
        "enable_batched_operations": False,
        "user_metadata": "x",
        "auto_delete_on_idle": timedelta(minutes=6),
    }
    await admin.create_subscription("audit", "all", **wanted)
    subscription = await admin.get_subscription("audit", "all")
    assert {name: getattr(subscription, name) for name in wanted} == wanted
    subscription.max_delivery_count = 5
    await admin.update_subscription("audit", subscription)
    assert port.namespace.subscription("audit", "all").settings.max_delivery_count == 5
    assert [item.name async for item in admin.list_subscriptions("audit")] == ["all"]
    runtime = await admin.get_subscription_runtime_properties("audit", "all")
    assert runtime.total_message_count == runtime.active_message_count == 0
    await admin.delete_subscription("audit", "all")
    with pytest.raises(ResourceNotFoundError, match=r"Topic:audit\|all'"):
        await admin.get_subscription("audit", "all")
    with pytest.raises(ResourceNotFoundError):
        await admin.create_subscription("nowhere", "all")


async def test_the_namespace_tells_its_name(admin: ServiceBusAdministrationClient) -> None:
    properties = await admin.get_namespace_properties()
    assert (properties.name, properties.messaging_sku, properties.namespace_type) == (
        "contoso",
        "Standard",
        "Messaging",
    )


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"lock_duration": timedelta(minutes=6)}, "LockDuration is 0:06:00"),
        ({"lock_duration": FOR_EVER}, "LockDuration: it cannot last for ever"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount is 0"),
        ({"user_metadata": "x" * 1025}, "UserMetadata"),
        ({"default_message_time_to_live": timedelta(seconds=-1)}, "DefaultMessageTimeToLive is -1 day"),
        ({"default_message_time_to_live": timedelta(milliseconds=1)}, "DefaultMessageTimeToLive is 0:00:00.001"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "AutoDeleteOnIdle is 0:04:00; allowed is 0:05:00 or more"),
        (
            {"duplicate_detection_history_time_window": timedelta(seconds=19)},
            "DuplicateDetectionHistoryTimeWindow is 0:00:19",
        ),
        ({"max_size_in_megabytes": 1000}, "MaxSizeInMegabytes is 1000; on the tier Standard it is one of 1024, 2048"),
        ({"max_message_size_in_kilobytes": 1024}, "MaxMessageSizeInKilobytes cannot be chosen on the tier Standard"),
        ({"forward_to": "nowhere"}, "SubCode=40400. messages are to be forwarded to 'nowhere'"),
        ({"requires_duplicate_detection": True, "enable_express": True}, "express entity cannot detect duplicates"),
    ],
)
async def test_what_is_out_of_range_is_named(
    admin: ServiceBusAdministrationClient, properties: dict[str, object], complaint: str
) -> None:
    with pytest.raises(HttpResponseError, match=complaint) as caught:
        await admin.create_queue("orders", **properties)
    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (("secret", "wrong"), "was not made with the key 'Root'"),
        (("KeyName=Root", "KeyName=Nobody"), "no key named 'Nobody'"),
    ],
)
async def test_a_wrong_key_is_told(port: Port, edit: tuple[str, str], complaint: str) -> None:
    client = ServiceBusAdministrationClient.from_connection_string(
        port.connection_string.replace(*edit), connection_verify=str(port.ca_file)
    )
    async with client, asyncio.timeout(60):
        with pytest.raises(ClientAuthenticationError, match=complaint):
            await client.get_namespace_properties()


async def test_the_synchronous_client(port: Port) -> None:
    def work() -> list[str]:
        with SyncAdministrationClient.from_connection_string(
            port.connection_string, connection_verify=str(port.ca_file)
        ) as client:
            client.create_queue(BACKLOG)
            client.create_topic("audit")
            client.create_subscription("audit", "all")
            queue = client.get_queue(BACKLOG)
            client.update_queue(queue, max_delivery_count=4)
            with pytest.raises(ResourceExistsError):
                client.create_queue(BACKLOG)
            names = [queue.name for queue in client.list_queues()]
            client.delete_queue(BACKLOG)
            return names

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(work) == [BACKLOG]
    assert port.namespace.queues() == []
