"""`paired sandbox --config FILE`: namespaces and their contents, declared in TOML.

Each `[[namespace]]` has a name, and may have tier, region, port, address, host, standard_ports, keys, pings, expiry,
credits_per_second, behaves, faults, queues and topics. Each `[[identity]]` has a client_id, and may have client_secret,
roles and scopes. A queue, topic or subscription is a name or a table of
properties with the SDK's names. A fault is a table as for `POST /faults`. Every mistake is one sentence: file, place,
flaw and remedy. The broker validates the values.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar

from servicebus_sandbox.access.authorization import TENANT, AzureRole, Identity, parse_role
from servicebus_sandbox.atom import entity_xml as xml
from servicebus_sandbox.atom.entity_xml import Kind, new_key, read_duration
from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.broker.entity_settings import (
    AS_SEEN,
    AuthorizationRule,
    Behavior,
    EntityStatus,
    Expiry,
    Pings,
    Right,
    Tier,
)
from servicebus_sandbox.broker.subscription_rules.rules import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.faults import FIELDS, Fault, FaultBoard, FaultError, read_fault
from servicebus_sandbox.serving.process_settings import HOST, PUBLIC_KEY
from servicebus_sandbox.specs import (
    DOMAIN,
    NamespaceSpec,
    QueueSpec,
    SandboxConfigError,
    SandboxSpec,
    SubscriptionSpec,
    TopicSpec,
)

Choice = TypeVar("Choice", bound=StrEnum)
Value = TypeVar("Value")
Scalar = str | int | float | bool

_SHORT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MISSING: Final = object()


class TomlTable:
    """A table at `place`. A getter without a default requires the value; all raise SandboxConfigError."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def called(self, name: str) -> TomlTable:
        """Return the same table under the name of its content."""
        renamed = TomlTable(self._values, f"{self._place.rpartition(', ')[0]}, {name}")
        renamed._asked = self._asked
        return renamed

    def wrong(self, sentence: str) -> SandboxConfigError:
        return SandboxConfigError(f"{self._place}: {sentence}")

    @contextmanager
    def complaining(self, names: Mapping[str, str] | None = None) -> Iterator[None]:
        """Raise the broker's refusals as errors of this place; `names` maps its fields to the names here."""
        try:
            yield
        except (BrokerError, FaultError) as error:
            field, space, rest = str(error).partition(" ")
            raise self.wrong(f"{(names or {}).get(field, field)}{space}{rest}") from error

    # ------------------------------------------------------------------ taking values out

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(name, str, 'a string in quotes, as in "orders"', default)

    def integer(self, name: str, default: int | None = None) -> int:
        return self._take(name, int, "a whole number", default)

    def flag(self, name: str) -> bool:
        return self._take(name, bool, "true or false", None)

    def duration(self, name: str) -> timedelta | None:
        """Return a duration: `30s`, `5m`, `2h`, `7d` or ISO 8601; None for unlimited."""
        text = self._take(name, str, 'a duration, as in "30s", "5m", "7d" or "PT30S"', None)
        short = _SHORT.fullmatch(text.strip())
        try:
            return timedelta(**{_UNITS[short[2]]: float(short[1])}) if short else read_duration(text)
        except (ValueError, OverflowError) as error:
            raise self.wrong(
                f'{name} is "{text}"; it has to be a duration, as in "30s", "5m", "7d" or "PT30S"'
            ) from error

    def whole(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Return all values; only these names are allowed."""
        self.end(names)
        return self._values

    def choice(self, name: str, kind: type[Choice], default: Choice | None = None) -> Choice:
        text = self._take(name, str, f"one of {', '.join(kind)}", None if default is None else default.value)
        return self._chosen(name, text, kind)

    def choices(self, name: str, kind: type[Choice]) -> list[Choice]:
        texts = self._take(name, list, f"a list out of {', '.join(kind)}", None)
        return [self._chosen(name, text, kind) for text in texts]

    def texts(self, name: str, default: list[str]) -> list[str]:
        """Return a list of strings."""
        values = self._take(name, list, 'a list of strings, as in ["a", "b"]', default)
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(f"{name} holds {_shown(value)}; each has to be a string in quotes")
        return values

    def scalars(self, name: str) -> dict[str, Scalar]:
        """Return a table of strings, numbers and booleans; empty if there is none."""
        values = self._take(name, dict, "a table of names and values", {})
        for key, value in values.items():
            if not isinstance(value, Scalar):
                raise self.wrong(f"{name}.{key} is {_shown(value)}; it has to be a string, a number, true or false")
        return values

    def tables(self, name: str) -> list[TomlTable]:
        """Return a list of tables (`[[name]]`), also for a single one; empty if there are none."""
        given = self._take(name, object, "a table, or a list of tables", [])
        items = given if isinstance(given, list) else [given]
        for item in items:
            if not isinstance(item, dict):
                raise self.wrong(f"{name} is or holds {_shown(item)}; it has to be a table, or a list of tables")
        places = [name if len(items) == 1 else f"{name} {number}" for number in range(1, len(items) + 1)]
        return [TomlTable(item, f"{self._place}, {place}") for item, place in zip(items, places, strict=True)]

    def named(self, name: str, kind: str) -> list[TomlTable]:
        """Return the items of a list, each a name or a table with one."""
        found = []
        for number, item in enumerate(self._take(name, list, f"a list of names and tables, each a {kind}", []), 1):
            if not isinstance(item, str | dict):
                raise self.wrong(f"{name} holds {_shown(item)}; each {kind} has to be a name or a table with a name")
            values = {"name": item} if isinstance(item, str) else item
            place = f"{kind} '{values['name']}'" if isinstance(values.get("name"), str) else f"{kind} {number}"
            found.append(TomlTable(values, f"{self._place}, {place}"))
        return found

    def end(self, also: Iterable[str] = ()) -> None:
        """Raise for unconsumed values; `also` are allowed."""
        known = dict.fromkeys((*self._asked, *also))
        for name in self._values:
            if name not in known:
                near = get_close_matches(name, known, 1)
                right = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
                raise self.wrong(f"there is nothing called {name} here; {right}")

    # ------------------------------------------------------------------ inside

    def _take(self, name: str, kind: type[Value], right: str, default: Value | None) -> Value:
        self._asked[name] = None
        value = self._values.get(name, _MISSING)
        if value is _MISSING:
            if default is None:
                raise self.wrong(f"{name} is missing; it has to be {right}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise self.wrong(f"{name} is {_shown(value)}; it has to be {right}")
        return value

    def _chosen(self, name: str, text: object, kind: type[Choice]) -> Choice:
        for choice in kind:
            if isinstance(text, str) and text.lower() == choice.lower():
                return choice
        raise self.wrong(f"{name} is {_shown(text)}; it has to be one of {', '.join(kind)}")


def _shown(value: object) -> str:
    """Return the value as written in the file."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")
