"""Namespaces in ARM: list, show, create, change, delete; their network rules.

Creation and deletion are complete when the answer leaves. The answer still reports them as in progress, with the
address to poll, because clients of ARM have to handle that.
"""

from __future__ import annotations

import re

from servicebus_sandbox.arm.arm_request import (
    DEFAULT_GROUP,
    PROVIDER,
    Actions,
    ArmNamespace,
    ArmRefusal,
    ArmRequest,
    ArmResponse,
    Json,
    NamespaceOwner,
    resource_id,
    write_namespace,
    write_network_rules,
)
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.specs import NamespaceSpec

_NAME = re.compile(r"[A-Za-z](-?[A-Za-z0-9])*", re.ASCII)
_LENGTHS = range(6, 51)
_CAPACITIES = (1, 2, 4, 8, 16)
_DEFAULT = "default"
_ASK_AGAIN = {"Retry-After": "1"}


def _list(call: ArmRequest) -> ArmResponse:
    return call.page(call.places.all(), lambda place: _describe(call, place))


def _get(call: ArmRequest) -> ArmResponse:
    return ArmResponse(200, _describe(call, call.place))


async def _put(call: ArmRequest) -> ArmResponse:
    places = call.places
    async with places.changing:
        if places.get(call.names[0]) is not None:
            return _patch(call)
        described = _describe(call, await _open(call))
    described["properties"] |= {"provisioningState": "Creating", "status": "Creating"}
    return ArmResponse(201, described, _ASK_AGAIN)


def _patch(call: ArmRequest) -> ArmResponse:
    place, tags = call.place, _tags(call)
    tier = _tier(call, default=place.node.namespace.tier)
    if tier is not place.node.namespace.tier:
        raise ArmRefusal(400, "BadRequest", f"'{place.node.name}' stays of the tier {place.node.namespace.tier}")
    place.capacity = _capacity(call, tier, default=place.capacity)
    if tags:
        place.tags = tags
    return ArmResponse(200, _describe(call, place))


async def _open(call: ArmRequest) -> ArmNamespace:
    name, region, tags, tier = call.names[0], call.body().get("location"), _tags(call), _tier(call)
    capacity, zone_redundant = _capacity(call, tier, default=1), _zone_redundant(call)
    complaint = _complaint_about(name)
    if complaint is not None:
        raise ArmRefusal(400, "BadRequest", complaint)
    if not isinstance(region, str) or not region:
        raise ArmRefusal(400, "LocationRequired", "'location' is missing; name the region of the namespace")
    place = await _owner(call).open(NamespaceSpec(name, tier=tier, region=region))
    place.group, place.tags = call.address.group or DEFAULT_GROUP, tags
    place.capacity, place.zone_redundant = capacity, zone_redundant
    call.places.add(place)
    return place


async def _delete(call: ArmRequest) -> ArmResponse:
    places = call.places
    async with places.changing:
        place = places.get(call.names[0])
        if place is None:
            return ArmResponse(204)
        owner = _owner(call)
        places.remove(place)
        await owner.end(place.node.name)
    where = f"{call.request.origin}{call.request.path}/operationResults/{place.node.name}"
    return ArmResponse(
        202, headers=_ASK_AGAIN | {"Location": f"{where}?api-version={call.request.query['api-version']}"}
    )


def _outcome_of_delete(call: ArmRequest) -> ArmResponse:
    return ArmResponse(204 if call.places.get(call.names[0]) is None else 200)


def _owner(call: ArmRequest) -> NamespaceOwner:
    if call.places.owner is None:
        raise ArmRefusal(403, "Forbidden", "this sandbox keeps the namespaces it began with, and takes no more")
    return call.places.owner


def _check_name(call: ArmRequest) -> ArmResponse:
    name = call.body().get("name")
    complaint = _complaint_about(name if isinstance(name, str) else "")
    if complaint is not None:
        return ArmResponse(200, {"nameAvailable": False, "reason": "InvalidName", "message": complaint})
    if call.places.get(str(name)) is not None:
        taken = f"there is a namespace '{name}' already"
        return ArmResponse(200, {"nameAvailable": False, "reason": "NameInUse", "message": taken})
    return ArmResponse(200, {"nameAvailable": True, "reason": "None"})


