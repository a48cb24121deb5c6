"""Administration through the gateway: rights, hosts, reads while the primary is away, strangers' input."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

import aiohttp
import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from yarl import URL

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.model.gateway_view import TurnedAway
from paired_servicebus.engine.clients.client_factory import NamespaceCredentials
from paired_servicebus.engine.clients.namespace_requests import NamespaceAnswer, NamespaceRequests
from paired_servicebus.engine.gateway import administration
from paired_servicebus.engine.gateway.administration import (
    UNCHANGED,
    UNKNOWN,
    UNSEEN,
    AdministeredResource,
    AdministrationRefusal,
    AnswerHosts,
    forwards_of,
    without_keys,
)
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, LocalKey, connection_string, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.gateway_tls import GatewayCertificates
from paired_servicebus.engine.gateway.seen_answers import SeenAnswer, SeenAnswers
from paired_servicebus.secret import Secret
from servicebus_amqp.access import sign
from servicebus_amqp.encoding.frames import SASL_HEADER
from servicebus_sandbox import Sandbox
from tests.engine.gateway.rough_clients import gateway_of
from tests.pairing.conftest import KeptAlive, until
from tests.stage.processes import resident_megabytes

ROOT = new_key("root", GatewayRight)
SEND, LISTEN = new_key("web", [GatewayRight.SEND]), new_key("reader", [GatewayRight.LISTEN])
TEAM = new_key("team", [GatewayRight.MANAGE], ["orders", "team-*"])
VERSION = "api-version=2024-05"
ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{}'
    "</QueueDescription></content></entry>"
)


@dataclass
class Clock:
    """The time of day, which a test may advance."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Administered:
    """A gateway with administration, before a sandbox. trust: the file of the gateway's authority."""

    sandbox: Sandbox
    gateway: Gateway
    trust: Path
    clock: Clock
    session: aiohttp.ClientSession

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.gateway.port}"

    @property
    def primary(self) -> str:
        return f"127.0.0.1:{self.sandbox['primary'].amqp_port}"

    def client(self, key: LocalKey = ROOT) -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(
            self.gateway.connection_string(key), transport=KeptAlive(str(self.trust)), retry_total=0
        )

    async def ask(
        self, method: str, target: str, body: str | bytes = "", *, key: LocalKey = ROOT, **headers: str
    ) -> tuple[int, str, Any]:
        """Send a request over plain HTTP; return status, body and headers."""
        token = sign(f"http://{self.host}/", key.name, key.key, time.time() + 60)
        url = URL(f"http://{self.host}{target}", encoded=True)
        async with self.session.request(
            method, url, data=body or None, headers={"Authorization": token} | headers
        ) as answer:
            return answer.status, await answer.text(), answer.headers


@asynccontextmanager
async def administered(folder: Path) -> AsyncIterator[Administered]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox.start())
        one = sandbox["primary"]
        config = NamespaceConfig(
            host=f"127.0.0.1:{one.amqp_port}",
            connection_string=Secret(one.connection_string),
            ca_file=sandbox.ca_file,
        )
        requests = NamespaceRequests(config, NamespaceCredentials(config))
        certificates, clock = GatewayCertificates(folder / "gateway.tls", "127.0.0.1"), Clock()
        authority = folder / "authority.pem"
        authority.write_text(certificates.authority())
        gateway = await stack.enter_async_context(
            gateway_of(None, ROOT, SEND, LISTEN, TEAM, clock=clock, primary=requests, tls=certificates.context)
        )
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Administered(sandbox, gateway, authority, clock, session)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Administered]:
    async with administered(tmp_path) as one:
        yield one


@contextmanager
def away(place: Administered, kind: str = "refused") -> Iterator[None]:
    board = place.sandbox["primary"].node.faults
    fault = board.add(kind)
    yield
    board.remove(fault.id)


# -- every call as directly ---------------------------------------------------------------------------------------


