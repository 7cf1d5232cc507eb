"""Everything of the reproduction, one step after the other: `python -m bamas_lite.reproduction` (`make reproduce`).

Fit, full run, draws, switches and studies write their small result files to `data/simulation` and `data/reproduction`.
With real benchmark files only the full run is made, on them, and writes to `build/reproduction`: the others measure
differences that need no large set of tasks.
"""

from __future__ import annotations

import argparse
import sys

from bamas_lite.reproduction import calibration_files, draws, studies, switches, systems


def main(arguments: list[str] | None = None) -> int:
    """Make all result files of the reproduction."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction", description=main.__doc__)
    parser.add_argument("--benchmarks", help="folder with the real GSM8K, MBPP and MATH: the full run alone, on them")
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    options = parser.parse_args(arguments)
    workers = ["--workers", str(options.workers)]
    if options.benchmarks:
        return systems.main(["--benchmarks", options.benchmarks, *workers])
    for name, step in (("fit", lambda: calibration_files.main([])), ("full run", lambda: systems.main(workers)),
                       ("draws", lambda: draws.main(workers)), ("switches", lambda: switches.main(workers)),
                       ("studies", lambda: studies.main(workers))):
        print(f"--- {name}", flush=True)
        if failed := step():
            return failed
    return 0


if __name__ == "__main__":
    sys.exit(main())
