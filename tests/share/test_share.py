"""Sharing a model: through a folder, through timm, and through a hub that exists here only."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
import yaml

import tustin
from tests import own_rule
from tests.models.checkpoint.checkpoints import assert_same_state, nano
from tests.train.small import small
from tustin import DISCRETIZATIONS
from tustin.models import CheckpointError, Detector, describe
from tustin.models.checkpoint import hub as hub_module
from tustin.train import train


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that plays the hub: `owner/name` is a folder in it."""
    root = tmp_path / "hub"

    class Api:
        def __init__(self, **options: Any) -> None:
            self.options = options

        def create_repo(self, repository: str, private: bool, exist_ok: bool) -> Any:
            (root / repository).mkdir(parents=True, exist_ok=exist_ok)
            return SimpleNamespace(repo_id=repository)

        def upload_folder(self, repo_id: str, folder_path: str, **about: Any) -> None:
            shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)

    def download(repo_id: str, filename: str, **about: Any) -> str:
        path = root / repo_id / filename
        if not path.is_file():
            raise FileNotFoundError(f"404: {path.name}")
        return str(path)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(timm.models._hub, "hf_hub_download", download)
    monkeypatch.setattr(
        huggingface_hub,
        "list_repo_files",
        lambda name, revision=None: [path.name for path in (root / name).iterdir()],
    )
    monkeypatch.setattr(hub_module, "_no_answer", lambda: None)
    return root


# --- timm -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("safe", [False, True, "both"])
def test_what_timm_saves_comes_back_with_its_rule(tmp_path: Path, safe: Any) -> None:
    model = nano(discretization="bil", num_classes=7)
    timm.models.save_for_hf(model, str(tmp_path), safe_serialization=safe)
    assert json.loads((tmp_path / "config.json").read_text())["pretrained_cfg"]["model_args"]["discretization"] == "bil"
    for again in (timm.create_model(f"local-dir:{tmp_path}", pretrained=True), tustin.load(tmp_path)):
        assert_same_state(again, model)
        assert again.config == model.config
        assert tuple(again.pretrained_cfg["mean"]) == model.pretrained_cfg["mean"]
    untrained: Any = timm.create_model(f"local-dir:{tmp_path}")
    assert untrained.config == model.config
    assert not torch.equal(untrained.head.weight, model.head.weight)


def test_what_timm_saves_is_refused_for_another_rule(tmp_path: Path) -> None:
    timm.models.save_for_hf(nano(discretization="bil"), str(tmp_path))
    with pytest.raises(CheckpointError, match="was trained with discretization 'bil', but the model has 'zoh'"):
        timm.create_model(f"local-dir:{tmp_path}", pretrained=True, discretization="zoh")


