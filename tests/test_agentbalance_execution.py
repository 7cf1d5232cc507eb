"""Graphs on scripted, simulated, live and replayed LLMs: who is shown what, both budgets, faults."""

import asyncio
import gc
import math
import random
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from fault_server import FaultServer
from test_agentbalance_graphs import ROLES, random_graph, some

from bamas_lite.agentbalance.execution import run_graph, run_graph_sync
from bamas_lite.agentbalance.graphs import AgentGraph, GraphAgent
from bamas_lite.agentbalance.shares import divide
from bamas_lite.endpoints import OpenAIChat
from bamas_lite.llm import MINIMUM_TOKENS, CallError, Reply, RunStopped, Usage
from bamas_lite.pool import ATOMS, LLM
from bamas_lite.prompts import section
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.recordings import CachedChat
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.tasks import Task
from bamas_lite.topologies import vote

TASK = Task("t/1", "arithmetic", 2, "Ann has 3 apples and buys 4. How many has she?", "7")
CODE = Task("t/5", "code", 1, "Write f(x), the double of x. f(2) is 4", "def f(x):\n    return 2 * x",
            tests=("assert f(5) == 10",), entry_point="f", vote_inputs=("f(2)",),
            wrong=("def f(x):\n    return x * x",))
ACCEPT, REVISE = "Right.\nCONCLUSION: ACCEPT", "Wrong.\nCONCLUSION: REVISE"
USAGE = Usage(50, 20)
LATE = ("document", "answer", "answer", "review", "answer")


class Scripted:
    """Says what a dict has for the agent whose LLM it is; agent i of `cast` runs the LLM "m<i>"."""

    name = "scripted"

    def __init__(self, says, usage=USAGE, seconds=None):
        self.says, self.usage, self.asked, self.in_flight, self.most = says, usage, {}, 0, 0
        self.seconds = seconds or {}

    def bound_prompt_tokens(self, llm, messages):
        return 60

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        i = int(llm.name[1:])
        assert i not in self.asked, "asked twice"
        self.asked[i] = (role, messages[0]["content"], messages[-1]["content"], max_tokens)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await self.wait(i)
        finally:
            self.in_flight -= 1
        said = self.says[i]
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, Reply) else Reply(said, self.usage, self.seconds.get(i, 1.0))

    async def wait(self, i):
        pass

    def part(self, i, name):
        return section(self.asked[i][2], name)


def cast(*kinds, edges=(), tiers=None, latencies=None, costs=None):
    llms = [LLM(name=f"m{i}", price_in=0.5, price_out=1.0, max_tokens=384, tier=tiers[i] if tiers else 1,
                first_token_s=0.5, tokens_per_s=100) for i in range(len(kinds))]
    return AgentGraph(tuple(GraphAgent(f"agent {i}", ROLES[kind], llm, costs[i] if costs else 100.0, 10.0,
                                       latencies[i] if latencies else 2.0)
                            for i, (kind, llm) in enumerate(zip(kinds, llms, strict=True))), edges)


def cut(text):
    return Reply(text, USAGE, 1.0, "length")


# ------------------------------------------------------------------------------------------------ who is shown what

def test_what_is_handed_on():
    backend = Scripted({0: "Add.", 1: "#### 7", 2: "#### 8", 3: REVISE, 4: "#### 9"})
    graph = cast(*LATE, edges=((0, 1), (0, 3), (1, 3), (2, 3), (3, 4)))
    episode = run_graph_sync(TASK, graph, backend)
    assert (episode.status, episode.answer, episode.correct, episode.stop_reason) == ("ok", "9", False, "finished")
    assert (episode.topology, episode.team, episode.n_calls) == ("graph", str(graph), 5)
    assert [call.agent for call in episode.calls] == [agent.name for agent in episode.agents]
    assert [backend.asked[i][0] for i in range(5)] == ["writer", "executor", "executor", "critic", "executor"]
    assert backend.asked[3][1].startswith("You are the review.") and "Do your part." in backend.asked[3][2]
    assert backend.part(1, "documents") == "agent 0:\nAdd." and backend.part(2, "documents") is None
    assert backend.part(3, "documents") == "agent 0:\nAdd.\nagent 2:\n#### 8"   # the answer that lost is no secret
    assert backend.part(3, "earlier_answer") == "#### 7" and backend.part(3, "critique") is None
    # the review hands on the answer that it is about, and only that
    assert (backend.part(4, "earlier_answer"), backend.part(4, "critique")) == ("#### 7", REVISE)
    assert backend.part(4, "documents") is None
    assert [(call.start_s, call.end_s) for call in episode.calls] == [(0, 1), (1, 2), (0, 1), (2, 3), (3, 4)]
    assert (episode.latency_s, episode.latency_budget, episode.over_latency) == (4, math.inf, False)


