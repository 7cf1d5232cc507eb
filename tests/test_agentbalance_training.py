"""Training against enumeration, finite differences and closed forms."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bamas_lite.agentbalance.backbones import EMPTY
from bamas_lite.agentbalance.budgets import Budgets
from bamas_lite.agentbalance.designer import Query
from bamas_lite.agentbalance.difficulty import train_difficulty
from bamas_lite.agentbalance.execution import run_graph_sync
from bamas_lite.agentbalance.profiles import profile_llms_sync
from bamas_lite.agentbalance.roles import load_roles
from bamas_lite.agentbalance.training import (
    Batch,
    Duals,
    Settings,
    fit_difficulty,
    log_probabilities,
    not_trained,
    policy_loss,
    train_designer,
)
from bamas_lite.agentbalance.variants import BAMAS_EDGES, OURS, STYLES, TOPOLOGY_FIRST
from bamas_lite.encoder import encode
from bamas_lite.llm import CallError, Reply, Usage
from bamas_lite.pool import Pool, load_pool
from bamas_lite.simulation import SimulatedLLM
from bamas_lite.tasks import load_tasks
from tests.designs_by_hand import probability
from tests.small_designers import (
    SETS,
    answers_last,
    designer,
    enumerated,
    profiles,
    questions,
    some_roles,
    twelve_roles,
)

NO_ENTROPY = Settings(entropy=0.0, pool_entropy=0.0)
ONE_POOL, TWO_POOLS = replace(OURS, pools=1), replace(OURS, pools=2)
BUDGETS = Budgets(400, 20)
QUERY = Query(questions()[0][1], "arithmetic", BUDGETS)
TASKS = [task for name in SETS for task in load_tasks(name, "train", limit=4)]
SHORT = Settings(epochs=1, batch=6, designs=2)

TINY = [   # variant, number of LLMs, kinds of the roles
    (ONE_POOL, 2, ("answer", "review")), (ONE_POOL, 2, ("answer", "answer")),
    (ONE_POOL, 1, ("document", "answer", "review")), (replace(ONE_POOL, gate=False), 2, ("answer", "answer")),
    (replace(ONE_POOL, latency_term=False), 1, ("answer", "answer", "review")),
    (replace(ONE_POOL, reads_question=False), 2, ("answer", "answer")),
    (TOPOLOGY_FIRST, 3, ("answer", "answer", "review")), (replace(STYLES[1], gate=True), 3, ("document", "answer"))]


def tiny(variant, number, kinds, **fields):
    return designer(variant, number, some_roles(*kinds), **fields)


@pytest.mark.parametrize(("variant", "number", "kinds"), TINY)
@pytest.mark.parametrize("query", [QUERY, replace(QUERY, budgets=Budgets(120, 1.7))], ids=["ample", "tight"])
def test_log_probabilities_of_everything_that_can_be_drawn(variant, number, kinds, query):
    some = tiny(variant, number, kinds, alpha=2.0)
    designs = list(enumerated(some, query).values())
    log_pi, entropy = (values.numpy() for values in log_probabilities(some, designs))
    assert np.exp(log_pi).sum() == pytest.approx(1) and len(designs) > 2
    np.testing.assert_allclose(np.exp(log_pi), [probability(some, design) for design in designs])
    # chain rule: the entropies of the decisions on the way add up to the entropy of the whole
    assert np.exp(log_pi) @ entropy == pytest.approx(-(np.exp(log_pi) @ log_pi))
    assert (entropy >= 0).all()


def test_log_probabilities_do_not_depend_on_the_batch():
    sets = twelve_roles() | {"code": some_roles("document", "answer", "review")["code"]}
    some = designer(replace(OURS, stacked=False), roles=sets)   # few LLMs a pool: all matchings are enumerated
    asked = [Query(x, domain, Budgets(cost, 9)) for _, x, domain in questions() for cost in (400, 3000)]
    designs = some.designs(asked, np.random.default_rng(0))
    together = log_probabilities(some, designs)
    for i, design in enumerate(designs):
        assert [values[i].item() for values in together] == pytest.approx(
            [values.item() for values in log_probabilities(some, [design])])
        assert together[0][i].exp().item() == pytest.approx(probability(some, design), rel=1e-6)


def test_fixed_choices_have_no_part_in_them():
    for variant in (TOPOLOGY_FIRST, replace(OURS, backbones="random")):
        some = tiny(replace(variant, gate=False), 3, ("answer",))
        log_pi, entropy = log_probabilities(some, some.designs([QUERY] * 3, np.random.default_rng(0)))
        assert log_pi.tolist() == entropy.tolist() == [0, 0, 0]


def trainable(some):
    some.network.requires_grad_(True)
    return dict(some.network.named_parameters())


def gradients(loss, parameters):
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {name: torch.zeros_like(parameters[name]) if g is None else g
            for name, g in zip(parameters, found, strict=True)}


def test_gradients_equal_finite_differences():
    some = designer()
    parameters = trainable(some)
    draw = np.random.default_rng(0)
    asked = [(TASKS[0], Query(x, domain, Budgets(2500, seconds)))
             for _, x, domain in questions() for seconds in (4, 30)]
    batch = Batch.draw(some, asked, 3, draw)
    rewards, settings = draw.normal(size=len(batch.designs)), Settings(entropy=0.3, pool_entropy=0.2)
    exact = gradients(policy_loss(some, batch, rewards, settings), parameters)
    assert all(g.isfinite().all() for g in exact.values())
    moved = 0
    for name, parameter in parameters.items():
        for _ in range(2):
            place = tuple(draw.integers(size) for size in parameter.shape)
            with torch.no_grad():
                value, ends = parameter[place].item(), []
                for step in (1e-6, -1e-6):
                    parameter[place] = value + step
                    ends.append(policy_loss(some, batch, rewards, settings).item())
                parameter[place] = value
            assert exact[name][place].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3, abs=1e-7), name
            moved += abs(exact[name][place].item()) > 1e-6
    assert moved > 15


@pytest.mark.parametrize(("variant", "number", "kinds"), [
    (ONE_POOL, 2, ("answer", "answer")), (TWO_POOLS, 2, ("answer", "answer")), (TWO_POOLS, 2, ("answer", "review")),
    (replace(TOPOLOGY_FIRST, pools=1), 2, ("answer", "answer"))])
def test_the_expected_policy_gradient_is_the_gradient_of_the_expected_reward(variant, number, kinds):
    """Groups of two, all pairs of outcomes, each weighted by how often it comes (the loss is linear in rewards)."""
    some = tiny(variant, number, kinds)
    parameters = trainable(some)
    pools = range(variant.pools) if variant.backbones == "learned" else [None]
    outcomes = {k: list(enumerated(some, replace(QUERY, pool=k)).values()) for k in pools}
    rng = np.random.default_rng(0)
    reward = {k: rng.normal(size=len(designs)) for k, designs in outcomes.items()}
    value = {k: log_probabilities(some, outcomes[k])[0].exp() @ torch.tensor(reward[k]) for k in pools}
    expected = sum(value.values()) / len(value)   # all pools are tried equally often
    if len(outcomes) > 1:   # and selected with pi_k, which does not touch what happens inside of them
        inputs = some.inputs([QUERY])
        logits = some.network.pool_logits(some.network.context(inputs.x, inputs.d, inputs.b), inputs.pools)[0]
        expected = expected + logits.softmax(0) @ torch.stack([v.detach() for v in value.values()])
    n = max(len(designs) for designs in outcomes.values()) ** 2
    query_of, pool_of, designs, rewards = [], [], [], []
    for k in pools:
        p = [probability(some, design) for design in outcomes[k]]
        for q in range(n):
            a, b = divmod(q, len(p))
            weight = n * p[a] * p[b] if a < len(p) else 0.0
            a %= len(p)
            query_of.append(q)
            pool_of.append(EMPTY if k is None else k)
            designs += [outcomes[k][a], outcomes[k][b]]
            rewards += [weight * reward[k][a], weight * reward[k][b]]
    batch = Batch([QUERY] * n, np.array(query_of), np.array(pool_of), designs, [TASKS[0]] * len(designs))
    found = gradients(policy_loss(some, batch, np.array(rewards), NO_ENTROPY), parameters)
    wanted = gradients(-expected, parameters)
    for name in parameters:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-9, err_msg=name)
    assert sum(g.abs().sum() > 1e-4 for g in wanted.values()) > 5


def test_groups_of_a_batch():
    """Every feasible pool of every query, as many designs of each; without pools three times as many a query."""
    tight, ample = Budgets(60, 3), Budgets(9000, 30)
    asked = [(TASKS[0], Query(questions()[0][1], "arithmetic", tight)),
             (TASKS[5], Query(questions()[2][1], "mathematics", ample))]
    some = designer(replace(OURS, stacked=False))
    batch = Batch.draw(some, asked, 2, np.random.default_rng(0))
    cheap = [k for k, pool in enumerate(some.pools) if min(p.cost("arithmetic") for p in pool.profiles) <= 60]
    assert 1 <= len(cheap) < 3
    groups = [(0, k) for k in cheap] + [(1, k) for k in range(3)]
    assert list(zip(batch.query_of, batch.pool_of, strict=True)) == groups
    assert [(d.pool, d.query.budgets) for d in batch.designs] == [
        (k, (tight, ample)[q]) for q, k in groups for _ in range(2)]
    assert batch.tasks == [asked[q][0] for q, _ in groups for _ in range(2)]
    stacked = Batch.draw(designer(), asked, 2, np.random.default_rng(0))   # the cheapest LLM is in all pools
    assert list(zip(stacked.query_of, stacked.pool_of, strict=True)) == [(q, k) for q in range(2) for k in range(3)]
    alone = Batch.draw(designer(TOPOLOGY_FIRST), asked, 2, np.random.default_rng(0))
    assert (alone.query_of.tolist(), alone.pool_of.tolist(), len(alone.designs)) == ([0, 1], [EMPTY] * 2, 12)
    assert Batch.draw(designer(), [], 2, np.random.default_rng(0)).designs == []


def test_duals_in_closed_form():
    """Overshoots 0.25 and 0.05: lambda grows by 2 * (0.25 - 0.1) and falls by 2 * (0.1 - 0.05); never below 0."""
    duals = Duals(Settings(tolerance=0.1, dual_rate=2.0))
    outcomes = np.array([(1.0, 1.5, 0.5), (0.0, 0.5, 1.1)])
    assert duals.overshoots(outcomes) == pytest.approx((0.25, 0.05))
    # right and half over: 1 - 0.5; wrong, within cost, a tenth too slow: -0.1
    assert duals.reward(outcomes, 0.02).tolist() == pytest.approx([0.5, -0.1])
    assert duals.reward(np.array([(1.0, 0.25, 0.9), (0.0, 0.25, 0.9)]), 0.02).tolist() == pytest.approx([1.015, 0.0])
    duals.ascend(outcomes)
    assert (duals.cost, duals.latency) == pytest.approx((1.3, 0.9))
    assert duals.reward(outcomes, 0.0).tolist() == pytest.approx([1 - 1.3 * 0.5, -0.9 * 0.1])
    for _ in range(20):
        duals.ascend(np.array([(1.0, 0.5, 0.5)]))
    assert (duals.cost, duals.latency) == (0.0, 0.0)


# --- whole runs ---

def measured(number=5):
    """Profiles that know which tasks their LLMs got right: the dearer, the more."""
    return [replace(p, right={task.task_id: i < 2 * m for i, task in enumerate(TASKS)})
            for m, p in enumerate(profiles(number))]


def weights(result):
    return {name: tensor.clone() for name, tensor in result.designer.network.state_dict().items()}


def test_the_same_seed_is_the_same_designer():
    one, again, other = (train_designer(TASKS, measured(), SimulatedLLM(0), settings=replace(SHORT, seed=seed))
                         for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(weights(one).values(), weights(again).values(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(weights(one).values(), weights(other).values(), strict=True))
    assert one.history.equals(again.history) and one.history.epoch.tolist() == [1]
    assert not one.history.isna().any(axis=None)
    for tensor in weights(one).values():   # what a file holds
        assert torch.equal(tensor, tensor.float().double()) and not tensor.requires_grad
    assert one.designer.about["settings"]["batch"] == 6
    design = one.designer.design(TASKS[0].question, "arithmetic", Budgets(2500, 9))
    assert design.graph.agents


def test_training_starts_from_the_designer_that_is_not_trained():
    """With steps of size 0 nothing is learned."""
    still = replace(SHORT, learning_rate=0, pool_learning_rate=0, pool_steps=0, seed=3)
    trained = train_designer(TASKS, measured(), SimulatedLLM(0), settings=still).designer
    start = not_trained(measured(), trained.difficulty, seed=3)
    for name, values in start.network.state_dict().items():
        assert torch.equal(trained.network.state_dict()[name], values.float().double())
    assert start.quality == trained.quality and start.pools == trained.pools
    with pytest.raises(ValueError, match="seed = -1"):
        not_trained(measured(), trained.difficulty, seed=-1)


@pytest.mark.parametrize(("variant", "still"), [
    (OURS, ()), (replace(OURS, gate=False), ("gate", "open")),
    (BAMAS_EDGES, ("pool", "U", "V", "beta", "fill", "fill_others")),
    (replace(TOPOLOGY_FIRST, gate=False), ("pool", "U", "V", "beta", "fill", "fill_others", "gate", "open"))],
    ids=["all", "no gate", "BAMAS + edges", "one LLM, no gate"])
def test_only_what_a_variant_learns_moves(variant, still):
    settings = replace(SHORT, cost_budgets=(3000, 9000), latency_budgets=(60.0,))
    after = weights(train_designer(TASKS, measured(), SimulatedLLM(0), variant=variant, settings=settings))
    from bamas_lite.agentbalance.network import DesignNetwork
    before = DesignNetwork(torch.Generator().manual_seed(0)).state_dict()
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name].float().double(), after[name])}
    assert moved >= {"join", "agent", "own", "others"}
    assert {name for name in moved if name.startswith(still or "-")} == set()
    assert still or moved >= {"pool", "pool_hidden", "U", "V", "beta", "fill", "fill_others", "gate", "open",
                              "question"}


class OnlyOne:
    """A backend that answers at once: one LLM is always right, all others never."""

    name, instant, seed = "only one", True, 0

    def __init__(self, llm):
        self.llm = llm

    def bound_prompt_tokens(self, llm, messages):
        return 400

    async def complete(self, llm, messages, *, max_tokens, temperature=0.0, role="executor", task=None):
        return Reply(f"#### {task.reference if llm.name == self.llm else -1}", Usage(100, 50), 0.5)

    complete.instant = True


@pytest.mark.parametrize("llm", ["GPT-4.1 nano", "GPT-4.1 mini"])
def test_training_finds_the_llm_that_is_right(llm):
    tasks = load_tasks("word_problems", "train", limit=12)
    known = [replace(p, right={task.task_id: p.llm.name == llm for task in tasks}) for p in profiles(3)]
    settings = Settings(epochs=12, batch=6, designs=3, cost_budgets=(1000,), latency_budgets=(60.0,))
    result = train_designer(tasks, known, OnlyOne(llm), settings=settings, variant=ONE_POOL)
    assert result.history.correct.iloc[-1] > max(result.history.correct.iloc[0], 0.95)
    designs = [result.designer.design(x, "arithmetic", Budgets(1000, 60)) for x in encode([t.question for t in tasks])]
    assert all(any(agent.llm.name == llm for agent in design.graph.agents) for design in designs)


class Broken(OnlyOne):
    """One LLM's calls fail."""

    async def complete(self, llm, messages, **options):
        if llm.name == self.llm:
            raise CallError("503 no server")
        return await super().complete(llm, messages, **options)

    complete.instant = True


