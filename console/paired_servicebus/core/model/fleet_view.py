"""The engines of one pairing on every host, as one engine knows them from the boards in the secondary namespace.

Every figure has the time of the document that it comes from. A silent engine keeps its last figures, with that time:
they are old, not wrong. None means unknown. FLEET.md has the design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from paired_servicebus.core.model.entity_state import State


class FleetStatus(StrEnum):
    """Whether an engine reports. The values are the words on the screen."""

    REPORTING = "reporting"
    SILENT = "silent"
    """Its documents stopped: killed, cut off, or unable to post."""
    ENDED = "ended"
    """It said goodbye."""


class Takes(StrEnum):
    """Whether an engine acts on orders of the fleet."""

    SIGNED = "signed orders"
    LOOK_ONLY = "look only"
    """It has no usable file of signers."""
    READ_ONLY = "read-only"

    @property
    def acts(self) -> bool:
        """Return whether such an engine carries signed orders out."""
        return self is Takes.SIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEntityState:
    """One entity's state in one engine, since a time in seconds since the epoch.

    The failure that began the episode is as in `EntityView`.
    """

    path: str
    state: State
    since: float
    first_failure_at: float | None = None
    first_failure_kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """One engine's sums over its entities, from its latest report."""

    at: float
    sends_per_second: float
    accepted: int
    """Messages accepted by the primary since the engine started."""
    diverted: int
    """Messages accepted by backlog queues."""
    refused: int
    """Messages of calls that ended in an error at their caller."""
    refused_per_second: float
    moved: int
    """Messages that its syphon moved."""
    parked: int | None
    """Parked messages as this engine knows them; None: unknown. The same messages count in every engine."""
    gateway_clients: int | None = None
    """Clients of its gateway, whose sends it steers; None: it has none."""
    dead_lettered: int | None = None
    """Dead letters in its backlog queues, by its latest counts; None: it has counted none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine posts about itself, and screens show of it."""

    started_at: float
    states: tuple[tuple[State, int], ...]
    """Its entities by state."""
    not_well: tuple[FleetEntityState, ...]
    """Its entities that are not healthy, at most 10."""
    queues: tuple[int, ...]
    """Indices of its backlog queues."""
    syphon: str
    """The status of its syphon, a `SyphonStatus`."""
    takes: Takes
    signers: str
    """Hash of its file of signers; empty: it has none."""
    newest_order: float = 0.0
    """Time of issue of the newest order that it has seen."""
    clock_offset: float | None = None
    """Seconds that its clock is ahead of the namespace's; None: unknown."""
    differs: tuple[str, ...] = ()
    """How it differs from what stands, such as "released here by operator-b"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEngine(EngineFacts):
    """One engine, by its latest documents."""

    engine: str
    boot: str
    host: str
    pid: int
    program: str
    version: str
    environment: str
    status: FleetStatus
    heard_at: float
    """Time of its latest document, by the namespace's clock."""
    reason: str = ""
    """Why it ended, by its goodbye."""
    namesakes: int = 0
    """Other running engines of the same name: each needs its own."""
    figures: FleetFigures | None = None
    """None: it has not reported since this engine watches."""
    is_claimed: bool = False
    """Whether it was heard once in a flood, and is not expected: nothing waits for it."""

    @property
    def state(self) -> str:
        """Return its worst entity's state, or its status unless it reports."""
        if self.status is not FleetStatus.REPORTING:
            return self.status.value
        present = {state for state, count in self.states if count}
        return next((state.value for state in WORST_FIRST if state in present), State.UNKNOWN.value)


WORST_FIRST = (State.FAILED_OVER, State.FORCED, State.SUSPECT, State.PINNED, State.UNKNOWN, State.HEALTHY)
"""The order in which an engine's entities decide its state."""


def with_other_signers(engines: Iterable[FleetEngine], mine: str = "") -> tuple[str, ...]:
    """Return the engines whose file of signers differs from the file `mine`, or else from the most common one."""
    known = [one for one in engines if one.signers]
    counts = Counter(one.signers for one in known)
    usual = mine or max(counts, key=lambda one: counts[one], default="")
    return tuple(one.engine for one in known if one.signers != usual)


