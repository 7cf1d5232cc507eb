"""BAMAS-lite: budget-aware multi-agent systems, to read, run and check.

Every public name can be imported from here; its module is loaded on first use, so that `import bamas_lite` is quick
and needs neither torch nor an encoder.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULE_OF = {
    "LLM": "pool", "Pool": "pool", "PoolError": "pool", "load_pool": "pool", "call_cost": "pool", "exact": "pool",
    "recursive_weights": "provisioning", "provision": "provisioning", "Team": "provisioning", "Slot": "provisioning",
    "provision_in_time": "timed_provisioning", "team_latency": "timed_provisioning",
    "InfeasibleBudgetError": "provisioning", "budget_frontier": "provisioning", "estimate_t_out": "provisioning",
    "ROLE_LIMITS": "provisioning", "TOKEN_LIMITS": "provisioning",
    "Task": "tasks", "load_tasks": "tasks", "TaskFileError": "tasks",
    "Grade": "grading", "grade": "grading", "extract_answer": "grading", "grade_many": "grading",
    "vote_key": "grading", "run_python": "sandbox", "sandbox_protection": "isolation",
    "BudgetMeter": "llm", "CallError": "llm", "ChatModel": "llm", "Reply": "llm", "Usage": "llm",
    "SimulatedLLM": "simulation",
    "TOPOLOGIES": "topologies", "cast_roles": "topologies", "run_task": "topologies", "run_task_sync": "topologies",
    "Episode": "topologies", "linear": "topologies", "star": "topologies", "feedback": "topologies",
    "planner_driven": "topologies",
    "Step": "workflows", "Workflow": "workflows", "WORKFLOWS": "workflows", "naive": "workflows",
    "run_workflow": "workflows", "run_workflow_sync": "workflows",
    "generate_trajectories": "trajectories", "load_trajectories": "trajectories",
    "OpenAIChat": "endpoints", "EndpointError": "endpoints", "estimate_cost": "estimates", "Estimate": "estimates",
    "CachedChat": "recordings", "export_recording": "recordings", "export_ledger": "recordings",
    "load_ledger": "recordings", "RunStopped": "llm", "local_llms": "local",
    "versions": "versions",
    "encode": "policy", "PolicyNetwork": "policy", "reward": "policy", "train_policy": "policy",
    "TopologyPolicy": "policy",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bamas_lite' has no attribute {name!r}")
    value = getattr(import_module(f"bamas_lite.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
