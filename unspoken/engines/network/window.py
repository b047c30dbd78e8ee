"""What may be looked at over the coordinator's own port: a page for people, figures for Prometheus, and /healthz.

All are read-only. By default they are for this machine alone: the connection must come from it, and its Host header
must name it, so that a web page of another site cannot make a browser on this machine read them under the site's own
name (DNS rebinding). Requests through a proxy on this machine would look local, so behind a proxy nothing is shown
unless that is asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from unspoken.engines.network import metrics, page
from unspoken.engines.network.status import Status

Viewers = Literal["nobody", "here", "anyone"]
"""Who may look: nobody, browsers and programs on the coordinator's machine, or anyone who reaches the port"""
_FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP")
_TEXT = "text/plain; charset=utf-8"


class Window:
    """Answers requests that are no WebSocket's."""

    def __init__(self, status: Callable[[], Status], viewers: Viewers) -> None:
        self._status, self._viewers = status, viewers

    def look(self, connection: ServerConnection, request: Request) -> Response | None:
        """The answer to a request; nothing for a WebSocket, which goes on to sign in."""
        if any("websocket" in value.lower() for value in request.headers.get_all("Upgrade")):
            return None
        # Old versions of the library take no other method.
        method = getattr(request, "method", "GET")
        if method not in ("GET", "HEAD"):
            answer = _answer(HTTPStatus.METHOD_NOT_ALLOWED, "Nothing can be changed here: only GET is answered.\n")
            answer.headers["Allow"] = "GET, HEAD"
        elif not self._may_look(connection.remote_address, request.headers):
            answer = _answer(HTTPStatus.FORBIDDEN, "This is not shown to you (see the option --page of serve).\n")
        else:
            answer = self._found(request.path.partition("?")[0])
        if method == "HEAD":
            answer.body = b""
        return answer

    def _found(self, path: str) -> Response:
        match path:
            case "/healthz":
                return _answer(HTTPStatus.OK, "ok\n")
            case "/metrics":
                return _answer(HTTPStatus.OK, metrics.metrics(self._status()), metrics.CONTENT_TYPE)
            case "/":
                return _answer(HTTPStatus.OK, page.page(self._status()), "text/html; charset=utf-8")
            case _:
                return _answer(HTTPStatus.NOT_FOUND, "There are only /, /metrics and /healthz here.\n")

    def _may_look(self, place: Any, headers: Headers) -> bool:
        if self._viewers != "here":
            return self._viewers == "anyone"
        hosts = headers.get_all("Host")
        return (
            bool(place)
            and _is_here(str(place[0]))
            and len(hosts) == 1
            and _is_here(_host(hosts[0]))
            and not any(name in headers for name in _FORWARDED)
        )


def _host(header: str) -> str:
    """The host of a Host header, without its port.

    >>> _host("localhost:8765"), _host("[::1]:8765"), _host("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_here(host: str) -> bool:
    """Whether this is a name or an address of this machine itself.

    >>> [_is_here(host) for host in ("localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "evil.example")]
    [True, True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _answer(status: HTTPStatus, text: str, kind: str = _TEXT) -> Response:
    body = text.encode()
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": page.POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Connection": "close",
        }
    )
    return Response(status.value, status.phrase, headers, body)
