"""What a run costs while it runs: recordings for backends that cost money, the cap, and the bar with the total."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from bamas_lite.episode import check_backend
from bamas_lite.inputs import exact, shown
from bamas_lite.llm import ChatModel, RunStopped
from bamas_lite.parts import Backend, backend_of
from bamas_lite.pool import ATOMS

PAID_CONCURRENCY = 16
"""Episodes in flight at once with a backend that costs money, unless the caller says otherwise."""

SHOWN_EVERY_S = 0.5
"""How often the bar asks the recording for its cost."""


@dataclass(frozen=True)
class Recorded:
    """Makes the backend of a seed: a paid one with its recording, a CachedChat with another cap."""

    backend: Backend
    path: Path | None
    spend_cap_usd: float | None

    def __call__(self, seed: int) -> ChatModel:
        from bamas_lite.recordings import CachedChat

        made = backend_of(self.backend, seed)
        if is_recording(made):
            return CachedChat(made.inner, made.path, spend_cap_usd=self.spend_cap_usd, seed=made.seed)
        return CachedChat(made, self.path, spend_cap_usd=self.spend_cap_usd, seed=seed)


def recorded(backend: Backend, seeds: Sequence[int], log: Path | None, spend_cap_usd: Any) -> Backend:
    """The backend of a run with its spend cap; one that costs money with a recording beside the log.

    Raises:
        ValueError: a cap that is none, or that this backend cannot hold; a paid backend without a place for its
            recording.
    """
    cap = None if spend_cap_usd is None else exact(spend_cap_usd, "spend_cap_usd")
    if cap is not None and cap < 0:
        raise ValueError(f"spend_cap_usd = {shown(spend_cap_usd)}: expected at least 0 USD")
    if cap and cap * ATOMS * 10**6 < 1:
        raise ValueError(f"spend_cap_usd = {shown(spend_cap_usd)}: is less than the smallest amount that is counted "
                         f"({1e-6 / ATOMS:g} USD); expected 0 for no new calls at all, or more than that")
    first = backend_of(backend, seeds[0])
    check_backend(first)
    caches = is_recording(first)
    if cap is not None and not caches and not is_paid(first):
        raise ValueError(f"spend_cap_usd = {shown(spend_cap_usd)}: backend {first.name!r} costs nothing, so that it "
                         "cannot hold a cap; expected a paid backend such as OpenAIChat, or a CachedChat")
    if caches and backend is first and len(seeds) > 1:
        raise ValueError(f"seeds: {len(seeds)} of them with one CachedChat, which answers a repeated call from its "
                         "recording, so that the repetitions would be copies; expected backend=chat.with_seed")
    if caches and cap is None or not caches and not is_paid(first):
        return backend
    if not caches and log is None:
        raise ValueError(f"backend {first.name!r} costs money, and with path=None nothing would keep what it answered "
                         "if the run ended early; give path=, or CachedChat(backend, 'calls.sqlite')")
    return Recorded(backend, None if log is None else log.with_suffix(".calls.sqlite"),
                    None if cap is None else float(cap))


def is_paid(backend: ChatModel) -> bool:
    """Whether a backend says that its calls cost money."""
    return getattr(backend, "paid", False) is True


def is_recording(backend: Any) -> bool:
    """Whether a backend is a CachedChat."""
    if not hasattr(backend, "spent_usd"):
        return False
    from bamas_lite.recordings import CachedChat

    return isinstance(backend, CachedChat)


class Bar:
    """The bar of a run: it grows with each episode and shows what the recording has cost in all."""

    def __init__(self, total: int, done: int, shown: bool, spent_usd: Callable[[], float] | None) -> None:
        self._bar = tqdm(total=total, initial=done, unit="episode", delay=2, leave=False, disable=not shown)
        self._spent_usd = spent_usd if shown else None
        self._asked = time.monotonic()

    def tick(self) -> None:
        """One episode more."""
        self._bar.update()
        self._show_cost()

    def at_least(self, done: int) -> None:
        """So many episodes are saved."""
        if done > self._bar.n:
            self._bar.update(done - self._bar.n)
        self._show_cost()

    def close(self) -> None:
        self._bar.close()

    def _show_cost(self) -> None:
        if self._spent_usd is not None and time.monotonic() - self._asked >= SHOWN_EVERY_S:
            self._bar.set_postfix_str(f"${self._spent_usd():.4f}", refresh=False)
            self._asked = time.monotonic()


def say_what_is_saved(error: BaseException, saved: str, recording: Path | None) -> None:
    """Add to an error that ended a run what it left and how to go on."""
    text = saved + (f"; what was answered is in {recording}" if recording is not None else "")
    text += ("; once the cause is mended, " if isinstance(error, RunStopped) else "; ") + \
        "the same call goes on from there"
    if isinstance(error, RunStopped) and error.args and str(error) == error.args[0]:
        error.args = (f"{str(error).rstrip('.')}. {text[:1].upper()}{text[1:]}.", *error.args[1:])
    else:
        error.add_note(f"{text[:1].upper()}{text[1:]}.")
