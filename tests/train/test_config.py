"""Settings: recipes by name and path, names that do not exist, values of the wrong kind."""

import dataclasses
import inspect
import math
from pathlib import Path
from typing import get_args

import pytest

from tustin.cli import main
from tustin.models import VisionMamba
from tustin.support.ranges import range_of
from tustin.train import TASKS, load_recipe, recipes, train
from tustin.train.checks import SETTING_OF
from tustin.train.config import AugmentConfig, Config, DataConfig, keys, kinds
from tustin.train.settings import parse
from tustin.train.tasks import DATA_SETS

from .small import small


def test_settings_go_on_top_of_the_recipe():
    config = load_recipe("digits", {"model.discretization": "zoh", "model.args.depth": 2, "seed": 3})
    assert (config.model.discretization, config.model.args["depth"], config.seed) == ("zoh", 2, 3)
    assert config.out == "runs/digits-zoh-3"
    assert load_recipe("digits").model.args.get("depth") != 2


def test_command_line_and_python_agree():
    words = ["--model.discretization", "zoh", "--optim.base_lr=0.5", "--optim.clip", "null", "--model.args.depth", "2"]
    settings = {"model.discretization": "zoh", "optim.base_lr": 0.5, "optim.clip": None, "model.args.depth": 2}
    assert parse("digits", words) == load_recipe("digits", settings)


def test_recipe_from_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("epochs: 7\noptim: {batch_size: 32}\n")
    config = load_recipe(file)
    assert (config.epochs, config.optim.batch_size, config.out) == (7, 32, "runs/mine-mamba-0")
    assert config.optim.lr == config.optim.base_lr * 32 / 512


