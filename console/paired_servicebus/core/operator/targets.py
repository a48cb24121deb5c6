"""The targets of an operator's command: kinds, names, and where a snapshot has them. Names compare without case."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView, QueueView, Snapshot, UnusedQueue
from paired_servicebus.core.text.number_format import format_indices, plural

# The senders reached by an order to one engine, and the limits of that engine's knowledge (SPEC.md section 12).
#
# An engine controls the senders of its own process only. Screens, previews, answers and why-lines share these
# sentences.

ELSEWHERE: Final = "applications elsewhere are unaffected"
STILL_MOVED: Final = "engines elsewhere may still move messages"
PAUSED_HERE: Final = f"paused here: {STILL_MOVED}"
USERS_UNKNOWN: Final = (
    "whether engines or applications of other hosts or users still use it: no engine can know; one that does loses "
    "the queue"
)
NONE_DIVERTED: Final = "no sender is diverted"
NONE_PINNED: Final = "no sender is pinned"
NONE_RETURNS: Final = "no sender returns to the primary"
_BY_STATE: Final = {
    State.FORCED: NONE_DIVERTED,
    State.FAILED_OVER: NONE_DIVERTED,
    State.PINNED: NONE_PINNED,
}


def not_reached(not_done: str, entities: Sequence[EntityView]) -> str:
    """Return a note that an order reaches no sender of some entities; empty if it reaches each.

    Args:
        not_done: what it does not do there; empty: it does not depend on senders.
    """
    silent = [one for one in entities if not one.carried]
    if not silent or not not_done:
        return ""
    some = "them" if len(silent) == len(entities) else f"{len(silent)} of them"
    whom = silent[0].path if len(entities) == 1 else some
    return f"this engine sends nothing to {whom}: {not_done}; {ELSEWHERE}"


def unseen(state: State) -> str:
    """Return a note on the limits of an engine without sends to an entity; empty if there are none."""
    if state is State.UNKNOWN:
        return ""
    effect = _BY_STATE.get(state)
    return f"this engine sends nothing to it: {f'{effect}; ' if effect else ''}senders elsewhere are unknown"


def held_back(paths: Sequence[str]) -> str:
    """Return a note on parked messages whose entity is forced in this engine; empty if there are none."""
    if not paths:
        return ""
    return f"leaves what is parked for {', '.join(paths)}: forced here; release it to have that moved"


class Scope(StrEnum):
    """The kind of an order's targets. The values are part of the control protocol."""

    ALL = "all"
    """The engine, or its whole syphon, without a target."""
    ENTITY = "entity"
    QUEUE = "queue"
    DESTINATION = "destination"
    """A destination of parked messages, by path."""
    UNUSED = "unused queue"
    """An unused backlog queue, by path."""
    DEAD_LETTERS = "dead letters"
    """Some dead letters of a backlog queue in use, as `3/118,121`: its index and their sequence numbers."""


class DeadLetters(NamedTuple):
    """Some dead letters of one backlog queue, by index and sequence numbers."""

    queue: str
    numbers: tuple[int, ...]

    @property
    def target(self) -> str:
        """The target of an order for them."""
        return f"{self.queue}/{','.join(map(str, self.numbers))}"


def dead_letters_of(target: str) -> DeadLetters | None:
    """Return the dead letters that a target names; None: it names none."""
    queue, _, listed = target.partition("/")
    numbers = listed.split(",")
    if not all(one.isascii() and one.isdigit() and int(one) for one in (*numbers, f"1{queue}")):
        return None
    return DeadLetters(queue, tuple(dict.fromkeys(map(int, numbers)))) if queue else None


_PLURALS: Final[dict[str, str]] = {Scope.ENTITY: "entities"}


def names_of(aim: Command) -> str:
    """Return the name of a command's targets for questions and answers; several: their number with their kind."""
    return counted(aim) if len(aim.targets) > 1 else named(aim.scope, aim.target)


def counted(aim: Command) -> str:
    """Return the number of targets with their kind: "2 entities"."""
    return plural(len(aim.targets), aim.scope, _PLURALS.get(aim.scope, ""))


def named(scope: str, target: str) -> str:
    """Return a target's name for audit lines and sentences."""
    letters = dead_letters_of(target) if scope == Scope.DEAD_LETTERS else None
    if letters is not None:
        word = "dead letter" if len(letters.numbers) == 1 else "dead letters"
        return f"{word} {format_indices(letters.numbers)} of backlog/{letters.queue}"
    return f"backlog/{target}" if scope == Scope.QUEUE and target else target


def entity_at(snapshot: Snapshot, path: str) -> EntityView | None:
    """Return the entity of that path, compared without case."""
    return next((one for one in snapshot.entities if one.path.casefold() == path.casefold()), None)


def queue_at(snapshot: Snapshot, index: str) -> QueueView | None:
    """Return the backlog queue in use with that index."""
    return next((one for one in snapshot.queues if str(one.index) == index), None)


def entities_of(snapshot: Snapshot, aim: Command) -> list[EntityView]:
    """Return the targets that are entities of the snapshot."""
    return [one for path in aim.targets if (one := entity_at(snapshot, path)) is not None]


def queues_of(snapshot: Snapshot, aim: Command) -> list[QueueView]:
    """Return the backlog queues in use that are targets, or that have targets."""
    indices = [one.partition("/")[0] for one in aim.targets] if aim.scope == Scope.DEAD_LETTERS else aim.targets
    return [one for index in indices if (one := queue_at(snapshot, index)) is not None]


def unused_of(snapshot: Snapshot, aim: Command) -> list[UnusedQueue]:
    """Return the targets that are unused backlog queues."""
    wanted = {path.casefold() for path in aim.targets}
    return [one for one in snapshot.unused.queues if one.path.casefold() in wanted]


def all_there(snapshot: Snapshot, aim: Command) -> bool:
    """Return whether the snapshot has each target of a kind that it lists."""
    if aim.scope not in (Scope.ENTITY, Scope.QUEUE, Scope.UNUSED, Scope.DEAD_LETTERS):
        return True
    return bool(aim.targets) and not any(unknown_target(snapshot, aim.scope, one) for one in aim.targets)


def unknown_target(snapshot: Snapshot, scope: str, target: str) -> str:
    """Return why a target is unknown; empty if it is known."""
    match scope:
        case Scope.ENTITY:
            known = [one.path for one in snapshot.entities]
            there = entity_at(snapshot, target) is not None
            return "" if there else f"this engine has no entity {target!r}; it has {', '.join(known) or 'none'}"
        case Scope.QUEUE:
            used = format_indices([one.index for one in snapshot.queues])
            there = queue_at(snapshot, target) is not None
            return "" if there else f"this pairing uses no backlog queue {target!r}; it uses {used}"
        case Scope.UNUSED:
            return _no_unused(snapshot, target)
        case Scope.DEAD_LETTERS:
            letters = dead_letters_of(target)
            if letters is None:
                return f"{target!r} names no dead letters; 3/118,121 does: a queue's index and sequence numbers"
            return unknown_target(snapshot, Scope.QUEUE, letters.queue)
        case _:  # a destination may be paused before its first message
            return "" if target.strip() else "a destination needs a name"


def _no_unused(snapshot: Snapshot, path: str) -> str:
    if snapshot.unused.read_at is None:
        return f"unused backlog queues are unknown: {snapshot.unused.trouble or 'not listed yet'}"
    paths = [one.path for one in snapshot.unused.queues]
    if path.casefold() in (one.casefold() for one in paths):
        return ""
    return f"{path!r} is not an unused backlog queue; there are {', '.join(paths) or 'none'}"
