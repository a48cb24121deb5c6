"""Translations there and back: settings and XML, durations, addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from urllib.parse import quote
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

from servicebus_sandbox.atom.entity_xml import (
    FOR_EVER,
    QUEUE,
    TOPIC,
    DescriptionError,
    describe_namespace,
    kind_of,
    read_duration,
    write_duration,
    write_time,
)
from servicebus_sandbox.atom.management_api import Resource, ResourceKind, resource_at
from servicebus_sandbox.atom.rule_xml import first_rule, read_rule, write_rule
from servicebus_sandbox.broker.broker_errors import FilterSyntaxError, InvalidSettings
from servicebus_sandbox.broker.entity_settings import (
    AuthorizationRule,
    EntitySettings,
    EntityStatus,
    QueueSettings,
    Right,
    SubscriptionSettings,
    Tier,
    TopicSettings,
)
from servicebus_sandbox.broker.subscription_rules.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

if TYPE_CHECKING:
    from tests.sandbox.conftest import Port

SPANS = st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=10_000_000))
SHORT = st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(minutes=5))
PATHS = st.from_regex(r"[A-Za-z0-9._-]{1,9}(/[A-Za-z0-9._-]{1,9}){0,2}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", min_codepoint=33), min_size=1, max_size=40).map(str.strip).filter(bool)
KEYS = st.builds(
    AuthorizationRule,
    name=TEXT,
    rights=st.sampled_from([{Right.SEND}, {Right.LISTEN}, {Right.SEND, Right.LISTEN}, set(Right)]).map(frozenset),
    primary_key=TEXT,
    secondary_key=TEXT,
)
COMMON = {
    "default_ttl": st.none() | SPANS,
    "auto_delete_on_idle": st.none() | SPANS,
    "status": st.sampled_from(EntityStatus),
    "user_metadata": st.none() | TEXT.filter(lambda text: all(c.isprintable() for c in text)),
    "enable_batched_operations": st.booleans(),
}
RECEIVING = {
    "lock_duration": SHORT,
    "requires_session": st.booleans(),
    "dead_letter_on_expiration": st.booleans(),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "forward_to": st.none() | PATHS,
    "forward_dead_lettered_to": st.none() | PATHS,
}
SENDING = {
    "max_size_mb": st.integers(1, 81920),
    "requires_duplicate_detection": st.booleans(),
    "duplicate_window": SHORT,
    "enable_partitioning": st.booleans(),
    "enable_express": st.booleans(),
    "max_message_size_kb": st.none() | st.integers(1, 102400),
    "authorization_rules": st.lists(KEYS, max_size=3, unique_by=lambda rule: rule.name).map(tuple),
}
SETTINGS = st.one_of(
    st.builds(QueueSettings, **COMMON, **RECEIVING, **SENDING),
    st.builds(
        TopicSettings,
        **COMMON,
        **SENDING,
        support_ordering=st.booleans(),
        filtering_messages_before_publishing=st.booleans(),
    ),
    st.builds(SubscriptionSettings, **COMMON, **RECEIVING, dead_letter_on_filter_errors=st.booleans()),
)


def described(settings: EntitySettings) -> ElementTree.Element:
    """An entity with these settings, as XML that went over the wire."""
    namespace = BrokerNamespace("n", clock=time.time)
    match settings:
        case QueueSettings():
            entity = namespace.create_queue("q", settings)
        case TopicSettings():
            entity = namespace.create_topic("t", settings)
        case SubscriptionSettings():
            namespace.create_topic("t")
            entity = namespace.create_subscription("t", "s", settings)
    return parsed(kind_of(settings).write(entity, "localhost:1"))


def parsed(element: ElementTree.Element) -> ElementTree.Element:
    """As it arrives after a way over the wire."""
    return ElementTree.fromstring(ElementTree.tostring(element))


@given(SETTINGS)
def test_settings_survive_their_description(settings: EntitySettings) -> None:
    element = described(settings)
    if isinstance(settings, QueueSettings | TopicSettings) and settings.max_message_size_kb is None:
        settings = replace(settings, max_message_size_kb=256)  # the tier's limit is shown
    if not isinstance(settings, TopicSettings) and settings.forward_to is not None:
        settings = replace(settings, auto_delete_on_idle=None)
    assert kind_of(element).read(element, current=settings) == settings


def parse(kind: str, inside: str) -> ElementTree.Element:
    space = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    nil = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    return ElementTree.fromstring(f'<{kind} xmlns="{space}" {nil}>{inside}</{kind}>')


@pytest.mark.parametrize("inside", ["", "<LockDuration/>", '<LockDuration i:nil="true">PT9S</LockDuration>'])
def test_what_is_left_out_is_the_default(inside: str) -> None:
    assert QUEUE.read(parse("QueueDescription", inside)) == QueueSettings()


def test_what_only_the_service_sets_is_ignored() -> None:
    inside = "<MessageCount>7</MessageCount><CreatedAt>never</CreatedAt><Unheard>of</Unheard>"
    assert TOPIC.read(parse("TopicDescription", inside)) == TopicSettings()


def test_an_update_keeps_what_is_fixed_where_it_is_left_out() -> None:
    current = QueueSettings(requires_session=True, max_delivery_count=3)
    read = QUEUE.read(parse("QueueDescription", "<LockDuration>PT9S</LockDuration>"), current=current)
    assert read == QueueSettings(requires_session=True, lock_duration=timedelta(seconds=9))


@pytest.mark.parametrize(
    ("inside", "complaint"),
    [
        ("<LockDuration>soon</LockDuration>", "LockDuration: 'soon' is not an ISO 8601 duration"),
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "MaxDeliveryCount: 'many' is not a whole number"),
        ("<RequiresSession>perhaps</RequiresSession>", "RequiresSession: 'perhaps' is neither true nor false"),
        ("<Status>Tired</Status>", "Status: 'Tired' is none of Active, "),
    ],
)
def test_what_cannot_be_read_is_named(inside: str, complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint):
        QUEUE.read(parse("QueueDescription", inside))


def test_keys_that_are_left_out_are_drawn() -> None:
    rule = "<AuthorizationRule><KeyName>k</KeyName><Rights>{}</Rights></AuthorizationRule>"
    inside = f"<AuthorizationRules>{rule}</AuthorizationRules>"
    send = "<AccessRights>Send</AccessRights>"
    settings = QUEUE.read(parse("QueueDescription", inside.format(send)))
    (rule,) = settings.authorization_rules  # type: ignore[union-attr]
    assert (rule.name, rule.rights) == ("k", {Right.SEND})
    assert len({rule.primary_key, rule.secondary_key}) == 2
    with pytest.raises(DescriptionError, match="'Fly' is no right; there are Send, Listen, Manage"):
        QUEUE.read(parse("QueueDescription", inside.format("<AccessRights>Fly</AccessRights>")))
    with pytest.raises(InvalidSettings, match="gives no right"):
        QUEUE.read(parse("QueueDescription", inside.format("")))


def test_what_older_versions_do_not_know() -> None:
    namespace = BrokerNamespace("n", clock=time.time, tier=Tier.PREMIUM)
    topic = namespace.create_topic("t", TopicSettings(max_message_size_kb=2048))
    size, count = "{*}MaxMessageSizeInKilobytes", "{*}SqlFilterCount"
    texts = [
        [parsed(TOPIC.write(topic, "h", version)).findtext(name) for name in (size, count)]
        for version in ("2017-04", "2021-05", "2024-05")
    ]
    assert texts == [[None, None], ["2048", None], ["2048", "0"]]
    with pytest.raises(DescriptionError, match="'TopicDescription' is not in api-version '2017-04'"):
        TOPIC.read(
            parse("TopicDescription", "<MaxMessageSizeInKilobytes>1</MaxMessageSizeInKilobytes>"), version="2017-04"
        )
    kept = TOPIC.read(parse("TopicDescription", ""), current=topic.settings, version="2017-04")
    assert kept == topic.settings


def test_names_are_written_as_clients_compare_them() -> None:
    namespace = BrokerNamespace("n", clock=time.time)
    text = ElementTree.tostring(QUEUE.write(namespace.create_queue("q"), "localhost"), encoding="unicode")
    assert text.startswith('<QueueDescription xmlns="')
    assert "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>" in text
    assert f"<AutoDeleteOnIdle>{FOR_EVER}</AutoDeleteOnIdle>" in text


@given(st.timedeltas(min_value=timedelta(days=-1000), max_value=timedelta(days=10_675_198)))
def test_durations_survive(duration: timedelta) -> None:
    assert read_duration(write_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT0S", timedelta(0)),
        ("P0D", timedelta(0)),
        ("PT60S", timedelta(minutes=1)),
        ("PT90M", timedelta(hours=1.5)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT0.0000001S", timedelta(0)),
        (FOR_EVER, None),
        ("P10675199DT2H48M5.47758S", None),
        ("P1Y2M3DT3H11M2S", timedelta(days=428, hours=3, minutes=11, seconds=2)),
    ],
)
def test_durations_as_clients_write_them(text: str, duration: timedelta | None) -> None:
    assert read_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "T1S", "1M", "P1W", "PT1", "P1DT", "PT1S ago", "PT\u0661S", "PT999999999999H"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        read_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, FOR_EVER),
        (timedelta(minutes=1), "PT1M"),
        (timedelta(days=1), "P1D"),
        (timedelta(seconds=0.25), "PT0.25S"),
        (timedelta(0), "PT0S"),
        (timedelta(seconds=-61), "-PT1M1S"),
    ],
)
def test_durations_are_written_short(duration: timedelta | None, text: str) -> None:
    assert write_duration(duration) == text


def test_times_are_in_utc() -> None:
    assert [write_time(0.5, digits) for digits in (0, 3, 6)] == ["1970-01-01T00:00:00Z"] + [
        "1970-01-01T00:00:00.5Z"
    ] * 2


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/$namespaceinfo", Resource(ResourceKind.NAMESPACE)),
        ("/$NamespaceInfo", Resource(ResourceKind.NAMESPACE)),
        ("/$Resources/queues", Resource(ResourceKind.QUEUES)),
        ("/%24resources/Topics/", Resource(ResourceKind.TOPICS)),
        ("/orders", Resource(ResourceKind.ENTITY, ("orders",))),
        ("/contoso%2Fx-servicebus-transfer%2F0", Resource(ResourceKind.ENTITY, ("contoso/x-servicebus-transfer/0",))),
        ("/contoso/x-servicebus-transfer/0", Resource(ResourceKind.ENTITY, ("contoso/x-servicebus-transfer/0",))),
        ("/audit/subscriptions", Resource(ResourceKind.SUBSCRIPTIONS, ("audit",))),
        ("/audit/Subscriptions/all", Resource(ResourceKind.SUBSCRIPTION, ("audit", "all"))),
        ("/a%2Fb/subscriptions/all", Resource(ResourceKind.SUBSCRIPTION, ("a/b", "all"))),
        ("/a/b/subscriptions/all/rules", Resource(ResourceKind.RULES, ("a/b", "all"))),
        ("/audit/subscriptions/all/Rules/$Default", Resource(ResourceKind.RULE, ("audit", "all", "$Default"))),
        ("/subscriptions", Resource(ResourceKind.ENTITY, ("subscriptions",))),
        ("/", None),
        ("/$Resources/relays", None),
        ("/$cbs", None),
    ],
)
def test_addresses(path: str, resource: Resource | None) -> None:
    assert resource_at(path) == resource


@given(PATHS.filter(lambda path: "subscriptions" not in path.lower()), st.text(min_size=1, max_size=9))
def test_addresses_survive(path: str, name: str) -> None:
    name = quote(name, safe="")
    names = (path, name, "x")
    for kind, count in (("ENTITY", 1), ("SUBSCRIPTIONS", 1), ("SUBSCRIPTION", 2), ("RULE", 3)):
        resource = Resource(ResourceKind[kind], names[:count])
        assert resource_at("/" + resource.url_path) == resource


# Rules there and back: through XML alone, and through management as the real SDK asks for it.


WORDS = st.text(st.characters(codec="utf-8", min_codepoint=33, exclude_categories=["C"]), min_size=1, max_size=9)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", min_codepoint=32, exclude_characters="\x7f", exclude_categories=["C"]))
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
)
PAIRS = st.dictionaries(WORDS, VALUES, max_size=4)
FIELDS = {
    name: st.none() | WORDS
    for name in ("message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id", "content_type")
}
RULES = st.builds(
    Rule,
    name=st.sampled_from(["$Default", "mine"]),
    filter=st.just(TrueFilter())
    | st.just(FalseFilter())
    | st.builds(SqlFilter, st.just("a < 1 AND b = '&'"), PAIRS)
    | st.builds(CorrelationFilter, correlation_id=WORDS, properties=PAIRS, **FIELDS),
    action=st.none() | st.builds(SqlAction, st.just("SET a = '<b>'"), PAIRS),
)


@given(RULES)
def test_rules_survive_their_description(rule: Rule) -> None:
    wire = ElementTree.tostring(write_rule(rule))
    assert read_rule(ElementTree.fromstring(wire)) == rule


CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def rule_element(inside: str, root: str = "RuleDescription") -> ElementTree.Element:
    spaces = f'xmlns="{CONNECT}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns:x="urn:x"'
    return ElementTree.fromstring(f"<{root} {spaces}>{inside}</{root}>")


def test_what_is_left_out() -> None:
    assert read_rule(rule_element("")) == Rule()
    assert read_rule(rule_element('<Filter i:nil="true"/><Action i:nil="true"/><Name>n</Name>')) == Rule(name="n")
    assert first_rule(rule_element("", "SubscriptionDescription")) is None


def test_the_type_may_stand_in_any_namespace() -> None:
    inside = '<Filter x:type="p:FalseFilter"/>'
    assert read_rule(rule_element(inside)).filter == FalseFilter()


def test_a_first_rule() -> None:
    inside = (
        '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a=1</SqlExpression></Filter>'
        "<Name>mine</Name></DefaultRuleDescription>"
    )
    found = first_rule(rule_element(inside, "SubscriptionDescription"))
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
def test_a_rule_that_cannot_be_read_is_named(inside: str, complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint):
        read_rule(rule_element(inside), name="mine")


def test_the_text_of_a_filter_is_read_at_once() -> None:
    with pytest.raises(FilterSyntaxError, match="character 4"):
        read_rule(rule_element('<Filter i:type="SqlFilter"><SqlExpression>a = </SqlExpression></Filter>'))


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
    with pytest.raises(ResourceExistsError, match=r"Topic:t\|s\|\$Default' already exists"):
        await admin.create_rule("t", "s", "$Default", filter=TrueRuleFilter())
    for act in (admin.get_rule("t", "s", "x"), admin.delete_rule("t", "s", "x"), admin.get_rule("t", "none", "x")):
        with pytest.raises(ResourceNotFoundError):
            await act
    rule = await admin.get_rule("t", "s", "$Default")
    rule.name = "x"
    with pytest.raises(ResourceNotFoundError):
        await admin.update_rule("t", "s", rule)
    with pytest.raises(HttpResponseError, match=r"a value or a condition was expected") as caught:
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


# What administration clients of other languages read in answers, by their sources.


RULE = (
    '<RuleDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><Filter i:type="CorrelationFilter"><Properties>'
    "<KeyValueOfstringanyType><Key>d</Key><Value "
    'xmlns:d6p1="http://www.w3.org/2001/XMLSchema" i:type="d6p1:dateTime">{}</Value></KeyValueOfstringanyType>'
    "</Properties></Filter></RuleDescription>"
)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (Resource(ResourceKind.ENTITY, ("jst",)), "jst"),
        (Resource(ResourceKind.SUBSCRIPTION, ("jst", "s")), "jst/Subscriptions/s"),
        (Resource(ResourceKind.RULE, ("eu/jst", "s", "r")), "eu/jst/Subscriptions/s/Rules/r"),
    ],
)
def test_ids_have_the_services_letters(resource: Resource, path: str) -> None:
    """JavaScript's client cuts the names of topic and subscription out of an id by `/Subscriptions/` and `/Rules/`."""
    assert resource.url_path == path
    for spelling in (path, path.lower(), path.upper()):
        found = resource_at(spelling)
        assert found is not None, "requests come in any case"
        assert found.kind is resource.kind


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ("2001-01-01T01:02:03Z", "2001-01-01T01:02:03Z"),
        ("2001-01-01T01:02:03", "2001-01-01T01:02:03"),
        ("2001-01-01T01:02:03.5000Z", "2001-01-01T01:02:03.5Z"),
        ("2001-01-01T03:02:03+02:00", "2001-01-01T01:02:03Z"),
    ],
)
def test_a_time_in_a_rule_keeps_its_zone(sent: str, written: str) -> None:
    """Go cannot read a time without a zone where one was sent; Python compares with what it has sent."""
    rule = read_rule(ElementTree.fromstring(RULE.format(sent)), name="r")
    value = rule.filter.properties["d"]  # type: ignore[union-attr]
    assert value == datetime.fromisoformat(sent).replace(
        tzinfo=UTC if "+" not in sent else timezone(timedelta(hours=2))
    )
    text = ElementTree.tostring(write_rule(rule), encoding="unicode")
    assert f">{written}<" in text


@pytest.mark.parametrize(("tier", "units"), [(Tier.PREMIUM, "1"), (Tier.STANDARD, None), (Tier.BASIC, None)])
def test_a_premium_namespace_has_messaging_units(tier: Tier, units: str | None) -> None:
    found = describe_namespace(BrokerNamespace("contoso", clock=lambda: 1e9, tier=tier))
    assert found.findtext("MessagingUnits") == units


def test_an_entity_that_was_never_used_was_accessed_in_the_year_1() -> None:
    namespace = BrokerNamespace("contoso", clock=lambda: 1_700_000_000.0)
    queue, topic = namespace.create_queue("q"), namespace.create_topic("t")
    assert QUEUE.write(queue, "h").findtext("AccessedAt") == "0001-01-01T00:00:00Z"
    assert TOPIC.write(topic, "h").findtext("AccessedAt") == "0001-01-01T00:00:00Z"
