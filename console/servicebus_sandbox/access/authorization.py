"""The judge of one namespace's tokens: the rights that a token proves for an audience; the issuer of bearer tokens.

A shared access signature is proved by a key of the namespace or entity, a bearer token by the sandbox's issuer. `$cbs`
and management call it; the caller checks that the rights suffice.
"""

from __future__ import annotations

import binascii
import json
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hmac import compare_digest
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from servicebus_amqp.access import (
    PREFIX,
    EntityNames,
    Flaw,
    ProvenAccess,
    SasToken,
    TokenError,
    audience_path,
    covers,
    expired,
    parse_address,
    read_token,
)
from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AuthorizationRule, Right, check_rules
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace, Queue, Subscription, Topic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

# Bearer tokens: an issuer in place of Microsoft Entra ID.
#
# It signs JSON Web Tokens (RS256) with roles for the whole sandbox, and judges them. Its key is made on first use and
# never leaves the process. `Authorization` and `atom.management_api` enforce roles; `token_credentials` fetches tokens.

SERVICE_BUS: Final = "https://servicebus.azure.net"
RESOURCE_MANAGER: Final = ("https://management.azure.com", "https://management.core.windows.net")
TENANT: Final = str(uuid.uuid5(uuid.NAMESPACE_DNS, "sandbox.invalid"))
LIFETIME_SECONDS: Final = 3600.0
LONGEST_SECONDS: Final = 86_400.0
CLOCK_SKEW_SECONDS: Final = 300.0
_ALL_OF_IT = "/.default"


class AzureRole(StrEnum):
    """The built-in data roles by their names in Azure, with the rights that each gives."""

    rights: frozenset[Right]

    SENDER = "Azure Service Bus Data Sender", Right.SEND
    RECEIVER = "Azure Service Bus Data Receiver", Right.LISTEN
    OWNER = "Azure Service Bus Data Owner", *Right

    def __new__(cls, name: str, *rights: Right) -> Self:
        role = str.__new__(cls, name)
        role._value_, role.rights = name, frozenset(rights)
        return role


class AccessToken(NamedTuple):
    """A token in the SDK's shape: the text, and its end in epoch seconds."""

    token: str
    expires_on: int


@dataclass(frozen=True, slots=True)
class Identity:
    """An application of the tenant. Its secret proves it; its roles are valid within its scopes.

    scopes: namespaces, or entities such as `contoso/orders`, with `*` for any characters; none: everything.
    """

    client_id: str
    client_secret: str = field(repr=False)
    roles: tuple[AzureRole, ...] = (AzureRole.OWNER,)
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bearer:
    """The identity behind a good token."""

    roles: frozenset[AzureRole]
    expires_at: float
    scopes: tuple[str, ...] = ()

    @property
    def rights(self) -> frozenset[Right]:
        return frozenset().union(*(role.rights for role in self.roles))

    def access(self, namespace: str, path: str) -> ProvenAccess:
        """Return the access to a path in a namespace; it has no right if no scope is there."""
        scopes = [scope.partition("/") for scope in self.scopes]
        here = tuple(entity for name, _, entity in scopes if name.lower() == namespace.lower())
        rights = self.rights if here or not scopes else frozenset()
        entities = EntityNames(here) if here and all(here) else None
        return ProvenAccess(path, rights, self.expires_at, entities=entities)


