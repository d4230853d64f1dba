"""The output folder of a run: checkpoints, metrics and summary, each file whole or absent, and one writer at a time.

training.pt        the checkpoint: all that continuing needs, read without executing anything
last.safetensors   the weights of the last checkpoint, for `tustin.load`
best.safetensors   the weights of the best epoch; with an average of the weights, the average
ema.safetensors    the average of the last checkpoint, where there is one
metrics.jsonl      a line an epoch
curves.png         the same as a picture, which `tustin train` draws at the end
summary.json       the result and all that repeating it needs; its presence means that the run is complete

The checkpoint is written before the files that follow from it, and they are written again when a run continues: a
process may be killed between any two.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch

from ..support.files import (
    digest,
    insist_on_file,
    insist_on_values,
    read_json,
    read_text,
    remove_unfinished,
    replacing,
    write_text,
)

TRAINING, METRICS, SUMMARY, CURVES = "training.pt", "metrics.jsonl", "summary.json", "curves.png"
BEST, LAST, EMA = "best.safetensors", "last.safetensors", "ema.safetensors"

_NUMBER = (int, float)
_MAYBE = (dict, type(None))
_STATE: dict[str, type | tuple[type, ...]] = {
    "step": int,
    "records": list,
    "best": _MAYBE,
    "tally": dict,
    "config": dict,
    "threads": int,
    "model": dict,
    "optimizer": dict,
    "ema": _MAYBE,
    "scaler": _MAYBE,
}
_TALLY: dict[str, type | tuple[type, ...]] = {
    "losses": dict,
    "skipped": int,
    "seconds": _NUMBER,
    "cpu_seconds": _NUMBER,
    "recorded_seconds": _NUMBER,
}
_RECORD: dict[str, type | tuple[type, ...]] = {"epoch": _NUMBER, "updates": int, "train_seconds": _NUMBER}
_SUMMARY: dict[str, type | tuple[type, ...]] = {
    "config": dict,
    "best": dict,
    "best_epoch": _NUMBER,
    "train_seconds": _NUMBER,
    "environment": dict,
}


class RunFolder:
    """The output folder of a run: its checkpoints, weights, metrics and summary."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for other processes. The system releases the lock when the process ends or is killed."""
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
            remove_unfinished(self.path)
            yield
        finally:
            os.close(handle)

    def read_state(self) -> dict[str, Any] | None:
        """The last checkpoint, if there is one. A RuntimeError names a file that is damaged or not a checkpoint."""
        path = self / TRAINING
        if not path.exists():
            return None
        try:
            insist_on_file(path)
            _check_sum(path)
            state: dict[str, Any] = _load(path)
            insist_on_values(path, state, _STATE)
            insist_on_values(path, state["tally"], _TALLY)
            for record in state["records"]:
                insist_on_values(path, record, _RECORD)
            self._insist_on_the_best(state)
        except ValueError as error:
            raise RuntimeError(f"{error}; give another --out, or --run.resume false to start over") from error
        return state

    def _insist_on_the_best(self, state: Mapping[str, Any]) -> None:
        """A best model that is older than the checkpoint can't be made from it: the file must be what was written."""
        best, path = state["best"], self / BEST
        if not best or best["updates"] == state["step"] or state.get("best_digest") is None:
            return
        if not path.is_file() or digest(path) != state["best_digest"]:
            found = "damaged" if path.is_file() else "missing"
            raise ValueError(f"{str(path)!r} is {found}: it must hold the model of update {best['updates']}")

    def write_state(self, state: Mapping[str, Any]) -> None:
        with replacing(self / TRAINING) as file:
            summed = _Summed(file)
            torch.save(dict(state), cast(IO[bytes], summed))  # all that it does with a file is to write
            file.write(summed.sum.digest())  # behind the end of the archive, where PyTorch does not look

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        write_text(self / METRICS, "".join(json.dumps(record) + "\n" for record in records))

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records so far, one per epoch. A ValueError names a file with any other content."""
        path = self / METRICS
        if not path.exists():
            return []
        records = [read_json(path, line) for line in read_text(path).splitlines()]
        for record in records:
            insist_on_values(path, record, _RECORD)
        return records

    def read_summary(self) -> dict[str, Any] | None:
        """The result, if the run is complete. A ValueError names a file with any other content."""
        path = self / SUMMARY
        if not path.exists():
            return None
        summary: dict[str, Any] = read_json(path)
        insist_on_values(path, summary, _SUMMARY)
        insist_on_values(path, summary["environment"], {"threads": int})
        return summary

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_text(self / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")

    def clear(self) -> None:
        """Delete an earlier run: first its summary, then the state to continue from."""
        for name in (SUMMARY, TRAINING, METRICS, LAST, BEST, EMA, CURVES):
            (self / name).unlink(missing_ok=True)


class _Summed:
    """A file that is written, and the sum of what is."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sum = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sum.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def _check_sum(path: Path) -> None:
    """PyTorch itself looks at no sum, and would continue from what a flipped bit makes of the weights."""
    found = hashlib.sha256()
    left = path.stat().st_size - found.digest_size
    with path.open("rb") as file:
        while left > 0 and (part := file.read(min(left, 2**20))):
            found.update(part)
            left -= len(part)
        if file.read() != found.digest():
            raise ValueError(f"the checkpoint {str(path)!r} is damaged (its checksum does not match its content)")


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except pickle.UnpicklingError as error:  # whose own words advise to load it in a way that executes what it holds
        raise ValueError(
            f"{str(path)!r} is not a checkpoint of 'tustin train': it holds more than plain values and tensors"
        ) from error
    except Exception as error:
        raise ValueError(f"the checkpoint {str(path)!r} is damaged ({' '.join(str(error).split())})") from error