async def test_a_client_administrates_by_its_connection_string(place: Administered) -> None:
    """With `administration = true` the gateway relays administration to the primary with the engine's credential."""
    async with place.client() as admin:
        made = await admin.create_queue("team/a", max_delivery_count=7)
        made.max_delivery_count = 9
        await admin.update_queue(made)
        assert (await admin.get_queue("team/a")).max_delivery_count == 9
        with pytest.raises(ResourceExistsError):
            await admin.create_queue("team/a")
        await admin.create_topic("news")
        await admin.create_subscription("news", "all")
        await admin.create_rule("news", "all", "more")
        assert {rule.name async for rule in admin.list_rules("news", "all")} == {"$Default", "more"}
        assert "team/a" in {queue.name async for queue in admin.list_queues()}
        assert (await admin.get_namespace_properties()).name == "primary"
        await admin.delete_queue("team/a")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("team/a")


async def test_an_entity_of_the_own_namespace_has_the_clients_host_on_both_ways(place: Administered) -> None:
    """Hosts in descriptions are the client's for the client, and the primary's for the primary."""
    async with place.client() as admin:
        await admin.create_queue("backup", forward_dead_lettered_messages_to="orders")
        direct = place.sandbox["primary"].node.namespace.queue("backup")
        assert direct.settings.forward_dead_lettered_to == "orders"
        shown = (await admin.get_queue("backup")).forward_dead_lettered_messages_to
        assert shown is not None
        assert shown.endswith(f"://{place.host}/orders")
    for scheme in ("http", "sb"):
        body = ENTRY.format(f"<ForwardTo>{scheme}://{place.host}/orders</ForwardTo>")
        status, text, _ = await place.ask("PUT", f"/by-{scheme}?{VERSION}", body)
        shown = re.search(rf"<ForwardTo>(sb|{scheme})://{place.host}/orders</ForwardTo>", text)
        assert (status, shown is not None) == (201, True)
        assert place.primary not in text


READS = (
    f"/orders?{VERSION}&enrich=False",
    f"/audit/Subscriptions/all/Rules/$Default?{VERSION}",
    f"/audit/subscriptions/all/rules?{VERSION}&$skip=0&$top=100",
    f"/$Resources/queues?{VERSION}&$top=1",
    f"/nowhere?{VERSION}",
    f"/audit/subscriptions/nowhere?{VERSION}",
    "/orders?api-version=2099-01",
)


async def test_an_answer_is_the_primarys_but_for_the_host(place: Administered) -> None:
    one = place.sandbox["primary"]
    token = sign(f"http://{place.primary}/", one.key_name, one.key, time.time() + 60)
    for target in READS:
        url = URL(f"http://{place.primary}{target}", encoded=True)
        async with place.session.get(url, headers={"Authorization": token}) as answer:
            direct = (answer.status, _plain(await answer.text(), place.primary), answer.headers.get("ETag"))
        status, text, headers = await place.ask("GET", target)
        assert (status, _plain(text, place.host), headers.get("ETag")) == direct, target


def _plain(text: str, host: str) -> str:
    """Return an answer without what differs between two: its host, its time and its ids."""
    return re.sub(
        r"<updated>[^<]*|uuid:[^;<]*|TrackingId:[^<]*",
        "",
        text.replace(host, "HOST").replace("https://HOST", "http://HOST"),
    )


async def test_plain_http_and_tls_serve_the_same(place: Administered) -> None:
    trust = ssl.create_default_context(cafile=place.trust)
    token = sign(f"https://{place.host}/", ROOT.name, ROOT.key, time.time() + 60)
    async with place.session.get(
        f"https://{place.host}/orders?{VERSION}", headers={"Authorization": token}, ssl=trust
    ) as answer:
        text = await answer.text()
    assert f"<id>https://{place.host}/orders" in text


# -- rights -------------------------------------------------------------------------------------------------------


ALLOWED = (
    (SEND, "GET", "/orders", 401),
    (SEND, "PUT", "/new", 401),
    (LISTEN, "GET", "/orders", 200),
    (LISTEN, "GET", "/audit/subscriptions/all/rules", 200),
    (LISTEN, "GET", "/$Resources/queues", 401),
    (LISTEN, "DELETE", "/orders", 401),
    (TEAM, "GET", "/orders", 200),
    (TEAM, "GET", "/team-a", 200),
    (TEAM, "GET", "/payments", 401),
    (TEAM, "GET", "/team-a/../payments", 400),
    (TEAM, "GET", "/team-a%2f..%2fpayments", 400),
    (TEAM, "GET", "/team-a/%2e%2e/payments", 400),
    (TEAM, "DELETE", "/audit/subscriptions/all", 401),
    (TEAM, "GET", "/$Resources/queues", 401),
    (TEAM, "GET", "/$namespaceinfo", 401),
    (new_key("root", GatewayRight), "GET", "/orders", 401),
    (new_key("foreign", GatewayRight), "GET", "/orders", 401),
)