def test_a_failed_call_is_no_wrong_answer():
    tasks = load_tasks("word_problems", "train", limit=4)
    known = [replace(p, right={task.task_id: True for task in tasks}) for p in profiles(2)]
    words = (r"task 'word_problems/train/000[0-3]', graph .*GPT-4.1 nano.*edge.*: no answer that could be graded: "
             r".* \(GPT-4.1 nano\): CallError: 503 no server")
    with pytest.raises(RuntimeError, match=words) as error:
        train_designer(tasks, known, Broken("GPT-4.1 nano"), settings=replace(SHORT, cost_budgets=(9000,)))
    assert "\n" not in str(error.value)
    assert train_designer(tasks, known, Broken("GPT-4.1"), settings=SHORT).history.correct.tolist() == [0.0]


@pytest.mark.parametrize("variant", [OURS, replace(OURS, backbones="random"), TOPOLOGY_FIRST, BAMAS_EDGES],
                         ids=lambda variant: variant.name)
@pytest.mark.parametrize("names", [["Gemini 2.0 Flash"], ["Llama 3.1 8B", "GPT-4.1"], ["GPT-4.1", "Gemini 2.0 Flash"],
                                   ["Llama 3.1 8B", "GPT-4.1 mini", "Claude Sonnet 4.5"]], ids=len)
