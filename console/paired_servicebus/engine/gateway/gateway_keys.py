"""The gateway's own keys: a file of mode 0600, and the judge of the tokens that clients sign with them.

Upstream everybody is the gateway, so rights are enforced here. A key opens the whole namespace or nothing; there is no
default key. Keys are compared in constant time, and no text here quotes one.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import re
import secrets
import socket
import stat
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from hmac import compare_digest
from math import inf
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError, PairedError, UnreadableError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.sections.gateway_options import KeyRule
from servicebus_amqp.access import PREFIX, EntityNames, Flaw, ProvenAccess, TokenError, audience_path, read_token
from servicebus_amqp.server.server_connection import DEFAULT_LIMITS, KeyLimits

KEY_BYTES: Final = 32
MAX_AUDIENCE: Final = 1024
OWNER_ONLY: Final = 0o600
IPV6: Final = 6
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY: Final = re.compile(rf"[A-Za-z0-9+/=]{{{KEY_BYTES},256}}")
FIRST_KEY: Final = "gateway"
MAX_KEYS: Final = 1000
MAX_FILE: Final = 1024 * 1024


class GatewayRight(StrEnum):
    """A right of a local key, by its name in connection strings' policies."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class LocalKey:
    """One key of the gateway. The name goes into the journal, the key nowhere."""

    name: str
    rights: frozenset[GatewayRight]
    key: str = field(repr=False)
    entities: tuple[str, ...] = ()
    """Names of the entities that it is for; `*` stands for any characters. Empty: all."""
    limits: KeyLimits = DEFAULT_LIMITS

    def access(self, path: str, expires_at: float) -> ProvenAccess:
        """Return what the key opens at a path and below it."""
        entities = EntityNames(self.entities) if self.entities else None
        return ProvenAccess(path, self.rights, expires_at, self.name, entities)


def new_key(
    name: str, rights: Iterable[GatewayRight], entities: Iterable[str] = (), limits: KeyLimits = DEFAULT_LIMITS
) -> LocalKey:
    """Return a key of fresh randomness."""
    text = b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")
    return LocalKey(name, frozenset(rights), text, tuple(entities), limits)


def connection_string(key: LocalKey, port: int | None, *, address: str = "127.0.0.1", host: str = "") -> str:
    """Return the whole connection string for applications with this key, a secret.

    port: None: the standard ones. host: the name for clients, by default the address.
    """
    found = ipaddress.ip_address(address)
    by_address = socket.getfqdn() if found.is_unspecified else f"[{found}]" if found.version == IPV6 else str(found)
    host = host or by_address
    named = f"SharedAccessKeyName={key.name};SharedAccessKey={key.key}"
    if port is None:
        return f"Endpoint=sb://{host}/;{named}"
    return f"Endpoint=sb://{host}:{port};{named};UseDevelopmentEmulator=true"


class KeyRing:
    """The keys in use; `judge` proves tokens by them."""

    def __init__(self, keys: Iterable[LocalKey]) -> None:
        self._keys = {key.name: key for key in keys}

    @property
    def keys(self) -> tuple[LocalKey, ...]:
        return tuple(self._keys.values())

    def judge(self, token: str, audience: str, now: float) -> ProvenAccess:
        """Return the access of `token` to `audience`, a URI, at `now` in epoch seconds. Raises TokenError."""
        if len(audience) > MAX_AUDIENCE:
            raise TokenError(Flaw.AUDIENCE, f"The audience has more than {MAX_AUDIENCE} characters.")
        if not token.startswith(PREFIX):
            raise TokenError(
                Flaw.MALFORMED,
                "The gateway takes shared access signatures of its own keys only, and no token of Azure: use the "
                "connection string that 'paired gateway' prints.",
            )
        signature = read_token(token)
        key = next((self._keys[name] for name in signature.key_names if name in self._keys), None)
        if key is None:
            raise TokenError(Flaw.SIGNATURE, f"The gateway has no key named '{signature.key_name}'.")
        if not signature.is_signed_with(key.key):
            raise TokenError(Flaw.SIGNATURE, f"The signature was not made with the gateway's key '{key.name}'.")
        signature.check(audience, now)
        return key.access(audience_path(audience), signature.expires_at)

    def prove(self, name: str, key: str) -> ProvenAccess:
        """Return the access of SASL PLAIN's name and key, which has no end of its own. Raises TokenError."""
        known = self._keys.get(name)
        if known is None or not compare_digest(known.key.encode(), key.encode()):
            raise TokenError(Flaw.SIGNATURE, "SASL PLAIN: the gateway has no key of this name with this value.")
        return known.access("", inf)

    def limits_of(self, name: str | None) -> KeyLimits:
        """Return the limits of a key; those of none if it is gone."""
        key = self._keys.get(name or "")
        return DEFAULT_LIMITS if key is None else key.limits


