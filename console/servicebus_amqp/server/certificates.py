"""Certificates of a server: an authority and one server certificate, made together.

The authority's key is never written, so it can sign no other certificate. Clients trust the file `ca_file`. No sockets
here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from servicebus_amqp.server.listener import Certificates

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LIFETIME = timedelta(days=90)
_CLOCK_SKEW = timedelta(days=1)


def make_certificates(
    folder: Path, *, host_names: Iterable[str] = (), owner: str = "Sandbox", lifetime: timedelta | None = None
) -> Certificates:
    """Write new certificates for the loopback names and `host_names` (names or addresses) under `folder`.

    owner: the first word of their subjects. lifetime: 90 days by default. The folder is created if it is missing and
    private (0700), the key's file too (0600). Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = tuple(dict.fromkeys((*LOOPBACK_NAMES, *host_names)))
    until = datetime.now(UTC) + (lifetime or LIFETIME)
    ca = _authority(owner, ca_key, until)
    server = _server(ca, ca_key, _builder(_name(f"{owner} Server"), ca.subject, server_key, ca_key, until), names)
    files = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    files.ca_file.write_bytes(ca.public_bytes(Encoding.PEM))
    files.server_file.write_bytes(server.public_bytes(Encoding.PEM))
    files.key_file.touch(mode=0o600)
    files.key_file.chmod(0o600)
    files.key_file.write_bytes(server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def _authority(owner: str, key: ec.EllipticCurvePrivateKey, until: datetime) -> x509.Certificate:
    name = _name(f"{owner} Authority")
    usage = _usage(digital_signature=False, signs_certificates=True)
    builder = _builder(name, name, key, key, until)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _server(
    ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, builder: x509.CertificateBuilder, names: tuple[str, ...]
) -> x509.Certificate:
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    usage = _usage(digital_signature=True, signs_certificates=False)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    return builder.add_extension(alternatives, critical=False).sign(ca_key, hashes.SHA256())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    until: datetime,
) -> x509.CertificateBuilder:
    public_key = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _CLOCK_SKEW)
        .not_valid_after(until)
    )
    # strict clients need both key identifiers
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
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