def engines_away(known: Iterable[str], here: Iterable[str]) -> tuple[str, ...]:
    """Return the known engines that are not among those here: by their names behind the pairing's, without case."""
    names = {name.rpartition("@")[2].casefold() for name in here}
    return tuple(name for name in known if name.rpartition("@")[2].casefold() not in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEntity:
    """One entity over the engines that have it: a sum that pairing_fold.py makes.

    `states` counts reporting engines by their state of it; `silent` counts the others.
    """

    path: str
    states: tuple[tuple[State, int], ...]
    silent: int = 0
    unreported: int = 0
    """Engines of which only the state is known, or was: whether their calls fail is unknown."""
    engines: tuple[tuple[str, State, float], ...] = ()
    """Engine, state, since: the engines where it is not healthy, the longest first; this one has an empty name."""
    first_failure_at: float | None = None
    """The earliest failure of the present episode."""
    causes: tuple[tuple[str, int], ...] = ()
    """What failed first, by kind, and at how many engines."""
    sends_per_second: float | None = None
    """Sum over the latest reports; None: nobody reported."""
    refused_per_second: float | None = None
    refused_in_outage: int = 0
    """Messages of calls refused since it left a well state."""
    refused_at: float | None = None
    """Time of the latest refused call; None: there was none."""
    refused_since: float | None = None
    failing: tuple[str, ...] = ()
    """Engines whose calls fail now, while the primary fails or none is accepted; at most 20."""
    failing_count: int = 0
    """The number of all such engines."""
    throttled: int = 0
    """Calls that wait for a busy namespace, and since when the first does."""
    throttled_since: float | None = None
    unanswered_since: float | None = None
    """When the oldest call without an answer began at any engine."""
    waiting: tuple[str, ...] = ()
    """Engines with such calls."""
    routes: tuple[tuple[str, int], ...] = ()
    """How many engines send to the primary, to the backlog, nowhere, or nothing."""
    next_ping_at: float | None = None
    fails_over_at: float | None = None
    last_ping_at: float | None = None
    """The newest ping of any engine."""
    last_ping_good: bool | None = None
    held_back: int | None = None
    """Messages that syphons hold back for it; None: no syphon has met one. Two of one queue may know of the same."""
    slow: int = 0
    """Engines at which it is slow."""

    @property
    def disagrees(self) -> bool:
        """Return whether reporting engines that send to it differ about it."""
        return sum(1 for state, count in self.states if count and state is not State.UNKNOWN) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOrder:
    """One order that is the newest about one of its targets, and who answered it."""

    id: str
    verb: str
    scope: str = ""
    """The kind of its targets, a value of `Scope`."""
    targets: tuple[str, ...]
    engines: tuple[str, ...] | None = None
    """The engines that it names; None: all."""
    by: str
    """The signer whose key verified; empty: this engine looks only, so it cannot tell whether the order counts."""
    at: float
    """When it was issued."""
    until: float | None
    """End of a standing order; None: it leaves its targets to the rules."""
    done: tuple[str, ...] = ()
    """Engines, at most 20 of each outcome."""
    more_done: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    """Engine and reason."""
    more_refused: int = 0
    silent: tuple[tuple[str, float | None], ...] = ()
    """Addressed engines without an answer, and when they were last heard."""
    unnamed: int = 0
    """Further engines without an answer."""
    claimed: int = 0
    """Engines that are only claimed, in a flood: they are none of the above."""
    why: str = ""

    @property
    def done_count(self) -> int:
        """Return the number of engines that did it."""
        return len(self.done) + self.more_done

    @property
    def refused_count(self) -> int:
        """Return the number of engines that refused it, or failed."""
        return len(self.refused) + self.more_refused

    @property
    def silent_count(self) -> int:
        """Return the number of addressed engines without an answer."""
        return len(self.silent) + self.unnamed


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """The fleet as one engine knows it."""

    me: str
    """The name of this engine in the fleet."""
    engines: tuple[FleetEngine, ...] = ()
    entities: tuple[FleetEntity, ...] = ()
    """Over the other engines; `pairing_fold.fold` adds this one."""
    orders: tuple[FleetOrder, ...] = ()
    read_at: float | None = None
    """Time of the latest successful reading of the reports; None: not read yet."""
    trouble: str = ""
    """Why the boards cannot be read or written now; empty while they can."""
    trouble_since: float | None = None
    watched: bool = False
    """Whether a watch is on, so that all engines look and report fast."""
    unwatched: str = ""
    """Why no engine reports fast although a console shows the fleet; empty: they do."""
    look_seconds: float = 60.0
    """Seconds between two looks of each engine at the orders."""
    expected: int | None = None
    """Engines that pairing.toml expects; None: it names none."""
    expected_names: tuple[str, ...] = ()
    """Their names, if it has them: other engines are claims then."""
    missing: tuple[str, ...] = ()
    """Expected names that were not heard."""
    unlisted: int = 0
    """Further engines that have not ended, which a console does not get: most report, and are healthy or claimed."""
    unread: int = 0
    """Messages of the orders board that are known to lie unread; 0: its end is reached."""
    unread_since: float | None = None
    """When its end was first not reached."""
    clock_offset: float | None = None
    """Seconds that this engine's clock is ahead of the namespace's; None: unknown."""
    read_every: float = 3600.0
    """Seconds between two readings of the reports."""
    is_flooded: bool = False
    """Whether more engines are claimed on the reports board than can be."""
    skipped: int = 0
    """Foreign or broken messages on the boards, which were skipped."""
    my_boot: str = ""
    """The boot of this engine, which tells it from a namesake."""
    remarks: tuple[str, ...] = ()
    """Remarks for the operator: namesakes, clocks that are off, files of signers that differ."""

    def is_me(self, engine: FleetEngine) -> bool:
        """Return whether it is the engine that has this view."""
        return engine.engine.casefold() == self.me.casefold() and (not self.my_boot or engine.boot == self.my_boot)