def test_pools_of_few_llms_from_profiles_to_a_run(names, variant):
    llms = {llm.name: llm for llm in load_pool("fourteen").with_max_tokens(1024).llms}
    pool = Pool(name="few", llms=[llms[name].model_copy(update={"tier": i}) for i, name in enumerate(names, 1)])
    backend = SimulatedLLM(0)
    measured_here = profile_llms_sync(pool, TASKS, backend)
    settings = replace(SHORT, cost_budgets=(3000, 9000), latency_budgets=(60.0,))
    some = train_designer(TASKS, measured_here, backend, variant=variant, settings=settings).designer
    assert 1 <= len(some.pools) <= min(3, len(names))
    for task in TASKS[::4]:
        for mode in ("greedy", "sample"):
            graph = some.design(task.question, task.domain, Budgets(4000, 60), mode).graph
            episode = run_graph_sync(task, graph, backend, 4000, 60)
            assert (episode.status, {agent.llm.name for agent in graph.agents} <= set(names)) == ("ok", True)
            assert 0 < episode.cost <= 4000 and 0 < episode.latency_s <= 60


def test_roles_whose_answer_is_the_least_critical_can_be_trained():
    """Of whose draws some left nobody to answer: their log probability was not a number."""
    for most in (replace(OURS, pools=1), replace(OURS, backbones="random")):
        result = train_designer(TASKS, measured(2), SimulatedLLM(0), variant=most, roles=answers_last(),
                                settings=replace(SHORT, cost_budgets=(40, 150), latency_budgets=(60.0,)))
        assert all(tensor.isfinite().all() for tensor in weights(result).values())
    some = designer(ONE_POOL, 1, answers_last(), most_copies=1)
    log_pi, entropy = log_probabilities(some, some.designs([QUERY] * 20, np.random.default_rng(0)))
    assert log_pi.isfinite().all() and (log_pi <= 0).all() and entropy.isfinite().all()


