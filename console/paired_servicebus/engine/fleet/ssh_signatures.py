"""OpenSSH's signature format SSHSIG, for ed25519 keys and ed25519 keys in FIDO tokens.

Our own reader of 70 lines, on cryptography's ed25519. The packages that have one do not fit: sshsig 0.3 has no FIDO
keys, no validity and no principals, and refuses a whole file for one line; asyncssh is an SSH client and server.

Hostile bytes raise UnreadableError and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.errors import UnreadableError

MAX_SIGNATURE_CHARS: Final = 4096
ED25519: Final = b"ssh-ed25519"
SK_ED25519: Final = b"sk-ssh-ed25519@openssh.com"
KEY_TYPES: Final = (ED25519, SK_ED25519)
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_HASHES: Final = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_PRIME: Final = 2**255 - 19
"""Of the field of the coordinates of ed25519's points."""
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""The y of the eight points whose multiples are eight at most: signatures for them need no private key."""
_USER_PRESENT: Final = 0x01
"""The flag of a FIDO signature: the token was touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSignature:
    """A signature as it was parsed. Nothing is verified yet."""

    key: bytes
    namespace: bytes
    hash_name: bytes
    signature: bytes


class _Fields:
    """The length-prefixed fields of SSH's binary formats."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """Return that many bytes."""
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise UnreadableError("it is truncated")
        self._at += count
        return part

    def string(self) -> bytes:
        """Return a field."""
        return self.take(int.from_bytes(self.take(4), "big"))

    def end(self) -> None:
        """Check that nothing follows."""
        if self._at != len(self._data):
            raise UnreadableError("bytes follow its end")


def fingerprint(key: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def check_key(key: bytes) -> None:
    """Raise UnreadableError unless this is a complete key of a usable type."""
    _split_key(key)


def _split_key(key: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the type, the 32 bytes and the application of a key."""
    fields = _Fields(key)
    kind = fields.string()
    if kind not in KEY_TYPES:
        raise UnreadableError("its key is neither ed25519 nor sk-ed25519")
    raw = fields.string()
    application = fields.string() if kind == SK_ED25519 else b""
    fields.end()
    if len(raw) != 32:
        raise UnreadableError("its key has a wrong length")
    y = int.from_bytes(raw, "little") & (2**255 - 1)  # the highest bit is the sign of x
    if y >= _PRIME or y in _SMALL_ORDER:
        raise UnreadableError("its key is a degenerate point, for which anybody can sign")
    return kind, raw, application


def parse_signature(armored: str) -> SshSignature:
    """Read an armored signature.

    Raises:
        UnreadableError: it is no signature of a supported form.
    """
    if len(armored) > MAX_SIGNATURE_CHARS:
        raise UnreadableError("it is too long")
    lines = armored.strip().splitlines()
    if len(lines) < 3 or lines[0] != _BEGIN or lines[-1] != _END:
        raise UnreadableError("it is not an SSH signature")
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableError("it is not base64") from error
    fields = _Fields(blob)
    if fields.take(6) != b"SSHSIG" or fields.take(4) != b"\0\0\0\1":
        raise UnreadableError("it is not an SSH signature of version 1")
    key, namespace, _reserved, hash_name, signature = (fields.string() for _ in range(5))
    fields.end()
    if hash_name not in _HASHES:
        raise UnreadableError("its hash is neither SHA-256 nor SHA-512")
    return SshSignature(key=key, namespace=namespace, hash_name=hash_name, signature=signature)


def is_valid(found: SshSignature, signed: bytes) -> bool:
    """Return whether the key in the signature made it over these bytes, in the signature's namespace.

    Raises:
        UnreadableError: the key or the signature has a wrong form.
        ModuleNotFoundError: the package cryptography is not installed.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    kind, raw, application = _split_key(found.key)
    message = b"SSHSIG" + b"".join(
        _field(one) for one in (found.namespace, b"", found.hash_name, _HASHES[found.hash_name](signed).digest())
    )
    fields = _Fields(found.signature)
    if fields.string() != kind:
        raise UnreadableError("its key and its signature are of two types")
    signature = fields.string()
    if kind == SK_ED25519:
        flags, counter = fields.take(1), fields.take(4)
        if not flags[0] & _USER_PRESENT:
            raise UnreadableError("its token was not touched")
        message = hashlib.sha256(application).digest() + flags + counter + hashlib.sha256(message).digest()
    fields.end()
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
    except (InvalidSignature, ValueError):  # ValueError: the key is not a point of the curve
        return False
    return True


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
