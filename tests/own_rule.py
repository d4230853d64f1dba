"""A rule of a user's own, in a file."""

from pathlib import Path

SOURCE = '''\
"""Backward (implicit) Euler."""

from math import inf

from tustin import Discretization, register


def implicit_euler(delta, z):
    decay = 1 / (1 - z)
    return decay, (delta * decay,)


BACKWARD_EULER = Discretization(
    name="backward_euler",
    coefficients=implicit_euler,
    alpha="1 / (1 − z)",
    betas=("Δ / (1 − z)",),
    order=1,
    held_order=1,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="textbook",
)
register(BACKWARD_EULER)
'''


def write(folder: Path, name: str = "my_rules.py", more: str = "") -> Path:
    path = folder / name
    path.write_text(SOURCE + more, encoding="utf-8")
    return path
