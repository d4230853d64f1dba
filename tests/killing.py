"""Processes that are killed at a given moment, and what of their folders must be the same afterwards."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

IMPORTED = ["sklearn.datasets", "sklearn.metrics", "sklearn.model_selection", "matplotlib.figure", "jinja2"]
IMPORTED += ["plotly.graph_objects", "tustin.cli", "tustin.train.tasks.classification", "tustin.study.report"]
"""Once, and not in every process."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, *IMPORTED])

TIMES = {"train_seconds", "cpu_seconds", "samples_per_second", "seconds", "recorded_seconds", "best_digest"}
"""What may differ: times, and the sum of a file that holds some."""
_TIMES = re.compile(rb'\\*"(train_seconds|cpu_seconds|samples_per_second)\\*": [-+.0-9e]+')


def in_a_process(function: Callable[..., Any], *args: Any) -> tuple[int | None, Any]:
    """The exit code of a process that calls a function, and what the function returned, if it came so far."""
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_call, args=(there, function, args))
    process.start()
    there.close()
    try:
        result = here.recv()
    except EOFError:
        result = None
    process.join()
    return process.exitcode, result


def _call(there: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    there.send(function(*args))


def killed_at(number: int, function: Callable[..., Any], *args: Any) -> int:
    """Kill this process at the moment of this number; returns how many moments there were, if there were fewer.

    The moments are before and after every file that takes the place of another, and after every one that is removed.
    """
    moments = 0

    def moment() -> None:
        nonlocal moments
        moments += 1
        if moments == number:
            os.kill(os.getpid(), signal.SIGKILL)

    replace, unlink, rmdir = os.replace, os.unlink, os.rmdir

    def watched_replace(*paths: Any) -> None:
        moment()
        replace(*paths)
        moment()

    def watched(remove: Callable[..., None]) -> Callable[..., None]:
        def watched_remove(path: Any, **options: Any) -> None:
            remove(path, **options)
            moment()

        return watched_remove

    os.replace, os.unlink, os.rmdir = watched_replace, watched(unlink), watched(rmdir)
    function(*args)
    return moments


def contents(folder: Path) -> dict[str, Any]:
    """Every file of a folder with its bytes, times aside."""
    return {
        str(path.relative_to(folder)): _without_times(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(("report.", "discretizations.csv", "runs.csv"))
    }


def _without_times(path: Path) -> Any:
    if path.suffix == ".pt":
        return _plain(torch.load(path, weights_only=True))
    data = path.read_bytes()
    if path.suffix == ".safetensors":  # the length of the header, the header filled up with blanks, the tensors
        end = 8 + int.from_bytes(data[:8], "little")
        data = data[8:end].rstrip() + data[end:]
    return _TIMES.sub(b"", data)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name not in TIMES}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return (str(value.dtype), tuple(value.shape), value.numpy().tobytes()) if torch.is_tensor(value) else value
