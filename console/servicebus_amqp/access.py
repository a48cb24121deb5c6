"""Addresses of links and audiences, tokens for them, and the access that a connection has proven. Not here: keys.

Clients write `amqps://host:port/orders`, `sb://host/orders` or plain `orders`; slashes inside an entity's path stay.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum
from hashlib import sha256
from math import inf
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus, urlsplit

CBS = "$cbs"
MANAGEMENT = "/$management"


class NodeKind(Enum):
    """The kind of node that an address names."""

    CBS = "the token node"
    MANAGEMENT = "an entity's management node"
    ENTITY = "an entity or one of its sub-queues"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """path: the entity's, without scheme, authority or `/$management`; empty for the token node.

    resource: the path that a token has to cover, with its `/$management`; empty for the token node.
    """

    kind: NodeKind
    path: str
    resource: str


def path_of(uri: str) -> str:
    """Return the path in `scheme://authority/path`, or the text itself without a scheme; outer slashes are stripped."""
    scheme, separator, rest = uri.partition("://")
    if separator and "/" not in scheme:
        return rest.partition("/")[2].strip("/")
    return uri.strip("/")


def audience_path(uri: str) -> str:
    """Return the path that a token's audience names, decoded and without outer slashes."""
    return unquote(path_of(uri)).strip("/")


def parse_address(text: str) -> NodeAddress:
    """Parse the address of a link's source or target."""
    path = path_of(text)
    if path.lower() == CBS:
        return NodeAddress(NodeKind.CBS, "", "")
    if path.lower().endswith(MANAGEMENT):
        return NodeAddress(NodeKind.MANAGEMENT, path[: -len(MANAGEMENT)], path)
    return NodeAddress(NodeKind.ENTITY, path, path)


def covers(parent: str, path: str) -> bool:
    """Return whether `path` is `parent` or below it, by whole segments and without regard to case."""
    parent, path = parent.lower(), path.lower()
    return not parent or path == parent or path.startswith(parent + "/")


# Shared access signatures: signed by clients, read and proved by namespaces.
#
# A signature is `SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<key name>`: HMAC-SHA256 with the
# key's text over the encoded resource, a line feed and the expiry. Times are epoch seconds, passed in by the caller.

PREFIX: Final = "SharedAccessSignature "
_FIELDS: Final = ("sr", "sig", "se", "skn")


class Flaw(StrEnum):
    """A flaw of a token, by the service's name."""

    MALFORMED = "MalformedToken"
    SIGNATURE = "InvalidSignature"
    EXPIRED = "ExpiredToken"
    AUDIENCE = "InvalidAudience"
    ISSUER = "InvalidIssuer"


class TokenError(Exception):
    """A refused token. `reason` is for the client: the flaw and one sentence, without key or signature."""

    def __init__(self, flaw: Flaw, sentence: str) -> None:
        self.flaw = flaw
        self.reason = f"{flaw}: {sentence}"
        super().__init__(self.reason)


def expired(at: float, now: float) -> TokenError:
    """Return the refusal of a token that ended, in the service's words. Times are epoch seconds."""
    end = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return TokenError(
        Flaw.EXPIRED, f"The token is expired. Expiration time: '{end}', {now - at:.0f} seconds ago; get a new one."
    )


