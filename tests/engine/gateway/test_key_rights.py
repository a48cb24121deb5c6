"""GATEWAY.md section 4: rights per entity, over names in every spelling: key × entity × kind of link × operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from paired_servicebus.config import load_config
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, keys_of, new_key, read_keys
from paired_servicebus.sections.gateway_options import GATEWAY_KEYS, KeyRule, gateway_options
from paired_servicebus.settings import SettingLocation
from servicebus_amqp.access import EntityNames, parse_address
from servicebus_amqp.encoding.performatives import ACCEPTED, Source, Target
from tests.engine.gateway.rough_clients import FakePairing, Refused, RoughClient, client_of, gateway_of

ORDERS: Final = new_key("orders", [GatewayRight.SEND], ["orders"])
AUDIT: Final = new_key("audit", [GatewayRight.SEND, GatewayRight.LISTEN], ["audit*", "eu/audit"])
ALL: Final = new_key("all", [GatewayRight.SEND])
LIMITS: Final = (262_144, 262_144)

SPELLINGS: Final = (
    ("orders", "plain", True),
    ("ORDERS", "upper case", True),
    ("/orders", "leading slash", True),
    ("orders/", "trailing slash", True),
    ("//orders//", "outer slashes", True),
    ("sb://h/orders", "URI", True),
    ("amqps://h:5671/orders", "URI with a port", True),
    ("orders/$management", "management node", True),
    ("Orders/$Management", "management node, other case", True),
    ("orders/subscriptions/s", "subscription", True),
    ("orders/Subscriptions/s/$DeadLetterQueue", "dead letters of a subscription", True),
    ("orders/$Transfer/$DeadLetterQueue", "transfer dead letters", True),
    ("orders/$deadletterqueue/$management", "management of the dead letters", True),
    ("orders/new", "a name below it", False),
    ("orders2", "a longer name", False),
    ("order", "a shorter name", False),
    ("billing", "another name", False),
    ("billing/orders", "its name below another", False),
    ("orders/../billing", "dots", False),
    ("orders//subscriptions/s", "double slash", False),
    ("%6frders", "percent", False),
    ("orders%00", "percent NUL", False),
    ("orders%2Fsubscriptions%2Fs", "percent slash", False),
    ("orders\x00", "NUL", False),
    ("orders\x00billing", "NUL inside", False),
    ("ord\u200bers", "zero width", False),
    ("orders\ufeff", "byte order mark", False),
    ("\uff4frders", "full width", False),
    ("order\u017f", "long s", False),
    ("or\u0501ers", "another alphabet", False),
    ("orders\n", "line feed", False),
    ("orders ", "blank", False),
    ("*", "the pattern of all", False),
    ("", "no name", True),
)
"""Spellings of a resource, and whether the key of `orders` covers it."""


@pytest.mark.parametrize(("address", "spelling", "is_covered"), [one for one in SPELLINGS if one[0]])
def test_a_name_covers_itself_and_what_is_below_it_in_the_plain_spelling_alone(
    address: str, spelling: str, is_covered: bool
) -> None:
    assert EntityNames(("orders",)).include(parse_address(address).resource) == is_covered, spelling


@pytest.mark.parametrize("address", [address for address, _, _ in SPELLINGS])
async def test_no_spelling_opens_another_entity(address: str) -> None:
    """Whatever the gateway attaches for the key of `orders` is `orders`, by the name that the primary is asked for."""
    pairing = FakePairing(dict.fromkeys(("orders", "billing", "orders/new", "orders2", "order"), LIMITS))
    async with gateway_of(pairing, ORDERS, AUDIT, ALL) as gateway, client_of(gateway) as client:
        await client.prove(gateway, ORDERS)
        refusal = await refusal_of(client, address, "sender")
    assert refusal in (None, "amqp:unauthorized-access", "com.microsoft:argument-error", "amqp:not-found")
    assert {path.lower().partition("/subscriptions/")[0] for path in pairing.asked} <= {"orders"}


MATRIX: Final = (
    (ORDERS, "orders", "sender", True),
    (ORDERS, "orders", "receiver", False),
    (ORDERS, "audit", "sender", False),
    (ORDERS, "orders/$management", "sender", True),
    (ORDERS, "audit/$management", "sender", False),
    (AUDIT, "audit", "sender", True),
    (AUDIT, "Audit-2026", "sender", True),
    (AUDIT, "eu/audit", "sender", True),
    (AUDIT, "eu/audit2", "sender", False),
    (AUDIT, "eu", "sender", False),
    (AUDIT, "orders", "sender", False),
    (AUDIT, "orders", "receiver", False),
    (ALL, "orders", "sender", True),
    (ALL, "audit", "sender", True),
    (ALL, "audit", "receiver", False),
)


@pytest.mark.parametrize(("key", "address", "kind", "is_open"), MATRIX)
async def test_each_key_opens_its_entities_for_its_rights(key: Any, address: str, kind: str, is_open: bool) -> None:
    entities = dict.fromkeys(("orders", "audit", "audit-2026", "eu/audit", "eu/audit2", "eu"), LIMITS)
    async with gateway_of(FakePairing(entities), ORDERS, AUDIT, ALL) as gateway, client_of(gateway) as client:
        await client.prove(gateway, key)
        refusal = await refusal_of(client, address, kind)
    assert (refusal is None) == is_open, refusal
    assert refusal in (None, "amqp:unauthorized-access")


async def refusal_of(client: RoughClient, address: str, kind: str) -> str | None:
    """Return the condition of a refused link; None if it is served, or was passed on to the primary."""
    try:
        if kind == "sender":
            await client.attach(address)
            return None
        link = client.session.attach_receiver("r", Source(address=address), Target(address="here"))
        client.flush()
        detach = await client.wait(lambda: client.detach_of(link))
        return detach.error.condition if detach.error is not None else ""
    except Refused as refused:
        return refused.condition


@pytest.mark.parametrize(
    "operation", ["com.microsoft:schedule-message", "com.microsoft:peek-message", "com.microsoft:x"]
)
async def test_each_operation_of_a_management_node_needs_its_right(operation: str) -> None:
    """schedule: Send; peek: Listen; what is unknown: Manage. A key has them for its own entities alone."""
    listening = new_key("reader", [GatewayRight.LISTEN], ["audit"])
    async with gateway_of(FakePairing(), listening, ALL) as gateway, client_of(gateway) as client:
        await client.prove(gateway, listening if operation != "com.microsoft:peek-message" else ALL)
        address = "audit/$management" if operation != "com.microsoft:peek-message" else "orders/$management"
        reply = await client.ask(address, operation, {})
    assert reply["statusCode"] == 401


async def test_a_token_for_the_root_opens_the_keys_entities_alone() -> None:
    pairing = FakePairing({"orders": LIMITS, "audit": LIMITS})
    async with gateway_of(pairing, ORDERS) as gateway, client_of(gateway) as client:
        await client.prove(gateway, ORDERS, path="")
        link = await client.attach("orders")
        assert await client.send(link) == ACCEPTED
        with pytest.raises(Refused, match="unauthorized-access"):
            await client.attach("audit")


# -- pairing.toml ------------------------------------------------------------------------------------------------------


def read(value: object) -> Any:
    return GATEWAY_KEYS["keys"](SettingLocation(Path("/x/pairing.toml"), "gateway", "keys", {}), value)


def test_the_table_of_a_key_is_read() -> None:
    entry = {
        "name": "web",
        "rights": ["Send"],
        "entities": ["orders", "audit*"],
        "connections": 5,
        "sends_per_second": 10,
    }
    options = gateway_options({"keys": read([entry]), "keys_file": Path("/k")})
    assert options.keys == Path("/k")
    (rule,) = options.key_rules
    assert rule == KeyRule(
        name="web", rights=("Send",), entities=("orders", "audit*"), limits={"connections": 5, "sends_per_second": 10}
    )


WRONG: Final = (
    ["web"],
    [{"rights": ["Send"]}],
    [{"name": "web"}],
    [{"name": "web", "rights": []}],
    [{"name": "web", "rights": "Send"}],
    [{"name": "web", "rights": ["Write"]}],
    [{"name": "web", "rights": ["Send"], "entities": []}],
    [{"name": "web", "rights": ["Send"], "entities": ["or ders"]}],
    [{"name": "web", "rights": ["Send"], "entities": ["orders/"]}],
    [{"name": "web", "rights": ["Send"], "entities": ["%6frders"]}],
    [{"name": "web", "rights": ["Send"], "entities": [1]}],
    [{"name": "web", "rights": ["Send"], "links": 0}],
    [{"name": "web", "rights": ["Send"], "links": True}],
    [{"name": "web", "rights": ["Send"], "key": "secret"}],
    [{"name": "web", "rights": ["Send"]}, {"name": "WEB", "rights": ["Send"]}],
)


@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_table_of_a_key_is_one_sentence_with_its_place(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^/x/pairing.toml: \[gateway\] keys "):
        read(value)


def test_the_files_keys_get_what_the_configuration_says(tmp_path: Path) -> None:
    path = tmp_path / "gateway.keys"
    rule = KeyRule(name="web", rights=("Send",), entities=("orders",), limits={"links": 3})
    made = {key.name: key for key in keys_of(path, [rule]).keys}
    assert list(made) == ["web"], "no key beside those that are configured"
    assert made["web"].entities == ("orders",)
    assert made["web"].limits.links == 3
    wider = KeyRule(name="web", rights=("Send", "Listen"))
    changed = {key.name: key for key in keys_of(path, [wider]).keys}
    assert changed["web"].key == made["web"].key, "the secret of a key stays"
    assert (changed["web"].entities, changed["web"].limits.links) == ((), None)
    assert {key.name: key for key in read_keys(path).keys} == changed


def test_a_whole_file_with_keys_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "pairing.toml"
    file.write_text(
        '[pairing]\nname = "p"\nentities = ["orders"]\n'
        '[primary]\nnamespace = "a.servicebus.windows.net"\n[secondary]\nnamespace = "b.servicebus.windows.net"\n'
        '[gateway]\nport = 5672\n[[gateway.keys]]\nname = "web"\nrights = ["Send"]\nentities = ["orders"]\n'
    )
    file.chmod(0o600)
    gateway = load_config(file).gateway
    assert gateway is not None
    assert [rule.name for rule in gateway.key_rules] == ["web"]
