"""Everything of the reproduction, one step after the other: `python -m bamas_lite.reproduction` (`make reproduce`).

Fit, full run, draws, switches and studies write their small result files to `data/simulation` and `data/reproduction`,
and their summary to README.md.
With real benchmark files only the full run is made, on them, and writes to `build/reproduction`: the others measure
differences that need no large set of tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bamas_lite.inputs import command, whole
from bamas_lite.reproduction import calibration_files, draws, studies, summary, switches, systems


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Make all result files of the reproduction."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction", description=main.__doc__)
    parser.add_argument("--benchmarks", help="folder with the real GSM8K, MBPP and MATH: the full run alone, on them")
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    options = parser.parse_args(arguments)
    workers = ["--workers", str(whole(options.workers, "--workers", 1))]
    if options.benchmarks is not None:
        return systems.main(["--benchmarks", options.benchmarks, *workers])
    summary.check_readme()
    for name, step in (("fit", lambda: calibration_files.main([])), ("full run", lambda: systems.main(workers)),
                       ("draws", lambda: draws.main(workers)), ("switches", lambda: switches.main(workers)),
                       ("studies", lambda: studies.main(workers))):
        print(f"--- {name}", flush=True)
        if failed := step():
            return failed
    summary.write_readme()
    return 0


if __name__ == "__main__":
    sys.exit(main())
