"""The resources of ARM: namespaces, their entities and rules, their keys."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from servicebus_sandbox.arm.arm_request import (
    DEFAULT_GROUP,
    PROVIDER,
    Action,
    Actions,
    Answer,
    ArmNamespace,
    ArmRequest,
    ArmResponse,
    Json,
    NamespaceOwner,
    read_access,
    read_rule,
    read_settings,
    reads,
    resource_id,
    short_region,
    write_access,
    write_entity,
    write_keys,
    write_network_rules,
    write_rule,
)
from servicebus_sandbox.atom.entity_xml import QUEUE, SUBSCRIPTION, TOPIC, Kind, new_key, write_time
from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Tier
from servicebus_sandbox.broker.subscription_rules.rules import Rule, RuleSet
from servicebus_sandbox.broker.topology.namespace import Entity, Subscription, check_settings
from servicebus_sandbox.faults import FaultTerms
from servicebus_sandbox.serving.http_server import HttpRefusal
from servicebus_sandbox.specs import NamespaceSpec

# Namespaces in ARM: list, show, create, change, delete; their network rules.
#
# A namespace is made at once, and refuses connections until its activation has ended. Creation and deletion are
# reported as in progress, with the addresses to poll; old versions have no such address for a creation.

_NAME = re.compile(r"[A-Za-z](-?[A-Za-z0-9])*", re.ASCII)
_LENGTHS = range(6, 51)
_CAPACITIES = (1, 2, 4, 8, 16)
_DEFAULT = "default"
_LOCAL_AUTH = "disableLocalAuth"
_KEPT: Mapping[str, tuple[object, ...]] = {
    "minimumTlsVersion": ("1.2", "1.0", "1.1", "1.3"),
    "publicNetworkAccess": ("Enabled", "Disabled", "SecuredByPerimeter"),
    _LOCAL_AUTH: (False, True),
    "zoneRedundant": (True, False),
}
"""The properties of a namespace that are kept as they were set, with their values, the default first."""


async def _put_namespace(call: ArmRequest) -> ArmResponse:
    places = call.places
    async with places.changing:
        if places.get(call.names[0]) is not None:
            return _patch_namespace(call)
        place = await _open(call)
    described = _describe_namespace(call, place, is_new=True)
    if not call.is_recent:
        return ArmResponse(200, described)
    return ArmResponse(201, described, _operation(call, place.node.name, place.node.region, "Active"))


def _patch_namespace(call: ArmRequest) -> ArmResponse:
    place, tags = call.place, _tags(call)
    tier = _tier(call, default=place.node.namespace.tier)
    if tier is not place.node.namespace.tier:
        raise HttpRefusal(400, "BadRequest", f"'{place.node.name}' stays of the tier {place.node.namespace.tier}")
    place.capacity, kept = _capacity(call, tier, default=place.capacity), _kept(call)
    _keep(place, kept)
    place.updated_at = call.places.clock()
    if tags:
        place.tags = tags
    return ArmResponse(200, _describe_namespace(call, place))


async def _open(call: ArmRequest) -> ArmNamespace:
    name, region, tags, tier = call.names[0], call.body().get("location"), _tags(call), _tier(call)
    capacity, kept, activation = _capacity(call, tier, default=1), _kept(call), call.places.activation_s
    complaint = _complaint_about(name)
    if complaint is not None:
        raise HttpRefusal(400, "BadRequest", complaint)
    if not isinstance(region, str) or not region:
        raise HttpRefusal(400, "LocationRequired", "'location' is missing; name the region of the namespace")
    place = await _owner(call).open(NamespaceSpec(name, tier=tier, region=region))
    if activation:
        place.node.faults.add("refused", terms=FaultTerms(duration_s=activation))
    place.group, place.tags, place.capacity = call.address.group or DEFAULT_GROUP, tags, capacity
    place.ready_at = place.updated_at = call.places.clock() + activation
    _keep(place, kept)
    call.places.add(place)
    return place


def _kept(call: ArmRequest) -> Json:
    """Return the properties of the body that are kept. Raises HttpRefusal (400)."""
    given = call.part_of_body("properties")
    found = {name: given[name] for name in _KEPT if given.get(name) is not None}
    for name, value in found.items():
        if not any(value is one or (isinstance(value, str) and value == one) for one in _KEPT[name]):
            allowed = ", ".join(map(str, _KEPT[name])).replace("True", "true").replace("False", "false")
            raise HttpRefusal(400, "BadRequest", f"{name} is {value!r}; it is one of {allowed}")
    return found


def _keep(place: ArmNamespace, kept: Json) -> None:
    place.kept |= kept
    place.node.authorization.takes_keys = not place.kept.get(_LOCAL_AUTH)


async def _delete_namespace(call: ArmRequest) -> ArmResponse:
    places = call.places
    async with places.changing:
        place = places.get(call.names[0])
        if place is None or not place.is_in(call.address.group):
            return ArmResponse(204)
        name, owner = place.node.name, _owner(call)
        for alias in places.aliases.values():
            if name in (alias.primary, alias.partner) and alias.partner:
                raise HttpRefusal(409, "Conflict", f"'{name}' is paired as '{alias.name}'; break that pairing first")
        places.remove(place)
        await owner.end(name)
    return ArmResponse(202, headers=_operation(call, name, place.node.region, "Deleted"))


def _operation(call: ArmRequest, name: str, region: str, goal: str) -> dict[str, str]:
    """Return the headers with the addresses of an operation under way."""
    path = f"/subscriptions/{call.address.subscription}/providers/{PROVIDER}/locations/{short_region(region)}"
    version = call.request.query["api-version"]

    def address(is_async: str) -> str:
        query = {"isAsyncHeader": is_async, "resourceName": name, "operationType": goal, "api-version": version}
        return f"{call.request.origin}{path}/namespaceOperationResults/{number}?{urlencode(query)}"

    number = uuid.uuid4()
    return {"Location": address("false"), "Azure-AsyncOperation": address("true")}


def _operation_result(call: ArmRequest) -> ArmResponse:
    """Answer a poll: of the status, or of the result, which is the namespace, or nothing after its deletion."""
    query = call.request.query
    place, is_deletion = call.places.get(query.get("resourceName", "")), query.get("operationType") == "Deleted"
    if place is None and not is_deletion:
        raise HttpRefusal(404, "ResourceNotFound", f"there is no operation '{call.names[1]}'")
    is_done = place is None if is_deletion else place is not None and call.is_ready(place)
    if query.get("isAsyncHeader") == "true":
        return ArmResponse(200, {"name": call.names[1], "status": "Succeeded" if is_done else "InProgress"})
    if place is None or not is_done:
        return ArmResponse(204 if is_done else 202)
    return ArmResponse(200, _describe_namespace(call, place))


def _owner(call: ArmRequest) -> NamespaceOwner:
    if call.places.owner is None:
        raise HttpRefusal(403, "Forbidden", "this sandbox keeps the namespaces it began with, and takes no more")
    return call.places.owner


def _check_name(call: ArmRequest) -> ArmResponse:
    return check_name(call, lambda name: call.places.get(name) is None)


def check_name(call: ArmRequest, is_free: Callable[[str], bool]) -> ArmResponse:
    """Answer whether the name in the body can be given to a namespace or an alias."""
    given = call.body().get("name")
    name = given if isinstance(given, str) else ""
    reason, message = ("InvalidName", complaint) if (complaint := _complaint_about(name)) else ("None", None)
    if complaint is None and not is_free(name):
        reason, message = "NameInUse", "Name already in use"
    found = {"nameAvailable": reason == "None", "reason": reason}
    return ArmResponse(200, found if message is None else found | {"message": message})


def _complaint_about(name: str) -> str | None:
    if len(name) in _LENGTHS and _NAME.fullmatch(name):
        return None
    return f"'{name}' is no name for a namespace: 6 to 50 letters, digits and single hyphens, a letter first"


def _tier(call: ArmRequest, *, default: Tier = Tier.STANDARD) -> Tier:
    sku = call.part_of_body("sku")
    name = sku.get("name", default.value)
    if name not in list(Tier):
        raise HttpRefusal(400, "BadRequest", f"sku.name is {name!r}; it is one of {', '.join(Tier)}")
    return Tier(name)


def _capacity(call: ArmRequest, tier: Tier, *, default: int) -> int:
    given = call.part_of_body("sku").get("capacity")
    if given is None or tier is not Tier.PREMIUM:
        return default
    if given not in _CAPACITIES:
        allowed = ", ".join(map(str, _CAPACITIES))
        raise HttpRefusal(400, "BadRequest", f"sku.capacity is {given!r}; messaging units are one of {allowed}")
    return int(given)


def _tags(call: ArmRequest) -> dict[str, str]:
    return {name: str(value) for name, value in call.part_of_body("tags").items()}


def _describe_namespace(call: ArmRequest, place: ArmNamespace, *, is_new: bool = False) -> Json:
    """Return a namespace; `is_new` in the answer to its creation, which is never its end."""
    node, subscription, tier = place.node, call.address.subscription, place.node.namespace.tier
    sku = {"name": tier.value, "tier": tier.value} | ({"capacity": place.capacity} if tier is Tier.PREMIUM else {})
    found: Json = {
        "id": resource_id(subscription, call.address.group or place.group or DEFAULT_GROUP, "namespaces", node.name),
        "name": node.name,
        "type": f"{PROVIDER}/Namespaces",
        "location": short_region(node.region) if call.is_recent else node.region,
        "tags": place.tags,
    }
    is_ready = call.is_ready(place) and not is_new
    states = ("Succeeded", "Active") if is_ready else ("Creating",) * 2 if call.is_recent else ("Created", "Activating")
    properties = _geography(place, is_ready=is_ready) if call.is_recent else {}
    properties |= {name: values[0] for name, values in _KEPT.items()} | {"zoneRedundant": call.is_recent} | place.kept
    properties |= {
        "provisioningState": states[0],
        "status": states[1],
        "createdAt": write_time(node.namespace.created_at),
        "updatedAt": write_time(place.updated_at if is_ready else node.namespace.created_at),
        "metricId": f"{subscription}:{node.name.lower()}",
        "serviceBusEndpoint": f"https://{place.authority}/",
    }
    first, last = ({}, {"sku": sku}) if call.is_recent else ({"sku": sku}, {})
    return {**first, **found, "properties": properties, **last}


def _geography(place: ArmNamespace, *, is_ready: bool) -> Json:
    """Return the properties of recent versions alone."""
    replica = {"locationName": short_region(place.node.region), "roleType": "Primary"}
    return {
        "ipAddressType": "IPv4",
        "platformCapabilities": {"confidentialCompute": {"mode": "Disabled"}},
        "errors": [],
        "geoDataReplication": {
            "maxReplicationLagDurationInSeconds": 0,
            "locations": [replica | {"replicaState": "Ready" if is_ready else "InBuild"}],
        },
        "premiumMessagingPartitions": 1 if place.node.namespace.tier is Tier.PREMIUM else 0,
    }


# ---------------------------------------------------------------------- network rules


def _network_rules(call: ArmRequest) -> Json:
    return write_network_rules(call.place.kept.get("publicNetworkAccess", "Enabled"))


def _only_network_rules(call: ArmRequest) -> str:
    if call.names[1].lower() != _DEFAULT:
        raise HttpRefusal(404, "ResourceNotFound", f"there are no network rules '{call.names[1]}', only '{_DEFAULT}'")
    return _DEFAULT


def _describe_network_rules(call: ArmRequest, name: str) -> Json:
    return call.resource((name,), _network_rules(call))


def _put_network_rules(call: ArmRequest) -> ArmResponse:
    """Accept rules that allow everyone; refuse others, because the sandbox has no firewall."""
    found = _describe_network_rules(call, _only_network_rules(call))
    for name, value in call.part_of_body("properties").items():
        if value is not None and value != _network_rules(call).get(name):
            raise HttpRefusal(400, "BadRequest", f"{name} cannot be {value!r}: the sandbox has no firewall")
    return ArmResponse(200, found)


_EMPTY = ("privateendpointconnections", "privatelinkresources", "migrationconfigurations")
"""Lists that are empty: the sandbox has neither private endpoints nor migrations."""


def _list_nothing(call: ArmRequest) -> ArmResponse:
    place = call.place
    return call.page([], lambda _: call.resource((place.node.name,), {}))


_NAMESPACE_ACTIONS: Actions = {
    **reads(
        ("namespaces",),
        lambda call: [place for place in call.places.all() if place.is_in(call.address.group)],
        lambda call: call.place,
        _describe_namespace,
    ),
    ("PUT", ("namespaces",), 1): _put_namespace,
    ("PATCH", ("namespaces",), 1): _patch_namespace,
    ("DELETE", ("namespaces",), 1): _delete_namespace,
    ("GET", ("locations", "namespaceoperationresults"), 2): _operation_result,
    **{("GET", ("namespaces", words), 1): _list_nothing for words in _EMPTY},
    **reads(("namespaces", "networkrulesets"), lambda _: [_DEFAULT], _only_network_rules, _describe_network_rules),
    ("PUT", ("namespaces", "networkrulesets"), 2): _put_network_rules,
    ("POST", ("checknameavailability",), 0): _check_name,
}


# Queues, topics, subscriptions and rules in ARM: PUT creates or replaces, DELETE of a missing one succeeds.

_QUEUES = ("namespaces", "queues")
_TOPICS = ("namespaces", "topics")
_SUBSCRIPTIONS = (*_TOPICS, "subscriptions")
_RULE_WORDS = (*_SUBSCRIPTIONS, "rules")
_KINDS: dict[tuple[str, ...], Kind] = {_QUEUES: QUEUE, _TOPICS: TOPIC, _SUBSCRIPTIONS: SUBSCRIPTION}


def entity_of(call: ArmRequest) -> Entity:
    """Return the entity at or above the address. Raises EntityNotFound."""
    namespace, names = call.place.node.namespace, call.names
    if call.words[:2] == _QUEUES:
        return namespace.queue(names[1])
    if call.words[:3] == _SUBSCRIPTIONS:
        return namespace.subscription(names[1], names[2])
    return namespace.topic(names[1])


def _entities(call: ArmRequest) -> Sequence[Entity]:
    namespace = call.place.node.namespace
    if call.words == _SUBSCRIPTIONS:
        return namespace.subscriptions(call.names[1])
    return namespace.queues() if call.words == _QUEUES else namespace.topics()


def _put_entity(call: ArmRequest) -> ArmResponse:
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
    return ArmResponse(200, _describe_entity(call, entity, Answer.CREATION if present is None else Answer.UPDATE))


def _delete_entity(call: ArmRequest) -> None:
    node, entity = call.place.node, entity_of(call)
    if isinstance(entity, Subscription):
        node.namespace.delete_subscription(entity.topic.path, entity.name)
    else:
        node.namespace.delete(entity.path)
    node.wake()


def _deletion(delete: Callable[[ArmRequest], None]) -> Action:
    """Return the handler of a DELETE, which succeeds for a missing resource too."""

    def act(call: ArmRequest) -> ArmResponse:
        try:
            delete(call)
        except EntityNotFound:
            return ArmResponse(204)
        return ArmResponse(200)

    return act


def _describe_entity(call: ArmRequest, entity: Entity, answer: Answer = Answer.READ) -> Json:
    names = (entity.topic.path, entity.name) if isinstance(entity, Subscription) else (entity.path,)
    return call.resource(names, write_entity(_KINDS[call.words], entity, answer))


# ---------------------------------------------------------------------- rules


def _subscription_rules(call: ArmRequest) -> RuleSet:
    return call.place.node.namespace.subscription(call.names[1], call.names[2]).rules


def _put_rule(call: ArmRequest) -> ArmResponse:
    namespace, (_, topic, subscription, name) = call.place.node.namespace, call.names
    rule = read_rule(name, call.part_of_body("properties"))
    present = any(known.name.lower() == name.lower() for known in _subscription_rules(call))
    rule = (namespace.update_rule if present else namespace.create_rule)(topic, subscription, rule)
    return ArmResponse(200, _describe_rule(call, rule))


def _describe_rule(call: ArmRequest, rule: Rule) -> Json:
    return call.resource((*call.names[1:3], rule.name), write_rule(rule))


_ENTITY_ACTIONS: Actions = {
    **{key: act for words in _KINDS for key, act in reads(words, _entities, entity_of, _describe_entity).items()},
    **{("PUT", words, len(words)): _put_entity for words in _KINDS},
    **{("DELETE", words, len(words)): _deletion(_delete_entity) for words in _KINDS},
    **reads(
        _RULE_WORDS,
        lambda call: list(_subscription_rules(call)),
        lambda call: _subscription_rules(call)[call.names[3]],
        _describe_rule,
    ),
    ("PUT", _RULE_WORDS, 4): _put_rule,
    ("DELETE", _RULE_WORDS, 4): _deletion(lambda call: _subscription_rules(call).remove(call.names[3])),
}


# Authorization rules and their keys in ARM, of namespaces, queues and topics.

_ACCESS = "authorizationrules"
_OWNERS = (("namespaces",), ("namespaces", "queues"), ("namespaces", "topics"))
_KEY_TYPES = ("PrimaryKey", "SecondaryKey")


def _access_rules(call: ArmRequest) -> dict[str, AuthorizationRule]:
    """Return the authorization rules of the namespace or entity by name in lower case."""
    if call.words[1] == _ACCESS:
        rules = call.place.node.authorization.rules
    else:
        rules = getattr(entity_of(call).settings, "authorization_rules", ())
    return {rule.name.lower(): rule for rule in rules}


def _store_access(call: ArmRequest, rules: Mapping[str, AuthorizationRule]) -> None:
    node, stored = call.place.node, tuple(rules.values())
    if call.words[1] == _ACCESS:
        node.authorization.rules = stored
        return
    entity = entity_of(call)
    if not isinstance(entity, Subscription):
        node.namespace.update(entity, replace(entity.settings, authorization_rules=stored))


def _access_rule(call: ArmRequest) -> AuthorizationRule:
    name = call.names[-1]
    rule = _access_rules(call).get(name.lower())
    if rule is None:
        raise HttpRefusal(404, "NotFound", f"there is no authorization rule '{name}'")
    return rule


def _put_access(call: ArmRequest) -> ArmResponse:
    rules, name = _access_rules(call), call.names[-1]
    rule = read_access(name, call.part_of_body("properties"), rules.get(name.lower()))
    _store_access(call, rules | {name.lower(): rule})
    return ArmResponse(200, _describe_access(call, rule))


def _delete_access(call: ArmRequest) -> ArmResponse:
    rules = _access_rules(call)
    if rules.pop(call.names[-1].lower(), None) is None:
        return ArmResponse(204)
    _store_access(call, rules)
    return ArmResponse(200)


def _list_keys(call: ArmRequest) -> ArmResponse:
    return _keys_of(call, _access_rule(call))


def _regenerate(call: ArmRequest) -> ArmResponse:
    rule, body = _access_rule(call), call.body()
    which, key = body.get("keyType"), body.get("key") or new_key()
    if which not in _KEY_TYPES or not isinstance(key, str):
        raise HttpRefusal(400, "BadRequest", f"'keyType' is {which!r}; it is one of {', '.join(_KEY_TYPES)}")
    rule = replace(rule, primary_key=key) if which == _KEY_TYPES[0] else replace(rule, secondary_key=key)
    _store_access(call, _access_rules(call) | {rule.name.lower(): rule})
    return _keys_of(call, rule)


def _keys_of(call: ArmRequest, rule: AuthorizationRule) -> ArmResponse:
    entity = call.names[1] if call.words[1] != _ACCESS else None
    return ArmResponse(200, write_keys(rule, call.place.authority, entity))


def _describe_access(call: ArmRequest, rule: AuthorizationRule) -> Json:
    owner = () if call.words[1] == _ACCESS else (call.names[1],)
    return call.resource((*owner, rule.name), write_access(rule))


_KEY_ACTIONS: Actions = {
    key: action
    for owner in _OWNERS
    for key, action in {
        **reads((*owner, _ACCESS), lambda call: list(_access_rules(call).values()), _access_rule, _describe_access),
        ("PUT", (*owner, _ACCESS), len(owner) + 1): _put_access,
        ("DELETE", (*owner, _ACCESS), len(owner) + 1): _delete_access,
        ("POST", (*owner, _ACCESS, "listkeys"), len(owner) + 1): _list_keys,
        ("POST", (*owner, _ACCESS, "regeneratekeys"), len(owner) + 1): _regenerate,
    }.items()
}


RESOURCE_ACTIONS: Actions = {**_NAMESPACE_ACTIONS, **_ENTITY_ACTIONS, **_KEY_ACTIONS}
