"""The connection to a Ray cluster: one that runs already, or one that is started on this machine and stopped again.

A cluster of our own listens on this machine's loopback addresses only, takes work only from who has its token, has no
dashboard, and reports nothing to anybody. Its processes are children of this one and end with it. (If this process is
killed, Ray's own would take a minute or two to notice, and the cluster's folder would stay. Ray itself kills this
process if a raylet is lost. So somebody waits for its end, ends what is left and removes the folder: a small process
(`cleaner`), or on the command line a parent that says how the command has ended (`cli.apart`).)
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unspoken.engines.answering import HelperLost
from unspoken.engines.cluster.cleaner import GOES_ON, cleaned_up, end_failed, remove
from unspoken.engines.cluster.signals import FOLDER, ends_cleanly, signals_later
from unspoken.engines.environment import environment
from unspoken.errors import UnspokenError, missing_package

_SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""It reports nothing to its makers, and says nothing on the terminal"""
_INTERFACES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Despite its name, it decides whether all interfaces are listened on"""
_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"[^:/]+:\d+|\[[^\]/]+\]:\d+")
_MOST_PORTS = 65535
_RETRIES = 5
"""How often a task is done again whose process or machine was lost"""
_ANSWERING = 10.0
"""The seconds within which a cluster's head must answer"""
_STRANGER = "InvalidAuthToken"
"""What Ray says if a token is wrong or missing"""
_UNREADABLE = "RAY_AUTH_TOKEN_PATH is set"
"""What Ray says if the token's file that the environment names cannot be read, or has none"""
_STARTS = 3
"""How often a cluster is tried to be started"""


class ClusterLost(UnspokenError):
    """The cluster was lost, and retrying did not help."""

    exit_status = 3


def ray() -> Any:
    """The `ray` package, imported late because that takes long. The environment variables for a cluster must be set
    before."""
    try:
        import ray as package
    except ImportError:
        raise missing_package("the engine ray", "ray", "ray") from None
    return package


def check_version(started_by: str) -> None:
    """Refuse to work for another version of this package: its results could differ."""
    if started_by != (here := version("unspoken")):
        raise UnspokenError(
            f"a machine of the cluster has unspoken {here}, but the run was started by {started_by}; install the same "
            "version everywhere."
        )