_LONGEST_HOST: Final = 253
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,63}")
_ID_RULE: Final = "it may have up to 64 letters, digits, dots and hyphens"
_LAST_PORT: Final = 65535
_LONGEST_ACTIVATION: Final = 3600
FAULT_FIELDS = tuple(name for name in FIELDS if name != "namespace")


def load_sandbox(path: Path) -> SandboxSpec:
    """Return the namespaces and identities in the file. Raises SandboxConfigError."""
    whole = TomlTable(_parse(path), str(path))
    specs = tuple(_namespace(table) for table in whole.tables("namespace"))
    identities = tuple(_identity(table, specs) for table in whole.tables("identity"))
    tenant, activation_s = whole.text("tenant", TENANT), whole.integer("activation_s", 0)
    whole.end()
    if not specs:
        raise whole.wrong("there is no [[namespace]]; declare at least one, with a name")
    ports = [f"{port}{spec.address and f' of {spec.address}'}" for spec in specs for port in spec.ports if port]
    hosts = [spec.host_name.lower() for spec in specs]
    for field, values in (("name", [spec.name.lower() for spec in specs]), ("port", ports), ("host", hosts)):
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            own = "one, or an address," if field == "port" else "one"
            raise whole.wrong(f"two namespaces have the {field} {twice[0]}; give each {own} of its own")
    for field in ("client_id", "client_secret"):
        if len({getattr(identity, field) for identity in identities}) < len(identities):
            raise whole.wrong(f"two identities have the same {field}; give each one of its own")
    if not _ID.fullmatch(tenant):
        raise whole.wrong(f"tenant is {_shown(tenant)}; {_ID_RULE}")
    if not 0 <= activation_s <= _LONGEST_ACTIVATION:
        raise whole.wrong(f"activation_s is {activation_s}; allowed is 0 to {_LONGEST_ACTIVATION}")
    return SandboxSpec(specs, identities, tenant, activation_s)


