"""ADE20K as the scene parsing challenge of 2016 has it: 20,210 training and 2,000 validation images, 150 classes.

The folder is ADEChallengeData2016, unpacked: see `masks` for its layout. Value 0 of a mask is no class and does not
count, value 1 is the first class below.
"""

from __future__ import annotations

from pathlib import Path

from .masks import MaskedImages, masked_folder

__all__ = ["CLASSES", "ade20k"]

CLASSES = """
wall, building, sky, floor, tree, ceiling, road, bed, windowpane, grass, cabinet, sidewalk, person, earth, door, table,
mountain, plant, curtain, chair, car, water, painting, sofa, shelf, house, sea, mirror, rug, field, armchair, seat,
fence, desk, rock, wardrobe, lamp, bathtub, railing, cushion, base, box, column, signboard, chest of drawers, counter,
sand, sink, skyscraper, fireplace, refrigerator, grandstand, path, stairs, runway, case, pool table, pillow,
screen door, stairway, river, bridge, bookcase, blind, coffee table, toilet, flower, book, hill, bench, countertop,
stove, palm, kitchen island, computer, swivel chair, boat, bar, arcade machine, hovel, bus, towel, light, truck, tower,
chandelier, awning, streetlight, booth, television, airplane, dirt track, apparel, pole, land, bannister, escalator,
ottoman, bottle, buffet, poster, stage, van, ship, fountain, conveyer belt, canopy, washer, plaything, swimming pool,
stool, barrel, basket, waterfall, tent, bag, minibike, cradle, oven, ball, food, step, tank, trade name, microwave, pot,
animal, bicycle, lake, dishwasher, screen, blanket, sculpture, hood, sconce, vase, traffic light, tray, ashcan, fan,
pier, crt screen, plate, monitor, bulletin board, shower, radiator, glass, clock, flag
"""


def ade20k(path: str | Path, training: bool) -> MaskedImages:
    """The training or the validation images of ADE20K, with their masks."""
    return masked_folder(path, training, [name.strip() for name in CLASSES.replace("\n", " ").split(",")])
