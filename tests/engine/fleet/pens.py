"""Keys that sign orders as OpenSSH does."""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from paired_servicebus.engine.fleet.order_signatures import NAMESPACE


def field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Pen:
    """A key that signs as OpenSSH does, without it."""

    def __init__(self, seed: int, *, is_token: bool = False, flags: int = 1) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self._is_token, self._flags = is_token, flags
        self.kind = b"sk-ssh-ed25519@openssh.com" if is_token else b"ssh-ed25519"
        raw = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key = field(self.kind) + field(raw) + (field(b"ssh:") if is_token else b"")

    @property
    def line(self) -> str:
        return f"{self.kind.decode()} {base64.b64encode(self.key).decode()}"

    def sign(self, signed: bytes, namespace: str = NAMESPACE) -> str:
        digest = hashlib.sha512(signed).digest()
        head = field(namespace.encode()) + field(b"") + field(b"sha512")
        message, tail = b"SSHSIG" + head + field(digest), b""
        if self._is_token:
            tail = bytes([self._flags]) + bytes(4)
            message = hashlib.sha256(b"ssh:").digest() + tail + hashlib.sha256(message).digest()
        blob = field(self.kind) + field(self._private.sign(message)) + tail
        text = base64.b64encode(b"SSHSIG\0\0\0\1" + field(self.key) + head + field(blob)).decode()
        return f"-----BEGIN SSH SIGNATURE-----\n{text}\n-----END SSH SIGNATURE-----\n"