async def test_a_key_does_what_its_rights_and_entities_allow(place: Administered) -> None:
    """A key needs Manage, for reads of an entity Listen; one for some entities administrates those alone."""
    for key, method, target, status in ALLOWED:
        found, text, _ = await place.ask(method, f"{target}?{VERSION}", key=key)
        assert (found, key.key in text) == (status, False), (key.name, method, target)
    assert place.sandbox["primary"].node.namespace.queue("orders") is not None


FOREIGN_TARGETS = (
    "payments",
    "sb://HOST/payments",
    "<![CDATA[payments]]>",
    "&#112;ayments",
    "pay<!-- -->ments",
    "sb://HOST/team-a/../payments",
)


async def test_a_key_for_some_entities_forwards_to_those_alone(place: Administered) -> None:
    for target in FOREIGN_TARGETS:
        body = ENTRY.format(f"<ForwardTo>{target.replace('HOST', place.host)}</ForwardTo>")
        status, _, _ = await place.ask("PUT", f"/team-a?{VERSION}", body, key=TEAM)
        assert status in (400, 401), target
    body = ENTRY.format(f"<ForwardTo>sb://{place.host}/orders</ForwardTo>")
    assert (await place.ask("PUT", f"/team-a?{VERSION}", body, key=TEAM))[0] == 201


async def test_a_supplementary_token_is_judged_and_signed_anew(place: Administered) -> None:
    body = ENTRY.format(f"<ForwardTo>sb://{place.host}/payments</ForwardTo>")
    for key, expected in ((LISTEN, 401), (SEND, 201)):
        token = sign(f"sb://{place.host}/payments", key.name, key.key, time.time() + 60)
        status, _, _ = await place.ask(
            "PUT", f"/team-a?{VERSION}", body, key=TEAM, ServiceBusSupplementaryAuthorization=token
        )
        assert status == expected


async def test_the_primarys_keys_of_an_entity_are_shown_to_manage_alone(place: Administered) -> None:
    rule = (
        '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><ClaimType>SharedAccessKey</ClaimType>'
        "<Rights><AccessRights>Listen</AccessRights></Rights><KeyName>inner</KeyName>"
        "<PrimaryKey>c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MDA=</PrimaryKey>"
        "<SecondaryKey>c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTE=</SecondaryKey>"
        "</AuthorizationRule></AuthorizationRules>"
    )
    assert (await place.ask("PUT", f"/ruled?{VERSION}", ENTRY.format(rule)))[0] == 201
    shown = [(await place.ask("GET", f"/ruled?{VERSION}", key=key))[1].count("<PrimaryKey>") for key in (ROOT, LISTEN)]
    assert shown == [1, 0]
    assert without_keys(b"<a><x:AuthorizationRules>1</x:AuthorizationRules><b/></a>") == b"<a><b/></a>"


