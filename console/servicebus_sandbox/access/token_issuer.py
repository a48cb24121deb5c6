"""Bearer tokens: an issuer in place of Microsoft Entra ID.

It signs JSON Web Tokens (RS256) with roles for the whole sandbox, and judges them. Its key is made on first use and
never leaves the process. `authorization` and `atom.management_api` enforce roles; `token_credentials` fetches tokens.
"""

from __future__ import annotations

import binascii
import json
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from servicebus_amqp.access.grants import MAX_GRANTS, MAX_PATH, Grants, ProvenAccess
from servicebus_amqp.access.sas_tokens import Flaw, TokenError
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, Right

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


# The access that one connection has proven, by the names that the sandbox's rooms know.
#
# `authorization` judges tokens, `amqp_server.link_attach` chooses the right for a link.

__all__ = ["MAX_GRANTS", "MAX_PATH", "Flaw", "Grants", "ProvenAccess", "TokenError"]


SERVICE_BUS: Final = "https://servicebus.azure.net"
RESOURCE_MANAGER: Final = ("https://management.azure.com", "https://management.core.windows.net")
LIFETIME_SECONDS: Final = 3600.0
LONGEST_SECONDS: Final = 86_400.0
CLOCK_SKEW_SECONDS: Final = 300.0
_ALL_OF_IT = "/.default"


class AzureRole(StrEnum):
    """The built-in data roles by their names in Azure."""

    SENDER = "Azure Service Bus Data Sender"
    RECEIVER = "Azure Service Bus Data Receiver"
    OWNER = "Azure Service Bus Data Owner"

    @property
    def rights(self) -> frozenset[Right]:
        return _RIGHTS[self]


_RIGHTS: Final[Mapping[AzureRole, frozenset[Right]]] = {
    AzureRole.SENDER: frozenset({Right.SEND}),
    AzureRole.RECEIVER: frozenset({Right.LISTEN}),
    AzureRole.OWNER: ALL_RIGHTS,
}


class AccessToken(NamedTuple):
    """A token in the SDK's shape: the text, and its end in epoch seconds."""

    token: str
    expires_on: int


@dataclass(frozen=True, slots=True)
class Bearer:
    """The identity behind a good token."""

    roles: frozenset[AzureRole]
    expires_at: float

    @property
    def rights(self) -> frozenset[Right]:
        return frozenset().union(*(role.rights for role in self.roles))


class Issuer:
    """A signer and judge of tokens. `clock` returns epoch seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tenant = str(uuid.uuid4())
        self._key_id = uuid.uuid4().hex
        self._name = f"https://sts.sandbox.invalid/{self._tenant}/"

    def issue(self, role: AzureRole, scope: str, *, lifetime: float = LIFETIME_SECONDS) -> AccessToken:
        """Return a token of this role for `scope`, valid for `lifetime` seconds.

        Args:
            scope: such as `https://servicebus.azure.net/.default`.
        """
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # not needed for the first frame
        from cryptography.hazmat.primitives.hashes import SHA256

        now = int(self._clock())
        expires_on = int(now + lifetime)
        claims = {
            "aud": scope.removesuffix(_ALL_OF_IT),
            "iss": self._name,
            "iat": now,
            "nbf": now,
            "exp": expires_on,
            "tid": self._tenant,
            "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, self._name + role)),
            "roles": [role],
        }
        signed = f"{_encoded({'typ': 'JWT', 'alg': 'RS256', 'kid': self._key_id})}.{_encoded(claims)}"
        signature = self._key.sign(signed.encode("ascii"), PKCS1v15(), SHA256())
        return AccessToken(f"{signed}.{_base64(signature)}", expires_on)

    def judge(self, token: str, *, audiences: Collection[str], now: float) -> Bearer:
        """Return the token's identity. Raises TokenError unless it is ours, valid, and for one of the audiences."""
        claims = self._proved(token)
        if str(claims.get("aud")).rstrip("/") not in audiences:
            raise TokenError(
                Flaw.AUDIENCE, f"The token is for the audience '{claims.get('aud')}'; ask for {' or '.join(audiences)}."
            )
        if claims["exp"] <= now:
            raise TokenError(Flaw.EXPIRED, f"The token expired {now - claims['exp']:.0f} seconds ago; get a new one.")
        if claims["nbf"] > now + CLOCK_SKEW_SECONDS:
            raise TokenError(Flaw.EXPIRED, "The token is not good yet; set the clocks right.")
        return Bearer(frozenset(AzureRole(role) for role in claims["roles"]), float(claims["exp"]))

    @cached_property
    def _key(self) -> RSAPrivateKey:
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        return generate_private_key(public_exponent=65537, key_size=2048)

    def _proved(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that this issuer signed; they are complete."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        header, claims, signature = _parts(token)
        if (header.get("alg"), header.get("kid")) != ("RS256", self._key_id):
            raise TokenError(Flaw.ISSUER, "The token comes from another issuer; get one from this sandbox.")
        try:
            self._key.public_key().verify(signature, token.rpartition(".")[0].encode("ascii"), PKCS1v15(), SHA256())
        except InvalidSignature as error:
            raise TokenError(
                Flaw.SIGNATURE, "The token's signature is not this sandbox's; it was changed or forged."
            ) from error
        return claims


def parse_role(name: str) -> AzureRole:
    """Return the role of this name, with or without the common prefix. Raises ValueError naming the roles."""
    for role in AzureRole:
        if name.lower() in (role.lower(), role.lower().removeprefix("azure service bus ")):
            return role
    raise ValueError(f"unknown role '{name}'; there are {', '.join(AzureRole)}")


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    try:
        header, claims, signature = (_decoded(part) for part in token.split("."))
        parsed = json.loads(header), json.loads(claims)
    except (ValueError, binascii.Error, RecursionError) as error:
        raise TokenError(
            Flaw.MALFORMED, "The token is neither a shared access signature nor a JSON Web Token."
        ) from error
    if not all(isinstance(part, dict) for part in parsed):
        raise TokenError(Flaw.MALFORMED, "The token is neither a shared access signature nor a JSON Web Token.")
    return *parsed, signature


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part.encode("ascii") + b"=" * (-len(part) % 4))


def _encoded(values: Mapping[str, Any]) -> str:
    return _base64(json.dumps(values, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
