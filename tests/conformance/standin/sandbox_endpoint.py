"""Where the sandbox is, for tests that were written for Azure, and what SDK clients are told so that they find it.

The environment names it: SANDBOX_NAMESPACE, SANDBOX_HOST_PORT, SANDBOX_KEY_NAME, SANDBOX_KEY, SANDBOX_CA,
SANDBOX_CONTROL and SANDBOX_ARM; SANDBOX_GATEWAY if a gateway has the address. Only public constructor arguments are
added, and only where a test gives none of its own: `use_tls=False` to messaging clients; to those that are about TLS or
WebSocket the address and the authority instead; `connection_verify` to administration clients. A gateway gets its key
in place of bearer tokens.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import certifi
from azure.core.credentials import AzureNamedKeyCredential
from azure.mgmt.servicebus import ServiceBusManagementClient
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential  # administration knows no other key
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio._base_handler_async import (
    ServiceBusSharedKeyCredential as AsyncServiceBusSharedKeyCredential,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential, SandboxCredential

NAMESPACE = os.environ["SANDBOX_NAMESPACE"]
HOST, _, PORT = os.environ["SANDBOX_HOST_PORT"].partition(":")
KEY_NAME = os.environ["SANDBOX_KEY_NAME"]
KEY = os.environ["SANDBOX_KEY"]
CA_FILE = os.environ["SANDBOX_CA"]
CONTROL_URL = os.environ["SANDBOX_CONTROL"]
ARM_URL = os.environ["SANDBOX_ARM"]
IS_GATEWAY = "SANDBOX_GATEWAY" in os.environ

ENDPOINT_SUFFIX = f":{PORT}"
"""Tests write a namespace's name and this behind it."""

HOST_PORT = HOST + ENDPOINT_SUFFIX
_TLS_ARGUMENTS = ("ssl_context", "connection_verify", "use_tls")


def connection_string() -> str:
    secret = f"SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"
    return f"Endpoint=sb://{HOST_PORT}/;{secret};UseDevelopmentEmulator=true"


def named_values() -> dict[str, str]:
    """What Azure's deployment of the tests' resources would put out."""
    return {
        "servicebus_connection_str": connection_string(),
        "servicebus_fully_qualified_namespace": HOST_PORT,
        "servicebus_sas_policy": KEY_NAME,
        "servicebus_sas_key": KEY,
    }


def credential(*, is_async: bool = False) -> object:
    """Bearer tokens with every right, as azure-identity's credentials give them."""
    return (AsyncSandboxCredential if is_async else SandboxCredential)(CONTROL_URL, "Data Owner")


def administration() -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient(HOST_PORT, credential())


def resource_manager() -> ServiceBusManagementClient:
    return ServiceBusManagementClient(credential(), "sandbox", base_url=ARM_URL, connection_verify=CA_FILE)


def point_the_sdk_here() -> None:
    """Give the four kinds of clients their defaults, and trust the sandbox's authority where certifi is asked."""
    for client in (ServiceBusClient, AsyncServiceBusClient):
        _add_defaults(client, _messaging_defaults, AzureNamedKeyCredential(KEY_NAME, KEY))
    for admin, key in (
        (ServiceBusAdministrationClient, ServiceBusSharedKeyCredential(KEY_NAME, KEY)),
        (AsyncServiceBusAdministrationClient, AsyncServiceBusSharedKeyCredential(KEY_NAME, KEY)),
    ):
        _add_defaults(admin, lambda _: {"connection_verify": CA_FILE}, key)
    certifi.where = lambda: CA_FILE


def _messaging_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Plain TCP, and TLS where a test or a connection string without the emulator's flag asks for it."""
    if "custom_endpoint_address" in given or given.get("use_tls") is False:
        return {}
    is_websocket = given.get("transport_type") is TransportType.AmqpOverWebsocket
    if not is_websocket and not any(name in given for name in _TLS_ARGUMENTS):
        return {"use_tls": False}
    trust = {} if "ssl_context" in given else {"connection_verify": CA_FILE}
    return {"custom_endpoint_address": f"sb://{HOST_PORT}", "transport_type": TransportType.Amqp, **trust}


def _add_defaults(client: type, defaults: Callable[[dict[str, Any]], dict[str, Any]], key: object) -> None:
    original = client.__init__

    @functools.wraps(original)
    def initialize(self: object, *args: Any, **given: Any) -> None:
        named = dict(zip(("fully_qualified_namespace", "credential"), args, strict=False)) | given
        is_bearer = isinstance(named["credential"], SandboxCredential | AsyncSandboxCredential)
        original(self, **{**defaults(named), **named, **({"credential": key} if IS_GATEWAY and is_bearer else {})})

    client.__init__ = initialize
