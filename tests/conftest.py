"""What all tests share: one environment, the same from run to run, in which no key is set."""

import os
from pathlib import Path

import matplotlib
from hypothesis import settings

# Kernels and other child processes inherit these.
os.environ.update(PYTHONHASHSEED="0", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false",
                  PYDEVD_DISABLE_FILE_VALIDATION="1")
os.environ.setdefault("BAMAS_SANDBOX_SAID", "1")   # where there is no wall, notebooks do not say so on stderr
os.environ.pop("MPLBACKEND", None)
for name in [name for name in os.environ if name.endswith("_API_KEY")]:
    del os.environ[name]
folder = os.environ.pop("BENCHMARKS", "")
if folder:   # notebooks run in another folder than tests
    os.environ["BENCHMARKS"] = str(Path(folder).resolve())

matplotlib.use("Agg")   # tests need no screen; notebooks have kernels of their own

settings.register_profile("same every time", deadline=None, derandomize=True)
settings.load_profile("same every time")
