"""How an engine gets into a namespace: by a key, a signature or an identity, each renewed in place.

The SDK's clients hold the objects made here for as long as they live and ask them for each new token, so a changed key
counts from the next link on, and no client has to be replaced. Secrets are looked into here and in http_transport.py alone. Not
here: noticing that something changed (credential_reload.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential

from paired_servicebus.config import CredentialKind, NamespaceConfig
from paired_servicebus.connection_string import Parts, parts_of
from paired_servicebus.engine.clients.http_transport import HttpTransport
from paired_servicebus.pairing.amqp_client.cbs_tokens import KEY_SECONDS, sign

_SIGNATURE: Final = "SharedAccessSignature "


# -- identities ----------------------------------------------------------------------------------------------------


def _default(namespace: NamespaceConfig) -> dict[str, Any]:
    """A client's id chooses among the identities that are assigned to a machine or workload."""
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
"""Names in pairing.toml to classes of azure-identity and what they are made with; what is None is left to them.

Only a client's secret is taken to the authority through our proxy: a machine's identity is asked at an address that no
proxy reaches, and DefaultAzureCredential, which asks for both, follows HTTPS_PROXY and NO_PROXY.
"""


def _made(namespace: NamespaceConfig) -> AsyncTokenCredential:
    from azure.identity import aio as identity  # slow to import, and holders of keys don't need it

    name, options = CREDENTIAL_CLASSES[namespace.credential]
    given = {key: value for key, value in options(namespace).items() if value is not None}
    made: AsyncTokenCredential = getattr(identity, name)(**given)
    return made


class RenewableIdentity:
    """A credential of azure-identity whose place another can take."""

    def __init__(self, namespace: NamespaceConfig) -> None:
        self.current = _made(namespace)
        self._past: list[AsyncTokenCredential] = []

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """A token of the credential as it is now."""
        return await self.current.get_token(*scopes, **options)

    def renew(self, namespace: NamespaceConfig) -> None:
        """From now on as the settings say. The one before is closed at the end: a request may be under way on it."""
        made = _made(namespace)
        self._past.append(self.current)
        self.current = made

    async def close(self) -> None:
        """Closes every credential that there was."""
        for credential in (*self._past, self.current):
            await credential.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()


# -- one namespace -------------------------------------------------------------------------------------------------


class NamespaceCredentials:
    """One namespace's way in. Made without asking anybody; `close` when no client uses it any more."""

    def __init__(self, namespace: NamespaceConfig) -> None:
        self._namespace = namespace
        parts = _parts(namespace)
        self.key = AzureNamedKeyCredential(*_key(parts)) if _has_key(parts) else None
        self.signature = AzureSasCredential(_signature(parts)) if parts and self.key is None else None
        self.identity = RenewableIdentity(namespace) if not parts or namespace.management == "arm" else None
        """For messaging where there is neither key nor signature, and for ARM in any case."""

    @property
    def credential(self) -> AzureNamedKeyCredential | AzureSasCredential | RenewableIdentity:
        """What the SDK's messaging clients take."""
        return self.key or self.signature or self.of_identity()

    def renew(self, namespace: NamespaceConfig) -> str:
        """Take what the settings say now; what was renewed, or empty if all is as it was.

        Other than the key, the signature and the identity, nothing in the settings is looked at; a key cannot take a
        signature's place.

        Raises:
            ValueError: azure-identity does not accept the settings; the identity stays as it is.
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
        """What gives the Authorization header for each management request; None where an identity does it."""
        if self.key is not None:
            key = self.key
            return lambda: sign(audience, *key.named_key, time.time() + KEY_SECONDS).text
        if self.signature is not None:
            signature = self.signature
            return lambda: signature.signature
        return None

    def of_identity(self) -> RenewableIdentity:
        """The identity, for clients that take nothing else."""
        assert self.identity is not None, "there is one where nothing else is, and for ARM"
        return self.identity

    async def close(self) -> None:
        """Closes the identity's connections."""
        if self.identity is not None:
            await self.identity.close()


def without_credentials(namespace: NamespaceConfig) -> NamespaceConfig:
    """The settings less all that `NamespaceCredentials.renew` can take: what is left needs a new engine when it changes."""
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
