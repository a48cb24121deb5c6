"""Authorization rules and their keys in ARM, of namespaces, queues and topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from servicebus_sandbox.arm.arm_entities import entity_of
from servicebus_sandbox.arm.arm_request import (
    Actions,
    ArmRefusal,
    ArmRequest,
    ArmResponse,
    Json,
    read_access,
    write_access,
    write_keys,
)
from servicebus_sandbox.atom.entity_xml import new_key
from servicebus_sandbox.broker.entity_settings import AuthorizationRule
from servicebus_sandbox.broker.topology.namespace import Subscription

_RULES = "authorizationrules"
_OWNERS = (("namespaces",), ("namespaces", "queues"), ("namespaces", "topics"))
_KEY_TYPES = ("PrimaryKey", "SecondaryKey")


def _rules(call: ArmRequest) -> dict[str, AuthorizationRule]:
    """Return the authorization rules of the namespace or entity by name in lower case."""
    if call.words[1] == _RULES:
        rules = call.place.node.authorization.rules
    else:
        rules = getattr(entity_of(call).settings, "authorization_rules", ())
    return {rule.name.lower(): rule for rule in rules}


def _store(call: ArmRequest, rules: Mapping[str, AuthorizationRule]) -> None:
    node, stored = call.place.node, tuple(rules.values())
    if call.words[1] == _RULES:
        node.authorization.rules = stored
        return
    entity = entity_of(call)
    if not isinstance(entity, Subscription):
        node.namespace.update(entity, replace(entity.settings, authorization_rules=stored))


def _rule(call: ArmRequest) -> AuthorizationRule:
    name = call.names[-1]
    rule = _rules(call).get(name.lower())
    if rule is None:
        raise ArmRefusal(404, "NotFound", f"there is no authorization rule '{name}'")
    return rule


def _list(call: ArmRequest) -> ArmResponse:
    return call.page(list(_rules(call).values()), lambda rule: _describe(call, rule))


def _get(call: ArmRequest) -> ArmResponse:
    return ArmResponse(200, _describe(call, _rule(call)))


def _put(call: ArmRequest) -> ArmResponse:
    rules, name = _rules(call), call.names[-1]
    rule = read_access(name, call.part_of_body("properties"), rules.get(name.lower()))
    _store(call, rules | {name.lower(): rule})
    return ArmResponse(200, _describe(call, rule))


def _delete(call: ArmRequest) -> ArmResponse:
    rules = _rules(call)
    if rules.pop(call.names[-1].lower(), None) is None:
        return ArmResponse(204)
    _store(call, rules)
    return ArmResponse(200)


def _list_keys(call: ArmRequest) -> ArmResponse:
    return _keys(call, _rule(call))


def _regenerate(call: ArmRequest) -> ArmResponse:
    rule, body = _rule(call), call.body()
    which, key = body.get("keyType"), body.get("key") or new_key()
    if which not in _KEY_TYPES or not isinstance(key, str):
        raise ArmRefusal(400, "BadRequest", f"'keyType' is {which!r}; it is one of {', '.join(_KEY_TYPES)}")
    rule = replace(rule, primary_key=key) if which == _KEY_TYPES[0] else replace(rule, secondary_key=key)
    _store(call, _rules(call) | {rule.name.lower(): rule})
    return _keys(call, rule)


def _keys(call: ArmRequest, rule: AuthorizationRule) -> ArmResponse:
    entity = call.names[1] if call.words[1] != _RULES else None
    return ArmResponse(200, write_keys(rule, call.place.authority, entity))


def _describe(call: ArmRequest, rule: AuthorizationRule) -> Json:
    owner = () if call.words[1] == _RULES else (call.names[1],)
    return call.resource((*owner, rule.name), write_access(rule))


ACTIONS: Actions = {
    key: action
    for owner in _OWNERS
    for key, action in {
        ("GET", (*owner, _RULES), len(owner)): _list,
        ("GET", (*owner, _RULES), len(owner) + 1): _get,
        ("PUT", (*owner, _RULES), len(owner) + 1): _put,
        ("DELETE", (*owner, _RULES), len(owner) + 1): _delete,
        ("POST", (*owner, _RULES, "listkeys"), len(owner) + 1): _list_keys,
        ("POST", (*owner, _RULES, "regeneratekeys"), len(owner) + 1): _regenerate,
    }.items()
}
