"""The name of a namespace. Its backlog queues carry it, so every program that pairs it has to find the same one.

The rule (SPEC.md section 4.1): the configured name, else the name that the namespace reports, else the first label of
its host. A host may be an alias or an address, whose first label is not the namespace's name.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Final
from xml.etree import ElementTree

import aiohttp
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.pairing.amqp_client.endpoint import SAS, Endpoint, proxy_authorization, tls_context, token_for
from paired_servicebus.pairing.runtime.deadlines import bounded

NAME_SECONDS: Final = 5.0
"""Seconds in which a namespace has to report its name."""
MAX_ANSWER_BYTES: Final = 64 * 1024
_ADDRESS: Final = "/$namespaceinfo?api-version=2021-05"
_NAME: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}Name"
_USABLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

log = logging.getLogger(__name__)


def name_of(host: str, *, configured: str | None = None, reported: str = "") -> str:
    """Apply the rule. `reported`: by the namespace; empty if it does not report."""
    return configured or reported or first_label(host)


def alias_remark(host: str, reported: str) -> str:
    """Return a sentence if the reported name differs from the host's first label; else ""."""
    label = first_label(host)
    if not reported or reported.casefold() == label.casefold():
        return ""
    return (
        f"the namespace behind {host} is called {reported}: its backlog queues are named after {reported}, and not "
        f"after {label}"
    )


def host_of(client: ServiceBusClient) -> str:
    """Return the host of a client's namespace, with its port if it has one."""
    return client.fully_qualified_namespace.rstrip("/")


async def reported_name(client: ServiceBusClient) -> str:
    """Read the name from a client's namespace, with the client's own credential; "" if it is not reported.

    A credential with Send only is refused, which is no fault. No connection stays open.
    """
    try:
        return await bounded(_ask(Endpoint.of(client)), NAME_SECONDS, "asking a namespace for its name")
    except (WireError, OSError, TimeoutError, aiohttp.ClientError, ElementTree.ParseError) as error:
        log.debug("%s does not report its name: %s", host_of(client), type(error).__name__)
        return ""


async def _ask(endpoint: Endpoint) -> str:
    address = f"https://{endpoint.namespace}{_ADDRESS}"
    token = await token_for(endpoint.credential, address, now=time.time())
    proxy = endpoint.proxy
    trust = endpoint.context
    if trust is None:  # management uses TLS, also where messaging does not
        trust = await asyncio.to_thread(tls_context, endpoint.ca_file)
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            address,
            headers={"Authorization": token.text if token.kind == SAS else f"Bearer {token.text}"},
            ssl=trust,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy_authorization(proxy) if proxy else None,
            allow_redirects=False,
        ) as answer,
    ):
        answer.raise_for_status()
        return _read(await answer.content.read(MAX_ANSWER_BYTES))


def _read(answer: bytes) -> str:
    if b"<!DOCTYPE" in answer:
        raise ElementTree.ParseError("a description of a namespace declares no document type")
    name = (ElementTree.fromstring(answer).findtext(f".//{_NAME}") or "").strip()
    return name if _USABLE.fullmatch(name) else ""
