"""pairing.toml -> frozen values.

Every key is a row of PAIRING_KEYS or NAMESPACE_KEYS: its name and its reader. An unusable value raises
ConfigurationError with problem, place (file, table, key) and remedy. Secrets come from the environment or a file, never
from pairing.toml itself, unless they only open a sandbox on this machine. A running engine may read a file again; the
environment of a process never changes.

Not here: the meaning of the options (core.model.policy) and the clients (engine.clients.client_factory).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from paired_servicebus.connection_string import host_of, is_emulated, is_loopback, parts_of
from paired_servicebus.core.errors import ConfigurationError, ConfigurationMissingError, UnreadableError
from paired_servicebus.core.model.policy import PLAIN, RANGES, WHOLE, WORDS, Policy
from paired_servicebus.core.text.masking import shown
from paired_servicebus.core.text.untrusted_text import parse_toml, repeated
from paired_servicebus.ownership import foreign_access
from paired_servicebus.secret import Secret
from paired_servicebus.sections.fleet_options import FLEET_KEYS, Fleet
from paired_servicebus.sections.gateway_options import GATEWAY_KEYS, GATEWAY_POLICY, GatewayOptions, gateway_options
from paired_servicebus.settings import (
    ListenAddress,
    Reader,
    SettingLocation,
    as_it_is,
    is_file,
    one_of,
    read_address,
    read_arm_url,
    read_command,
    read_connection_string,
    read_duration,
    read_endpoint,
    read_entities,
    read_file,
    read_flag,
    read_host,
    read_megabytes,
    read_name,
    read_proxy,
    read_secret,
    read_text,
)
from paired_servicebus.user_folders import user_folder

# What an engine shows its consoles, as pairing.toml's [console] sets it.

SHOWN: Final = "shown"
HIDDEN: Final = "hidden"

CONSOLE_KEYS: Final[dict[str, Reader]] = {"bodies": one_of(SHOWN, HIDDEN)}
"""The keys of [console], with their readers. bodies: whether consoles get the bodies of parked messages."""


FILE_NAME: Final = "pairing.toml"
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a pairing.toml: those of the longest list of entities."""

