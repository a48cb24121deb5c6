"""Namespaces in ARM: listing them, looking at one, making one, changing its tags."""

from __future__ import annotations

import re

from console.sandbox.arm_addresses import PROVIDER, resource_id
from console.sandbox.arm_calls import DEFAULT_GROUP, Actions, ArmRefusal, Call, Place, Reply
from console.sandbox.arm_descriptions import Json, write_namespace
from console.sandbox.broker.settings import Tier
from console.sandbox.specs import NamespaceSpec

_NAME = re.compile(r"[A-Za-z](-?[A-Za-z0-9])*", re.ASCII)
_LENGTHS = range(6, 51)


def _list(call: Call) -> Reply:
    return call.page(call.places.all(), lambda place: _describe(call, place))


def _get(call: Call) -> Reply:
    return Reply(200, _describe(call, call.place))


async def _put(call: Call) -> Reply:
    place = call.places.get(call.names[0])
    if place is None:
        place = await _open(call)
        return Reply(201, _describe(call, place))
    return _patch(call)


def _patch(call: Call) -> Reply:
    place, tags = call.place, _tags(call)
    tier = _tier(call, default=place.node.namespace.tier)
    if tier is not place.node.namespace.tier:
        raise ArmRefusal(400, "BadRequest", f"'{place.node.name}' stays of the tier {place.node.namespace.tier}")
    if tags:
        place.tags = tags
    return Reply(200, _describe(call, place))


async def _open(call: Call) -> Place:
    name, region, tags = call.names[0], call.body().get("location"), _tags(call)
    complaint = _complaint_about(name)
    if complaint is not None:
        raise ArmRefusal(400, "BadRequest", complaint)
    if not isinstance(region, str) or not region:
        raise ArmRefusal(400, "LocationRequired", "'location' is missing; name the region of the namespace")
    if call.places.opener is None:
        raise ArmRefusal(403, "Forbidden", "this sandbox has the namespaces it began with and takes no more")
    place = await call.places.opener(NamespaceSpec(name, tier=_tier(call, default=Tier.STANDARD), region=region))
    place.group, place.tags = call.address.group or DEFAULT_GROUP, tags
    call.places.add(place)
    return place


def _check_name(call: Call) -> Reply:
    name = call.body().get("name")
    complaint = _complaint_about(name if isinstance(name, str) else "")
    if complaint is not None:
        return Reply(200, {"nameAvailable": False, "reason": "InvalidName", "message": complaint})
    if call.places.get(str(name)) is not None:
        taken = f"there is a namespace '{name}' already"
        return Reply(200, {"nameAvailable": False, "reason": "NameInUse", "message": taken})
    return Reply(200, {"nameAvailable": True, "reason": "None"})


def _complaint_about(name: str) -> str | None:
    if len(name) in _LENGTHS and _NAME.fullmatch(name):
        return None
    return f"'{name}' is no name for a namespace: 6 to 50 letters, digits and single hyphens, a letter first"


def _tier(call: Call, *, default: Tier) -> Tier:
    sku = call.part_of_body("sku")
    name = sku.get("name", default.value)
    if name not in list(Tier):
        raise ArmRefusal(400, "BadRequest", f"sku.name is {name!r}; it is one of {', '.join(Tier)}")
    return Tier(name)


def _tags(call: Call) -> dict[str, str]:
    return {name: str(value) for name, value in call.part_of_body("tags").items()}


def _describe(call: Call, place: Place) -> Json:
    node, subscription = place.node, call.address.subscription
    tier = node.namespace.tier
    return {
        "id": resource_id(subscription, call.address.group or place.group, "namespaces", node.name),
        "name": node.name,
        "type": f"{PROVIDER}/namespaces",
        "location": place.node.region,
        "tags": place.tags,
        "sku": {"name": tier.value, "tier": tier.value} | ({"capacity": 1} if tier is Tier.PREMIUM else {}),
        "properties": write_namespace(
            node.name,
            created_at=node.namespace.created_at,
            authority=place.authority,
            subscription=subscription,
        ),
    }


ACTIONS: Actions = {
    ("GET", ("namespaces",), 0): _list,
    ("GET", ("namespaces",), 1): _get,
    ("PUT", ("namespaces",), 1): _put,
    ("PATCH", ("namespaces",), 1): _patch,
    ("POST", ("checknameavailability",), 0): _check_name,
}
