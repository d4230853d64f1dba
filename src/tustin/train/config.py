"""What a training run is made of: documented settings, each number with its range.

The docstring of a field is its help on the command line. A recipe is a YAML file with the same names, see `settings`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

from ..support.ranges import Range
from .checks import check_config
from .tasks import DATA_SETS, TASKS
from .tasks.detection import DetectionConfig
from .tasks.segmentation import SegmentationConfig

__all__ = [
    "AugmentConfig",
    "Config",
    "DataConfig",
    "ModelConfig",
    "OptimConfig",
    "RunConfig",
    "keys",
    "kinds",
]

COUNTED = 10**9
Count: TypeAlias = Annotated[int, Range(1, COUNTED)]
Seed: TypeAlias = Annotated[int, Range(0, 2**63 - 1)]
Share: TypeAlias = Annotated[float, Range(0, 1)]
Rate: TypeAlias = Annotated[float, Range(0, 1000)]
if TYPE_CHECKING:  # which names there are is known to the registry only
    TaskName: TypeAlias = str
    DataName: TypeAlias = str
else:
    TaskName = Literal[*TASKS]
    DataName = Literal[*DATA_SETS]


@dataclass
class ModelConfig:
    """The model."""

    name: str = "vim_tiny_patch16_224"
    """Name of the model; `tustin info` lists them."""
    discretization: str = "mamba"
    """Rule that turns the continuous system into a recurrence; `tustin discretizations` lists them."""
    img_size: Annotated[int, Range(1, 8192)] | None = None
    """Side of the images; default: the size that the model is made for."""
    drop_path_rate: Annotated[float, Range(0, 1, below=True)] = 0.0
    """Stochastic depth of the last block."""
    args: dict[str, Any] = field(default_factory=dict)
    """More arguments of the model, e.g. {patch_size: 8}, but not those that have their own setting."""
    weights: str | None = None
    """Checkpoint to start from: file or Hugging Face repository. The head is new if the number of classes differs."""
    allow_other_discretization: bool = False
    """Start from weights that were trained with another rule."""


@dataclass
class DataConfig:
    """The images."""

    name: DataName = "folder"
    """Dataset. Classification: scikit-learn's digits, CIFAR, or a folder with train/CLASS/IMAGE and val/CLASS/IMAGE.
    Segmentation: ADE20K, or masks (a folder with images, index masks and classes.txt). Detection: COCO."""
    path: str | None = None
    """Folder of the dataset; digits need none."""
    num_classes: Annotated[int, Range(1, 2**24)] | None = None
    """Number of classes that the dataset must have; default: any."""
    crop_pct: Annotated[float, Range(0.05, 1)] | None = None
    """Share of the side that the crop keeps in evaluation; default: the model's."""
    seed: Seed | None = None
    """Seed of the order of samples and of augmentation; default: the seed of the run."""
    workers: Annotated[int, Range(0, 1024)] = 0
    """Processes that load images; 0 loads them in the training process."""
    in_memory: bool | None = None
    """Keep decoded images in memory; default: only if their files are small."""
    cache: str | None = None
    """Folder for decoded images, which later runs read by memory mapping; a study sets its own."""
    skip_corrupt: bool = False
    """Count and skip images that cannot be read instead of stopping."""
    download: bool = True
    """Download CIFAR if it is missing."""
    unlabelled: Annotated[int, Range(0, 2**16 - 1)] = 0
    """Masks only: the value of pixels without a class; the other values are the classes in their order."""


@dataclass
class AugmentConfig:
    """What happens to the training images."""

    crop: Literal["resized", "padded", "none"] = "resized"
    """Random crop: resized has a random size and shape; padded first pads the image by an eighth of its side."""
    flip: Share = 0.5
    """Probability of a horizontal flip."""
    color_jitter: Share = 0.0
    """Strength of colour jitter; used only without `auto`."""
    auto: str | None = None
    """timm's automatic augmentation, e.g. rand-m9-mstd0.5-inc1."""
    erase: Share = 0.0
    """Probability of random erasing."""
    mixup: Annotated[float, Range(0, 100)] = 0.0
    """Alpha of mixup."""
    cutmix: Annotated[float, Range(0, 100)] = 0.0
    """Alpha of cutmix."""
    shift: Annotated[int, Range(0, 7)] = 0
    """Digits only: largest shift in pixels, in every direction."""
    repeats: Annotated[int, Range(1, 100)] = 1
    """How often an epoch contains a sample, with different augmentation; the epoch has fewer different samples then."""


