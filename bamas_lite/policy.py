"""The topology policy pi_theta(t | T, B): train it on an offline log, ask it, save it and load it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.encoder import DIMENSION, ENCODER, EncoderError, encode
from bamas_lite.inputs import exact, file_path, shown, whole
from bamas_lite.losses import expectation_loss, importance_loss, published_loss
from bamas_lite.rewards import CODE_REWARDS, OUR_REWARDS, LogError, LogTable, Rewards, reward
from bamas_lite.tasks import Task, check_task, load_tasks
from bamas_lite.trajectory_log import write_whole

if TYPE_CHECKING:
    from bamas_lite.network import Features, Learner, PolicyNetwork

__all__ = [
    "CODE_REWARDS", "DIMENSION", "ENCODER", "EncoderError", "LogError", "LogTable", "OURS", "OUR_REWARDS",
    "PAPER_SETTINGS", "PolicyFileError", "PolicyNetwork", "Rewards", "Settings", "TopologyPolicy", "TrainingResult",
    "encode", "expectation_loss", "importance_loss", "published_loss", "questions_of", "reward", "train_policy",
]

Objective = Literal["published", "importance", "expectation"]
ModelChoice = Literal["reward", "matched"]


def __getattr__(name: str) -> Any:
    """`PolicyNetwork` is loaded when it is asked for: it needs torch, this module does not."""
    if name == "PolicyNetwork":
        from bamas_lite.network import PolicyNetwork
        return PolicyNetwork
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class PolicyFileError(ValueError):
    """A file that is no policy of this kit; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Settings:
    """How a policy is trained.

    Attributes:
        rewards: constants of the reward.
        objective: "published", "importance" or "expectation" (see losses.py).
        learning_rate: of Adam.
        epochs: passes over the log.
        batch: log rows in a batch.
        beta: weight of the entropy.
        seed: of the initial weights and the order of the batches.
        features: "concatenate" (paper) or "add" (code).
        holdout: share of the tasks that are kept aside; the epoch that does best on them is kept. With 0 (paper) it is
            the epoch with the best mean reward on the whole log, which cannot tell learning from memory.
        model_choice: what "best" means: "reward" (paper), the mean reward of the policy; "matched" (code), that of the
            log rows whose topology a draw from the policy happens to equal.
        source: where the settings come from.
    """

    rewards: Rewards
    objective: Objective
    learning_rate: float
    epochs: int
    batch: int
    beta: float = 0.001
    seed: int = 0
    features: Features = "concatenate"
    holdout: float = 0.0
    model_choice: ModelChoice = "reward"
    source: str = "ours"

    def __post_init__(self) -> None:
        if self.objective not in ("published", "importance", "expectation"):
            raise ValueError(f"objective = {shown(self.objective)}: "
                             "expected 'published', 'importance' or 'expectation'")
        if self.model_choice not in ("reward", "matched"):
            raise ValueError(f"model_choice = {shown(self.model_choice)}: expected 'reward' or 'matched'")
        if not isinstance(self.rewards, Rewards):
            raise ValueError(f"rewards = {shown(self.rewards)}: expected Rewards, such as OUR_REWARDS")
        for name, least, most in (("epochs", 1, None), ("batch", 1, None), ("seed", 0, 2**63 - 1)):
            object.__setattr__(self, name, whole(getattr(self, name), name, least, most))
        for name, valid, expected in (("learning_rate", lambda x: 0 < x, "a number above 0"),
                                      ("beta", lambda x: 0 <= x, "a number of at least 0"),
                                      ("holdout", lambda x: 0 <= x < 1, "a share from 0, below 1")):
            if not valid(exact(getattr(self, name), name)):
                raise ValueError(f"{name} = {shown(getattr(self, name))}: expected {expected}")
            object.__setattr__(self, name, float(getattr(self, name)))


def _paper(benchmark: str, learning_rate: float, seed: int) -> Settings:
    return Settings(CODE_REWARDS[benchmark], "published", learning_rate, epochs=10, batch=20_000, seed=seed,
                    source="paper; reward constants from the code")


PAPER_SETTINGS = {"gsm8k": _paper("gsm8k", 3e-4, 42), "math": _paper("math", 1.5e-3, 42),
                  "mbpp": _paper("mbpp", 1.5e-3, 123)}
