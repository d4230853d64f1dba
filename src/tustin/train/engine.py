"""The training loop, one for all tasks, on Hugging Face Accelerate: one process or many, CPU or GPU.

Nothing random has a history: the samples of a batch, their augmentation and the masks of stochastic depth are functions
of seeds and of the number of the update. So a checkpoint needs no generator's state to continue with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, gather_object, send_to_device
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from ..data.batches import Batch, Order, training_batches
from ..discretize import get_discretization, recorded_origin
from ..models import Diagnosis
from ..support.files import digest
from ..support.signals import Interrupted, StopRequest, stop_requests
from .config import Config
from .course import Course
from .display import Display
from .folder import BEST, EMA, LAST, TRAINING, RunFolder
from .record import environment
from .tally import Tally
from .tasks import Task

UPDATES_BETWEEN_CHECKS = 10
"""Reading the loss, or asking the other processes, makes an accelerator wait; a single CPU does it at every update."""
SIZES = ("parameters", "training_samples", "held_out_samples", "classes", "updates", "updates_per_epoch")
"""How large model, data and run are: names in a summary."""


class Diverged(RuntimeError):
    """The loss or a weight is not finite; `diagnosis` says where, if a batch was available."""

    def __init__(self, message: str, diagnosis: Diagnosis | None = None) -> None:
        super().__init__(message)
        self.diagnosis = diagnosis


class Trainer:
    """One run: `run` trains to the end, from the state that `restore` read or from the start."""

    def __init__(self, config: Config, task: Task, accelerator: Accelerator, folder: RunFolder) -> None:
        self.config, self.task, self.accelerator, self.folder = config, task, accelerator, folder
        optim = config.optim
        self.data_seed = config.seed if config.data.seed is None else config.data.seed
        self.order = Order(len(task.train_data), optim.batch_size, self.data_seed, config.augment.repeats)
        self.course = Course.of(config, self.order.batches)
        self.updates = self.course.updates
        self.plain_model = task.model.to(accelerator.device).train()
        if accelerator.num_processes > 1 and accelerator.device.type != "cpu":  # statistics of the whole batch
            self.plain_model = nn.SyncBatchNorm.convert_sync_batchnorm(self.plain_model)
        fused: dict[str, Any] = {"fused": True} if optim.name in ("adam", "adamw") else {}
        optimizer = create_optimizer_v2(
            self.plain_model, opt=optim.name, lr=optim.lr, weight_decay=optim.weight_decay, **fused
        )
        linear = {"sched": "poly", "decay_rate": 1.0}  # the first power of what is left
        kind: dict[str, Any] = linear if optim.schedule == "linear" else {"sched": optim.schedule}
        self.schedule, _ = create_scheduler_v2(
            optimizer,
            **kind,
            num_epochs=self.updates,
            warmup_lr=optim.warmup_lr,
            min_lr=optim.min_lr,
            warmup_epochs=self.course.warmup,
            decay_epochs=90 * self.order.batches,
            step_on_epochs=False,
            updates_per_epoch=1,
        )
        self.ema = ModelEmaV3(self.plain_model, decay=optim.ema, use_warmup=True) if optim.ema else None
        self.model, self.optimizer = accelerator.prepare(self.plain_model, optimizer)
        self.check_every = 1 if accelerator.device.type == "cpu" else UPDATES_BETWEEN_CHECKS
        self.ask_every = 1 if accelerator.num_processes == 1 else UPDATES_BETWEEN_CHECKS

        self.step = 0  # updates done
        self.records: list[dict[str, Any]] = []  # one an epoch, or every `run.eval_updates`
        self.best: dict[str, Any] | None = None
        self.best_digest: str | None = None  # of its file, which later checkpoints rely on
        self.tally = Tally()
        self.last_batch: Batch | None = None
        self.loss = math.nan  # of the last update at which it was looked at

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self, display: Display) -> dict[str, Any]:
        """Train to the end and return the summary."""
        batches = training_batches(
            self.task.train_data,
            self.order,
            self.step,
            self.updates,
            self.accelerator.process_index,
            self.accelerator.num_processes,
            self.config.optim.accumulate,
            self.config.data.workers,
        )
        with stop_requests() as stop:
            while True:
                if self.course.records_due(self.step) > len(self.records):
                    display.epoch(self.end_epoch(), self.course.place(self.step))
                if self.step == self.updates:
                    break
                with self.tally.timed():
                    self.update(batches)
                display.update(self.step, self.updates, f"{self.course.place(self.step)}, loss {self.loss:.4f}")
                if self._asked_to_stop(stop):
                    self.save()
                    done = f"update {self.step} of {self.updates}"
                    raise Interrupted(stop.number, f"stopped after {done} and saved; repeat the command to continue")
                if self.config.run.save_every and self.step % self.config.run.save_every == 0:
                    self.save()
        return self.finish()

    def update(self, batches: Iterator[Batch]) -> None:
        """One step of the optimizer."""
        optim, accelerator = self.config.optim, self.accelerator
        self.schedule.step_update(self.step)
        losses: dict[str, Tensor] = {}
        for part in range(optim.accumulate):
            batch = send_to_device(next(batches), accelerator.device, non_blocking=True)
            self.tally.skipped += batch.get("skipped", 0)
            self._seed(part)
            with nullcontext() if part == optim.accumulate - 1 else accelerator.no_sync(self.model):
                found = {name: loss / optim.accumulate for name, loss in self.task.losses(self.model, batch).items()}
                accelerator.backward(_total(found))
            losses = {name: losses.get(name, 0.0) + loss.detach() for name, loss in found.items()}
        if self.step % self.check_every == 0:
            self._insist_on_finite(_total(losses), batch)
        if optim.clip is not None:
            accelerator.clip_grad_norm_(self.model.parameters(), optim.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.ema:
            self.ema.update(self.plain_model, self.step)
        self.tally.add(losses)
        self.last_batch = batch

    def end_epoch(self) -> dict[str, Any]:
        """Evaluate, record and save."""
        updates = self.step - (self.records[-1]["updates"] if self.records else 0)
        record: dict[str, Any] = {
            "epoch": self.course.epochs_at(self.step),
            "updates": self.step,
            "lr": float(self.optimizer.param_groups[-1]["lr"]),  # which some optimizers keep as a tensor
            **self.tally.record(updates, updates * self.order.batch_size, self._mean),
        }
        if unstable := self._unstable():
            record["unstable"] = unstable
        if self.course.evaluates(self.step):
            record |= self._evaluate(self.ema.module if self.ema else self.plain_model)
            name = self.task.primary.name
            if self.task.primary.better(record[name], self.best[name] if self.best else None):
                self.best = record
        self.records.append(record)
        self.save()
        return record

    def _evaluate(self, model: nn.Module) -> dict[str, Any]:
        """The metrics of `model` on the held-out data, which the processes share."""
        accelerator = self.accelerator
        if accelerator.num_processes > 1:
            broadcast(list(model.buffers()))  # running statistics, which each process has of its own share
        model.eval()
        with accelerator.autocast():
            metrics, _ = self.task.evaluation.run(
                model,
                accelerator.device,
                self.config.run.eval_batch_size or self.batch_of_a_pass(),
                self.config.data.workers,
                accelerator.process_index,
                accelerator.num_processes,
                gather_object,
            )
        model.train()
        return metrics

    def finish(self) -> dict[str, Any]:
        """Write the summary: its presence says that the run is complete."""
        config, best = self.config, self.best
        assert best is not None
        summary = {
            "config": config.flat(),
            "seed": config.seed,
            "data_seed": self.data_seed,
            "processes": self.accelerator.num_processes,
            "batch_size": config.optim.batch_size,
            "lr": config.optim.lr,
            **self.sizes(),
            "metric": self.task.primary.name,
            "best_epoch": best["epoch"],
            "best": best,
            "last": self.records[-1],
            "train_seconds": self.tally.seconds,
            "cpu_seconds": self.tally.cpu_seconds,
            "environment": environment(self.accelerator.device, config.model.discretization),
        }
        if self.accelerator.is_main_process:
            self.folder.write_summary(summary)
        self.accelerator.wait_for_everyone()
        return summary

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint from which `restore` continues, and the files of weights."""
        if not all(bool(p.isfinite().all()) for p in self.plain_model.parameters()):
            raise self._diverged("a weight is not finite", None)
        tally = self.tally.state(self._mean)
        if self.accelerator.is_main_process:
            self._write(tally)
        self.accelerator.wait_for_everyone()  # a launcher ends all processes when one does, in the middle of this too

    def _write(self, tally: dict[str, Any]) -> None:
        state = {
            **recorded_origin(self.config.model.discretization),
            "step": self.step,
            "records": self.records,
            "best": self.best,
            "best_digest": self.best_digest,
            "tally": tally,
            "config": self.config.flat(),
            "threads": torch.get_num_threads(),
            "model": self.plain_model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema.module.state_dict() if self.ema else None,
            "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler else None,
        }
        self.folder.write_state(state)
        self._write_what_follows()

    def _write_what_follows(self) -> None:
        """The files that can be made from the checkpoint at any time; the best model as long as it is the last one."""
        self.folder.write_metrics(self.records)
        self._save_model(self.plain_model, LAST, {"updates": self.step})
        if self.ema:
            self._save_model(self.ema.module, EMA, {"updates": self.step})
        if self.best and self.best["updates"] == self.step:
            self._save_model(self.ema.module if self.ema else self.plain_model, BEST, self.best)
            self.best_digest = digest(self.folder / BEST)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `save` wrote, and write the files that are missing because the process was killed."""
        try:
            self.plain_model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.ema:
                self.ema.module.load_state_dict(state["ema"])
            if self.accelerator.scaler:
                self.accelerator.scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise RuntimeError(
                f"{str(self.folder / TRAINING)!r} does not fit the model: {reason}; --run.resume false starts over"
            ) from error
        self.step, self.records, self.best = state["step"], list(state["records"]), state["best"]
        self.tally = Tally.restored(state["tally"], self.accelerator.device)
        self.best_digest = state.get("best_digest")
        if self.accelerator.is_main_process:
            self._write_what_follows()
        self.accelerator.wait_for_everyone()

    def _save_model(self, model: nn.Module, name: str, metadata: Mapping[str, Any]) -> None:
        self.task.save(model, self.folder / name, {"config": self.config.flat(), **metadata})

    # --- details ------------------------------------------------------------------------------------------------------

    def _seed(self, part: int) -> None:
        """Dropout and stochastic depth draw from torch and follow the run's seed, mixup from numpy and the data's."""

        def derived(seed: int) -> int:
            place = self.step, part, self.accelerator.process_index
            return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0])

        torch.manual_seed(derived(self.config.seed))
        np.random.seed(derived(self.data_seed))  # noqa: NPY002, the generator that timm reads

    def _mean(self, value: Tensor) -> float:
        """Over the processes."""
        mean: Tensor = self.accelerator.reduce(value, "mean")
        return float(mean.item())

    def batch_of_a_pass(self) -> int:
        """Samples of one forward pass in one process."""
        optim = self.config.optim
        passes: int = self.accelerator.num_processes * optim.accumulate
        return optim.batch_size // passes

    def sizes(self) -> dict[str, int]:
        """Sizes of model, data and run."""
        held_out, course = self.task.evaluation, self.course
        parameters = sum(p.numel() for p in self.plain_model.parameters())
        data = self.order.size, len(held_out.data), len(held_out.classes)
        return dict(zip(SIZES, (parameters, *data, course.updates, course.epoch), strict=True))

    def _asked_to_stop(self, stop: StopRequest) -> bool:
        """Whether any process was; all of them learn it at the same update."""
        if self.step % self.ask_every:
            return False
        if self.accelerator.num_processes > 1:
            stop.number = max(gather_object([stop.number]))
        return stop.number > 0

    def _unstable(self) -> float:
        """The largest share of unstable steps of any layer, on the last batch; most rules are stable for all."""
        rule = get_discretization(self.config.model.discretization)
        if self.last_batch is None or math.isinf(rule.stable[0]):
            return 0.0
        layers = self.task.diagnose(self.plain_model, self.last_batch).layers
        return max((layer.unstable for layer in layers), default=0.0)

    def _insist_on_finite(self, loss: Tensor, batch: Batch) -> None:
        """Before the update, so that the weights can still be looked at."""
        self.loss = loss.item()
        if not math.isfinite(self.loss):
            raise self._diverged(f"the loss is {self.loss}", batch)
        if self.accelerator.scaler:  # which skips an update that is not finite by itself
            return
        gradients = [p.grad for p in self.plain_model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients).item()
        if not math.isfinite(norm):
            raise self._diverged(f"the gradient's norm is {norm}", batch)

    def _diverged(self, what: str, batch: Batch | None) -> Diverged:
        diagnosis = self.task.diagnose(self.plain_model, batch) if batch else None
        message = f"{what} at update {self.step} (epoch {self.step // self.order.batches + 1})"
        if diagnosis and diagnosis.first_non_finite:
            message += f"; first in {diagnosis.first_non_finite}"
        if diagnosis and (share := max((layer.unstable for layer in diagnosis.layers), default=0.0)):
            interval = f"the stability interval of {diagnosis.discretization}"
            message += f"; up to {share:.1%} of a layer's steps leave {interval}"
        return Diverged(f"{message}; the last good checkpoint stays in {str(self.folder.path)!r}", diagnosis)


def _total(losses: Mapping[str, Tensor]) -> Tensor:
    """Of all parts."""
    first, *others = losses.values()
    return sum(others, first)
