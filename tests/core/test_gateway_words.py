"""The words about the gateway's clients: names by their open frames, alarms, verdicts and remedies."""

from __future__ import annotations

import pytest
from tests.approval import Approve

from paired_servicebus.core.gateway.gateway_sentences import client_name, gateway_alarms, todo, verdict, where_text
from paired_servicebus.core.model.gateway_view import (
    GatewayClient,
    GatewayLink,
    GatewayView,
    LinkDirection,
    SendsGo,
    TurnedAway,
    TurnedAwayView,
)

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


def test_a_gateway_that_works_has_no_alarm_and_none_is_none() -> None:
    assert gateway_alarms(None, NOW) == ()
    assert gateway_alarms(gateway(clients=(client(),), count=1), NOW) == ()


def test_a_gateway_that_does_not_listen_is_an_alarm_with_its_reason(approve: Approve) -> None:
    (alarm,) = gateway_alarms(gateway(since=None, trouble="port 5673 is taken"), NOW)
    approve.part(alarm, "rules", has=("5673 is",))


def test_bytes_in_hand_at_their_limit_are_an_alarm(approve: Approve) -> None:
    (alarm,) = gateway_alarms(gateway(paused=3, paused_since=NOW - 5, bytes_in_hand=64 << 20), NOW)
    assert "64.0 MB" in alarm
    approve.part(alarm, "rules", has=("3 clients",))


def test_a_wrong_key_is_an_alarm_for_some_minutes(approve: Approve) -> None:
    away = TurnedAwayView(why=TurnedAway.WRONG_KEY, count=4, last_at=NOW - 10, last_text="no key named 'x'.")
    (alarm,) = gateway_alarms(gateway(turned_away=(away,)), NOW)
    assert "4 clients" in alarm
    approve.part(alarm, "rules", has=("paired gateway",))
    assert gateway_alarms(gateway(turned_away=(away,)), NOW + 1000) == ()


def test_one_client_that_tries_again_is_one_client() -> None:
    away = TurnedAwayView(why=TurnedAway.WRONG_KEY, count=1, times=99, last_at=NOW, last_text="no key named 'x'")
    (alarm,) = gateway_alarms(gateway(turned_away=(away,)), NOW)
    assert alarm.startswith("the gateway turned 1 client away, 99 times, the latest at ")


def test_a_primary_that_refuses_the_engine_is_no_fault_of_the_clients() -> None:
    away = TurnedAwayView(why=TurnedAway.ENGINE_REFUSED, count=2, last_at=NOW, last_text="not authorized")
    (alarm,) = gateway_alarms(gateway(turned_away=(away,)), NOW)
    assert "the primary refuses the engine's own credential for 2 clients" in alarm
    assert "turned" not in alarm
    assert "give it a key" not in alarm


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
