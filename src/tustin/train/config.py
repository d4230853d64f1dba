"""What a training run is made of: documented settings, and the recipes that fill them in.

The docstring of a field is its help on the command line. A recipe is a YAML file with the same names.
"""

from __future__ import annotations

import dataclasses
from argparse import SUPPRESS
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml
from jsonargparse import ArgumentParser, Namespace, set_parsing_settings

from ..discretize.base import unknown

__all__ = [
    "AugmentConfig",
    "Config",
    "DataConfig",
    "DetectionConfig",
    "ModelConfig",
    "OptimConfig",
    "RunConfig",
    "SegmentationConfig",
    "load",
    "recipes",
]

RECIPES = Path(__file__).parents[1] / "recipes"


@dataclass
class ModelConfig:
    """The model."""

    name: str = "vim_tiny_patch16_224"
    """Name of the model, one of timm's registry."""
    discretization: str = "bil"
    """Rule that turns the continuous system into a recurrence; `tustin methods` lists them."""
    img_size: int | None = None
    """Side of the images; by default what the model is made for."""
    drop_path_rate: float = 0.0
    """Stochastic depth of the last block."""
    args: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the model, e.g. {patch_size: 8, dt_init_backward: mamba}."""
    weights: str | None = None
    """Checkpoint to start from, a file or a repository of the Hugging Face hub; other classes get a fresh head."""
    allow_other_discretization: bool = False
    """Start from weights that were trained with another rule."""


@dataclass
class DataConfig:
    """The images."""

    name: Literal["digits", "cifar10", "cifar100", "folder", "ade20k", "masks", "coco"] = "folder"
    """Which data. To classify: scikit-learn's digits, CIFAR, or a folder with train/CLASS/IMAGE and val/CLASS/IMAGE. To
    segment: ADE20K, or masks, a folder with images, index masks and classes.txt. To detect: COCO."""
    path: str | None = None
    """Where they are; digits need none."""
    num_classes: int | None = None
    """How many classes the data must have; by default as many as they have."""
    crop_pct: float | None = None
    """Share of the side that evaluation keeps of an image; by default the model's."""
    seed: int | None = None
    """Seed of the order of samples and of augmentation; by default the seed of the run."""
    workers: int = 0
    """Processes that load images; 0 loads them in the training process."""
    in_memory: bool | None = None
    """Keep decoded images in memory; by default if their files are small."""
    skip_corrupt: bool = False
    """Count and skip images that cannot be read instead of stopping."""
    download: bool = True
    """Download CIFAR where it is missing."""
    unlabelled: int = 0
    """Masks only: the value of pixels without a class; the other values are the classes in their order."""


@dataclass
class AugmentConfig:
    """What happens to the training images."""

    crop: Literal["resized", "padded", "none"] = "resized"
    """Random crop: of random size and shape; of the image padded by an eighth of its side; or none."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    color_jitter: float = 0.0
    """Strength of colour jitter, used where there is no `auto`."""
    auto: str | None = None
    """timm's automatic augmentation, e.g. rand-m9-mstd0.5-inc1."""
    erase: float = 0.0
    """Probability of random erasing."""
    mixup: float = 0.0
    """Alpha of mixup."""
    cutmix: float = 0.0
    """Alpha of cutmix."""
    shift: int = 0
    """Digits only: largest shift in pixels, in every direction."""
    repeats: int = 1
    """How often an epoch shows a sample, each time augmented anew; it shows fewer different ones then."""


