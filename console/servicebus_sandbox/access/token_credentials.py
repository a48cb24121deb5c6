"""Test credentials in the shape of azure-identity's: they fetch bearer tokens from a sandbox's control URL.

`SandboxCredential` is for the SDK's synchronous clients, `AsyncSandboxCredential` for those of its `aio` packages. They
work in any process on this machine and do not import the SDK.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Final, Self

import aiohttp

from servicebus_sandbox.access.authorization import LIFETIME_SECONDS, AccessToken

_TIMEOUT_SECONDS: Final = 10.0
_JSON: Final = {"Content-Type": "application/json"}


class CredentialError(Exception):
    """No token was issued; the message names the URL and the cause."""


class _Wish:
    """The common part: the request to the control URL."""

    def __init__(self, control_url: str, role: str, *, lifetime: float = LIFETIME_SECONDS) -> None:
        """`role` is `Azure Service Bus Data Sender`, `… Receiver` or `… Owner`, or its last two words.

        Each token is good for `lifetime` seconds.
        """
        self._url = f"{control_url}/tokens"
        self._shown = f"the control URL at {urllib.parse.urlsplit(control_url).netloc}"  # its path is a secret
        self._role = role
        self._lifetime = lifetime

    def _body(self, scopes: tuple[str, ...]) -> bytes:
        if len(scopes) != 1:
            raise ValueError(f"a token is for one scope, not {len(scopes)}")
        return json.dumps({"role": self._role, "scope": scopes[0], "lifetime": self._lifetime}).encode()

    def _token(self, status: int, answer: bytes) -> AccessToken:
        told = json.loads(answer)
        if status != 201:
            raise CredentialError(f"{self._shown} gives no token: {told['error']}")
        return AccessToken(told["token"], told["expires_on"])


class SandboxCredential(_Wish):
    """For synchronous clients, which do not run in the event loop of the sandbox itself."""

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        """Return a new token for one scope. Raises CredentialError."""
        request = urllib.request.Request(self._url, self._body(scopes), _JSON)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
                return self._token(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            return self._token(error.code, error.read())
        except OSError as error:
            raise CredentialError(f"{self._shown} cannot be reached ({error}); does the sandbox run?") from error

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class AsyncSandboxCredential(_Wish):
    """For asynchronous clients."""

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        """Return a new token for one scope. Raises CredentialError."""
        body, timeout = self._body(scopes), aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self._url, data=body, headers=_JSON) as answer,
            ):
                return self._token(answer.status, await answer.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CredentialError(f"{self._shown} cannot be reached ({error}); does the sandbox run?") from error

    async def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()
