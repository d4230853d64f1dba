"""Checkpoints, images, masks and COCO's files from strangers: read, or refused with a sentence."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from PIL import Image

import tustin
from tests.data.masked_shapes import write_masked_shapes
from tustin.data.shapes import write_shapes
from tustin.models import Detector, Segmenter, describe
from tustin.models.checkpoint.reading import digest

from .harness import cases, check
from .mutations import VALUES, mutated_bytes, mutated_value


def nano(**arguments: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"embed_dim": 16, "depth": 1, "d_state": 2, **arguments}
    return tustin.create_model("vim_nano_patch4_32", **sizes).eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each task, and something for each to look at."""
    root = tmp_path_factory.mktemp("files")
    tustin.save(nano(num_classes=3), root / "classifier.safetensors", class_names=["a", "b", "c"])
    settings = {"data.name": "masks", "segmentation.long_side": 32, "segmentation.short_side": 32}
    segmenter = Segmenter(nano(num_classes=0), 3, channels=8)
    tustin.save(segmenter, root / "segmenter.safetensors", metadata={"config": settings})
    detector = Detector(nano(num_classes=0, img_size=64), [3, 7, 11], channels=8, hidden=16, proposals=4, samples=4)
    tustin.save(detector, root / "detector.safetensors")
    torch.save({"model": nano().state_dict(), "epoch": 3}, root / "official.pth")
    write_masked_shapes(root / "masks", train=1, val=1, size=(16, 16))
    write_shapes(root / "coco", train=1, val=2, side=32)
    Image.effect_noise((40, 30), 50).convert("RGB").save(root / "photo.png")
    return root


def test_checkpoints(files: Path) -> None:
    names = ["classifier", "classifier", "segmenter", "detector"]
    for random, folder, told in cases("checkpoints"):
        name, file = random.choice(names), folder / "model.safetensors"
        source = files / f"{name}.safetensors"
        match random.randrange(4):
            case 0:
                file.write_bytes(mutated_bytes(random, source.read_bytes()))
            case 1:
                file.write_bytes(mutated_bytes(random, (files / "official.pth").read_bytes()))
            case 2:
                tensors = safetensors.torch.load_file(source)
                key = random.choice(sorted(tensors))
                dtype = random.choice([torch.int64, torch.bool, torch.float16, torch.float8_e5m2])
                changed = [torch.atleast_1d(tensors[key])[..., :-1].clone(), tensors[key][None], tensors[key].to(dtype)]
                _write(file, {**tensors, key: random.choice(changed)}, describe(source))
            case _:
                _write(file, safetensors.torch.load_file(source), mutated_value(random, describe(source)))
        command = random.choice(["info", "predict", "eval"])
        argv = {
            "info": ["info", str(file)],
            "predict": ["predict", str(files / "photo.png"), "--checkpoint", str(file)],
            "eval": ["eval", str(file), "--data.path", str(files / "masks")],
        }[command]
        check(argv, folder, told)


def _write(file: Path, tensors: dict[str, torch.Tensor], told: Any) -> None:
    """With the right checksum, so that the rest of the header is read; mostly."""
    if isinstance(told, dict) and "sha256" in told:
        told["sha256"] = digest(tensors)
    safetensors.torch.save_file(tensors, file, {"tustin": json.dumps(told)})


FORMATS = ["PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "ICO", "TGA", "PCX", "SGI", "PDF", "EPS", "DDS"]
ENDINGS = [".png", ".jpg", ".gif", ".bmp", ".ppm", ".tif", ".webp", ".eps", ""]


def pictures() -> list[bytes]:
    """The same picture in many formats and modes."""
    found = []
    for kind in FORMATS:
        for mode in ("RGB", "L", "P", "1", "RGBA", "I;16"):
            file = io.BytesIO()
            try:
                Image.effect_noise((12, 10), 80).convert(mode).save(file, format=kind)
            except (OSError, ValueError, KeyError):  # not every format has every mode
                continue
            found.append(file.getvalue())
    return found


def test_images(files: Path) -> None:
    originals = pictures()
    for random, folder, told in cases("images"):
        images = []
        for number in range(random.randint(1, 3)):
            content = random.choice(originals)
            path = folder / f"{random.choice(['a', 'b', str(number)])}{random.choice(ENDINGS)}"
            path.write_bytes(mutated_bytes(random, content) if random.random() < 0.8 else content)
            images.append(str(path))
        task = random.choice(["classifier", "segmenter", "detector"])
        out = [] if task == "classifier" else ["--out", str(folder / random.choice(["out", "."]))]
        check(["predict", *images, "--checkpoint", str(files / f"{task}.safetensors"), *out], folder, told)


LISTS = [b"", b"\n\n", b"\xff\xfe", b"a\n", b"a\na\nb\n", b"a\nb\n\x1b[2J\n", b"a\nb\nc\nd\n", b"\0\n" * 3]


def test_masks(files: Path) -> None:
    originals = pictures()
    for random, folder, told in cases("masks"):
        data = Path(shutil.copytree(files / "masks", folder / "masks"))
        mask = data / "annotations" / "validation" / "0.png"
        match random.randrange(4):
            case 0:
                (data / "classes.txt").write_bytes(random.choice(LISTS))
            case 1:
                mask.write_bytes(random.choice(originals))
            case 2:
                random.choice([file for file in data.rglob("*") if file.is_file()]).unlink()
            case 3:
                mask.write_bytes(mutated_bytes(random, mask.read_bytes()))
        skip = random.choice([[], ["--data.skip_corrupt"]])
        check(["eval", str(files / "segmenter.safetensors"), "--data.path", str(data), *skip], folder, told)


def test_coco(files: Path) -> None:
    pytest.importorskip("faster_coco_eval")
    for random, folder, told in cases("coco"):
        data = Path(shutil.copytree(files / "coco", folder / "coco"))
        file = data / "annotations" / "instances_val2017.json"
        content = json.loads(file.read_text())
        match random.randrange(4):
            case 0:
                file.write_bytes(mutated_bytes(random, file.read_bytes()))
            case 1:
                entry = random.choice(content[random.choice(["images", "annotations", "categories"])])
                entry[random.choice(sorted(entry))] = random.choice(VALUES)
                file.write_text(json.dumps(content))
            case _:
                file.write_text(json.dumps(mutated_value(random, content)))
        skip = random.choice([[], ["--data.skip_corrupt"]])
        check(["eval", str(files / "detector.safetensors"), "--data.path", str(data), *skip], folder, told)
