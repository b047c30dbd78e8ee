"""Why a coordinator is not reached is told in words that help."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from network.test_coming_back import client_of
from unspoken.engines.network.client import CoordinatorAddress, Unreachable
from unspoken.engines.network.reasons import why

NOBODY = "nobody listens there; the coordinator may not have begun, or have another address"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_at_which_nobody_listens_is_told_so(host: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        client = client_of(bound.getsockname()[1], [], 0.0)
        client._coordinator = CoordinatorAddress(host, bound.getsockname()[1], "d" * 64)
        with pytest.raises(Unreachable) as raised:
            asyncio.run(asyncio.wait_for(client.run(), 300.0))
    assert f"not reached for 0 s ({NOBODY})" in str(raised.value)


def test_of_several_addresses_each_counts() -> None:
    refused = f"[Errno {errno.ECONNREFUSED}] Connect call failed ('::1', 1)"
    lost = f"[Errno {errno.ETIMEDOUT}] Connect call failed ('127.0.0.1', 1)"
    assert why(OSError(f"Multiple exceptions: {refused}, {refused}"), "localhost", True) == NOBODY
    assert lost in why(OSError(f"Multiple exceptions: {refused}, {lost}"), "localhost", True)


def test_a_name_that_no_machine_has_is_told_so() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert why(error, "hub.invalid", True) == "Name or service not known; the name of the machine may be wrong"
