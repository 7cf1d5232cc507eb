"""Run the experiments of notebook 09, on AgentBalance as reconstructed; writes `data/agentbalance/` (a part of
`make artifacts`)."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bamas_lite.agentbalance import studies
from bamas_lite.agentbalance.features import role_text
from bamas_lite.agentbalance.roles import load_roles
from bamas_lite.agentbalance.store import COMMITTED, COMMITTED_TALK, save_designer
from bamas_lite.agentbalance.summary import write_results
from bamas_lite.encoder import COMMITTED_ROLES, write_committed
from bamas_lite.inputs import command
from bamas_lite.paths import DATA


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.agentbalance", description=__doc__)
    parser.add_argument("--seeds", type=int, default=len(studies.SEEDS), help="how many seeds (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=COMMITTED.parent, help="folder (default: the committed one)")
    given = parser.parse_args(arguments)
    if given.seeds < 1 or given.workers < 1:
        raise ValueError("--seeds and --workers: expected at least 1")
    if given.out == COMMITTED.parent:
        write_committed([role_text(role) for roles in load_roles().values() for role in roles], COMMITTED_ROLES)
    seeds, results = list(range(given.seeds)), []
    os.environ["OMP_NUM_THREADS"] = "1"  # one thread a process: the same sums, and no fight over the cores
    with multiprocessing.get_context("spawn").Pool(min(given.workers, len(seeds))) as pool:
        for result in pool.imap(studies.run_seed, seeds):
            results.append(result)
            print(f"seed {seeds[len(results) - 1]}: {len(result['outcomes']):,} episodes", flush=True)
    write(results, given.out)
    readme = DATA.parent / "README.md"
    if given.out == COMMITTED.parent and readme.is_file():  # a wheel has none
        write_results(readme)
    return 0


def write(results: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write the tables of all seeds, and the designers of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = pd.concat([result["outcomes"].astype({"method": str, "task_id": str, "domain": str, "status": str})
                          for result in results], ignore_index=True)
    outcomes = outcomes.assign(cost=outcomes.cost.round(1), latency_s=outcomes.latency_s.round(2)).astype(
        dict.fromkeys(("method", "task_id", "domain", "status"), "category"))
    outcomes.to_parquet(folder / "outcomes.parquet", index=False, compression="zstd", compression_level=19)
    for name in ("surface", "history", "profiles", "worlds"):
        studies.rounded(pd.concat([result[name] for result in results])).to_csv(
            folder / f"{name}.csv", index=False, lineterminator="\n")
    save_designer(results[0]["designer"], folder / COMMITTED.name)
    save_designer(results[0]["designer_talk"], folder / COMMITTED_TALK.name)


if __name__ == "__main__":
    sys.exit(main())