def test_reviews_that_ask_for_a_revision_come_last_and_those_of_a_loser_stand_aside():
    kinds = ("answer", "answer", "review", "review", "review", "answer")
    edges = ((0, 2), (0, 3), (1, 4), *((i, 5) for i in range(5)))
    says = {0: "#### 7", 1: "#### 8", 2: REVISE, 3: ACCEPT, 4: "Odd.\nCONCLUSION: ACCEPT", 5: "#### 7"}
    backend = Scripted(says)
    run_graph_sync(TASK, cast(*kinds, edges=edges), backend)
    assert backend.part(5, "earlier_answer") == "#### 7" and backend.part(5, "critique") == f"{ACCEPT}\n{REVISE}"
    assert backend.part(5, "documents") == "agent 1:\n#### 8\nagent 4:\nOdd.\nCONCLUSION: ACCEPT"
    agreeing = Scripted(says | {1: "It is\n#### 7"})   # the same answer in other words: its review is of this answer
    run_graph_sync(TASK, cast(*kinds, edges=edges), agreeing)
    assert agreeing.part(5, "critique") == f"{ACCEPT}\nOdd.\nCONCLUSION: ACCEPT\n{REVISE}"
    assert agreeing.part(5, "documents") == "agent 1:\nIt is\n#### 7"


@pytest.mark.parametrize(("said", "winner"), [("778", "7"), ("788", "8"), ("789", "7"), ("7", "7")])
def test_the_answers_that_nobody_built_on_vote(said, winner):
    backend = Scripted({i: f"#### {digit}" for i, digit in enumerate(said)})
    assert run_graph_sync(TASK, cast(*["answer"] * len(said)), backend).answer == winner


def test_an_answer_that_was_built_on_does_not_vote_again():
    edges = ((0, 1), (0, 2))
    says = {0: "#### 7", 1: "#### 8", 2: "#### 7", 3: "#### 8"}
    episode = run_graph_sync(TASK, cast(*["answer"] * 4, edges=edges), Scripted(says))
    assert episode.answer == "8"   # 8, 7, 8: with the first 7 it would be a draw that 7 wins
    through_a_review = cast("answer", "review", "answer", "answer", edges=((0, 1), (1, 2)))
    says = {0: "#### 7", 1: REVISE, 2: "#### 8", 3: "#### 7"}
    assert run_graph_sync(TASK, through_a_review, Scripted(says)).answer == "8"


@pytest.mark.parametrize(("first", "second", "answer"), [
    ("#### 7", cut("#### 1"), "7"), (cut("#### 1"), cut("#### 2"), "2"), (cut("#### 1"), "#### 7", "7"),
    ("#### 7", "", "7"), ("#### 7", " \n", "7")])
def test_a_cut_or_empty_answer_replaces_no_complete_one(first, second, answer):
    episode = run_graph_sync(TASK, cast("answer", "answer", edges=((0, 1),)), Scripted({0: first, 1: second}))
    assert (episode.answer, episode.stop_reason) == (answer, "finished")


def test_a_review_without_an_answer_is_skipped_and_nothing_is_no_answer():
    graph = cast("answer", "review", "answer", edges=((0, 1), (1, 2)))
    backend = Scripted({0: " ", 1: ACCEPT, 2: "#### 7"})
    episode = run_graph_sync(TASK, graph, backend)
    assert list(backend.asked) == [0, 2] and backend.part(2, "earlier_answer") is backend.part(2, "critique") is None
    assert (episode.answer, episode.n_calls, episode.latency_s, episode.stop_reason) == ("7", 2, 2.0, "finished")
    nothing = run_graph_sync(TASK, graph, Scripted({0: "", 1: ACCEPT, 2: ""}))
    assert (nothing.status, nothing.correct, nothing.reason) == ("ok", False, "no answer")