def test_difficulty_is_the_share_of_wrong_answers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 384)) / math.sqrt(384)
    wrong = (x[:, 0] > 0) * 0.6 + 0.2
    model = train_difficulty(x, wrong, weight_decay=0.0, epochs=300)
    np.testing.assert_allclose(model(torch.tensor(x)), wrong, atol=0.05)
    again = train_difficulty(x, wrong, weight_decay=0.0, epochs=300)
    assert torch.equal(model(torch.tensor(x)), again(torch.tensor(x))) and not model.output.weight.requires_grad
    other = train_difficulty(x, wrong, seed=1, weight_decay=0.0, epochs=300)
    assert not torch.equal(model(torch.tensor(x)), other(torch.tensor(x)))


def test_difficulty_from_what_was_measured():
    """Task i was answered by LLM m if i < 2 m: of five LLMs, the later the task the fewer."""
    d = fit_difficulty(TASKS, measured())(torch.tensor(encode([task.question for task in TASKS]), dtype=torch.float64))
    share = np.array([np.mean([not i < 2 * m for m in range(5)]) for i in range(len(TASKS))])
    assert np.corrcoef(d, share)[0, 1] > 0.9
    with pytest.raises(ValueError, match="task 'word_problems/train/0000': no LLM was profiled on it"):
        fit_difficulty(TASKS, profiles())


