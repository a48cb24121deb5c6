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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
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

Choice = TypeVar("Choice", bound=str)
Value = TypeVar("Value")
Scalar = str | int | float | bool

_SHORT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATIONS: Final = 'a duration, as in "30s", "5m", "7d" or "PT30S"'
_ISO_DURATIONS: Final = 'a duration, as in "PT30S", "PT1M" or "PT1H"'
_MISSING: Final = object()


class FileValue:
    """A value of a file at `place`, called `name` in sentences about it. Every method raises SandboxConfigError."""

    def __init__(self, value: object, place: str, name: str = "it") -> None:
        self._value = value
        self._place = place
        self._name = name

    def wrong(self, sentence: str) -> SandboxConfigError:
        """Return an error at this place."""
        return SandboxConfigError(f"{self._place}: {sentence}")

    def misplaced(self, right: str) -> SandboxConfigError:
        """Return an error for a value that is not the right one."""
        return self.wrong(f"{self._name} is {shown(self._value)}; it has to be {right}")

    def of(self, kind: type[Value], right: str) -> Value:
        """Return the value if it is of this kind; `right` describes the kind."""
        if not isinstance(self._value, kind) or (isinstance(self._value, bool) and kind is int):
            raise self.misplaced(right)
        return self._value

    def text(self) -> str:
        return self.of(str, 'a string in quotes, as in "orders"')

    def integer(self) -> int:
        return self.of(int, "a whole number")

    def flag(self) -> bool:
        return self.of(bool, "true or false")

    def duration(self, *, also_short: bool = False) -> timedelta | None:
        """Return an ISO 8601 duration, or a short one such as `30s`, `5m`, `2h`, `7d`; None for unlimited."""
        right = _DURATIONS if also_short else _ISO_DURATIONS
        text = self.of(str, right)
        short = _SHORT.fullmatch(text.strip()) if also_short else None
        try:
            return timedelta(**{_UNITS[short[2]]: float(short[1])}) if short else read_duration(text)
        except (ValueError, OverflowError) as error:
            raise self.misplaced(right) from error

    def choice(self, allowed: Iterable[Choice]) -> Choice:
        """Return one of some strings, found without regard to case."""
        choices = tuple(allowed)
        for choice in choices:
            if isinstance(self._value, str) and self._value.lower() == choice.lower():
                return choice
        raise self.misplaced(f"one of {', '.join(choices)}")

    def items(self, right: str) -> list[FileValue]:
        """Return the items of a list; `right` describes the list."""
        return [FileValue(value, self._place, f"an item of {self._name}") for value in self.of(list, right)]

    def scalars(self) -> dict[str, Scalar]:
        """Return a table of strings, numbers and booleans."""
        values = self.of(dict, "a table of names and values")
        for key, value in values.items():
            if not isinstance(value, Scalar):
                raise self.below(key, value).misplaced("a string, a number, true or false")
        return values

    def below(self, name: str, value: object) -> FileValue:
        """Return a member of this value."""
        return FileValue(value, self._place, f"{self._name}.{name}")


