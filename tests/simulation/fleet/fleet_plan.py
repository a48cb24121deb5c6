"""The values of one run of the fleet: engines, clocks, faults, crashes, orders and the acts of an enemy.

Times are seconds since the beginning. Every fault ends by `heals_at`, and none begins after it.
"""

from __future__ import annotations

from enum import Enum, auto
from random import Random
from typing import Any, Final, NamedTuple

PRIMARY: Final = "shop-ne"
SECONDARY: Final = "shop-we"
KEYS: Final = ("key-a", "key-b", "key-c")
"""The keys of operators that every signers file has, one for each console."""
FOREIGN_KEY: Final = "key-x"
BEGAN: Final = 1_800_000_000.0
"""The beginning of every run, in seconds since the epoch."""
ENDED_KEY: Final = "key-e"
ENDED_AT: Final = BEGAN - 60.0
"""A key that every signers file has with an end, and that end: the enemy has it."""
ENTITIES: Final = ("orders", "payments", "audit")
CHAOS_SECONDS: Final = (120.0, 480.0)
HEALING_SECONDS: Final = 200.0
"""Seconds after recovery until engines stand equal: two looks of 60 s, after a wait of 60 s for a retry."""
RESET_SECONDS: Final = 720.0
"""The same after a board was created again: each tenth look detects that."""
FINAL_SECONDS: Final = 180.0
"""Seconds after the last orders within which every engine has answered and every console has read it."""
LAST_STAND: Final = 200.0
"""Seconds that the last orders stand."""
ENDING_SECONDS: Final = 60.0


class EngineKind(Enum):
    """What an engine is."""

    CURRENT = auto()
    """This version, with a signers file."""
    LOOK_ONLY = auto()
    """This version, without a signers file."""
    FEWER_SIGNERS = auto()
    """This version, with a signers file that lacks the last key."""
    FEWER_VERBS = auto()
    """The version before: it does not know every verb."""


class FleetCondition(Enum):
    """The effect of a fault on a request to a board."""

    UNREACHABLE = auto()
    """Nothing arrives; the request fails."""
    BUSY = auto()
    """The namespace throttles."""
    ACK_LOST = auto()
    """A post arrives, and its acknowledgement does not."""
    LANDS_LATE = auto()
    """A post is accepted, and is on the board only later."""
    STALE = auto()
    """A reading misses the newest posts."""
    SLOW = auto()


class PlannedEngine(NamedTuple):
    """One engine. skew, drift: its clock is ahead by `skew` seconds, and gains `drift` seconds a second."""

    kind: EngineKind
    syphon: bool
    queues: int
    skew: float
    drift: float
    spread: float


class FleetFault(NamedTuple):
    """A condition of requests from `engines` (None: all) between two times, with the probability `share`."""

    at: float
    ends: float
    engines: tuple[int, ...] | None
    condition: FleetCondition
    share: float


class EngineCrash(NamedTuple):
    """An engine ends at `at`, without a goodbye unless `clean`; the next boot begins at `back`.

    loses_disk: the next boot is a new pod, which has nothing of the one before.
    """

    at: float
    back: float
    engine: int
    clean: bool
    loses_disk: bool


class DiskFailure(NamedTuple):
    """The disk of an engine accepts nothing between two times."""

    at: float
    ends: float
    engine: int


class SignersChange(NamedTuple):
    """The file of operators of an engine loses the last key, or has all again."""

    at: float
    engine: int
    is_whole: bool


class LocalAct(NamedTuple):
    """A local operator's order to one engine."""

    at: float
    engine: int
    verb: str
    target: str


class PlannedOrder(NamedTuple):
    """An order of a console. engines: indices; None: all. haste: the console reads nothing before it."""

    at: float
    console: int
    verb: str
    scope: str
    targets: tuple[str, ...]
    engines: tuple[int, ...] | None
    stands_for: float | None
    haste: bool = False


class Mischief(NamedTuple):
    """One act of the enemy; sim_enemy.py has the kinds."""

    at: float
    kind: str
    number: int


class StateChange(NamedTuple):
    """An entity of an engine fails over by itself, or recovers."""

    at: float
    engine: int
    path: str
    fails: bool


