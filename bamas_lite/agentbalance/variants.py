"""What a design learns and what it fixes: AgentBalance as reconstructed, its ablations, and designs in other styles.

"In the style of" means: the idea that sets a published design apart, in this kit's parts - not its code, prompts or
training. All variants share agents, prompts, budgets, execution and training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from bamas_lite.agentbalance.checks import number
from bamas_lite.inputs import shown, whole

Backbones = Literal["learned", "random", "one LLM", "BAMAS"]


@dataclass(frozen=True)
class Variant:
    """One way to design a graph.

    Attributes:
        name: label in tables.
        title: for readers.
        backbones: who chooses the LLMs: "learned" - pool selection and role-backbone matching; "random" - any LLM of
            any pool that fits; "one LLM" - every agent runs the best LLM of which several agents fit the budgets;
            "BAMAS" - the team that `provision` hires, strongest first to the most critical roles.
        pools: number of candidate pools; no more than LLMs on the frontier are made.
        stacked: whether a pool holds the LLMs of all cheaper ones, too.
        gate: whether agents can be left out by a learned gate.
        latency_term: whether the edge logit counts what an edge adds to the critical path.
        reads_question: whether gates and edges may depend on the question and the budgets, or are the same for all.
        keep_agents: the share of agents that stays, those with the highest gate logits; None: all with a logit above 0.
        keep_edges: the share of pairs that stays, those with the highest logits; None: all with a logit above 0.

    Raises:
        ValueError: a field does not fit; the message names it.
    """

    name: str
    title: str
    backbones: Backbones = "learned"
    pools: int = 3
    stacked: bool = True
    gate: bool = True
    latency_term: bool = True
    reads_question: bool = True
    keep_agents: float | None = None
    keep_edges: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.backbones, str) or self.backbones not in get_args(Backbones):
            raise ValueError(f"backbones = {shown(self.backbones)}: expected one of {', '.join(get_args(Backbones))}")
        whole(self.pools, "pools", 1)
        for name in ("stacked", "gate", "latency_term", "reads_question"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} = {shown(getattr(self, name))}: expected True or False")
        for name in ("keep_agents", "keep_edges"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number(getattr(self, name), name, 1))


OURS = Variant("AgentBalance", "AgentBalance, reconstructed")

ABLATIONS = (
    replace(OURS, name="no gate", title="without the gate", gate=False),
    replace(OURS, name="no latency term", title="edges blind to the critical path", latency_term=False),
    replace(OURS, name="one pool", title="the whole frontier as one pool", pools=1),
    replace(OURS, name="separate pools", title="each group of LLMs a pool of its own", stacked=False),
    replace(OURS, name="random matching", title="random LLMs, learned topology", backbones="random"),
)

NOT_TRAINED = (
    replace(OURS, name="not trained", title="the designer from which training starts"),
    replace(OURS, name="not trained, one pool", title="the same, with the whole frontier as one pool", pools=1),
)
"""What is left of AgentBalance without any training: rules and starting values."""

_ONE = {"backbones": "one LLM", "latency_term": False}

TOPOLOGY_FIRST = Variant("topology-first", "a graph learned on one LLM", backbones="one LLM")

STYLES = (
    Variant("G-Designer style", "in the style of G-Designer: edges learned for each question", gate=False, **_ONE),
    Variant("AgentPrune style", "in the style of AgentPrune: one graph for all, the weaker half of its edges pruned",
            gate=False, reads_question=False, keep_edges=0.5, **_ONE),
    Variant("AgentDropout style", "in the style of AgentDropout: one graph for all, weak agents and edges dropped",
            reads_question=False, keep_agents=2 / 3, keep_edges=0.5, **_ONE),
)

BAMAS_EDGES = Variant("BAMAS + edges", "BAMAS's team with a policy that proposes edges", backbones="BAMAS",
                      latency_term=False)
"""As one public summary has BAMAS; the paper's policy chooses one of four fixed topologies."""

PLUGGED = tuple(replace(style, name=f"{style.name} + our backbones", title=f"{style.title}; our backbone stage",
                        backbones="learned") for style in STYLES)
"""The plug-in experiment: the backbone stage inside the other designs. (Inside topology-first it would be OURS without
the latency term, which is among the ablations.)"""
