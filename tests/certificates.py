"""Certificates for servers and clients on this machine, issued on the spot.

Each name has ``NAME.pem``, the certificate; ``NAME.key``; ``NAME.locked.key``, the key
with `KEY_PASSWORD`; and ``NAME.store.pem``, key and certificate, as Java has them.
"""

from __future__ import annotations

import atexit
import datetime as dt
import ipaddress
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import (
        KeySerializationEncryption,
    )

Issued = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
"""What an authority may use its key for."""


KEY_PASSWORD = "rabbit-hole-9"
"""Of the locked keys."""


@cache
def certificates() -> Path:
    """A folder with certificates for this process, removed at exit."""
    folder = Path(tempfile.mkdtemp(prefix="certificates-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    issue_certificates(folder)
    return folder


def issue_certificates(folder: Path) -> None:
    """``ca``, with ``server`` and ``client``; ``other-ca``, with ``stranger``."""
    authority = _issue(folder, "ca")
    other = _issue(folder, "other-ca")
    for name in ("server", "client"):
        _issue(folder, name, authority)
    _issue(folder, "stranger", other)


def _issue(folder: Path, name: str, authority: Issued | None = None) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(authority is None, None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.DNSName("localhost"),
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                ]
            ),
            critical=False,
        )
    )
    signer = key if authority is None else authority[1]
    # OpenSSL asks for them where it is strict, as Python 3.13 has it by default.
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(issuer, critical=False)
    if authority is None:
        builder = builder.add_extension(SIGNS, critical=True)
    certificate = builder.sign(signer, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = _pem_of(key, serialization.NoEncryption())
    locked = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
    (folder / f"{name}.pem").write_bytes(pem)
    (folder / f"{name}.key").write_bytes(plain)
    (folder / f"{name}.locked.key").write_bytes(_pem_of(key, locked))
    (folder / f"{name}.store.pem").write_bytes(plain + pem)
    return certificate, key


def _pem_of(
    key: ec.EllipticCurvePrivateKey, encryption: KeySerializationEncryption
) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
