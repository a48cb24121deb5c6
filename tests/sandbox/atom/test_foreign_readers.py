"""What administration clients of other languages read in answers, by their sources."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import pytest

from servicebus_sandbox.atom.entity_xml import QUEUE, TOPIC, describe_namespace
from servicebus_sandbox.atom.management_api import Resource, ResourceKind, resource_at
from servicebus_sandbox.atom.rule_xml import read_rule, write_rule
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

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
        ("2001-01-01T01:02:03.5Z", "2001-01-01T01:02:03.500000Z"),
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
