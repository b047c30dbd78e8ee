"""What can be looked at over the coordinator's port, by real requests: the page, the figures, and who may see them."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import loopback
from cast import study_of
from small_studies import KEY, federation_of, method_of, public_file
from unspoken.engines.network import page, tls
from unspoken.engines.network.door import CannotListen, Door
from unspoken.engines.network.frames import News
from unspoken.engines.network.metrics import metrics
from unspoken.engines.network.page import POLICY
from unspoken.engines.network.status import ParticipantStatus, Status
from unspoken.engines.network.window import Viewers
from unspoken.noise.stream import SecretStream

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


def network_of(public: Path) -> loopback.Loopback:
    method = method_of(study_of(public, "turns", "secagg+"))
    return loopback.Loopback(method, method.plan(), federation_of(method.study), SecretStream(KEY))


async def get(port: int, path: str, *, encrypted: bool = True, method: str = "GET", **headers: str) -> str:
    """A whole answer, as text."""
    context = tls.client_context(pinned=True) if encrypted else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    given = {"Host": f"127.0.0.1:{port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 300.0)
    writer.close()
    return answer.decode()


def served(public: Path, ask: Callable[[int], Awaitable[Any]], **options: Any) -> Any:
    """What is answered while nobody has joined yet."""
    network = network_of(public)

    async def play() -> Any:
        listening = await network.server.listen("127.0.0.1", 0, **options)
        try:
            return await ask(listening.sockets[0].getsockname()[1])
        finally:
            listening.close()
            await listening.wait_closed()

    return asyncio.run(play())


def test_the_page_says_who_is_there_how_far_it_is_and_what_was_promised(public: Path) -> None:
    network = network_of(public)
    seen: dict[str, str] = {}

    def look(news: News) -> None:
        seen.setdefault(news.stage, page.page(network.server.status))

    network.server._events.news = look
    network.server._until = -1e18
    news = network.server._news

    def always(stage: str, deadline: float) -> None:
        network.server._until = 0.0
        news(stage, deadline)

    network.server._news = always  # type: ignore[method-assign]
    asyncio.run(network.run([]))
    assert {"waiting", "vectors", "released"} <= seen.keys()
    plan = network.actors.coordinator.plan
    assert all(plan.guarantee.sentence()[:40] in each for each in seen.values())
    assert "Waiting for everyone to join" in seen["waiting"]
    assert ">6 of 6 are connected." in seen["vectors"]
    assert "party 0, party, connected" in seen["vectors"]
    assert f"turn 1 of {plan.sums[0].count}" in seen["vectors"]
    assert "6 of 6" in seen["released"]
    assert f"{network.server.relay.bytes:,} bytes" in seen["released"]
    assert "Time left" not in seen["released"]


def test_the_port_answers_a_page_figures_and_whether_it_lives(public: Path) -> None:
    async def ask(port: int) -> list[str]:
        return [await get(port, path) for path in ("/healthz", "/metrics", "/", "/nothing", "/?x=1")]

    health, figures, shown, nothing, query = served(public, ask)
    assert health.startswith("HTTP/1.1 200")
    assert health.endswith("\r\n\r\nok\n")
    assert 'unspoken_stage{stage="waiting"} 1' in figures
    assert 'unspoken_present{role="party"} 0' in figures
    assert shown.startswith("HTTP/1.1 200")
    assert f"Content-Security-Policy: {POLICY}" in shown
    assert nothing.startswith("HTTP/1.1 404")
    assert query.startswith("HTTP/1.1 200")


def test_nothing_can_be_changed(public: Path) -> None:
    async def ask(port: int) -> list[str]:
        return [await get(port, "/", method=method) for method in ("POST", "PUT", "DELETE", "HEAD")]

    *refused, head = served(public, ask)
    assert all(each.startswith("HTTP/1.1 405") for each in refused)
    assert head.startswith("HTTP/1.1 200")
    assert head.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("viewers", "encrypted", "headers", "is_shown"),
    [
        (None, True, {}, True),
        (None, False, {}, False),  # All of the world may be behind a proxy on this machine.
        ("here", False, {}, True),
        ("here", True, {"Host": "evil.example"}, False),
        ("here", True, {"Host": "localhost:1"}, True),
        ("here", True, {"X_Forwarded_For": "203.0.113.9"}, False),
        ("nobody", True, {}, False),
        ("anyone", True, {"Host": "hub.example.org", "X_Forwarded_For": "203.0.113.9"}, True),
    ],
)
def test_only_those_may_look_who_were_named(
    viewers: Viewers | None, encrypted: bool, headers: dict[str, str], is_shown: bool, public: Path
) -> None:
    async def ask(port: int) -> list[str]:
        return [await get(port, path, encrypted=encrypted, **headers) for path in ("/", "/metrics", "/healthz")]

    for answer in served(public, ask, encrypted=encrypted, viewers=viewers):
        assert answer.startswith("HTTP/1.1 200" if is_shown else "HTTP/1.1 403")


def hostile() -> Status:
    name = '<script>alert("x")</script>'
    news = News("vectors", 1, 2, 3.0, ("party:1",), 1, 2, 1, 2, 5)
    return Status(name, "ab" * 32, "promise", name, (ParticipantStatus(name, "party", True),), news, name, 1, "", 0)


def test_names_are_text_and_the_page_needs_nothing_from_elsewhere() -> None:
    shown = page.page(hostile())
    assert "alert" in shown
    assert "<script>alert" not in shown
    assert not re.search(r"https?://|src=|@import|url\(", shown)
    # The policy allows this style and this script by their digests, and nothing else.
    for kind in ("style", "script"):
        (found,) = re.findall(f"<{kind}>(.*?)</{kind}>", shown, re.DOTALL)
        assert f"{kind}-src '{page._digest(found)}'" in POLICY


def test_figures_are_in_the_format_of_prometheus() -> None:
    line = re.compile(r'^unspoken_[a-z_]+(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? -?[0-9.e+]+$')
    for each in metrics(hostile()).splitlines():
        assert each.startswith(("# HELP unspoken_", "# TYPE unspoken_")) or line.match(each), each


def test_bytes_and_survivors_do_not_move_within_a_stage(public: Path) -> None:
    """When a party's answer came is not told: how long it took may depend on its records."""
    network = network_of(public)
    watch, relay = network.server.watch, network.server.relay
    told: list[tuple[News, News]] = []
    arrived = relay.arrived

    def arriving(*given: Any) -> Any:
        before = watch.news([])
        found = arrived(*given)
        after = watch.news([])
        told.append((before, after))
        return found

    relay.arrived = arriving  # type: ignore[method-assign]
    asyncio.run(network.run([]))
    assert all((before.bytes, before.survivors) == (after.bytes, after.survivors) for before, after in told)
    assert len({before.bytes for before, _ in told}) > 2


