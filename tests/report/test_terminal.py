"""What rich is set up to do: on a terminal, in a pipe, and for a run that takes long."""

import io
import sys

import pytest

from tustin.report import terminal

SENTENCE = "a sentence of [bold]words[/bold] :star: " * 20


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the streams are said to be terminals."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


def wide_table() -> str:
    table = terminal.table(["name", "words", "number"], words=["words"])
    table.add_row("first", SENTENCE, "1")
    table.add_row("second", "few", "12345")
    return terminal.drawn(lambda console: console.print(table))


def test_nothing_is_broken_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    header, line, first, second = wide_table().splitlines()
    assert SENTENCE.strip() in first
    assert len(line) == len(header) == len(first)
    assert not second.endswith(" ")
    assert terminal.drawn(lambda console: console.print(SENTENCE, SENTENCE, sep="\n")).count("\n") == 2


def test_columns_are_obeyed_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = wide_table().splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(line[8:50] for line in lines[2:-1]).split()).count("[bold]words[/bold]") == 20


def test_a_long_path_is_folded_and_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a/folder" * 10 + ".png"
    table = terminal.table(["image", "number"], words=["image"])
    table.add_row(path, "1")
    drawn = terminal.drawn(lambda console: console.print(table))
    assert path in "".join(line.split()[0] for line in drawn.splitlines())


def test_a_terminal_has_the_width_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    assert terminal.console().width < terminal.UNLIMITED
    assert terminal.console(stderr=True).width < terminal.UNLIMITED


def test_letters_that_the_output_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert terminal.drawn(lambda console: console.print("Δ·é")) == "?·é\n"


def test_pairs() -> None:
    drawn = terminal.drawn(lambda console: console.print(terminal.pairs([("a", "1"), ("long", "[2]")])))
    assert drawn == "a     1\nlong  [2]\n"


# --- progress ---------------------------------------------------------------------------------------------------------


def test_lines_where_no_terminal_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal.progress("tustin test") as report:
        report("one", 0, 3)
        report("one", 1, 3)  # so soon after the first that there is nothing to tell
        report("two", 2, 3)
        monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0.0)
        report("two", 3, 3)
    assert capsys.readouterr() == (
        "",
        "tustin test: one, 0 of 3 done\ntustin test: two, 2 of 3 done\ntustin test: two, 3 of 3 done\n",
    )


def test_no_lines_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.progress() as report:
        report("one", 1, 1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("patience", "shown"), [(1000.0, False), (0.0, True)])
def test_a_bar_appears_only_when_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, patience: float, shown: bool
) -> None:
    on_a_terminal(monkeypatch)
    with terminal.progress("tustin test", patience) as report:
        report("some [images]", 1, 2)
        report("some [images]", 2, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("some [images]" in err) == shown
    assert "of 2 done" not in err  # a bar, and no line