def test_every_setting_has_a_help(capsys):
    with pytest.raises(SystemExit):
        parse("digits", ["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for key in keys():
        assert f"--{key} " in out
        after = out.rpartition(f"--{key} ")[2]
        assert after.split("(type:")[0].strip().split(" ", 1)[1:], f"{key} has no docstring"


def test_print_config_can_be_loaded(capsys, tmp_path):
    with pytest.raises(SystemExit):
        parse("digits", ["--epochs", "3", "--print_config"])
    (tmp_path / "digits.yaml").write_text(capsys.readouterr().out)
    assert load_recipe(tmp_path / "digits.yaml") == load_recipe("digits", {"epochs": 3})


@pytest.mark.parametrize(
    ("key", "nearest"), [("epoch", "epochs"), ("optim.batchsize", "optim.batch_size"), ("modle.name", "model.name")]
)
def test_unknown_setting_suggests_the_nearest(tmp_path, key, nearest):
    message = f"unknown setting '{key}' .did you mean '{nearest}'"
    with pytest.raises(ValueError, match=message):
        load_recipe("digits", {key: 1})
    with pytest.raises(ValueError, match=message):
        parse("digits", [f"--{key}", "1"])
    group, _, name = key.rpartition(".")
    (tmp_path / "bad.yaml").write_text(f"{group}:\n  {name}: 1\n" if group else f"{name}: 1\n")
    with pytest.raises(ValueError, match=message):
        load_recipe(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number from 1 to 1,000,000,000, got 0"),
        ({"seed": 2**63}, "seed must be a whole number from 0 to 9,223,372,036,854,775,807, got 9223372036854775808"),
        ({"optim.clip": 0}, "optim.clip must be a number above 0 or null, got 0"),
        (
            {"segmentation.min_scale": 3},
            "segmentation.min_scale has no effect on classification: it must be 0.5",
        ),
        ({"optim.name": "adamv"}, "unknown optimizer .optim.name. 'adamv' .did you mean 'adam'"),
        ({"model.args": {"depth": 0}}, "model.args.depth must be a whole number from 1 to 1000, got 0"),
        ({"model.args": {"colour": 3}}, "unknown argument 'model.args.colour'; known: patch_size"),
    ],
)
def test_senseless_values(settings, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("digits", settings)


def numbers():
    """The names of all settings that are numbers, and their annotations."""
    for key, kind in kinds().items():
        parts = [part for one in get_args(kind) or (kind,) for part in (one, *get_args(one))]
        if int in (kind, *parts) or float in (kind, *parts):
            yield key, kind


def test_every_number_has_a_range_with_both_ends_meant():
    found = dict(numbers())
    assert len(found) >= 40
    assert [key for key, kind in found.items() if range_of(kind) is None] == []
    for key, kind in found.items():
        value = Config().get(key)
        assert value is None or value in range_of(kind), key


@pytest.mark.parametrize(("key", "kind"), list(numbers()), ids=dict(numbers()))
def test_no_number_leaves_its_range(key, kind):
    allowed = range_of(kind)
    outside = [allowed.least if allowed.above else allowed.least - 1, math.nan, math.inf, -math.inf]
    if math.isfinite(allowed.most):
        outside.append(allowed.most if allowed.below else allowed.most + 1)
    group, _, name = key.rpartition(".")
    for value in outside:
        config = Config()
        setattr(config.get(group) if group else config, name, value)
        with pytest.raises(ValueError, match=f"^{key} must be a .*number"):
            config.__post_init__()


def test_ranges_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        parse("digits", ["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for key, kind in numbers():
        assert f"({range_of(kind)})" in out.rpartition(f"--{key} ")[2].partition("(type:")[0], key


@pytest.mark.parametrize("name", SETTING_OF)
def test_the_arguments_of_the_model_cannot_override_a_setting(name, capsys):
    message = f"model.args must not contain '{name}': use the setting {SETTING_OF[name]}"
    with pytest.raises(ValueError, match=message):
        load_recipe("digits", {"model.args": {name: "zoh"}})
    for command in (["train", "digits"], ["study", "digits", "--discretizations", "zoh,bil"]):
        assert main([*command, f"--model.args.{name}", "zoh"]) == 2
        assert message in capsys.readouterr().err


def test_model_args_hold_every_other_argument():
    arguments = set(inspect.signature(VisionMamba).parameters)
    assert set(SETTING_OF) - {"pretrained", "checkpoint_path", "allow_other_discretization"} <= arguments
    config = load_recipe("digits", {"model.args": {name: VISION_MAMBA[name] for name in arguments - set(SETTING_OF)}})
    assert set(config.model.args) == arguments - set(SETTING_OF)


VISION_MAMBA = {name: one.default for name, one in inspect.signature(VisionMamba).parameters.items()}

IGNORED = [
    (data, f"{group}.{name}")
    for data, kind in DATA_SETS.items()
    for group, read, of in (("data", kind.settings, DataConfig), ("augment", kind.augment, AugmentConfig))
    for name in dataclasses.asdict(of())
    if name not in read and name != "name"
]
NOT_USUAL = {
    "data.path": "photos",
    "data.crop_pct": 0.5,
    "data.in_memory": False,
    "data.skip_corrupt": True,
    "data.download": False,
    "data.unlabelled": 3,
    "augment.crop": "padded",
    "data.cache": "folder",
    "augment.flip": 0.25,
    "augment.color_jitter": 0.25,
    "augment.auto": "original",
    "augment.erase": 0.25,
    "augment.mixup": 0.5,
    "augment.cutmix": 0.5,
    "augment.shift": 1,
}


@pytest.mark.parametrize(("data", "key"), IGNORED)
def test_settings_without_effect_are_refused(data, key):
    augment = AugmentConfig(crop="none", flip=0) if data == "digits" else AugmentConfig()
    task = next(task.name for task in TASKS.values() if data in task.data)
    config = Config(task=task, data=DataConfig(name=data), augment=augment)
    group, _, name = key.rpartition(".")
    setattr(config.get(group), name, NOT_USUAL[key])
    with pytest.raises(ValueError, match=f"{key} has no effect on {data}: it must be"):
        config.__post_init__()


def test_settings_without_effect_on_a_task():
    with pytest.raises(ValueError, match=r"optim\.smoothing has no effect on detection"):
        load_recipe("coco-tiny-cpu", {"optim.smoothing": 0.2})
    with pytest.raises(ValueError, match=r"augment\.color_jitter has no effect on images with augment\.auto"):
        load_recipe("cifar100", {"augment.color_jitter": 0.4})
    with pytest.raises(ValueError, match=r"digits has 10 classes, data\.num_classes is 3"):
        TASKS["classification"].open_data(load_recipe("digits", {"data.num_classes": 3}).data, training=True)


def test_scales_in_their_order():
    with pytest.raises(ValueError, match=r"detection\.min_scale 1\.6 is above detection\.max_scale 1\.5"):
        load_recipe("coco-tiny-cpu", {"detection.min_scale": 1.6})


def test_automatic_augmentation_that_does_not_exist():
    for policy in ("rand-m9-mstd0.5-inc1", "original", "augmix-m5-w4", "3a"):
        assert load_recipe("cifar100", {"augment.auto": policy}).augment.auto == policy
    for policy in ("nonsense", "rand-q9", ""):
        with pytest.raises(ValueError, match=r"augment\.auto must be a policy of timm such as rand-m9"):
            load_recipe("cifar100", {"augment.auto": policy})


def test_mixup_needs_pairs(tmp_path):
    with pytest.raises(ValueError, match="an even number of images, not 13"):
        train(small(tmp_path, optim__batch_size=13, augment__mixup=0.5))


@pytest.mark.parametrize("name", ["resnet18", "hf-hub:somebody/model"])
def test_only_models_with_a_discretization_are_trained(name, tmp_path):
    with pytest.raises(ValueError, match=f"unknown model '{name}'"):
        train(small(tmp_path, model__name=name))


BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(24))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, r"anchors .* and aliases .* are not allowed \(line 1, column 5\)"),
        ("model: {args: {a: &x 3, b: *x}}", "anchors"),
        ("epochs: 3\nseed: 1\nepochs: 4\n", r"'epochs' is given twice \(line 3, column 1\)"),
        ("optim: {clip: 1, clip: 2}", "'clip' is given twice"),
        ("epochs: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("[" * 5000, "nested too deeply"),
        ("seed: " + "1" * 5000, "4300 digits"),
        ("epochs: 2001-99-99", "month must be"),
    ],
)
def test_yaml_that_no_recipe_needs(tmp_path, capsys, text, why):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=rf"bad\.yaml is not a YAML file of settings: .*{why}"):
        load_recipe(file)
    for command in (["train", str(file)], ["study", str(file)]):
        assert main(command) == 2
        err = capsys.readouterr().err
        assert "bad.yaml is not a YAML file of settings" in err
        assert err.count("\n") == 1


def test_values_on_the_command_line_are_as_plain():
    with pytest.raises(ValueError, match=r"model\.args"):
        parse("digits", ["--model.args", "{depth: &x 1, d_state: *x}"])


def test_only_right_settings_are_printed(capsys):
    with pytest.raises(ValueError, match=r"optim\.clip must be"):
        parse("digits", ["--optim.clip", "-1", "--print_config"])
    assert capsys.readouterr().out == ""


def test_values_of_the_wrong_kind():
    with pytest.raises(ValueError, match=r"optim\.batch_size must be a whole number .*, got many"):
        parse("digits", ["--optim.batch_size", "many"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("optimizer: adamw", r"'optimizer' \(did you mean one of the group 'optim': optim\.name, optim\.batch_size, "),
        ("optimizer: {name: adamw}", r"'optimizer\.name' \(did you mean 'optim\.name'\?\)"),
        ("batch_size: 8", r"'batch_size' \(did you mean 'optim\.batch_size'\?\)"),
        ("weights: x.pth", r"'weights' \(did you mean 'model\.weights'\?\)"),
        (
            "optimizer: {lr: 1}",
            r"'optimizer\.lr' \(did you mean 'optim\.base_lr' or 'optim\.warmup_lr' or 'optim\.min_lr'\?\)",
        ),
        ("lr: 1", r"'lr' \(did you mean 'optim\.base_lr' or "),
        ("model: {patch_size: 4}", r"'model\.patch_size' \(did you mean 'model\.args\.patch_size'\?\)"),
        ("depth: 4", r"'depth' \(did you mean 'model\.args\.depth'\?\)"),
        ("modle: {name: x}", r"'modle\.name' \(did you mean 'model\.name'\?\)"),
        ("model: {depht: 4}", r"'model\.depht' \(did you mean 'model\.args\.depth'\?\)"),
        ("depht: 4", r"'depht' \(did you mean 'model\.args\.depth'\?\)"),
        ("batchsize: 4", r"'batchsize' \(did you mean 'optim\.batch_size'\?\)"),
        ("model: {lr: 1}", r"'model\.lr' \(did you mean 'optim\.base_lr' or "),
    ],
)
def test_a_group_that_is_forgotten_or_has_another_name(tmp_path, text, sentence):
    (tmp_path / "mine.yaml").write_text(f"{text}\n")
    with pytest.raises(ValueError, match=f"unknown setting {sentence}"):
        load_recipe(tmp_path / "mine.yaml")


def test_an_argument_of_the_model_is_suggested():
    with pytest.raises(ValueError, match=r"unknown argument 'model\.args\.patch_sise' \(did you mean 'patch_size'\?\)"):
        load_recipe("digits", {"model.args": {"patch_sise": 8}})


def test_unknown_recipe_and_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"unknown recipe 'digts' .did you mean 'digits'"):
        load_recipe("digts")
    with pytest.raises(FileNotFoundError, match=r"no recipe file .*mine\.yaml"):
        load_recipe(tmp_path / "mine.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="must hold settings"):
        load_recipe(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1\n")
    with pytest.raises(ValueError, match="is not a YAML file"):
        load_recipe(tmp_path / "broken.yaml")


def test_output_folder_is_needed():
    with pytest.raises(ValueError, match="out is missing"):
        train(Config())


def test_every_recipe_loads():
    for name in recipes():
        assert isinstance(load_recipe(name), Config)


def test_every_recipe_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    assert [name for name in recipes() if f"`{name}`" not in page] == []
