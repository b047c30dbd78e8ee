"""Names of hosts, and proxies that the environment names, as people may have typed them."""

from __future__ import annotations

import ipaddress

from websockets.exceptions import InvalidProxy

from unspoken.errors import UnspokenError


class BadProxy(UnspokenError):
    """The environment names a proxy that cannot be used."""


def is_host(host: str) -> bool:
    """Whether this can be the name or the address of a machine.

    >>> [is_host(host) for host in ("hub.example.org", "müller.example", "::1", "10.0.0.1")]
    [True, True, True, True]
    >>> [is_host(host) for host in ("", "a..b", "a" * 64, "::zz", "user@hub", "hub/path", "hub?x")]
    [False, False, False, False, False, False, False]
    """
    try:
        if ":" in host:
            return bool(ipaddress.IPv6Address(host))
        host.removesuffix(".").encode("idna")
    except ValueError:
        return False
    return bool(host) and not set(host) & set(" /@?#[]\\%") and host.isprintable()


def bad_proxy(error: Exception) -> BadProxy:
    """What is wrong with the proxy. Its address is not told, as a password may be in it."""
    if isinstance(error, ImportError):
        return BadProxy(
            "the proxy in https_proxy is a SOCKS proxy, which needs the package python-socks; name an HTTP proxy, such "
            "as http://proxy.example.org:3128, or set no_proxy for the coordinator's host."
        )
    why = f" ({error.args[1]})" if isinstance(error, InvalidProxy) and len(error.args) > 1 else ""
    return BadProxy(
        f"https_proxy names no proxy{why}; it should be one such as http://proxy.example.org:3128, or set no_proxy for "
        "the coordinator's host."
    )