# -- the primary is away ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["refused", "black-holed"])
async def test_primary_away_reads_are_what_was_seen_and_the_rest_is_503(
    place: Administered, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the primary is away reads are answered by what it last answered to the same read, with its age.

    The rest is answered by 503 and a sentence, which says of a change whether it may have been made.
    """
    monkeypatch.setattr(administration, "READING_SECONDS", 0.3)
    monkeypatch.setattr(administration, "ASKING_SECONDS", 0.5)
    await place.gateway.administration.read("orders")
    with away(place, kind):
        place.clock.ahead = 40.0
        status, text, headers = await place.ask("GET", f"/orders?{VERSION}&enrich=False")
        assert (status, "<QueueDescription" in text) == (200, True)
        assert 40 <= int(headers["Age"]) < 100
        for method, target, remark in (
            ("GET", "/payments", UNSEEN),
            ("PUT", "/orders", UNCHANGED),
            ("DELETE", "/orders", UNCHANGED),
            ("PUT", "/orders", UNKNOWN),
        ):
            if remark is UNKNOWN:
                place.clock.ahead += administration.AWAY_SECONDS
            status, text, headers = await place.ask(method, f"{target}?{VERSION}", ENTRY.format(""))
            assert (status, headers["Retry-After"]) == (503, "5")
            assert f"does not answer{remark}" in unescape(text)
    place.clock.ahead += administration.AWAY_SECONDS
    status, _, headers = await place.ask("GET", f"/payments?{VERSION}")
    assert (status, "Age" in headers) == (200, False)


async def test_the_answer_to_a_change_is_no_answer_to_a_read(place: Administered) -> None:
    """It is an echo without counts: a program that scales by them would find none."""
    async with place.client() as admin:
        queue = await admin.get_queue("orders")
        await admin.update_queue(queue)
        with away(place):
            assert (await place.ask("GET", f"/orders?{VERSION}"))[0] == 503
        place.clock.ahead += administration.AWAY_SECONDS
        await admin.get_queue_runtime_properties("orders")
        with away(place):
            status, text, _ = await place.ask("GET", f"/orders?{VERSION}")
            assert (status, "<CountDetails" in text) == (200, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"<Detail>internal error</Detail>", 200), (b"<Detail>the namespace is too busy</Detail>", 503)],
)
async def test_an_error_of_the_primary_is_away_and_a_pause_that_it_asks_for_is_not(body: bytes, status: int) -> None:
    primary = FakePrimary()
    primary.may_answer.set()
    async with gateway_of(None, ROOT, primary=primary) as gateway, aiohttp.ClientSession() as session:
        assert (await asked(gateway, session))[0] == 200
        primary.answer = NamespaceAnswer(503, {}, body)
        assert (await asked(gateway, session))[0] == status


async def test_the_engines_credential_that_is_refused_is_named() -> None:
    primary = FakePrimary(401, b"<Error>no Manage</Error>")
    primary.may_answer.set()
    async with gateway_of(None, ROOT, primary=primary) as gateway, aiohttp.ClientSession() as session:
        status, text = await asked(gateway, session)
    assert (status, "the primary refuses the engine's own credential: &lt;Error&gt;no Manage" in text) == (401, True)


def test_what_was_seen_is_bounded_and_ends_with_a_change() -> None:
    seen = SeenAnswers()
    entry = SeenAnswer(200, {}, b"<entry>" + bytes(300_000))

    def note(method: str, path: str, answer: SeenAnswer = entry) -> None:
        seen.note(method, f"{path}?api-version=2021-05", path, answer, 1.0)

    for number in range(200):
        note("GET", f"/q{number}")
    assert 40 < len(seen) < 60
    assert (seen.get("/q0"), seen.get("/Q199?enrich=False")) == (None, SeenAnswer(200, {}, entry.body, 1.0))
    for path in ("/t", "/t/subscriptions", "/t/subscriptions/s", "/t/Subscriptions/s/rules", "/$Resources/queues"):
        note("GET", path)
    note("DELETE", "/t/subscriptions/s", SeenAnswer(409, {}, b""))
    assert seen.get("/T/subscriptions/s/") is not None
    note("DELETE", "/t/subscriptions/s", SeenAnswer(200, {}, b""))
    gone = ("/t", "/t/subscriptions", "/t/subscriptions/s", "/t/subscriptions/s/rules", "/$resources/queues")
    assert [seen.get(path) for path in gone] == [None] * 5
    note("GET", "/empty", SeenAnswer(200, {}, b"<feed/>"))
    assert seen.get("/empty") is None


# -- off, and strangers -------------------------------------------------------------------------------------------


async def test_without_the_setting_an_answer_names_it_and_nothing_degrades() -> None:
    """Without `administration = true` the answer is 501 and names the setting."""
    async with gateway_of(None, ROOT) as gateway, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{gateway.port}/orders"
        async with session.get(url, headers={"User-Agent": "azsdk-net/7"}) as answer:
            text = await answer.text()
        assert (answer.status, "administration = true" in text) == (501, True)
        (turned,) = gateway.view(()).turned_away
        assert (turned.why, "azsdk-net/7" in turned.last_text) == (TurnedAway.REFUSED_REQUEST, True)


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;&b;">]>' + ENTRY.format(
    "<UserMetadata>&c;</UserMetadata>"
)


BAD = (
    ("PUT", "/bad", BOMB, 400),
    ("PUT", "/bad", '<!DOCTYPE a SYSTEM "file:///etc/passwd">' + ENTRY.format(""), 400),
    ("PUT", "/bad", ENTRY.format('<x:ForwardTo xmlns:x="urn:x">sb://elsewhere.example/orders</x:ForwardTo>'), 400),
    ("PUT", "/bad", ENTRY.format("<a>"), 400),
    ("PUT", "/bad", ENTRY.format("").encode("utf-16"), 400),
    ("PUT", "/bad", ENTRY.format("<ForwardTo>sb://elsewhere.example/orders</ForwardTo>"), 400),
    ("PUT", "/bad", ENTRY.format("<ForwardTo>sb:///orders</ForwardTo>"), 400),
    ("PUT", "/bad", ENTRY.format("<ForwardTo>sb://[::1/orders</ForwardTo>"), 400),
    ("PUT", "/bad", ENTRY.format("<ForwardTo><ForwardTo>orders</ForwardTo></ForwardTo>"), 400),
    ("PUT", "/bad", ENTRY.format(f"<UserMetadata>{'x' * 1024 * 1024}</UserMetadata>"), 413),
    ("POST", "/orders/messages", "x", 405),
    ("DELETE", "/orders/messages/head", "", 404),
    ("GET", "/orders//x", "", 400),
    ("GET", "/or%0d%0ax:%20y", "", 400),
)


async def test_bad_input_is_refused_with_a_sentence_and_never_relayed() -> None:
    primary = FakePrimary()
    async with gateway_of(None, ROOT, primary=primary) as gateway, aiohttp.ClientSession() as session:
        place = Administered(None, gateway, Path(), Clock(), session)  # type: ignore[arg-type]
        for method, target, body, status in BAD:
            found, text, _ = await place.ask(method, target, body)
            assert (found, "<Detail>" in text) == (status, True), (method, target, body[:300])
        assert primary.asked == 0
        (turned,) = gateway.view(()).turned_away
        assert turned.why is TurnedAway.REFUSED_REQUEST


NO_ALGORITHM = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJodHRwczovL3NlcnZpY2VidXMuYXp1cmUubmV0In0."
ENDED, FOREIGN = (
    sign("http://127.0.0.1/", ROOT.name, key, time.time() + left) for key, left in ((ROOT.key, -60), ("x", 60))
)
STRANGE_TOKENS = (
    (ENDED, "expired"),
    (FOREIGN, "InvalidSignature|signature"),
    (re.sub("sig=[^&]*", "sig=", ENDED), ""),
    (f"Bearer {NO_ALGORITHM}", "paired gateway"),
    (NO_ALGORITHM, "paired gateway"),
    ("Bearer eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJzYiJ9.c2ln", "paired gateway"),
    ("Basic cm9vdDpyb290", "paired gateway"),
)


async def test_a_token_that_proves_nothing_administrates_nothing() -> None:
    primary = FakePrimary()
    async with gateway_of(None, ROOT, primary=primary) as gateway, aiohttp.ClientSession() as session:
        place = Administered(None, gateway, Path(), Clock(), session)  # type: ignore[arg-type]
        for token, words in STRANGE_TOKENS:
            status, text, _ = await place.ask("GET", "/orders", Authorization=token)
            assert (status, re.search(words, unescape(text)) is not None) == (401, True), (token, text)
        assert primary.asked == 0


async def test_a_body_of_64_mb_is_refused_and_never_held() -> None:
    before = resident_megabytes(os.getpid())
    async with gateway_of(None, ROOT, primary=FakePrimary()) as gateway:
        token = sign(f"http://127.0.0.1:{gateway.port}/", ROOT.name, ROOT.key, time.time() + 60)
        head = f"PUT /orders HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: {token}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with suppress(ConnectionError):
            for _ in range(1024):
                writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
                await writer.drain()
        assert b" 413 " in await reader.readline()
        assert resident_megabytes(os.getpid()) - before < 32
        writer.close()


IMPOSSIBLE = (
    (b"GET /orders HTTP/1.1\r\n\r\n", b" 400 "),
    (b'GET /orders HTTP/1.1\r\nHost: a"b\r\n\r\n', b" 400 "),
    (b"GET /orders HTTP/1.1\r\nHost: \x16\x03\x01\r\n\r\n", b" 400 "),
    (b"GET /elsewhere HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b" 404 "),
    (b"GET http://other/orders HTTP/1.1\r\nHost: x\r\n\r\n", b" 40"),
    (b"PUT /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n" + bytes(1000), b" 401 "),
)


async def test_a_stranger_gets_nowhere_and_its_body_is_not_read() -> None:
    async with gateway_of(None, ROOT, primary=FakePrimary()) as gateway:
        for request, part in IMPOSSIBLE:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(request)
            assert part in await reader.readuntil(b"\r\n"), request[:80]
            writer.close()


@pytest.mark.parametrize("transport", TransportType)
async def test_an_sdk_sends_inside_tls_and_over_websockets(place: Administered, transport: TransportType) -> None:
    string = place.gateway.connection_string(ROOT).replace(";UseDevelopmentEmulator=true", "")
    async with (
        ServiceBusClient.from_connection_string(
            string,
            transport_type=transport,
            custom_endpoint_address=f"sb://localhost:{place.gateway.port}",
            connection_verify=str(place.trust),
            retry_total=0,
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
        (connection,) = place.gateway.connections
        assert (connection.tally.accepted, connection.tally.key) == (1, "root")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_tls_without_a_name_with_a_foreign_one_and_of_old_versions(
    place: Administered, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS has a certificate of the gateway's own authority; who does not trust it is told what it lacks."""
    port = place.gateway.port

    async def hello(trust: ssl.SSLContext, name: str | None) -> str:
        try:
            async with asyncio.timeout(60):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name)
        except (ssl.SSLError, ConnectionResetError) as error:
            return type(error).__name__
        writer.close()
        return "served"

    ours, old = (ssl.create_default_context(cafile=place.trust) for _ in range(2))
    nameless = ssl.create_default_context(cafile=place.trust)
    nameless.check_hostname = False
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    assert await hello(ours, "localhost") == "served"
    assert await hello(nameless, "") == "served"
    assert await hello(ours, "contoso.servicebus.windows.net") == "SSLCertVerificationError"
    assert await hello(ssl.create_default_context(), "localhost") == "SSLCertVerificationError"
    assert await hello(old, "localhost") in ("SSLError", "ConnectionResetError")
    await until(lambda: "'paired gateway --ca' prints" in caplog.text)
    (turned,) = place.gateway.view(()).turned_away
    assert turned.why is TurnedAway.WRONG_PROTOCOL


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_websocket_carries_amqp_and_frames_that_lie_end_it_alone(place: Administered, encrypted: bool) -> None:
    trust = ssl.create_default_context(cafile=place.trust) if encrypted else None
    request = (
        "GET /$servicebus/websocket/ HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    )
    frames = {
        b"\x82\x88\0\0\0\0" + SASL_HEADER: b"\x82",
        b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0AMQP": b"\x88",
        b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0AMQP": b"\x88",
        b"\x81\x84\0\0\0\0AMQP": b"\x88",
    }
    for frame, first in frames.items():
        reader, writer = await asyncio.open_connection("127.0.0.1", place.gateway.port, ssl=trust)
        writer.write(request.encode() + frame)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(1) == first
        writer.close()
    await until(lambda: not place.gateway.connections)


def test_only_addresses_of_the_primary_are_written_anew() -> None:
    hosts = AnswerHosts("contoso.servicebus.windows.net")
    body = (
        b'<id>https://contoso.servicebus.windows.net/q</id><link rel="self" href="https://Contoso.servicebus.windows.net'
        b':443/q?a=1"/><UserMetadata>https://contoso.servicebus.windows.net/q</UserMetadata>'
        b"<ForwardTo>https://contoso.servicebus.windows.net/b</ForwardTo><id>https://contoso.servicebus.windows.net.x/</id>"
    )
    assert hosts.to_client(body, "http", "127.0.0.1:5672") == (
        b'<id>http://127.0.0.1:5672/q</id><link rel="self" href="http://127.0.0.1:5672/q?a=1"/>'
        b"<UserMetadata>https://contoso.servicebus.windows.net/q</UserMetadata>"
        b"<ForwardTo>http://127.0.0.1/b</ForwardTo><id>https://contoso.servicebus.windows.net.x/</id>"
    )


def test_an_element_that_names_an_entity_is_found_in_any_form() -> None:
    dead = b"<ForwardDeadLetteredMessagesTo>d<![CDATA[e]]></ForwardDeadLetteredMessagesTo>"
    body = b"<a xmlns:s='u'><s:ForwardTo x='>'> b&amp;c </s:ForwardTo><ForwardTo/>" + dead + b"</a>"
    found = forwards_of(body)
    assert [(one.name, one.text) for one in found] == [
        ("ForwardTo", "b&c"),
        ("ForwardTo", ""),
        ("ForwardDeadLetteredMessagesTo", "de"),
    ]
    assert [body[one.start : one.end] for one in found] == [b" b&amp;c ", b"", b"d<![CDATA[e]]>"]


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("/orders", "orders"),
        ("/a%2Fb/c", "a/b/c"),
        ("/t/Subscriptions/s", "t/subscriptions/s"),
        ("/a/t/subscriptions/s/Rules/r", "a/t/subscriptions/s"),
        ("/t/subscriptions", "t"),
        ("/", None),
        ("/$Resources/topics", None),
    ],
)
def test_a_url_names_the_entity_that_a_key_is_for(path: str, entity: str | None) -> None:
    assert AdministeredResource.at(path).entity == entity


