"""Attacks on a sandbox's port, drawn at random: what a hostile or broken client may send, on every entry there is."""

from __future__ import annotations

import ssl
import time
from contextlib import suppress

import aiohttp
from tests.sandbox.frame_attacks import Client, FrameAttacker, conversation
from yarl import URL

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.frames import SASL_HEADER
from servicebus_sandbox import Sandbox

__all__ = ["Attacker", "Client"]

ENTITIES = ("<x/>", "", "<a>" * 20_000, '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "<a", "\x00", "<entry/>", "ä" * 999)
DESCRIPTIONS = (
    "<LockDuration>-PT1S</LockDuration>",
    "<DefaultMessageTimeToLive>-PT5M</DefaultMessageTimeToLive>",
    "<DefaultMessageTimeToLive>soon</DefaultMessageTimeToLive>",
    "<MaxDeliveryCount>99999999999999999999</MaxDeliveryCount>",
    "<MaxSizeInMegabytes>-1</MaxSizeInMegabytes>",
    "<RequiresSession>perhaps</RequiresSession>",
    "<Nonsense/>",
    "<ForwardTo>sb://nowhere/x</ForwardTo>",
)
FILTERS = (
    "",
    "a =",
    "(" * 900,
    "a LIKE 'x",
    "1 = 1 AND",
    "NOT " * 900 + "TRUE",
    "x IN (",
    "\x01",
    "a = 1 OR " * 900 + "b = 2",
)

NO_HTTP = (
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET " + b"/x" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: \xff\r\nAuthorization: SharedAccessSignature sr=\xff\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000 + b"\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n" + bytes(9000),
    b"GET /$namespaceinfo HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00%ff%2e%2e/..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n" + bytes(50),
)
NO_JSON = (
    "",
    "{",
    "[" * 100_000,
    "null",
    "[]",
    '{"properties": 7}',
    '{"sku": []}',
    '{"role": {}}',
    '"\\ud800"',
    "1e999",
    "{}",
)


class Attacker(FrameAttacker):
    """Draws attacks on the namespace `primary`."""

    def __init__(self, sandbox: Sandbox, seed: int, token_for_arm: str) -> None:
        self.sandbox = sandbox
        self.namespace = sandbox["primary"]
        self.token_for_arm = token_for_arm
        super().__init__(
            self.namespace.amqp_port,
            seed,
            audience=f"{self.namespace.endpoint}/",
            key_name=self.namespace.key_name,
            key=self.namespace.key,
            tls=ssl.create_default_context(cafile=sandbox.ca_file),
        )
        self.attacks += (self.bad_http, self.bad_json, self.bad_xml, self.bad_rules, self.bad_websocket)

    # ------------------------------------------------------------------ attacks on HTTP

    async def bad_http(self) -> None:
        """On the namespace's port, ARM's and the control URL's."""
        ports = self.namespace.amqp_port, URL(self.sandbox.arm_url).port, URL(self.sandbox.control_url).port
        port = self.draw.choice(ports)
        await self.sent(self.draw.choice(NO_HTTP), encrypted=port != ports[2] and self.flip(), port=port)

    async def bad_json(self) -> None:
        """To ARM, with a good token, and to the control URL."""
        body = self.draw.choice(NO_JSON)
        at = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/primary"
        path = self.draw.choice(("", "/queues/new", "/topics/a~b/subscriptions/c", "/authorizationRules/x", "/x/y"))
        headers = {"Authorization": f"Bearer {self.token_for_arm}", "Content-Type": "application/json"}
        version = self.draw.choice(("2026-01-01", "2021-11-01", "9999-01-01", "x", ""))
        await self.asked("PUT", f"{self.sandbox.arm_url}{at}{path}?api-version={version}", body, headers)
        await self.asked(
            "POST", f"{self.sandbox.control_url}/{self.draw.choice(('tokens', 'x', 'faults/x'))}", body, {}
        )

    async def asked(self, method: str, url: str, body: str, headers: dict[str, str]) -> int:
        """The status of a request that is answered, and not by a mistake of the server's."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, URL(url, encoded=True), data=body.encode(), headers=headers, ssl=self.tls
            ) as answer,
        ):
            await answer.read()
            assert answer.status < 500 or answer.status == 501, f"{method} {url} {body[:200]!r}: {answer.status}"
            return answer.status

    async def managed(self, method: str, path: str, body: str) -> int:
        """A request to the namespace with a good token; the status."""
        url = self.namespace.admin_url
        token = sign(url, self.namespace.key_name, self.namespace.key, time.time() + 600)
        return await self.asked(method, f"{url}{path}", body, {"Authorization": token})

    async def bad_xml(self) -> None:
        kind = self.draw.choice(("Queue", "Topic", "Subscription", "Rule", "Nonsense"))
        inside = "".join(self.draw.sample(DESCRIPTIONS, 2))
        body = self.draw.choice((*ENTITIES, _entry(kind, inside), _entry(kind, inside)))
        path = self.draw.choice(
            ("/new", "/feed/subscriptions/new", "/feed", "/$nothing", "//", "/a%2F%2Fb", "/" + "a" * 999)
        )
        await self.managed(
            "PUT", f"{path}?api-version={self.draw.choice(('2021-05', '2017-04', '9999-01', 'x'))}", body
        )
        await self.managed("GET", f"/$Resources/queues?$skip={self.draw.choice(('-1', 'x', '9' * 99))}", "")

    async def bad_rules(self) -> None:
        sql = self.draw.choice(FILTERS).replace("<", "&lt;").replace("\x01", "&#1;")
        kind = self.draw.choice(("SqlFilter", "CorrelationFilter", "TrueFilter", "NoFilter"))
        xsi = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
        body = _entry("Rule", f'<Filter {xsi} i:type="{kind}"><SqlExpression>{sql}</SqlExpression></Filter>')
        await self.managed("PUT", "/feed/subscriptions/all/rules/new?api-version=2021-05", body)
        await self.managed("DELETE", "/feed/subscriptions/all/rules/new?api-version=2021-05", "")

    async def bad_websocket(self) -> None:
        url = f"{self.namespace.admin_url}/$servicebus/websocket"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, protocols=("AMQPWSB10",), ssl=self.tls) as socket,
        ):
            with suppress(ConnectionError):
                for _ in range(self.draw.randrange(1, 5)):
                    await socket.send_bytes(
                        self.draw.choice((conversation(), self.draw.randbytes(2000), SASL_HEADER, b""))
                    )
                if self.flip():
                    await socket.send_str("text")
            with suppress(TimeoutError):
                await socket.receive(0.1)
            if self.flip() and socket._response.connection is not None:
                socket._response.connection.transport.abort()


def _entry(kind: str, inside: str) -> str:
    space = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    content = f'<{kind}Description xmlns="{space}">{inside}</{kind}Description>'
    return f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{content}</content></entry>'
