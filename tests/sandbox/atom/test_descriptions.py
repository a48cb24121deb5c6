"""Translations there and back: settings and XML, durations, addresses."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_sandbox.atom.entity_xml import (
    FOR_EVER,
    QUEUE,
    TOPIC,
    DescriptionError,
    kind_of,
    read_duration,
    write_duration,
    write_time,
)
from servicebus_sandbox.atom.management_api import Resource, ResourceKind, resource_at
from servicebus_sandbox.broker.broker_errors import InvalidSettings
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
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

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
        settings = replace(settings, max_message_size_kb=256)  # what the tier gives is shown
    assert kind_of(element).read(element) == settings


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
    with pytest.raises(DescriptionError, match="MaxMessageSizeInKilobytes: api-version 2017-04 does not know it"):
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
    ],
)
def test_durations_as_clients_write_them(text: str, duration: timedelta | None) -> None:
    assert read_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "T1S", "1M", "P1Y", "PT1", "P1DT", "PT1S ago", "PT\u0661S", "PT999999999999H"]
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
    assert write_time(0.5) == "1970-01-01T00:00:00.500000Z"


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