@dataclass
class SegmentationConfig:
    """Semantic segmentation; crops have the side model.img_size."""

    long_side: int = 2048
    """Largest long side of an image before it is scaled at random, and in evaluation."""
    short_side: int = 512
    """Largest short side; an image is resized, in its proportions, until it meets one of the two."""
    min_scale: float = 0.5
    """Smallest random scale in training."""
    max_scale: float = 2.0
    """Largest random scale in training."""
    category_ratio: float = 0.75
    """Largest share of one class among the labelled pixels of a training crop; after ten tries any crop is taken."""
    photometric: bool = True
    """Distort brightness, contrast, saturation and hue of training images at random."""
    channels: int | None = None
    """Width of the UperNet head and of the auxiliary head; by default that of a token."""
    auxiliary_weight: float = 0.4
    """Weight of the auxiliary head's loss."""
    window: Literal["whole", "slide"] = "whole"
    """Evaluate an image as a whole, or in windows of side model.img_size whose logits are averaged."""
    window_stride: int = 341
    """Pixels between windows."""


@dataclass
class DetectionConfig:
    """Object detection and instance segmentation; training images have the side model.img_size."""

    min_scale: float = 0.1
    """Smallest random size of an image in training, as a share of that side."""
    max_scale: float = 2.0
    """Largest random size; what is too large is cropped, what is too small filled up."""
    channels: int = 256
    """Width of the feature pyramid and of the heads' convolutions."""
    hidden: int = 1024
    """Width of the linear layer of each stage of the cascade."""
    proposals: int = 1000
    """Boxes of an image that the cascade looks at."""
    samples: int = 512
    """How many of them it is trained on."""


@dataclass
class OptimConfig:
    """Batch, optimizer and schedule."""

    name: str = "adamw"
    """Optimizer, one of timm's."""
    batch_size: int = 512
    """Samples per update over all processes and accumulation steps."""
    accumulate: int = 1
    """Forward passes per update, where a batch does not fit into memory."""
    base_lr: float = 1e-3
    """Learning rate for a batch of 512; the rate is base_lr · batch_size / 512, which is printed at the start."""
    weight_decay: float = 0.05
    """Weight decay; A, D, biases, norms, position embedding and class token have none."""
    schedule: Literal["cosine", "linear", "step", "tanh"] = "cosine"
    """How the learning rate falls: as a cosine, a straight line, a tanh, or to a tenth every 90 epochs."""
    warmup_epochs: int = 5
    """Epochs over which the learning rate grows linearly."""
    warmup_updates: int | None = None
    """Updates over which it does, instead of warmup_epochs."""
    warmup_lr: float = 1e-6
    """Learning rate of the first update."""
    min_lr: float = 1e-5
    """Learning rate at the end."""
    clip: float | None = None
    """Largest norm of the gradient; by default it is not clipped."""
    smoothing: float = 0.1
    """Label smoothing."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights; evaluation then uses the average."""

    @property
    def lr(self) -> float:
        return self.base_lr * self.batch_size / 512


@dataclass
class RunConfig:
    """How the run is carried out; none of it is part of the experiment but precision and threads."""

    resume: bool | None = None
    """Continue from the output folder; by default if there is something to continue, false starts over."""
    device: Literal["auto", "cpu"] = "auto"
    """Where to run: the accelerator if there is one, or the CPU."""
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    """Precision of the matrix products; the state of the scan is always float32."""
    threads: int | None = None
    """CPU threads of a process; by default what PyTorch picks. Results depend on it in the last bits."""
    eval_every: int = 1
    """Epochs between evaluations; the end is always evaluated."""
    eval_updates: int | None = None
    """Updates between evaluations, instead of eval_every epochs."""
    eval_batch_size: int | None = None
    """Samples per forward pass in evaluation, per process; by default the training one's."""
    save_every: int = 0
    """Updates between checkpoints inside an epoch; 0 for those of each epoch, or of eval_updates, only."""
    tensorboard: bool = False
    """Also write TensorBoard files; needs the extra tustin[tensorboard]."""


