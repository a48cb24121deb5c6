"""The fleet in words: what people read at three at night, from the values alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests import fleet_views, gateway_views
from tests.alarm_views import condition
from tests.approval import Approve
from tests.fleet_views import AT, at, calm, engine, outage, seen

from paired_servicebus.core.fleet.board_reader import sum_figures
from paired_servicebus.core.gateway.gateway_sentences import client_name, todo, verdict, where_text
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntity, FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.gateway_view import (
    GatewayClient,
    GatewayLink,
    GatewayView,
    LinkDirection,
    SendsGo,
    without_clients,
)
from paired_servicebus.core.model.pairing_fold import fold
from paired_servicebus.core.model.snapshot import Meter, Snapshot, SyphonStatus, SyphonView
from paired_servicebus.core.operator import fleet_sentences
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator.alarms import Alarm, alarms, fleet_alarms
from paired_servicebus.core.operator.fleet_sentences import fleet_lines, gateways_part
from paired_servicebus.core.text import untrusted_text

ORDER = FleetOrder(
    id="o", verb="force", targets=("payments",), by="operator-a", at=at("14:00:00"), until=at("18:02:00")
)


def test_engines_by_state_the_worst_first_and_the_silent_last(approve: Approve) -> None:
    approve.part(words.engines_part(outage())[0], "rules", has=("20 engines", "15 failed", "3 healthy", "2 silent"))
    approve.part(words.engines_part(outage(expected=22))[0], "rules", has=("20 engines", "22 expected"))
    approve.part(words.engines_part(FleetView(me="a", expected=2)), "rules", has=("2 expected",))


@pytest.mark.parametrize(
    ("states", "silent", "text"),
    [
        (((State.FAILED_OVER, 17), (State.HEALTHY, 3)), 0, "17 failed over · 3 healthy"),
        (((State.HEALTHY, 3), (State.FAILED_OVER, 17)), 2, "17 failed over · 3 healthy · 2 silent"),
        (((State.UNKNOWN, 2),), 0, "2 unknown"),
        ((), 4, "4 silent"),
        ((), 0, "no engine reports it"),
    ],
)
def test_engines_of_one_entity(states: tuple[tuple[State, int], ...], silent: int, text: str) -> None:
    assert words.entity_part(FleetEntity(path="payments", states=states, silent=silent))[0] == text


@pytest.mark.parametrize("status", list(FleetStatus))
def test_no_sentence_names_more_than_20_engines(status: FleetStatus) -> None:
    """ "At most 20 names in any sentence", however many engines are claimed."""
    claims = tuple(
        engine(
            number, State.FAILED_OVER if number % 2 else State.HEALTHY, status=status, namesakes=number % 3,
            signers=str(number), differs=("released here",), heard_at=AT - number,
        )
        for number in range(400)
    )  # fmt: skip
    entity = FleetEntity(
        path="payments", states=((State.FAILED_OVER, 200), (State.HEALTHY, 200)), silent=3,
        engines=tuple((one.engine, State.FAILED_OVER, AT) for one in claims[1::2]),
    )  # fmt: skip
    view = outage(
        engines=claims,
        entities=(entity,),
        missing=tuple(f"web-{number}" for number in range(900, 999)),
        is_flooded=True,
    )
    parts = [words.silent_part(view, AT), words.dissenters(entity, view), words.differing_part(view)]
    parts += [
        words.callers_part(seen(view), AT),
        words.unwell_part(view.entities),
        words.engines_part(view),
        *words.odd_parts(view),
    ]
    sentences = [text for part in parts for text in part]
    sentences += [text for cases in (words.differing_cases, words.missing_cases)
                  for _, text in cases(view, AT)]  # fmt: skip
    sentences += [str(one) for one in alarms(condition(fleet=view))]
    assert len(sentences) > 10
    assert max(len(re.findall(r"web-\d+", text)) for text in sentences) <= words.MAX_LISTED


def test_the_smaller_side_of_a_disagreement_is_named(approve: Approve) -> None:
    view = seen(outage()).fleet
    assert view is not None
    approve.part(words.dissenters(view.entities[1], view)[0], "rules", has=("web-16", "web-17", "web-18"))
    one = FleetEntity(
        path="payments", states=((State.FAILED_OVER, 1), (State.HEALTHY, 19)), engines=(("x", State.FAILED_OVER, 1.0),)
    )
    approve.part(words.dissenters(one, view)[0], "rules")
    more = replace(view.entities[1], states=((State.FAILED_OVER, 15), (State.HEALTHY, 2)))
    approve.part(words.dissenters(more, view), "rules", has=("2 healthy",))
    assert words.dissenters(view.entities[2], view) == ()


def test_silent_engines_and_since_when(approve: Approve) -> None:
    approve.part(words.silent_part(outage(), AT)[0], "rules", has=("13:58", "pay-3", "pay-4"))
    later = outage(missing=("db-1",))
    later = replace(later, engines=(*later.engines[:-1], replace(later.engines[-1], heard_at=at("14:00:40"))))
    approve.part(words.silent_part(later, AT)[0], "rules", has=("pay-3", "13:58", "pay-4", "14:00", "db-1"))
    assert words.silent_part(calm(), AT) == ()
    many = outage(engines=tuple(engine(number, status=FleetStatus.SILENT) for number in range(500)))
    assert len(words.silent_part(many, AT)[-2]) < 60


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"done": ("a", "b")}, "payments forced by operator-a until 18:02: 2 done"),
        ({"until": None, "verb": "release"}, "payments released by operator-a at 14:00: 0 done"),
        ({"by": ""}, "payments forced by a signer not verified here until 18:02: 0 done"),
        ({"done": ("a",) * 17, "refused": (("web-9", "read-only"),),
          "silent": (("pay-3", at("13:58:00")), ("pay-4", None))},
         "payments forced by operator-a until 18:02: 17 done · 1 refused (read-only: web-9) · "
         "2 silent since 13:58 (pay-3, pay-4): they take it up when they come back"),
        ({"verb": "pause-syphon", "targets": ()}, "syphon paused by operator-a until 18:02: 0 done"),
        ({"done": ("a",) * 20, "more_done": 480, "refused": (("b", "read-only"),) * 20, "more_refused": 5},
         "payments forced by operator-a until 18:02: 500 done · 25 refused "
         f"(read-only: {', '.join('b' * 20)}, 5 unknown)"),
        ({"verb": "release", "until": None, "silent": (("a", None),)},
         "payments released by operator-a at 14:00: 0 done · 1 silent (a): it takes it up when it comes back"),
        ({"until": AT - 1, "silent": (("a", None),)},
         "payments forced by operator-a until 14:02: 0 done · 1 silent (a)"),
        ({"verb": "read-only", "targets": ()}, "engines made read-only by operator-a until 18:02: 0 done"),
        ({"done": ("a",), "unnamed": 2},
         "payments forced by operator-a until 18:02: 1 done · 2 silent (2 unknown): "
         "they take it up when they come back"),
        ({"silent": (("pay-3", at("13:58:00")),), "unnamed": 1},
         "payments forced by operator-a until 18:02: 0 done · 2 silent since 13:58 (pay-3, 1 unknown): "
         "they take it up when they come back"),
        ({"silent": (("pay-3", at("13:58:00")),)},
         "payments forced by operator-a until 18:02: 0 done · 1 silent since 13:58 (pay-3): "
         "it takes it up when it comes back"),
    ],
)  # fmt: skip
def test_who_ordered_what_until_when(changes: dict[str, object], text: str) -> None:
    assert fleet_sentences.order_part(replace(ORDER, **changes), AT)[0] == text  # type: ignore[arg-type]


def found(view: FleetView) -> tuple[Alarm, ...]:
    """The alarms about a fleet of which nothing else is known."""
    return fleet_alarms(alarms(condition(at=AT, read_at=AT, fleet=view)))


@pytest.mark.parametrize(
    ("until", "text"),
    [
        ("14:33:00", ""),
        ("14:32:11", "payments forced by operator-a ends in 30 min, and is released then: order it again to extend it"),
        ("14:07:11", "payments forced by operator-a ends in 5m00s, and is released then: order it again to extend it"),
        ("14:02:11", ""),
    ],
)
def test_from_30_minutes_before_its_end_an_order_is_an_alarm(until: str, text: str) -> None:
    view = replace(calm(), orders=(replace(ORDER, until=at(until)), replace(ORDER, id="p", verb="release", until=None)))
    assert "".join(fleet_sentences.ending_part(view, AT)[:1]) == text
    assert [one.name for one in found(view) if one.name == "order_ending"] == (["order_ending"] if text else [])


def test_of_two_orders_that_end_the_first_is_named_and_stands_first(approve: Approve) -> None:
    later, sooner = replace(ORDER, at=AT - 2), replace(ORDER, id="p", targets=("audit",), until=at("14:05:11"))
    view = replace(calm(), orders=(later, sooner, replace(ORDER, id="q", until=at("14:30:11"))))
    approve.part(fleet_sentences.ending_part(view, AT)[0], "rules", has=("3m00s", "1 more"))
    assert fleet_sentences.standing_orders(view, AT)[0] is sooner


def test_an_engine_that_differs_is_named_with_the_local_operator() -> None:
    how = "released here by operator-b: force failover payments, ordered by operator-a until 18:02"
    first, *others = calm().engines
    view = replace(calm(), engines=(replace(first, differs=(how,)), *others))
    assert words.differing_part(view)[0] == f"web-1 differs: {how}"
    (alarm,) = found(view)
    assert (alarm.name, alarm.subject, alarm.sentence) == ("fleet_differs", "web-1", f"web-1 differs: {how}")
    assert f"  ! {alarm}" in fleet_lines(seen(view), AT, found(view))
    assert words.differing_part(calm()) == ()


def test_old_figures_are_said_to_be_old(approve: Approve) -> None:
    down = outage(trouble="connection refused", trouble_since=at("13:58:00"))
    text = "board not reached since 13:58: figures are of then"
    assert words.trouble_part(down, AT) == (f"{text} (connection refused)", text)
    approve.part(words.trouble_part(FleetView(me="a"), AT)[0], "rules")
    assert words.trouble_part(outage(), AT) == ()


@pytest.mark.parametrize(
    ("view", "status", "word"),
    [
        (calm(), 0, "healthy"),
        (outage(), 1, "degraded"),
        (replace(calm(), missing=("db-1",)), 1, "degraded"),
        (replace(calm(), expected=4), 1, "degraded"),
        (replace(calm(), trouble="timeout"), 3, "unreachable"),
        (FleetView(me="a"), 3, "unreachable"),
        (replace(calm(), engines=(engine(1, states=((State.UNKNOWN, 2),)),), entities=()), 0, "unknown"),
    ],
)
def test_the_exit_status(view: FleetView, status: int, word: str) -> None:
    assert (int(words.fleet_health(view, found(view))), words.fleet_word(view, found(view))) == (status, word)


def test_a_strangers_text_is_one_harmless_short_line() -> None:
    evil = "\x1b[2Jx\n! all healthy\u202e" + "y" * 500
    twin = engine(1, State.FAILED_OVER, engine=evil, host=evil, namesakes=1, status=FleetStatus.SILENT)
    order = replace(ORDER, targets=(evil,), by=evil, verb=evil, refused=((evil, evil),), silent=((evil, None),))
    view = outage(
        engines=(twin,),
        entities=(FleetEntity(path=evil, states=((State.FAILED_OVER, 1), (State.HEALTHY, 1))),),
        orders=(order, replace(order, by="")),
        trouble=evil,
        missing=(evil,),
    )
    lines = fleet_lines(seen(view), AT, found(view))
    assert not any(bad in line for line in lines for bad in ("\x1b", "\n", "\u202e"))
    assert max(map(len, lines)) < 500
    assert untrusted_text.name("") == "(no name)"


def test_the_table_has_engines_entities_and_orders(approve: Approve) -> None:
    text = "\n".join(fleet_lines(seen(outage()), AT, found(outage())))
    approve.part(
        text,
        "rules",
        has=("20 engines", "15 failed", "3 healthy", "2 silent", "14:02:08", "web-16", "web-17", "web-18"),
    )
    row = next(line for line in text.split("\n") if line.startswith("  pay-3"))
    approve.part(row.split(), "rules", has=("pay-3", "host-19", "13:58", "38"))
    assert text.index("web-2 ") < text.index("web-10 ")


def test_callers_over_all_engines_and_never_ok_where_nobody_knows(approve: Approve) -> None:
    """What nobody here can know is "unknown", never "none" or "healthy"."""
    view = calm()
    approve.part(words.callers_part(seen(view), AT)[0], "rules", has=("0 refused",))
    blind = replace(view, engines=tuple(replace(one, figures=None) for one in view.engines))
    approve.part(words.callers_part(fold((), blind, AT), AT), "rules", has=("unknown at 2",))
    first, second, third = view.engines
    partly = replace(view, engines=(first, replace(second, figures=None), third))
    approve.part(words.callers_part(seen(partly), AT)[0], "rules", has=("0 refused", "unknown at 1"))
    failing = replace(
        view.entities[0], refused_per_second=2.5, refused_since=AT - 9, failing=("web-2",), failing_count=1
    )
    view = replace(view, entities=(failing, *view.entities[1:]))
    approve.part(words.callers_part(seen(view), AT)[0], "rules", has=("2.5", "web-2"))
    approve.part(found(view), "rules", has=("2.5",))
    assert words.fleet_health(view, found(view)) is words.FleetHealth.DEGRADED


def test_engines_with_another_file_of_signers_are_named(approve: Approve) -> None:
    """Signers files differ: presence carries the hash."""
    view = replace(calm(), engines=(engine(1), engine(2, signers="other"), engine(3)))
    assert words.odd_parts(view) == (("another file of signers than most: web-2",),)
    approve.part(fleet_lines(seen(view), AT, found(view)), "rules", has=("web-2",))
    assert words.odd_parts(replace(calm(), engines=(engine(1), engine(2), engine(3, signers="")))) == ()


# -- What a report tells other hosts of an engine's gateway: that clients of other languages are steered there.


def snapshot(**changes: Any) -> Snapshot:
    base = Snapshot(
        engine="e", boot="b", pid=1, seq=1, at=1.0, pairing="p", environment="", primary="a", secondary="b",
        read_only=False, entities=(), queues=(), syphon=SyphonView(status=SyphonStatus.OFF, text=""),
        billed=Meter(), times="",
    )  # fmt: skip
    return replace(base, **changes)


@pytest.mark.parametrize(("gateway", "clients"), [(None, None), (gateway_views.many(1000), 1000)])
def test_a_report_has_a_figure_for_its_gateway(gateway: Any, clients: int | None) -> None:
    assert sum_figures(snapshot(gateway=gateway), 1.0).gateway_clients == clients


def test_a_report_has_no_clients_since_its_size_is_limited() -> None:
    bare = without_clients(gateway_views.many(1000))
    assert len(msgspec.json.encode(bare)) < 600
    assert bare.count == 1000


def test_other_hosts_see_where_clients_are_steered(approve: Approve) -> None:
    busy = [fleet_views.engine(number) for number in (1, 2, 3)]
    busy = [
        replace(one, figures=replace(one.figures, gateway_clients=number))  # type: ignore[type-var]
        for one, number in zip(busy, (3, None, 12), strict=True)
    ]
    view = replace(fleet_views.calm(), engines=tuple(busy))
    approve.part(gateways_part(view)[0], "rules", has=("15 clients", "12 at", "web-3", "3 at", "web-1"))
    approve.part(
        fleet_lines(seen(view), fleet_views.AT, found(view)),
        "rules",
        has=("15 clients", "12 at", "web-3", "3 at", "web-1"),
    )
    assert gateways_part(fleet_views.calm()) == ()


# -- The words about the gateway's clients: names by their open frames, alarms, verdicts and remedies.


NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("agent", "sdk", "version"),
    [
        ("azsdk-python-servicebus/7.14.3 pyamqp Python/3.11.2 (Linux)", "Python", "7.14.3"),
        ("shop azsdk-js-azureservicebus/7.9.5 core-amqp/4.3.4 Node/v22", "JavaScript", "7.9.5"),
        ("azsdk-java-azure-messaging-servicebus/7.17.8 (17.0.1; Linux)", "Java", "7.17.8"),
        ("azsdk-go-azservicebus/v1.7.1 (go1.22; linux)", "Go", "1.7.1"),
        ("azsdk-net-Messaging.ServiceBus/7.20.1 (.NET 8)", ".NET", "7.20.1"),
        ("azsdk-net-Azure.Messaging.ServiceBus/7.2100.26.47403 (.NET 10)", ".NET", "7.21.0"),
        ("azsdk-net-Azure.Messaging.ServiceBus/7.1801.24.6", ".NET", "7.18.1"),
    ],
)
def test_every_official_sdk_is_named(agent: str, sdk: str, version: str) -> None:
    assert client_name("c", {"user-agent": agent, "product": "other"}) == (sdk, version, "c")


def test_a_product_names_itself_and_a_nameless_client_is_unknown() -> None:
    assert client_name("c", {"product": "rhea", "version": "3.0"}) == ("rhea", "3.0", "c")
    assert client_name("c", None) == ("", "", "c")
    assert client_name(7, {"product": 7, "user-agent": b"x", 7: 8}) == ("", "", "")


def test_a_strangers_text_is_short_masked_and_one_line() -> None:
    name = client_name("a\x1b[31m\nb" + "x" * 9999, {"product": "SharedAccessKey=c2VjcmV0", "version": "[red]\r\n"})
    assert "\x1b" not in name.container
    assert "\n" not in name.container
    assert len(name.container) <= 60
    assert name.sdk == "SharedAccessKey=***"
    assert name.version == "[red]"


def client(goes: SendsGo = SendsGo.PRIMARY, **changes: object) -> GatewayClient:
    link = GatewayLink(entity="orders", direction=LinkDirection.SENDS, goes=goes)
    base = {"id": 1, "sdk": "Go", "version": "1", "key": "web", "address": "127.0.0.1:9", "since": 0.0}
    return GatewayClient(**{**base, "links": (link,), "accepted": 5, **changes})  # type: ignore[arg-type]


def gateway(**changes: object) -> GatewayView:
    return GatewayView(**{"address": "127.0.0.1", "port": 5673, "since": 0.0, **changes})  # type: ignore[arg-type]


def test_each_client_has_a_verdict_and_a_remedy(approve: Approve) -> None:
    approve.part(verdict(client(), NOW), "rules")
    approve.part(todo(client()), "rules")
    failing = client(refused_since=NOW - 75, last_condition="com.microsoft:timeout", refused=3)
    assert verdict(failing, NOW).endswith("(1m15s)")
    approve.part(todo(failing), "rules")
    assert "wait" in todo(client(SendsGo.HELD))
    assert "parked" in todo(client(SendsGo.BACKLOG))
    approve.part(todo(client(key="", links=())), "rules")


def test_where_sends_go_has_the_worst_first() -> None:
    links = tuple(
        GatewayLink(entity=str(number), direction=LinkDirection.SENDS, goes=goes)
        for number, goes in enumerate((SendsGo.PRIMARY, SendsGo.BACKLOG, SendsGo.PRIMARY))
    )
    assert where_text(client(links=links)) == "1 backlog, 2 primary"
    assert where_text(client(links=())) == "sends nothing"
