"""A certificate authority for tests, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Signed:
    """A signed certificate with its key, as PEM texts."""

    certificate: str
    key: str

    def server_context(self, directory: Path, clients: Authority | None = None) -> ssl.SSLContext:
        """Return a server context. If `clients` is given, clients need a certificate from this authority."""
        file = directory / "server.pem"
        file.write_text(self.certificate + self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem)
        return context


class Authority:
    def __init__(self, name: str = "Test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            self._builder(self._name, timedelta(days=1))
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def sign(self, hosts: Sequence[str] = ("127.0.0.1",), *, lasts: timedelta = timedelta(days=1)) -> Signed:
        """Sign a certificate for `hosts`. With a negative `lasts`, it has already expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]), lasts)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Signed(signed.public_bytes(Encoding.PEM).decode(), private)

    @staticmethod
    def _builder(subject: x509.Name, lasts: timedelta) -> x509.CertificateBuilder:
        ends = datetime.now(UTC) + lasts
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - timedelta(days=2))
            .not_valid_after(ends)
        )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    others = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=signs, crl_sign=signs, **others)
