"""Exercises of notebook 04: each check says right, or gives a hint, and never the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bamas_lite.exercises import expects

exercise_1 = """\
Exercise 1: what saving is worth.
Topology A answers 95% right and costs 60% of the budget; topology B answers 94% right and costs 30% of it (the same for
right and for wrong answers). With C_succ = 1, C_fail = 0 and both weights 1: for which g do A and B have the same
expected reward? For a larger g the policy prefers B.
answer_1 = a number"""

exercise_2 = """\
Exercise 2: a log that was not drawn uniformly.
Write the importance-weighted loss on rows, without the entropy: a function of logits (n, 4), the logged topologies
t (n,), rewards R (n,) and the probabilities mu (n,) with which the log took them. All are torch tensors. Where every
topology was drawn with its probability mu, its expected gradient must be that of -sum_t pi(t) R(t).
answer_2 = your function"""

exercise_3 = """\
Exercise 3: a learner of your own.
Write `learner(network, examples, settings, generator)`: train the network by cross-entropy on the best topology of each
state, `examples.R.argmax(1)`. `network(examples.embedding, examples.budget)` gives the logits (n, 4);
`settings.learning_rate` and `settings.epochs` are there to be used; take one step of torch.optim.Adam an epoch on all
examples. Return a list with one dict an epoch, each with the key "loss".
answer_3 = learner"""


@expects("a finite number")
def check_1(g: float | None) -> None:
    """Check the factor of exercise 1."""
    if g is None:
        print("Exercise 1: set answer_1 to a number.")
        return
    if isinstance(g, bool) or not isinstance(g, (int, float, np.number)) or not np.isfinite(g):
        print("Exercise 1: expected a finite number.")
        return
    A, B = (p * (1 + g * (1 - share)) for p, share in ((0.95, 0.60), (0.94, 0.30)))
    if abs(A - B) < 2e-5:
        print("Exercise 1: right.")
    elif abs((0.95 + g * 0.40) - (0.94 + g * 0.70)) < 2e-5:
        print("Exercise 1: close. Hint: the saving bonus is paid for right answers only.")
    else:
        better = "A" if A > B else "B"
        print(f"Exercise 1: with your g topology {better} has the larger expected reward.\nHint: write both expected "
              "rewards as p * (...) and set them equal.")


@expects("a function of the tensors logits, t, R and mu that returns the loss")
def check_2(loss: Callable[..., Any] | None) -> None:
    """Check the loss of exercise 2 against the expectation, on every possible row of one state."""
    if loss is None:
        print("Exercise 2: set answer_2 to a function of logits, t, R and mu.")
        return
    import torch
    z = torch.tensor([[0.3, -0.2, 0.9, 0.1]], dtype=torch.float64, requires_grad=True)
    R, mu = (torch.tensor(values, dtype=torch.float64) for values in ([1.0, 3.0, -2.0, 0.5], [0.1, 0.2, 0.3, 0.4]))
    wanted, = torch.autograd.grad(-(z.softmax(1) * R).sum(), z)
    try:
        # Each topology as often as the log draws it: ten rows with shares mu.
        t = torch.tensor([0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
        given, = torch.autograd.grad(loss(z.expand(10, 4), t, R[t], mu[t]), z)
    except Exception as error:  # the reader's code may raise anything
        print(f"Exercise 2: your function raised {type(error).__name__}: {error}")
        return
    pi = z.detach().softmax(1)
    if torch.allclose(given, wanted, atol=1e-9):
        print("Exercise 2: right.")
    elif torch.allclose(given, 10 * wanted, atol=1e-9):
        print("Exercise 2: ten times too large on ten rows. Hint: the mean over rows, not the sum.")
    elif torch.allclose(given, -(R - pi * R.sum()), atol=1e-9):
        print("Exercise 2: this ends at R / S. Hint: dividing log pi by mu undoes uneven draws, but the episodes\n"
              "were not drawn from pi; the ratio of two probabilities corrects for both.")
    elif torch.allclose(given, -(mu * R - pi * (mu * R).sum()), atol=1e-9):
        print("Exercise 2: this is the published loss. Hint: where does mu enter?")
    else:
        print("Exercise 2: the gradient is not that of the expectation.\nHint: which probability does the policy give "
              "to the logged topology, and which did the log give to it?")


@expects("a function learner(network, examples, settings, generator) that returns a list of dicts")
def check_3(learner: Callable[..., Any] | None) -> None:
    """Check the learner of exercise 3 on examples with a clear best topology."""
    if learner is None:
        print("Exercise 3: set answer_3 to your function learner(network, examples, settings, generator).")
        return
    import torch

    from bamas_lite.network import Examples, PolicyNetwork
    from bamas_lite.policy import OURS
    rng = np.random.default_rng(0)
    best = rng.integers(4, size=200)
    x = rng.normal(size=(200, 384)) / 20
    x[np.arange(200), best] += 1
    R = torch.tensor(rng.uniform(0, 0.5, size=(200, 4)))
    R[torch.arange(200), torch.tensor(best)] += 1
    ones = torch.ones(200, 4, dtype=torch.float64)
    examples = Examples(torch.arange(200), torch.tensor(x), torch.tensor(rng.uniform(0.2, 1, size=200)), ones, R, 4 * R)
    network = PolicyNetwork(generator=torch.Generator().manual_seed(0))
    settings = replace(OURS, epochs=60, learning_rate=3e-3)
    try:
        history = learner(network, examples, settings, torch.Generator().manual_seed(0))
    except Exception as error:  # the reader's code may raise anything
        print(f"Exercise 3: your function raised {type(error).__name__}: {error}")
        return
    if not (isinstance(history, list) and len(history) == 60 and all("loss" in entry for entry in history)):
        print('Exercise 3: expected a list with one dict an epoch (settings.epochs), each with the key "loss".')
        return
    with torch.no_grad():
        logits = network(examples.embedding, examples.budget)
    found = float((logits.argmax(1).numpy() == best).mean())
    if found < 0.95:
        print(f"Exercise 3: the best topology has the largest logit in {found:.0%} of the examples.\nHint: "
              "is the gradient set to zero before each step, and is the step taken on the network's own parameters?")
    elif not abs(float(history[-1]["loss"])) < 0.5 * abs(float(history[0]["loss"])):
        print("Exercise 3: the choices are right, but the losses returned do not fall. Hint: one float an epoch.")
    else:
        print("Exercise 3: right.")
