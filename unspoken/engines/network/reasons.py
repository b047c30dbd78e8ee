"""Why a coordinator is not reached, with what a person can do about it."""

from __future__ import annotations

import errno
import socket
import ssl
from urllib.request import getproxies, proxy_bypass

from websockets.exceptions import InvalidMessage, InvalidProxyStatus, InvalidStatus, ProxyError


def why(error: Exception, host: str, encrypted: bool) -> str:
    """What went wrong with a connection to a host that was meant to be encrypted, or not."""
    said = str(error).rstrip(".") or type(error).__name__
    match error:
        case InvalidProxyStatus():
            return f"{said}; ask who runs the proxy in https_proxy to allow CONNECT, or set no_proxy"
        case ProxyError():
            return f"{said}; the proxy is the one in https_proxy"
        case ssl.SSLCertVerificationError():
            return f"{said}; the roster names no certificate, so an authority must have signed it"
        case ssl.SSLError() if any(sign in said for sign in ("WRONG_VERSION", "RECORD_LAYER", "wrong version")):
            return f"{said}; there seems to be no TLS at this port: --plain, if that is meant"
        case ConnectionResetError() if encrypted:
            return f"{said}; if this goes on, there may be no TLS at this port: --plain, if that is meant"
        case InvalidMessage() if not encrypted:
            return f"{said}; the port may want TLS: leave out --plain"
        case InvalidStatus(response=response) if response.status_code in (502, 503, 504):
            return f"{said}; the proxy in front of the coordinator does not reach it: it may not have begun"
        case InvalidStatus():
            return f"{said}; this is a web server, but no coordinator"
        case OSError() if getproxies().get("https") and not proxy_bypass(host):
            return f"{said}; by way of the proxy in https_proxy"
        case socket.gaierror():
            return f"{error.strerror}; the name of the machine may be wrong"
        case OSError() if _is_refused(said):
            return "nobody listens there; the coordinator may not have begun, or have another address"
    return said


def _is_refused(said: str) -> bool:
    """Whether all addresses of a host, one or more, refuse a connection. Of several, asyncio has their texts alone."""
    return 0 < said.count("[Errno ") == said.count(f"[Errno {errno.ECONNREFUSED}]")