# --- wrong input ---

NUMBERS = ("learning_rate", "pool_learning_rate", "entropy", "pool_entropy", "saving", "tolerance", "dual_rate")


@pytest.mark.parametrize(("field", "value", "message"), [
    ("epochs", 0, "epochs = 0: expected a whole number of at least 1"), ("batch", 0, "batch = 0: expected"),
    ("epochs", 1.5, "epochs = 1.5: expected a whole number"), ("epochs", True, "epochs = True: expected"),
    ("designs", 1, "designs = 1: expected a whole number of at least 2"), ("seed", -1, "seed = -1: expected"),
    ("seed", 2**64, "seed = 18446744073709551616: expected a whole number from 0 to"),
    ("pool_steps", -1, "pool_steps = -1: expected a whole number of at least 0"),
    *((name, value, f"{name} = {value}: expected a number from 0 to 1") for name in NUMBERS
      for value in (-0.1, math.nan, math.inf, None, True)),
    ("learning_rate", 1.5, "learning_rate = 1.5: expected a number from 0 to 1"),
    ("cost_budgets", (), r"cost_budgets = \(\): expected a tuple of at least one budget"),
    ("cost_budgets", (600, 0), r"cost_budgets = \(600, 0\): cost = 0: expected a positive number of u\$"),
    ("cost_budgets", (math.inf,), r"cost_budgets = \(inf,\): cost = inf: expected a positive number of u\$"),
    ("cost_budgets", "600", "cost_budgets = '600': expected a tuple"),
    ("latency_budgets", (60, -1), r"latency_budgets = \(60, -1\): latency_s = -1: expected a positive number"),
    ("latency_budgets", (math.nan,), r"latency_budgets = \(nan,\): latency_s = nan: expected"),
    ("latency_budgets", [], r"latency_budgets = \[\]: expected a tuple of at least one budget"),
    ("latency_budgets", 60, "latency_budgets = 60: expected a tuple")])
