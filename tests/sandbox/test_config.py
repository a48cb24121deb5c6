"""A sandbox declared in TOML: everything that can be said, and one sentence for everything that cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import given
from hypothesis import strategies as st

from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.authorization import AzureRole, Identity
from servicebus_sandbox.broker.entity_settings import Behavior, EntityStatus, Expiry, Pings, QueueSettings, Right, Tier
from servicebus_sandbox.broker.subscription_rules.rules import CorrelationFilter, SqlFilter, TrueFilter
from servicebus_sandbox.spec_file import SandboxConfigError, load_sandbox
from servicebus_sandbox.specs import NamespaceSpec

KB = 1024
WHOLE = """
[[namespace]]
name = "contoso"
tier = "Premium"
region = "northeurope"
pings = "delivered"
expiry = "lazy"
credits_per_second = 1000
behaves = { peek_needs_send = true, exact_batch_delete = false }
faults = [{ fault = "busy", entity = "payments", client = "c" }, { fault = "latency", delay_s = 2, key = "k" }]
keys = [{ name = "listener", rights = ["listen"], primary_key = "one", secondary_key = "two" }]

[[namespace.queues]]
name = "payments"
requires_session = true
lock_duration = "30s"
max_delivery_count = 3
status = "SendDisabled"
max_size_in_megabytes = 5120
requires_duplicate_detection = true
duplicate_detection_history_time_window = "PT20S"
default_message_time_to_live = "7d"
auto_delete_on_idle = "P10675199DT2H48M5.4775807S"
user_metadata = "mine"
keys = [{ name = "sender", rights = ["Send"], primary_key = "three" }]

[[namespace.topics]]
name = "audit"
support_ordering = false

[[namespace.topics.subscriptions]]
name = "some"
dead_lettering_on_filter_evaluation_exceptions = false
rules = [
  { name = "large", sql = "size > @limit", parameters = { limit = 10 }, action = "SET large = TRUE" },
  { name = "west", correlation = { label = "w", properties = { region = "west" } } },
  { name = "rest" },
]

