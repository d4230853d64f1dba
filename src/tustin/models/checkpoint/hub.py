"""Files of the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .matching import CheckpointError
from .reading import one_line

__all__ = ["PREFIX", "NotDownloaded", "download", "is_repository"]

PREFIX = "hf-hub:"
"""Before the name of a repository, as timm writes it."""
SECONDS_TO_ANSWER = 5.0
_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")


class NotDownloaded(CheckpointError):
    """The Hugging Face hub could not be reached, or does not have the file."""


def is_repository(source: str | Path) -> bool:
    """Whether this is `owner/name`, perhaps with a prefix or a revision, and not a file, there or missing."""
    text = str(source)
    if text.startswith(PREFIX):
        return True
    path = Path(source)
    named = re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", text)
    return not path.exists() and path.suffix not in _ENDINGS and bool(named)


def download(
    repository: str,
    filename: str | None = None,
    pretrained_cfg: Mapping[str, Any] | None = None,
    cache_dir: str | Path | None = None,
) -> Path:
    """Path of a downloaded file of a repository; without a `filename` the one known for the model, or the only one.

    A config.json of the repository comes with it. Without a network it is what an earlier download has kept.
    """
    import huggingface_hub

    name, _, revision = repository.removeprefix(PREFIX).partition("@")
    about = pretrained_cfg or {}
    if filename is None and about.get("hf_hub_id") == name:
        filename = about.get("hf_hub_filename")
    options: dict[str, Any] = {"cache_dir": cache_dir, "revision": revision or None}
    trouble = _no_answer()
    try:
        if trouble:
            return _kept(name, filename, options)
        files = huggingface_hub.list_repo_files(name, revision=options["revision"]) if filename is None else []
        if "config.json" in files:
            huggingface_hub.hf_hub_download(name, "config.json", **options)
        return Path(huggingface_hub.hf_hub_download(name, filename or _only_file(name, files), **options))
    except CheckpointError:
        raise
    except Exception as error:  # no network, no such repository, a full disk: the library has no common ancestor
        reason = trouble or f"{type(error).__name__}: {one_line(error)}"
        raise NotDownloaded(
            f"there is no file {name!r}, and the Hugging Face hub could not provide it ({reason}); "
            "without a network, give the path of a downloaded file"
        ) from error


def _no_answer() -> str | None:
    """Why the hub cannot be reached, within seconds: its library asks again and again for a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS_TO_ANSWER)
    except Exception as error:  # of whichever library it uses
        return f"{type(error).__name__}: {one_line(error)}"
    return None


def _kept(name: str, filename: str | None, options: Mapping[str, Any]) -> Path:
    """What an earlier download has left."""
    import huggingface_hub

    for wanted in [filename] if filename else ["model.safetensors", "pytorch_model.bin"]:
        try:
            return Path(huggingface_hub.hf_hub_download(name, wanted, local_files_only=True, **options))
        except FileNotFoundError:
            continue
    raise FileNotFoundError(f"no earlier download of {name}")


def _only_file(repository: str, files: Sequence[str]) -> str:
    if "model.safetensors" in files:
        return "model.safetensors"
    for endings in ((".safetensors",), _ENDINGS):
        found = [name for name in files if name.endswith(endings)]
        if len(found) == 1:
            return found[0]
        if found:
            raise CheckpointError(f"{repository} has several checkpoints, choose one by filename=: {', '.join(found)}")
    raise CheckpointError(f"{repository} has no file that ends in {', '.join(_ENDINGS)}")