def test_a_new_head_after_saving_by_timm(tmp_path: Path) -> None:
    model = nano(discretization="bil")
    model.reset_classifier(3)
    timm.models.save_for_hf(model, str(tmp_path))
    assert_same_state(tustin.load(tmp_path), model)
    with pytest.warns(UserWarning, match="the head is initialised anew: 3 classes in the file, 5 in the model"):
        assert timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=5).num_classes == 5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"depth": 10**6}, "is refused: .*depth"),
        ({"colour": "red"}, "is refused: unknown argument 'config.colour'"),
        ({"discretization": 3}, "is refused: "),
    ],
)
def test_a_config_of_a_stranger_is_checked(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    timm.models.save_for_hf(nano(discretization="bil"), str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"]["model_args"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=sentence):
        tustin.load(tmp_path)
    with pytest.raises(ValueError, match=next(iter(changes))):
        timm.create_model(f"local-dir:{tmp_path}", pretrained=True)


# --- the hub ----------------------------------------------------------------------------------------------------------


def test_a_run_through_the_hub(tmp_path: Path, hub: Path) -> None:
    out = tmp_path / "run"
    summary = train(small(out, epochs=1, model__discretization="bil"))
    tustin.push_to_hub(out, "me/digits-bil", license="mit")
    assert {path.name for path in (hub / "me/digits-bil").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    best = tustin.load(out)
    for again in (
        tustin.load("hf-hub:me/digits-bil"),
        tustin.load("hf-hub:me/digits-bil@main"),
        timm.create_model("hf-hub:me/digits-bil", pretrained=True),
    ):
        assert_same_state(again, best)
        assert again.config["discretization"] == "bil"
    told = describe("hf-hub:me/digits-bil")
    assert str(tmp_path) not in json.dumps(told)  # no path of this machine
    assert told["class_names"] == [str(digit) for digit in range(10)]
    text = (hub / "me/digits-bil/README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---")[1])
    assert (head["license"], head["library_name"], head["datasets"]) == ("mit", "timm", ["digits"])
    assert "discretization:bil" in head["tags"]
    measured = {one["type"]: one["value"] for one in head["model-index"][0]["results"][0]["metrics"]}
    assert measured["top1"] == round(summary["best"]["top1"], 4)
    for words in ("| rule | bil: α = (1 + z/2) / (1 − z/2)", "| data | digits |", "| top-1 accuracy | "):
        assert words in text
    assert 'tustin.load("hf-hub:me/digits-bil")' in text
    assert "## Study" not in text


def test_a_detector_through_the_hub(tmp_path: Path, hub: Path) -> None:
    vim = tustin.create_model("vim_nano_patch4_32", img_size=64, depth=2, embed_dim=16, discretization="bil")
    model = Detector(vim, category_ids=[1, 2], channels=16, hidden=16, proposals=10)
    tustin.push_to_hub(model, "me/boxes")
    assert {path.name for path in (hub / "me/boxes").iterdir()} == {"README.md", "model.safetensors"}
    again = tustin.load("hf-hub:me/boxes")
    assert_same_state(again, model)
    head = yaml.safe_load((hub / "me/boxes/README.md").read_text(encoding="utf-8").split("---")[1])
    assert (head["library_name"], head["pipeline_tag"]) == ("tustin", "object-detection")
    assert "timm" not in head["tags"]


def test_the_card_names_the_study(tmp_path: Path) -> None:
    study = tmp_path / "study"
    train(small(run := study / "runs" / "bil-0", updates=3, model__discretization="bil"))
    plan = {"recipe": "digits", "discretizations": ["zoh", "bil"], "seeds": [0, 1], "baseline": "zoh", "metric": "top1"}
    plan |= {"level": 0.05, "threshold": 0.7, "settings": {}, "threads": 1, "config": {}, "environment": {}}
    (study / "study.json").write_text(json.dumps(plan))
    (study / "report.md").write_text("# Report\n")
    files = tustin.save_for_hub(run / "best.safetensors", tmp_path / "shared")
    assert [path.name for path in files] == ["README.md", "config.json", "model.safetensors", "study.md"]
    text = files[0].read_text(encoding="utf-8")
    assert "a study on `digits` that compares `zoh`, `bil` with 2 seeds each, by top-1 accuracy, with `zoh`" in text
    assert "[study.md](study.md)" in text
    assert "| updates | 3 |" in text
    assert "| epochs |" not in text


@pytest.mark.usefixtures("clean_registry")
def test_the_file_of_an_own_rule_travels_and_is_never_run(tmp_path: Path, hub: Path) -> None:
    tustin.discretize.import_rules(own_rule.write(tmp_path))
    model: Any = tustin.create_model("vim_nano_patch2_8", depth=1, discretization="backward_euler")
    tustin.push_to_hub(model, "me/own")
    assert (hub / "me/own/my_rules.py").read_text(encoding="utf-8") == own_rule.SOURCE
    assert "tustin.discretize.import_rules('my_rules.py')" in (hub / "me/own/README.md").read_text(encoding="utf-8")
    del DISCRETIZATIONS["backward_euler"]
    with pytest.raises(CheckpointError, match=r"needs the rule 'backward_euler' from 'my_rules\.py' \(SHA-256 "):
        tustin.load("hf-hub:me/own")
    with pytest.raises(ValueError, match="unknown discretization 'backward_euler'"):
        timm.create_model("hf-hub:me/own", pretrained=True)


def test_a_model_without_a_name_or_history(tmp_path: Path) -> None:
    model = tustin.models.VisionMamba(img_size=8, patch_size=4, in_chans=1, num_classes=2, embed_dim=16, depth=1)
    names = [path.name for path in tustin.save_for_hub(model, tmp_path)]
    assert names == ["README.md", "model.safetensors"]
    assert "| data | not recorded |" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert_same_state(tustin.load(tmp_path), model)


def test_no_network_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=fail))
    options = {"model.weights": "hustvl/Vim-tiny-midclstok", "model.discretization": "mamba"}
    config = small(tmp_path, **{name.replace(".", "__"): value for name, value in options.items()})
    with pytest.raises(CheckpointError) as caught:
        train(config)
    assert str(caught.value) == (
        "there is no file 'hustvl/Vim-tiny-midclstok', and the Hugging Face hub could not provide it (ConnectionError: "
        "Name or service not known); without a network, give the path of a downloaded file, or start from random "
        "weights with --model.weights null"
    )
