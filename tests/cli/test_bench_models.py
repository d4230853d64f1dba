"""`tustin bench inference`, `train`, `resolution` and `model` as commands."""

import json
from dataclasses import replace

import pytest
import torch

from tests.bench.models import NANO, OPTIONS, RESOLUTION, made_up, made_up_resolution
from tustin.bench import inference, model_plan, resolution
from tustin.cli import main
from tustin.report.block import Block
from tustin.report.measurement import Result
from tustin.report.speed import Speed

SCAN, INFERENCE = Block("scan"), Block("inference")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["inference", "--model", "vim_tini_patch16_224"], 2, ["did you mean 'vim_tiny_patch16_224'"]),
        (["inference", "--discretizations", "zoh,bill"], 2, ["'bill'", "did you mean 'bil'"]),
        (["inference", "--discretizations", ""], 2, ["--discretizations"]),
        (["inference", "--batch-sizes", "1,x"], 2, ["--batch-sizes", "'x'"]),
        (["inference", "--batch-sizes", "0"], 2, ["at least 1"]),
        (["inference", "--rounds", "0"], 2, ["--rounds"]),
        (["inference", "--threads", "100000"], 2, ["cores"]),
        (["inference", "--device", "tpu"], 2, ["--device"]),
        (["inference", "--json", "no/such/folder/x.json"], 2, ["No such file"]),
        (["inference", "--latex", "."], 2, ["Is a directory"]),
        (["inference", "--markdown", "missing.md"], 2, ["missing.md"]),
        (["inference", "--plot", "picture.txt"], 2, ["must end in .png"]),
        (["inference", "--plot", "no/such/folder/x.png"], 2, ["No such file"]),
        (["inference", "--out", __file__], 2, ["is a file, not a folder"]),
        (["inference", "surplus"], 2, ["surplus"]),
        (["train", "--compile"], 2, ["--compile"]),
        (["train", "--plot", "x.png"], 2, ["--plot"]),
        (["resolution", "--discretization", "bill"], 2, ["did you mean 'bil'"]),
        (["resolution", "--model", NANO], 1, ["there is no DeiT of this size"]),
        (["resolution", "--sizes", "224,300"], 1, ["300 pixels is not a multiple of the patch size, 16"]),
        (["resolution", "--device", "cuda"], 1, ["--device cuda"]),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_measured(capsys, monkeypatch, argv, code, words):
    monkeypatch.setattr(model_plan, "run", lambda *args: pytest.fail("it was measured"))
    monkeypatch.setattr("tustin.doctor.no_gpu_because", lambda kind: f"no {kind} device was found")
    assert main(["bench", *argv]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tustin: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.fixture
def measured(monkeypatch):
    """The commands get made-up results, and note the options they ran with."""
    seen = []

    def run(options, command, report):
        seen.append(options)
        report("round 1 of 1", 0, 1)
        return replace(made_up(options), command=command)

    def run_training(options, command, report):
        seen.append(options)
        return replace(made_up(options, training=True), command=command)

    def run_resolution(options, command, report):
        seen.append(options)
        return replace(made_up_resolution(options), command=command)

    monkeypatch.setattr(inference, "run", run)
    monkeypatch.setattr(inference, "run_training", run_training)
    monkeypatch.setattr(resolution, "run", run_resolution)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: None)
    return seen


def test_defaults_are_the_papers_rules_and_sizes_for_a_cpu(measured, capsys):
    assert main(["bench", "inference", "--threads", "2"]) == 0
    assert main(["bench", "train", "--threads", "2"]) == 0
    assert main(["bench", "resolution", "--threads", "2"]) == 0
    assert measured[0] == replace(OPTIONS, rounds=None)
    assert measured[1] == replace(OPTIONS, rounds=None, batch_sizes=(8,))
    assert measured[2] == replace(RESOLUTION, rounds=None)
    out, err = capsys.readouterr()
    assert "Fastest rule per batch size" in out
    assert "Training steps, batch 8" in out
    assert "From 512 px on" in out
    assert "tustin bench: round 1 of 1, 0 of 1 done" in err


def test_on_a_gpu_the_batch_grows_as_in_the_paper(measured, monkeypatch):
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(model_plan, "choose", lambda *args: "triton")
    assert main(["bench", "inference"]) == 0
    assert measured[0].device == "cuda"
    assert measured[0].batch_sizes == (1, 4, 8, 16, 32, 64, 128, 256, 512)


def test_zoh_is_always_there_and_nothing_twice(measured):
    assert (
        main(["bench", "inference", "--discretizations", "bil, bil,hoh3", "--batch-sizes", "4,1,4", "--rounds", "3"])
        == 0
    )
    assert measured[0].discretizations == ("zoh", "bil", "hoh3")
    assert measured[0].batch_sizes == (1, 4)


def test_every_form_is_written_where_it_was_asked_for(measured, capsys, tmp_path):
    page = tmp_path / "docs" / "page.md"
    (tmp_path / "docs" / "images").mkdir(parents=True)
    block = INFERENCE
    page.write_text(f"before\n{SCAN.begin}\nkept\n{SCAN.end}\n{block.begin}\nstale\n{block.end}\nafter\n")
    picture, table = page.parent / "images" / "inference.png", tmp_path / "tables.tex"
    argv = [
        "bench",
        "inference",
        "--discretizations",
        "zoh,bil",
        "--threads",
        "2",
        "--batch-sizes",
        "1,8",
        "--latex",
        str(table),
    ]
    argv += ["--markdown", str(page), "--plot", str(picture), "--json", str(tmp_path / "all.json")]
    assert main([*argv, "--out", str(tmp_path / "new" / "folder")]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{SCAN.begin}\nkept\n")
    assert "stale" not in text
    assert (
        "Measured by `tustin bench inference --discretizations zoh,bil --batch-sizes 1,8 --threads 2`. AMD EPYC" in text
    )
    assert "![inference](images/inference.png)" in text
    assert "### Fastest rule per batch size" in text
    assert picture.stat().st_size > 10_000
    assert r"\label{tab:fastest}" in table.read_text(encoding="utf-8")
    written = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert written == ["inference.csv", "inference.json", "inference.md", "inference.png", "inference.tex"]
    assert Result.read(tmp_path / "all.json", "inference").options == measured[0]
    assert capsys.readouterr().err.count("tustin: wrote ") == 9


def test_json_alone_is_printed_instead(measured, capsys):
    assert main(["bench", "resolution", "--threads", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["benchmark"] == "resolution"
    assert told["conclusions"][0].startswith("From 512 px on")
    assert main(["bench", "train", "--threads", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmark"] == "train"


def test_a_small_run_measures_times_and_memory(capsys):
    argv = [
        "--model",
        NANO,
        "--discretizations",
        "zoh,bil",
        "--batch-sizes",
        "1,2",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--json",
    ]
    assert main(["bench", "inference", *argv]) == 0
    result = Speed(Result.from_facts(json.loads(capsys.readouterr().out)))
    names = ["zoh", "bil", "zoh again", "zoh, reference backend"]
    assert [candidate.name for candidate in result.candidates] in (names, names[:3])
    assert result.batch_sizes == [1, 2]
    assert result.standing(1).tied == ("zoh", "bil")
    assert all(call > 0 for timing in result.result.timings.values() for call in timing.seconds)
