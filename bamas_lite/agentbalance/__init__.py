"""AgentBalance (arXiv 2512.11426), reconstructed: agents first, then their topology, under cost and latency budgets.

The abstract names the stages; AgentBalance's method section and code are not available to us, so every formula here is
our reconstruction. Each stage is a module of its own and can be used alone; the names below are loaded when they are
asked for, in the order of the stages.
"""

from importlib import import_module
from typing import Any

_MODULE_OF = {
    "Role": "roles", "load_roles": "roles", "roles_of": "roles",
    "Profile": "profiles", "ProfileError": "profiles", "profile_llms": "profiles", "profile_llms_sync": "profiles",
    "CandidatePool": "candidate_pools", "pareto_frontier": "candidate_pools", "k_medoids": "candidate_pools",
    "construct_pools": "candidate_pools",
    "Budgets": "budgets", "InfeasibleBudgetsError": "budgets", "affordable": "budgets", "check_budgets": "budgets",
    "match_roles": "matching",
    "AgentGraph": "graphs", "GraphAgent": "graphs", "GraphError": "graphs",
    "run_graph": "execution", "run_graph_sync": "execution",
    "Difficulty": "difficulty", "train_difficulty": "difficulty",
    "synthesize": "synthesis",
    "Variant": "variants",
    "Design": "designs", "Designer": "designer", "Query": "designs",
    "Settings": "settings", "train_designer": "training", "fit_difficulty": "difficulty",
    "load_designer": "store", "save_designer": "store",
    "auc": "outcomes", "auc_table": "outcomes", "best_within": "outcomes", "curves": "outcomes",
    "compare": "comparisons", "by_budget": "comparisons",
}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bamas_lite.agentbalance' has no attribute {name!r}")
    value = getattr(import_module(f"bamas_lite.agentbalance.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