@dataclass
class OptimConfig:
    """Batch, optimizer and schedule."""

    name: str = "adamw"
    """Name of an optimizer in timm."""
    batch_size: Count = 512
    """Samples per update over all processes and accumulation steps."""
    accumulate: Count = 1
    """Forward passes per update, if a batch does not fit into memory."""
    base_lr: Rate = 1e-3
    """Learning rate for a batch of 512. A run uses and prints the rate base_lr · batch_size / 512."""
    weight_decay: Annotated[float, Range(0, 100)] = 0.05
    """Weight decay; not used for A, D, biases, norms, position embedding and class token."""
    schedule: Literal["cosine", "linear", "step", "tanh"] = "cosine"
    """How the learning rate falls: as a cosine, linearly, to a tenth every 90 epochs, or as a tanh."""
    warmup_epochs: Annotated[int, Range(0, COUNTED)] = 5
    """Epochs over which the learning rate grows linearly."""
    warmup_updates: Annotated[int, Range(0, COUNTED)] | None = None
    """Updates over which the learning rate grows linearly, instead of warmup_epochs."""
    warmup_lr: Rate = 1e-6
    """Learning rate of the first update."""
    min_lr: Rate = 1e-5
    """Learning rate at the end."""
    clip: Annotated[float, Range(0, above=True)] | None = None
    """Largest norm of the gradient; by default it is not clipped."""
    smoothing: Annotated[float, Range(0, 1, below=True)] = 0.1
    """Label smoothing."""
    ema: Annotated[float, Range(0, 1, above=True, below=True)] | None = None
    """Decay of an exponential moving average of the weights; evaluation then uses the average."""

    @property
    def lr(self) -> float:
        return self.base_lr * self.batch_size / 512


@dataclass
class RunConfig:
    """How to run; of these settings, device, precision, threads and evaluation interval can change the results."""

    resume: bool | None = None
    """Continue the run in the output folder; default: continue if there is one; false starts over."""
    device: Literal["auto", "cpu"] = "auto"
    """Where to run: the accelerator if there is one, or the CPU."""
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    """Precision of the matrix products; the state of the scan is always float32."""
    threads: Annotated[int, Range(1, 1024)] | None = None
    """CPU threads per process; default: PyTorch's choice. The last bits of the results depend on it."""
    eval_every: Count = 1
    """Epochs between evaluations; the last epoch is always evaluated."""
    eval_updates: Count | None = None
    """Updates between evaluations, instead of eval_every epochs."""
    eval_batch_size: Count | None = None
    """Samples per forward pass in evaluation, per process; default: as in training."""
    save_every: Annotated[int, Range(0, COUNTED)] = 0
    """Updates between additional checkpoints; 0: only one per epoch, or per eval_updates."""
    tensorboard: bool = False
    """Also write TensorBoard files; needs the extra tustin[tensorboard]."""


@dataclass
class Config:
    """All settings of a run."""

    description: str = ""
    """What the recipe is for, in one line."""
    task: TaskName = "classification"
    """Task: predict the class of an image, the class of every pixel, or the objects."""
    epochs: Count = 300
    """Number of passes over the data."""
    updates: Count | None = None
    """Number of updates, instead of epochs."""
    seed: Seed = 0
    """Seed of all random numbers; data.seed can set another one for the data."""
    out: str | None = None
    """Output folder; default: runs/RECIPE-RULE-SEED."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        check_config(self)

    def get(self, key: str) -> Any:
        """The value of a dotted name such as optim.batch_size."""
        value: Any = self
        for part in key.split("."):
            value = getattr(value, part)
        return value

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return {key: self.get(key) for key in keys()}


def keys() -> Iterator[str]:
    """The dotted names of all settings."""
    return iter(kinds())


@cache
def kinds() -> dict[str, Any]:
    """The annotation of every setting, with its range."""

    def inside(owner: type, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, kind in get_type_hints(owner, include_extras=True).items():
            if dataclasses.is_dataclass(kind):
                assert isinstance(kind, type)
                yield from inside(kind, f"{prefix}{name}.")
            else:
                yield prefix + name, kind

    return dict(inside(Config, ""))