PAPER_SETTINGS |= {"arithmetic": PAPER_SETTINGS["gsm8k"], "mathematics": PAPER_SETTINGS["math"],
                   "code": PAPER_SETTINGS["mbpp"]}
"""The paper's settings by benchmark, and by the domain of our own tasks that stands for it."""

OURS = Settings(OUR_REWARDS, "expectation", learning_rate=1e-3, epochs=20, batch=2_000, beta=0.01, holdout=0.25)
"""Settings for logs of the size of ours (a second of training).

Chosen by cross-validation on their training tasks, but for two late choices that differ within the noise: the number of
epochs, and judging an epoch by the reward of drawn choices, were settled after test values had been seen.

With the paper's beta the probabilities saturate before the better topology is found: rewards are about 1 here, and
topologies differ by hundredths.
"""


@dataclass(frozen=True)
class TrainingResult:
    """A trained policy and its history.

    `history` has one row an epoch, from 0 (untrained): on all data the loss, mean reward (drawn and greedy) and entropy
    (nats); with a holdout also the mean reward, drawn, on the tasks aside; with model_choice "matched" that of the
    matched rows.
    """

    policy: TopologyPolicy
    history: pd.DataFrame


def train_policy(log: pd.DataFrame | LogTable, *, settings: Settings = OURS, tasks: Iterable[Task] | None = None,
                 learner: str | Learner = "reinforce", **changes: Any) -> TrainingResult:
    """Train a topology policy on an offline log (BAMAS, policy training).

    Args:
        log: one row an episode, as from `generate_trajectories`, or its table, made with the rewards of the settings.
            Rows with status `error` are never trained on.
        settings: OURS, one of PAPER_SETTINGS, or your own.
        tasks: the tasks of the log, for their questions; None looks them up in the committed task sets.
        learner: "reinforce" (the paper's), "supervised" (regression of rewards), or a function of (network, examples,
            settings, generator) which trains the network and returns its history.
        changes: any field of Settings to change, such as `objective="published"` or `seed=3`.

    Raises:
        LogError: the log cannot be used (see `LogTable.from_log`; "expectation" needs a full factorial).
        ValueError: an unknown learner or setting, or a learner that returns no history or weights that are not finite.
    """
    import torch

    from bamas_lite.network import LEARNERS, Examples, PolicyNetwork
    unknown = [name for name in changes if name not in Settings.__dataclass_fields__]
    if unknown:
        raise ValueError(f"{unknown[0]} is no setting; known are {', '.join(Settings.__dataclass_fields__)}")
    if not isinstance(settings, Settings):
        raise ValueError(f"settings = {shown(settings)}: expected Settings, such as OURS")
    settings = replace(settings, **changes)
    if not callable(learner) and not (isinstance(learner, str) and learner in LEARNERS):
        raise ValueError(f"learner = {shown(learner)}: expected {', '.join(LEARNERS)} or a function")
    learn = LEARNERS[learner] if isinstance(learner, str) else learner
    complete = settings.objective == "expectation" and learner != "supervised"
    table = _checked_table(log, settings.rewards, complete) if isinstance(log, LogTable) else LogTable.from_log(
        log, settings.rewards, complete=complete)
    budget_scale = float(table.budget.max())
    examples = Examples.from_table(table, encode(questions_of(table.task_id, tasks)), budget_scale)
    generator = torch.Generator().manual_seed(settings.seed)
    network = PolicyNetwork(settings.features, generator)
    history = learn(network, examples, settings, generator)
    if not isinstance(history, list) or not all(isinstance(entry, Mapping) for entry in history):
        raise ValueError(f"learner = {shown(learner)}: returned {shown(history)}: "
                         "expected the history, a list with one mapping an epoch")
    about = {"backend": table.backend, "settings": asdict(settings),
             "learner": learner if isinstance(learner, str) else getattr(learner, "__name__", "own"),
             "n_tasks": len(np.unique(table.task_id)), "n_rows": int(table.count.sum()), "excluded": table.excluded,
             "budgets": [float(b) for b in np.unique(table.budget)]}
    return TrainingResult(TopologyPolicy(network, budget_scale, about), pd.DataFrame(history))


