"""The judge of one namespace's tokens: the rights that a token proves for an audience.

A shared access signature is proved by a key of the namespace or entity, a bearer token by the sandbox's issuer. `$cbs`
and management call it; the caller checks that the rights suffice.

A signature is `SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<key name>`: HMAC-SHA256 with the
key's text over the encoded resource, a line feed and the expiry.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus, urlsplit

from servicebus_amqp.node_address import covers, parse_address, path_of
from servicebus_sandbox.access.grants import Flaw, ProvenAccess, TokenError
from servicebus_sandbox.access.token_issuer import SERVICE_BUS, Issuer
from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AuthorizationRule, check_rules
from servicebus_sandbox.broker.topology.messaging_entities import Subscription
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

PREFIX = "SharedAccessSignature "
_FIELDS = ("sr", "sig", "se", "skn")


@dataclass(frozen=True, slots=True)
class _Location:
    """A resource without its scheme; `port` is None if it has none."""

    host: str
    port: int | None
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SasToken:
    """A token that is read but not proved. `expires_at` is in epoch seconds, `resource` decoded."""

    key_name: str
    resource: str
    expires_at: float
    _signed: str = field(repr=False)
    _signature: str = field(repr=False)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the possible names of the key: the Python SDK encodes the name twice."""
        return tuple(dict.fromkeys((self.key_name, unquote_plus(self.key_name))))

    def is_signed_with(self, key: str) -> bool:
        """Return whether the key made the signature, in constant time."""
        return hmac.compare_digest(self._signature.encode(), _signature(self._signed, key).encode())

    def check(self, audience: str, now: float) -> None:
        """Raise TokenError unless the token is valid at `now` (epoch seconds) and covers `audience`, a URI.

        The token's resource has to be the audience or a parent of it, by whole path segments and without regard to
        case. Any scheme matches, and a host with or without port.
        """
        if self.expires_at <= now:
            raise TokenError(
                Flaw.EXPIRED, f"The token expired {now - self.expires_at:.0f} seconds ago; sign a new one."
            )
        resource = _locate(self.resource)
        if not _covers(resource, resource if audience == self.resource else _locate(audience)):
            raise TokenError(Flaw.AUDIENCE, f"The token is for '{self.resource}', which does not cover '{audience}'.")


def sign(resource: str, key_name: str, key: str, expires_at: float) -> str:
    """Return a token for `resource` and everything below it, valid until `expires_at` (epoch seconds)."""
    encoded, expiry = quote_plus(resource), str(int(expires_at))
    signature = quote_plus(_signature(f"{encoded}\n{expiry}", key))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"


def read_token(token: str) -> SasToken:
    """Return the parts of a token. Raises TokenError if it is not a shared access signature."""
    fields = _fields(token)
    return SasToken(
        unquote_plus(fields["skn"]),
        unquote_plus(fields["sr"]),
        _expiry(fields["se"]),
        f"{fields['sr']}\n{fields['se']}",
        # unquote, not unquote_plus: an unencoded "+" is base64's
        unquote(fields["sig"]),
    )


def _signature(signed: str, key: str) -> str:
    return b64encode(hmac.digest(key.encode(), signed.encode(), sha256)).decode("ascii")


def _fields(token: str) -> dict[str, str]:
    if not token.startswith(PREFIX):
        raise TokenError(
            Flaw.MALFORMED,
            "The token is not a shared access signature: it has to start with 'SharedAccessSignature sr='.",
        )
    if not token.isascii():
        raise TokenError(
            Flaw.MALFORMED, "The token holds characters beyond ASCII; its parts have to be percent-encoded."
        )
    pairs = (item.partition("=") for item in token[len(PREFIX) :].split("&"))
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing:
        raise TokenError(Flaw.MALFORMED, f"The token has no {' and no '.join(missing)}; it needs sr, sig, se and skn.")
    return fields


def _expiry(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        raise TokenError(Flaw.MALFORMED, f"The expiry se='{text}' is not a number of seconds since 1970.")
    return float(text)


def _locate(uri: str) -> _Location:
    try:
        parts = urlsplit(uri if "://" in uri else f"//{uri}")
        segments = tuple(part for part in unquote(parts.path).lower().split("/") if part)
        return _Location((parts.hostname or "").lower(), parts.port, segments)
    except ValueError as error:
        raise TokenError(Flaw.MALFORMED, f"'{uri}' is not a URI that a token can be judged for: {error}.") from error


def _covers(resource: _Location, audience: _Location) -> bool:
    if not resource.host or resource.host != audience.host:
        return False
    if None not in (resource.port, audience.port) and resource.port != audience.port:
        return False
    return audience.segments[: len(resource.segments)] == resource.segments


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
            return self._by_signature(read_token(token), audience, now)
        if self._issuer is None:
            raise TokenError(
                Flaw.MALFORMED, "The token is not a shared access signature, and this namespace takes no other."
            )
        bearer = self._issuer.judge(token.removeprefix(BEARER), audiences=(SERVICE_BUS,), now=now)
        return ProvenAccess(_path_in(audience), bearer.rights, bearer.expires_at)

    def check_entity(self, path: str) -> None:
        """Raise EntityNotFound unless the path is the root, an entity, or below one."""
        owner = parse_address(path).path
        if owner:
            self._namespace.owner(owner)

    def _by_signature(self, token: SasToken, audience: str, now: float) -> ProvenAccess:
        path, resource = _path_in(audience), _path_in(token.resource)
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

    def _rules_of(self, path: str) -> tuple[AuthorizationRule, ...]:
        try:
            entity = self._namespace.entity(path)
        except EntityNotFound:
            return ()
        return () if isinstance(entity, Subscription) else entity.settings.authorization_rules


def _path_in(uri: str) -> str:
    return unquote(path_of(uri)).strip("/")
