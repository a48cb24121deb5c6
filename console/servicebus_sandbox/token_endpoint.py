"""The token endpoint in place of Microsoft Entra ID and of managed identities, for azure-identity.

`GET /msi/token` answers as App Service does: `IDENTITY_HEADER` proves the identity. `POST /TENANT/oauth2/v2.0/token`
takes a client's id and secret (`client_credentials`). TENANT is the sandbox's own, or `adfs`, with which clients ask no
other host about the authority. Both URLs are for HTTP and HTTPS; azure-identity wants HTTPS for secrets.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs

from aiohttp import web

from servicebus_sandbox.access.authorization import (
    LIFETIME_SECONDS,
    RESOURCE_MANAGER,
    SERVICE_BUS,
    AccessToken,
    Identity,
    Issuer,
)
from servicebus_sandbox.serving.http_server import HttpPort, HttpRefusal
from servicebus_sandbox.serving.process_settings import host_for

log = logging.getLogger(__name__)

ADFS: Final = "adfs"
RESOURCES: Final = (SERVICE_BUS, *RESOURCE_MANAGER)
_MANAGED: Final = "msi/token"
_METADATA: Final = (".well-known/openid-configuration", "v2.0/.well-known/openid-configuration")
_TOKENS: Final = ("oauth2/token", "oauth2/v2.0/token")
_KEYS: Final = "discovery/keys"
_METHODS: Final = dict.fromkeys((*_METADATA, _KEYS), "GET") | dict.fromkeys(_TOKENS, "POST")
_LONGEST_ECHO: Final = 100


class TokenEndpoint(HttpPort):
    """The port that issues tokens to identities. Open it once, close it once."""

    def __init__(self, issuer: Issuer, identities: Sequence[Identity], *, tls: ssl.SSLContext) -> None:
        self.issuer = issuer
        super().__init__("the token endpoint", log=log, tls=tls)
        self._authority = ""
        self.identities = tuple(identities)

    async def open(self, host: str, port: int = 0) -> None:
        """Listen. Raises ListenError."""
        self._authority = f"{host_for(host)}:{await self.listen(host, port)}"

    def managed_identity(self, identity: Identity) -> dict[str, str]:
        """Return the variables that make a program use the identity as its managed one."""
        return {"IDENTITY_ENDPOINT": f"http://{self._authority}/{_MANAGED}", "IDENTITY_HEADER": identity.client_secret}

    def client_secret(self, identity: Identity) -> dict[str, str]:
        """Return the variables for the identity's secret; the program has to trust the sandbox's `ca_file`."""
        return {
            "AZURE_AUTHORITY_HOST": f"https://{self._authority}",
            "AZURE_TENANT_ID": ADFS,
            "AZURE_CLIENT_ID": identity.client_id,
            "AZURE_CLIENT_SECRET": identity.client_secret,
        }

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return web.json_response(await self._answer(request))
        except HttpRefusal as refusal:
            sentence = str(refusal)
            body: dict[str, Any] = {"error": refusal.code, "error_description": sentence}
            body |= {"statusCode": refusal.status, "message": sentence}  # App Service's form
            return web.json_response(body, status=refusal.status)

    async def _answer(self, request: web.BaseRequest) -> dict[str, Any]:
        path = request.path.strip("/")
        if path == _MANAGED:
            return self._answer_managed(request)
        tenant, _, rest = path.partition("/")
        if _METHODS.get(rest) != request.method:
            raise HttpRefusal(
                404,
                "invalid_request",
                f"nothing answers {request.method} {request.path[:_LONGEST_ECHO]}; there are GET /{_MANAGED}, "
                f"GET /TENANT/{_METADATA[1]} and POST /TENANT/{_TOKENS[1]}",
            )
        if tenant.lower() not in (ADFS, self.issuer.tenant.lower()):
            raise HttpRefusal(
                400,
                "invalid_tenant",
                f"AADSTS90002: Tenant '{tenant[:_LONGEST_ECHO]}' not found. The sandbox has {self.issuer.tenant}, and "
                f"{ADFS} for clients that shall ask no other host.",
            )
        if rest == _KEYS:
            return self.issuer.public_keys()
        return await self._answer_client(request) if rest in _TOKENS else _describe(request, tenant, rest)

    def _answer_managed(self, request: web.BaseRequest) -> dict[str, Any]:
        identity = self._find(secret=request.headers.get("X-IDENTITY-HEADER", ""))
        if identity is None:
            raise HttpRefusal(
                401, "invalid_client", "X-IDENTITY-HEADER is not the IDENTITY_HEADER of an identity of this sandbox"
            )
        asked = request.query.get("client_id", identity.client_id)
        if asked != identity.client_id:
            raise HttpRefusal(
                400, "invalid_request", f"No managed identity has the client_id '{asked[:_LONGEST_ECHO]}'."
            )
        resource = request.query.get("resource", "")
        token = self._issue(identity, resource)
        return _body(token) | {"expires_on": str(token.expires_on), "resource": resource, "client_id": asked}

    async def _answer_client(self, request: web.BaseRequest) -> dict[str, Any]:
        sent = (await self.body_of(request)).decode("utf-8", "replace")
        form = {name: values[-1] for name, values in parse_qs(sent).items()}
        if form.get("grant_type") != "client_credentials":
            raise HttpRefusal(
                400, "unsupported_grant_type", "The sandbox issues tokens for client_credentials with a client_secret."
            )
        identity = self._find(secret=form.get("client_secret", ""))
        if identity is None or identity.client_id != form.get("client_id"):
            raise HttpRefusal(
                401, "invalid_client", "AADSTS7000215: Invalid client secret provided, or an unknown client_id."
            )
        return _body(self._issue(identity, form.get("scope") or form.get("resource", "")))

    def _find(self, *, secret: str) -> Identity | None:
        """Return the identity with this secret, compared in constant time."""
        sent = secret.encode("utf-8", "surrogateescape")
        found = [each for each in self.identities if hmac.compare_digest(each.client_secret.encode(), sent)]
        return found[0] if found else None

    def _issue(self, identity: Identity, scope: str) -> AccessToken:
        """Return a token for a scope or resource. Raises HttpRefusal for one that the sandbox does not serve."""
        resource = next((word for word in scope.split() if "://" in word), scope).removesuffix("/.default").rstrip("/")
        if resource not in RESOURCES:
            known = ", ".join(RESOURCES)
            raise HttpRefusal(
                400,
                "invalid_resource",
                f"AADSTS500011: The resource '{scope[:_LONGEST_ECHO]}' was not found; there are {known}.",
            )
        return self.issuer.issue_for(identity, resource)


def _describe(request: web.BaseRequest, tenant: str, rest: str) -> dict[str, Any]:
    """Return the metadata of the authority, by the name that the client used for it."""
    base = f"{request.scheme}://{request.host}/{tenant}"
    version = "/v2.0" if rest == _METADATA[1] else ""
    return {
        "issuer": f"{base}{version}",
        "authorization_endpoint": f"{base}/oauth2{version}/authorize",
        "token_endpoint": f"{base}/oauth2{version}/token",
        "jwks_uri": f"{base}/{_KEYS}",
        "response_types_supported": ["token"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }


def _body(token: AccessToken) -> dict[str, Any]:
    seconds = int(LIFETIME_SECONDS)
    return {"token_type": "Bearer", "access_token": token.token, "expires_in": seconds, "ext_expires_in": seconds}
