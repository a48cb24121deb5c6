"""Rows and their order: entities worst first unless the operator sorts otherwise.

A live order follows the news. An order that would move rows every second is frozen, and its title gives the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_fold import PairingEntity, PairingView, pairing_of
from paired_servicebus.core.model.snapshot import NOWHERE, EntityView, Snapshot, UnusedQueue
from paired_servicebus.ui.render.spans import LOOKS, QUIET

# Answers kept for the newest argument: several parts of a screen ask the same of one view in a paint.

A = TypeVar("A")
R = TypeVar("R")


def for_newest(answer: Callable[[A], R]) -> Callable[[A], R]:
    """Return `answer`, which then runs once in a row for the same object. The argument must not change."""
    newest: tuple[A, R] | None = None

    @wraps(answer)
    def ask(about: A) -> R:
        nonlocal newest
        known = newest
        if known is None or known[0] is not about:
            known = newest = (about, answer(about))
        return known[1]

    return ask


@for_newest
def pairing_in(snapshot: Snapshot) -> PairingView:
    """Return the pairing over all engines: what every page says of an entity."""
    return pairing_of(snapshot)


WORST_FIRST: Final = "worst first"


def is_lost(entity: EntityView) -> bool:
    """Return whether sends to it end in errors at callers."""
    return entity.refused_per_second > 0 or entity.route == NOWHERE


def severity(entity: EntityView) -> tuple[bool, int]:
    """Return the severity of an entity's state: lost sends first, then its state."""
    return (is_lost(entity), LOOKS[entity.state].weight)


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One way to order rows. `key`: None for the engine's own order; the smallest comes first."""

    key: Callable[[EntityView], Any] | None
    live: bool = True
    """Whether the order follows the news; otherwise it is frozen when the operator chooses it."""


def _worst(entity: EntityView) -> tuple[bool, int, bool]:
    """Return its place: lost sends, the worst state, and in it those of which engines disagree."""
    lost, heavy = severity(entity)
    return (not lost, -heavy, not (isinstance(entity, PairingEntity) and entity.total.disagrees))


SORTS: Final[dict[str, SortOrder]] = {
    WORST_FIRST: SortOrder(_worst),
    "name": SortOrder(lambda entity: entity.path.casefold()),
    "busiest first": SortOrder(lambda entity: -entity.sends_per_second, live=False),
    "latest change first": SortOrder(lambda entity: -entity.since),
    "as listed": SortOrder(None),
}
"""In the order in which the sort key cycles through them."""


def list_entities(
    entities: Sequence[PairingEntity], words: str, sort: str, order: Sequence[str]
) -> tuple[PairingEntity, ...]:
    """Return the entities that match the words, sorted; those not in `order` come last."""
    if words:
        wanted = words.casefold().split()
        entities = [one for one in entities if has_all(f"{one.path} {one.state}".casefold(), wanted)]
    way = SORTS[sort]
    if sort == WORST_FIRST:
        return _worst_first(entities)
    if way.key is not None and way.live:
        return tuple(sorted(entities, key=way.key))
    if order:
        places = {path: place for place, path in enumerate(order)}
        return tuple(sorted(entities, key=lambda one: places.get(one.path, len(places))))
    return tuple(entities)


def frozen_order(entities: Sequence[EntityView], sort: str) -> tuple[str, ...]:
    """Return the paths in the present order, if the sort order is frozen; () if it is live or the engine's own."""
    way = SORTS[sort]
    if way.live or way.key is None:
        return ()
    return tuple(entity.path for entity in sorted(entities, key=way.key))


def _worst_first(entities: Sequence[PairingEntity]) -> tuple[PairingEntity, ...]:
    """Return the entities sorted by `_worst`; groups are faster than sorting, and thousands are listed each second."""
    groups: dict[tuple[bool, int, bool], list[PairingEntity]] = {}
    for entity in entities:
        groups.setdefault(_worst(entity), []).append(entity)
    return tuple(entity for severe in sorted(groups) for entity in groups[severe])


def has_all(text: str, words: Sequence[str]) -> bool:
    """Return whether a text in lower case has every word, and none of those that begin with an exclamation mark."""
    return all(word[1:] not in text if word[:1] == "!" and word[1:] else word in text for word in words)


E = TypeVar("E", bound=EntityView)


def by_state(entities: Sequence[E]) -> dict[State, list[E]]:
    """Return the entities by their state, the worst first; in a state those with lost sends first."""
    lost: dict[State, list[E]] = {}
    spared: dict[State, list[E]] = {}
    for entity in entities:
        (lost if is_lost(entity) else spared).setdefault(entity.state, []).append(entity)
    states = sorted({*lost, *spared}, key=lambda state: -LOOKS[state].weight)
    return {state: [*lost.get(state, ()), *spared.get(state, ())] for state in states}


@for_newest
def groups_of(snapshot: Snapshot) -> Mapping[State, Sequence[PairingEntity]]:
    """Return the entities of the pairing by their state; see `by_state`."""
    return by_state(pairing_in(snapshot).entities)


def unused_queues(snapshot: Snapshot) -> tuple[UnusedQueue, ...]:
    """Return the unused backlog queues, those that contain messages first."""
    return tuple(sorted(snapshot.unused.queues, key=lambda one: not (one.messages or one.dead_lettered)))


# The rows of the entities' table: one each, and one for all quiet entities while another one needs attention.
#
# Folded are the healthy and the unknown whose sends reach their callers, in every engine of the fleet, unless they are
# marked or selected. The order of rows is in row_order.py.

QUIET_ROWS: Final = 3
QUIET_ROWS_HIGH: Final = 12
"""Quiet entities that keep their rows, on an ordinary terminal and on a high one."""
FOLD: Final = ""
"""The name of the row that stands for the quiet entities; an entity's row has its path."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows from top to bottom."""

    entities: tuple[PairingEntity, ...]
    """Those with a row of their own."""
    quiet: tuple[PairingEntity, ...] = ()
    """Those that the fold stands for, shown or not; empty: there is no fold."""
    fold_at: int = 0
    """The place of the fold: so many entities are above it."""
    is_open: bool = False
    """Whether the quiet ones have rows too, below the fold."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each row."""
        paths = tuple(entity.path for entity in self.entities)
        return (*paths[: self.fold_at], FOLD, *paths[self.fold_at :]) if self.quiet else paths


def table_rows(listed: Sequence[PairingEntity], *, kept: Collection[str], at_most: int, is_open: bool) -> TableRows:
    """Return the rows of the listed entities, which are sorted worst first.

    Args:
        kept: paths that have a row of their own while the others are folded.
        at_most: so many quiet ones are not folded.
        is_open: whether the operator has unfolded the quiet ones.
    """
    loud = tuple(one for one in listed if needs_eyes(one))
    if not loud or len(listed) - len(loud) <= at_most:
        return TableRows(tuple(listed))
    quiet = tuple(one for one in listed if not needs_eyes(one))
    if is_open:
        return TableRows((*loud, *quiet), quiet, len(loud), is_open=True)
    own = tuple(one for one in quiet if one.path in kept)
    folded = tuple(one for one in quiet if one.path not in kept)
    return TableRows((*loud, *own), folded, len(loud) + len(own))


def needs_eyes(entity: EntityView) -> bool:
    """Return whether an entity is not quiet: by its state or by its sends, at any engine."""
    return is_lost(entity) or entity.state not in QUIET