class Issuer:
    """A signer and judge of tokens. `clock` returns epoch seconds; the key is new for each issuer."""

    def __init__(self, clock: Callable[[], float], *, tenant: str = TENANT) -> None:
        self._clock = clock
        self.tenant = tenant
        self._key_id = uuid.uuid4().hex
        self._name = f"https://sts.sandbox.invalid/{tenant}/"

    def issue(self, role: AzureRole, scope: str, *, lifetime: float = LIFETIME_SECONDS) -> AccessToken:
        """Return a token of this role for everything, as `issue_for` does."""
        return self.issue_for(Identity(role, "", (role,)), scope, lifetime=lifetime)

    def issue_for(self, identity: Identity, scope: str, *, lifetime: float = LIFETIME_SECONDS) -> AccessToken:
        """Return a token of an identity for `scope`, valid for `lifetime` seconds.

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
            "tid": self.tenant,
            "appid": identity.client_id,
            "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, self._name + identity.client_id)),
            "roles": identity.roles,
            "scopes": identity.scopes,
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
            raise expired(claims["exp"], now)
        if claims["nbf"] > now + CLOCK_SKEW_SECONDS:
            raise TokenError(Flaw.EXPIRED, "The token is not good yet; set the clocks right.")
        roles = frozenset(AzureRole(role) for role in claims["roles"])
        return Bearer(roles, float(claims["exp"]), tuple(claims["scopes"]))

    def public_keys(self) -> dict[str, Any]:
        """Return the key that verifies the tokens, as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (
            _base64(value.to_bytes((value.bit_length() + 7) // 8, "big")) for value in (numbers.n, numbers.e)
        )
        return {
            "keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._key_id, "n": modulus, "e": exponent}]
        }

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


BEARER: Final = "Bearer "
MAX_AUDIENCE: Final = 1024


def root_rule(name: str, key: str, secondary: str | None = None) -> AuthorizationRule:
    """Return a rule with every right; `secondary` defaults to `key`."""
    return AuthorizationRule(name=name, rights=ALL_RIGHTS, primary_key=key, secondary_key=secondary or key)


class Authorization:
    """The namespace's own rules, those of its entities, and the issuer of bearer tokens if there is one."""

    def __init__(
        self, namespace: BrokerNamespace, rules: Iterable[AuthorizationRule] = (), *, issuer: Issuer | None = None
    ) -> None:
        self._namespace = namespace
        self._issuer = issuer
        self._rules: tuple[AuthorizationRule, ...] = ()
        self.rules = tuple(rules)
        self.takes_keys = True
        """Whether keys and their signatures are accepted; else only bearer tokens are."""
        self.retired: Mapping[str, str] = {}
        """Keys of earlier times, each with a word for who has it."""
        self.strays: Counter[str] = Counter()
        """Uses of retired keys, by that word."""

    @property
    def rules(self) -> tuple[AuthorizationRule, ...]:
        """Return the namespace's own rules. Setting them raises InvalidSettings for too many or a repeated name."""
        return self._rules

    @rules.setter
    def rules(self, rules: tuple[AuthorizationRule, ...]) -> None:
        check_rules(rules)
        self._rules = rules

    def judge(self, token: str, audience: str, now: float) -> ProvenAccess:
        """Return the access of `token` to `audience`, a URI, at `now` in epoch seconds.

        A bearer token may begin with `Bearer`. Raises TokenError.
        """
        if len(audience) > MAX_AUDIENCE:
            raise TokenError(
                Flaw.AUDIENCE, f"The audience has {len(audience)} characters; no entity's has more than {MAX_AUDIENCE}."
            )
        if token.startswith(PREFIX):
            self._require_keys()
            return self._by_signature(read_token(token), audience, now)
        if self._issuer is None:
            raise TokenError(
                Flaw.MALFORMED, "The token is not a shared access signature, and this namespace takes no other."
            )
        bearer = self._issuer.judge(token.removeprefix(BEARER), audiences=(SERVICE_BUS,), now=now)
        return bearer.access(self._namespace.name, audience_path(audience))

    def prove(self, name: str, key: str) -> tuple[ProvenAccess, ...]:
        """Return the access of SASL PLAIN's name and key: that of each rule of this name with this key.

        It has no end of its own. Raises TokenError if there is no such rule.
        """
        self._require_keys()
        found = tuple(
            ProvenAccess(owner, rule.rights, inf, rule.name)
            for owner, rule in self._all_rules()
            if rule.name == name and any(compare_digest(key.encode(), one.encode()) for one in rule.keys)
        )
        if not found:
            self._note_retired(lambda old: compare_digest(old.encode(), key.encode()))
            raise TokenError(Flaw.SIGNATURE, "No key of the namespace or of an entity has this name and this value.")
        return found

    def _require_keys(self) -> None:
        """Raise TokenError if the namespace's keys are switched off."""
        if not self.takes_keys:
            raise TokenError(
                Flaw.SIGNATURE, "Local authentication is disabled for this namespace; use a token of an identity."
            )

    def check_entity(self, path: str) -> None:
        """Raise EntityNotFound unless the path is the root, an entity, or below one."""
        owner = parse_address(path).path
        if owner:
            self._namespace.owner(owner)

    def _by_signature(self, token: SasToken, audience: str, now: float) -> ProvenAccess:
        path, resource = audience_path(audience), audience_path(token.resource)
        named = [
            rule
            for owner, rule in self._rules_above(path)
            if rule.name in token.key_names and covers(owner, resource)  # an entity's key does not open its parents
        ]
        if not named:
            raise TokenError(
                Flaw.SIGNATURE, f"There is no key named '{token.key_name}' for '{path}' or for the namespace."
            )
        proved = [rule for rule in named if any(token.is_signed_with(key) for key in rule.keys)]
        if not proved:
            self._note_retired(lambda key: token.is_signed_with(key))
            raise TokenError(
                Flaw.SIGNATURE,
                f"The signature was not made with the key '{token.key_name}', neither of its two; check the key.",
            )
        token.check(audience, now)
        return ProvenAccess(path, proved[0].rights, token.expires_at, proved[0].name)

    def _rules_above(self, path: str) -> Iterator[tuple[str, AuthorizationRule]]:
        """Yield the rules that may open `path`, each with the path of its owner, the nearest first."""
        segments = path.split("/")
        for size in range(len(segments), 0, -1):
            owner = "/".join(segments[:size])
            for rule in self._rules_of(owner):
                yield owner, rule
        for rule in self._rules:
            yield "", rule

    def _note_retired(self, is_key: Callable[[str], bool]) -> None:
        """Count the use of a retired key."""
        for key, owner in self.retired.items():
            if is_key(key):
                self.strays[owner] += 1

    def _all_rules(self) -> Iterator[tuple[str, AuthorizationRule]]:
        """Yield every rule with the path of its owner."""
        for rule in self._rules:
            yield "", rule
        owners: tuple[Queue | Topic, ...] = (*self._namespace.queues(), *self._namespace.topics())
        for owner in owners:
            for rule in owner.settings.authorization_rules:
                yield owner.path, rule

    def _rules_of(self, path: str) -> tuple[AuthorizationRule, ...]:
        try:
            entity = self._namespace.entity(path)
        except EntityNotFound:
            return ()
        return () if isinstance(entity, Subscription) else entity.settings.authorization_rules