def test_llms_without_a_tier_can_vote():
    bare = [LLM(name=f"m{i}", price_in=1, price_out=1, max_tokens=99, rating=1000 + i) for i in range(2)]
    graph = AgentGraph(tuple(GraphAgent(llm.name, ROLES["answer"], llm, 1, 1, 1) for llm in bare))
    assert run_graph_sync(TASK, graph, Scripted({0: "#### 7", 1: "#### 8"})).answer == "7"


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("task", [TASK, CODE], ids=["arithmetic", "code"])
def test_each_prompt_and_the_answer_against_the_rule(task, waits):
    """The trace of random graphs, told again from the rule by sets of names; live and instant backends are alike."""
    class Waiting(SimulatedLLM):
        async def complete(self, llm, messages, **options):
            await asyncio.sleep(0.0001 * (hash(llm.name) % 7))
            return await super().complete(llm, messages, **options)

    for seed in range(12 if task is CODE else 60):
        graph = random_graph(random.Random(seed), density=0.6)
        episode = run_graph_sync(task, graph, (Waiting if waits else SimulatedLLM)(seed))
        calls = {call.agent: call for call in episode.calls}
        kind = {agent.name: agent.role.kind for agent in graph.agents}
        order = [graph.agents[j].name for j in graph.order]
        handed = {graph.agents[j].name: [n for n in order if any(
            graph.agents[i].name == n for i, k in graph.edges if k == j)] for j in range(len(kind))}
        about, built_on, ended = {}, {}, {}
        assert [call.agent for call in episode.calls] == [name for name in order if name in calls]
        for name in order:
            given = [n for n in handed[name] if n in calls]
            shown = {n for n in given if kind[n] == "answer"} | {about[n] for n in given if kind[n] == "review"}
            ended[name] = max([ended[n] for n in handed[name]], default=0.0)
            if kind[name] == "review" and not shown:
                assert name not in calls
                continue
            candidates = [n for n in order if n in shown]
            content = calls[name].messages[-1]["content"]
            earlier = vote(task, [calls[n] for n in candidates], [calls[n].reply for n in candidates])
            assert section(content, "earlier_answer") == earlier
            about[name] = next((n for n in candidates if calls[n].reply.text == earlier), None)
            built_on[name] = shown.union(*(built_on[n] for n in given if kind[n] == "review"))
            told = (section(content, "documents") or "") + (section(content, "critique") or "") + (earlier or "")
            for n in (*given, *candidates):
                assert calls[n].reply.text in told
            assert calls[name].start_s == max([ended[n] for n in handed[name]], default=0.0)
            ended[name] = calls[name].end_s
        free = [n for n in order if kind[n] == "answer"
                and not any(n in built_on[m] for m in order if kind[m] == "answer")]
        assert episode.answer_text == vote(task, [calls[n] for n in free], [calls[n].reply for n in free])


# ------------------------------------------------------------------------------------------------ budgets

def purses_of(graph, budget):
    """Each agent's part of a budget in u$, not rounded."""
    planned = [Fraction(a.cost) + Fraction(a.message_cost) * sum(k == j for _, k in graph.edges)
               for j, a in enumerate(graph.agents)]
    return [Fraction(budget) * cost / sum(planned) for cost in planned]


@pytest.mark.parametrize("seed", range(150))
def test_no_graph_is_over_a_budget_and_each_call_has_what_the_rules_give_it(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, most=rng.choice([3, 7, 12]))
    task = rng.choice([TASK, CODE, Task("t/4", "mathematics", 3, "Factor x^2 - 1.", "(x-1)(x+1)", wrong=("x-1",))])
    budget, seconds = round(graph.cost * rng.uniform(0.5, 6), 2), (graph.latency_s or 5) * rng.uniform(0.3, 6)
    minimum = rng.choice([None, {"executor": 1, "critic": 1, "writer": 1}])
    episode = run_graph_sync(task, graph, SimulatedLLM(seed), budget, seconds, minimum_tokens=minimum)
    assert episode.status == "ok" and not episode.over_budget and not episode.over_latency
    assert (episode.budget, episode.latency_budget, episode.provider_overrun) == (budget, seconds, 0)
    spent = {c.agent: Fraction(c.llm.cost_atoms(c.usage.prompt_tokens, c.usage.completion_tokens), ATOMS)
             for c in episode.calls}
    assert sum(spent.values()) <= Fraction(str(budget)) and episode.cost == pytest.approx(float(sum(spent.values())))
    assert max([c.end_s for c in episode.calls], default=0.0) == episode.latency_s <= seconds
    # purses and deadlines, told again
    purses, calls = purses_of(graph, str(budget)), {c.agent: c for c in episode.calls}
    ends, length, refused = defaultdict(float), graph.latency_s, False
    for j in graph.order:
        agent = graph.agents[j]
        before, after = [i for i, k in graph.edges if k == j], [k for i, k in graph.edges if i == j]
        start = ends[j] = max([ends[i] for i in before], default=0.0)
        behind = graph.tails[j] - agent.latency_s
        latest = min(seconds, seconds * (length - behind) / length if length else seconds)
        llm, call = agent.llm, calls.get(agent.name)
        role = {"document": "writer", "answer": "executor", "review": "critic"}[agent.role.kind]
        limit = min(llm.max_tokens, TOKEN_LIMITS[task.domain]["critic" if role == "critic" else "executor"])
        in_time = (latest - start - llm.first_token_s) * llm.tokens_per_s
        if call is not None:
            assert call.start_s == start and call.end_s <= latest * (1 + 1e-12)
            room = purses[j] - Fraction(str(llm.price_in)) * call.usage.prompt_tokens
            affordable = room / Fraction(str(llm.price_out))
            allowed = min(limit, math.floor(affordable), math.floor(in_time))
            assert call.max_tokens in (allowed, allowed - 1)   # both are rounded down, the purse by atoms
            ends[j] = call.end_s
        elif agent.role.kind != "review" or any(graph.agents[i].name in calls and graph.agents[i].role.kind == "answer"
                                                for i in before):
            refused = True
            least = min(limit, 1 if minimum else MINIMUM_TOKENS[role])
            if in_time >= least + 1:   # so it must be the purse: not even the shortest prompt and the least reply
                prompt = SimulatedLLM().bound_prompt_tokens(llm, [{"content": task.question}])
                assert least <= 1 or purses[j] < llm.call_cost(10**4, least + 1) and prompt
        if after:
            purses[min(after, key=graph.order.index)] += purses[j] - spent.get(agent.name, 0)
    assert episode.stop_reason == ("budget" if refused else "finished")