def write_keys(path: Path, keys: Iterable[LocalKey]) -> None:
    """Replace the file; nobody but its owner can read it at any moment. Its folder must exist. Raises OSError."""
    entries = [_entry(key) for key in keys]
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "w") as file:
        json.dump({"keys": entries}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read_keys(path: Path) -> KeyRing:
    """Read the file.

    Raises:
        ConfigurationError: others may read it, or it is another user's.
        UnreadableError: it is not a file of keys.
        OSError: it cannot be read, FileNotFoundError among others.
    """
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        mode = stat.S_IMODE(found.st_mode)
        if mode & ~OWNER_ONLY:
            raise ConfigurationError(
                f"{path} has mode {mode:04o}: others may read its keys; chmod 600, then rotate them"
            )
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigurationError(
                f"{path} belongs to another user, who knows its keys: run as that user, or remove the file"
            )
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise UnreadableError(f"{path} is not a file of gateway keys (more than {MAX_FILE} bytes): remove it")
    try:
        return _key_ring(json.loads(data))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UnreadableError(f"{path} is not a file of gateway keys ({type(error).__name__}): remove it") from None


def keys_of(path: Path, rules: Iterable[KeyRule] = ()) -> KeyRing:
    """Return the file's keys; make it if there is none. Raises as `read_keys`.

    Without rules the first key sends and receives: an application needs nothing but its connection string, and no more.
    rules: keys of the configuration; the file gets those that it lacks, and what each may do.
    """
    chosen = tuple(rules)
    if not path.exists():
        with exclusive(path.parent):
            if not path.exists():
                first = [new_key(FIRST_KEY, [GatewayRight.SEND, GatewayRight.LISTEN])]
                write_keys(path, _merge((), chosen) or first)
    present = read_keys(path)
    is_applied = _merge(present.keys, chosen) == list(present.keys)
    return present if is_applied else change_keys(path, lambda keys: _merge(keys, chosen))


def _merge(keys: Iterable[LocalKey], rules: Iterable[KeyRule]) -> list[LocalKey]:
    """Return the keys with those of the rules; a key that is known keeps its secret."""
    found = {key.name: key for key in keys}
    for rule in rules:
        key = found.get(rule.name) or new_key(rule.name, ())
        rights = frozenset(GatewayRight(right) for right in rule.rights)
        found[rule.name] = replace(key, rights=rights, entities=rule.entities, limits=_limits(rule.limits))
    return list(found.values())


def change_keys(path: Path, change: Callable[[tuple[LocalKey, ...]], Iterable[LocalKey]]) -> KeyRing:
    """Replace the file's keys by those that `change` returns. Raises as `read_keys`, and what `change` raises."""
    with exclusive(path.parent):
        changed = KeyRing(change(read_keys(path).keys))
        write_keys(path, changed.keys)
    return changed


def rotate_keys(path: Path) -> KeyRing:
    """Replace each key by a fresh one of the same name and rights. Raises as `read_keys`."""
    return change_keys(path, lambda keys: [replace(key, key=new_key(key.name, ()).key) for key in keys])


def add_key(path: Path, name: str, rights: Iterable[GatewayRight]) -> KeyRing:
    """Add a key. Raises ConfigurationError, a name that is taken or unusable among others, and as `read_keys`."""
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"the name of a key has 1 to 64 letters, digits, dots, dashes or underscores; {repeated(name)} has not"
        )

    def add(keys: tuple[LocalKey, ...]) -> list[LocalKey]:
        if any(key.name.casefold() == name.casefold() for key in keys):
            raise ConfigurationError(f"there is a key named {name} already: remove it first, or choose another name")
        if len(keys) >= MAX_KEYS:
            raise ConfigurationError(f"there are {len(keys)} keys, and a gateway has at most {MAX_KEYS}: remove some")
        return [*keys, new_key(name, rights)]

    return change_keys(path, add)


