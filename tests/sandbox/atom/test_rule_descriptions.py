"""Rules there and back: through XML alone, and through management as the real SDK asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import (
    ApiVersion,
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from hypothesis import given
from hypothesis import strategies as st

from servicebus_sandbox.atom.entity_xml import DescriptionError
from servicebus_sandbox.atom.rule_xml import first_rule, read_rule, write_rule
from servicebus_sandbox.broker.broker_errors import FilterSyntaxError
from servicebus_sandbox.broker.subscription_rules.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

if TYPE_CHECKING:
    from tests.sandbox.conftest import Port

TEXT = st.text(st.characters(codec="utf-8", min_codepoint=33, exclude_categories=["C"]), min_size=1, max_size=9)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", min_codepoint=32, exclude_characters="\x7f", exclude_categories=["C"]))
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
)
PAIRS = st.dictionaries(TEXT, VALUES, max_size=4)
FIELDS = {
    name: st.none() | TEXT
    for name in ("message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id", "content_type")
}
RULES = st.builds(
    Rule,
    name=st.sampled_from(["$Default", "mine"]),
    filter=st.just(TrueFilter())
    | st.just(FalseFilter())
    | st.builds(SqlFilter, st.just("a < 1 AND b = '&'"), PAIRS)
    | st.builds(CorrelationFilter, correlation_id=TEXT, properties=PAIRS, **FIELDS),
    action=st.none() | st.builds(SqlAction, st.just("SET a = '<b>'"), PAIRS),
)


@given(RULES)
def test_rules_survive_their_description(rule: Rule) -> None:
    wire = ElementTree.tostring(write_rule(rule))
    assert read_rule(ElementTree.fromstring(wire)) == rule


CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def described(inside: str, root: str = "RuleDescription") -> ElementTree.Element:
    spaces = f'xmlns="{CONNECT}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns:x="urn:x"'
    return ElementTree.fromstring(f"<{root} {spaces}>{inside}</{root}>")


def test_what_is_left_out() -> None:
    assert read_rule(described("")) == Rule()
    assert read_rule(described('<Filter i:nil="true"/><Action i:nil="true"/><Name>n</Name>')) == Rule(name="n")
    assert first_rule(described("", "SubscriptionDescription")) is None


def test_the_type_may_stand_in_any_namespace() -> None:
    inside = '<Filter x:type="p:FalseFilter"/>'
    assert read_rule(described(inside)).filter == FalseFilter()


def test_a_first_rule() -> None:
    inside = (
        '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a=1</SqlExpression></Filter>'
        "<Name>mine</Name></DefaultRuleDescription>"
    )
    found = first_rule(described(inside, "SubscriptionDescription"))
    assert found == Rule(name="mine", filter=SqlFilter("a=1"))


VALUE = (
    '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
    '<Value i:type="{}">{}</Value></KeyValueOfstringanyType></Properties></Filter>'
)


@pytest.mark.parametrize(
    ("inside", "complaint"),
    [
        ("<Filter/>", "Filter: its type is ''; it is one of SqlFilter"),
        ('<Filter i:type="Colander"/>', "Filter: its type is 'Colander'"),
        ('<Action i:type="Dance"/>', "Action: its type is 'Dance'; it is one of SqlRuleAction"),
        ('<Filter i:type="SqlFilter"/>', "SqlExpression: it is missing or empty"),
        ("<Name>other</Name>", "called 'other' here and 'mine' in the address"),
        (VALUE.format("d:int", "two"), "'k': 'two' is no int"),
        (VALUE.format("d:boolean", "perhaps"), "neither true nor false"),
        (VALUE.format("d:dateTime", "noon"), "'k': 'noon' is no dateTime"),
        (VALUE.format("d:duration", "P10675199DT2H48M5.4775807S"), "cannot last for ever"),
        (VALUE.format("d:colour", "red"), "'k': its type is 'colour'; it is one of string, int"),
        (VALUE.replace("<Key>k</Key>", "").format("d:int", "1"), "its Key is missing"),
    ],
)
def test_what_cannot_be_read_is_named(inside: str, complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint):
        read_rule(described(inside), name="mine")


def test_the_text_of_a_filter_is_read_at_once() -> None:
    with pytest.raises(FilterSyntaxError, match="character 3"):
        read_rule(described('<Filter i:type="SqlFilter"><SqlExpression>a = </SqlExpression></Filter>'))


# ---------------------------------------------------------------------- with the SDK


@pytest.fixture
async def admin(port: Port) -> AsyncIterator[ServiceBusAdministrationClient]:
    port.namespace.create_topic("t")
    port.namespace.create_subscription("t", "s")
    client = ServiceBusAdministrationClient.from_connection_string(
        port.connection_string, connection_verify=str(port.ca_file), retry_total=0
    )
    async with client, asyncio.timeout(60):
        yield client


NOON = datetime(2026, 5, 6, 12, 30)  # the SDK reads times without a zone
EVERYTHING = {"s": "text", "i": 2, "l": 2**40, "f": 1.5, "b": False, "t": NOON, "d": timedelta(days=1, minutes=3)}


async def test_every_kind_of_rule_there_and_back(admin: ServiceBusAdministrationClient) -> None:
    fields = ("correlation_id", "message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id")
    correlation = CorrelationRuleFilter(content_type="c", properties=EVERYTHING, **{name: name for name in fields})
    action = SqlRuleAction("SET a = @p", parameters={"@p": NOON})
    await admin.create_rule("t", "s", "correlation", filter=correlation, action=action)
    await admin.create_rule("t", "s", "sql", filter=SqlRuleFilter("a = @a", parameters={"@a": "<&>"}))
    await admin.create_rule("t", "s", "true", filter=TrueRuleFilter())
    await admin.create_rule("t", "s", "false", filter=FalseRuleFilter())
    found = await admin.get_rule("t", "s", "correlation")
    assert (type(found.filter), dict(found.filter.properties)) == (CorrelationRuleFilter, EVERYTHING)
    assert {name: getattr(found.filter, name) for name in fields} == {name: name for name in fields}
    assert found.filter.content_type == "c"
    assert (found.action.sql_expression, dict(found.action.parameters)) == ("SET a = @p", {"@p": NOON})
    assert abs((found.created_at_utc.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()) < 20
    rules = {rule.name: rule async for rule in admin.list_rules("t", "s")}
    assert [(name, type(rule.filter)) for name, rule in rules.items()] == [
        ("$Default", TrueRuleFilter),
        ("correlation", CorrelationRuleFilter),
        ("false", FalseRuleFilter),
        ("sql", SqlRuleFilter),
        ("true", TrueRuleFilter),
    ]
    assert (rules["sql"].filter.sql_expression, rules["sql"].action) == ("a = @a", None)
    assert dict(rules["sql"].filter.parameters) == {"@a": "<&>"}
    runtime = await admin.get_topic_runtime_properties("t")
    assert (runtime.sql_filter_count, runtime.correlation_filter_count) == (4, 1)


async def test_updating_and_deleting_rules(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET a = 2"))
    rule = await admin.get_rule("t", "s", "r")
    await admin.update_rule("t", "s", rule, filter=CorrelationRuleFilter(label="l"), action=None)
    found = await admin.get_rule("t", "s", "r")
    assert (found.filter.label, found.action, found.created_at_utc) == ("l", None, rule.created_at_utc)
    await admin.delete_rule("t", "s", "$Default")
    assert [rule.name async for rule in admin.list_rules("t", "s")] == ["r"]


async def test_what_is_refused_of_rules(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceExistsError, match="SubCode=40900"):
        await admin.create_rule("t", "s", "$Default", filter=TrueRuleFilter())
    for act in (admin.get_rule("t", "s", "x"), admin.delete_rule("t", "s", "x"), admin.get_rule("t", "none", "x")):
        with pytest.raises(ResourceNotFoundError):
            await act
    rule = await admin.get_rule("t", "s", "$Default")
    rule.name = "x"
    with pytest.raises(ResourceNotFoundError):
        await admin.update_rule("t", "s", rule)
    with pytest.raises(HttpResponseError, match=r"SubCode=40000\. a value or a condition was expected") as caught:
        await admin.create_rule("t", "s", "bad", filter=SqlRuleFilter("a = "))
    assert caught.value.status_code == 400
    with pytest.raises(HttpResponseError, match="'@p' is used and not given"):
        await admin.create_rule("t", "s", "bad", filter=TrueRuleFilter(), action=SqlRuleAction("SET a = @p"))
    assert [rule.name async for rule in admin.list_rules("t", "s")] == ["$Default"]


async def test_rules_come_in_pages(admin: ServiceBusAdministrationClient, port: Port) -> None:
    for index in range(130):
        port.namespace.create_rule("t", "s", Rule(name=f"r{index:03}"))
    names = [rule.name async for rule in admin.list_rules("t", "s")]
    assert (len(names), names[0], names[-1]) == (131, "$Default", "r129")


@pytest.mark.parametrize("version", list(ApiVersion))
async def test_every_version_of_the_interface(port: Port, version: ApiVersion) -> None:
    client = ServiceBusAdministrationClient.from_connection_string(
        port.connection_string, connection_verify=str(port.ca_file), retry_total=0, api_version=version
    )
    async with client, asyncio.timeout(60):
        topic = await client.create_topic("t")
        await client.update_topic(topic, user_metadata="x")
        await client.create_subscription("t", "s")
        await client.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"))
        topic = await client.get_topic("t")
        runtime = await client.get_topic_runtime_properties("t")
    assert topic.user_metadata == "x"
    assert topic.max_message_size_in_kilobytes == (None if version == ApiVersion.V2017_04 else 256)
    assert runtime.sql_filter_count == (2 if version == ApiVersion.V2024_05 else None)
