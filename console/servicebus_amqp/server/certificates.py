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
    ca_name, alternatives = _name(f"{owner} Authority"), x509.SubjectAlternativeName([_general_name(n) for n in names])
    ca = _certificate(
        (ca_name, ca_key),
        (ca_name, ca_key),
        until,
        critical=(x509.BasicConstraints(ca=True, path_length=0), _usage("key_cert_sign", "crl_sign")),
    )
    server = _certificate(
        (_name(f"{owner} Server"), server_key),
        (ca_name, ca_key),
        until,
        critical=(x509.BasicConstraints(ca=False, path_length=None), _usage("digital_signature")),
        others=(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), alternatives),
    )
    files = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    files.ca_file.write_bytes(ca.public_bytes(Encoding.PEM))
    files.server_file.write_bytes(server.public_bytes(Encoding.PEM))
    files.key_file.touch(mode=0o600)
    files.key_file.chmod(0o600)
    files.key_file.write_bytes(server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


_Party = tuple[x509.Name, ec.EllipticCurvePrivateKey]
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _certificate(
    subject: _Party,
    issuer: _Party,
    until: datetime,
    *,
    critical: Iterable[x509.ExtensionType],
    others: Iterable[x509.ExtensionType] = (),
) -> x509.Certificate:
    """Return a certificate of the subject with these extensions, signed by the issuer."""
    (name, key), (issuer_name, issuer_key) = subject, issuer
    public_key = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer_name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _CLOCK_SKEW)
        .not_valid_after(until)
    )
    identifiers = (  # strict clients need both
        x509.SubjectKeyIdentifier.from_public_key(public_key),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
    )
    for extension in critical:
        builder = builder.add_extension(extension, critical=True)
    for extension in (*identifiers, *others):
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(*chosen: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in chosen for use in _USES})


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
