"""Queues, topics, subscriptions and rules in ARM: PUT creates or replaces, DELETE of a missing one succeeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servicebus_sandbox.arm.arm_request import (
    Actions,
    ArmRequest,
    ArmResponse,
    Json,
    read_rule,
    read_settings,
    write_entity,
    write_rule,
)
from servicebus_sandbox.atom.entity_xml import QUEUE, SUBSCRIPTION, TOPIC, Kind
from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.broker.subscription_rules.rules import Rule, RuleSet
from servicebus_sandbox.broker.topology.namespace import Entity, Subscription, check_settings

_QUEUES = ("namespaces", "queues")
_TOPICS = ("namespaces", "topics")
_SUBSCRIPTIONS = (*_TOPICS, "subscriptions")
_RULES = (*_SUBSCRIPTIONS, "rules")
_KINDS: dict[tuple[str, ...], Kind] = {_QUEUES: QUEUE, _TOPICS: TOPIC, _SUBSCRIPTIONS: SUBSCRIPTION}


def entity_of(call: ArmRequest) -> Entity:
    """Return the entity at or above the address. Raises EntityNotFound."""
    namespace, names = call.place.node.namespace, call.names
    if call.words[:2] == _QUEUES:
        return namespace.queue(names[1])
    if call.words[:3] == _SUBSCRIPTIONS:
        return namespace.subscription(names[1], names[2])
    return namespace.topic(names[1])


def _list(call: ArmRequest) -> ArmResponse:
    namespace = call.place.node.namespace
    found: Sequence[Entity] = namespace.queues() if call.words == _QUEUES else namespace.topics()
    if call.words == _SUBSCRIPTIONS:
        found = namespace.subscriptions(call.names[1])
    return call.page(found, lambda entity: _describe(call, entity))


def _get(call: ArmRequest) -> ArmResponse:
    return ArmResponse(200, _describe(call, entity_of(call)))


def _put(call: ArmRequest) -> ArmResponse:
    node = call.place.node
    try:
        present: Entity | None = entity_of(call)
    except EntityNotFound:
        present = None
    settings: Any = read_settings(_KINDS[call.words], call.part_of_body("properties"), present=present)
    check_settings(node.namespace, settings, present=present)
    create: Any = {
        _QUEUES: node.namespace.create_queue,
        _TOPICS: node.namespace.create_topic,
        _SUBSCRIPTIONS: node.namespace.create_subscription,
    }[call.words]
    entity = create(*call.names[1:], settings) if present is None else node.namespace.update(present, settings)
    node.wake()
    return ArmResponse(200, _describe(call, entity))


def _delete(call: ArmRequest) -> ArmResponse:
    node = call.place.node
    try:
        entity = entity_of(call)
    except EntityNotFound:
        return ArmResponse(204)
    if isinstance(entity, Subscription):
        node.namespace.delete_subscription(entity.topic.path, entity.name)
    else:
        node.namespace.delete(entity.path)
    node.wake()
    return ArmResponse(200)


def _describe(call: ArmRequest, entity: Entity) -> Json:
    names = (entity.topic.path, entity.name) if isinstance(entity, Subscription) else (entity.path,)
    return call.resource(names, write_entity(_KINDS[call.words], entity))


# ---------------------------------------------------------------------- rules


def _rules(call: ArmRequest) -> RuleSet:
    return call.place.node.namespace.subscription(call.names[1], call.names[2]).rules


def _list_rules(call: ArmRequest) -> ArmResponse:
    return call.page(list(_rules(call)), lambda rule: _describe_rule(call, rule))


def _get_rule(call: ArmRequest) -> ArmResponse:
    return ArmResponse(200, _describe_rule(call, _rules(call)[call.names[3]]))


def _put_rule(call: ArmRequest) -> ArmResponse:
    namespace, (_, topic, subscription, name) = call.place.node.namespace, call.names
    rule = read_rule(name, call.part_of_body("properties"))
    present = any(known.name.lower() == name.lower() for known in _rules(call))
    rule = (namespace.update_rule if present else namespace.create_rule)(topic, subscription, rule)
    return ArmResponse(200, _describe_rule(call, rule))


def _delete_rule(call: ArmRequest) -> ArmResponse:
    try:
        _rules(call).remove(call.names[3])
    except EntityNotFound:
        return ArmResponse(204)
    return ArmResponse(200)


def _describe_rule(call: ArmRequest, rule: Rule) -> Json:
    return call.resource((*call.names[1:3], rule.name), write_rule(rule))


ACTIONS: Actions = {
    **{("GET", words, len(words) - 1): _list for words in _KINDS},
    **{("GET", words, len(words)): _get for words in _KINDS},
    **{("PUT", words, len(words)): _put for words in _KINDS},
    **{("DELETE", words, len(words)): _delete for words in _KINDS},
    ("GET", _RULES, 3): _list_rules,
    ("GET", _RULES, 4): _get_rule,
    ("PUT", _RULES, 4): _put_rule,
    ("DELETE", _RULES, 4): _delete_rule,
}