def remove_key(path: Path, name: str) -> KeyRing:
    """Remove a key. Raises ConfigurationError: there is none of this name, or no other; and as `read_keys`."""

    def remove(keys: tuple[LocalKey, ...]) -> list[LocalKey]:
        left = [key for key in keys if key.name != name]
        if len(left) == len(keys):
            names = ", ".join(key.name for key in keys)
            raise ConfigurationError(f"there is no key named {repeated(name)}; there are {names}")
        if not left:
            raise ConfigurationError(f"{name} is the only key: add another one first, or replace it with --rotate")
        return left

    return change_keys(path, remove)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Exclude other processes that change a file of this folder: an engine and a command may make it together."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _key_ring(document: Any) -> KeyRing:
    entries = document["keys"]
    keys = [_key(entry) for entry in entries]
    if not 1 <= len({key.name for key in keys}) == len(keys) <= MAX_KEYS:
        raise ValueError("no key, too many, or a name twice")
    return KeyRing(keys)


def _key(entry: Any) -> LocalKey:
    name, key = entry["name"], entry["key"]
    if not (isinstance(name, str) and NAME.fullmatch(name) and isinstance(key, str) and _KEY.fullmatch(key)):
        raise ValueError("no name, or no key")
    entities = tuple(entry.get("entities", ()))
    if not all(isinstance(one, str) for one in entities):
        raise ValueError("an entity is no text")
    rights = frozenset(GatewayRight(right) for right in entry["rights"])
    return LocalKey(name, rights, key, entities, _limits(entry.get("limits", {})))


def _limits(values: Mapping[str, Any]) -> KeyLimits:
    if not all(isinstance(value, int | float) and value > 0 for value in values.values()):
        raise ValueError("a limit is no number above 0")
    return KeyLimits(**values)


def _entry(key: LocalKey) -> dict[str, Any]:
    limits = {name: value for name, value in asdict(key.limits).items() if value != getattr(DEFAULT_LIMITS, name)}
    entry: dict[str, Any] = {"name": key.name, "rights": sorted(key.rights), "key": key.key}
    return entry | ({"entities": list(key.entities)} if key.entities else {}) | ({"limits": limits} if limits else {})


# The keys of a running engine: those of the keys file as it is now.
#
# A token is judged by the file's present content, so a key that was printed counts immediately, and a removed one does
# not count any more. A file that cannot be read changes nothing; the operator gets a warning.

LOOK_SECONDS: Final = 1.0
"""Between two looks at the file without a token to judge: the longest life of a removed key's links."""
_State = tuple[int, int, int, int]


class KeysInForce(KeyRing):
    """The key ring of a file, which another process may replace.

    Args:
        path: the file; it is made if it is missing. Raises as `keys_of`.
        rules: the configuration's keys, which the file gets.
        revoked: called with the names of keys that changed or were removed.
        warn: called with a sentence for the operator.
    """

    def __init__(
        self,
        path: Path,
        *,
        revoked: Callable[[frozenset[str]], object],
        warn: Callable[[str], object],
        rules: Iterable[KeyRule] = (),
    ) -> None:
        keys_of(path, rules)
        state = _state_of(path)  # before it is read: a change in between is read again
        super().__init__(keys_of(path).keys)
        self._path = path
        self._revoked = revoked
        self._warn = warn
        self._state = state
        self._trouble = ""

    def judge(self, token: str, audience: str, now: float) -> ProvenAccess:
        """Judge by the file's present content. Raises TokenError."""
        self.refresh()
        return super().judge(token, audience, now)

    def prove(self, name: str, key: str) -> ProvenAccess:
        """Judge by the file's present content. Raises TokenError."""
        self.refresh()
        return super().prove(name, key)

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        state = _state_of(self._path)
        if state == self._state:
            return
        try:
            found = read_keys(self._path).keys
        except (OSError, PairedError) as error:
            self._complain(f"{error.strerror or error}" if isinstance(error, OSError) else str(error))
            return
        self._state, self._trouble = state, ""
        self._replace(found)

    def _replace(self, found: tuple[LocalKey, ...]) -> None:
        before, self._keys = self._keys, {key.name: key for key in found}
        changed = frozenset(name for name, key in before.items() if self._keys.get(name) != key)
        if changed:
            self._warn(
                f"keys of the gateway were changed or removed, and their links end: {', '.join(sorted(changed))}"
            )
            self._revoked(changed)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._warn(f"the gateway's keys {self._path} cannot be read, the earlier ones stay in force: {trouble}")


def _state_of(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode
