"""The signatures of the SDK's management client, each renewed before it ends.

With a key that client signs for an hour, and takes the next signature a minute after the one before has ended
(azure-servicebus 7.15): once an hour it would be refused for a minute, and somebody would be called for it. An engine
signs by itself; this is for clients that an application made.
"""

from __future__ import annotations

from typing import Any, Final

from azure.core.credentials import AccessToken
from azure.servicebus.aio.management import ServiceBusAdministrationClient

EARLY: Final = 300
"""Seconds before its end that a signature counts as ended."""


def renew_in_time(client: ServiceBusAdministrationClient) -> None:
    """From now on the client's signatures are renewed before they end. One with an identity is left as it is."""
    for step in getattr(getattr(client, "_pipeline", None), "_impl_policies", ()):
        signing: Any = getattr(step, "_policy", None)
        if hasattr(signing, "_token_expiry_on") and not isinstance(signing._credential, _Early):
            signing._credential = _Early(signing._credential)


class _Early:
    """A credential whose tokens say that they end sooner than they do."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        told = await self._credential.get_token(*scopes, **options)
        return AccessToken(told.token, told.expires_on - EARLY)
