"""The output folder of a run: checkpoints, metrics and summary, each file whole or absent, and one writer at a time.

training.pt        all that continuing needs, read without executing anything
last.safetensors   the weights of the last checkpoint, for `tustin.load`
best.safetensors   the weights of the best epoch; with an average of the weights, the average
ema.safetensors    the average of the last checkpoint, where there is one
metrics.jsonl      a line an epoch
summary.json       the result and all that repeating it needs; its presence means that the run is complete
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..files import replacing, write_text

TRAINING, METRICS, SUMMARY = "training.pt", "metrics.jsonl", "summary.json"


class RunFolder:
    """Reads and writes the files above."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that writes here. The system ends the lock with the process, however that ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OSError(f"cannot write into the output folder {str(self.path)!r}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RuntimeError(
                    f"another process is writing into {str(self.path)!r}; wait for it, or give another --out"
                ) from None
            yield
        finally:
            os.close(handle)

    def read_state(self) -> dict[str, Any] | None:
        """The last checkpoint, if there is one."""
        path = self / TRAINING
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, AttributeError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise RuntimeError(
                f"the checkpoint {str(path)!r} is damaged ({reason}); --run.resume false starts over"
            ) from error
        assert isinstance(state, dict)
        return state

    def write_state(self, state: Mapping[str, Any]) -> None:
        with replacing(self / TRAINING) as file:
            torch.save(dict(state), file)

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        write_text(self / METRICS, "".join(json.dumps(record) + "\n" for record in records))

    def read_summary(self) -> dict[str, Any] | None:
        """The result, if the run is complete."""
        path = self / SUMMARY
        if not path.exists():
            return None
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return summary

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_text(self / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")

    def clear(self) -> None:
        """Forget an earlier run."""
        for name in (SUMMARY, METRICS, TRAINING, "last.safetensors", "best.safetensors", "ema.safetensors"):
            (self / name).unlink(missing_ok=True)
