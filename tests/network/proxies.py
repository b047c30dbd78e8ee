"""Proxies as sites have them, on this machine: one that wants CONNECT, and one that ends TLS with a certificate of an
authority."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Proxy:
    """Passes bytes on. What it does with the first ones is for others to say."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.passed = 0
        """The number of connections that were made through it"""

    async def start(self, context: ssl.SSLContext | None = None) -> int:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=context)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            port = await self._destination(reader, writer)
            if port:
                self.passed += 1
                away_reader, away_writer = await asyncio.open_connection("127.0.0.1", port)
                pumps = [
                    asyncio.create_task(self._pump(reader, away_writer)),
                    asyncio.create_task(self._pump(away_reader, writer)),
                ]
                self._tasks.update(pumps)
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                away_writer.transport.abort()
        writer.transport.abort()

    async def _destination(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        raise NotImplementedError

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await reader.read(1 << 16):
                writer.write(content)
                await writer.drain()


class ConnectProxy(Proxy):
    """An HTTP proxy that lets nothing through but by CONNECT, to this machine; or nothing at all."""

    def __init__(self, *, allows: bool = True) -> None:
        super().__init__()
        self._allows, self.asked = allows, list[str]()

    async def _destination(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        self.asked.append(f"{method} {target}")
        if method != "CONNECT" or not self._allows:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return 0
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        return int(target.rpartition(":")[2])


class TerminatingProxy(Proxy):
    """Ends TLS, and speaks without it to the coordinator behind it."""

    def __init__(self, behind: int) -> None:
        super().__init__()
        self._behind = behind

    async def _destination(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        return self._behind


class Authority:
    """Signs a certificate for this machine."""

    def __init__(self, folder: Path) -> None:
        self.file, self.certificate, self.key = folder / "ca.pem", folder / "hub.pem", folder / "hub.key"
        own, hub = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = self._made("an authority of the tests", own, own, "an authority of the tests", is_authority=True)
        leaf = self._made("127.0.0.1", hub, own, "an authority of the tests", is_authority=False)
        pem = serialization.Encoding.PEM
        self.file.write_bytes(ca.public_bytes(pem))
        self.certificate.write_bytes(leaf.public_bytes(pem))
        plain = serialization.NoEncryption()
        self.key.write_bytes(hub.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))

    def _made(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        signer: ec.EllipticCurvePrivateKey,
        issuer: str,
        *,
        is_authority: bool,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(here, critical=False)
            .sign(signer, hashes.SHA256())
        )

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log warn; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
    location / {{
      proxy_pass http://127.0.0.1:{behind};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_read_timeout 60s;
    }}
    location /metrics {{ return 403; }}
  }}
}}
"""
"""As in docs/network.md"""
