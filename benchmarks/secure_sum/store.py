"""Claim: keeping all that must survive a crash costs less than a tenth of a secure sum.

One party of SecAgg+ and one compute node, with n parties and vectors of l numbers, each a whole role with its store on
disk. Everybody else is made up. The share is the time within the store over that of all else that the role does; of a
party without what it computes from its records. Both are processor seconds plus seconds by the clock, since a disk
takes time that no processor sees: run it on an idle machine. The folder is the system's for temporary files, unless
--folder names another.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.common import claim, conclude, options, say, show_table
from benchmarks.secure_sum.clients import neighbours_of_one
from unspoken.data.block import Block
from unspoken.methods.base import Sum
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.roles.file_store import FileStore
from unspoken.roles.helper import Helper
from unspoken.roles.messages import Assist, Carried, Over, ask_for
from unspoken.roles.party import Party
from unspoken.study import Study, make_study
from unspoken.summation.base import COORDINATOR, Envelope, Protocol
from unspoken.summation.keys import Identity
from unspoken.summation.simulated_keys import SimulatedEndpoints

LENGTH = 61_450
ATTEMPT = bytes(15) + b"1"


class Clock:
    """Seconds of the processor, and by the clock."""

    def __init__(self) -> None:
        self.processor = self.wall = 0.0

    def time(self, work: Callable[[], Any]) -> Any:
        wall, processor = time.perf_counter(), time.process_time()
        result = work()
        self.wall, self.processor = (
            self.wall + time.perf_counter() - wall,
            self.processor + time.process_time() - processor,
        )
        return result


class TimedStore(FileStore):
    """A store that knows how much time is spent in it."""

    def __init__(self, folder: Path, identity: Identity, role: str) -> None:
        self.clock = Clock()
        super().__init__(folder / f"{role}.journal", folder / f"{role}.witness", identity, "benchmark", role)

    def append(self, record: bytes) -> None:
        self.clock.time(lambda: super(TimedStore, self).append(record))

    def sync(self) -> None:
        self.clock.time(super().sync)

    def put(self, snapshot: bytes) -> None:
        self.clock.time(lambda: super(TimedStore, self).put(snapshot))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--folder", type=Path, help="where the stores are")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.parties, arguments.length = 50, 1000
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        say("compute node …")
        rows = {"compute node": time_node(arguments.parties, arguments.length, Path(folder))}
        say("party of SecAgg+ …")
        rows["party of SecAgg+"] = time_party(arguments.parties, arguments.length, Path(folder))
    result = {"parties": arguments.parties, "length": arguments.length, "roles": rows}
    result["claims"] = [
        claim(role.replace(" ", "_"), f"the store's time over that of a {role}", row["share"], at_most=0.1)
        for role, row in rows.items()
    ]
    conclude(arguments, result, show)


def study(parties: int, length: int, protocol: str) -> Study:
    return make_study(
        {
            "study": {"name": "benchmark", "task": "statistics"},
            "data": {"features": length, "norm": 1.0},
            "parties": {"count": parties, "records": 1, "max_records": 1},
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "colluding": 0.5, "dropouts": 0.05},
            "method": {"name": "moments", "function": "mean"},
            "summation": {"protocol": protocol},
        }
    )


def shares_of(whole: Clock, store: TimedStore) -> dict[str, float]:
    rest = whole.processor - store.clock.processor, whole.wall - store.clock.wall
    kept = store.clock.processor, store.clock.wall
    return {
        "processor": rest[0],
        "wall": rest[1],
        "store_processor": kept[0],
        "store_wall": kept[1],
        "share": sum(kept) / sum(rest),
    }


def time_node(parties: int, length: int, folder: Path) -> dict[str, float]:
    """The first of three compute nodes through a whole sum."""
    method = method_for(study(parties, length, "compute-nodes"))
    plan = method.plan()
    planned = plan.sums[0]
    endpoints: SimulatedEndpoints[Protocol] = SimulatedEndpoints(plan.protocol(planned, 0, ATTEMPT), SecretStream())
    keys, coordinator = endpoints.keys, endpoints.coordinator()
    list(keys.roster.parties)  # makes them all before the clock starts
    store, whole = TimedStore(folder, keys.helper(0), "node:0"), Clock()
    node = Helper(plan, 0, keys.helper(0), keys.roster, store=store)
    others = {address: endpoint for address, endpoint in endpoints.helpers().items() if address != "node:0"}

    def deliver(envelopes: list[Envelope]) -> None:
        waiting = list(envelopes)
        while waiting:
            to, body = waiting.pop(0)
            if to == COORDINATOR:
                waiting += coordinator.step(body)
            elif to in others:
                waiting += others[to].step(body)
            else:
                incoming = msgspec.msgpack.encode(Carried(ATTEMPT, memoryview(body)))
                answers: list[Envelope] = whole.time(lambda taken=incoming: node.receive(taken))
                waiting += [Envelope(to, bytes(_body(answer))) for to, answer in answers]

    whole.time(lambda: node.receive(msgspec.msgpack.encode(Assist(ATTEMPT, "sum", planned.name, 0))))
    vector = np.zeros(planned.length, dtype=np.uint64)
    for index in range(parties):
        deliver(endpoints.party(index, SecretStream()).submit(vector))
    for closing in (coordinator.settle, coordinator.agree, coordinator.finish):
        deliver(closing())
    coordinator.total()
    whole.time(lambda: node.receive(msgspec.msgpack.encode(Over(ATTEMPT))))
    store.close()
    return shares_of(whole, store)


def _body(message: bytes) -> memoryview:
    return msgspec.msgpack.decode(message, type=Carried).body


def time_party(parties: int, length: int, folder: Path) -> dict[str, float]:
    """One party through all rounds."""
    method = method_for(study(parties, length, "secagg+"))
    plan = method.plan()
    protocol: Any = plan.protocol(plan.sums[0], 0, ATTEMPT)
    endpoints: SimulatedEndpoints[Any] = SimulatedEndpoints(protocol, SecretStream())
    keys, records = endpoints.keys, Clock()
    list(keys.roster.parties)
    contribute = method.contribute

    def timed(*given: Any) -> Any:
        return records.time(lambda: contribute(*given))

    method.contribute = timed  # type: ignore[method-assign]
    store, whole = TimedStore(folder, keys.identity(0), "party:0"), Clock()
    block = Block(np.zeros((1, 1, length)), np.zeros((1, 1)), np.array([1]))
    party = Party(method, block, keys.identity(0), keys.roster, plan=plan, store=store)

    def step(body: bytes) -> list[Envelope]:
        message: Any = Carried(ATTEMPT, memoryview(body)) if body else ask_for(Sum(plan.sums[0].name), 0, ATTEMPT)
        incoming = msgspec.msgpack.encode(message)
        answers: list[Envelope] = whole.time(lambda: party.receive(incoming))
        return [Envelope(to, bytes(_body(answer))) for to, answer in answers]

    neighbours_of_one(endpoints, step)
    whole.time(lambda: party.receive(msgspec.msgpack.encode(Over(ATTEMPT))))
    store.close()
    whole.processor, whole.wall = whole.processor - records.processor, whole.wall - records.wall
    return shares_of(whole, store)


def show(result: dict[str, Any]) -> None:
    print(f"{result['parties']} parties, {result['length']} numbers\n")
    rows = [
        (role, *(f"{row[name]:.4f}" for name in ("processor", "wall", "store_processor", "store_wall", "share")))
        for role, row in result["roles"].items()
    ]
    show_table(("role", "processor", "wall", "store: processor", "wall", "share"), rows)


if __name__ == "__main__":
    main()
