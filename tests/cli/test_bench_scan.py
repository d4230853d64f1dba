"""`tustin bench scan` as a command: what it refuses, measures, prints and writes."""

import json
import sys
from dataclasses import replace

import pytest

from tests.bench.results import OPTIONS, made_up
from tests.native import needs_native
from tustin.bench import scan
from tustin.bench.workloads import PEER, PEER_KEEPING
from tustin.cli import main
from tustin.report.block import Block

SMALL = ["--lengths", "8", "--batch-sizes", "1", "--discretizations", "bil", "--rounds", "1", "--threads", "1"]
SCAN = Block("scan")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Title\n\nbefore\n\n{SCAN.begin}\nstale\n{SCAN.end}\n\nafter\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["bench", "scans"], ["'scans'", "did you mean 'scan'"]),
        (["bench", "scan", "--discretizations", "bill"], ["'bill'", "did you mean 'bil'"]),
        (["bench", "scan", "--lengths", "0"], ["--lengths", "at least 1", "'0'"]),
        (["bench", "scan", "--lengths", "-5"], ["--lengths"]),
        (["bench", "scan", "--lengths", "many"], ["--lengths", "'many'"]),
        (["bench", "scan", "--lengths"], ["--lengths"]),
        (["bench", "scan", "--batch-sizes", "1.5"], ["--batch-sizes", "'1.5'"]),
        (["bench", "scan", "--threads", "0"], ["--threads", "at least 1"]),
        (["bench", "scan", "--threads", "100000"], ["--threads", "cores"]),
        (["bench", "scan", "--rounds", "0"], ["--rounds"]),
        (["bench", "scan", "--dtype", "int8"], ["--dtype", "float32"]),
        (["bench", "scan", "--layout", "diagonal"], ["--layout", "channel-last"]),
        (["bench", "scan", "--backends", "cuda"], ["--backends", "native"]),
        (["bench", "scan", "--json", "no/such/folder/x.json"], ["no/such/folder/x.json", "No such file"]),
        (["bench", "scan", "--json", "."], ["Is a directory"]),
        (["bench", "scan", "--latex", "-"], ["--latex", "only --json can write to the standard output"]),
        (["bench", "scan", "--markdown", "missing.md"], ["missing.md", "No such file"]),
        (["bench", "scan", "surplus"], ["surplus"]),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_measured(capsys, monkeypatch, argv, words):
    monkeypatch.setattr(scan, "run", lambda *args: pytest.fail("it was measured"))
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tustin: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_page_without_marks_is_refused(capsys, tmp_path):
    path = tmp_path / "page.md"
    path.write_text("nothing here")
    assert main(["bench", "scan", "--markdown", str(path)]) == 2
    assert "must have one line" in capsys.readouterr().err


def test_bench_alone_lists_the_benchmarks(capsys):
    assert main(["bench"]) == 0
    assert "tustin bench scan --quick" in capsys.readouterr().out


@pytest.fixture
def measured(monkeypatch):
    """`scan.run` gives made-up results, and notes the options it was given."""
    seen = []

    def run(options, command, show):
        seen.append(options)
        show("round 1 of 1", 1, 1)
        return made_up(options, command=command)

    monkeypatch.setattr(scan, "run", run)
    return seen


def test_defaults_are_the_grid_of_the_documentation(measured, capsys):
    assert main(["bench", "scan", "--threads", "2"]) == 0
    assert main(["bench", "scan", "--threads", "2", "--quick"]) == 0
    assert measured[0] == OPTIONS
    assert measured[1] == replace(
        OPTIONS, lengths=(197, 6085), batch_sizes=(8,), rounds=3, quick=True, backends=("native", "mambapy")
    )
    assert "tustin bench: round 1 of 1, 1 of 1 done" in capsys.readouterr().err


def test_files_are_written_and_named(measured, capsys, page, tmp_path):
    target = tmp_path / "scan.json"
    argv = [
        "bench",
        "scan",
        "--discretizations",
        "zoh,bil,zoh",
        "--threads",
        "2",
        "--json",
        str(target),
        "--markdown",
    ]
    assert main([*argv, str(page)]) == 0
    out, err = capsys.readouterr()
    assert "Forward, batch 1" in out
    assert f"tustin: wrote {target}" in err
    assert f"tustin: wrote {page}" in err
    assert json.loads(target.read_text(encoding="utf-8"))["options"]["discretizations"] == ["zoh", "bil"]
    assert "`tustin bench scan --discretizations zoh,bil,zoh --threads 2`" in page.read_text(encoding="utf-8")


