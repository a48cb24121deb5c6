"""What a console gets of an engine's snapshots: a bounded view of the fleet, and then only what changes.

    value                     its change
    equal                     none
    a dataclass               {"f": {field: change}}
    a tuple with keys         {"k": runs, "i": {place: change}}; a run is [start, stop] of the old items, or {"=": item}
    any other                 {"=": value}

Values are written without the fields that have their defaults. Anybody with Send on the reports board can invent
engines, so the view of the fleet has at most MAX_FLEET_BYTES, and its changes have a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetEntity, FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import (
    DestinationView,
    EntityView,
    Finding,
    QueueView,
    Snapshot,
    SyphonStatus,
    UnusedQueue,
)

ENGINE_BYTES: Final = 95_000
ENTITY_BYTES: Final = 45_000
ORDER_BYTES: Final = 30_000
"""Bytes of the parts of a fleet's view; together they are less than 200 kB."""
CHANGE_BYTES_A_SECOND: Final = 4_000.0
"""Bytes of changes of claimed engines and their entities that a console gets, over time."""
CHANGE_BURST: Final = 100_000.0
"""The same at once, after a quiet time: a fleet of 500 engines that fails over."""

Change = dict[str, Any]
T = TypeVar("T")

_KEYS: Final[dict[type, Callable[[Any], object]]] = {
    EntityView: lambda one: one.path,
    QueueView: lambda one: one.index,
    UnusedQueue: lambda one: one.path,
    DestinationView: lambda one: one.path,
    Finding: lambda one: one.what,
    FleetEngine: lambda one: (one.engine, one.boot),
    FleetEntity: lambda one: one.path,
    FleetOrder: lambda one: one.id,
}
"""How to find an item of a tuple again, by its type."""


# -- bounds -----------------------------------------------------------------------------------------------------------