def _identity(table: TomlTable, namespaces: Sequence[NamespaceSpec]) -> Identity:
    client_id, secret = table.text("client_id"), table.text("client_secret", new_key())
    names, scopes = table.texts("roles", [AzureRole.OWNER]), table.texts("scopes", [])
    table.end()
    known = [spec.name.lower() for spec in namespaces]
    for scope in scopes:
        if scope.partition("/")[0].lower() not in known:
            raise table.wrong(
                f"scopes holds {_shown(scope)}; each begins with a namespace, as in {known[0]}/orders; "
                f"there are {', '.join(known)}"
            )
    if not _ID.fullmatch(client_id):
        raise table.wrong(f"client_id is {_shown(client_id)}; {_ID_RULE}")
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise table.wrong("client_secret has to be text of printable ASCII, because it is sent as a header")
    try:
        roles = tuple(parse_role(name) for name in names)
    except ValueError as error:
        raise table.wrong(f"roles: {error}") from error
    return Identity(client_id, secret, roles, tuple(scopes))


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SandboxConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise SandboxConfigError(f"{path} is not TOML: {error}") from error


def _namespace(table: TomlTable) -> NamespaceSpec:
    name = table.text("name")
    table = table.called(f"namespace '{name}'")
    if not _NAME.fullmatch(name):
        raise table.wrong("the name may have up to 50 letters, digits and hyphens, and begins with a letter")
    with table.complaining():
        spec = NamespaceSpec(
            name,
            queues=tuple(_queue(each) for each in table.named("queues", "queue")),
            topics=tuple(_topic(each) for each in table.named("topics", "topic")),
            tier=table.choice("tier", Tier, Tier.STANDARD),
            port=table.integer("port", 0),
            address=table.text("address", ""),
            host=table.text("host", ""),
            standard_ports=table.flag("standard_ports") if "standard_ports" in table else False,
            region=table.text("region", NamespaceSpec(name).region),
            rules=_keys(table),
            pings=table.choice("pings", Pings, Pings.DROPPED),
            expiry=table.choice("expiry", Expiry, Expiry.ON_TIME),
            credits_per_second=table.integer("credits_per_second") if "credits_per_second" in table else None,
            behaves=_behavior(table),
            faults=tuple(_fault(each) for each in table.tables("faults")),
        )
    table.end()
    if not 0 <= spec.port <= _LAST_PORT:
        raise table.wrong(f"port is {spec.port}; allowed is 0, for any that is free, to {_LAST_PORT}")
    _check_address(table, spec)
    with table.complaining():
        filled = BrokerNamespace(name, clock=lambda: 0.0, tier=spec.tier)
        spec.fill(filled)
        spec.break_in(FaultBoard(name, filled.paths))
    return spec


def _check_address(table: TomlTable, spec: NamespaceSpec) -> None:
    """Raise for an address that nothing can listen on, or a name that no client can look up."""
    if spec.port and spec.standard_ports:
        raise table.wrong(f"standard_ports are {', '.join(map(str, spec.ports))}; leave port out")
    try:
        ip_address(spec.address or HOST)
    except ValueError as error:
        raise table.wrong(f"address is {_shown(spec.address)}; it has to be an IP address of this machine") from error
    if len(spec.host_name) > _LONGEST_HOST or not _HOST.fullmatch(spec.host_name):
        raise table.wrong(f'host is {_shown(spec.host)}; it has to be a host name, as in "{spec.name}.{DOMAIN}"')