class FleetPlan(NamedTuple):
    """One run."""

    engines: tuple[PlannedEngine, ...]
    consoles: tuple[int, ...]
    """The engine of each console."""
    orders: tuple[PlannedOrder, ...]
    faults: tuple[FleetFault, ...]
    crashes: tuple[EngineCrash, ...]
    local_acts: tuple[LocalAct, ...]
    mischief: tuple[Mischief, ...]
    changes: tuple[StateChange, ...]
    disk_failures: tuple[DiskFailure, ...]
    signers_changes: tuple[SignersChange, ...]
    clock_sets: tuple[tuple[float, int], ...]
    """Times at which an engine's clock is set right."""
    remakes: tuple[tuple[float, str], ...]
    """Times at which a board is deleted and created again."""
    expiry: str
    """How the boards drop ended messages: lazy, or prompt."""
    expect: int | None
    last_orders: tuple[PlannedOrder, ...]
    heals_at: float
    deaths: tuple[tuple[float, int], ...] = ()
    """Times from which an engine is killed before its next act that replaces an order, after the decision."""

    @property
    def healed_at(self) -> float:
        """Return the time by which engines stand equal."""
        return self.heals_at + (RESET_SECONDS if self.remakes else HEALING_SECONDS)

    @property
    def ends_at(self) -> float:
        """Return the time by which the last orders have ended on every engine."""
        return self.healed_at + LAST_STAND + 100.0 + ENDING_SECONDS


MISCHIEF: Final = (
    "copy", "copy", "change", "change", "unsigned", "foreign", "other pairing", "newer", "no end", "long end", "future",
    "row", "row", "presence", "carried", "watch", "flood", "flood", "deluge", "take", "take", "take", "take newest",
    "take presence", "take all", "goodbye", "broken",
)  # fmt: skip
DATED_BACK: Final = 0.2
"""The share of runs in which an ended key signs: drawn last, so that it changes no other part of a plan."""
SCENE_SHARE: Final = 0.4
"""The share of runs with a scene, which is drawn last too."""
VERBS: Final[tuple[tuple[str, str], ...]] = (
    ("force", "entity"), ("force", "entity"), ("pin", "entity"), ("release", "entity"), ("release", "entity"),
    ("pause-syphon", "all"), ("pause-syphon", "queue"), ("resume-syphon", "all"), ("resume-syphon", "queue"),
    ("read-only", "all"), ("read-write", "all"),
)  # fmt: skip
STANDING: Final = frozenset({"force", "pin", "pause-syphon", "read-only"})


def draw_fleet_plan(random: Random) -> FleetPlan:
    """Draw a run: mostly few engines, sometimes 40."""
    count = random.choice((3, 3, 3, 3, 3, 3, 3, 4, 4, 5, 6)) if random.random() < 0.985 else random.randint(20, 40)
    calm = count > 8
    heals_at = CHAOS_SECONDS[0] if calm else random.uniform(*CHAOS_SECONDS)
    engines = tuple(_engine(random, place) for place in range(count))
    consoles = tuple(random.sample(range(count), 2 if calm or random.random() < 0.7 else 3))
    remakes: tuple[tuple[float, str], ...] = ()
    if random.random() < 0.2:
        remakes = ((random.uniform(30.0, heals_at), random.choice(("orders", "orders", "reports"))),)
    number = random.randint(1, 3) if calm else random.randint(2, 5)
    orders = [one for _ in range(number) for one in _orders(random, count, len(consoles), heals_at)]
    faults = [_fault(random, count, heals_at) for _ in range(random.randint(0, 4))]
    if random.random() < 0.2:
        faults.append(_cut_off(random, orders, consoles, count))
        heals_at = max(heals_at, faults[-1].ends)
    plan = FleetPlan(
        engines=engines,
        consoles=consoles,
        orders=tuple(sorted(orders, key=lambda one: one.at)),
        faults=tuple(faults),
        crashes=tuple(_crash(random, count, heals_at) for _ in range(random.randint(0, 4))),
        local_acts=tuple(_local(random, count, heals_at) for _ in range(random.randint(0, 3))),
        mischief=tuple(_mischief(random, heals_at) for _ in range(random.randint(0, 8))),
        changes=tuple(_change(random, count, heals_at) for _ in range(random.randint(0, 3))),
        disk_failures=tuple(_disk_failure(random, count, heals_at) for _ in range(random.choice((0, 0, 1)))),
        signers_changes=_signers_changes(random, count, heals_at) if random.random() < 0.2 else (),
        clock_sets=tuple((random.uniform(0, heals_at), random.randrange(count)) for _ in range(random.randint(0, 1))),
        remakes=remakes,
        expiry=random.choice(("lazy", "lazy", "prompt")),
        expect=random.choice((None, None, count, count + 1)),
        last_orders=_last_orders(random, count),
        heals_at=heals_at,
    )
    if random.random() < DATED_BACK:
        dated_back = Mischief(random.uniform(10.0, heals_at), "dated back", random.randrange(10**6))
        plan = plan._replace(mischief=(*plan.mischief, dated_back))
    return random.choice(SCENES)(plan, random) if not calm and random.random() < SCENE_SHARE else plan