def test_purses_by_hand():
    """Planned 100, 110 and 110 u$ of 640 u$: 200, 220, 220; the first leaves 155 u$ of its purse to the second."""
    graph = cast("answer", "answer", "answer", edges=((0, 1), (0, 2)))
    backend = Scripted({0: "#### 7", 1: "#### 7", 2: "#### 7"})
    run_graph_sync(TASK, graph, backend, 640, minimum_tokens={})
    # u$: 0.5 a prompt token, bound 60; 1 a completion token; 50 and 20 tokens are billed
    assert [backend.asked[i][3] for i in range(3)] == [170, 345, 190]
    backend = Scripted({0: "#### 7", 1: "#### 7", 2: "#### 7"})
    episode = run_graph_sync(TASK, graph, backend, 256, minimum_tokens={"executor": 50})
    assert [backend.asked[i][3] for i in range(3)] == [50, 93, 58]
    backend = Scripted({0: "#### 7", 1: "#### 7", 2: "#### 7"})
    episode = run_graph_sync(TASK, graph, backend, 256, minimum_tokens={"executor": 51})
    assert (sorted(backend.asked), episode.stop_reason) == ([1, 2], "budget")
    assert backend.asked[1][3] == 138   # what the first could not use is the second's: 80 + 88 - 30


def test_without_planned_costs_all_purses_are_equal():
    backend = Scripted({0: "#### 7", 1: "#### 7"})
    run_graph_sync(TASK, AgentGraph(tuple(
        GraphAgent(a.name, a.role, a.llm, 0, 0, 0) for a in cast("answer", "answer").agents)), backend, 300, 4.5,
        minimum_tokens={})
    assert [backend.asked[i][3] for i in range(2)] == [120, 120]


def test_an_agent_without_a_planned_cost_beside_others_is_named_before_any_call():
    graph, backend = cast("answer", "answer", costs=[100.0, 0.0]), Scripted({0: "#### 7", 1: "#### 7"})
    with pytest.raises(ValueError, match="^agent 'agent 1': cost = 0.0, while others have a planned cost: it would "):
        run_graph_sync(TASK, graph, backend, 300)
    assert not backend.asked and run_graph_sync(TASK, graph, backend).n_calls == 2   # where nothing is divided
    backend = Scripted({0: "#### 7", 1: "#### 7"})
    assert run_graph_sync(TASK, graph, backend, 300, enforcement="paper").n_calls == 2


@pytest.mark.parametrize("atoms", [0, 1, 7, 10**20 + 1, 3 * 10**217 + 2])
@pytest.mark.parametrize("costs", [[5.0], [0.0], [1.0] * 3, [0.0] * 7, [0.1, 0.2, 0.3], [5e-324, 1e308, 2.0],
                                   [0.0, 1.0, 0.0, 2.0], np.full(12, 1 / 3), [Fraction(1, 3), Decimal("0.5"), 2]])
def test_purses_lose_and_make_no_atom(atoms, costs):
    purses = divide(atoms, costs)
    exact = [Fraction(float(cost)) for cost in costs] if any(costs) else [Fraction(1)] * len(costs)
    assert sum(purses) == atoms and len(purses) == len(costs)
    assert all(abs(purse - atoms * cost / sum(exact)) < 1 for purse, cost in zip(purses, exact, strict=True))
    assert not any(purse for purse, cost in zip(purses, exact, strict=True) if not cost)