[[namespace]]
name = "other"
port = 0
queues = ["orders", "contoso/x-servicebus-transfer/0", { name = "short", lock_duration = "500ms" }]
topics = ["bare", { name = "audit", subscriptions = ["all", { name = "none", rules = [] }] }]
"""


def load(tmp_path: Path, text: str) -> tuple[NamespaceSpec, ...]:
    file = tmp_path / "sandbox.toml"
    file.write_text(text, encoding="utf-8")
    return load_sandbox(file).namespaces


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(SandboxConfigError) as caught:
        load(tmp_path, text)
    sentence = str(caught.value)
    assert sentence.startswith(str(tmp_path / "sandbox.toml"))
    assert "\n" not in sentence
    return sentence.removeprefix(str(tmp_path / "sandbox.toml"))


def test_all_that_can_be_said(tmp_path: Path) -> None:
    contoso = load(tmp_path, WHOLE)[0]
    assert (contoso.name, contoso.tier, contoso.region, contoso.port) == ("contoso", Tier.PREMIUM, "northeurope", 0)
    assert contoso.pings is Pings.DELIVERED
    assert (contoso.expiry, contoso.credits_per_second) == (Expiry.LAZY, 1000)
    assert contoso.behaves == Behavior(peek_needs_send=True, exact_batch_delete=False)
    busy, slow = contoso.faults
    assert (busy.kind, busy.entities, busy.client, slow.key, slow.terms.delay_s) == ("busy", ("payments",), "c", "k", 2)
    (listener,) = contoso.rules
    assert (listener.name, listener.rights, listener.keys) == ("listener", {Right.LISTEN}, ("one", "two"))
    (payments,) = contoso.queues
    settings = payments.settings
    assert (settings.requires_session, settings.requires_duplicate_detection) == (True, True)
    assert (settings.lock_duration, settings.duplicate_window) == (timedelta(seconds=30), timedelta(seconds=20))
    assert (settings.default_ttl, settings.auto_delete_on_idle) == (timedelta(days=7), None)
    assert (settings.max_delivery_count, settings.max_size_mb, settings.user_metadata) == (3, 5120, "mine")
    assert settings.status is EntityStatus.SEND_DISABLED
    (sender,) = settings.authorization_rules
    assert (sender.rights, sender.primary_key) == ({Right.SEND}, "three")
    assert sender.secondary_key not in ("", "three")


async def test_messages_may_be_as_large_as_the_tier_says(tmp_path: Path) -> None:
    """256 KB on Basic and Standard; on Premium 1 MB, and up to 100 MB where the entity says so."""
    text = "".join(
        f'[[namespace]]\nname = "{tier}"\ntier = "{tier}"\nqueues = ["q"]\n'
        for tier in ("Basic", "Standard", "Premium")
    )
    large = 'queues = ["q", { name = "large", max_message_size_in_kilobytes = 2048 }]'
    async with Sandbox.start(load(tmp_path, text.removesuffix('queues = ["q"]\n') + large)) as sandbox:
        for name, queue, size in (
            ("Basic", "q", 256 * KB),
            ("Standard", "q", 256 * KB),
            ("Premium", "q", 1024 * KB),
            ("Premium", "large", 2048 * KB),
        ):
            client = ServiceBusClient.from_connection_string(sandbox[name].connection_string, retry_total=0)
            async with asyncio.timeout(60), client, client.get_queue_sender(queue) as sender:
                with pytest.raises(MessageSizeExceededError):
                    await sender.send_messages(ServiceBusMessage(bytes(size)))
                await sender.send_messages(ServiceBusMessage(bytes(size - KB)))
            assert sandbox[name].node.namespace.queue(queue).counts().active == 1


def test_addresses_and_identities(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.toml"
    file.write_text(
        'tenant = "t"\n[[namespace]]\nname = "a"\nstandard_ports = true\naddress = "127.0.0.2"\nhost = "bus"\n'
        '[[identity]]\nclient_id = "app"\nclient_secret = "s"\nroles = ["Data Sender"]\nscopes = ["A/orders*"]\n'
        '[[identity]]\nclient_id = "root"\n'
    )
    whole = load_sandbox(file)
    (spec,), (app, root) = whole.namespaces, whole.identities
    assert (spec.ports, spec.address, spec.host_name) == ((5672, 5671, 443), "127.0.0.2", "bus")
    assert (whole.tenant, app) == ("t", Identity("app", "s", (AzureRole.SENDER,), ("A/orders*",)))
    assert (root.roles, root.scopes, bool(root.client_secret)) == ((AzureRole.OWNER,), (), True)


def test_names_alone(tmp_path: Path) -> None:
    other = load(tmp_path, WHOLE)[1]
    assert (other.name, other.tier, other.pings) == ("other", Tier.STANDARD, Pings.DROPPED)
    assert [queue.path for queue in other.queues] == ["orders", "contoso/x-servicebus-transfer/0", "short"]
    assert other.queues[0].settings == QueueSettings()
    assert other.queues[2].settings.lock_duration == timedelta(milliseconds=500)
    bare, audit = other.topics
    assert (bare.path, bare.subscriptions) == ("bare", ())
    everything, nothing = audit.subscriptions
    assert [type(rule.filter) for rule in everything.rules] == [TrueFilter]
    assert nothing.rules == ()


def test_rules_of_a_subscription(tmp_path: Path) -> None:
    (audit,) = load(tmp_path, WHOLE)[0].topics
    assert not audit.settings.support_ordering
    (some,) = audit.subscriptions
    assert not some.settings.dead_letter_on_filter_errors
    large, west, rest = some.rules
    assert large.filter == SqlFilter("size > @limit", {"limit": 10})
    assert large.action is not None
    assert west.filter == CorrelationFilter(label="w", properties={"region": "west"})
    assert (rest.name, rest.filter, rest.action) == ("rest", TrueFilter(), None)


async def test_declared_faults_begin_with_the_namespace(tmp_path: Path) -> None:
    text = '[[namespace]]\nname = "a"\nqueues = ["q"]\nfaults = [{ fault = "busy", entity = "q", key = "later" }]'
    async with Sandbox.start(load(tmp_path, text)) as sandbox:
        (fault,) = sandbox["a"].node.faults.active()
        assert (fault.kind, fault.entity, fault.key) == ("busy", "q", "later")


async def test_what_is_declared_runs(tmp_path: Path) -> None:
    async with Sandbox.start(load(tmp_path, WHOLE)) as sandbox:
        contoso = sandbox["contoso"].node
        assert contoso.region == "northeurope"
        assert [rule.name for rule in contoso.authorization.rules] == ["RootManageSharedAccessKey", "listener"]
        rules = contoso.namespace.subscription("audit", "some").rules
        assert [rule.name for rule in rules] == ["large", "rest", "west"]
        assert len(sandbox["other"].node.namespace.subscription("audit", "none").rules) == 0


async def test_the_key_of_the_service_may_be_given(tmp_path: Path) -> None:
    key = '{ name = "RootManageSharedAccessKey", rights = ["Manage", "Send", "Listen"], primary_key = "mine" }'
    async with Sandbox.start(load(tmp_path, f'[[namespace]]\nname = "a"\nkeys = [{key}]')) as sandbox:
        assert sandbox["a"].key == "mine"
        assert len(sandbox["a"].node.authorization.rules) == 1


MISTAKES = {
    "{}": """
        # nothing
            : there is no [[namespace]]; declare at least one, with a name
        namespace = []
            : there is no [[namespace]]; declare at least one, with a name
        namespace = 7
            : namespace is or holds 7; it has to be a table, or a list of tables
        [[namespaces]]
            : there is nothing called namespaces here; did you mean namespace?
        [[namespace]]
            , namespace: name is missing; it has to be a string in quotes, as in "orders"
        namespace = [{ name = "a" }, { name = "A" }]
            : two namespaces have the name a; give each one of its own
        namespace = [{ name = "a", port = 7 }, { name = "b", port = 7 }]
            : two namespaces have the port 7; give each one, or an address, of its own
        namespace = [{ name = "a", standard_ports = true }, { name = "b", standard_ports = true }]
            : two namespaces have the port 5672; give each one, or an address, of its own
        namespace = [{ name = "a", host = "x" }, { name = "b", host = "X" }]
            : two namespaces have the host x; give each one of its own
        namespace = { name = "my space" }
            , namespace 'my space': the name may have up to 50 letters, digits and hyphens, and begins with a letter
        """,
    '[[namespace]]\nname = "a"\n{}': """
        port = 70000
            , namespace 'a': port is 70000; allowed is 0, for any that is free, to 65535
        port = 7 ¶ standard_ports = true
            , namespace 'a': standard_ports are 5672, 5671, 443; leave port out
        address = "example.com"
            , namespace 'a': address is "example.com"; it has to be an IP address of this machine
        host = "a b"
            , namespace 'a': host is "a b"; it has to be a host name, as in "a.servicebus.windows.net"
        port = true
            , namespace 'a': port is true; it has to be a whole number
        tier = "Gold"
            , namespace 'a': tier is "Gold"; it has to be one of Basic, Standard, Premium
        expiry = "never"
            , namespace 'a': expiry is "never"; it has to be one of on-time, lazy
        expiry = true
            , namespace 'a': expiry is true; it has to be one of on-time, lazy
        credits_per_second = 0
            , namespace 'a': credits_per_second is 0; allowed is 1 to 1000000000
        credits_per_second = 1e3
            , namespace 'a': credits_per_second is 1000.0; it has to be a whole number
        faults = ["busy"]
            , namespace 'a': faults is or holds "busy"; it has to be a table, or a list of tables
        faults = [{}]
            , namespace 'a', faults: fault is missing; it is one of refused,
        faults = [{ fault = "sleepy" }]
            , namespace 'a', faults: unknown fault 'sleepy'; known are refused,
        faults = [{ fault = "busy", entity = "q" }]
            , namespace 'a': namespace 'a' has no entity 'q'; it has none
        faults = [{ fault = "busy", clients = "c" }]
            , namespace 'a', faults: there is nothing called clients here; did you mean client?
        faults = [{ fault = "busy", namespace = "a" }]
            , namespace 'a', faults: there is nothing called namespace here;
        faults = [{ fault = "busy", client = 3 }]
            , namespace 'a', faults: client has to be a string, not 3
        queue = ["q"]
            , namespace 'a': there is nothing called queue here; did you mean queues?
        queues = "q"
            , namespace 'a': queues is "q"; it has to be a list of names and tables, each a queue
        queues = [1]
            , namespace 'a': queues holds 1; each queue has to be a name or a table with a name
        queues = [{}]
            , namespace 'a', queue 1: name is missing; it has to be a string in quotes, as in "orders"
        queues = ["q", "Q"]
            , namespace 'a': an entity 'Q' already exists in this namespace
        queues = ["a//b"]
            , namespace 'a': 'a//b' is no name for an entity; allowed are
        """,
    '[[namespace]]\nname = "a"\n[[namespace.queues]]\nname = "q"\n{}': """
        lock = 1
            , namespace 'a', queue 'q': there is nothing called lock here; known are auto_delete_on_idle, dead_lett
        requires_sessions = true
            , namespace 'a', queue 'q': there is nothing called requires_sessions here; did you mean requires_session?
        requires_session = "yes"
            , namespace 'a', queue 'q': requires_session is "yes"; it has to be true or false
        lock_duration = 30
            , namespace 'a', queue 'q': lock_duration is 30; it has to be a duration, as in "30s", "5m", "7d" or "PT30S"
        lock_duration = "soon"
            , namespace 'a', queue 'q': lock_duration is "soon"; it has to be a duration, as in "30s", "5m",
        lock_duration = "1h"
            , namespace 'a', queue 'q': lock_duration is 1:00:00; allowed is more than 0, at most 0:05:00
        default_message_time_to_live = "-PT1S"
            , namespace 'a', queue 'q': default_message_time_to_live is -1 day, 23:59:59; allowed is more than 0
        max_delivery_count = 0
            , namespace 'a', queue 'q': max_delivery_count is 0; allowed is 1 to 2147483647
        max_size_in_megabytes = 0
            , namespace 'a', queue 'q': max_size_in_megabytes is 0; allowed is 1 or more
        status = "Off"
            , namespace 'a', queue 'q': status is "Off"; it has to be one of Active,
        keys = [{ name = "k", rights = ["Read"], primary_key = "x" }]
            , namespace 'a', queue 'q', key 'k': an item of rights is "Read"; it has to be one of Send, Listen, Manage
        keys = [{ name = "k", rights = ["Manage"], primary_key = "x" }]
            , namespace 'a', queue 'q', key 'k': the authorization rule 'k' gives Manage; then it has to give Send and
        keys = [{ name = "k", rights = ["Send"] }]
            , namespace 'a', queue 'q', key 'k': primary_key is missing; it has to be a string
        """,
    'namespace = [{{ name = "a" }}]\n[[identity]]\n{}': """
        roles = []
            , identity: client_id is missing; it has to be a string in quotes
        client_id = "a b"
            , identity: client_id is "a b"; it may have up to 64 letters, digits, dots and hyphens
        client_id = "a" ¶ client_secret = ""
            , identity: client_secret has to be text of printable ASCII
        client_id = "a" ¶ client_secret = "\\n"
            , identity: client_secret has to be text of printable ASCII
        client_id = "a" ¶ roles = ["Emperor"]
            , identity: roles: unknown role 'Emperor'; there are Azure Service Bus Data Sender,
        client_id = "a" ¶ roles = [1]
            , identity: an item of roles is 1; it has to be a string in quotes
        client_id = "a" ¶ scopes = ["b/orders"]
            , identity: scopes holds "b/orders"; each begins with a namespace, as in a/orders; there are a
        client_id = "a" ¶ secret = "x"
            , identity: there is nothing called secret here; did you mean client_secret?
        client_id = "a" ¶ [[identity]] ¶ client_id = "a"
            : two identities have the same client_id; give each one of its own
        client_id = "a" ¶ client_secret = "x" ¶ [[identity]] ¶ client_id = "b" ¶ client_secret = "x"
            : two identities have the same client_secret; give each one of its own
        """,
    'tenant = "{}"\nnamespace = [{{ name = "a" }}]': """
        a/b
            : tenant is "a/b"; it may have up to 64 letters, digits, dots and hyphens
        """,
    'namespace = [{{ name = "a", topics = [{{ name = "t", subscriptions = [{{ name = "s", {} }}] }}] }}]': """
        requires_duplicate_detection = true
            , namespace 'a', topic 't', subscription 's': there is nothing called requires_duplicate_detection here;
        rules = [{ name = "r", sql = "a = " }]
            , namespace 'a', topic 't', subscription 's', rule 'r': a value
        rules = [{ name = "r", sql = "a = @b" }]
            , namespace 'a', topic 't', subscription 's', rule 'r': the parameter '@b' is used and not given;
        rules = [{ name = "r", sql = "a = 1", correlation = { label = "x" } }]
            , namespace 'a', topic 't', subscription 's', rule 'r': it filters by sql and by correlation; leave one
        rules = [{ name = "r", correlation = {} }]
            , namespace 'a', topic 't', subscription 's', rule 'r', correlation: the correlation filter names no
        rules = [{ name = "r", correlation = { size = 1 } }]
            , namespace 'a', topic 't', subscription 's', rule 'r', correlation: there is nothing called size here;
        rules = [{ name = "r", parameters = { a = [] } }]
            , namespace 'a', topic 't', subscription 's', rule 'r': parameters.a is []; it has to be a string, a number,
        """,
}


def mistakes() -> Iterator[tuple[str, str]]:
    """Every text with how its complaint begins."""
    for around, table in MISTAKES.items():
        lines = [line.strip() for line in table.strip().splitlines()]
        for text, sentence in zip(lines[::2], lines[1::2], strict=True):
            yield around.format(text.replace(" ¶ ", "\n")), sentence


@pytest.mark.parametrize(("text", "sentence"), mistakes())
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    assert complaint(tmp_path, text).startswith(sentence)


def test_no_toml(tmp_path: Path) -> None:
    assert complaint(tmp_path, "[[namespace]").startswith(" is not TOML: ")
    assert complaint(tmp_path, "a = " + "[" * 100_000).startswith(" is not TOML: ")
    (tmp_path / "sandbox.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SandboxConfigError, match="is not TOML"):
        load_sandbox(tmp_path / "sandbox.toml")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(SandboxConfigError, match=r"nowhere\.toml cannot be read: No such file or directory"):
        load_sandbox(tmp_path / "nowhere.toml")


NAMES = st.sampled_from(
    (
        *("name", "queues", "topics", "subscriptions", "rules", "keys", "rights", "primary_key", "lock_duration"),
        *("sql", "correlation", "parameters", "max_delivery_count", "status", "tier", "port", "forward_to"),
        *("expiry", "credits_per_second", "faults", "fault", "client", "entity", "delay_s"),
    )
)
VALUES = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "q", "30s", "Send", "-PT1S"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def written(value: object) -> str:
    """As TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("declared")


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_whatever_is_written_the_answer_is_a_sentence_or_a_namespace(folder: Path, table: object) -> None:
    file = folder / "s.toml"
    file.write_text(f"namespace = [{written(table)}]")
    try:
        outcome = load_sandbox(file).namespaces[0].name
    except SandboxConfigError as error:
        outcome = str(error).removeprefix(f"{file}, ")
    assert outcome
    assert not outcome.startswith("/")
