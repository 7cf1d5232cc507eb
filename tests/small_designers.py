"""Small designers for the tests of AgentBalance: profiles by hand, roles and questions whose vectors are committed."""

import functools
from dataclasses import replace

import numpy as np
import torch

from bamas_lite.agentbalance.budgets import Budgets
from bamas_lite.agentbalance.designer import Designer, Query
from bamas_lite.agentbalance.difficulty import Difficulty
from bamas_lite.agentbalance.features import Quality
from bamas_lite.agentbalance.network import DesignNetwork
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import load_roles
from bamas_lite.agentbalance.variants import OURS
from bamas_lite.encoder import encode
from bamas_lite.pool import load_pool
from bamas_lite.tasks import DOMAINS, load_tasks

SETS = ("word_problems", "algebra_calculus", "python_functions")
LLMS = ("Llama 3.1 8B", "GPT-4.1 nano", "GPT-4.1 mini", "Gemini 2.0 Flash", "Claude Haiku 4.5", "GPT-4.1",
        "Claude Sonnet 4.5", "Amazon Nova Lite", "Gemini 2.5 Flash-Lite")
QUALITY = (0.3, 0.4, 0.6, 0.5, 0.7, 0.8, 0.9, 0.4, 0.45)


@functools.cache
def profiles(number=9):
    """The first of LLMS; the dearer, the better."""
    llms = {llm.name: llm for llm in load_pool("fourteen").with_max_tokens(1024).llms}
    t_in, t_out = (dict(zip(DOMAINS, tokens, strict=True)) for tokens in ((200, 250, 300), (150, 300, 400)))
    return tuple(Profile(llms[name], dict.fromkeys(DOMAINS, quality), t_in, t_out, dict.fromkeys(DOMAINS, 120), 1.0,
                         1.0, 30, "by hand") for name, quality in zip(LLMS[:number], QUALITY, strict=False))


@functools.cache
def questions(number=2):
    """(text, vector, domain) of the first test tasks of each of our sets."""
    tasks = [task for name in SETS for task in load_tasks(name, "test", limit=number)]
    return [(task.question, x, task.domain) for task, x in zip(tasks, encode([t.question for t in tasks]), strict=True)]


def some_roles(*kinds):
    """A set of roles of these kinds for every domain, from the committed ones."""
    left = {kind: [role for roles in load_roles().values() for role in roles if role.kind == kind] for kind in kinds}
    chosen = tuple(left[kind].pop(0) for kind in kinds)
    return dict.fromkeys(("general", "mathematics", "code"), chosen)


def answers_last():
    """Roles for every domain of which the only answering one is the least critical."""
    sets = some_roles("document", "review", "document", "review", "answer")
    return {name: tuple(replace(role, criticality=0.1 if role.kind == "answer" else 0.9) for role in roles)
            for name, roles in sets.items()}


def twelve_roles():
    """Twelve roles for every domain: those of mathematics and of code."""
    roles = load_roles()
    return dict.fromkeys(roles, roles["mathematics"] + roles["code"])


def designer(variant=OURS, number=9, roles=None, seed=5, **fields):
    """A designer with random weights and a difficulty that depends on the question."""
    generator = torch.Generator().manual_seed(seed)
    network, difficulty = DesignNetwork(generator).requires_grad_(False), Difficulty()
    for parameter in difficulty.parameters():
        torch.nn.init.uniform_(parameter, -1, 1, generator=generator)
    small = Designer(profiles(number), network, difficulty.requires_grad_(False), Quality.of(profiles()), variant,
                     load_roles() if roles is None else roles, **fields)
    with torch.no_grad():   # as after some training: choices that differ from question to question, in both ways
        for name, factor in (("pool", 30), ("agent", 5), ("gate", 5), ("Q", 3), ("K", 3)):
            getattr(network, name).weight.mul_(factor)
        network.beta.fill_(3.0)
        network.fill_others.fill_(2.5)
        inputs = small.inputs([Query(x, domain, Budgets(2000, 6)) for _, x, domain in questions()])
        llms = torch.arange(inputs.e.shape[1]).expand(inputs.e.shape[:2]) % number
        h = small.represent(inputs, llms, network.context(inputs.x, inputs.d, inputs.b))
        network.open.sub_(network.gate_logits(h).median() - 0.1)
        network.join.sub_(network.edge_scores(h).median() - 0.1)
    return small


class Script:
    """In the place of a random generator: its draws are choices from a list, then always the first one."""

    def __init__(self, choices=()):
        self.choices, self.made = list(choices), []

    def _choose(self, n):
        place = len(self.made)
        self.made.append((self.choices[place] if place < len(self.choices) else 0, n))
        return self.made[-1][0]

    def gumbel(self, size):
        return np.where(np.arange(size) == self._choose(size), 1e6, 0.0)   # decides, if it is an option at all

    def random(self, size=None):
        return float(self._choose(2)) if size is None else np.array([float(self._choose(2)) for _ in range(size)])


def all_outcomes(play):
    """`play(Script)` for every list of choices that there is."""
    choices, results = [], []
    while True:
        script = Script(choices)
        results.append(play(script))
        choices = [choice for choice, _ in script.made]
        while choices and choices[-1] == script.made[len(choices) - 1][1] - 1:
            choices.pop()
        if not choices:
            return results
        choices[-1] += 1


def decisions(design):
    """What was decided, to count designs by."""
    return (design.pool, tuple(design.matching.llms.tolist()), tuple(design.gates.tolist()),
            tuple(sorted(design.edges.chosen)))


def enumerated(small, query):
    """Every design that can be drawn, each once: decisions -> design."""
    return {decisions(design): design for design in all_outcomes(lambda script: small.designs([query], script)[0])}