def test_messages_are_no_administration() -> None:
    for path in ("/q/messages", "/q/messages/head", "/q/messages/1/token"):
        with pytest.raises(AdministrationRefusal):
            AdministeredResource.at(path)


class FakePrimary:
    """A primary that answers when it may."""

    authority = "contoso.example"

    def __init__(self, status: int = 200, body: bytes = b"<entry/>") -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0
        self.answer = NamespaceAnswer(status, {}, body)

    async def authorization(self) -> str:
        return "Bearer x"

    async def send(self, *_: object, **__: object) -> NamespaceAnswer:
        self.asked += 1
        await self.may_answer.wait()
        return self.answer

    async def close(self) -> None:
        """Nothing is open."""


async def asked(gateway: Gateway, session: aiohttp.ClientSession) -> tuple[int, str]:
    token = sign(f"http://127.0.0.1:{gateway.port}/", ROOT.name, ROOT.key, time.time() + 60)
    url = f"http://127.0.0.1:{gateway.port}/orders"
    async with session.get(url, headers={"Authorization": token}) as answer:
        return answer.status, await answer.text()


async def test_requests_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "MAX_RELAYED", 2)
    primary = FakePrimary()
    async with gateway_of(None, ROOT, primary=primary) as gateway, aiohttp.ClientSession() as session:
        waiting = [asyncio.ensure_future(asked(gateway, session)) for _ in range(2)]
        while primary.asked < 2:
            await asyncio.sleep(0.01)
        assert (await asked(gateway, session))[0] == 503
        primary.may_answer.set()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200]


async def test_a_refused_key_is_an_error_of_authorization(place: Administered) -> None:
    async with place.client(SEND) as admin:
        with pytest.raises(ClientAuthenticationError, match="lacks the right"):
            await admin.get_queue("orders")


async def test_a_host_is_in_the_strings_and_in_the_certificate(tmp_path: Path) -> None:
    certificates = GatewayCertificates(tmp_path / "gateway.tls", "127.0.0.1", host="orders.example")
    authority = tmp_path / "authority.pem"
    authority.write_text(certificates.authority())
    assert connection_string(ROOT, None, host="orders.example").startswith("Endpoint=sb://orders.example/;")
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=await certificates.context())
    async with server:
        port, trusted = server.sockets[0].getsockname()[1], ssl.create_default_context(cafile=authority)
        for name in ("orders.example", "127.0.0.1"):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=name)
            writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="other.example")
