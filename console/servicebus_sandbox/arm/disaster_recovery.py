"""Disaster-recovery pairings in ARM as states: aliases, failover, the end of a pairing. No data moves.

A change is "Accepted" in its own answer, and until `activation_s` has passed; then it is "Succeeded".
"""

from __future__ import annotations

from collections.abc import Callable

from servicebus_sandbox.arm.arm_request import (
    Actions,
    Alias,
    ArmNamespace,
    ArmRequest,
    ArmResponse,
    Json,
    read_address,
    reads,
    resource_id,
)
from servicebus_sandbox.arm.arm_resources import check_name
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.serving.http_server import HttpRefusal

_WORDS = ("namespaces", "disasterrecoveryconfigs")
_CHECK = "checknameavailability"


def _alias(call: ArmRequest) -> Alias:
    """Return the alias of the address if the namespace is one of its two. Raises HttpRefusal (404)."""
    name, alias = call.place.node.name, call.places.aliases.get(call.names[1].lower())
    if alias is None or name not in (alias.primary, alias.partner):
        raise HttpRefusal(404, "NotFound", f"'{name}' has no alias '{call.names[1]}'")
    return alias


def _aliases(call: ArmRequest) -> list[Alias]:
    name = call.place.node.name
    return [alias for alias in call.places.aliases.values() if name in (alias.primary, alias.partner)]


def _put(call: ArmRequest) -> ArmResponse:
    place, partner, name = call.place, _partner(call), call.names[1]
    key, aliases, mine = name.lower(), call.places.aliases, place.node.name
    taken = [one for one in aliases.values() if {mine, partner.node.name} & {one.primary, one.partner}]
    present = aliases.get(key)
    if present is None and (taken or not _is_free(call, name)):
        raise HttpRefusal(409, "Conflict", f"'{name}' or one of the two namespaces is taken by another pairing")
    if present is not None and (present.primary, present.partner or partner.node.name) != (mine, partner.node.name):
        raise HttpRefusal(400, "BadRequest", f"'{name}' pairs '{present.primary}' with '{present.partner}'")
    if present is None or not present.partner:
        aliases[key] = Alias(name, mine, partner.node.name, call.places.clock())
    return ArmResponse(200, _describe(call, aliases[key], is_new=True))


def _partner(call: ArmRequest) -> ArmNamespace:
    """Return the other namespace, which the body names by its id. Raises HttpRefusal (400)."""
    given = call.part_of_body("properties").get("partnerNamespace")
    address = read_address(given) if isinstance(given, str) else None
    other = call.places.get(address.names[0]) if address is not None and address.names else None
    if other is None or other is call.place:
        raise HttpRefusal(400, "BadRequest", f"partnerNamespace is {given!r}; it has to be the id of another namespace")
    for place in (call.place, other):
        if place.node.namespace.tier is not Tier.PREMIUM:
            raise HttpRefusal(400, "BadRequest", f"'{place.node.name}' is not of the tier Premium; choose it for both")
    return other


def _delete(call: ArmRequest) -> ArmResponse:
    try:
        alias = _alias(call)
    except HttpRefusal:
        return ArmResponse(204)
    if alias.partner:
        raise HttpRefusal(400, "BadRequest", f"'{alias.name}' is still paired; break the pairing first")
    del call.places.aliases[alias.name.lower()]
    return ArmResponse(200)


def _break(call: ArmRequest) -> ArmResponse:
    alias = _alias(call)
    _require_role(call, alias.primary, alias)
    alias.partner, alias.changed_at = "", call.places.clock()
    return ArmResponse(200)


def _fail_over(call: ArmRequest) -> ArmResponse:
    """Make the secondary namespace the primary one; its former primary has the alias no more."""
    alias = _alias(call)
    _require_role(call, alias.partner, alias)
    alias.primary, alias.partner, alias.changed_at = alias.partner, "", call.places.clock()
    return ArmResponse(200)


def _require_role(call: ArmRequest, wanted: str, alias: Alias) -> None:
    if call.place.node.name != wanted:
        raise HttpRefusal(400, "BadRequest", f"this operation on '{alias.name}' belongs to the namespace '{wanted}'")


def _check_name(call: ArmRequest) -> ArmResponse:
    if call.names[1].lower() != _CHECK:
        raise HttpRefusal(405, "MethodNotAllowed", f"the sandbox has no POST for '{'/'.join(call.words)}'")
    return check_name(call, lambda name: _is_free(call, name))


def _is_free(call: ArmRequest, name: str) -> bool:
    return call.places.get(name) is None and name.lower() not in call.places.aliases


def _describe(call: ArmRequest, alias: Alias, *, is_new: bool = False) -> Json:
    """Return an alias from the view of the namespace of the address."""
    is_primary = call.place.node.name == alias.primary
    is_ready = call.places.has_passed(alias.changed_at) and not is_new
    role = "Secondary" if not is_primary else "Primary" if alias.partner else "PrimaryNotReplicating"
    other = call.places.get(alias.partner if is_primary else alias.primary)
    properties: Json = {"provisioningState": "Succeeded" if is_ready else "Accepted"}
    if is_ready:
        properties["pendingReplicationOperationsCount"] = 0
    group = other.group or call.address.group if other else None
    partner = resource_id(call.address.subscription, group or "", "namespaces", other.node.name) if other else ""
    return call.resource((alias.name,), properties | {"partnerNamespace": partner, "role": role})


_POSTS: dict[str, Callable[[ArmRequest], ArmResponse]] = {"breakpairing": _break, "failover": _fail_over}
DISASTER_RECOVERY_ACTIONS: Actions = {
    **reads(_WORDS, _aliases, _alias, _describe),
    ("PUT", _WORDS, 2): _put,
    ("DELETE", _WORDS, 2): _delete,
    ("POST", _WORDS, 2): _check_name,
    **{("POST", (*_WORDS, word), 2): action for word, action in _POSTS.items()},
}