def bound_fleet(view: FleetView) -> FleetView:
    """Return the view with at most MAX_FLEET_BYTES: the engines that need an operator are listed first, then others."""
    ranked = sorted(view.engines, key=lambda one: _rank(one, view))
    engines = {(one.engine, one.boot) for one in _fitting(ranked, ENGINE_BYTES)}
    left_out = [one for one in view.engines if (one.engine, one.boot) not in engines]
    entities = _shorten(view.entities, ENTITY_BYTES // 2, lambda one: replace(one, engines=()))
    return replace(
        view,
        engines=tuple(one for one in view.engines if (one.engine, one.boot) in engines),
        unlisted=sum(1 for one in left_out if one.status is not FleetStatus.ENDED),
        entities=tuple(_fitting(entities, ENTITY_BYTES)),
        orders=tuple(_fitting(_shorten(view.orders, ORDER_BYTES // 2, _without_names), ORDER_BYTES)),
    )


def _rank(engine: FleetEngine, view: FleetView) -> tuple[bool, ...]:
    """Return an engine's place: itself, expected ones, and those of which a sentence may speak come first."""
    expected = {one.casefold() for one in view.expected_names}
    return (
        not view.is_me(engine),
        engine.engine.casefold() not in expected,
        engine.status is not FleetStatus.SILENT,
        engine.status is FleetStatus.ENDED,
        engine.syphon == SyphonStatus.OFF,
        not engine.not_well,
        engine.figures is None,
    )


def _fitting(items: Iterable[T], most: int) -> Iterable[T]:
    """Yield the first items that have at most `most` bytes together."""
    for item in items:
        most -= size_of(item)
        if most < 0:
            return
        yield item


def _shorten(items: Iterable[T], most: int, shorter: Callable[[T], T]) -> list[T]:
    """Return the items, those beyond `most` bytes in a shorter form."""
    found = []
    for item in items:
        most -= size_of(item)
        found.append(item if most >= 0 else shorter(item))
    return found


def _without_names(order: FleetOrder) -> FleetOrder:
    return replace(
        order,
        done=(),
        more_done=order.done_count,
        refused=(),
        more_refused=order.refused_count,
        silent=(),
        unnamed=order.silent_count,
    )


def size_of(value: object) -> int:
    """Return the bytes of a value on the socket."""
    return len(msgspec.json.encode(prune(value)))


class ChangeBudget:
    """The bytes that one console may still get for changes of the fleet."""

    def __init__(self) -> None:
        self._left, self._at = CHANGE_BURST, 0.0

    def allows(self, size: int, at: float) -> bool:
        """Return whether a change may be sent at a time, and count it if so."""
        self._left = min(CHANGE_BURST, self._left + CHANGE_BYTES_A_SECOND * max(0.0, at - self._at))
        self._at = at
        if self._left <= 0:
            return False
        self._left -= size
        return True


def size_of_claims(change: Change) -> int:
    """Return the bytes of what a change says of engines and their entities; 0: nothing."""
    fleet = change.get("f", {}).get("fleet", {}).get("f", {})
    return sum(len(msgspec.json.encode(fleet[name])) for name in ("engines", "entities") if name in fleet)


def without_new_claims(old: Snapshot, new: Snapshot) -> Snapshot:
    """Return the new snapshot with the engines and entities of the old one: orders and their answers go on."""
    if old.fleet is None or new.fleet is None:
        return new
    kept = replace(new.fleet, engines=old.fleet.engines, entities=old.fleet.entities, unlisted=old.fleet.unlisted)
    return replace(new, fleet=kept)


# -- changes ----------------------------------------------------------------------------------------------------------


@cache
def _defaults(kind: Any) -> tuple[tuple[str, object], ...]:
    """Return the names and defaults of the fields of a dataclass."""
    return tuple((one.name, _default(one)) for one in fields(kind))


def _default(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@cache
def _types(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass."""
    return get_type_hints(kind)


def _is_one(value: object) -> bool:
    """Return whether a value is an instance of a dataclass."""
    return is_dataclass(value) and not isinstance(value, type)


def prune(value: Any) -> object:
    """Return the value with mappings for dataclasses, without the fields that have their defaults."""
    if _is_one(value):
        found = ((name, getattr(value, name), default) for name, default in _defaults(value.__class__))
        return {name: prune(one) for name, one, default in found if one is not default and one != default}
    if isinstance(value, tuple):
        return [prune(one) for one in value]
    return value


def find_change(old: Any, new: Any) -> Change | None:
    """Return the change from one value to another of its type; None: they are equal."""
    if old is new:
        return None
    if _is_one(new) and type(old) is type(new):
        names = (name for name, _ in _defaults(new.__class__))
        changed = {name: find_change(getattr(old, name), getattr(new, name)) for name in names}
        found = {name: change for name, change in changed.items() if change is not None}
        return {"f": found} if found else None
    if isinstance(new, tuple) and isinstance(old, tuple) and new and type(new[0]) in _KEYS:
        return _find_items(old, new, _KEYS[type(new[0])])
    return None if old == new else {"=": prune(new)}


def _find_items(old: tuple[Any, ...], new: tuple[Any, ...], key: Callable[[Any], object]) -> Change | None:
    places = {key(one): place for place, one in enumerate(old)}
    if len(places) != len(old) or len({key(one) for one in new}) != len(new):
        return None if old == new else {"=": prune(new)}
    runs: list[list[int] | Change] = []
    items: dict[str, Change] = {}
    for place, one in enumerate(new):
        at = places.get(key(one))
        if at is None:
            runs.append({"=": prune(one)})
            continue
        if runs and isinstance(runs[-1], list) and runs[-1][1] == at:
            runs[-1][1] = at + 1
        else:
            runs.append([at, at + 1])
        change = find_change(old[at], one)
        if change is not None:
            items[str(place)] = change
    found: Change = {} if runs == [[0, len(old)]] else {"k": runs}
    return (found | {"i": items} if items else found) or None


def apply_change(old: Snapshot, change: Change) -> Snapshot:
    """Return the snapshot after a change. Raises UnreadableError: it is no change of this snapshot."""
    try:
        return cast(Snapshot, _apply(old, change, Snapshot))
    except (msgspec.ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(f"is no change of the snapshot before ({type(error).__name__})") from error


def _apply(old: Any, change: Change, kind: Any) -> object:
    if "=" in change:
        return msgspec.convert(change["="], kind)
    if "f" in change:
        kinds = _types(old.__class__)
        return replace(old, **{name: _apply(getattr(old, name), one, kinds[name]) for name, one in change["f"].items()})
    item = get_args(kind)[0]
    found: list[Any] = []
    for run in change.get("k", [[0, len(old)]]):
        found += old[run[0] : run[1]] if isinstance(run, list) else [msgspec.convert(run["="], item)]
    for place, one in change.get("i", {}).items():
        found[int(place)] = _apply(found[int(place)], one, item)
    return tuple(found)
