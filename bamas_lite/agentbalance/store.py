"""A trained designer as one small file: weights and what they were trained for. No pickle."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bamas_lite.agentbalance.designer import Designer
from bamas_lite.agentbalance.difficulty import Difficulty
from bamas_lite.agentbalance.features import Quality
from bamas_lite.agentbalance.network import DesignNetwork
from bamas_lite.agentbalance.profiles import Profile
from bamas_lite.agentbalance.roles import Role
from bamas_lite.agentbalance.variants import Variant
from bamas_lite.inputs import file_path
from bamas_lite.paths import DATA
from bamas_lite.pool import LLM

COMMITTED = DATA / "agentbalance" / "designer.npz"
"""The designer of the notebook."""

COMMITTED_TALK = DATA / "agentbalance" / "designer_talk.npz"
"""The same, trained in a simulated world where talking helps more than voting (see `studies.WORLDS`)."""

_FORMAT, _VERSION = "bamas_lite designer", 1


class DesignerFileError(ValueError):
    """A file that is no designer of this kit; the message names the file and what is wrong."""


def save_designer(designer: Designer, path: str | Path) -> None:
    """Write a designer; the same file for the same designer."""
    about = {"format": _FORMAT, "version": _VERSION, "variant": asdict(designer.variant),
             "quality": asdict(designer.quality), "alpha": designer.alpha, "most_copies": designer.most_copies,
             "profiles": [_plain(profile) for profile in designer.profiles],
             "roles": {name: [asdict(role) for role in roles] for name, roles in designer.roles.items()},
             "about": designer.about}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {f"{part}.{name}": tensor.numpy().astype(np.float32) for part in ("network", "difficulty")
               for name, tensor in getattr(designer, part).state_dict().items()}
    with path.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **weights)


def load_designer(path: str | Path = COMMITTED) -> Designer:
    """Read a designer that `save_designer` wrote.

    Raises:
        DesignerFileError: the file is missing, is no designer, or is one of another version.
    """
    path = file_path(path, "path", DesignerFileError)
    if not path.is_file():
        raise DesignerFileError(f"{path}: no such file")
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            weights = {name: torch.tensor(file[name], dtype=torch.float64) for name in file.files if name != "about"}
        if about.get("format") != _FORMAT or about.get("version") != _VERSION:
            raise DesignerFileError(f"{path}: format {about.get('format')!r}, version {about.get('version')!r}: "
                                    f"expected {_FORMAT!r}, version {_VERSION}")
        parts = {"network": DesignNetwork(), "difficulty": Difficulty()}
        for part, module in parts.items():
            module.load_state_dict({name.removeprefix(f"{part}."): tensor for name, tensor in weights.items()
                                    if name.startswith(f"{part}.")})
            module.requires_grad_(False)
        profiles = tuple(Profile(LLM(**profile.pop("llm")), **profile) for profile in about["profiles"])
        roles = {name: tuple(Role(**role) for role in roles) for name, roles in about["roles"].items()}
        return Designer(profiles, parts["network"], parts["difficulty"], Quality(**about["quality"]),
                        Variant(**about["variant"]), roles, about["alpha"], about["most_copies"], about["about"])
    except DesignerFileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, zipfile.BadZipFile) as error:
        raise DesignerFileError(f"{path}: not a designer of this kit ({error})") from None


def _plain(profile: Profile) -> dict[str, Any]:
    """A profile as plain values, without the verdicts on single tasks."""
    plain = {name: value for name, value in vars(profile).items() if name not in ("llm", "right")}
    return {"llm": profile.llm.model_dump(exclude_none=True)} | plain
