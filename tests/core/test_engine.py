"""The machine around its entities: apart from each other, the rotation, deadlines; SPEC.md sections 6 to 8 quoted."""

from __future__ import annotations

import pytest

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import DEADLINES_PER_TICK, SendPing
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import EngineStopped, QueuePulled, QueueRestored
from paired_servicebus.core.model.verdict import BACKLOG_VERDICTS, FailureKind, Verdict

STAYING = sorted(kind for kind, verdict in BACKLOG_VERDICTS.items() if verdict is not Verdict.COUNTS)
REFUSED = (FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED)


class TestEntities:
    def test_failover_is_entity_by_entity(self, told) -> None:
        """Section 6: "Failover is entity by entity; a failure in one says nothing of another"."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.accepts("orders")
        pairing.accepts("audit")
        pairing.fails("orders")
        assert (pairing.state("orders"), pairing.state("audit")) == (State.FAILED_OVER, State.HEALTHY)
        pairing.ticks(to=10)
        assert pairing.pings() == [SendPing("orders", 1)]

    def test_pings_are_numbered_entity_by_entity(self, told) -> None:
        """Section 8: "Per entity, per pairing, per process"."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails("orders")
        pairing.now = 3
        pairing.fails("audit")
        pairing.ticks(to=13)
        assert pairing.pings() == [SendPing("orders", 1), SendPing("audit", 1)]
        pairing.ping_accepted(1, entity="audit")
        assert (pairing.state("orders"), pairing.state("audit")) == (State.FAILED_OVER, State.HEALTHY)

    def test_thousands_that_are_due_at_once_are_seen_to_a_portion_at_a_time(self, told) -> None:
        """One tick leaves the rest due, so that sends come in between."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        for number in range(2 * DEADLINES_PER_TICK + 1):
            pairing.fails(f"entity-{number}")
        seen = []
        for _ in range(3):
            pairing.ticks(to=10)
            seen.append(len(pairing.pings()))
        assert seen == [DEADLINES_PER_TICK, DEADLINES_PER_TICK, 1]
        assert pairing.due() is None

    def test_paths_compare_without_case(self, told) -> None:
        """Section 6: "one per pairing and entity path; paths compare case-insensitively"."""
        pairing = told(failover_interval=60, ping_primary_interval=10)
        pairing.accepts("Orders")
        pairing.fails("ORDERS")
        pairing.ticks(to=60)
        pairing.forces("orders")
        pairing.ticks(to=70)
        pairing.ping_accepted(1, entity="oRDERS")
        pairing.releases("orderS")
        assert [(entity.path, entity.state) for entity in pairing.machine.entities()] == [("Orders", State.HEALTHY)]

    def test_pumps_skip_diverting_destinations(self, told) -> None:
        """Section 6: "Pumps skip destinations that are failed over or forced in their own engine"."""
        allowed = set()
        for state in State:
            pairing = told()
            pairing.reach(state)
            if pairing.machine.may_deliver("ORDERS", at=pairing.at):
                allowed.add(state)
        assert allowed == set(State) - {State.FAILED_OVER, State.FORCED}

    def test_pumps_may_try_a_destination_nobody_here_sends_to(self, told) -> None:
        """Section 6: "in their own engine": of another engine's entities nothing is known."""
        pairing = told()
        assert pairing.machine.may_deliver("elsewhere", at=pairing.at)
        assert pairing.machine.entities() == ()

    def test_pumps_skip_a_destination_that_failed_them(self, told) -> None:
        """Section 8: "one send try per destination, not per message"."""
        pairing = told()
        pairing.machine.destinations.failed("orders", at=pairing.at, kind=FailureKind.TIMEOUT, reason="timeout")
        assert not pairing.machine.may_deliver("Orders", at=pairing.at)
        assert pairing.machine.may_deliver("Orders", at=pairing.at + 1)


class TestBacklog:
    def test_a_failed_send_takes_its_queue_out_for_every_sender(self, told) -> None:
        """Section 7.1: "A failed send takes that queue out of the rotation for every sender of the pairing"."""
        pairing = told()
        pairing.fails(queue=1, reason="timeout")
        assert [(event.queue, event.reason) for event in pairing.announced(QueuePulled)] == [(1, "timeout")]
        assert [pairing.machine.rotation.holds(index) for index in range(3)] == [True, False, True]
        assert pairing.machine.entities() == ()

    def test_a_queue_is_pulled_once(self, told) -> None:
        """Section 7.1: what is out already is not taken out again by the sends that were in flight."""
        pairing = told()
        pairing.fails(queue=1)
        assert pairing.fails(queue=1) == []

    @pytest.mark.parametrize("failure", REFUSED)
    def test_a_queue_that_refuses_the_right_is_pulled_and_an_entity_is_not_failed_over(self, told, failure) -> None:
        """Section 7.1: "A failed send takes that queue out of the rotation"; section 5: not authenticated, not
        authorized: no; raised to the caller."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.fails(queue=1, failure=failure)
        assert not pairing.machine.rotation.holds(1)
        pairing.fails(failure=failure)
        assert pairing.entity().state is State.HEALTHY

    @pytest.mark.parametrize("failure", STAYING)
    def test_only_failures_that_count_pull_a_queue(self, told, failure) -> None:
        """Section 7.1: "size and argument errors never pull a queue"; section 5: "A busy backlog queue is not
        pulled"."""
        pairing = told()
        assert pairing.fails(queue=1, failure=failure) == []
        assert pairing.machine.rotation.holds(1)

    def test_a_backlog_failure_says_nothing_of_the_entity(self, told) -> None:
        """Section 6: "Only senders, pings and operators move the state": by what the primary answers."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.fails(queue=0)
        assert pairing.state() is State.HEALTHY

    def test_a_pulled_queue_returns_after_a_probe_succeeded(self, told) -> None:
        """Section 7.1: "a pulled queue returns after a probe succeeded"."""
        pairing = told(ping_primary_interval=10)
        pairing.fails(queue=1)
        assert pairing.due() == 10
        pairing.ticks(to=10)
        assert pairing.probes() == [1]
        pairing.probed(1, accepted=True)
        assert [event.queue for event in pairing.announced(QueueRestored)] == [1]
        assert (pairing.machine.rotation.holds(1), pairing.due()) == (True, None)

    def test_a_pulled_queue_stays_out_after_a_probe_failed(self, told) -> None:
        """Section 7.1: the same; and it is probed again."""
        pairing = told(ping_primary_interval=10)
        pairing.fails(queue=1)
        pairing.ticks(to=10)
        assert pairing.probed(1, accepted=False, reason="connection lost") == []
        assert not pairing.machine.rotation.holds(1)
        pairing.ticks(to=pairing.due())
        assert pairing.probes() == [1]

    @pytest.mark.parametrize("queue", [3, -1])
    def test_a_queue_that_the_pairing_does_not_have_is_illegal(self, told, refused, queue) -> None:
        """Section 4.1: the index is in [0, backlog_queue_count)."""
        pairing = told(queues=3)
        assert f"no backlog queue {queue}" in refused(pairing, lambda: pairing.fails(queue=queue))
        assert f"no backlog queue {queue}" in refused(pairing, lambda: pairing.probed(queue, accepted=True))


class TestMachine:
    def test_a_healthy_send_has_no_effect_at_all(self, told) -> None:
        """Section 6: 'While healthy, "no behavior changes occur"'."""
        pairing = told()
        pairing.accepts()
        before = pairing.entity()
        pairing.now = 100
        assert pairing.accepts() == []
        assert pairing.entity() is before

    def test_events_for_others_are_refused(self, told, refused) -> None:
        """What only the journal wants is a mistake here."""
        pairing = told()
        stopped = EngineStopped(at=pairing.at, reason="asked to")
        assert "does not handle EngineStopped" in refused(pairing, lambda: pairing.step(stopped))

    def test_the_next_deadline_is_the_nearest_of_all(self, told) -> None:
        """A Ticked is wanted at the first of: an interval's end, a ping, a probe."""
        pairing = told(failover_interval=60, ping_primary_interval=20)
        assert pairing.due() is None
        pairing.fails("orders")
        assert pairing.due() == 60
        pairing.now = 5
        pairing.entity("audit")
        pairing.forces("audit")
        assert pairing.due() == 25
        pairing.now = 4
        pairing.fails(queue=0)
        assert pairing.due() == 24
        pairing.ticks(to=60)
        assert (pairing.probes(), pairing.pings()) == ([0], [SendPing("audit", 1)])
        assert pairing.due() == 80

    def test_deadlines_that_nobody_wants_any_more_are_forgotten(self, told) -> None:
        """A flapping entity leaves no trail of timers behind."""
        pairing = told(failover_interval=60)
        for second in range(50):
            pairing.now = float(second)
            pairing.fails()
            pairing.accepts()
        assert pairing.due() == QUIET_AFTER  # whether it has fallen quiet: one look, however often it flapped