@pytest.mark.parametrize(("atoms", "costs", "words"), [
    (5, [], r"costs = \[\]: expected .* for each of one or more agents"), (5, [[1.0]], "costs = .*one or more agents"),
    (5, [1.0, -1.0], "expected a finite number of at least 0 u"), (5, [1.0, math.nan], "expected a finite number"),
    (5, [math.inf], "expected a finite number"), (5, None, "costs = None: expected an array of numbers"),
    (5, ["1"], "expected an array of numbers"), (-1, [1.0], "atoms = -1: expected a whole number of at least 0"),
    (0.5, [1.0], "atoms = 0.5: expected a whole number")])
def test_what_cannot_be_divided(atoms, costs, words):
    with pytest.raises(ValueError, match=words):
        divide(atoms, costs)


@pytest.mark.parametrize("budget", [0, 1e-300, "1e199", Fraction(10**199, 3)])
def test_budgets_of_any_size_and_one_agent(budget):
    backend = Scripted({0: "#### 7"})
    episode = run_graph_sync(TASK, cast("answer"), backend, budget, 1e199, minimum_tokens={})
    assert (episode.n_calls, episode.stop_reason) == ((1, "finished") if Fraction(budget) > 1 else (0, "budget"))


def test_deadlines_by_hand():
    """Planned 2 + 4 s on the critical path and 1 s beside it, under 9 s: ends at 3, 9 and 9 s."""
    graph = cast("answer", "answer", "answer", edges=((0, 1),), latencies=[2.0, 4.0, 1.0])
    says = {i: Reply("#### 7", USAGE, s) for i, s in enumerate((1.0, 8.0, 8.99))}
    backend = Scripted(says)
    episode = run_graph_sync(TASK, graph, backend, None, 9.0)
    # 0.5 s to the first token, 100 tokens a second, at most 384 tokens
    assert [backend.asked[i][3] for i in range(3)] == [250, 384, 384]
    assert (episode.latency_s, episode.over_latency, episode.budget) == (9.0, False, math.inf)
    backend = Scripted(says | {0: Reply("#### 7", USAGE, 7.5)})   # it is slower than its profile says
    episode = run_graph_sync(TASK, graph, backend, None, 9.0, minimum_tokens={"executor": 101})
    assert (sorted(backend.asked), episode.stop_reason, episode.over_latency) == ([0, 2], "budget", False)
    late = run_graph_sync(TASK, graph, Scripted(says | {2: Reply("#### 7", USAGE, 9.25)}), None, 9.0)
    assert (late.over_latency, late.latency_s, late.status) == (True, 9.25, "ok")


def test_a_latency_budget_changes_nothing_where_there_is_time_enough():
    for seed in range(20):
        graph = random_graph(random.Random(seed))
        graph = AgentGraph(tuple(replace(a, latency_s=a.latency_s + 1) for a in graph.agents), graph.edges)
        free, timed = (run_graph_sync(TASK, graph, SimulatedLLM(seed), 5000, seconds) for seconds in (None, 1e6))
        assert timed.calls == free.calls and timed.row() == free.row()
        assert run_graph_sync(TASK, graph, SimulatedLLM(seed), 5000, math.inf) == free


def test_enforcement_of_the_paper_asks_one_after_another_and_stops_after_the_budget():
    graph = cast("answer", "answer", "answer", edges=((0, 2),))
    backend = Scripted({0: "#### 7", 1: "#### 7", 2: "#### 7"})
    episode = run_graph_sync(TASK, graph, backend, 46, enforcement="paper")   # each call costs 45 u$
    assert (list(backend.asked), episode.over_budget, episode.stop_reason) == ([0, 1], True, "budget")
    assert [call.start_s for call in episode.calls] == [0, 1] and episode.enforcement == "paper"
    backend = Scripted({0: "#### 7", 1: "#### 7", 2: "#### 7"})
    run_graph_sync(TASK, graph, backend, 10**6, 7.5, enforcement="paper")
    assert [backend.asked[i][3] for i in range(3)] == [325, 384, 384]   # the latency budget is kept all the same


def test_a_provider_that_bills_too_much_takes_it_from_the_successor():
    graph = cast("answer", "answer", "answer", edges=((0, 1), (0, 2)))
    backend = Scripted({0: Reply("#### 7", Usage(60, 270), 1.0), 1: "#### 7", 2: "#### 7"})
    episode = run_graph_sync(TASK, graph, backend, 640, minimum_tokens={})
    assert [backend.asked[i][3] for i in range(3)] == [170, 90, 190]   # 220 - 100 - 30
    assert episode.provider_overrun == 1 and not episode.over_budget


