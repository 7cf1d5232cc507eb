"""The checks of notebook 04: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

import pytest
import torch

from bamas_lite.exercises.n04 import check_1, check_2, check_3


def picked(logits, t):
    return logits.log_softmax(1)[torch.arange(len(t)), t]


def descent(sign=1.0, history=lambda loss: {"loss": loss.item()}):
    def learner(network, examples, settings, generator):
        optimizer, entries = torch.optim.Adam(network.parameters(), lr=settings.learning_rate), []
        for _ in range(settings.epochs):
            optimizer.zero_grad()
            logits = network(examples.embedding, examples.budget)
            loss = torch.nn.functional.cross_entropy(sign * logits, examples.R.argmax(1))
            loss.backward()
            optimizer.step()
            entries.append(history(loss))
        return entries
    return learner


@pytest.mark.parametrize(("check", "answer", "words"), [
    (check_1, None, "set answer_1"), (check_1, "0.1", "expected a finite number"), (check_1, 0.0, "topology A has"),
    (check_1, 1.0, "topology B has"), (check_1, 1 / 30, "paid for right answers only"),
    (check_2, None, "set answer_2"), (check_2, lambda z, t, R, b: 1 / 0, "raised ZeroDivisionError"),
    (check_2, lambda z, t, R, b: -(picked(z, t) * R).mean(), "this is the published loss"),
    (check_2, lambda z, t, R, b: -(picked(z, t) / b * R).mean(), "ends at R / S"),
    (check_2, lambda z, t, R, b: -(picked(z, t).exp() / b * R).sum(), "mean over rows"),
    (check_2, lambda z, t, R, b: (picked(z, t).exp() / b * R).mean(), "not that of the expectation"),
    (check_3, None, "set answer_3"), (check_3, lambda *a: [], "one dict an epoch"),
    (check_3, lambda *a: 1 / 0, "raised ZeroDivisionError"), (check_3, descent(sign=-1.0), "Hint: is the gradient"),
    (check_3, descent(history=lambda loss: {"loss": 1.0}), "losses returned do not fall"),
])
def test_what_is_wrong_gets_a_hint(check, answer, words, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert words in said and said.startswith("Exercise") and "right.\n" not in said
    assert "0.0359" not in said and "0.036" not in said


def test_what_is_right_is_right(capsys):
    check_1(0.01 / (0.94 * 0.7 - 0.95 * 0.4))
    check_2(lambda z, t, R, b: -(picked(z, t).exp() / b * R).mean())
    check_2(lambda z, t, R, b: -(picked(z, t).exp().detach() / b * picked(z, t) * R).mean())  # the form with log pi
    check_3(descent())
    assert capsys.readouterr().out.count("right.\n") == 4