def _checked_table(table: LogTable, rewards: Rewards, complete: bool) -> LogTable:
    """A table to train on: its states or, if `complete`, those with every topology."""
    if table.rewards != rewards:
        raise LogError(f"log: a table with {table.rewards}: expected one with the rewards of the settings, {rewards}")
    keep = (table.count > 0).all(axis=1) if complete else (table.count > 0).any(axis=1)
    if not keep.any():
        raise LogError(f"log: no state has a usable row for {'every' if complete else 'any'} topology; excluded by "
                       f"status: {table.excluded}")
    return table if keep.all() else table.select(keep)


def questions_of(task_ids: Sequence[str], tasks: Iterable[Task] | None = None) -> list[str]:
    """The question of each task id; without `tasks`, from the committed set that the id names ("set/split/number").

    Raises:
        LogError: a task id that is not among the tasks, or names no committed set.
        ValueError: `tasks` holds something else than tasks.
    """
    if tasks is not None:
        tasks = list(tasks) if isinstance(tasks, Iterable) and not isinstance(tasks, str) else [tasks]
        for task in tasks:
            check_task(task)
        question = {task.task_id: task.question for task in tasks}
    else:
        question = {}
        for name in dict.fromkeys(str(task_id).split("/")[0] for task_id in task_ids):
            try:
                question |= {task.task_id: task.question for task in load_tasks(name)}
            except (ValueError, OSError) as error:
                raise LogError(f"log: task_id begins with {name!r}, which is no committed task set; "
                               f"pass tasks= ({error})") from None
    missing = next((task_id for task_id in task_ids if task_id not in question), None)
    if missing is not None:
        raise LogError(f"log: task_id = {str(missing)!r} is not among the tasks; pass tasks= with all tasks of the log")
    return [question[task_id] for task_id in task_ids]


