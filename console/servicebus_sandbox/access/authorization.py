"""The judge of one namespace's tokens: the rights that a token proves for an audience.

A shared access signature is proved by a key of the namespace or entity, a bearer token by the sandbox's issuer. `$cbs`
and management call it; the caller checks that the rights suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hmac import compare_digest
from math import inf
from typing import Final

from servicebus_amqp.access.sas_tokens import PREFIX, SasToken, read_token, sign
from servicebus_amqp.node_address import audience_path, covers, parse_address
from servicebus_sandbox.access.token_issuer import SERVICE_BUS, Flaw, Issuer, ProvenAccess, TokenError
from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AuthorizationRule, check_rules
from servicebus_sandbox.broker.topology.messaging_entities import Queue, Subscription, Topic
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

__all__ = ["PREFIX", "Authorization", "SasToken", "read_token", "root_rule", "sign"]

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
            return self._by_signature(read_token(token), audience, now)
        if self._issuer is None:
            raise TokenError(
                Flaw.MALFORMED, "The token is not a shared access signature, and this namespace takes no other."
            )
        bearer = self._issuer.judge(token.removeprefix(BEARER), audiences=(SERVICE_BUS,), now=now)
        return ProvenAccess(audience_path(audience), bearer.rights, bearer.expires_at)

    def prove(self, name: str, key: str) -> tuple[ProvenAccess, ...]:
        """Return the access of SASL PLAIN's name and key: that of each rule of this name with this key.

        It has no end of its own. Raises TokenError if there is no such rule.
        """
        found = tuple(
            ProvenAccess(owner, rule.rights, inf, rule.name)
            for owner, rule in self._all_rules()
            if rule.name == name and any(compare_digest(key.encode(), one.encode()) for one in rule.keys)
        )
        if not found:
            self._note_retired(lambda old: compare_digest(old.encode(), key.encode()))
            raise TokenError(Flaw.SIGNATURE, "No key of the namespace or of an entity has this name and this value.")
        return found

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
