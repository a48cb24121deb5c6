"""Test credentials in the shape of azure-identity's: they fetch bearer tokens from a sandbox's control URL.

`SandboxCredential` is for the SDK's synchronous clients, `AsyncSandboxCredential` for those of its `aio` packages. They
work in any process on this machine and do not import the SDK.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Final, Self

from servicebus_sandbox.access.authorization import LIFETIME_SECONDS, AccessToken

_TIMEOUT_SECONDS: Final = 10.0


class CredentialError(Exception):
    """No token was issued; the message names the URL and the cause."""


class _TokenSource:
    """The common part: the request to the control URL."""

    def __init__(self, control_url: str, role: str, *, lifetime: float = LIFETIME_SECONDS) -> None:
        """`role` is `Azure Service Bus Data Sender`, `… Receiver` or `… Owner`, or its last two words.

        Each token is good for `lifetime` seconds.
        """
        self._url = f"{control_url}/tokens"
        self._shown = f"the control URL at {urllib.parse.urlsplit(control_url).netloc}"  # its path is a secret
        self._role = role
        self._lifetime = lifetime

    def _fetch(self, scopes: tuple[str, ...]) -> AccessToken:
        if len(scopes) != 1:
            raise ValueError(f"a token is for one scope, not {len(scopes)}")
        body = json.dumps({"role": self._role, "scope": scopes[0], "lifetime": self._lifetime}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
                issued = json.load(answer)
        except urllib.error.HTTPError as error:
            raise CredentialError(f"{self._shown} gives no token: {json.load(error)['error']}") from error
        except OSError as error:
            raise CredentialError(f"{self._shown} cannot be reached ({error}); does the sandbox run?") from error
        return AccessToken(issued["token"], issued["expires_on"])


class SandboxCredential(_TokenSource):
    """For synchronous clients, which do not run in the event loop of the sandbox itself."""

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        """Return a new token for one scope. Raises CredentialError."""
        return self._fetch(scopes)

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class AsyncSandboxCredential(_TokenSource):
    """For asynchronous clients."""

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        """Return a new token for one scope, by a thread. Raises CredentialError."""
        return await asyncio.to_thread(self._fetch, scopes)

    async def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()