class TopologyPolicy:
    """A policy to ask: which topology for this question under this budget?

    Attributes:
        network: the PolicyNetwork.
        budget_scale: the largest training budget, u$; budgets are divided by it (as in the code; the paper is silent).
        about: how it was trained: settings, learner, backend of the log, budgets, numbers of tasks and rows.

    Raises:
        ValueError: a weight that is not finite, or a budget_scale that is no number above 0.
    """

    _FORMAT, _VERSION = "bamas_lite topology policy", 1

    def __init__(self, network: PolicyNetwork, budget_scale: float, about: Mapping[str, Any] | None = None) -> None:
        network.float().double()  # files hold float32: a policy is the same before and after saving
        wrong = next((name for name, tensor in network.state_dict().items() if not tensor.isfinite().all()), None)
        if wrong is not None:
            raise ValueError(f"network: {wrong} holds NaN or infinity: expected finite weights")
        self.network = network
        self.budget_scale = _budget(budget_scale, "budget_scale")
        self.about = dict(about or {})

    def probabilities(self, questions: str | Sequence[str], budgets: float | Sequence[float], *,
                      allowed: Sequence[str] = TOPOLOGIES) -> np.ndarray:
        """pi_theta(t | T, B), columns in the order of TOPOLOGIES.

        Args:
            questions: one question or n of them.
            budgets: u$: one for all, or one for each question.
            allowed: the topologies that may be chosen; the others get probability 0.

        Returns:
            float64 (4,) for one question and one budget, else (n, 4).

        Raises:
            ValueError: no text, no budget above 0 u$, or numbers of them that do not go together.
        """
        import torch
        several = isinstance(questions, Iterable) and not isinstance(questions, str)
        texts = list(questions) if several else [questions]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"questions = {shown(questions)}: expected a text or a list of texts")
        try:
            budget = np.asarray(budgets, float)
        except (TypeError, ValueError, OverflowError):
            budget = np.array(np.nan)
        if not (np.isfinite(budget) & (budget > 0)).all():
            raise ValueError(f"budgets = {shown(budgets)}: expected more than 0 u$")
        if budget.ndim > 1 or (budget.ndim == 1 and not isinstance(questions, str) and len(budget) != len(texts)):
            raise ValueError(f"budgets: {budget.size} for {len(texts)} questions; expected one, or as many")
        single = isinstance(questions, str) and budget.ndim == 0
        texts = texts * budget.size if isinstance(questions, str) else texts
        with torch.no_grad():
            logits = self.network(torch.tensor(encode(texts), dtype=torch.float64),
                                  torch.tensor(np.broadcast_to(budget / self.budget_scale, len(texts)).copy()))
            logits += torch.tensor(np.where(_mask(allowed), 0.0, -np.inf))
            pi = logits.softmax(-1).numpy()
        if not np.isfinite(pi).all():
            raise ValueError(f"budgets = {shown(budgets)}: too far from those of training, up to {self.budget_scale:g}")
        return pi[0] if single else pi

    def select(self, question: str, budget: float, mode: Literal["greedy", "sample"] = "greedy", *,
               rng: np.random.Generator | None = None, allowed: Sequence[str] = TOPOLOGIES) -> str:
        """Choose a topology for one question and one budget (u$): the most probable, or drawn with `rng` ("sample").

        Raises:
            ValueError: an argument is wrong; the message names it.
        """
        if not isinstance(question, str):
            raise ValueError(f"question = {shown(question)}: expected one text; `probabilities` takes several")
        budget = _budget(budget, "budget")
        pi = self.probabilities(question, budget, allowed=allowed)
        if mode == "greedy":
            return TOPOLOGIES[int(pi.argmax())]
        if mode != "sample":
            raise ValueError(f"mode = {shown(mode)}: expected 'greedy' or 'sample'")
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng = {shown(rng)}: "
                             "mode 'sample' needs a generator, such as numpy.random.default_rng(0)")
        return TOPOLOGIES[int(rng.choice(len(TOPOLOGIES), p=pi))]

    def save(self, path: str | Path) -> None:
        """Write the policy, whole or not at all: a .npz of float32 arrays and a JSON header; no pickle.

        Raises:
            ValueError: `path` is none, or `about` cannot be written as JSON. A file that was there stays as it was.
        """
        header = {"format": self._FORMAT, "version": self._VERSION, "topologies": TOPOLOGIES, "encoder": ENCODER,
                  "features": self.network.features, "budget_scale": self.budget_scale, "about": self.about}
        arrays = {name: tensor.numpy().astype(np.float32) for name, tensor in self.network.state_dict().items()}
        path = file_path(path, "path", ValueError)
        try:
            text = json.dumps(header)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"about = {shown(self.about)}: cannot be written as JSON ({error})") from None

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:  # given a name, numpy would add .npz to it
                np.savez(file, header=np.array(text), **arrays)

        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, write)

    @classmethod
    def load(cls, path: str | Path) -> TopologyPolicy:
        """Read a policy that `save` wrote.

        Raises:
            PolicyFileError: no such file, or not a policy that this version can use.
        """
        import torch

        from bamas_lite.network import PolicyNetwork
        path = file_path(path, "path", PolicyFileError)
        if not path.is_file():
            raise PolicyFileError(f"no policy file {path}")
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                arrays = {name: file[name] for name in file.files if name != "header"}
        except Exception as error:  # on damaged bytes numpy, zipfile, zlib and ast raise a dozen types
            raise PolicyFileError(f"{path}: not a policy file: {' '.join(str(error).split())}") from None
        expected = {"format": cls._FORMAT, "version": cls._VERSION, "topologies": list(TOPOLOGIES), "encoder": ENCODER}
        for field, value in expected.items():
            found = header.get(field) if isinstance(header, dict) else None
            if found != value:
                raise PolicyFileError(f"{path}: {field} = {shown(found)}: expected {value!r}")
        try:
            network = PolicyNetwork(header["features"])
            network.load_state_dict({name: torch.tensor(a, dtype=torch.float64) for name, a in arrays.items()})
            return cls(network, header["budget_scale"], header["about"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise PolicyFileError(f"{path}: not a whole policy: {' '.join(str(error).split())}") from None


def _budget(value: Any, what: str) -> float:
    """One amount above 0 u$."""
    if exact(value, what) <= 0:
        raise ValueError(f"{what} = {shown(value)}: expected more than 0 u$")
    return float(value)


def _mask(allowed: Sequence[str]) -> np.ndarray:
    """Boolean (4,) of the allowed topologies."""
    names = [] if isinstance(allowed, str) or not isinstance(allowed, Iterable) else list(allowed)
    if not names or not all(name in TOPOLOGIES for name in names):
        raise ValueError(f"allowed = {shown(allowed)}: expected at least one of {', '.join(TOPOLOGIES)}")
    return np.array([name in names for name in TOPOLOGIES])
