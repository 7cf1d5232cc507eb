"""Why a replay lacks a call: which one, and what the recording holds that comes nearest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bamas_lite.inputs import shown
from bamas_lite.llm import Message, RunStopped
from bamas_lite.pool import LLM
from bamas_lite.prompts import section
from bamas_lite.recordings.store import request_text

_LIMITS = ("max_tokens", "max_completion_tokens")


class RecordingMiss(RunStopped):
    """A replay lacks a call; the message says which one, and why that may be."""


def explain(calls: Any, path: Path, llm: LLM, seed: int, body: dict[str, Any], messages: list[Message],
            role: str) -> str:
    """The message for a call that is not in the recording."""
    content = str(messages[-1].get("content") or "") if messages else ""
    asked = section(content, "task") or content
    limit = next((body[name] for name in _LIMITS if name in body), None)
    known = calls.llms()
    return (f"no recorded answer for this call: LLM {llm.name!r}, {role}, max_tokens {limit}, seed {seed}, "
            f"request {shown(' '.join(asked.split()))}. The recording {path} has {sum(known.values()):,} calls"
            f"{' of ' + ', '.join(known) if known else ''}. {_nearest(calls, known, llm, seed, body, asked)}")


def _nearest(calls: Any, known: dict[str, int], llm: LLM, seed: int, body: dict[str, Any], asked: str) -> str:
    prompt = request_text({name: body[name] for name in ("messages", "prompt") if name in body})[1:-1]
    task = json.dumps(asked)[1:-1]
    other_seeds, other_llms, options, about = set(), set(), {}, 0
    for other, other_seed, text in calls.requests():
        about += task in text
        if prompt not in text:
            continue
        if other != llm.name:
            other_llms.add(other)
        elif other_seed != seed:
            other_seeds.add(other_seed)
        else:
            found = json.loads(text)
            for name in sorted({*found, *body}):
                if found.get(name) != body.get(name):
                    options.setdefault(name, set()).add(json.dumps(found.get(name)))
    if options:
        differ = "; ".join(f"{name} = {', '.join(sorted(values)[:5])}" for name, values in options.items())
        why = ("budgets, prices or token limits differ from those that were recorded" if set(options) <= {*_LIMITS} else
               "the pool's options or the temperature differ from those that were recorded")
        return f"It has this request with {differ}: {why}."
    if other_seeds:
        return f"It has this request with seed = {', '.join(map(str, sorted(other_seeds)[:5]))}."
    if other_llms:
        return f"It has this request for {', '.join(sorted(other_llms))}: the team or the pool's names differ."
    if known and llm.name not in known:
        return "It has no call of this LLM: the pool differs from the one that was recorded."
    if about:
        return (f"It has {about:,} calls about this task, none with this prompt: the topology, an earlier reply or the "
                "wording of the prompts differs.")
    return "It has no call about this task: other tasks were recorded." if known else "Nothing was recorded in it."
