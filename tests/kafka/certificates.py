"""Certificates for tests: an authority, a server, a client, a stranger."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

KEY_PASSWORD = "rabbit-hole-9"
"""Of the client's encrypted key."""


def make_certificates(folder: Path) -> None:
    """Write them as PEM files, once: ``ca``, ``server``, ``client``, ``stranger``."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    authority_key, authority = _authority("Test authority")
    (folder / "ca.pem").write_bytes(_pem(authority))
    (folder / "stranger.pem").write_bytes(_pem(_authority("Stranger")[1]))
    for name in ("server", "client"):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        certificate = _signed(name, key, authority, authority_key)
        plain, locked = serialization.NoEncryption(), _encrypted()
        (folder / f"{name}.key").write_bytes(_key(key, plain))
        (folder / f"{name}.locked.key").write_bytes(_key(key, locked))
        (folder / f"{name}.crt").write_bytes(_pem(certificate))
        (folder / f"{name}.pem").write_bytes(_key(key, plain) + _pem(certificate))


def _encrypted() -> serialization.KeySerializationEncryption:
    return serialization.BestAvailableEncryption(KEY_PASSWORD.encode())


def _authority(name: str) -> tuple[RSAPrivateKey, x509.Certificate]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    builder = _builder(name, name, key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return key, builder.sign(key, hashes.SHA256())


def _signed(
    name: str, key: RSAPrivateKey, authority: x509.Certificate, signer: RSAPrivateKey
) -> x509.Certificate:
    issuer = authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    names = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    builder = _builder(name, str(issuer), key).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    return builder.sign(signer, hashes.SHA256())


def _builder(name: str, issuer: str, key: RSAPrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + 30 * day)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(
    key: RSAPrivateKey, encryption: serialization.KeySerializationEncryption
) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
