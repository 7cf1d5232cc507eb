"""The checks of notebook 05: hints for what is wrong, never the answer (its solutions notebook has what is right)."""

import pytest

from bamas_lite.exercises.n05 import check_1, check_2, check_3
from bamas_lite.prompts import executor_messages


async def strongest_first(task, agents, call):
    for agent in agents:
        await call(agent, executor_messages(task, earlier=call.answer))
    return call.answer, "finished"


async def never_stops(task, agents, call):
    return await strongest_first(task, agents[::-1], call)


async def forgets(task, agents, call):
    for agent in agents[::-1]:
        await call(agent, executor_messages(task))
    return call.answer, "finished"


@pytest.mark.parametrize(("check", "answer", "words"), [
    (check_1, None, "set answer_1"), (check_1, [1], "expected a dict"), (check_1, {"star": 2, "linear": 3}, "a list"),
    (check_1, {"star": [384] * 3, "linear": [384]}, "number of calls of star"),
    (check_1, {"star": [384, 384], "linear": [384]}, "a limit of star"),
    (check_2, None, "set answer_2"), (check_2, lambda votes: votes[0][1], "the number of votes decides"),
    (check_2, lambda votes: 1 / 0, "raised ZeroDivisionError"),
    (check_2, lambda votes: max([a for _, a in votes], key=[a for _, a in votes].count), "of tier 1 decides"),
    (check_3, None, "set answer_3"), (check_3, strongest_first, "weakest comes first"),
    (check_3, never_stops, "when the first two answers agree"), (check_3, forgets, "does not carry the answer before"),
    (check_3, len, "raised TypeError"), (check_2, 3, "expected a function"), (check_3, 3, "expected a function"),
    (check_3, lambda *arguments: ("7", "finished"), "async def"),
])
def test_what_is_wrong_gets_a_hint(check, answer, words, capsys):
    check(answer)
    said = capsys.readouterr().out
    assert words in said and said.startswith("Exercise") and "right." not in said.replace("not right.", "")
    assert "154" not in said and "289" not in said
