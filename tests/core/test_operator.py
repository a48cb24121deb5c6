"""What a person may do by hand, one sentence of SPEC.md section 6 at a time; what cannot be changes nothing."""

from __future__ import annotations

import pytest
from tests.approval import Approve

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import Announce, SendPing
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import PingAccepted, StateChanged, SyphonPaused, SyphonResumed
from paired_servicebus.core.operator.action_row import spelled_out, to_type
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import DeadLetters, Scope, dead_letters_of, named
from paired_servicebus.core.operator.why_line import why


class TestByHand:
    @pytest.mark.parametrize("state", [state for state in State if state is not State.FORCED])
    def test_force_fails_over_from_anywhere(self, told, state) -> None:
        """Section 6: "forced: failed over by hand"; "Each carries who, when, why"."""
        pairing = told(ping_primary_interval=30)
        pairing.reach(state)
        pairing.forces()
        entity = pairing.entity()
        assert (entity.state, entity.diverting, entity.ping_due is not None) == (State.FORCED, True, True)
        assert (entity.by, entity.since, entity.by_why) == ("anna", pairing.at, "a drill")
        assert pairing.announced(StateChanged)[0].by == "anna"

    def test_pings_go_on_while_forced_and_nothing_fails_back(self, told) -> None:
        """Section 6: "forced: ... pings go on and are shown, no automatic failback"."""
        pairing = told(ping_primary_interval=10)
        pairing.accepts()
        pairing.forces()
        for number in (1, 2, 3):
            pairing.ticks(to=10.0 * number)
            assert pairing.pings() == [SendPing("orders", number)]
            pairing.ping_accepted(number)
            assert pairing.announced(PingAccepted)
        assert (pairing.state(), pairing.entity().pings_in_a_row, pairing.due()) == (State.FORCED, 3, 40)

    def test_forcing_a_failed_over_entity_keeps_its_episode_and_its_pings(self, told) -> None:
        """Section 6: it is failed over already; it only stays longer."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.now = 12
        pairing.forces()
        entity = pairing.entity()
        assert (entity.failovers, entity.pings, entity.ping_in_flight) == (1, 1, True)
        pairing.ping_accepted(1, took=2)
        assert (pairing.state(), pairing.due()) == (State.FORCED, 20)

    def test_pinned_stays_whatever_fails(self, told) -> None:
        """Section 6: "pinned: stays on the primary whatever fails"."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.pins()
        for _ in range(3):
            assert pairing.fails() == []
        entity = pairing.entity()
        assert (entity.state, entity.diverting, entity.failures_while_pinned) == (State.PINNED, False, 3)
        assert pairing.due() is None

    def test_pinning_a_suspect_stops_its_timer(self, told) -> None:
        """Section 6: pinned stays on the primary, so no interval runs."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.pins()
        assert pairing.due() is None
        pairing.ticks(to=60)
        assert pairing.state() is State.PINNED

    def test_pinning_a_failed_over_entity_ends_its_episode(self, told) -> None:
        """Section 6: it is on the primary from then on; pings stop."""
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.now = 7
        pairing.pins()
        entity = pairing.entity()
        assert (entity.failbacks, entity.seconds_failed_over, entity.ping_due) == (1, 7.0, None)

    def test_release_of_a_forced_entity_whose_last_ping_was_accepted(self, told) -> None:
        """Section 6: "`release` clears forced or pinned: to healthy if the last ping was accepted"."""
        pairing = told(ping_primary_interval=10)
        pairing.accepts()
        pairing.forces()
        pairing.ticks(to=10)
        pairing.ping_accepted(1)
        pairing.releases()
        assert pairing.changes() == [("forced", "healthy")]
        assert (pairing.entity().by, pairing.entity().by_why, pairing.due()) == ("", "", 10 + QUIET_AFTER)

    @pytest.mark.parametrize("pinged", [False, True])
    def test_release_of_a_forced_entity_whose_last_ping_was_not_accepted(self, told, pinged) -> None:
        """Section 6: "else to failed over with automatic failback"."""
        pairing = told(ping_primary_interval=10)
        pairing.accepts()
        pairing.forces()
        pairing.ticks(to=10)
        if pinged:
            pairing.ping_failed(1)
        pairing.releases()
        assert pairing.changes() == [("forced", "failed over")]
        assert pairing.entity().failovers == 1
        if pinged:
            pairing.ticks(to=20)
        pairing.ping_accepted(pairing.entity().pings)
        assert pairing.state() is State.HEALTHY

    def test_release_of_a_pinned_entity_that_answers(self, told) -> None:
        """Section 6: to healthy; a pinned entity is not pinged, so its sends are what answers."""
        pairing = told(failover_interval=0)
        pairing.accepts()
        pairing.pins()
        pairing.fails()
        pairing.accepts()
        pairing.releases()
        assert pairing.changes() == [("pinned", "healthy")]

    def test_release_of_a_pinned_entity_that_fails(self, told) -> None:
        """Section 6: "else to failed over with automatic failback": a whole episode, first ping in an interval."""
        pairing = told(failover_interval=60, ping_primary_interval=10)
        pairing.accepts()
        pairing.pins()
        pairing.fails()
        pairing.now = 5
        pairing.releases()
        assert pairing.changes() == [("pinned", "failed over")]
        assert pairing.due() == 15

    def test_release_of_an_entity_that_failed_over_by_itself(self, told) -> None:
        """Section 6: "on an entity that failed over by itself it fails back now"."""
        pairing = told(failover_interval=0)
        pairing.fails()
        pairing.releases()
        assert pairing.changes() == [("failed over", "healthy")]

    def test_a_failure_from_before_a_recovery_is_not_told_again(self, told) -> None:
        """Section 6: "Each carries who, when, why"; an old failure is not why it is failed over now."""
        pairing = told(failover_interval=60)
        pairing.fails()
        pairing.accepts()
        pairing.forces()
        pairing.releases()
        assert pairing.state() is State.FAILED_OVER
        assert why(pairing.entity()).startswith("the primary accepted no send since the release")

    @pytest.mark.parametrize(
        ("state", "act"),
        [
            (State.FORCED, "forces"),
            (State.PINNED, "pins"),
            (State.UNKNOWN, "releases"),
            (State.HEALTHY, "releases"),
            (State.SUSPECT, "releases"),
        ],
    )
    def test_an_act_that_cannot_be_leaves_everything_alone(self, told, refused, state, act) -> None:
        """An operator's act that makes no sense now is refused in words; who and why stay as they were."""
        pairing = told()
        pairing.reach(state)
        pairing.entity()
        text = refused(pairing, getattr(pairing, act))
        assert text.startswith(f"invalid transition for orders: {act[:-1]}")
        assert text.endswith(f" while {state}")

    @pytest.mark.parametrize("act", ["forces", "pins", "releases"])
    def test_an_act_on_an_entity_nobody_knows_names_those_that_are_known(self, told, refused, act) -> None:
        """A misspelt name must not make an entity."""
        pairing = told()
        text = refused(pairing, lambda: getattr(pairing, act)("ordres"))
        assert "unknown entity 'ordres'; this engine has: none" in text
        pairing.accepts("orders")
        pairing.accepts("audit")
        assert "this engine has: orders, audit" in refused(pairing, lambda: getattr(pairing, act)("ordres"))


class TestSyphon:
    def test_it_is_paused_and_resumed(self, told) -> None:
        """Section 10: an operator's order, told to everybody who watches."""
        pairing = told()
        for event, paused in [
            (SyphonPaused(at=pairing.at, by="anna"), True),
            (SyphonResumed(at=pairing.at, by="anna"), False),
        ]:
            assert pairing.step(event) == [Announce(event)]
            assert pairing.machine.pauses.all is paused

    def test_pausing_or_resuming_twice_changes_nothing(self, told, refused) -> None:
        """An act that cannot be is refused."""
        pairing = told()
        assert "not paused" in refused(pairing, lambda: pairing.step(SyphonResumed(at=pairing.at, by="anna")))
        pairing.step(SyphonPaused(at=pairing.at, by="anna"))
        assert "paused already" in refused(pairing, lambda: pairing.step(SyphonPaused(at=pairing.at, by="anna")))


# -- The target of an order for some dead letters: its text, its name, and what a person types.


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("3/118", DeadLetters("3", (118,))),
        ("12/118,121,118", DeadLetters("12", (118, 121))),
        ("3", None), ("3/", None), ("/3", None), ("3/0", None), ("3/-1", None), ("3/1,", None), ("3/a", None),
        ("3/1/2", None), ("3/\u0661", None), ("x/1", None), ("", None), ("3/1 2", None), ("-1/2", None),
    ],
)  # fmt: skip
def test_only_an_index_and_numbers_name_dead_letters(target: str, found: DeadLetters | None) -> None:
    assert dead_letters_of(target) == found
    if found is not None:
        assert dead_letters_of(found.target) == found


def test_the_audit_names_each_and_a_person_types_their_number(approve: Approve) -> None:
    approve.part(named(Scope.DEAD_LETTERS, "3/118,119,120,125"), "rules", has=("118 to", "120", "125 of", "backlog/3"))
    approve.part(named(Scope.DEAD_LETTERS, "3/118"), "rules", has=("118 of", "backlog/3"))
    action, snapshot = BY_ID["redrive-letters"], None
    for targets, typed in ((("3/118",), "1 dead letter"), (("3/118,121", "4/7"), "3 dead letters")):
        command = Command(action_id=action.id, scope=Scope.DEAD_LETTERS, targets=targets)
        asked = to_type(snapshot, command)  # type: ignore[arg-type]
        assert spelled_out(action, command, asked=asked) == typed
