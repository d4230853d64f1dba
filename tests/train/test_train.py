"""A run on the digits: what it leaves behind, that it can be repeated to the bit, and what it refuses."""

import json
import math
import os
import sys
from types import SimpleNamespace

import pytest
import torch

import tustin
from tustin.data import Digits
from tustin.train import Display, Diverged, load_recipe, recipes, train
from tustin.train.display import Bar, Lines
from tustin.train.tasks.classification import Classification

from .small import small, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run: its summary and its folder."""
    out = tmp_path_factory.mktemp("finished")
    return train(small(out)), out


def test_leaves_metrics_summary_and_checkpoints(finished):
    summary, out = finished
    assert sorted(os.listdir(out)) == sorted(
        [".lock", "best.safetensors", "last.safetensors", "metrics.jsonl", "summary.json", "training.pt"]
    )
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2]
    assert {"top1", "top5", "loss", "train_loss", "lr", "samples_per_second", "train_seconds"} <= set(records[0])
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["best"] == max(records, key=lambda record: record["top1"])
    assert summary["last"] == records[-1]
    assert (summary["batch_size"], summary["lr"]) == (256, pytest.approx(0.5 * summary["config"]["optim.base_lr"]))
    environment = summary["environment"]
    assert environment["backend"] in ("native", "reference")
    assert environment["threads"] == 1
    assert environment["versions"]["torch"] == torch.__version__


def test_checkpoints_are_models(finished):
    summary, out = finished
    model = tustin.load(out / "best.safetensors")
    data = Digits(training=False)
    batch = data.__getitems__([(i, 0) for i in range(len(data))])
    with torch.no_grad():
        correct = (model(batch["images"]).argmax(1) == batch["labels"]).float().mean()
    assert 100 * correct.item() == pytest.approx(summary["best"]["top1"], abs=1e-4)


def test_training_state_is_read_without_executing_anything(finished):
    state = torch.load(finished[1] / "training.pt", weights_only=True)
    assert state["step"] == 10


def test_same_seed_same_bits(finished, tmp_path):
    again = train(small(tmp_path))
    assert weights(tmp_path) == weights(finished[1])
    assert again["last"]["top1"] == finished[0]["last"]["top1"]


def test_another_seed_other_weights(finished, tmp_path):
    train(small(tmp_path, seed=1, epochs=1))
    assert weights(tmp_path) != weights(finished[1])


def test_runs_that_share_a_data_seed_see_the_same_images(tmp_path):
    def seen(seed, data_seed):
        config = small(tmp_path / f"{seed}-{data_seed}", seed=seed, data__seed=data_seed, augment__mixup=0.8, epochs=1)
        task, images = Classification(config), []
        task.model.register_forward_pre_hook(lambda model, inputs: images.append(inputs[0].clone()))
        train(config, task)
        return images

    one, other, third = seen(1, 5), seen(2, 5), seen(2, 6)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(other[0], third[0])


def test_rules_start_from_the_same_weights(tmp_path):
    states = [Classification(small(tmp_path, model__discretization=name)).model.state_dict() for name in ("zoh", "rk4")]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_loss_falls(tmp_path):
    summary = train(small(tmp_path, epochs=12, optim__batch_size=64, optim__base_lr=0.08, run__eval_every=12))
    assert summary["last"]["top1"] > 60


def test_complete_run_is_not_repeated(finished, capsys):
    assert train(small(finished[1]), display=Lines()) == finished[0]
    assert "is complete" in capsys.readouterr().out


def test_starting_over(tmp_path):
    train(small(tmp_path, epochs=1))
    summary = train(small(tmp_path, run__resume=False))
    assert summary["last"]["epoch"] == 2


def test_other_settings_do_not_continue_a_run(finished):
    with pytest.raises(ValueError, match=r"holds a run with optim\.base_lr .*another --out"):
        train(small(finished[1], optim__base_lr=0.5))
    with pytest.raises(ValueError, match="used 1 threads"):
        train(small(finished[1], run__threads=2))


def test_resume_asked_for_without_a_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint to continue"):
        train(small(tmp_path, run__resume=True))


def test_accumulation_computes_the_same_gradient(tmp_path, finished):
    train(small(tmp_path, optim__accumulate=4, epochs=1, optim__smoothing=0.0))
    train(small(tmp_path / "whole", epochs=1, optim__smoothing=0.0))
    one, other = (torch.load(p / "training.pt", weights_only=True)["model"] for p in (tmp_path, tmp_path / "whole"))
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-4)


def test_batch_must_be_divisible(tmp_path):
    with pytest.raises(ValueError, match="must be divisible by 1 processes x 3 accumulation steps"):
        train(small(tmp_path, optim__accumulate=3))


def test_average_of_the_weights_is_what_is_evaluated_and_kept(tmp_path):
    train(small(tmp_path, optim__ema=0.9, epochs=2))
    assert weights(tmp_path, "ema") != weights(tmp_path, "last")
    assert weights(tmp_path, "best") == weights(tmp_path, "ema")


def test_nonfinite_loss_stops_the_run_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    losses = Classification.losses
    calls = iter(range(100))

    def broken(self, model, batch):
        factor = math.nan if next(calls) == 7 else 1
        return {name: loss * factor for name, loss in losses(self, model, batch).items()}

    monkeypatch.setattr(Classification, "losses", broken)
    with pytest.raises(Diverged, match=r"the loss is nan at update 7 \(epoch 2\).*last good checkpoint"):
        train(small(tmp_path))
    state = torch.load(tmp_path / "training.pt", weights_only=True)
    assert state["step"] == 5
    assert all(value.isfinite().all() for value in state["model"].values())


def test_rule_that_overflows_is_diagnosed(tmp_path):
    message = r"is nan at update 0 .*steps leave the stability interval of rk4_raw"
    args = {"embed_dim": 16, "depth": 1, "d_state": 16, "patch_size": 1, "stride": 1}  # many tokens, z from −11
    with pytest.raises(Diverged, match=message) as found:
        train(small(tmp_path, model__discretization="rk4_raw", model__args=args))
    assert not found.value.diagnosis.healthy


def test_leaving_the_stability_interval_is_warned_of(tmp_path, capsys):
    args = {"embed_dim": 16, "depth": 1, "d_state": 6}  # z from −4: unstable, but not so much that it overflows
    summary = train(small(tmp_path, epochs=1, model__discretization="rk4_raw", model__args=args), display=Lines())
    assert 0 < summary["last"]["unstable"] < 1
    assert "WARNING: up to" in capsys.readouterr().out


def test_nonfinite_weights_are_not_saved(tmp_path):
    class Breaking(Display):
        def update(self, step, updates, place):
            if step == 10:
                with torch.no_grad():
                    task.model.head.bias[0] = math.inf

    config = small(tmp_path)
    task = Classification(config)
    with pytest.raises(Diverged, match="a weight is not finite"):
        train(config, task, Breaking())
    assert torch.load(tmp_path / "training.pt", weights_only=True)["step"] == 5


def test_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    train_until = small(tmp_path)
    saved = torch.save
    calls = iter(range(100))

    def full(*args, **kwargs):
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        saved(*args, **kwargs)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"cannot write .*training.pt.*No space left on device"):
        train(train_until)
    assert torch.load(tmp_path / "training.pt", weights_only=True)["step"] == 5
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]
    monkeypatch.undo()
    assert train(train_until)["last"]["epoch"] == 2


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="needs a folder in which even root cannot write")
def test_folder_that_cannot_be_written():
    with pytest.raises(OSError, match="cannot write into the output folder '/proc/nowhere'"):
        train(load_recipe("digits", {"out": "/proc/nowhere"}))


def test_damaged_checkpoint(tmp_path):
    (tmp_path / "training.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(RuntimeError, match=r"training\.pt' is damaged .*--run\.resume false"):
        train(small(tmp_path))


def test_lines_tell_batch_rate_and_epochs(tmp_path, capsys):
    train(small(tmp_path, epochs=1), display=Lines())
    out = capsys.readouterr().out
    assert "batch 256 = processes x accumulation x samples = 1 x 1 x 256; learning rate" in out
    assert "epoch 1/1, train loss" in out
    assert "\x1b" not in out


def test_bar_on_a_terminal(tmp_path, capsys):
    display = Bar()
    train(small(tmp_path, epochs=1), display=display)
    assert "epoch 1/1, train loss" in capsys.readouterr().out
    assert display.progress.tasks[0].finished


def test_tensorboard_gets_every_metric(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder):
            assert folder == str(tmp_path)

        def add_scalar(self, name, value, updates):
            written.append((name, updates))

        def close(self):
            written.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    train(small(tmp_path, run__tensorboard=True))
    assert {("top1", 5), ("top1", 10), ("train_loss", 10)} <= set(written)
    assert written[-1] == "closed"


def test_tensorboard_that_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RuntimeError, match=r"pip install 'tustin\[tensorboard\]'"):
        train(small(tmp_path, run__tensorboard=True))


def test_every_recipe_has_a_description():
    assert all(recipes().values())


def test_a_rate_that_the_optimizer_keeps_as_a_tensor(tmp_path):
    summary = train(small(tmp_path, epochs=1, optim__name="adafactor", optim__base_lr=0.0))
    assert isinstance(summary["last"]["lr"], float)