def _engine(random: Random, place: int) -> PlannedEngine:
    odd = place > 1 and random.random() < 0.25
    kind = random.choice(list(EngineKind)[1:]) if odd else EngineKind.CURRENT
    skew = random.choice((0.0, 0.0, random.uniform(-5, 5), random.uniform(-240, 240)))
    drift = random.choice((0.0, 0.0, random.uniform(-1e-3, 1e-3)))
    return PlannedEngine(kind, random.random() < 0.6, random.choice((2, 3, 3)), skew, drift, random.random())


def _orders(random: Random, count: int, consoles: int, heals_at: float) -> list[PlannedOrder]:
    """Draw an order, and sometimes a rival of another console about the same subject."""
    verb, scope = random.choice(VERBS)
    rivals = [one for one, where in VERBS if where == scope]
    at = random.uniform(20.0, heals_at)
    targets: tuple[str, ...] = ()
    if scope == "entity":
        targets = tuple(random.sample(ENTITIES, random.choice((1, 1, 1, 2))))
    elif scope == "queue":
        targets = (str(random.randrange(3)),)
    engines: tuple[int, ...] | None = None
    if random.random() < 0.4:
        engines = tuple(sorted(random.sample(range(count), random.randint(1, min(count, 3)))))
    stands_for = random.choice((15.0, 60.0, 150.0, 300.0, 1200.0)) if verb in STANDING else None
    console = random.randrange(consoles)
    first = PlannedOrder(at, console, verb, scope, targets, engines, stands_for, random.random() < 0.3)
    if random.random() > 0.3:
        return [first]
    rival = random.choice(rivals)
    later = at + random.choice((random.uniform(0.0, 4.0), random.uniform(4.0, 120.0)))
    stands_for = random.choice((15.0, 60.0, 300.0, 900.0)) if rival in STANDING else None
    second = first._replace(at=later, console=(console + 1) % consoles, verb=rival, stands_for=stands_for, haste=True)
    return [first, second]


def _last_orders(random: Random, count: int) -> tuple[PlannedOrder, ...]:
    """Draw the orders on the sound fleet: each about another subject, for all engines or for some."""
    verb = random.choice(("force", "pin", "pin"))
    some = tuple(sorted(random.sample(range(count), min(count, 2))))
    chosen = [
        PlannedOrder(0.0, 0, "read-write", "all", (), None, None),
        PlannedOrder(20.0, 1, verb, "entity", ("orders", "payments"), None, LAST_STAND),
        PlannedOrder(40.0, 0, "pause-syphon", "all", (), random.choice((None, some)), LAST_STAND - 40.0),
    ]
    if random.random() < 0.5:
        chosen.append(PlannedOrder(60.0, 1, "release", "entity", ("payments",), random.choice((None, some)), None))
    return tuple(chosen)


def _fault(random: Random, count: int, heals_at: float) -> FleetFault:
    at = random.uniform(0.0, heals_at)
    ends = min(at + random.choice((random.uniform(5, 60), random.uniform(60, 600))), heals_at)
    engines = random.choice((None, (random.randrange(count),), (random.randrange(count),)))
    return FleetFault(at, ends, engines, random.choice(list(FleetCondition)), random.choice((0.3, 1.0)))


def _cut_off(random: Random, orders: list[PlannedOrder], consoles: tuple[int, ...], count: int) -> FleetFault:
    """Cut an engine off while an order is given to it, for some looks."""
    order = random.choice(orders)
    meant = [one for one in order.engines or range(count) if one != consoles[order.console]]
    engine = random.choice(meant or [count - 1])
    return FleetFault(order.at, order.at + random.uniform(330.0, 420.0), (engine,), FleetCondition.UNREACHABLE, 1.0)


def _crash(random: Random, count: int, heals_at: float) -> EngineCrash:
    at = random.uniform(0.0, heals_at)
    back = min(at + random.choice((random.uniform(1, 30), random.uniform(30, 400))), heals_at)
    return EngineCrash(at, max(back, at + 0.5), random.randrange(count), random.random() < 0.3, random.random() < 0.3)


def _disk_failure(random: Random, count: int, heals_at: float) -> DiskFailure:
    at = random.uniform(0.0, heals_at)
    return DiskFailure(at, min(at + random.uniform(20.0, 200.0), heals_at), random.randrange(count))


def _signers_changes(random: Random, count: int, heals_at: float) -> tuple[SignersChange, ...]:
    """Draw a file that loses the key of the second console, and sometimes has it again."""
    at, engine = random.uniform(30.0, heals_at), random.randrange(count)
    back = SignersChange(min(at + random.uniform(5.0, 240.0), heals_at), engine, True)
    return (SignersChange(at, engine, False), back)


def _local(random: Random, count: int, heals_at: float) -> LocalAct:
    verb = random.choice(("release", "release", "force", "read-only", "read-write"))
    target = random.choice(ENTITIES) if verb in ("release", "force") else ""
    return LocalAct(random.uniform(0.0, heals_at), random.randrange(count), verb, target)