# ------------------------------------------------------------------------------------------------ live

def test_calls_that_do_not_wait_for_each_other_are_in_flight_together():
    class Meeting(Scripted):
        """Agents 0, 1 and 2 are answered when all three have asked, 3 and 4 likewise."""

        async def wait(self, i):
            await asyncio.wait_for(self.barriers[i > 2].wait(), 20)

    async def main():
        backend = Meeting({0: "#### 7", 1: "#### 7", 2: "Add.", 3: ACCEPT, 4: "#### 7"})
        backend.barriers = asyncio.Barrier(3), asyncio.Barrier(2)
        graph = cast("answer", "answer", "document", "review", "answer", edges=((0, 3), (2, 3), (1, 4)))
        return await run_graph(TASK, graph, backend, 5000, 60.0), backend

    episode, backend = asyncio.run(main())
    assert (episode.status, episode.n_calls, backend.most, episode.latency_s) == ("ok", 5, 3, 2.0)
    assert [call.agent for call in episode.calls] == [f"agent {i}" for i in range(5)]   # whoever ended first


def test_an_agent_starts_as_soon_as_its_own_predecessors_are_done():
    class OneIsSlow(Scripted):
        async def wait(self, i):
            if i == 0:
                await asyncio.wait_for(self.later.wait(), 20)   # answered only after agent 2, who does not wait for it
            elif i == 2:
                self.later.set()

    async def main():
        backend = OneIsSlow({0: "#### 7", 1: "#### 7", 2: "#### 7"})
        backend.later = asyncio.Event()
        return await run_graph(TASK, cast("answer", "answer", "answer", edges=((1, 2),)), backend)

    assert asyncio.run(main()).n_calls == 3


class Slow(FaultServer):
    """Each request takes another while."""

    latency_s = property(lambda self: self.rng.uniform(0.001, 0.03), lambda self, value: None)

    def __init__(self, seed, **options):
        self.rng = random.Random(seed)
        super().__init__(seed=seed, **options)


def served(graph, server):
    """The graph with LLMs of a server, fast enough in their profile for its latencies, so that budgets can bind."""
    fields = {"base_url": server.base_url, "api_key_env": None, "first_token_s": 0.01, "tokens_per_s": 20_000.0}
    return AgentGraph(tuple(replace(a, llm=a.llm.model_copy(update=fields | {"model": a.llm.name}),
                                    latency_s=0.02 + a.latency_s / 99) for a in graph.agents), graph.edges)


@pytest.mark.parametrize("seed", range(4))
def test_a_recording_made_in_any_order_gives_the_same_episodes_in_a_replay(seed, tmp_path):
    rng, path = random.Random(seed), tmp_path / "calls.sqlite"
    faults = {"refusal": 0.02, "missing usage": 0.03, "400": 0.03, "cut reply": 0.04, "overrun": 0.03, "500": 0.05}
    with Slow(seed, faults=faults) as server:
        graphs = [served(random_graph(rng, density=0.5), server) for _ in range(8)]
        budgets = [(round(g.cost * rng.uniform(1, 4), 1), g.latency_s * rng.uniform(0.8, 3)) for g in graphs]
        live = CachedChat(OpenAIChat(max_retries=1, backoff_s=0.001), path)
        tasks = [Task(f"t/{i}", "arithmetic", 1, f"What is {i} + 4?", str(i + 4)) for i in range(len(graphs))]

        async def main():
            try:
                return await asyncio.gather(*(run_graph(t, g, live, *b) for t, g, b in zip(
                    tasks, graphs, budgets, strict=True)))
            finally:
                await live.aclose()

        recorded = asyncio.run(main())
        live.close()
    assert server.most_in_flight > 1
    replay = CachedChat(None, path)
    for episode, task, graph, budget in zip(recorded, tasks, graphs, budgets, strict=True):
        again = run_graph_sync(task, graph, replay, *budget)
        assert again.calls == episode.calls
        assert again.row() | {"backend": ""} == episode.row() | {"backend": ""}
        assert episode.over_budget <= (episode.provider_overrun > 0)
    replay.close()


# ------------------------------------------------------------------------------------------------ faults

