"""What must hold after a run with a fault: of what left and arrived, of totals, ledgers and certificates."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from network.faults import Run, World
from unspoken.engines.signing import canonical

_FULL = ("could not be kept (", "cannot be written to", "disk is full", "disk I/O error")
"""What a process says whose disk takes no more"""


def outcome_of(run: Run) -> str:
    """How the run ended: released, aborted, or abandoned (the coordinator is gone for good)."""
    coordinator = run.programs["coordinator"]
    if coordinator.status == 0:
        return "released"
    return "aborted" if coordinator.status == 3 else "abandoned"


def check(run: Run) -> None:
    """All that must hold however it ended."""
    _check_ends(run)
    told = [entry for program in run.programs.values() for entry in program.told()]
    opened = [entry["opened"] for entry in told if "opened" in entry]
    totals = [entry for entry in told if "total" in entry]
    added = [entry["total"] for entry in totals]
    assert len(set(opened)) == len(opened), run.told("an attempt was opened twice")
    assert opened == sorted(opened), run.told("attempts do not grow")
    assert len(set(added)) == len(added), run.told("an attempt has two totals")
    least = run.world.least(run.study)
    assert all((entry["fewest"] or least) >= least for entry in totals), run.told("a total of too few parties")
    left = set[str]()
    for index in range(World.parties(run.fault.scene)):
        arrived = {entry["arrived"] for entry in told if entry.get("from") == f"party:{index}"}
        left |= _check_ledger(run, index, arrived, set(opened[-1:]))
    if outcome_of(run) == "released":
        content = json.loads(next((run.programs["coordinator"].home / "out").glob("*.certificate.json")).read_text())
        assert content["happened"]["attempts"] >= len(left), run.told("the certificate forgets an attempt")
        assert content["happened"]["survivors"] >= least, run.told("released below the threshold")
        assert len(list((run.programs["coordinator"].home / "out").glob("*.certificate.json"))) == 1
        _check_results(run, content)


def _check_results(run: Run, content: dict[str, Any]) -> None:
    """Whoever says that it has the result has the coordinator's, and what it has is signed as it is."""
    (model,) = (run.programs["coordinator"].home / "out").glob("*.model.*")
    for name, program in run.programs.items():
        if not name.startswith("party") or program.status != 0:
            continue
        files = json.loads(program.out.content)["files"]
        assert Path(files["model"]).read_bytes() == model.read_bytes(), run.told(f"{name} has another model")
        found = json.loads(Path(files["certificate"]).read_text())
        assert canonical(found) == canonical(content), run.told(f"{name} has another certificate")
        assert "coordinator" in {each["address"] for each in found["signatures"]}, run.told(f"{name} has no signature")


def _check_ledger(run: Run, index: int, arrived: set[str], last: set[str]) -> set[str]:
    """Exactly one charge for each attempt in which the party's vector left. Returns those."""
    program = run.programs[f"party {index}"]
    left = {entry["vector"] for entry in program.told() if "vector" in entry}
    charges = Counter[str]()
    if (file := program.home / "ledger.sqlite").exists():
        with sqlite3.connect(file) as base:
            if base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for (content,) in base.execute("SELECT content FROM pages"):
                    page = json.loads(content)
                    if "attempt" in page:
                        charges[page["attempt"]] += 1
        base.close()
    assert arrived <= left, run.told(f"something of party {index} arrived that never left")
    assert left <= charges.keys(), run.told(f"the ledger of party {index} misses {left - charges.keys()}")
    assert all(count == 1 for count in charges.values()), run.told(f"party {index} was charged twice: {charges}")
    # A charge stays if the process was stopped before the vector left, or if the coordinator began again meanwhile, or
    # if the study ended while a slow party was about to send.
    excuses = program.starts - 1 + run.programs["coordinator"].starts - 1
    excuses += (run.fault.victim in (program.name, "coordinator")) and run.struck
    assert len(charges.keys() - left - last) <= excuses, run.told(
        f"party {index} was charged for nothing: {charges}, {left}"
    )
    return left


def _check_ends(run: Run) -> None:
    """Every process ended by a reason that it told."""
    fault = run.fault
    for program in run.programs.values():
        is_victim = program.name == fault.victim and run.struck
        out, err = program.out.content.decode(), program.err.content.decode(errors="replace")
        assert "Traceback" not in err, run.told(f"{program.name} fell over")
        if program.status is None or program.status == -signal.SIGKILL:
            is_gone = is_victim and fault.back_after is None
            assert is_gone, run.told(f"{program.name} did not end by itself")
            continue
        if program.status == 2:
            full = is_victim and fault.does == "disk" and any(why in err for why in _FULL)
            assert full, run.told(f"{program.name} ended without a good reason")
            continue
        if "not reached for" in err:
            # On a machine that does much else, a coordinator may begin late.
            early = "connected to" not in err
            gone = is_victim or fault.does == "line" or fault.victim == "coordinator" or early
            assert gone, run.told(f"{program.name} ended without a good reason")
            assert program.status == 3, run.told(program.name)
        assert program.status in (0, 3, 4), run.told(f"{program.name} ended with {program.status}")
        said = json.loads(out)
        assert said["outcome"] == {0: "released", 3: "aborted", 4: "refused"}[program.status], run.told(program.name)
        assert program.status == 0 or said["reason"], run.told(f"{program.name} does not say why")
        assert program.status != 4 or (is_victim or fault.does == "limit"), run.told(f"{program.name} refused")