def test_settings_that_are_none(field, value, message):
    with pytest.raises(ValueError, match=message):
        Settings(**{field: value})


def test_settings_are_plain_numbers():
    """So that a designer's file can hold them."""
    same = Settings(epochs=np.int64(6), learning_rate=np.float32(0.5), latency_budgets=(4, math.inf), dual_rate="5")
    assert same == Settings(epochs=6, learning_rate=0.5, latency_budgets=(4, math.inf))
    assert (type(same.epochs), type(same.learning_rate), type(same.dual_rate)) == (int, float, float)


ROWS, SHARES = np.zeros((3, 384)), np.array([0.0, 0.5, 1.0])


@pytest.mark.parametrize(("wrong", "message"), [
    ({"x": np.zeros((3, 5))}, r"x is an array of shape \(3, 5\): expected \(n, 384\), n at least 1"),
    ({"x": np.zeros(384)}, r"x is an array of shape \(384,\): expected \(n, 384\)"),
    ({"x": np.zeros((0, 384)), "wrong": []}, r"x is an array of shape \(0, 384\): expected \(n, 384\), n at least 1"),
    ({"x": np.full((3, 384), np.nan)}, r"x is an array of shape \(3, 384\): expected .* of finite numbers"),
    ({"x": None}, "x = None: expected an array of numbers"),
    ({"x": ["How many?"] * 3}, "x = .*: expected an array of numbers"),
    ({"wrong": SHARES[:2]}, r"wrong is an array of shape \(2,\): expected \(3,\), one for each row of x"),
    ({"wrong": SHARES[:, None]}, r"wrong is an array of shape \(3, 1\): expected \(3,\)"),
    ({"wrong": 2 * SHARES}, r"wrong is .*: expected .* of numbers from 0 to 1"),
    ({"wrong": SHARES - 0.1}, r"wrong is .*: expected .* of numbers from 0 to 1"),
    ({"wrong": SHARES * np.nan}, r"wrong is .*: expected .* of numbers from 0 to 1"),
    ({"wrong": None}, "wrong = None: expected an array of numbers"),
    ({"seed": -1}, "seed = -1: expected a whole number"), ({"epochs": 0}, "epochs = 0: expected a whole number"),
    ({"weight_decay": math.nan}, "weight_decay = nan: expected a number from 0 to 1")])
