"""Runs on this machine: a few processes, each of which carries out one run after the other.

A run that is killed, or runs out of memory, takes only its own process with it. Importing PyTorch takes seconds, so a
process is kept for many runs.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection

import torch

from ..support.processes import end_with_parent, usable_cores
from ..support.signals import StopRequest
from .execute import Ended, Outcome, Run, execute

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END = 10.0
READY = "ready"


def default_jobs(device: str, threads: int) -> int:
    """A run on every accelerator; on the CPU as many as the cores have threads for."""
    if device == "auto" and torch.accelerator.is_available():
        return torch.accelerator.device_count()
    return max(1, usable_cores() // threads)


class LocalEngine:
    """As many runs at a time as there are jobs; each on an accelerator of its own, as far as there are some."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def carry_out(self, runs: Sequence[Run], stop: StopRequest) -> Ended:
        waiting = deque(runs)
        workers: dict[int, _Worker] = {}
        told = False
        try:
            while True:
                if stop.number and not told:
                    told = True
                    waiting.clear()
                    for worker in workers.values():
                        worker.process.terminate()
                self._give_out(waiting, workers)
                if not any(worker.run for worker in workers.values()):
                    return
                yield list(_ended(workers))
        finally:
            for worker in workers.values():
                worker.close()

    def _give_out(self, waiting: deque[Run], workers: dict[int, _Worker]) -> None:
        for index in range(self.jobs):
            if waiting and index not in workers:
                workers[index] = _Worker(index)
            if waiting and not workers[index].run:
                workers[index].begin(waiting.popleft())


def _ended(workers: dict[int, _Worker]) -> Iterator[tuple[Run, Outcome]]:
    """Listen for a moment; a process that is gone is forgotten."""
    busy = {worker.connection: index for index, worker in workers.items() if worker.run}
    for ready in connection.wait(list(busy), SECONDS_BETWEEN_LOOKS):
        assert isinstance(ready, Connection)
        worker = workers[busy[ready]]
        outcome, run = worker.hear(), worker.run
        if outcome and run:
            worker.run = None
            yield run, outcome
        if worker.process.exitcode is not None:
            del workers[busy[ready]]


class _Worker:
    """A process, and the run that it is busy with."""

    def __init__(self, index: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.run: Run | None = None
        self.ready = False
        self.connection, other = context.Pipe()
        # Not a daemon: those may not have children, and loading images may need some.
        self.process = context.Process(target=_serve, args=(other, index))
        with _interrupts_blocked():
            self.process.start()
        other.close()  # so that the end of the process ends the connection

    def begin(self, run: Run) -> None:
        self.run = run
        with suppress(BrokenPipeError):  # `hear` will find out
            self.connection.send(run)

    def hear(self) -> Outcome | None:
        """What the process has to say: that it is there, how the run ended, or nothing any more."""
        try:
            message: Outcome | str = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return self._last_words()
        if isinstance(message, Outcome):
            return message
        self.ready = True
        return None

    def _last_words(self) -> Outcome:
        code = self.process.exitcode or 0
        if code == -signal.SIGTERM:
            return Outcome("stopped")
        if code == -signal.SIGKILL:
            return Outcome("crashed", "its process was killed, as the system does when memory runs out")
        if not self.ready:
            raise RuntimeError(f"a process for the runs could not start: it ended with code {code}")
        what = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        return Outcome("crashed", f"its process ended with {what}")

    def close(self) -> None:
        """Let it end by itself, at once if it has nothing to do, or after it has saved."""
        if self.run:
            self.process.terminate()
        self.connection.close()
        self.process.join(SECONDS_TO_END)
        self.process.kill()
        self.process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process started inside never sees Ctrl-C: it is for the one who gives out the runs, who tells the others."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- inside the process -----------------------------------------------------------------------------------------------


def _serve(connection: Connection, index: int) -> None:
    """Carry out runs until the other end is closed."""
    end_with_parent()  # or a run would go on for hours when the one who started it was killed
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(index % torch.accelerator.device_count())
    with suppress(EOFError, BrokenPipeError):
        connection.send(READY)
        while True:
            connection.send(execute(connection.recv()))
