"""How well the simulator, fitted to one half of a recording, predicts the other half."""

from bamas_lite.simulator_check.calls import calls_of
from bamas_lite.simulator_check.compare import rankings, summary
from bamas_lite.simulator_check.fit import fit_simulator
from bamas_lite.simulator_check.halves import check, check_new_budgets, episodes_of, predict, split_halves

__all__ = ["calls_of", "check", "check_new_budgets", "episodes_of", "fit_simulator", "predict", "rankings",
           "split_halves", "summary"]