def shown(value: object) -> str:
    """Return the value as written in the file, in short."""
    if value is _MISSING:
        return "missing"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the likely name, else all names, for a sentence about one that is unknown."""
    by_case = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_case, 1)
    return f"did you mean {by_case[near[0]]}?" if near else f"known are {', '.join(by_case.values())}"


class TomlTable:
    """A table at `place`. All methods raise SandboxConfigError."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> FileValue:
        """Return a value that has to be there."""
        return self.get(name, _MISSING)

    def get(self, name: str, default: object) -> FileValue:
        self._asked[name] = None
        return FileValue(self._values.get(name, default), self._place, name)

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

    def whole(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Return all values; only these names are allowed."""
        self.end(names)
        return self._values

    def tables(self, name: str) -> list[TomlTable]:
        """Return a list of tables (`[[name]]`), also for a single one; empty if there are none."""
        given = self.get(name, []).of(object, "a table, or a list of tables")
        items = given if isinstance(given, list) else [given]
        for item in items:
            if not isinstance(item, dict):
                raise self.wrong(f"{name} is or holds {shown(item)}; it has to be a table, or a list of tables")
        places = [name if len(items) == 1 else f"{name} {number}" for number in range(1, len(items) + 1)]
        return [TomlTable(item, f"{self._place}, {place}") for item, place in zip(items, places, strict=True)]

    def named(self, name: str, kind: str) -> list[TomlTable]:
        """Return the items of a list, each a name or a table with one."""
        found = []
        for number, item in enumerate(self.get(name, []).of(list, f"a list of names and tables, each a {kind}"), 1):
            if not isinstance(item, str | dict):
                raise self.wrong(f"{name} holds {shown(item)}; each {kind} has to be a name or a table with a name")
            values = {"name": item} if isinstance(item, str) else item
            place = f"{kind} '{values['name']}'" if isinstance(values.get("name"), str) else f"{kind} {number}"
            found.append(TomlTable(values, f"{self._place}, {place}"))
        return found

    def end(self, also: Iterable[str] = ()) -> None:
        """Raise for unconsumed values; `also` are allowed."""
        known = dict.fromkeys((*self._asked, *also))
        for name in self._values:
            if name not in known:
                raise self.wrong(f"there is nothing called {name} here; {nearest(name, sorted(known))}")


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
    tenant, activation_s = whole.get("tenant", TENANT).text(), whole.get("activation_s", 0).integer()
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
        raise whole.wrong(f"tenant is {shown(tenant)}; {_ID_RULE}")
    if not 0 <= activation_s <= _LONGEST_ACTIVATION:
        raise whole.wrong(f"activation_s is {activation_s}; allowed is 0 to {_LONGEST_ACTIVATION}")
    return SandboxSpec(specs, identities, tenant, activation_s)


def _identity(table: TomlTable, namespaces: Sequence[NamespaceSpec]) -> Identity:
    client_id, secret = table["client_id"].text(), table.get("client_secret", new_key()).text()
    names, scopes = (
        [item.text() for item in table.get(field, default).items('a list of strings, as in ["a", "b"]')]
        for field, default in (("roles", [AzureRole.OWNER]), ("scopes", []))
    )
    table.end()
    known = [spec.name.lower() for spec in namespaces]
    for scope in scopes:
        if scope.partition("/")[0].lower() not in known:
            raise table.wrong(
                f"scopes holds {shown(scope)}; each begins with a namespace, as in {known[0]}/orders; "
                f"there are {', '.join(known)}"
            )
    if not _ID.fullmatch(client_id):
        raise table.wrong(f"client_id is {shown(client_id)}; {_ID_RULE}")
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise table.wrong("client_secret has to be text of printable ASCII, because it is sent as a header")
    try:
        roles = tuple(parse_role(name) for name in names)
    except ValueError as error:
        raise table.wrong(f"roles: {error}") from error
    return Identity(client_id, secret, roles, tuple(scopes))


def _parse(path: Path) -> dict[str, Any]:
    import tomllib  # the emulator needs none

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SandboxConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise SandboxConfigError(f"{path} is not TOML: {error}") from error


def _namespace(table: TomlTable) -> NamespaceSpec:
    name = table["name"].text()
    table = table.called(f"namespace '{name}'")
    if not _NAME.fullmatch(name):
        raise table.wrong("the name may have up to 50 letters, digits and hyphens, and begins with a letter")
    with table.complaining():
        spec = NamespaceSpec(
            name,
            queues=tuple(_queue(each) for each in table.named("queues", "queue")),
            topics=tuple(_topic(each) for each in table.named("topics", "topic")),
            tier=table.get("tier", Tier.STANDARD).choice(Tier),
            port=table.get("port", 0).integer(),
            address=table.get("address", "").text(),
            host=table.get("host", "").text(),
            standard_ports=table["standard_ports"].flag() if "standard_ports" in table else False,
            region=table.get("region", NamespaceSpec(name).region).text(),
            rules=_keys(table),
            pings=table.get("pings", Pings.DROPPED).choice(Pings),
            expiry=table.get("expiry", Expiry.ON_TIME).choice(Expiry),
            credits_per_second=table["credits_per_second"].integer() if "credits_per_second" in table else None,
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
        raise table.wrong(f"address is {shown(spec.address)}; it has to be an IP address of this machine") from error
    if len(spec.host_name) > _LONGEST_HOST or not _HOST.fullmatch(spec.host_name):
        raise table.wrong(f'host is {shown(spec.host)}; it has to be a host name, as in "{spec.name}.{DOMAIN}"')


def _behavior(table: TomlTable) -> Behavior:
    given = table.tables("behaves")
    if len(given) > 1:
        raise table.wrong("behaves is a list; it has to be one table of names and true or false")
    names = [each.name for each in fields(Behavior)]
    for each in given:
        chosen = {name: each[name].flag() for name in names if name in each}
        each.end(names)
        return Behavior(**chosen)
    return AS_SEEN


def _fault(table: TomlTable) -> Fault:
    values = table.whole(FAULT_FIELDS)
    with table.complaining():
        return read_fault(values)


def _queue(table: TomlTable) -> QueueSpec:
    path, keys = table["name"].text(), _keys(table)
    return QueueSpec(path, _settings(table, xml.QUEUE, authorization_rules=keys))


def _topic(table: TomlTable) -> TopicSpec:
    path, keys = table["name"].text(), _keys(table)
    subscriptions = tuple(_subscription(each) for each in table.named("subscriptions", "subscription"))
    return TopicSpec(path, subscriptions, _settings(table, xml.TOPIC, authorization_rules=keys))


def _subscription(table: TomlTable) -> SubscriptionSpec:
    name, has_rules = table["name"].text(), "rules" in table
    rules = tuple(_rule(each) for each in table.named("rules", "rule"))
    settings = _settings(table, xml.SUBSCRIPTION)
    return SubscriptionSpec(name, settings, rules) if has_rules else SubscriptionSpec(name, settings)


def _settings(table: TomlTable, kind: Kind, **more: Any) -> Any:
    """Return the remaining values of the table as settings of this kind. Their names are the XML's in snake case."""
    settings = [part for part in kind.parts if isinstance(part, xml.Setting)]
    parts = {re.sub(r"\B[A-Z]", r"_\g<0>", part.element).lower(): part for part in settings}
    values = {part.field: _READERS[part.codec](table[name]) for name, part in parts.items() if name in table}
    table.end(parts)
    with table.complaining({part.field: name for name, part in parts.items()}):
        return kind.settings(**values, **more)


def _keys(table: TomlTable) -> tuple[AuthorizationRule, ...]:
    return tuple(_key(each) for each in table.named("keys", "key"))


def _key(table: TomlTable) -> AuthorizationRule:
    name, given = table["name"].text(), table["rights"].items(f"a list out of {', '.join(Right)}")
    rights = frozenset(each.choice(Right) for each in given)
    primary, secondary = table["primary_key"].text(), table.get("secondary_key", new_key()).text()
    table.end()
    if PUBLIC_KEY in (primary, secondary):
        raise table.wrong(f"{PUBLIC_KEY} is the emulator's public key; choose another, or start with --emulator")
    with table.complaining():
        return AuthorizationRule(name=name, rights=rights, primary_key=primary, secondary_key=secondary)


def _rule(table: TomlTable) -> Rule:
    name, parameters = table["name"].text(), table.get("parameters", {}).scalars()
    sql, action = table.get("sql", "").text(), table.get("action", "").text()
    correlation = [_correlation(each) for each in table.tables("correlation")]
    table.end()
    if sql and correlation:
        raise table.wrong("it filters by sql and by correlation; leave one of them out")
    with table.complaining():
        chosen: Filter = SqlFilter(sql, parameters) if sql else correlation[0] if correlation else TrueFilter()
        return Rule(name=name, filter=chosen, action=SqlAction(action, parameters) if action else None)


def _correlation(table: TomlTable) -> CorrelationFilter:
    wanted = {name: table[name].text() for name in CORRELATION_FIELDS if name in table}
    properties = table.get("properties", {}).scalars()
    table.end(CORRELATION_FIELDS)
    with table.complaining():
        return CorrelationFilter(**wanted, properties=properties)


_duration = partial(FileValue.duration, also_short=True)
_READERS: Final[Mapping[xml.Codec, Callable[[FileValue], Any]]] = {
    xml.BOOL: FileValue.flag,
    xml.INT: FileValue.integer,
    xml.TEXT: FileValue.text,
    xml.FORWARD: FileValue.text,
    xml.DURATION: _duration,
    xml.SPAN: _duration,
    xml.STATUS: lambda value: value.choice(EntityStatus),
}