CredentialKind = Literal["default", "managed", "cli", "client-secret"]
Management = Literal["atom", "arm"]
Transport = Literal["amqp", "websocket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """One namespace and how to get in: by connection string, or by host and identity."""

    host: str
    """Host, with ":port" where the connection string has one."""
    connection_string: Secret | None = None
    credential: CredentialKind = "default"
    """Which identity, where there is no connection string, and for ARM."""
    tenant: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    authority: str | None = None
    """The host that issues tokens; None: AZURE_AUTHORITY_HOST, else the public cloud's."""
    name: str | None = None
    """The name in backlog queues' names; None: the namespace's own."""
    ca_file: Path | None = None
    """Certificate authorities to trust: a sandbox's, or a private one."""
    transport: Transport = "amqp"
    proxy: Secret | None = None
    """URL; it may carry a password."""
    custom_endpoint: str | None = None
    """Where messaging connects to in place of `host`: a gateway's or private link's address, `sb://HOST:PORT`."""
    management: Management = "atom"
    subscription: str | None = None
    resource_group: str | None = None
    arm_url: str | None = None
    """Azure Resource Manager; None: the one of the cloud that `authority` belongs to."""

    @property
    def emulated(self) -> bool:
        """Return whether messaging is plain AMQP to a sandbox or emulator."""
        return self.connection_string is not None and is_emulated(parts_of(self.connection_string.reveal()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingSettings:
    """A pairing.toml but for its namespaces: what an operator's shell can read, which lacks the engine's secrets."""

    path: Path
    name: str
    environment: str = ""
    read_only: bool = False
    policy: Policy
    entities: tuple[str, ...] = ()
    journal_mb: int = 4096
    """Of the journal's files so much is kept, the newest."""
    require_reason: bool = False
    """Whether an operator's act needs a reason."""
    metrics: ListenAddress | None = None
    """Where Prometheus may ask; None: nowhere."""
    log: str = "text"
    """The form of the engine's log: "text", or "json" with one object a line."""
    on_change: tuple[str, ...] = ()
    """A command for the engine to run when a person should hear of something, and its arguments; empty: none."""
    control_group: str = ""
    """A group of this machine whose members may watch and command the engine; empty: only its own user."""
    probe: tuple[str, ...] = ()
    """Those of the entities that are probed while nothing is sent to them; none by default, since it is billed."""
    gateway: GatewayOptions | None = None
    """Where clients of any language connect; None: nowhere."""
    hides_bodies: bool = False
    """Whether consoles get no message's body."""
    expected: tuple[str, ...] = ()
    """The names of the pairing's engines, as [fleet] expect has them; empty: it names none."""
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """Warnings about the file, which is used nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingConfig(PairingSettings):
    """A pairing.toml, read and checked, with the secrets that it names."""

    primary: NamespaceConfig
    secondary: NamespaceConfig
    fleet: Fleet | None = None
    """The engine's part in the fleet; None: it takes none."""


def find_config(given: Path | None = None) -> Path:
    """Find pairing.toml: as given, in this folder, or in the user's configuration folder.

    A file that is not given is used only if no other user can change it: it may run commands, and names where
    messages and tokens go.

    Raises:
        ConfigurationMissingError: in none of these places; they are named.
        ConfigurationError: the given path is not a file, or another user can change the file that was found.
    """
    if given is not None:
        if is_file(given):
            return given.absolute()
        raise ConfigurationError(f"{given} is not a file: --config names a pairing.toml")
    places = (Path.cwd() / FILE_NAME, user_folder("XDG_CONFIG_HOME", ".config") / "paired" / FILE_NAME)
    for place in places:
        if is_file(place):
            _refuse_foreign(place)
            return place
    looked = " and ".join(str(place) for place in places)
    raise ConfigurationMissingError(
        f"there is no pairing.toml: looked for {looked}; write one, or name it with --config"
    )


def _refuse_foreign(path: Path) -> None:
    for place in dict.fromkeys((path, path.parent, path.resolve().parent)):
        how = foreign_access(place)
        if how:
            what = "it" if place == path else f"its folder {place}"
            raise ConfigurationError(
                f"{path} is not used, since {what} {how} and a pairing.toml can run commands: "
                f"let only its user change file and folder (chmod go-w), or name it with --config {path}"
            )


def refuse_foreign_command(config: PairingConfig) -> None:
    """Refuse `on_change` from a file that another user can change.

    Only the engine that runs the command needs this. Readers of other settings may be another user, such as a Spark
    executor.

    Raises:
        ConfigurationError: another user can change the file.
    """
    if not config.on_change:
        return
    try:
        how = foreign_access(config.path)
    except OSError as error:
        raise ConfigurationError(f"{config.path} cannot be looked at: {error.strerror}") from error
    if how:
        raise ConfigurationError(
            f"{config.path}: [pairing] on_change is a command, and the file {how}: "
            f"let only its user change it (chown, chmod go-w), or leave on_change out"
        )


def load_config(path: Path, *, environ: Mapping[str, str] = os.environ) -> PairingConfig:
    """Read a pairing.toml, and the secrets that it names.

    Raises:
        ConfigurationError: with problem, place and remedy.
    """
    document, places = _open(path, environ)
    found = _settings(document, places)
    values = {each.name: getattr(found, each.name) for each in fields(found)}
    known = len(places(_FLEET).remarks)
    values |= {name: _namespace(places(name), document) for name in ("primary", "secondary")}
    values["fleet"] = _fleet(places(_FLEET), document)
    return PairingConfig(**values | {"remarks": (*found.remarks, *places(_FLEET).remarks[known:])})


def load_settings(path: Path) -> PairingSettings:
    """Read a pairing.toml without its namespaces: no secret is looked for. Raises ConfigurationError."""
    return _settings(*_open(path, {}))


def _open(path: Path, environ: Mapping[str, str]) -> tuple[dict[str, Any], Callable[[str], SettingLocation]]:
    """Return the file's sections, and the location of each, which share their remarks."""
    document, remarks = _parse(path), list[str]()
    unknown = next((table for table in document if table not in SECTIONS), None)
    if unknown is not None:
        raise ConfigurationError(f"{path}: [{repeated(unknown)}] is no section{_nearest(unknown, SECTIONS)}")
    return document, lambda table: SettingLocation(path, table, "", environ, remarks)


def _settings(document: dict[str, Any], places: Callable[[str], SettingLocation]) -> PairingSettings:
    place = places("pairing")
    path, pairing = place.path, _read_table(place, document)
    if "name" not in pairing:
        raise ConfigurationError(
            f'{path}: [pairing] name is missing; it calls the engine something, as in name = "orders"'
        )
    gateway = _gateway(places(_GATEWAY), document)
    defaults = {"enable_syphon": True, **(GATEWAY_POLICY if gateway is not None else {})}
    chosen = defaults | {key: pairing[key] for key in _POLICY if key in pairing}
    chosen["destinations"] = _destinations(path, pairing)
    try:
        policy = Policy(**cast("dict[str, Any]", chosen))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: [pairing] {error}") from error
    hides_bodies = _hides_bodies(places(_CONSOLE), document)
    remarks = (*place.remarks, *(f"{path}: [pairing] {text}" for text in _remarks(policy) if gateway is None))
    plain = {each.name: pairing[each.name] for each in fields(PairingSettings) if each.name in pairing}
    derived = {"path": path, "policy": policy, "probe": _probe(path, pairing), "remarks": remarks}
    expected = _expected(document)
    return PairingSettings(**plain | derived, gateway=gateway, hides_bodies=hides_bodies, expected=expected)


def _remarks(policy: Policy) -> tuple[str, ...]:
    """Return remarks on the policy of an engine without a gateway."""
    unused = "record_received has no effect: this engine has no receivers without a [gateway]"
    return (*policy.remarks, *([unused] if policy.record_received else []))


def _probe(path: Path, pairing: Mapping[str, Any]) -> tuple[str, ...]:
    probe: tuple[str, ...] = pairing.get("probe", ())
    listed = {entity.casefold() for entity in pairing.get("entities", ())}
    strange = [entity for entity in probe if entity.casefold() not in listed]
    if strange:
        raise ConfigurationError(f"{path}: [pairing] probe names {strange[0]!r}, which entities does not list")
    return probe


def _destinations(path: Path, pairing: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the entities that the syphon delivers to; None: all that its key reaches."""
    if pairing.get("destinations", "any") == "any":
        return None
    entities: tuple[str, ...] = pairing.get("entities", ())
    if not entities:
        raise ConfigurationError(f'{path}: [pairing] destinations = "entities" needs entities to list some')
    return entities


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path} has more than {MAX_FILE_BYTES:,} bytes, and is no pairing.toml")
        return parse_toml(data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnreadableError as error:
        raise ConfigurationError(f"{path} {error}") from error


def _policy_reader(key: str) -> Reader:
    if key in WORDS:
        return one_of(*WORDS[key])
    if key == "destinations":
        return one_of("any", "entities")
    return read_duration if key in RANGES and key not in WHOLE and key not in PLAIN else as_it_is


_POLICY: Final = tuple(field.name for field in fields(Policy))
PAIRING_KEYS: Final[dict[str, Reader]] = {
    "name": read_name,
    "environment": read_text,
    "read_only": read_flag,
    "require_reason": read_flag,
    "journal_mb": read_megabytes,
    "entities": read_entities,
    "probe": read_entities,
    "metrics": read_address,
    "log": one_of("text", "json"),
    "on_change": read_command,
    "control_group": read_text,
    **{key: _policy_reader(key) for key in _POLICY},
}
NAMESPACE_KEYS: Final[dict[str, Reader]] = {
    "connection_string": read_connection_string,
    "namespace": read_host,
    "credential": one_of("default", "managed", "cli", "client-secret"),
    "tenant": read_text,
    "client_id": read_text,
    "client_secret": read_secret,
    "authority": read_host,
    "name": read_name,
    "ca_file": read_file,
    "transport": one_of("amqp", "websocket"),
    "proxy": read_proxy,
    "custom_endpoint": read_endpoint,
    "management": one_of("atom", "arm"),
    "subscription": read_text,
    "resource_group": read_text,
    "arm_url": read_arm_url,
}
_TABLES: Final = ("pairing", "primary", "secondary")
_FLEET: Final = "fleet"
_GATEWAY: Final = "gateway"
_CONSOLE: Final = "console"
"""The tables that a pairing may have besides."""
SECTIONS: Final[dict[str, dict[str, Reader]]] = {
    "pairing": PAIRING_KEYS,
    "primary": NAMESPACE_KEYS,
    "secondary": NAMESPACE_KEYS,
    _FLEET: FLEET_KEYS,
    _GATEWAY: GATEWAY_KEYS,
    _CONSOLE: CONSOLE_KEYS,
}
"""Every section with its keys and their readers: all that a pairing.toml may have."""


# -- tables --------------------------------------------------------------------------------------------------------


def _read_table(place: SettingLocation, document: dict[str, Any]) -> dict[str, Any]:
    path, table = place.path, place.table
    values, keys = document.get(table), SECTIONS[table]
    if values is None:
        raise ConfigurationError(f"{path}: the section [{table}] is missing; a pairing has {', '.join(_TABLES)}")
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path}: {table} is {shown(values)}; it is a section, [{table}]")
    for key in values:
        if key not in keys:
            raise ConfigurationError(f"{path}: [{table}] {repeated(key)} is no setting{_nearest(key, keys)}")
    return {key: keys[key](replace(place, key=key), value) for key, value in values.items()}


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _namespace(place: SettingLocation, document: dict[str, Any]) -> NamespaceConfig:
    path, table = place.path, place.table
    values = _read_table(place, document)
    secret, host = values.get("connection_string"), values.pop("namespace", None)
    if (secret is None) == (host is None):
        raise ConfigurationError(f"{path}: [{table}] has either a connection_string or a namespace, and not both")
    if secret is not None:
        host = host_of(parts_of(secret.reveal()))
    _check_company(path, table, values)
    _check_plain(path, table, values)
    if values.get("credential") == "client-secret":
        values |= _client_secret(path, table, values, place.environ)
    return NamespaceConfig(host=host, **values)


def _fleet(place: SettingLocation, document: dict[str, Any]) -> Fleet | None:
    return Fleet(**_read_table(place, document)) if _FLEET in document else None


def _expected(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the engines that [fleet] expect names; whoever takes part in the fleet checks the section."""
    fleet = document.get(_FLEET)
    names = fleet.get("expect") if isinstance(fleet, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _hides_bodies(place: SettingLocation, document: dict[str, Any]) -> bool:
    """Return whether consoles get no message's body; they do without the section."""
    return _CONSOLE in document and _read_table(place, document).get("bodies") == HIDDEN


def _gateway(place: SettingLocation, document: dict[str, Any]) -> GatewayOptions | None:
    if _GATEWAY not in document:
        return None
    values = _read_table(place, document)
    try:
        return gateway_options(values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place.path}: [{_GATEWAY}] {error}") from error


_IDENTITY: Final = ("credential", "tenant", "client_id", "client_secret", "authority")
_COMPANY: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("tenant", "credential", ("cli", "client-secret")),
    ("client_id", "credential", ("default", "managed", "client-secret")),
    ("client_secret", "credential", ("client-secret",)),
    ("authority", "credential", ("default", "client-secret")),
    ("subscription", "management", ("arm",)),
    ("resource_group", "management", ("arm",)),
    ("arm_url", "management", ("arm",)),
)
"""A setting, and the value of another that it requires."""


def _check_company(path: Path, table: str, values: Mapping[str, Any]) -> None:
    """Refuse settings that have no effect beside the others."""
    by_arm = values.get("management") == "arm"
    lone = next((key for key in _IDENTITY if key in values), None)
    if "connection_string" in values and lone is not None and not by_arm:
        raise ConfigurationError(
            f'{path}: [{table}] {lone} goes with namespace or management = "arm", not with a connection_string'
        )
    if by_arm and not (values.get("subscription") and values.get("resource_group")):
        raise ConfigurationError(f'{path}: [{table}] management = "arm" needs subscription and resource_group')
    for key, other, words in _COMPANY:
        is_ = values.get(other, "atom" if other == "management" else "default")
        if key in values and is_ not in words:
            raise ConfigurationError(f"{path}: [{table}] {key} goes with {other} = {_either(words)}, not {is_}")


def _check_plain(path: Path, table: str, values: Mapping[str, Any]) -> None:
    """Refuse plain AMQP, which an emulator uses, beyond this machine."""
    secret, endpoint = values.get("connection_string"), values.get("custom_endpoint")
    is_plain = values.get("transport") != "websocket" and "proxy" not in values
    if secret is None or endpoint is None or not is_plain or not is_emulated(parts_of(secret.reveal())):
        return
    if not is_loopback({"endpoint": endpoint}):
        raise ConfigurationError(
            f"{path}: [{table}] custom_endpoint is {endpoint}, which is not this machine, and "
            "UseDevelopmentEmulator=true means plain AMQP: leave that part of the connection string out, and name the "
            "sandbox's ca_file"
        )


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _client_secret(path: Path, table: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Refuse a client secret without its companions, which may be in the environment."""
    found: dict[str, Any] = {}
    for key, variable in (("tenant", "TENANT_ID"), ("client_id", "CLIENT_ID"), ("client_secret", "CLIENT_SECRET")):
        if key in values:
            continue
        text = environ.get(f"AZURE_{variable}")
        if not text:
            raise ConfigurationError(
                f'{path}: [{table}] credential = "client-secret" needs {key}, here or as AZURE_{variable}'
            )
        found[key] = Secret(text) if key == "client_secret" else text
    return found