@pytest.mark.parametrize("usage", [None, Usage(50, 3)])
def test_a_call_that_fails_for_good_is_an_error_and_what_does_not_wait_for_it_is_asked(usage):
    graph = cast("answer", "answer", "review", "answer", edges=((1, 2), (0, 3), (2, 3)))
    backend = Scripted({0: "#### 7", 1: CallError("no such model", usage, 0.25), 2: ACCEPT, 3: "#### 7"})
    episode = run_graph_sync(TASK, graph, backend)
    assert (episode.status, episode.stop_reason, episode.correct) == ("error", "error", None)
    assert episode.reason == "agent 1 (m1): CallError: no such model"
    assert list(backend.asked) == [0, 1] and episode.n_calls == (1 if usage is None else 2)
    assert episode.cost == pytest.approx(45 + (0 if usage is None else 28))


def test_the_first_failure_in_the_order_of_the_graph_is_told_whichever_came_first():
    class Backwards(Scripted):
        async def wait(self, i):
            await asyncio.sleep(0.002 * (3 - i))

    backend = Backwards({0: "#### 7", 1: CallError("first"), 2: CallError("second")})
    assert "first" in run_graph_sync(TASK, cast(*["answer"] * 3), backend).reason


def test_what_stops_a_run_passes_after_calls_in_flight_and_before_others_start():
    class Waiting(Scripted):
        ended = 0

        async def wait(self, i):
            if i == 1:
                await asyncio.sleep(0.01)
                self.ended += 1
            else:
                await asyncio.sleep(0.001)

    backend = Waiting({0: RunStopped("no money"), 1: CallError("bad"), 2: "#### 7", 3: "#### 7"})
    with pytest.raises(RunStopped, match="no money"):
        run_graph_sync(TASK, cast(*["answer"] * 4, edges=((1, 2), (0, 3))), backend, 5000)
    assert (sorted(backend.asked), backend.ended) == ([0, 1], 1)


def test_what_stops_a_run_passes_on_an_instant_backend_too():
    class Instant(Scripted):
        async def complete(self, llm, messages, **options):
            return await super().complete(llm, messages, **options)

        complete.instant = True

    backend = Instant({0: RunStopped("no money"), 1: "#### 7"})
    with pytest.raises(RunStopped, match="no money"):
        run_graph_sync(TASK, cast("answer", "answer"), backend)
    assert list(backend.asked) == [0]


