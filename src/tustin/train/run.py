"""A run from start to end: its folder, what it continues, and the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from ..discretize import origin_of
from ..discretize.own import shown
from ..models.blocks import PatchEmbed
from .config import Config
from .display import Display, WithTensorBoard
from .engine import Trainer
from .folder import TRAINING, RunFolder
from .tasks import TASKS, Task

FREE = {"description", "out", "data.path", "data.workers", "data.in_memory", "data.cache", "data.download"}
FREE |= {"run.resume", "run.device", "run.threads", "run.eval_batch_size", "run.save_every", "run.tensorboard"}
"""Settings that may change when a run continues; `run.threads` has its own check."""

THREADS_PER_CORE = 8
"""More only wait for each other: an update takes minutes."""


def train(config: Config, task: Task | None = None, display: Display | None = None) -> dict[str, Any]:
    """Train as `config` says, or continue the run in its output folder. Return the content of summary.json.

    A run that is complete is not repeated: its summary is returned. `Interrupted` means that a signal stopped it after
    saving. `Diverged` means that it cannot continue.
    """
    if config.out is None:
        raise ValueError("out is missing: it must name the output folder")
    _check_threads(config.run.threads)
    display = display or Display()
    AcceleratorState._reset_state()  # or a second run in this process could not have another precision
    # Told nothing, Accelerate joins processes that a launcher has started only where there are GPUs.
    cpu = config.run.device == "cpu" or not torch.accelerator.is_available()
    accelerator = Accelerator(cpu=cpu, mixed_precision=config.run.mixed_precision)
    if not accelerator.is_main_process:
        display = Display()
    folder = RunFolder(config.out)
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        if accelerator.is_main_process:
            stack.enter_context(folder.locked())
            if config.run.resume is False:
                folder.clear()
        accelerator.wait_for_everyone()
        stack.callback(torch.set_num_threads, threads)
        if summary := _complete(config, folder):
            display.line(f"{folder.path} is complete; --run.resume false starts over")
            return summary
        state = _state_to_continue(config, folder)
        torch.set_num_threads(config.run.threads or (state["threads"] if state else threads))
        if task is None:
            with accelerator.main_process_first():
                task = TASKS[config.task].make(config)
        trainer = Trainer(config, task, accelerator, folder)
        if state:
            trainer.restore(state)
        if config.run.tensorboard and accelerator.is_main_process:
            display = WithTensorBoard(display, str(folder.path))
        stack.enter_context(display)
        for line in _introduction(trainer, continued=state is not None):
            display.line(line)
        return trainer.run(display)


def _complete(config: Config, folder: RunFolder) -> dict[str, Any] | None:
    """The summary, if the run is complete; what continuing needs may be gone by then."""
    try:
        summary = folder.read_summary()
    except ValueError as error:
        raise ValueError(f"{error}; delete it, and the same command writes it again if {TRAINING} is there") from error
    if summary:
        _insist_on_same_experiment(config, folder, summary["config"], summary["environment"])
    return summary


def _state_to_continue(config: Config, folder: RunFolder) -> dict[str, Any] | None:
    """The checkpoint, if it is of the same experiment."""
    state = folder.read_state()
    if state:
        _insist_on_same_experiment(config, folder, state["config"], state)
    elif config.run.resume:
        raise FileNotFoundError(f"there is no checkpoint to continue from in {str(folder.path)!r}")
    return state


def _insist_on_same_experiment(
    config: Config, folder: RunFolder, before: Mapping[str, Any], recorded: Mapping[str, Any]
) -> None:
    """Settings, threads, and the file of a rule of one's own, must be what was recorded."""
    now, threads = config.flat(), recorded["threads"]
    if config.run.threads not in (None, threads):
        raise ValueError(
            f"the run in {str(folder.path)!r} used {threads} threads, and the last bits of its results depend on that; "
            f"use --run.threads {threads}, or give another --out"
        )
    for name in now:
        if name not in FREE and before.get(name) != now[name]:
            raise ValueError(
                f"{str(folder.path)!r} holds a run with {name} {before.get(name)!r}, not {now[name]!r}; "
                "give another --out, or --run.resume false to start over"
            )
    own = origin_of(config.model.discretization)
    if own and recorded.get("rule") not in (None, own.as_facts()):
        raise ValueError(
            f"{str(folder.path)!r} holds a run with {config.model.discretization!r} from {shown(recorded['rule'])}, "
            f"not from {shown(own.as_facts())}; give another --out, or --run.resume false to start over"
        )


def _check_threads(threads: int | None) -> None:
    most = THREADS_PER_CORE * (os.cpu_count() or 1)
    if threads is not None and threads > most:
        raise ValueError(f"run.threads is {threads}, expected at most {most}, {THREADS_PER_CORE} for each core")


def _introduction(trainer: Trainer, continued: bool) -> Iterator[str]:
    config, accelerator = trainer.config, trainer.accelerator
    parameters = sum(p.numel() for p in trainer.plain_model.parameters())
    yield f"{config.model.name}, {config.model.discretization}, {parameters:,} parameters, seed {config.seed}"
    parts = f"{accelerator.num_processes} x {config.optim.accumulate} x {trainer.batch_of_a_pass()}"
    yield (
        f"batch {config.optim.batch_size} = processes x accumulation x samples = {parts}; "
        f"learning rate {config.optim.lr:.3g} = {config.optim.base_lr:g} x {config.optim.batch_size} / 512"
    )
    yield (
        f"{trainer.order.size} training samples, {trainer.updates} updates, {trainer.order.batches} per epoch, "
        f"on {accelerator.device} with {torch.get_num_threads()} threads, into {trainer.folder.path}"
    )
    for part in trainer.plain_model.modules():
        if isinstance(part, PatchEmbed) and (unread := part.unread()):
            yield f"WARNING: {unread}"
    if not continued:
        yield from trainer.task.notes()
    else:
        yield f"continuing after update {trainer.step} of {trainer.updates}"
