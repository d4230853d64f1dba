"""Draws pyramid.png: which blocks make which maps, and where the heads read them, with the sizes that the model has.

python docs/images/pyramid.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

import tustin
from tustin.models.pyramid import STRIDES, FeaturePyramid

HEIGHT, WIDTH, DEPTH = 512, 683, 24
COLOURS = ("#0072B2", "#009E73", "#E69F00", "#D55E00")
TEXT = {"ha": "center", "va": "center", "fontsize": 8.5, "color": "0.15"}


def draw(path: Path) -> None:
    vim = tustin.create_model("vim_nano_patch4_32", patch_size=16, img_size=512, embed_dim=4, d_state=1, depth=DEPTH)
    pyramid = FeaturePyramid(vim).eval()
    with torch.no_grad():
        sizes = [tuple(level.shape[-2:]) for level in pyramid(torch.zeros(1, 3, HEIGHT, WIDTH))]

    figure = Figure(figsize=(9.6, 5.4), dpi=150)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 96), ylim=(0, 54))
    axes.set_axis_off()

    def box(x, y, width, height, text, face="white", edge="0.35"):
        axes.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linewidth=0.9))
        axes.text(x + width / 2, y + height / 2, text, **TEXT)

    def arrow(start, end, colour="0.35"):
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=colour, linewidth=1.0))

    box(1, 44, 11, 7, f"image\n{HEIGHT} x {WIDTH}")
    arrow((12, 47.5), (14.5, 47.5))
    box(14.5, 44, 8, 7, "patches\nof 16")
    arrow((22.5, 47.5), (25, 47.5))
    step = 68 / DEPTH
    for block in range(DEPTH):
        level = pyramid.blocks.index(block) if block in pyramid.blocks else None
        face = "0.93" if level is None else COLOURS[level]
        box(25 + block * step, 45, step - 0.5, 5, str(block), face)
    axes.text(59, 52, f"{DEPTH} blocks of Vision Mamba, each on all tokens", **TEXT)

    kinds = "two transposed\nconvolutions", "transposed\nconvolution", "as it is", "max pooling"
    for level, (stride, (height, width)) in enumerate(zip(STRIDES, sizes, strict=True)):
        left = 15 + 20.5 * level
        middle = left + 6
        arrow((25 + pyramid.blocks[level] * step + step / 2, 45), (middle, 40), COLOURS[level])
        box(left, 35, 12, 5, kinds[level], edge=COLOURS[level])
        arrow((middle, 35), (middle, 32.2), COLOURS[level])
        side = 0.065 * height
        box(middle - side * 0.665, 28 - side / 2, side * 1.33, side, "", COLOURS[level])
        axes.text(middle, 22.3, f"stride {stride}: {height} x {width}", **TEXT)
        arrow((middle, 21), (middle, 17.5), COLOURS[level])

    box(13, 11.5, 52, 6, "UperNet: from coarse to fine each map is added to the next;\nthen all are joined at stride 4")
    box(75, 11.5, 18, 6, "pyramid pooling\n1, 2, 3, 6")
    arrow((75, 14.5), (65, 14.5))
    arrow((39, 11.5), (39, 8.3))
    box(18, 3.3, 42, 5, "logits of every pixel: enlarged four times, cut to the image")
    arrow((66.5, 21), (70, 8.3), COLOURS[2])
    box(63, 3.3, 30, 5, "auxiliary head, in training: 0.4 of the loss")
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(__file__).with_name("pyramid.png"))
