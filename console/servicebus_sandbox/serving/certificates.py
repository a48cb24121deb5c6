"""Certificates of the sandbox: an authority and one server certificate, new for each run.

The authority's key is never written, so it can sign no other certificate. Clients trust the file `ca_file`. No sockets
here.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_LIFETIME = timedelta(days=90)
_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate for clients, the server's chain and key for `server_context`."""

    ca_file: Path
    server_file: Path
    key_file: Path

    def server_context(self) -> ssl.SSLContext:
        """Return the server's TLS context: 1.2 or newer, no client certificates, no ALPN."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.server_file, self.key_file)
        return context


def make_certificates(folder: Path, *, host_names: Iterable[str] = ()) -> Certificates:
    """Write new certificates for the loopback names and `host_names` (names or addresses) under `folder`.

    The folder is created if it is missing and private (0700), the key's file too (0600). Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = tuple(dict.fromkeys((*LOOPBACK_NAMES, *host_names)))
    ca = _authority(ca_key)
    server = _server(ca, ca_key, server_key, names)
    files = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    files.ca_file.write_bytes(ca.public_bytes(Encoding.PEM))
    files.server_file.write_bytes(server.public_bytes(Encoding.PEM))
    files.key_file.touch(mode=0o600)
    files.key_file.chmod(0o600)
    files.key_file.write_bytes(server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("Sandbox Authority")
    usage = _usage(digital_signature=False, signs_certificates=True)
    builder = _builder(name, name, key.public_key(), key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _server(
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    names: tuple[str, ...],
) -> x509.Certificate:
    builder = _builder(_name("Sandbox Server"), ca.subject, key.public_key(), ca_key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    usage = _usage(digital_signature=True, signs_certificates=False)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    return builder.add_extension(alternatives, critical=False).sign(ca_key, hashes.SHA256())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )
    # strict clients need both key identifiers
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    return builder.add_extension(authority, critical=False)


def _usage(*, digital_signature: bool, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