def _complaint_about(name: str) -> str | None:
    if len(name) in _LENGTHS and _NAME.fullmatch(name):
        return None
    return f"'{name}' is no name for a namespace: 6 to 50 letters, digits and single hyphens, a letter first"


def _tier(call: ArmRequest, *, default: Tier = Tier.STANDARD) -> Tier:
    sku = call.part_of_body("sku")
    name = sku.get("name", default.value)
    if name not in list(Tier):
        raise ArmRefusal(400, "BadRequest", f"sku.name is {name!r}; it is one of {', '.join(Tier)}")
    return Tier(name)


def _capacity(call: ArmRequest, tier: Tier, *, default: int) -> int:
    given = call.part_of_body("sku").get("capacity")
    if given is None or tier is not Tier.PREMIUM:
        return default
    if given not in _CAPACITIES:
        allowed = ", ".join(map(str, _CAPACITIES))
        raise ArmRefusal(400, "BadRequest", f"sku.capacity is {given!r}; messaging units are one of {allowed}")
    return int(given)


def _zone_redundant(call: ArmRequest) -> bool:
    given = call.part_of_body("properties").get("zoneRedundant")
    if given is not None and not isinstance(given, bool):
        raise ArmRefusal(400, "BadRequest", f"zoneRedundant is {given!r}; it is true or false")
    return bool(given)


def _tags(call: ArmRequest) -> dict[str, str]:
    return {name: str(value) for name, value in call.part_of_body("tags").items()}


def _describe(call: ArmRequest, place: ArmNamespace) -> Json:
    node, subscription = place.node, call.address.subscription
    tier = node.namespace.tier
    return {
        "id": resource_id(subscription, call.address.group or place.group, "namespaces", node.name),
        "name": node.name,
        "type": f"{PROVIDER}/namespaces",
        "location": place.node.region,
        "tags": place.tags,
        "sku": {"name": tier.value, "tier": tier.value}
        | ({"capacity": place.capacity} if tier is Tier.PREMIUM else {}),
        "properties": write_namespace(
            node.name,
            created_at=node.namespace.created_at,
            authority=place.authority,
            subscription=subscription,
            zone_redundant=place.zone_redundant,
        ),
    }


# ---------------------------------------------------------------------- network rules


def _list_network_rules(call: ArmRequest) -> ArmResponse:
    return call.page([_DEFAULT], lambda name: call.resource((name,), write_network_rules()))


def _get_network_rules(call: ArmRequest) -> ArmResponse:
    if call.names[1].lower() != _DEFAULT:
        raise ArmRefusal(404, "ResourceNotFound", f"there are no network rules '{call.names[1]}', only '{_DEFAULT}'")
    return ArmResponse(200, call.resource((_DEFAULT,), write_network_rules()))


def _put_network_rules(call: ArmRequest) -> ArmResponse:
    """Accept rules that allow everyone; refuse others, because the sandbox has no firewall."""
    found = _get_network_rules(call)
    for name, value in call.part_of_body("properties").items():
        if value is not None and value != write_network_rules().get(name):
            raise ArmRefusal(400, "BadRequest", f"{name} cannot be {value!r}: the sandbox has no firewall")
    return found


ACTIONS: Actions = {
    ("GET", ("namespaces",), 0): _list,
    ("GET", ("namespaces",), 1): _get,
    ("PUT", ("namespaces",), 1): _put,
    ("PATCH", ("namespaces",), 1): _patch,
    ("DELETE", ("namespaces",), 1): _delete,
    ("GET", ("namespaces", "operationresults"), 2): _outcome_of_delete,
    ("GET", ("namespaces", "networkrulesets"), 1): _list_network_rules,
    ("GET", ("namespaces", "networkrulesets"), 2): _get_network_rules,
    ("PUT", ("namespaces", "networkrulesets"), 2): _put_network_rules,
    ("POST", ("checknameavailability",), 0): _check_name,
}
