"""Credentials of one namespace: a key, a signature or an identity, each renewed in place.

The SDK's clients keep these objects for their lifetime and ask them for each new token. A changed key therefore applies
from the next link on, and no client is replaced. Only this module and http_transport.py reveal secrets.

The reloader reads pairing.toml and its files every few seconds, and immediately after a namespace refuses a credential.
A change of any other setting is reported once and needs a restart. So does a secret from the environment, which cannot
change in a running process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Self

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential

from paired_servicebus.config import CredentialKind, NamespaceConfig, PairingConfig, load_config
from paired_servicebus.connection_string import Parts, parts_of
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.verdict import CREDENTIALS, Judge, Judgement, judge
from paired_servicebus.engine.clients.http_transport import HttpTransport
from paired_servicebus.pairing.amqp_client.cbs_tokens import KEY_SECONDS, sign

log = logging.getLogger(__name__)

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
            return lambda: sign(audience, *key.named_key, time.time() + KEY_SECONDS).text
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