@dataclass(frozen=True, slots=True)
class SasToken:
    """A token that is read but not proved. `expires_at` is in epoch seconds, `resource` decoded."""

    key_name: str
    resource: str
    expires_at: float
    _signed: str = field(repr=False)
    _signature: str = field(repr=False)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the possible names of the key: the Python SDK encodes the name twice."""
        return tuple(dict.fromkeys((self.key_name, unquote_plus(self.key_name))))

    def is_signed_with(self, key: str) -> bool:
        """Return whether the key made the signature, in constant time."""
        return hmac.compare_digest(self._signature.encode(), _signature(self._signed, key).encode())

    def check(self, audience: str, now: float) -> None:
        """Raise TokenError unless the token is valid at `now` (epoch seconds) and covers `audience`, a URI.

        The token's resource has to be the audience or a parent of it, by whole path segments and without regard to
        case. Any scheme matches, and a host with or without port.
        """
        if self.expires_at <= now:
            raise expired(self.expires_at, now)
        if not _covers(self.resource, audience):
            raise TokenError(Flaw.AUDIENCE, f"The token is for '{self.resource}', which does not cover '{audience}'.")


def sign(resource: str, key_name: str, key: str, expires_at: float) -> str:
    """Return a token for `resource` and everything below it, valid until `expires_at` (epoch seconds)."""
    encoded, expiry = quote_plus(resource), str(int(expires_at))
    signature = quote_plus(_signature(f"{encoded}\n{expiry}", key))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"


def read_token(token: str) -> SasToken:
    """Return the parts of a token. Raises TokenError if it is not a shared access signature."""
    fields = _fields(token)
    return SasToken(
        unquote_plus(fields["skn"]),
        unquote_plus(fields["sr"]),
        _expiry(fields["se"]),
        f"{fields['sr']}\n{fields['se']}",
        # unquote, not unquote_plus: an unencoded "+" is base64's
        unquote(fields["sig"]),
    )


def _signature(signed: str, key: str) -> str:
    return b64encode(hmac.digest(key.encode(), signed.encode(), sha256)).decode("ascii")


def _fields(token: str) -> dict[str, str]:
    if not token.startswith(PREFIX):
        raise TokenError(
            Flaw.MALFORMED,
            "The token is not a shared access signature: it has to start with 'SharedAccessSignature sr='.",
        )
    if not token.isascii():
        raise TokenError(
            Flaw.MALFORMED, "The token holds characters beyond ASCII; its parts have to be percent-encoded."
        )
    pairs = (item.partition("=") for item in token[len(PREFIX) :].split("&"))
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing:
        raise TokenError(Flaw.MALFORMED, f"The token has no {' and no '.join(missing)}; it needs sr, sig, se and skn.")
    return fields


def _expiry(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        raise TokenError(Flaw.MALFORMED, f"The expiry se='{text}' is not a number of seconds since 1970.")
    return float(text)


def _locate(uri: str) -> tuple[str, int | None, list[str]]:
    """Return the host, the port and the segments of a resource, whatever its scheme."""
    try:
        parts = urlsplit(uri if "://" in uri else f"//{uri}")
        segments = [part for part in unquote(parts.path).lower().split("/") if part]
        return (parts.hostname or "").lower(), parts.port, segments
    except ValueError as error:
        raise TokenError(Flaw.MALFORMED, f"'{uri}' is not a URI that a token can be judged for: {error}.") from error


def _covers(resource: str, audience: str) -> bool:
    (host, port, segments), (audience_host, audience_port, audience_segments) = _locate(resource), _locate(audience)
    if not host or host != audience_host or (None not in (port, audience_port) and port != audience_port):
        return False
    return audience_segments[: len(segments)] == segments


# The access that one connection has proven: rights and their end.
#
# A token for an entity also opens its sub-queues, subscriptions and management node. The owner judges tokens and
# chooses the right for a link.


@dataclass(frozen=True, slots=True)
class ProvenAccess:
    """The access of a good token to `path` and everything below it. `expires_at` is in epoch seconds.

    `rights` are names such as Send. `key` is the name of the rule whose key signed the token; None for a bearer token.
    An access that SASL PLAIN has proven ends with its connection: its `expires_at` is infinite.
    """

    path: str
    rights: frozenset[str]
    expires_at: float
    key: str | None = None
    entities: EntityNames | None = None
    """The entities that the key is for; None: all."""

    def covers(self, resource: str) -> bool:
        """Return whether the key is for the entity of a resource that is at `path` or below it."""
        return self.entities is None or not resource or self.entities.include(resource)


_BELOW: Final = re.compile(
    r"(/subscriptions/[^/]*)?((/\$transfer)?/\$deadletterqueue)?(/\$management)?", re.IGNORECASE | re.ASCII
)
"""What follows the name of an entity in the path of something below it."""


@dataclass(frozen=True, slots=True)
class EntityNames:
    """Names of entities without regard to case; `*` stands for any characters, slashes included."""

    patterns: tuple[str, ...]

    def include(self, resource: str) -> bool:
        """Return whether the resource is one of the entities, or its sub-queue, subscription or management node.

        A path in any other spelling than the plain one is none of them.
        """
        if not (resource.isascii() and resource.isprintable()) or "%" in resource or "//" in resource:
            return False
        return any(self._is_at_or_below(pattern, resource) for pattern in self.patterns)

    @staticmethod
    def _is_at_or_below(pattern: str, resource: str) -> bool:
        name = ".*".join(re.escape(part) for part in pattern.split("*"))
        return re.fullmatch(f"(?:{name}){_BELOW.pattern}", resource, re.IGNORECASE | re.ASCII) is not None


MAX_GRANTS: Final = 1000
"""The audiences of one connection, as the service allows; the path of an entity has at most MAX_PATH characters."""
MAX_PATH: Final = 1024


class Grants:
    """Accesses by path, without regard to case. Times are epoch seconds."""

    __slots__ = ("_accesses", "next_end")

    def __init__(self) -> None:
        self._accesses: dict[str, ProvenAccess] = {}
        self.next_end: float | None = None
        """A lower bound of the first end; the token that ends first may have been replaced."""

    def __len__(self) -> int:
        return len(self._accesses)

    @property
    def key_names(self) -> frozenset[str]:
        """Return the names of all keys that have proven something."""
        return frozenset(access.key for access in self._accesses.values() if access.key is not None)

    def put(self, access: ProvenAccess) -> bool:
        """Store an access in place of the earlier one for its path; return False if there are too many."""
        key = access.path.lower()
        if key not in self._accesses and len(self._accesses) >= MAX_GRANTS:
            return False
        self._accesses[key] = access
        if access.expires_at < (inf if self.next_end is None else self.next_end):
            self.next_end = access.expires_at
        return True

    def allow(self, path: str, right: str | None, now: float) -> bool:
        """Return whether a valid token covers the path with this right; None means any right."""
        return any(right is None or right in access.rights for access in self._above(path, now))

    def keys(self, path: str, right: str | None, now: float) -> frozenset[str]:
        """Return the names of the rules whose keys give this right on the path; None means any right."""
        found = (access for access in self._above(path, now) if right is None or right in access.rights)
        return frozenset(access.key for access in found if access.key is not None)

    def drop_expired(self, now: float) -> bool:
        """Remove expired accesses; return whether there were any."""
        expired = [path for path, access in self._accesses.items() if access.expires_at <= now]
        for path in expired:
            del self._accesses[path]
        ends = [access.expires_at for access in self._accesses.values() if access.expires_at < inf]
        self.next_end = min(ends, default=None)
        return bool(expired)

    def drop_keys(self, names: frozenset[str]) -> bool:
        """Remove the accesses that the keys of these names have proven; return whether there were any."""
        dropped = [path for path, access in self._accesses.items() if access.key in names]
        for path in dropped:
            del self._accesses[path]
        return bool(dropped)

    def _above(self, path: str, now: float) -> Iterator[ProvenAccess]:
        """Yield the valid accesses to the path or above it."""
        at = path.lower() if len(path) <= MAX_PATH else ""
        while True:
            access = self._accesses.get(at)
            if access is not None and access.expires_at > now and access.covers(path):
                yield access
            if not at:
                return
            at = at.rpartition("/")[0]
