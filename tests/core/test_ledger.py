"""The ledger (SPEC.md section 11): what was planted is found, whatever else happened."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.accounting.ledger import Arrival, Ledger, SendOutcome, balance

IDS = [f"m{number}" for number in range(12)]
SOME = st.sets(st.sampled_from(IDS))
ANSWERS = st.dictionaries(st.sampled_from(IDS), st.sampled_from(SendOutcome))
ARRIVALS = st.lists(
    st.builds(
        Arrival, message_id=st.sampled_from(IDS), stream=st.sampled_from(["orders", "audit"]), number=st.integers(1, 9)
    ),
    max_size=30,
)
PLACES = {"parked": SOME, "dead_lettered": SOME, "expired": SOME}


def arrived(*ids: str) -> list[Arrival]:
    return [Arrival(message_id, "orders", number) for number, message_id in enumerate(ids, start=1)]


def counts(ledger: Ledger) -> dict[str, int]:
    """Everything that is not zero."""
    names = [name for name in Ledger.__dataclass_fields__ if not name.endswith("_ids")]
    return {name: getattr(ledger, name) for name in names if getattr(ledger, name)}


def test_an_id_in_doubt_that_was_delivered_is_recovered() -> None:
    """Section 11: "An id in doubt that was delivered is *recovered*"."""
    ledger = balance(answers={"a": SendOutcome.IN_DOUBT, "b": SendOutcome.IN_DOUBT}, arrivals=arrived("b"))
    assert counts(ledger) == {"attempted": 2, "in_doubt": 2, "recovered": 1, "delivered": 1}
    assert ledger.verdict == "balanced"


def test_what_was_delivered_though_never_attempted_or_refused_is_unexpected() -> None:
    """Section 11: "Unexpected = delivered, but never attempted or definitely refused"."""
    ledger = balance(answers={"b": SendOutcome.REFUSED}, arrivals=arrived("b", "a", "a"))
    assert (ledger.unexpected, ledger.unexpected_ids, ledger.verdict) == (2, ("a", "b"), "unbalanced")


def test_an_id_is_counted_in_one_place_only() -> None:
    """Section 11: "each id once"; what came through is delivered, whatever else lies about."""
    answers = dict.fromkeys("abcd", SendOutcome.ACCEPTED)
    ledger = balance(answers=answers, arrivals=arrived("a"), dead_lettered="ab", expired="abc", parked="abcd")
    assert counts(ledger) == {
        "attempted": 4,
        "accepted": 4,
        "delivered": 1,
        "dead_lettered": 1,
        "expired": 1,
        "parked": 1,
    }


def test_duplicates_do_not_unbalance() -> None:
    """Section 11: "Duplicates and out-of-order arrivals are counted and do not unbalance"."""
    ledger = balance(answers={"a": SendOutcome.ACCEPTED}, arrivals=arrived("a", "a", "a"))
    assert (ledger.duplicates, ledger.out_of_order, ledger.verdict) == (2, 0, "balanced")


def test_disorder_is_counted_within_a_stream_and_does_not_unbalance() -> None:
    """Section 11: "Duplicates and out-of-order arrivals are counted and do not unbalance"."""
    arrivals = [
        Arrival("a", "s1", 1),
        Arrival("c", "s1", 3),
        Arrival("x", "s2", 1),
        Arrival("b", "s1", 2),
        Arrival("a", "s1", 1),
        Arrival("d", "s1", 4),
    ]
    ledger = balance(answers=dict.fromkeys("abcdx", SendOutcome.ACCEPTED), arrivals=arrivals)
    assert (ledger.out_of_order, ledger.duplicates, ledger.verdict) == (1, 1, "balanced")


@given(answers=ANSWERS, arrivals=ARRIVALS, places=st.fixed_dictionaries(PLACES))
def test_every_accepted_id_is_somewhere_once_or_lost(
    answers: dict[str, SendOutcome], arrivals: list[Arrival], places: dict[str, set[str]]
) -> None:
    """Section 11: accepted = delivered + parked + dead-lettered + expired + lost, over the accepted ids alone."""
    accepted = {key: answer for key, answer in answers.items() if answer is SendOutcome.ACCEPTED}
    only = [arrival for arrival in arrivals if arrival.message_id in accepted]
    ledger = balance(answers=accepted, arrivals=only, **{name: ids & set(accepted) for name, ids in places.items()})
    somewhere = ledger.delivered + ledger.parked + ledger.dead_lettered + ledger.expired
    assert ledger.accepted == somewhere + ledger.lost == len(accepted)


@given(answers=ANSWERS, arrivals=ARRIVALS, places=st.fixed_dictionaries(PLACES))
def test_lost_and_unexpected_are_exactly_those_that_are(
    answers: dict[str, SendOutcome], arrivals: list[Arrival], places: dict[str, set[str]]
) -> None:
    """Id by id, asked one after the other."""
    ledger = balance(answers=answers, arrivals=arrivals, **places)
    got = {arrival.message_id for arrival in arrivals}
    lost, unexpected = [], []
    for key in sorted({*answers, *got}):
        answer = answers.get(key)
        if answer is SendOutcome.ACCEPTED and key not in got and not any(key in ids for ids in places.values()):
            lost.append(key)
        if key in got and answer in (None, SendOutcome.REFUSED):
            unexpected.append(key)
    assert (list(ledger.lost_ids), list(ledger.unexpected_ids)) == (lost, unexpected)
    assert (ledger.lost, ledger.unexpected) == (len(lost), len(unexpected))
    assert (ledger.verdict == "balanced") == (not lost and not unexpected)


@given(answers=ANSWERS, arrivals=ARRIVALS)
def test_answers_and_deliveries_add_up(answers: dict[str, SendOutcome], arrivals: list[Arrival]) -> None:
    """Section 11: "what the caller was told in the end is accepted, refused or in doubt"; delivered ids are
    accepted ones, recovered ones or unexpected ones."""
    ledger = balance(answers=answers, arrivals=arrivals)
    assert ledger.attempted == ledger.accepted + ledger.refused + ledger.in_doubt == len(answers)
    assert ledger.delivered + ledger.duplicates == len(arrivals)
    assert ledger.delivered == (ledger.accepted - ledger.lost) + ledger.recovered + ledger.unexpected


@given(numbers=st.permutations(range(1, 9)))
def test_a_delivery_is_out_of_order_if_any_later_one_came_before_it(numbers: list[int]) -> None:
    arrivals = [Arrival(f"m{number}", "orders", number) for number in numbers]
    ledger = balance(answers={one.message_id: SendOutcome.ACCEPTED for one in arrivals}, arrivals=arrivals)
    late = Counter(any(before > number for before in numbers[:place]) for place, number in enumerate(numbers))
    assert ledger.out_of_order == late[True]
