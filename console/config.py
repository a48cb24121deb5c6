"""pairing.toml -> frozen values.

Every key is a row of PAIRING_KEYS or NAMESPACE_KEYS: its name and how its value is read. Whatever cannot be used
raises ConfigurationError with what, where (file, table, key) and what would be right. Secrets come from the
environment or a file, never from pairing.toml itself, unless they open nothing but a sandbox on this machine.

Not here: what the options mean (console.core.options) and clients made from them (console.engine.connecting).
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import SplitResult, urlsplit

from console.core.errors import ConfigurationError
from console.core.options import RANGES, WHOLE, WORDS, Policy
from console.secret import Secret, masked

FILE_NAME: Final = "pairing.toml"

CredentialKind = Literal["default", "managed", "cli", "client-secret"]
Management = Literal["atom", "arm"]
Transport = Literal["amqp", "websocket"]

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """One namespace and how to get in: by connection string, or by host and identity."""

    host: str
    """Host, with ":port" where the connection string has one."""
    connection_string: Secret | None = None
    credential: CredentialKind = "default"
    """Which identity, where there is no connection string."""
    name: str | None = None
    """What backlog queues are named after; None: as the namespace tells it."""
    ca_file: Path | None = None
    """Certificate authorities to trust: a sandbox's, or a private one."""
    transport: Transport = "amqp"
    proxy: Secret | None = None
    """URL; it may carry a password."""
    management: Management = "atom"
    subscription: str | None = None
    resource_group: str | None = None

    @property
    def emulated(self) -> bool:
        """Whether messaging is plain AMQP to a sandbox or emulator."""
        return self.connection_string is not None and _is_emulated(_parts(self.connection_string.reveal()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingConfig:
    """A pairing.toml, read and checked."""

    path: Path
    name: str
    environment: str
    read_only: bool
    policy: Policy
    entities: tuple[str, ...]
    primary: NamespaceConfig
    secondary: NamespaceConfig


def find_config(given: Path | None = None) -> Path:
    """Where pairing.toml is: as given, in this folder, or in the user's configuration folder.

    Raises:
        ConfigurationError: in none of these places; they are named.
    """
    if given is not None:
        if given.is_file():
            return given.absolute()
        raise ConfigurationError(f"{given} is not a file: --config names a pairing.toml")
    places = (Path.cwd() / FILE_NAME, _config_home() / "paired" / FILE_NAME)
    for place in places:
        if place.is_file():
            return place
    looked = " and ".join(str(place) for place in places)
    raise ConfigurationError(f"there is no pairing.toml: looked for {looked}; write one, or name it with --config")


def load_config(path: Path, *, environ: Mapping[str, str] = os.environ) -> PairingConfig:
    """Reads a pairing.toml, and the secrets that it points to.

    Raises:
        ConfigurationError: what cannot be used, where it stands, what would be right.
    """
    document = _parse(path)
    unknown = [key for key in document if key not in _TABLES]
    if unknown:
        raise ConfigurationError(f"{path}: [{unknown[0]}] is no section{_nearest(unknown[0], _TABLES)}")
    pairing = _read_table(path, document, "pairing", PAIRING_KEYS, environ)
    if "name" not in pairing:
        raise ConfigurationError(
            f'{path}: [pairing] name is missing; it calls the engine something, as in name = "orders"'
        )
    chosen = {"enable_syphon": True} | {key: pairing[key] for key in _POLICY if key in pairing}
    try:
        policy = Policy(**cast("dict[str, Any]", chosen))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: [pairing] {error}") from error
    return PairingConfig(
        path=path,
        name=pairing["name"],
        environment=pairing.get("environment", ""),
        read_only=pairing.get("read_only", False),
        policy=policy,
        entities=pairing.get("entities", ()),
        primary=_namespace(path, document, "primary", environ),
        secondary=_namespace(path, document, "secondary", environ),
    )


def _config_home() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(home) if Path(home).is_absolute() else Path.home() / ".config"


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 (byte {error.start}): TOML files are") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        lines = text.splitlines() or [""]
        end = f"at line {len(lines)}, column {len(lines[-1]) + 1}"
        raise ConfigurationError(f"{path} is not TOML: {str(error).replace('at end of document', end)}") from error


# -- one value ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands, and what reading it may need."""

    path: Path
    table: str
    key: str
    environ: Mapping[str, str]

    def error(self, text: str) -> ConfigurationError:
        return ConfigurationError(f"{self.path}: [{self.table}] {self.key} {text}")


def _shown(value: object) -> str:
    """A value as a message may show it: somebody may have put a secret in the wrong place."""
    text = masked(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


_Reader = Callable[[_Place, object], object]


def _text(place: _Place, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise place.error(f"is {_shown(value)}; it is a text that is not empty")
    return value


def _flag(place: _Place, value: object) -> bool:
    if not isinstance(value, bool):
        raise place.error(f"is {_shown(value)}; it is true or false")
    return value


def _as_it_is(place: _Place, value: object) -> object:
    return value  # Policy checks it and knows better what to say


def _duration(place: _Place, value: object) -> object:
    """Seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise place.error(
            f'is {_shown(value)}; it is a time such as "30s", "1m", "500ms", "2h", or a number of seconds'
        )
    return float(match[1]) * _UNITS[match[2]]


def _one_of(*words: str) -> _Reader:
    def read(place: _Place, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise place.error(f"is {_shown(value)}; it is one of {', '.join(words)}")
        return value

    return read


def _name(place: _Place, value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise place.error(f"is {_shown(value)}; it has 1 to 64 letters, digits, dots, dashes or underscores")
    return value


def _host(place: _Place, value: object) -> str:
    if not isinstance(value, str) or not _HOST.fullmatch(value):
        raise place.error(f'is {_shown(value)}; it is a host such as "contoso.servicebus.windows.net"')
    return value


def _entities(place: _Place, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(path, str) and path.strip("/ ") for path in value):
        raise place.error(f'is {_shown(value)}; it lists queues and topics, as in ["orders", "audit"]')
    paths = tuple(cast("list[str]", value))
    if len({path.casefold() for path in paths}) != len(paths):
        raise place.error("names an entity twice; paths are compared without case")
    return paths


def _proxy(place: _Place, value: object) -> Secret:
    url = _split(_text(place, value))
    if url is None or url.scheme not in ("http", "https") or not url.hostname or not url.port:
        raise place.error('is no proxy; it is a URL with a port, such as "http://proxy.example.com:3128"')
    return Secret(url.geturl())


def _file(place: _Place, value: object) -> Path:
    file = place.path.parent / _text(place, value)
    if not file.is_file():
        raise place.error(f"names {file}, which is not a file")
    return file


def _secret(place: _Place, value: object) -> Secret:
    match value:
        case {"env": str(name), **rest} if not rest:
            found = place.environ.get(name)
            if not found:
                raise place.error(f"is to come from the environment variable {name}, which is not set: export {name}")
            return Secret(found)
        case {"file": str(name), **rest} if not rest:
            try:
                return Secret((place.path.parent / name).read_text().strip())
            except (OSError, UnicodeDecodeError) as error:
                raise place.error(f"is to come from the file {name}, which cannot be read: {error}") from error
        case str() if _is_emulated(_parts(value)) and _is_loopback(_parts(value)):
            return Secret(value)
    raise place.error('is a secret and may not stand in this file; say { env = "NAME" } or { file = "PATH" }')


def _policy_reader(key: str) -> _Reader:
    return _duration if key in RANGES and key not in WHOLE else _one_of(*WORDS[key]) if key in WORDS else _as_it_is


_POLICY: Final = tuple(field.name for field in fields(Policy))
PAIRING_KEYS: Final[dict[str, _Reader]] = {
    "name": _name,
    "environment": _text,
    "read_only": _flag,
    "entities": _entities,
    **{key: _policy_reader(key) for key in _POLICY},
}
NAMESPACE_KEYS: Final[dict[str, _Reader]] = {
    "connection_string": _secret,
    "namespace": _host,
    "credential": _one_of("default", "managed", "cli", "client-secret"),
    "name": _name,
    "ca_file": _file,
    "transport": _one_of("amqp", "websocket"),
    "proxy": _proxy,
    "management": _one_of("atom", "arm"),
    "subscription": _text,
    "resource_group": _text,
}
_TABLES: Final = ("pairing", "primary", "secondary")


# -- tables --------------------------------------------------------------------------------------------------------


def _read_table(
    path: Path, document: dict[str, Any], table: str, keys: dict[str, _Reader], environ: Mapping[str, str]
) -> dict[str, Any]:
    values = document.get(table)
    if values is None:
        raise ConfigurationError(f"{path}: the section [{table}] is missing; a pairing has {', '.join(_TABLES)}")
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path}: {table} is {values!r}; it is a section, [{table}]")
    for key in values:
        if key not in keys:
            raise ConfigurationError(f"{path}: [{table}] {key} is no setting{_nearest(key, keys)}")
    return {key: keys[key](_Place(path, table, key, environ), value) for key, value in values.items()}


def _nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _namespace(path: Path, document: dict[str, Any], table: str, environ: Mapping[str, str]) -> NamespaceConfig:
    values = _read_table(path, document, table, NAMESPACE_KEYS, environ)
    secret, host = values.get("connection_string"), values.pop("namespace", None)
    if (secret is None) == (host is None):
        raise ConfigurationError(f"{path}: [{table}] has either a connection_string or a namespace, and not both")
    if secret is not None:
        place = _Place(path, table, "connection_string", environ)
        if "credential" in values:
            raise ConfigurationError(f"{path}: [{table}] credential goes with namespace, not with a connection_string")
        host = _check_connection_string(place, _parts(secret.reveal()))
    if values.get("management") == "arm" and not (values.get("subscription") and values.get("resource_group")):
        raise ConfigurationError(f'{path}: [{table}] management = "arm" needs subscription and resource_group')
    return NamespaceConfig(host=host, **values)


# -- connection strings; no message here quotes a value of one -------------------------------------------------------


def _parts(connection_string: str) -> dict[str, str]:
    """Keys in lower case. What has no "=" is left out, and missed by the check."""
    pairs = (part.partition("=") for part in connection_string.split(";") if "=" in part)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _check_connection_string(place: _Place, parts: dict[str, str]) -> str:
    """The host, with its port if it has one."""
    endpoint = _split(parts.get("endpoint", ""))
    if endpoint is None or endpoint.scheme != "sb" or not endpoint.hostname:
        raise place.error("has no Endpoint=sb://HOST/: copy the namespace's connection string whole")
    if not parts.get("sharedaccesssignature") and not (
        parts.get("sharedaccesskeyname") and parts.get("sharedaccesskey")
    ):
        raise place.error(
            "has no SharedAccessKeyName and SharedAccessKey: copy the namespace's connection string whole"
        )
    if "entitypath" in parts:
        raise place.error("is one entity's (EntityPath); a pairing needs the namespace's")
    host = f"[{endpoint.hostname}]" if ":" in endpoint.hostname else endpoint.hostname
    return host if endpoint.port is None else f"{host}:{endpoint.port}"


def _is_emulated(parts: dict[str, str]) -> bool:
    return parts.get("usedevelopmentemulator") == "true"


def _is_loopback(parts: dict[str, str]) -> bool:
    endpoint = _split(parts.get("endpoint", ""))
    host = (endpoint.hostname if endpoint else None) or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult | None:
    """The URL's parts; None if its host or port cannot be one."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at only here
    except ValueError:
        return None
    return parts