def _mischief(random: Random, heals_at: float) -> Mischief:
    return Mischief(random.uniform(10.0, heals_at), random.choice(MISCHIEF), random.randrange(10**6))


def _change(random: Random, count: int, heals_at: float) -> StateChange:
    path = random.choice(ENTITIES)
    return StateChange(random.uniform(0.0, heals_at), random.randrange(count), path, random.random() < 0.6)


# Scenes: courses of several steps that single draws hardly ever meet.


def _engine_without_console(plan: FleetPlan, random: Random) -> int | None:
    """Draw an engine of this version with a right clock, at which no console is; None: there is none."""
    able = [
        place
        for place, one in enumerate(plan.engines)
        if one.kind is EngineKind.CURRENT and abs(one.skew) <= 5 and not one.drift and place not in plan.consoles
    ]
    return random.choice(able) if able else None


def _order_and_later(random: Random, verb: str, after: float) -> tuple[PlannedOrder, PlannedOrder]:
    """Draw a force for all engines, and a later order about the same entity."""
    force = PlannedOrder(random.uniform(20.0, 60.0), 0, "force", "entity", (random.choice(ENTITIES),), None, 1200.0)
    return force, force._replace(at=force.at + after, verb=verb, stands_for=1200.0 if verb in STANDING else None)


def _scene(plan: FleetPlan, ends: float, **more: tuple[object, ...]) -> FleetPlan:
    """Return the plan with more of some parts, which end by a time."""
    added: dict[str, Any] = {name: (*getattr(plan, name), *values) for name, values in more.items()}
    orders = tuple(sorted(added.pop("orders", plan.orders), key=lambda one: one.at))
    return plan._replace(orders=orders, heals_at=max(plan.heals_at, ends), **added)


def _taken_release(plan: FleetPlan, random: Random) -> FleetPlan:
    """A release is taken from the board, and the order before it posted again, just before a new pod begins."""
    engine = _engine_without_console(plan, random)
    force, release = _order_and_later(random, "release", 60.0)
    begins = force.at + 270.0
    if engine is None:
        return plan
    crash = EngineCrash(force.at + 90.0, begins, engine, clean=False, loses_disk=True)
    resurrect = Mischief(begins - 0.1, "resurrect", random.randrange(10**6))
    return _scene(plan, begins + 20.0, orders=(force, release), crashes=(crash,), mischief=(resurrect,))


def _board_made_anew(plan: FleetPlan, random: Random) -> FleetPlan:
    """The board of orders is deleted with a release on it, and only the order before it is posted again."""
    force, release = _order_and_later(random, "release", 60.0)
    at = force.at + 150.0
    poster = EngineCrash(at - 20.0, at - 10.0, plan.consoles[0], clean=True, loses_disk=False)
    copies = tuple(Mischief(at + wait, "resurrect", random.randrange(10**6)) for wait in (5.0, 30.0))
    return _scene(
        plan, at + 60.0, orders=(force, release), remakes=((at, "orders"),), crashes=(poster,), mischief=copies
    )


def _older_and_local(plan: FleetPlan, random: Random) -> FleetPlan:
    """An engine is cut off from an order, and a local operator acts there before it reads it."""
    engine = _engine_without_console(plan, random)
    if engine is None:
        return plan
    pin = _order_and_later(random, "pin", 0.0)[1]
    fault = FleetFault(pin.at - 5.0, pin.at + 200.0, (engine,), FleetCondition.UNREACHABLE, 1.0)
    local = LocalAct(pin.at + 120.0, engine, "force", pin.targets[0])
    return _scene(plan, pin.at + 220.0, orders=(pin,), faults=(fault,), local_acts=(local,))


def _killed_at_its_start(plan: FleetPlan, random: Random) -> FleetPlan:
    """A new pod is killed while it cannot read the reports yet."""
    engine = _engine_without_console(plan, random)
    if engine is None:
        return plan
    force = _order_and_later(random, "release", 0.0)[0]
    begins = force.at + 100.0
    first = EngineCrash(begins - 30.0, begins, engine, clean=False, loses_disk=True)
    second = EngineCrash(begins + 2.8, begins + 3.2, engine, clean=False, loses_disk=False)
    return _scene(plan, begins + 30.0, orders=(force,), crashes=(first, second), remakes=((begins - 0.2, "reports"),))


def _death_before_an_act(plan: FleetPlan, random: Random) -> FleetPlan:
    """An engine is killed between the decision about a newer order and its act."""
    engine = _engine_without_console(plan, random)
    if engine is None:
        return plan
    force, pin = _order_and_later(random, "pin", 80.0)
    return _scene(plan, pin.at + 60.0, orders=(force, pin), deaths=((force.at, engine),))


SCENES: Final = (_taken_release, _board_made_anew, _older_and_local, _killed_at_its_start, _death_before_an_act)