def test_difficulty_of_what_cannot_be_fitted(wrong, message):
    given = {"x": ROWS, "wrong": SHARES} | wrong
    with pytest.raises(ValueError, match=message):
        train_difficulty(given.pop("x"), given.pop("wrong"), **given)


@pytest.mark.parametrize(("tasks", "known", "message"), [
    *((tasks, measured(), "tasks = .*: expected a list of at least one Task") for tasks in (
        [], None, "How many?", ["How many?"], TASKS[0], [*TASKS, None])),
    *((TASKS, known, "profiles = .*: expected a list of at least one Profile") for known in (
        [], None, ["GPT-4.1"], measured()[0]))])
def test_difficulty_of_no_tasks_or_profiles(tasks, known, message):
    with pytest.raises(ValueError, match=message):
        fit_difficulty(tasks, known)


class Waits(OnlyOne):
    """As a provider: it does not answer at once."""

    name = "live toy"

    async def complete(self, *arguments, **options):
        await asyncio.sleep(0)
        return await super().complete(*arguments, **options)


def test_a_backend_that_waits_is_told_what_to_do():
    def train():
        return train_designer(TASKS, measured(), Waits("GPT-4.1 nano"), settings=SHORT)

    async def in_a_notebook():
        train()

    for run in (train, lambda: asyncio.run(in_a_notebook())):
        with pytest.raises(ValueError, match=r"backend 'live toy' waits for its answers.* train with SimulatedLLM"):
            run()


@pytest.mark.parametrize(("wrong", "message"), [
    ({"tasks": []}, r"tasks = \[\]: expected a list of at least one Task"),
    ({"tasks": ["How many?"]}, "tasks = .*: expected a list of at least one Task"),
    ({"profiles": None}, "profiles = None: expected a list of at least one Profile"),
    ({"backend": 3}, "backend = 3: expected an object with name, complete and bound_prompt_tokens"),
    ({"variant": "no gate"}, "variant = 'no gate': expected a Variant"),
    ({"difficulty": 0.5}, "difficulty = 0.5: expected a Difficulty"),
    ({"difficulty": 0}, "difficulty = 0: expected a Difficulty"),
    ({"roles": {}}, r"roles = \{\}: expected what load_roles returns"),
    ({"roles": {"general": load_roles()["general"]}}, "roles: has no set '(mathematics|code)', which .* needs"),
    ({"settings": 3}, "settings = 3: expected a Settings"),
    ({"settings": replace(SHORT, cost_budgets=(1,))}, r"cost_budgets = \(1,\).*no LLM \(or team\)"),
    ({"settings": replace(SHORT, latency_budgets=(0.01,))}, r"latency_budgets = \(0.01,\).*no LLM \(or team\)")])
def test_wrong_arguments_are_one_clear_message(wrong, message):
    given = {"tasks": TASKS, "profiles": measured(), "backend": SimulatedLLM(0), "settings": SHORT} | wrong
    with pytest.raises(ValueError, match=message):
        train_designer(given.pop("tasks"), given.pop("profiles"), given.pop("backend"), **given)


def test_tasks_for_which_no_budget_was_found_are_left_out():
    """Code costs more than the budget allows: only the others are trained on, also where a whole batch is code."""
    asked = replace(SHORT, batch=2, cost_budgets=(40,), latency_budgets=(60.0,))
    result = train_designer(TASKS, measured(), SimulatedLLM(0), settings=asked)
    assert result.history.agents.iloc[0] >= 1
