"""Files of the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .matching import CheckpointError
from .reading import one_line

__all__ = ["download", "is_repository"]

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")


def is_repository(source: str | Path) -> bool:
    """Whether this is `owner/name` and not a file, there or missing."""
    path = Path(source)
    return not path.exists() and path.suffix not in _ENDINGS and bool(re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)))


def download(
    repository: str, filename: str | None, pretrained_cfg: Mapping[str, Any], cache_dir: str | Path | None
) -> Path:
    """The file of a repository, here; without a `filename` the one that is known for the model, or the only one."""
    import huggingface_hub

    if filename is None and pretrained_cfg.get("hf_hub_id") == repository:
        filename = pretrained_cfg.get("hf_hub_filename")
    try:
        if filename is None:
            filename = _only_file(repository, huggingface_hub.list_repo_files(repository))
        return Path(huggingface_hub.hf_hub_download(repository, filename, cache_dir=cache_dir))
    except CheckpointError:
        raise
    except Exception as error:  # no network, no such repository, a full disk: the library has no common ancestor
        raise CheckpointError(
            f"there is no file {repository!r}, and the Hugging Face hub did not give it "
            f"({type(error).__name__}: {one_line(error)}); without a network, give the path of a downloaded file"
        ) from error


def _only_file(repository: str, files: Sequence[str]) -> str:
    for endings in ((".safetensors",), _ENDINGS):
        found = [name for name in files if name.endswith(endings)]
        if len(found) == 1:
            return found[0]
        if found:
            raise CheckpointError(f"{repository} has several checkpoints, choose one by filename=: {', '.join(found)}")
    raise CheckpointError(f"{repository} has no file that ends in {', '.join(_ENDINGS)}")