def _behavior(table: TomlTable) -> Behavior:
    given = table.tables("behaves")
    if len(given) > 1:
        raise table.wrong("behaves is a list; it has to be one table of names and true or false")
    names = [each.name for each in fields(Behavior)]
    for each in given:
        chosen = {name: each.flag(name) for name in names if name in each}
        each.end(names)
        return Behavior(**chosen)
    return AS_SEEN


def _fault(table: TomlTable) -> Fault:
    values = table.whole(FAULT_FIELDS)
    with table.complaining():
        return read_fault(values)


def _queue(table: TomlTable) -> QueueSpec:
    path, keys = table.text("name"), _keys(table)
    return QueueSpec(path, _settings(table, xml.QUEUE, authorization_rules=keys))


def _topic(table: TomlTable) -> TopicSpec:
    path, keys = table.text("name"), _keys(table)
    subscriptions = tuple(_subscription(each) for each in table.named("subscriptions", "subscription"))
    return TopicSpec(path, subscriptions, _settings(table, xml.TOPIC, authorization_rules=keys))


def _subscription(table: TomlTable) -> SubscriptionSpec:
    name, has_rules = table.text("name"), "rules" in table
    rules = tuple(_rule(each) for each in table.named("rules", "rule"))
    settings = _settings(table, xml.SUBSCRIPTION)
    return SubscriptionSpec(name, settings, rules) if has_rules else SubscriptionSpec(name, settings)


def _settings(table: TomlTable, kind: Kind, **more: Any) -> Any:
    """Return the remaining values of the table as settings of this kind. Their names are the XML's in snake case."""
    settings = [part for part in kind.parts if isinstance(part, xml.Setting)]
    parts = {re.sub(r"\B[A-Z]", r"_\g<0>", part.element).lower(): part for part in settings}
    values = {part.field: _READERS[part.codec](table, name) for name, part in parts.items() if name in table}
    table.end(parts)
    with table.complaining({part.field: name for name, part in parts.items()}):
        return kind.settings(**values, **more)


def _keys(table: TomlTable) -> tuple[AuthorizationRule, ...]:
    return tuple(_key(each) for each in table.named("keys", "key"))


def _key(table: TomlTable) -> AuthorizationRule:
    name, rights = table.text("name"), table.choices("rights", Right)
    primary, secondary = table.text("primary_key"), table.text("secondary_key", new_key())
    table.end()
    if PUBLIC_KEY in (primary, secondary):
        raise table.wrong(f"{PUBLIC_KEY} is the emulator's public key; choose another, or start with --emulator")
    with table.complaining():
        return AuthorizationRule(name=name, rights=frozenset(rights), primary_key=primary, secondary_key=secondary)


def _rule(table: TomlTable) -> Rule:
    name, parameters = table.text("name"), table.scalars("parameters")
    sql, action = table.text("sql", ""), table.text("action", "")
    correlation = [_correlation(each) for each in table.tables("correlation")]
    table.end()
    if sql and correlation:
        raise table.wrong("it filters by sql and by correlation; leave one of them out")
    with table.complaining():
        chosen: Filter = SqlFilter(sql, parameters) if sql else correlation[0] if correlation else TrueFilter()
        return Rule(name=name, filter=chosen, action=SqlAction(action, parameters) if action else None)


def _correlation(table: TomlTable) -> CorrelationFilter:
    wanted = {name: table.text(name) for name in CORRELATION_FIELDS if name in table}
    properties = table.scalars("properties")
    table.end(CORRELATION_FIELDS)
    with table.complaining():
        return CorrelationFilter(**wanted, properties=properties)


_READERS: Final[Mapping[xml.Codec, Callable[[TomlTable, str], Any]]] = {
    xml.BOOL: TomlTable.flag,
    xml.INT: TomlTable.integer,
    xml.TEXT: TomlTable.text,
    xml.FORWARD: TomlTable.text,
    xml.DURATION: TomlTable.duration,
    xml.SPAN: TomlTable.duration,
    xml.STATUS: lambda table, name: table.choice(name, EntityStatus),
}
