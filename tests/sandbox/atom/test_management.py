"""What management refuses and how, without a socket; and what HTTP adds, with one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.conftest import IMPATIENT

from servicebus_amqp.access import sign
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.authorization import Authorization, root_rule
from servicebus_sandbox.atom.management_api import AtomRequest, AtomResponse, ManagementApi
from servicebus_sandbox.broker.entity_settings import QueueSettings, Tier
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
        self.namespace = BrokerNamespace("contoso", clock=time.time, tier=tier)
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
        ("", "no Authorization header"),
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
        (ENTRY.replace("QueueDescription", "Relay").format(""), "<Relay> is none of QueueDescription, "),
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
    etag = desk.ask("PUT", "/orders", ENTRY.format("")).headers["ETag"]
    changed = ENTRY.format("<MaxDeliveryCount>3</MaxDeliveryCount>")
    updated = desk.ask("PUT", "/orders", changed, if_match=etag)
    assert (updated.status, desk.namespace.queue("orders").settings.max_delivery_count) == (200, 3)
    assert updated.headers["ETag"] != etag
    assert "was changed since" in desk.refusal(412, "PUT", "/orders", ENTRY.format(""), if_match=etag)
    assert "was changed since" in desk.refusal(412, "DELETE", "/orders", if_match=etag)
    assert desk.ask("DELETE", "/orders", if_match="*").status == 200


RULE = ENTRY.replace("QueueDescription", "RuleDescription")


def test_etags_of_rules(desk: Desk) -> None:
    desk.namespace.create_topic("t")
    desk.namespace.create_subscription("t", "s")
    place = "/t/subscriptions/s/rules/$Default"
    before = desk.ask("GET", place).headers["ETag"]
    false = RULE.format('<Filter type="FalseFilter"/>')
    assert "was changed since" in desk.refusal(412, "PUT", place, false, if_match='"other"')
    updated = desk.ask("PUT", place, false, if_match=before)
    assert updated.status == 200
    assert updated.headers["ETag"] == desk.ask("GET", place).headers["ETag"] != before
    assert "was changed since" in desk.refusal(412, "DELETE", place, if_match=before)
    assert desk.ask("DELETE", place, if_match="*").status == 200
    assert "rules/$Default" in desk.refusal(404, "GET", place)


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
    assert "max_size_mb is 2" in desk.refusal(400, "PUT", "/small", ENTRY.format(body.format(2)), if_match="*")


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


def test_a_queue_does_not_become_a_topic(desk: Desk) -> None:
    desk.namespace.create_queue("orders")
    body = ENTRY.replace("QueueDescription", "TopicDescription").format("")
    assert desk.refusal(404, "PUT", "/orders", body, if_match="*")
    assert desk.refusal(409, "PUT", "/orders", body)


def test_an_empty_page_and_what_lies_past_the_end(desk: Desk) -> None:
    for name in "abc":
        desk.namespace.create_queue(name)
    for query in ("$top=0", "$skip=3", "$skip=99"):
        feed = ElementTree.fromstring(desk.ask("GET", f"/$Resources/queues?{query}").body)
        assert feed.findall("{*}entry") == []
        assert len(feed.findall("{*}link")) == 1


@given(st.binary(max_size=200), st.text(max_size=30))
def test_whatever_is_sent_gets_an_answer(body: bytes, path: str) -> None:
    desk = Desk()
    headers = {"host": HOST, "authorization": token()}
    for method in ("GET", "PUT", "DELETE"):
        answer = desk.management.answer(AtomRequest(method=method, target="/" + path, headers=headers, body=body))
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