@dataclass
class Config:
    """The run."""

    description: str = ""
    """What the recipe is for, in one line."""
    task: Literal["classification", "segmentation", "detection"] = "classification"
    """What the model learns to tell of an image: its class, the class of every pixel, or its objects."""
    epochs: int = 300
    """How often to go through the data."""
    updates: int | None = None
    """How many updates to make, instead of epochs."""
    seed: int = 0
    """Seed of everything random; the order of samples may have its own, see data.seed."""
    out: str | None = None
    """Output folder; by default runs/RECIPE-RULE-SEED."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        counts = ("epochs", "updates", "optim.batch_size", "optim.accumulate", "augment.repeats")
        for name in (*counts, "run.eval_every", "run.eval_updates"):
            value = self.get(name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def get(self, key: str) -> Any:
        """The value of a dotted name such as optim.batch_size."""
        value: Any = self
        for part in key.split("."):
            value = getattr(value, part)
        return value

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return {key: self.get(key) for key in keys()}


def refuse_settings_of_classification(config: Config) -> None:
    """For the other tasks: what would have no effect must not look as if it had one."""
    usual = AugmentConfig()
    for setting in dataclasses.fields(AugmentConfig):
        shared = setting.name in ("flip", "repeats")
        if not shared and getattr(config.augment, setting.name) != getattr(usual, setting.name):
            raise ValueError(
                f"augment.{setting.name} is a setting of classification; {config.task} has augment.flip, "
                f"augment.repeats and {config.task}.*"
            )


def keys(of: type = Config, prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings."""
    for name, kind in get_type_hints(of).items():
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def recipes() -> dict[str, str]:
    """The shipped recipes: name and description."""
    return {path.stem: str(_read(path).get("description", "")) for path in sorted(RECIPES.glob("*.yaml"))}


def find(recipe: str | Path) -> Path:
    """The file of a recipe, given its name or a path."""
    shipped = RECIPES / f"{recipe}.yaml"
    if shipped.is_file():
        return shipped
    if Path(recipe).is_file():
        return Path(recipe)
    if Path(recipe).suffix in (".yaml", ".yml"):
        raise FileNotFoundError(f"there is no recipe file {str(recipe)!r}")
    raise ValueError(unknown("recipe", str(recipe), list(recipes())) + ", or the path of a YAML file")


def load(recipe: str | Path, settings: Mapping[str, Any] | None = None) -> Config:
    """The recipe of this name or path, with `settings` such as {"optim.base_lr": 1e-3} on top."""
    path = find(recipe)
    values = _read(path)
    for key, value in (settings or {}).items():
        *groups, name = key.split(".")
        group = values
        for part in groups:
            group = group.setdefault(part, {})
        group[name] = value
    _check_names(_names(values))
    parser = _parser()
    return _build(parser, parser.parse_object(values), path)


def parse(recipe: str | Path, arguments: Sequence[str]) -> Config:
    """The recipe with command-line arguments on top; --help and --print_config print and raise SystemExit."""
    path = find(recipe)
    given = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    _check_names([*_names(_read(path)), *given])
    parser = _parser()
    return _build(parser, parser.parse_args(["--config", str(path), *arguments]), path)


def _build(parser: ArgumentParser, values: Namespace, path: Path) -> Config:
    values.pop("config", None)
    config = Config(**vars(parser.instantiate(values)))
    if config.out is None:
        config.out = str(Path("runs") / f"{path.stem}-{config.model.discretization}-{config.seed}")
    return config


def _parser() -> ArgumentParser:
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(
        prog="tustin train RECIPE", exit_on_error=False, description="Settings of a training run, on top of a recipe."
    )
    parser.add_argument("--config", action="config", help=SUPPRESS)
    parser.add_class_arguments(Config)
    return parser


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings, 'name: value' on each line")
    return values


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of the settings in a recipe; model.args is one of them, whatever it holds."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key != "model.args":
            yield from _names(value, f"{key}.")
        else:
            yield key


def _check_names(names: Iterable[str]) -> None:
    known = [*keys(), "help", "print_config"]
    for name in names:
        if name not in known and not name.startswith("model.args."):
            raise ValueError(unknown("setting", name, known))