def test_json_holds_everything(measured, capsys):
    assert main(["bench", "scan", "--threads", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == [
        *("tustin", "benchmark", "command", "date", "machine", "rounds", "processes", "options", "cases", "skipped"),
        *("notes", "shape", "limits", "rates", "checks", "tables"),
    ]
    assert told["shape"] == {"D": 384, "N": 16}
    assert told["limits"]["gemm_flop_per_second"] == pytest.approx(200e9)
    cells = [case for case in told["cases"] if case["kind"] == "scan"]
    cell = next(c for c in cells if c["L"] == 197 and c["batch"] == 8 and c["discretization"] == "bil")
    assert cell["backend"] == "native"
    assert list(cell["seconds"]) == ["calls", "low", "median", "high", "laps"]
    assert cell["times_faster_than_mambapy"] == pytest.approx(160)
    assert {"discretization", "updates", "gemm_ratio", "attainable", "share"} <= set(told["rates"][0])
    assert list(told["checks"][0]) == [
        *("claim", "relation", "bound", "measured", "which", "interval", "holds", "decided")
    ]
    assert told["checks"][0]["holds"] is True


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr("tustin.doctor.no_gpu_because", lambda kind: None)


def test_without_a_gpu_it_says_so_in_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr("tustin.doctor.no_gpu_because", lambda kind: f"no {kind} device was found")
    assert main(["bench", "scan", "--device", "cuda"]) == 1
    assert capsys.readouterr().err == "tustin: error: --device cuda: no cuda device was found\n"


def test_on_a_gpu_triton_runs_beside_mamba_ssm(measured, gpu, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "scan", "--threads", "2", "--device", "cuda", "--lengths", "197", "--json"]) == 0
    cells = [c for c in json.loads(capsys.readouterr().out)["cases"] if c["kind"] == "scan"]
    assert {cell["device"] for cell in cells} == {"cuda"}
    assert {cell["backend"] for cell in cells} == {"triton", "mamba_ssm", "reference"}
    assert {cell["layout"] for cell in cells if cell["backend"] == "mamba_ssm"} == {"token-last"}
    assert {cell["fused"] for cell in cells if cell["backend"] == "mamba_ssm"} == {False, True}
    assert all(cell["times_faster_than_mamba_ssm"] for cell in cells if cell["dtype"] == "float32")
    assert main(["bench", "scan", "--threads", "2", "--device", "cuda", "--lengths", "197"]) == 0
    out = capsys.readouterr().out
    assert "triton bil" in out
    assert "mamba_ssm, fused" in out
    assert "how many times faster than mamba_ssm" in out
    assert "native bil" not in out


def test_a_backend_of_the_other_device_is_refused(measured, gpu, capsys):
    assert main(["bench", "scan", "--device", "cuda", "--backends", "native"]) == 2
    assert "unknown backend 'native'; known: triton, mamba_ssm, reference on cuda" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--markdown", "docs/performance.md"]])
def test_it_is_for_the_cpu_and_for_no_page(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tustin.doctor.no_gpu_because", lambda device: None)
    assert main(["bench", "scan", "--levels", *words]) == 1
    assert "--levels works only on the CPU" in capsys.readouterr().err


@needs_native
def test_a_small_run_measures_ours_the_peer_and_the_machine(capsys):
    pytest.importorskip("mambapy")
    assert main(["bench", "scan", *SMALL, "--backends", "native,mambapy", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    cells = [case for case in told["cases"] if case["kind"] == "scan"]
    measured = {(cell["backend"], cell["backward"]) for cell in cells}
    assert measured == {(backend, backward) for backend in ("native", PEER, PEER_KEEPING) for backward in (False, True)}
    for cell in cells:
        timed = cell["seconds"]
        assert 0 < timed["low"] <= timed["median"] <= timed["high"]
        assert timed["calls"] >= 1
    assert told["rates"][0]["share"] > 0
    assert told["checks"] == []
    assert told["limits"]["copy_bytes_per_second"] > 1e8


@needs_native
def test_without_the_peer_the_rest_is_measured_and_the_reader_told(capsys, monkeypatch):
    for name in ("mambapy", "mambapy.mamba"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "scan", *SMALL, "--backends", "native,mambapy"]) == 0
    out = capsys.readouterr().out
    assert "- mambapy: mambapy, the peer, is not installed (" in out
    assert "get it with 'pip install mambapy'" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("native bil "))
    assert len(row) == 4  # name, ms and spread, but no ratio


def test_a_result_is_shown_again_without_measuring(measured, capsys, page, tmp_path):
    assert main(["bench", "scan", "--threads", "2", "--out", str(tmp_path / "results")]) == 0
    first = capsys.readouterr().out
    source = tmp_path / "results" / "scan.json"
    assert sorted(path.suffix for path in source.parent.iterdir()) == [".csv", ".json", ".md", ".tex"]
    assert main(["bench", "scan", "--from", str(source), "--markdown", str(page)]) == 0
    assert capsys.readouterr().out == first
    assert len(measured) == 1
    assert "Measured by `tustin bench scan --threads 2`" in page.read_text(encoding="utf-8")


def test_a_result_is_not_measured_in_another_way_nor_that_of_another_benchmark(measured, capsys, tmp_path):
    assert main(["bench", "scan", "--threads", "2", "--out", str(tmp_path)]) == 0
    source = str(tmp_path / "scan.json")
    capsys.readouterr()
    assert main(["bench", "scan", "--from", source, "--rounds", "3"]) == 1
    assert "nothing is measured, so --rounds 3 has no effect" in capsys.readouterr().err
    assert main(["bench", "inference", "--from", source]) == 1
    assert "scan.json is not a result of 'tustin bench inference': it is a result of" in capsys.readouterr().err
    assert main(["bench", "scan", "--from", str(tmp_path / "scan.csv")]) == 1
    assert "scan.csv is not a result of 'tustin bench scan'" in capsys.readouterr().err
