"""Runs on a Ray cluster; where none is named, one is started on this machine for as long as the study runs.

The folder of the study, and the data, must be where every node sees them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..support.signals import StopRequest
from .execute import Ended, Outcome, Run, execute
from .local_engine import SECONDS_BETWEEN_LOOKS

try:
    import ray
    from ray.exceptions import RayError, TaskCancelledError
except ImportError as error:
    raise RuntimeError("--engine ray needs Ray: pip install 'tustin[ray]'") from error


class RayEngine:
    """As many runs at a time as the cluster has room for; each needs its threads, and a GPU if the cluster has some."""

    def __init__(self, threads: int, address: str | None = None) -> None:
        self.threads, self.address = threads, address

    def carry_out(self, runs: Sequence[Run], stop: StopRequest) -> Ended:
        if not runs:
            return
        with _cluster(self.address):
            gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0))
            # Ray does not try again by itself: `run_study` does.
            remote: Any = ray.remote(num_cpus=self.threads, num_gpus=gpus, max_retries=0)(_execute_in)
            waiting = {remote.remote(os.getcwd(), run): run for run in runs}
            told = False
            while waiting:
                if stop.number and not told:
                    told = True
                    for task in waiting:
                        ray.cancel(task)
                ended, _ = ray.wait(list(waiting), timeout=SECONDS_BETWEEN_LOOKS)
                yield [(waiting.pop(task), _outcome(task)) for task in ended]


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"  # nothing said, Ray would look for a cluster itself
    ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _execute_in(folder: str, run: Run) -> Outcome:
    """Where relative paths mean what they mean to the one who asked."""
    os.chdir(folder)
    return execute(run)


def _outcome(task: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(task)
        return outcome
    except TaskCancelledError:
        return Outcome("stopped")
    except RayError as error:
        return Outcome("crashed", f"Ray lost its process: {' '.join(str(error).split())}")
