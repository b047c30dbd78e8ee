"""Studies through proxies: the totals are those of honest runs, and who is kept out is told why."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import loopback
from cast import study_of
from network.proxies import NGINX, Authority, ConnectProxy, Proxy, TerminatingProxy
from network.test_server import honest, made
from network.test_window import get
from small_studies import public_file
from unspoken.engines.network.client import Client, CoordinatorAddress, Unreachable
from unspoken.engines.network.door import Door
from unspoken.engines.network.hosts import BadProxy
from unspoken.errors import UnspokenError

NGINX_PROGRAM = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def studied(public: Path, proxy: Proxy | None, meanwhile: Callable[[int], Awaitable[int]]) -> None:
    """A study whose clients are told another port or another way."""
    network, recording = made(study_of(public, "turns", "secagg+"))

    async def play() -> None:
        try:
            await network.run([], meanwhile)
        finally:
            if proxy is not None:
                await proxy.stop()

    asyncio.run(play())
    assert recording.answers == honest(public, "turns", "secagg+")


def test_a_study_goes_through_a_proxy_that_wants_connect(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = ConnectProxy()

    async def meanwhile(port: int) -> int:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{await proxy.start()}")
        return port

    studied(public, proxy, meanwhile)
    assert proxy.passed >= 6
    assert all(asked.startswith("CONNECT 127.0.0.1:") for asked in proxy.asked)


def test_no_proxy_is_heeded(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = ConnectProxy(allows=False)

    async def meanwhile(port: int) -> int:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{await proxy.start()}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        return port

    studied(public, proxy, meanwhile)
    assert not proxy.asked


@pytest.mark.parametrize(
    ("is_there", "reason"),
    [
        (True, "HTTP 403; ask who runs the proxy in https_proxy to allow CONNECT, or set no_proxy"),
        (False, "by way of the proxy in https_proxy"),
    ],
)
def test_a_proxy_that_does_not_let_through_is_told_with_the_remedy(
    is_there: bool, reason: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    role: Any = network.actors.parties["party:0"]

    async def play() -> None:
        proxy = ConnectProxy(allows=False)
        port = await proxy.start()
        if not is_there:
            await proxy.stop()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        where = CoordinatorAddress("127.0.0.1", 9, "00" * 32)
        client = Client(role, network.study, network.keys.identity(0), network.keys.roster, where, patience=0.0)
        with pytest.raises(Unreachable, match=reason):
            await client.run()
        if is_there:
            await proxy.stop()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("nonsense", r"https_proxy names no proxy \(scheme  isn't supported\)"),
        ("http://me:secret@127.0.0.1:abc", "https_proxy names no proxy; it should be one such as"),
        ("http://me@127.0.0.1:9", r"names no proxy \(username provided without password\)"),
        ("socks5://127.0.0.1:9", "is a SOCKS proxy, which needs the package python-socks"),
    ],
)
def test_a_proxy_that_cannot_be_is_a_mistake_that_is_told_at_once(
    proxy: str, reason: str, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    network, _ = made(study_of(public, "turns", "secagg+"))
    role: Any = network.actors.parties["party:0"]
    monkeypatch.setenv("https_proxy", proxy)
    client = Client(
        role,
        network.study,
        network.keys.identity(0),
        network.keys.roster,
        CoordinatorAddress("127.0.0.1", 9, "00" * 32),
    )
    with pytest.raises(BadProxy, match=reason) as told:
        asyncio.run(client.run())
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "::zz", "hub?x#y", ""])
def test_a_name_that_no_machine_has_is_a_mistake(host: str) -> None:
    with pytest.raises(UnspokenError, match="is no name of a machine"):
        CoordinatorAddress(host, 8765)
    with pytest.raises(UnspokenError, match="is no name of a machine"):
        Door(host, 0, 1)


def behind_a_proxy(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    """As `roster --behind-proxy` and `serve --plain`: no certificate is pinned, and the coordinator has no TLS."""
    from unspoken.engines.network import server

    listen = server.Server.listen
    monkeypatch.setattr(server.Server, "listen", lambda self, host, port: listen(self, host, port, encrypted=False))
    monkeypatch.setattr(loopback, "CoordinatorAddress", lambda host, port, pinned: CoordinatorAddress(host, port))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))


def test_a_study_goes_through_a_proxy_that_ends_tls(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    behind_a_proxy(monkeypatch, authority)
    proxies: list[TerminatingProxy] = []
    seen: list[str] = []

    async def meanwhile(port: int) -> int:
        proxies.append(TerminatingProxy(port))
        front = await proxies[0].start(authority.context)
        # Whoever asks the proxy seems to be on this machine: nothing is shown.
        seen.append(await get(port, "/", encrypted=False))
        return front

    network, recording = made(study_of(public, "turns", "secagg+"))

    async def play() -> None:
        await network.run([], meanwhile)
        await proxies[0].stop()

    asyncio.run(play())
    assert recording.answers == honest(public, "turns", "secagg+")
    assert proxies[0].passed >= 6
    assert seen[0].startswith("HTTP/1.1 403")


def test_a_certificate_of_nobody_s_is_refused_with_the_reason(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy in front without an authority's certificate, or with one that this machine does not trust."""
    authority = Authority(tmp_path)
    network, _ = made(study_of(public, "turns", "secagg+"))
    role: Any = network.actors.parties["party:0"]

    async def play() -> None:
        proxy = TerminatingProxy(9)
        where = CoordinatorAddress("127.0.0.1", await proxy.start(authority.context))
        client = Client(role, network.study, network.keys.identity(0), network.keys.roster, where, patience=0.0)
        with pytest.raises(Unreachable, match="an authority must have signed it"):
            await client.run()
        assert not proxy.passed
        await proxy.stop()

    asyncio.run(play())


def test_a_proxy_in_front_of_no_coordinator_is_told_from_another_web_server(public: Path) -> None:
    network, _ = made(study_of(public, "turns", "secagg+"))
    role: Any = network.actors.parties["party:0"]

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def play() -> None:
        async with await asyncio.start_server(refuses, "127.0.0.1", 0) as front:
            where = CoordinatorAddress("127.0.0.1", front.sockets[0].getsockname()[1], encrypted=False)
            client = Client(role, network.study, network.keys.identity(0), network.keys.roster, where, patience=0.0)
            with pytest.raises(Unreachable, match="the proxy in front of the coordinator does not reach it"):
                await client.run()

    asyncio.run(play())


@pytest.mark.skipif(NGINX_PROGRAM is None, reason="needs nginx")
def test_a_study_goes_through_nginx(public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    behind_a_proxy(monkeypatch, authority)
    programs: list[subprocess.Popen[bytes]] = []

    async def meanwhile(behind: int) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        text = NGINX.format(
            folder=tmp_path, port=port, behind=behind, certificate=authority.certificate, key=authority.key
        )
        (tmp_path / "nginx.conf").write_text(text)
        command = [str(NGINX_PROGRAM), "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-e", "stderr"]
        programs.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return port
            except OSError:
                await asyncio.sleep(0.02)
        raise AssertionError((tmp_path / "error.log").read_text())

    try:
        studied(public, None, meanwhile)
    finally:
        for program in programs:
            program.terminate()
            program.wait(20)
