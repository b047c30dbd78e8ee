"""TLS for a coordinator without an authority: a certificate of its own, known by the digest of its public key.

The certificate's key is derived from the coordinator's identity, so that it stays the same when the coordinator moves
or begins again; it signs nothing but TLS handshakes. The roster has the digest, and parties compare it before anything
else is sent. Where the roster has none, the certificate must be signed by a public authority. The key is one of the
curve P-256, as browsers, which show the live page, know no Ed25519.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import ClientConnection

from unspoken.summation.keys import Identity

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The number of points of P-256"""


def _key(identity: Identity) -> ec.EllipticCurvePrivateKey:
    # 16 bytes more than the order has, so that the remainder is practically uniform.
    derived = HKDF(hashes.SHA256(), 48, None, b"unspoken-1/tls").derive(identity.secret)
    return ec.derive_private_key(int.from_bytes(derived, "big") % (_ORDER - 1) + 1, ec.SECP256R1())


def _digest(key: object) -> str:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(encoded).hexdigest()


def certificate_digest(identity: Identity) -> str:
    """The digest of the public key of the identity's certificate, as the roster has it."""
    return _digest(_key(identity).public_key())


def digest_of(certificate: bytes) -> str:
    """The digest of a certificate's public key. The certificate is what TLS has shown, DER."""
    return _digest(x509.load_der_x509_certificate(certificate).public_key())


def server_context(identity: Identity) -> ssl.SSLContext:
    """TLS 1.3 with the identity's own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    key, name = _key(identity), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unspoken")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # Python's ssl reads certificates from files only; this folder is for this user alone, and gone at once.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "certificate.pem"
        with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as written:
            written.write(secret + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(file)
    return context


def client_context(pinned: bool) -> ssl.SSLContext:
    """TLS 1.3. A pinned certificate is compared with its digest afterwards (`client`); others need an authority."""
    # Authorities are read only if one is needed: that takes longer than all the rest.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if pinned else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if pinned:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class WrongCertificate(Exception):
    """Not an OSError: those are tried again."""


def pinning(digest: str) -> Any:
    """A connection that compares the certificate before anything is sent over it."""

    class Pinned(ClientConnection):
        async def handshake(self, *given: Any, **named: Any) -> None:
            certificate = self.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            if digest_of(certificate) != digest:
                self.transport.abort()
                raise WrongCertificate("shows another certificate than the study's roster has for the coordinator.")
            await super().handshake(*given, **named)

    return Pinned
