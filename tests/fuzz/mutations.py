"""Valid input made wrong: bytes, text, words and plain values."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

WORDS = ["", "-1", "0", "1", "3", "1.5", "nan", "inf", "-inf", ".inf", ".nan", "1e400", "1e-400", "null", "~", "true"]
WORDS += ["false", "[]", "{}", "[1, 2]", "{a: 1}", "x", "-", "--", "---", "-x", "--x", "--x=1", "=", "../x", "/nowhere"]
WORDS += ["a" * 300, "1" * 5000, "[" * 300, "&a 1", "*a", "!!python/object:os.system ls", "0x10", "1_000", "1:30", "é"]
WORDS += [
    "日本",
    "\u2028",
    "\x1b[31m",
    "\n",
    " ",
    "2001-01-01",
    "zoh",
    "digits",
    "--json",
    "--help",
    "--debug=1",
    "%s",
    "{0}",
]

VALUES: list[Any] = [None, True, False, -1, 0, 1, 2, 1.5, -0.5, 1e308, float("nan"), float("inf"), 10**30, -(10**30)]
VALUES += [
    2**63,
    10**400,
    "",
    "x",
    "1",
    "é\n",
    "../x",
    [],
    {},
    [1],
    [[]],
    [None],
    {"a": 1},
    [0] * 4,
    ["a", "b"],
    {"": {}},
]


def mutated_bytes(random: Random, content: bytes) -> bytes:
    """One to four changes: bits, bytes, pieces."""
    data = bytearray(content)
    for _ in range(random.randint(1, 4)):
        place, length = random.randrange(len(data) + 1), random.randint(1, 32)
        match random.randrange(7):
            case 0 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 1 if place < len(data):
                data[place] = random.randrange(256)
            case 2:
                del data[place : place + length]
            case 3:
                data[place:place] = random.randbytes(length)
            case 4:
                del data[place:]
            case 5:
                data[place : place + length] = b"\0" * length
            case 6:
                data[place:place] = data[place : place + length] * 3
    return bytes(data)


def mutated_words(random: Random, words: list[str]) -> list[str]:
    """One to three changes: a word replaced, left out, repeated, added, moved, or a letter in it changed."""
    words = list(words)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(words)) if words else 0
        match random.randrange(6):
            case 0 if words:
                words[place] = random.choice(WORDS)
            case 1 if words:
                del words[place]
            case 2 if words:
                words.insert(place, words[place])
            case 3:
                words.insert(random.randint(0, len(words)), random.choice(WORDS))
            case 4 if words:
                words.insert(random.randrange(len(words)), words.pop(place))
            case 5 if words and words[place]:
                at = random.randrange(len(words[place]))
                words[place] = words[place][:at] + random.choice("x-=. 0\u00e9") + words[place][at + 1 :]
    return words


def mutated_value(random: Random, value: Any) -> Any:
    """One to three changes somewhere inside of lists and mappings."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        places = list(_places(value))
        if not places:
            return random.choice(VALUES)
        inside, key = random.choice(places)
        match random.randrange(6):
            case 0 | 1 | 2:
                inside[key] = random.choice(VALUES)
            case 3:
                del inside[key]
            case 4:
                _, other = random.choice(places)
                if isinstance(inside, dict):
                    inside[str(other)] = inside.pop(key)
                else:
                    inside.insert(0, copy.deepcopy(inside[key]))
            case 5:
                source, other = random.choice(places)
                inside[key] = copy.deepcopy(source[other])
    return value


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
