"""Tables on narrow terminals: no word is broken, and no cell is lost."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from tustin.report import terminal
from tustin.report.word_table import READABLE

WORDS = st.text("abcdefgh", min_size=1, max_size=14)
SENTENCES = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)


def draw(header, rows, words, width):
    table = terminal.table(header, words)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


@settings(max_examples=100, deadline=None)
@given(data=st.data(), columns=st.integers(2, 8), width=st.integers(40, 140))
def test_every_word_of_every_cell_is_whole(data, columns, width):
    header = [f"title{number} of this" for number in range(columns)]
    rows = data.draw(st.lists(st.tuples(*[WORDS, *[SENTENCES] * (columns - 1)]), min_size=1, max_size=4))
    drawn = draw(header, rows, header[1:], width)
    assert max(map(len, drawn.splitlines())) <= width
    shown = drawn.split()
    for row in [header, *rows]:
        for cell in row:
            for word in cell.split():
                assert shown.count(word) >= sum(other.split().count(word) for other in {cell})


@pytest.mark.parametrize("width", [40, 60, 80])
def test_columns_without_room_stand_below_with_the_names_again(width):
    header = ["name", *(f"measured {number}" for number in range(9))]
    rows = [[name, *(f"{1000 + number}.5 ± 12.25 {name}" for number in range(9))] for name in ("first", "second")]
    drawn = draw(header, rows, [], width)
    assert max(map(len, drawn.splitlines())) <= width
    for row in rows:
        for cell in row[1:]:
            assert cell in drawn  # a number, its spread and its unit on one line
    parts = drawn.split("\n\n")
    assert len(parts) > 1
    assert all(part.lstrip().split("\n")[-1].startswith("second") or "second" in part for part in parts)


def test_text_is_not_squeezed_into_a_ribbon():
    sentence = "a few words that say what the row is about and then some more of them"
    header = ["name", *(f"words {number}" for number in range(5))]
    drawn = draw(header, [["row", *[sentence] * 5]], header[1:], 80)
    lines = [line for line in drawn.splitlines() if line.startswith(" ")]
    assert max(map(len, lines)) > 2 * READABLE


def test_with_room_there_is_one_table():
    drawn = draw(["name", "a", "b"], [["x", "some words", "2"]], ["a"], 80)
    assert drawn.splitlines()[-1].split() == ["x", "some", "words", "2"]
    assert "\n\n" not in drawn


def test_a_long_path_does_not_drive_the_others_away():
    path = "/folder" * 12 + "/a.png"
    drawn = draw(["image", "class", "probability"], [[path, "class 2", "13.2%"]], ["image", "class"], 80)
    first = drawn.splitlines()[2]
    assert first.split()[-3:] == ["class", "2", "13.2%"]
    assert path in "".join(line.split()[0] for line in drawn.splitlines()[2:])


def test_columns_move_together_only_if_more_fit_beside_each_other():
    header, row = ["name", *"abcd"], ["x", *["1234567890123456"] * 4]
    for width, parts in ((72, 1), (66, 2)):  # together they fit into 72, and into 66 neither way
        drawn = draw(header, [row], [], width)
        assert len(drawn.split("\n\n")) == parts
    assert "1234567890123456  1234567890123456" in drawn
    assert "1234567890123456  " not in draw(header, [row], [], 72)
