"""`tustin bench export`: who is timed, and what is said about it."""

import pytest

from tests.bench.models import MODEL, result_of
from tests.bench.results import timing
from tustin.bench import export
from tustin.cli import main
from tustin.report.measurement import Options, Result
from tustin.support import extras

OPTIONS = Options(model=MODEL, discretizations=("bil",), sizes=(224, 512), batch_sizes=(1, 8), threads=2, rounds=2)


def made_up(*seconds: float, options: Options = OPTIONS) -> Result:
    """The same three times at every size."""
    cases = [zip(cases, seconds, strict=True) for cases in export.groups(options).values()]
    timings = {case: timing(own, own) for pairs in cases for case, own in pairs}
    return result_of("export", options, timings, {})


def test_the_table_and_the_way_back_from_data() -> None:
    outcome = export.outcome(made_up(0.1, 0.5, 0.25))
    assert outcome.tables[0].rows[0] == ("224 px", "1", "100", "500", "250", "5.00", "2.00")
    assert len(outcome.tables[0].rows) == 4
    assert [check.holds for check in export.checks(outcome.result)] == [True]
    assert export.outcome(Result.from_facts(outcome.facts())).tables == outcome.tables


def test_the_promise_fails_where_it_does_not_hold_and_is_silent_elsewhere() -> None:
    assert [check.holds for check in export.checks(made_up(0.1, 0.9, 0.25))] == [False]
    others = Options(model=MODEL, discretizations=("bil",), sizes=(512,), batch_sizes=(8,))
    assert export.checks(made_up(0.1, 0.9, 0.25, options=others)) == []
    assert len(export.outcome(made_up(0.1, 0.9, 0.25, options=others)).tables) == 1


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="onnx"):
        export.run(OPTIONS, "", lambda *progress: None)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--model", "vim_nano_patch4_32"], 1, "there is no DeiT of this size"),
        (["--sizes", "225"], 1, "225 pixels is not a multiple of the patch size, 16"),
        (["--batch-sizes", "0"], 2, "at least 1"),
        (["--discretization", "bill"], 2, "did you mean 'bil'"),
    ],
)
def test_nonsense_is_refused(argv: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "export", *argv]) == code
    assert words in capsys.readouterr().err
