"""Models for others: a folder, or a repository of the Hugging Face hub, that `tustin.load` and timm read.

README.md          the model card: rule, data, metrics, settings, and the study that the model came from
model.safetensors  the checkpoint, as `tustin.save` writes it, without paths of the machine that trained it
config.json        what timm reads, with all arguments of the model, the rule among them
study.md           the report of the study, if there is one
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ..discretize import origin_of
from ..models import VisionMamba, describe, load, save
from ..models.vision_mamba import unwrapped
from ..report.formats import json_text
from ..study.results import PLAN, Plan
from ..support.files import replacing, write_text
from .card import Card, write_card

__all__ = ["push_to_hub", "save_for_hub"]

WEIGHTS, CONFIG, CARD, REPORT = "model.safetensors", "config.json", "README.md", "study.md"
PRIVATE = ("data.path", "out", "model.weights")
"""Settings that may hold paths of the machine."""


def save_for_hub(
    source: str | Path | nn.Module,
    folder: str | Path,
    *,
    name: str | None = None,
    study: str | Path | None = None,
    license: str | None = None,
) -> list[Path]:
    """Write the files that `push_to_hub` would upload into a folder, and return them.

    Args:
        source: Folder of a run, a checkpoint, or a model. Only the first two contain data, metrics and settings.
        folder: Where to write; created if it does not exist.
        name: Name of the repository on the model card, `owner/name`.
        study: Folder of the study that the run belongs to; by default the one that contains the run, if any.
        license: Licence of the weights by its name on the hub, such as "apache-2.0".
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = unwrapped(source) if isinstance(source, nn.Module) else load(source)
    metadata = {} if isinstance(source, nn.Module) else _public(describe(source)["metadata"])
    save(model, folder / WEIGHTS, metadata=metadata)
    if isinstance(model, VisionMamba) and getattr(model, "pretrained_cfg", {}).get("architecture"):  # timm builds it
        write_text(folder / CONFIG, json_text(_config(model)))
    plan, report = _study(source, study)
    if report:
        write_text(folder / REPORT, report)
    own = origin_of(model.config["discretization"])
    if own and own.content:  # for people to read: nothing here ever runs it
        with replacing(folder / own.file) as file:
            file.write(own.content.source)
    told = describe(folder / WEIGHTS)
    write_card(folder / CARD, Card(name or folder.resolve().name, told, plan, bool(report), license))
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def push_to_hub(
    source: str | Path | nn.Module,
    repository: str,
    *,
    study: str | Path | None = None,
    license: str | None = None,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str = "Add model",
    token: str | None = None,
) -> str:
    """Upload a model to the Hugging Face hub and return its address; `tustin.load("hf-hub:owner/name")` reads it.

    Args:
        source: Folder of a run, a checkpoint, or a model. Only the first two contain data, metrics and settings.
        repository: `owner/name`; created if it does not exist.
        study: Folder of the study that the run belongs to; by default the one that contains the run, if any.
        license: Licence of the weights by its name on the hub, such as "apache-2.0".
        private: Create the repository as private.
        revision: Branch to write to; by default "main".
        create_pr: Open a pull request instead.
        commit_message: First line of the commit.
        token: Token of your account; default: the one that `hf auth login` stored.
    """
    from huggingface_hub import HfApi

    from .. import __version__

    with tempfile.TemporaryDirectory() as folder:
        save_for_hub(source, folder, name=repository, study=study, license=license)
        api = HfApi(token=token, library_name="tustin", library_version=__version__)
        made = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            revision=revision,
            create_pr=create_pr,
            commit_message=commit_message,
        )
        return str(made)


def _public(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Without the paths of the machine that trained the model."""
    settings = metadata.get("config")
    if not isinstance(settings, dict):
        return dict(metadata)
    return {**metadata, "config": {name: value for name, value in settings.items() if name not in PRIVATE}}


def _config(model: VisionMamba) -> dict[str, Any]:
    """What `timm.create_model("hf-hub:...")` reads."""
    known: dict[str, Any] = vars(model)["pretrained_cfg"]
    about = {name: value for name, value in known.items() if value is not None}
    apart = ("architecture", "label_names", "model_args", "file", "url", "source", "hf_hub_id", "hf_hub_filename")
    names = about.get("label_names")
    return {
        "architecture": about["architecture"],
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        "global_pool": model.global_pool,
        **({"label_names": list(names)} if names else {}),
        "model_args": model.config,
        "pretrained_cfg": {name: value for name, value in about.items() if name not in apart},
    }


def _study(source: object, folder: str | Path | None) -> tuple[Plan | None, str | None]:
    """The plan and the report of the study; a run of a study lies in its folder, two levels below."""
    if folder is None and isinstance(source, str | Path):
        run = Path(source).resolve()
        above = (run if run.is_dir() else run.parent).parent.parent
        folder = above if (above / PLAN).is_file() else None
    if folder is None:
        return None, None
    report = Path(folder) / "report.md"
    return Plan.read(Path(folder) / PLAN), report.read_text(encoding="utf-8") if report.is_file() else None
