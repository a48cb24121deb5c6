"""SDK clients from a pairing.toml, their transport and their credentials.

The clients do not retry: the pairing owns all deadlines (SPEC.md section 3).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from azure.core import AzureClouds
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.config import CredentialKind, NamespaceConfig, PairingConfig, load_config
from paired_servicebus.connection_string import Parts, parts_of
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.verdict import CREDENTIALS, Judge, Judgement, judge
from paired_servicebus.pairing import ArmAdmin
from paired_servicebus.pairing.amqp_client.endpoint import KEY_SECONDS, tls_context
from paired_servicebus.pairing.management.management_port import AtomAdmin, TopicManagement
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from paired_servicebus.secret import Secret
from servicebus_amqp.access import sign

# HTTP transport of management clients and identities: proxies, and request signing.
#
# A proxy's password stays out of its URL, because errors of lower layers quote URLs. The transport signs each request,
# because the Atom client signs only once an hour and would miss a changed key.

_NEVER: Final = 253402300799


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """An HTTP proxy: its address, user and password."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: Secret) -> HttpProxy:
        """Parse a URL that load_config has checked."""
        parts = urlsplit(url.reveal())
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, parts.hostname or "", parts.port or 0, user, password)

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return (
            f"{self.scheme}://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.scheme}://{self.host}:{self.port}"
        )

    def authorization(self) -> str:
        """Return the Proxy-Authorization header."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def for_messaging(self) -> dict[str, Any]:
        """Return the proxy options of the SDK's messaging clients; the asynchronous ones need a scheme in the host."""
        named: dict[str, Any] = {"proxy_hostname": self.url.rpartition(":")[0], "proxy_port": self.port}
        return named | ({"username": self.user, "password": self.password} if self.user else {})


class HttpTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core looks it up when it is first asked for
    """azure-core's HTTP transport.

    Args:
        ca_file: certificate authorities to trust in place of the usual ones.
        proxy: where to go through.
        authorization: gives the Authorization header of each request, in place of the client's.
    """

    def __init__(
        self,
        *,
        ca_file: Path | None = None,
        proxy: Secret | None = None,
        authorization: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(**({"connection_verify": str(ca_file)} if ca_file is not None else {}))
        self._proxy = HttpProxy.of(proxy) if proxy is not None else None
        self._authorization = authorization

    async def send(self, request: Any, **options: Any) -> Any:
        """Send one request."""
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization()
        if self._proxy is not None:
            options["proxy"] = self._proxy.url
            if self._proxy.user:
                options["proxy_headers"] = {"Proxy-Authorization": self._proxy.authorization()}
        return await super().send(request, **options)


class UnsignedCredential:
    """A credential for clients that require one; the transport signs instead."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return an empty token, which the transport replaces."""
        return AccessToken("", _NEVER)

    async def close(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


# Credentials of one namespace: a key, a signature or an identity, each renewed in place.
#
# The SDK's clients keep these objects for their lifetime and ask them for each new token. A changed key therefore
# applies from the next link on, and no client is replaced. Only this module reveals secrets.
#
# The reloader reads pairing.toml and its files every few seconds, and immediately after a namespace refuses a
# credential. A change of any other setting is reported once and needs a restart. So does a secret from the environment,
# which cannot change in a running process.


_SIGNATURE: Final = "SharedAccessSignature "


# -- identities ----------------------------------------------------------------------------------------------------


def _default(namespace: NamespaceConfig) -> dict[str, Any]:
    """Return the options of an identity; a client id chooses among those assigned to a machine or workload."""
    named = {"managed_identity_client_id": namespace.client_id, "workload_identity_client_id": namespace.client_id}
    return {"authority": namespace.authority} | named


def _client_secret(namespace: NamespaceConfig) -> dict[str, Any]:
    assert namespace.client_secret is not None, "checked when pairing.toml was read"
    return {
        "tenant_id": namespace.tenant,
        "client_id": namespace.client_id,
        "client_secret": namespace.client_secret.reveal(),
        "authority": namespace.authority,
        "transport": HttpTransport(proxy=namespace.proxy) if namespace.proxy is not None else None,
    }


CREDENTIAL_CLASSES: Final[dict[CredentialKind, tuple[str, Callable[[NamespaceConfig], dict[str, Any]]]]] = {
    "default": ("DefaultAzureCredential", _default),
    "managed": ("ManagedIdentityCredential", lambda namespace: {"client_id": namespace.client_id}),
    "cli": ("AzureCliCredential", lambda namespace: {"tenant_id": namespace.tenant}),
    "client-secret": ("ClientSecretCredential", _client_secret),
}
"""The azure-identity class of each name in pairing.toml, and its arguments; None leaves an argument to the class.

Only a client secret goes to the authority through our proxy. A machine's identity has an address that no proxy reaches.
DefaultAzureCredential uses both, and follows HTTPS_PROXY and NO_PROXY.
"""


def _make(namespace: NamespaceConfig) -> AsyncTokenCredential:
    from azure.identity import aio as identity  # slow to import, and holders of keys don't need it

    name, options = CREDENTIAL_CLASSES[namespace.credential]
    given = {key: value for key, value in options(namespace).items() if value is not None}
    made: AsyncTokenCredential = getattr(identity, name)(**given)
    return made


class RenewableIdentity:
    """A credential of azure-identity that can be replaced."""

    def __init__(self, namespace: NamespaceConfig) -> None:
        self.current = _make(namespace)
        self._past: list[AsyncTokenCredential] = []

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token of the current credential."""
        return await self.current.get_token(*scopes, **options)

    def renew(self, namespace: NamespaceConfig) -> None:
        """Replace the credential. The old one is closed at the end, because a request may still use it."""
        made = _make(namespace)
        self._past.append(self.current)
        self.current = made

    async def close(self) -> None:
        """Close every credential used so far."""
        for credential in (*self._past, self.current):
            await credential.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


# -- one namespace -------------------------------------------------------------------------------------------------


class NamespaceCredentials:
    """The credential of one namespace. Contacts no service when made; `close` it after its clients."""

    def __init__(self, namespace: NamespaceConfig) -> None:
        self._namespace = namespace
        parts = _parts(namespace)
        self.key = AzureNamedKeyCredential(*_key(parts)) if _has_key(parts) else None
        self.signature = AzureSasCredential(_signature(parts)) if parts and self.key is None else None
        self.identity = RenewableIdentity(namespace) if not parts or namespace.management == "arm" else None
        """For messaging where there is neither key nor signature, and for ARM in any case."""

    @property
    def credential(self) -> AzureNamedKeyCredential | AzureSasCredential | RenewableIdentity:
        """The credential for the SDK's messaging clients."""
        return self.key or self.signature or self.of_identity()

    def renew(self, namespace: NamespaceConfig) -> str:
        """Apply the credentials of new settings; return their names, empty if all are unchanged.

        Ignores settings other than key, signature and identity. A key cannot replace a signature.

        Raises:
            ValueError: azure-identity does not accept the settings; the identity stays unchanged.
        """
        before, parts = self._namespace, _parts(namespace)
        renewed = []
        if parts != _parts(before):
            if self.key is not None and _has_key(parts):
                self.key.update(*_key(parts))
                renewed.append("the key")
            elif self.signature is not None and parts and not _has_key(parts):
                self.signature.update(_signature(parts))
                renewed.append("the signature")
        if self.identity is not None and _identity(namespace) != _identity(before):
            self.identity.renew(namespace)
            renewed.append("the identity")
        self._namespace = namespace
        return " and ".join(renewed)

    def signing(self, audience: str) -> Callable[[], str] | None:
        """Return the function that makes each management request's Authorization header; None for an identity."""
        if self.key is not None:
            key = self.key
            return lambda: sign(audience, *key.named_key, time.time() + KEY_SECONDS)
        if self.signature is not None:
            signature = self.signature
            return lambda: signature.signature
        return None

    def of_identity(self) -> RenewableIdentity:
        """Return the identity, for clients that accept nothing else."""
        assert self.identity is not None, "there is one where nothing else is, and for ARM"
        return self.identity

    async def close(self) -> None:
        """Close the identity's connections."""
        if self.identity is not None:
            await self.identity.close()


def without_credentials(namespace: NamespaceConfig) -> NamespaceConfig:
    """Return the settings without all that `NamespaceCredentials.renew` can apply."""
    parts = _parts(namespace)
    kind = ("key" if _has_key(parts) else "signature") if parts else ""
    plain = replace(namespace, connection_string=None, tenant=kind, client_id=None, client_secret=None, authority=None)
    return replace(plain, credential="default")


def _identity(namespace: NamespaceConfig) -> tuple[object, ...]:
    secret = namespace.client_secret.reveal() if namespace.client_secret is not None else None
    return (namespace.credential, namespace.tenant, namespace.client_id, secret, namespace.authority)


def _parts(namespace: NamespaceConfig) -> Parts:
    return parts_of(namespace.connection_string.reveal()) if namespace.connection_string is not None else {}


def _has_key(parts: Mapping[str, str]) -> bool:
    return "sharedaccesskey" in parts and "sharedaccesskeyname" in parts


def _key(parts: Parts) -> tuple[str, str]:
    return parts["sharedaccesskeyname"], parts["sharedaccesskey"]


def _signature(parts: Parts) -> str:
    text = parts["sharedaccesssignature"]
    return text if text.startswith(_SIGNATURE) else _SIGNATURE + text


RELOAD_INTERVAL: Final = 5.0
"""Seconds between two readings of the files."""
MIN_RELOAD_INTERVAL: Final = 1.0
"""Seconds between two readings at least, however often a namespace refuses us."""


class CredentialReloader:
    """Reads the settings again while `run` runs.

    Args:
        config: the engine's settings at its start.
        primary, secondary: the credentials to renew.
        say: receives a sentence about each renewal or failure.
    """

    def __init__(
        self,
        config: PairingConfig,
        primary: NamespaceCredentials,
        secondary: NamespaceCredentials,
        say: Callable[[str], object],
    ) -> None:
        self._config = config
        self._sides = {"primary": primary, "secondary": secondary}
        self._say = say
        self._hurry = asyncio.Event()
        self._said = ""

    async def run(self) -> None:
        """Read and renew until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELOAD_INTERVAL - MIN_RELOAD_INTERVAL):
                    await self._hurry.wait()
            self._hurry.clear()
            await self.read()
            await asyncio.sleep(MIN_RELOAD_INTERVAL)

    async def read(self) -> None:
        """Read the files once, beside the event loop: they may lie on a slow disk."""
        try:
            found = await asyncio.to_thread(load_config, self._config.path)
            self._apply(found)
        except (ConfigurationError, ValueError) as error:
            self._say_once(f"{error}; the engine continues with its present settings")

    def judging(self, rules: Judge = judge) -> Judge:
        """Wrap `rules`: reload the files soon after a namespace refuses a credential."""

        def judged(error: BaseException) -> Judgement:
            judgement = rules(error)
            if judgement.kind in CREDENTIALS:
                self._hurry.set()
            return judgement

        return judged

    def _apply(self, found: PairingConfig) -> None:
        for side, access in self._sides.items():
            renewed = access.renew(getattr(found, side))
            if renewed:
                text = f"{renewed} of the {side} namespace was renewed; links use it from when they next open"
                log.info("%s", text)
                self._say(text)
        if _restart_settings(found) == _restart_settings(self._config):
            self._said = ""
        else:
            self._say_once(
                f"{found.path} was changed, and not only its credentials: restart the engine to apply the rest"
            )

    def _say_once(self, text: str) -> None:
        if text != self._said:
            log.warning("%s", text)
            self._say(text)
        self._said = text


def _restart_settings(config: PairingConfig) -> PairingConfig:
    """Return the settings that need a new engine when they change."""
    return replace(config, primary=without_credentials(config.primary), secondary=without_credentials(config.secondary))


CLOUDS: Final = {
    "login.microsoftonline.us": AzureClouds.AZURE_US_GOVERNMENT,
    "login.chinacloudapi.cn": AzureClouds.AZURE_CHINA_CLOUD,
}
"""Authorities of clouds with their own Resource Manager; others use AZURE_SDK_CLOUD_CONF, else the public cloud."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceClients:
    """The clients and credentials of both namespaces."""

    primary: ServiceBusClient
    secondary: ServiceBusClient
    secondary_admin: TopicManagement
    primary_credentials: NamespaceCredentials
    secondary_credentials: NamespaceCredentials


@asynccontextmanager
async def open_clients(config: PairingConfig) -> AsyncIterator[NamespaceClients]:
    """Open clients for both namespaces; close each within CLOSING seconds at the end.

    Raises:
        ConfigurationError: a setting that the SDK does not accept.
    """
    async with AsyncExitStack() as stack:
        try:
            primary, secondary = (_access(namespace, stack) for namespace in (config.primary, config.secondary))
            clients = NamespaceClients(
                primary=_client(config.primary, primary, stack),
                secondary=_client(config.secondary, secondary, stack),
                secondary_admin=_management(config.secondary, secondary, stack),
                primary_credentials=primary,
                secondary_credentials=secondary,
            )
        except ValueError as error:
            raise ConfigurationError(f"{config.path}: the SDK does not accept these settings: {error}") from error
        yield clients


@asynccontextmanager
async def open_admin(namespace: NamespaceConfig) -> AsyncIterator[TopicManagement]:
    """Open the management client of one namespace.

    Raises:
        ConfigurationError, ValueError: a setting that the SDK does not accept.
    """
    async with AsyncExitStack() as stack:
        yield _management(namespace, _access(namespace, stack), stack)


def _access(namespace: NamespaceConfig, stack: AsyncExitStack) -> NamespaceCredentials:
    access = NamespaceCredentials(namespace)
    stack.push_async_callback(close_quietly, access.close, f"the credential for {namespace.host}")
    return access


def _client(namespace: NamespaceConfig, access: NamespaceCredentials, stack: AsyncExitStack) -> ServiceBusClient:
    websocket = namespace.transport == "websocket" or namespace.proxy is not None  # the SDK's only way through a proxy
    plain = namespace.emulated and not websocket
    options: dict[str, Any] = {
        "retry_total": 0,
        "use_tls": not plain,
        "transport_type": TransportType.AmqpOverWebsocket if websocket else TransportType.Amqp,
    }
    if namespace.proxy is not None:
        options["http_proxy"] = HttpProxy.of(namespace.proxy).for_messaging()
    if namespace.custom_endpoint is not None:
        options["custom_endpoint_address"] = namespace.custom_endpoint
    elif websocket and namespace.emulated:
        options["custom_endpoint_address"] = f"sb://{namespace.host}"
    options["ssl_context"] = _tls_context(None if plain else namespace.ca_file)
    host = namespace.host if plain or not namespace.emulated else _without_port(namespace.host)
    client = ServiceBusClient(host, access.credential, **options)
    stack.push_async_callback(close_quietly, client.close, f"the client of {namespace.host}")
    return client


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return tls_context(ca_file)
    except OSError as error:
        raise ConfigurationError(f"ca_file {ca_file} cannot be used as certificates in PEM: {error}") from error


def _without_port(host: str) -> str:
    """Return a distinct name for each sandbox on a machine: over TLS the SDK drops the port."""
    return host.strip("[]").replace("]", "").replace(":", "-")


def _management(namespace: NamespaceConfig, access: NamespaceCredentials, stack: AsyncExitStack) -> TopicManagement:
    management = _arm(namespace, access) if namespace.management == "arm" else _atom(namespace, access)
    stack.push_async_callback(close_quietly, management.close, f"the management client of {namespace.host}")
    return management


def _atom(namespace: NamespaceConfig, access: NamespaceCredentials) -> AtomAdmin:
    sign = access.signing(f"https://{namespace.host}")
    transport = HttpTransport(ca_file=namespace.ca_file, proxy=namespace.proxy, authorization=sign)
    credential = UnsignedCredential() if sign is not None else access.of_identity()
    client = ServiceBusAdministrationClient(namespace.host, credential, transport=transport, retry_total=0)
    return AtomAdmin(client)


def _arm(namespace: NamespaceConfig, access: NamespaceCredentials) -> ArmAdmin:
    from azure.mgmt.servicebus.aio import ServiceBusManagementClient  # slow to import, and most use Atom

    client = ServiceBusManagementClient(
        access.of_identity(),
        namespace.subscription or "",
        namespace.arm_url,
        cloud_setting=CLOUDS.get(namespace.authority or ""),
        transport=HttpTransport(ca_file=namespace.ca_file, proxy=namespace.proxy),
        retry_total=0,
    )
    name = namespace.name or namespace.host.split(".", 1)[0]
    return ArmAdmin(client, resource_group=namespace.resource_group or "", namespace=name)


async def close_quietly(close: Callable[[], Awaitable[None]], what: str) -> None:
    """Close an SDK object within CLOSING seconds; log a failure."""
    try:
        await bounded(close(), CLOSING, f"closing {what}")
    except (AzureError, OSError, TimeoutError) as error:
        log.warning("%s was not closed cleanly: %s", what, error)