class Cluster:
    """A cluster that this process is connected to."""

    def __init__(self) -> None:
        self.cpus = max(1, int(ray().cluster_resources().get("CPU", 1)))
        self._actors: dict[int, Any] = {}
        self._tasks: dict[Callable[..., Any], Any] = {}

    def task(self, function: Callable[..., Any], results: int = 1) -> Any:
        """A function as a task with so many results. If its process or its machine is lost, it is done again."""
        if function not in self._tasks:
            self._tasks[function] = ray().remote(num_cpus=1, max_retries=_RETRIES)(function)
        return self._tasks[function].options(num_returns=results)

    def actor(self, number: int, kind: type[Any]) -> Any:
        """The actor of this number. It stays for later attempts, as a process takes seconds to begin."""
        if number not in self._actors:
            made = ray().remote(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")(kind)
            self._actors[number] = made.remote()
        return self._actors[number]

    def dismiss(self) -> None:
        """End all actors, and whatever they do."""
        for actor in self._actors.values():
            ray().kill(actor)
        self._actors = {}

    def put(self, value: Any) -> Any:
        """Put an object into the store, once for all who need it."""
        return ray().put(value)

    def got(self, reference: Any) -> Any:
        """The object behind a reference. What failed in a task fails here, in the same way."""
        errors = ray().exceptions
        try:
            return ray().get(reference)
        except errors.RayTaskError as error:
            cause = error.cause
            known = isinstance(cause, Exception) and not isinstance(cause, errors.RayError)
            raise (cause if known else ClusterLost(_lost(error))) from None
        except errors.RayActorError as error:
            self.dismiss()
            raise HelperLost(
                f"a helper's process on the cluster was lost again and again ({_first_line(error)}); see to its "
                "machines, or to their memory."
            ) from None
        except errors.RayError as error:
            raise ClusterLost(_lost(error)) from None


def _lost(error: Exception) -> str:
    return (
        f"the cluster could not finish the work, although it tried several times ({_first_line(error)}); see to its "
        f"machines, and run the same command again: {GOES_ON}."
    )


def _first_line(error: Exception) -> str:
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")[:200]


@contextmanager
def connected(address: str | None = None, workers: int | None = None) -> Iterator[Cluster]:
    """Be connected to the cluster at an address, or to a new one of so many workers (by default one for each core).

    Within a connection this is the same one. Who is connected by other means keeps that connection, too. Threads take
    turns: a process has one connection, whose helpers serve one run at a time.
    """
    if address is not None and address != "auto":
        _check_form(address)
    with _turn:
        if _connections:
            yield _connections[-1]
            return
        with ExitStack() as stack:
            if not _is_connected():
                stack.enter_context(_own(workers) if address is None else _joined(address))
            elif address is not None:
                _check_same(address)
            _connections.append(Cluster())
            try:
                yield _connections[-1]
            finally:
                _connections.pop().dismiss()


_turn = threading.RLock()
_connections: list[Cluster] = []
"""The connection of this process, while there is one"""


def _is_connected() -> bool:
    return "ray" in sys.modules and bool(ray().is_initialized())


def _check_form(address: str) -> None:
    if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > _MOST_PORTS:
        raise UnspokenError(
            f'the address is "{address}", but should be HOST:PORT of the cluster\'s head, or auto; run this on one of '
            "the cluster's machines."
        )


def _check_same(address: str) -> None:
    """Refuse an address if this program is connected to another cluster already, by `ray.init`."""
    current: str = ray().get_runtime_context().gcs_address
    if address != "auto" and not _is_same(address, current):
        raise UnspokenError(
            f'address is "{address}", but this program is connected to the cluster at {current}; leave the address out '
            "to use that one, or call ray.shutdown() first."
        )


def _is_same(one: str, other: str) -> bool:
    """Whether two addresses may be the same cluster's: a machine has several names.

    >>> _is_same("localhost:6379", "192.0.2.1:6379"), _is_same("127.0.0.1:6380", "127.0.0.1:6379")
    (True, False)
    """
    if _is_loopback(one) or _is_loopback(other):
        return one.rpartition(":")[2] == other.rpartition(":")[2]
    return one == other


@contextmanager
def _joined(address: str) -> Iterator[None]:
    with _environment(_SILENT), ends_cleanly(ray()), ExitStack() as stack:
        named = f'address is "{address}"'
        try:
            found = _found(address)
            named += f", which is {found}" if found != address else ""
            if _is_loopback(found):
                stack.enter_context(_environment({_INTERFACES: "0"}))
            _check_answers(found)
            ray().init(address=found, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray's own are of no kind in particular
            raise _not_joined(named, error) from None
        try:
            yield
        finally:
            ray().shutdown()


def _not_joined(named: str, error: Exception) -> UnspokenError:
    if _STRANGER in str(error):
        return UnspokenError(
            f"{named}, but that cluster takes work only from those who have its token; set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a copy of the token's file (~/.ray/auth_token where the cluster was started)."
        )
    if _UNREADABLE in str(error):
        file = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
        return UnspokenError(
            f'{named}, but RAY_AUTH_TOKEN_PATH is "{file}", and no token can be read from it; let it name a copy of '
            "the token's file (~/.ray/auth_token where the cluster was started)."
        )
    return UnspokenError(
        f"{named}, but no cluster answers there ({_first_line(error)}); start one as docs/engines.md says, or leave "
        "the address out."
    )


def _found(address: str) -> str:
    """The HOST:PORT that an address means. `auto` is what $RAY_ADDRESS says, or a cluster of this machine."""
    if address != "auto":
        return address
    services: Any = import_module("ray._private.services")
    found: str = services.get_ray_address_from_environment(address, None)
    _check_form(found)
    return found


def _is_loopback(address: str) -> bool:
    """Whether an address is this machine's own. Ray would look for it at another one of the machine's.

    >>> _is_loopback("127.0.0.1:6379"), _is_loopback("localhost:6379"), _is_loopback("10.0.0.1:6379")
    (True, True, False)
    """
    host = address.rpartition(":")[0].strip("[]")
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _check_answers(address: str) -> None:
    """Raise what keeps this machine from talking to a cluster at an address. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _ANSWERING).close()
    with _environment({"RAY_py_gcs_connect_timeout_s": str(round(_ANSWERING))}):
        _check_token()
        # Something listens there: is it a cluster? Several attempts of some seconds each are made.
        import_module("ray._raylet").GcsClient(address=address)


def _check_token() -> None:
    """Raise if a token is asked for and there is none. Ray itself would end this process."""
    with suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        is_asked_for = raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
        if is_asked_for and not raylet.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
            raise RuntimeError(_STRANGER)


@contextmanager
def _own(workers: int | None) -> Iterator[None]:
    """A cluster on this machine, for as long as it is needed."""
    # Ray lets everyone write to its folder, so that has a parent for its owner alone. Sockets have short paths.
    given = os.environ.pop(FOLDER, "")
    parent = Path(given or tempfile.mkdtemp(prefix="unspoken-"))
    folder, token = parent / "r", parent / "token"
    file = os.open(token, os.O_CREAT | os.O_WRONLY, 0o600)
    with os.fdopen(file, "w") as written:
        written.write(secrets.token_hex(32))
    own = {
        **_SILENT,
        _INTERFACES: "0",
        # A busy machine may take long.
        "RAY_gcs_server_port_wait_time_s": "120",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # Workers find what this process can import.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    try:
        with nullcontext() if given else cleaned_up(parent) as cleaner, _environment(own), ends_cleanly(ray()):
            try:
                _start(folder, workers)
                if cleaner is not None:
                    cleaner.started()
                yield
            finally:
                with signals_later():
                    ray().shutdown()
    finally:
        with signals_later():
            remove(parent)


def _start(folder: Path, workers: int | None) -> None:
    """Start a cluster, and try again if that fails: Ray waits 30 seconds, and a busy machine may take longer."""
    for left in reversed(range(_STARTS)):
        with signals_later():  # and not once more after one of them
            try:
                _started(folder, workers)
                return
            except Exception as error:  # Ray's own are of no kind in particular
                ray().shutdown()
                end_failed(folder)  # Ray leaves what it had started.
                if not left:
                    raise UnspokenError(
                        f"a Ray cluster could not be started on this machine ({_first_line(error)}); see that it is "
                        f"not too busy and that {tempfile.gettempdir()} has room, or name a cluster with --address."
                    ) from None


def _started(folder: Path, workers: int | None) -> None:
    ray().init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=str(folder),
        _node_ip_address=_LOOPBACK,
    )
    if any(node["NodeManagerAddress"] != _LOOPBACK for node in ray().nodes()):
        raise RuntimeError(f"it does not keep to {_LOOPBACK}")


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Environment variables, for a while, which Ray knows of."""
    try:
        with environment(wanted):
            _refresh()
            yield
    finally:
        _refresh()


def _refresh() -> None:
    """Ray reads some variables when it is imported. If it was, it reads them again."""
    if "ray" not in sys.modules:
        return
    with suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
    with suppress(ImportError):
        constants: Any = import_module("ray._private.ray_constants")
        constants.ENABLE_RAY_CLUSTER = os.environ.get(_INTERFACES) != "0"