def test_survivors_are_counted_when_a_stage_ends(public: Path) -> None:
    from small_studies import small

    method = method_of(small(public, "helmet", "classification", summation="secagg+", dropouts=2))
    network = loopback.Loopback(method, method.plan(), federation_of(method.study), SecretStream(KEY))
    asyncio.run(network.run([1, 3]))
    counted = network.actors.coordinator.totals.counted
    assert network.server.watch.news([]).survivors == int(next(iter(counted.values())).sum()) < 6


def test_a_port_that_is_taken_is_told_in_one_sentence() -> None:
    with Door("127.0.0.1", 0, 3) as door:
        port = door.getsockname()[1]
        with pytest.raises(CannotListen, match=rf":{port}: cannot be listened on \(Address already in use"):
            Door("127.0.0.1", port, 3)
    with pytest.raises(CannotListen, match="cannot be listened on"):
        Door("no.such.host.invalid", 1, 3)


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_browser_shows_the_page(encrypted: bool, public: Path, tmp_path: Path) -> None:
    """With the coordinator's own certificate, too: browsers know few kinds of keys."""

    async def ask(port: int) -> str:
        where = f"{'https' if encrypted else 'http'}://127.0.0.1:{port}/"
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", where]
        run = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=300)
        return run.stdout

    shown = served(public, ask, encrypted=encrypted, viewers="here")
    assert "Waiting for everyone to join" in shown
    assert "0 of 6 are connected." in shown


def test_the_certificate_has_a_key_that_browsers_know(public: Path) -> None:
    """They take no Ed25519; P-256 is known to all."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    async def ask(port: int) -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port), timeout=300.0)

    key = x509.load_pem_x509_certificate(served(public, ask).encode()).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