@pytest.mark.parametrize("instant", [False, True])
def test_a_mistake_of_ours_passes_too(instant, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("bamas_lite.agentbalance.execution.vote", broken)
    backend = SimulatedLLM() if instant else Scripted({0: "#### 7", 1: "#### 7", 2: "#### 7"})
    with pytest.raises(ZeroDivisionError):
        run_graph_sync(TASK, cast("answer", "answer", "answer", edges=((0, 2), (1, 2))), backend)


def test_cancelling_an_episode_cancels_its_calls():
    class Endless(Scripted):
        cancelled = 0

        async def wait(self, i):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

    async def main():
        backend = Endless({})
        episode = asyncio.create_task(run_graph(TASK, cast("answer", "answer", "answer", edges=((0, 2),)), backend))
        for _ in range(6):
            await asyncio.sleep(0)
        episode.cancel()
        with pytest.raises(asyncio.CancelledError):
            await episode
        return backend.cancelled, len(backend.asked)

    assert asyncio.run(main()) == (2, 2)


class Stuck(Scripted):
    """Agent 0 stops the episode by `fault` once all others have begun; they wait, and take a while to stop."""

    def __init__(self, says, fault):
        super().__init__(says)
        self.fault, self.begun, self.stopped = fault, 0, 0

    async def wait(self, i):
        self.begun += 1
        while self.begun < len(self.says):
            await asyncio.sleep(0)
        if i == 0:
            raise self.fault
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.stopped += 1


def nothing_is_left(start):
    """Run `start()` in an event loop of its own: what it raises, and what it leaves behind (tasks, complaints)."""
    complaints = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        raised = None
        try:
            await start()
        except (Exception, asyncio.CancelledError) as error:
            raised = type(error)
        left = len(asyncio.all_tasks()) - 1
        gc.collect()
        return raised, left

    return *asyncio.run(main()), complaints


def test_a_call_that_is_cancelled_from_within_leaves_no_other_running():
    backend = Stuck(dict.fromkeys(range(3), "#### 7"), asyncio.CancelledError())
    graph = cast(*["answer"] * 4, edges=((0, 3),))
    assert nothing_is_left(lambda: run_graph(TASK, graph, backend)) == (asyncio.CancelledError, 0, [])
    assert (sorted(backend.asked), backend.in_flight, backend.stopped) == ([0, 1, 2], 0, 2)


def test_a_mistake_of_ours_leaves_no_call_running(monkeypatch):
    def broken(run, j):
        raise ZeroDivisionError(j)

    monkeypatch.setattr("bamas_lite.agentbalance.execution._Run.hand_on_purse", broken)
    backend = Stuck(dict.fromkeys(range(3), "#### 7"), CallError("bad"))
    graph = cast(*["answer"] * 4, edges=((0, 3),))
    assert nothing_is_left(lambda: run_graph(TASK, graph, backend)) == (ZeroDivisionError, 0, [])
    assert (sorted(backend.asked), backend.in_flight, backend.stopped) == ([0, 1, 2], 0, 2)


def test_a_second_cancellation_waits_for_the_calls_too():
    backend = Stuck(dict.fromkeys(range(2), "#### 7"), asyncio.CancelledError())

    async def start():
        episode = asyncio.create_task(run_graph(TASK, cast("answer", "answer"), backend))
        while not backend.begun == 2 or backend.in_flight == 2:
            await asyncio.sleep(0)
        for _ in range(2):   # while the other call is stopping
            episode.cancel()
            await asyncio.sleep(0)
        await episode

    assert nothing_is_left(start) == (asyncio.CancelledError, 0, [])
    assert (backend.in_flight, backend.stopped) == (0, 1)


def test_an_unknown_bill_is_graded_only_where_it_took_nothing_from_another():
    graph = cast("answer", "answer", edges=((0, 1),))
    says = {0: Reply("#### 7", None, 1.0), 1: cut("#### 7")}
    assert run_graph_sync(TASK, graph, Scripted(says), 300, minimum_tokens={}).status == "error"
    assert run_graph_sync(TASK, graph, Scripted(says), 10**6).status == "ok"
    timed = run_graph_sync(TASK, graph, Scripted(says), None, 3.0, minimum_tokens={})
    assert timed.status == "ok" and timed.calls[1].max_tokens < 384   # time was short, and there is no cost budget


# ------------------------------------------------------------------------------------------------ wrong use

@pytest.mark.parametrize(("missing", "words"), [
    ({"first_token_s": None}, "'m1': first_token_s is missing"),
    ({"tokens_per_s": None}, "'m1': tokens_per_s is missing"),
    ({"first_token_s": None, "tokens_per_s": None}, "'m1': first_token_s and tokens_per_s are missing")])
def test_a_latency_budget_needs_the_latency_of_every_llm(missing, words):
    graph = cast("answer", "answer")
    second = graph.agents[1]
    slow = GraphAgent("b", second.role, second.llm.model_copy(update=missing), 1, 1, 1)
    graph, backend = AgentGraph((graph.agents[0], slow)), Scripted({0: "#### 7", 1: "#### 7"})
    with pytest.raises(ValueError, match=words):
        run_graph_sync(TASK, graph, backend, None, 5.0)
    assert not backend.asked and run_graph_sync(TASK, graph, backend).n_calls == 2


@pytest.mark.parametrize(("options", "words"), [
    ({"latency_budget": -1}, "latency_budget = -1: expected at least 0 seconds"),
    ({"latency_budget": "soon"}, "latency_budget = 'soon': expected a finite decimal number"),
    ({"latency_budget": math.nan}, "latency_budget = nan"),
    ({"budget": -1}, "budget = -1: expected at least 0"), ({"budget": math.inf}, "budget = inf"),
    ({"enforcement": "none"}, "enforcement = 'none'"), ({"temperature": -1}, "temperature = -1"),
    ({"token_limits": {}}, "token_limits = {}: expected domain"), ({"minimum_tokens": 3}, "minimum_tokens = 3"),
    ({"token_limits": {"arithmetic": {"critic": 3}}}, "has no executor"),
])
def test_wrong_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        run_graph_sync(TASK, some("answer"), SimulatedLLM(), **options)


def test_wrong_graphs_tasks_and_backends():
    with pytest.raises(ValueError, match="graph = 'star': expected an AgentGraph"):
        run_graph_sync(TASK, "star", SimulatedLLM())
    with pytest.raises(ValueError, match="task"):
        run_graph_sync("task", some("answer"), SimulatedLLM())
    with pytest.raises(ValueError, match="backend"):
        run_graph_sync(TASK, some("answer"), SimulatedLLM)


def test_token_limits_by_kind():
    backend = Scripted({0: "Add.", 1: "#### 7", 2: ACCEPT})
    graph = cast("document", "answer", "review", edges=((0, 1), (1, 2)))
    run_graph_sync(TASK, graph, backend, token_limits={"arithmetic": {"executor": 200, "critic": 50}})
    assert [backend.asked[i][3] for i in range(3)] == [200, 200, 50]
