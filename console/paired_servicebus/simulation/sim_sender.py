"""A paired sender in the World: follows core's SendRouter, like paired_servicebus.pairing.sending.paired_sender."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.failover.send_router import SendRouter, Try, Wait
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.verdict import DOUBTFUL, LOST_LINKS, FailureKind, Judgement, Verdict, at_backlog
from paired_servicebus.simulation.run_plan import PlannedCall
from paired_servicebus.simulation.run_record import CallEvents
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_namespaces import SimMessage, hidden_for, park
from paired_servicebus.simulation.virtual_clock import Steps

PACK: Final = 2
"""Messages in a backlog batch: few, so that calls are parked in parts."""


class SimSender:
    """One call of an application, from its first attempt to the final answer.

    Overridden by planted bugs: `at_primary`, `at_backlog`, `deliver`, `ended`, `failed`, `wrap_message`, `answer`.
    """

    def __init__(self, engine: SimEngine, sender: int, path: str) -> None:
        self.engine = engine
        self.world = engine.world
        self.clock = engine.clock
        self.memory = engine.memory(sender, path)
        self.who = (engine.name, sender, path)
        self.path = path
        self.destination = self.world.destinations[path.casefold()]
        self.doubtful: dict[str, None] = {}
        self.is_unhindered = False
        """Whether no fault was in the way of the latest attempt."""

    def call(self, order: PlannedCall, messages: Sequence[SimMessage]) -> Steps:
        """Send, and retry unaccepted messages as often as the caller's patience allows."""
        engine, watch = self.engine, self.world.watch
        engine.calls += 1
        watch.open_calls += 1
        left = list(messages)
        for _ in range(1 + order.retries):
            yield from self.deliver(left, order.timeout)
            if not left:
                break
            yield from self.clock.sleep(self.clock.now + 15.0 * self.world.random.random())
        for message in left:
            watch.told(message, self.answer(message))
        engine.calls -= 1
        watch.open_calls -= 1

    def answer(self, message: SimMessage) -> SendOutcome:
        """Return the caller's answer for a message that was not accepted."""
        return SendOutcome.IN_DOUBT if message.body in self.doubtful else SendOutcome.REFUSED

    def deliver(self, left: list[SimMessage], timeout: float | None) -> Steps:
        """Try, wait and divert as the router decides; accepted messages leave `left`."""
        machine, began = self.engine.machine, self.clock.now
        router = SendRouter(self.memory, machine.policy, at=began, timeout=timeout)
        yield from self._go(router, left, self.world.watch.call_of(self, timeout))
        self.engine.state_watch.goes_on(self.path, self)
        if router.leave(machine.rotation):
            self.engine.wake()
        self.world.watch.call_ended(self.engine.name, self.clock.now - began, timeout)

    def _go(self, router: SendRouter, left: list[SimMessage], check: CallEvents) -> Steps:
        engine, clock, machine = self.engine, self.clock, self.engine.machine
        while left:
            now = clock.now
            entity = machine.entity(self.path, at=now)
            step = router.next(entity, machine.rotation, at=now, draw=self.world.random.random())
            check.decided(step, entity, now)
            if isinstance(step, Try):
                engine.state_watch.goes_on(self.path, self)
                queue = step.route.queue
                attempt = self.at_primary if queue is None else partial(self.at_backlog, queue)
                failure = yield from attempt(left, step.timeout)
                check.ended(step.route, failure, clock.now, is_unhindered=self.is_unhindered)
                if failure is not None:
                    judgement = self.failed(step, failure, left)
                    verdict = judgement.verdict if queue is None else at_backlog(judgement)
                    if verdict is Verdict.CALLERS:
                        return
                    self.ended(router, step, verdict, is_cut=failure in LOST_LINKS)
            elif isinstance(step, Wait):
                self.world.watch.waits(self, diverting=entity.diverting)
                if machine.policy.hold_until_failover and entity.state is State.SUSPECT:
                    engine.state_watch.holds(self.path, self, now)
                yield from engine.change(step.until)
            else:
                return

    def ended(self, router: SendRouter, step: Try, verdict: Verdict, *, is_cut: bool) -> None:
        router.ended(step.route, verdict, at=self.clock.now, is_cut=is_cut)

    def failed(self, step: Try, failure: FailureKind, left: Sequence[SimMessage]) -> Judgement:
        queue = step.route.queue
        judgement = self.engine.judge(failure)
        if judgement.kind in DOUBTFUL:
            self.doubtful.update((message.body, None) for message in left)
        if step.is_short and judgement.kind is FailureKind.TIMEOUT:
            return judgement
        if queue is not None and failure is FailureKind.BUSY:
            self.engine.rotation_watch.answered(queue)
        self.engine.failed(self.path, queue, judgement, len(left))
        if queue is None:
            self.engine.state_watch.failed(self.path, failure)
        else:
            self.engine.rotation_watch.failed(queue, failure, is_unhindered=self.is_unhindered)
        return judgement

    # -- attempts ---------------------------------------------------------------------------------------------------

    def at_primary(self, left: list[SimMessage], timeout: float) -> Any:
        """Make one attempt at the primary: all or none."""
        failure = yield from self.attempt(self.destination, list(left), timeout)
        if failure is None:
            self.accepted(None, left, len(left))
        return failure

    def at_backlog(self, queue: int, left: list[SimMessage], timeout: float) -> Any:
        """Park one pack of `left`. The router decides again for the rest, so that the call keeps its time."""
        target = self.world.queues[queue]
        pack = [self.wrap_message(message) for message in left[:PACK]]
        failure = yield from self.attempt(target, pack, timeout)
        if failure is None:
            self.accepted(queue, left, len(pack))
        return failure

    def wrap_message(self, message: SimMessage) -> SimMessage:
        return park(message, self.path)

    def accepted(self, queue: int | None, left: list[SimMessage], count: int) -> None:
        """Record that the first `count` of `left` were accepted."""
        for message in left[:count]:
            self.world.watch.told(message, SendOutcome.ACCEPTED)
        del left[:count]
        self.engine.accepted(self.path, queue, count)

    def attempt(self, target: Any, messages: list[SimMessage], timeout: float) -> Any:
        """Make one attempt over the network; return its failure, or None."""
        world, engine, watch = self.world, self.engine, self.world.watch
        primary = target is self.destination
        diverting = primary and engine.machine.entity(self.path, at=self.clock.now).diverting
        watch.attempted(self.who, target.name, messages[0].body, diverting=diverting)
        if primary:
            engine.state_watch.send_leaves(self.path)
        else:
            engine.rotation_watch.attempted(target.index)
        condition = target.met(world.random)
        self.is_unhindered = condition is None
        hidden = hidden_for(world.random, condition) if condition is not None else 0.0
        if hidden and not primary:
            watch.hidden(target.index, messages)
        failure, _ = yield from world.network.request(
            target, condition, timeout, partial(target.take, messages, hidden), partial(watch.unanswered, messages)
        )
        if watch.trace is not None:
            watch.log(
                f"{engine.name} sent {messages[0].body}+{len(messages) - 1} to {target.name}: {failure or 'accepted'}"
            )
        watch.answered(self.who, target.name, failure)
        if primary:
            engine.state_watch.send_answered(self.path, self.clock.now, failure)
        return failure
