"""What a study does with results that are there, damaged or failed, and with plans that change."""

import json
import shutil

import pytest

from tustin.study import read_study
from tustin.study.execute import Outcome
from tustin.support.signals import Interrupted
from tustin.train import RunFolder

from .small import DISCRETIZATIONS, Here, Told, bits, study
from .studies import STUDIES, write


@pytest.fixture
def done(tmp_path, undisturbed):
    """A copy of the undisturbed study, to be disturbed."""
    shutil.copytree(undisturbed[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_what_is_done_is_not_done_again(done, undisturbed):
    engine, told = Here(), Told()
    assert bits(study(done, engine, told), done) == undisturbed[1]
    assert engine.carried_out == []
    assert told.lines == ["4 of 4 runs have a result already"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"discretization": "bil"}', "\xff", "1" * 9999, "[" * 99999])
def test_a_damaged_result_is_set_aside_and_done_again(done, undisturbed, text):
    path = done / "results" / "bil-1.json"
    path.write_text(text, encoding="latin-1")
    engine, told = Here(), Told()
    assert bits(study(done, engine, told), done) == undisturbed[1]
    assert engine.carried_out == [("bil", 1)]
    assert (done / "results" / "bil-1.json.corrupt").read_text(encoding="latin-1") == text
    assert "bil-1.json' is damaged" in told.lines[0]


def test_a_result_of_another_run_is_damaged(done, undisturbed):
    shutil.copy(done / "results" / "zoh-1.json", done / "results" / "bil-1.json")
    told = Told()
    assert bits(study(done, display=told), done) == undisturbed[1]
    assert "it holds zoh, seed 1" in told.lines[0]


def test_a_damaged_checkpoint_starts_over(done, undisturbed):
    (done / "results" / "bil-1.json").unlink()
    (done / "runs" / "bil-1" / "training.pt").write_bytes(b"broken")
    assert bits(study(done), done) == undisturbed[1]


def test_a_study_may_grow(done, undisturbed):
    engine = Here()
    grown = study(done, engine, discretizations=[*DISCRETIZATIONS, "foh"], seeds=[0, 1, 2])
    assert engine.carried_out == [("foh", 0), ("foh", 1), ("zoh", 2), ("bil", 2), ("foh", 2)]
    assert len(grown.results) == 9
    assert [run for run in bits(grown, done) if run[0][0] != "foh" and run[0][1] < 2] == undisturbed[1]


UNSTABLE = {"model.args": {"embed_dim": 16, "depth": 1, "d_state": 16, "patch_size": 1, "stride": 1}, "epochs": 1}
"""Many tokens, and z from −11: rk4_raw overflows at the first update."""


def test_a_run_that_diverges_is_a_result(tmp_path):
    engine = Here()
    left = study(tmp_path, engine, settings=UNSTABLE, discretizations=["zoh", "rk4_raw", "bil"], seeds=[0])
    assert [result.status for result in left.results] == ["done", "failed", "done"]
    failure = left.results[1]
    assert "is nan at update 0" in failure.error
    assert failure.diagnosis["discretization"] == "rk4_raw"
    assert max(layer["unstable"] for layer in failure.diagnosis["layers"]) > 0
    assert failure.metrics == {}
    assert failure.environment["threads"] == 1

    again = Here()
    study(tmp_path, again, settings=UNSTABLE, discretizations=["zoh", "rk4_raw", "bil"], seeds=[0])
    assert again.carried_out == []
    study(tmp_path, again, settings=UNSTABLE, discretizations=["zoh", "rk4_raw", "bil"], seeds=[0], retry_failed=True)
    assert again.carried_out == [("rk4_raw", 0)]
    assert read_study(tmp_path).results[1].status == "failed"


def test_what_would_fail_every_run_ends_the_study(tmp_path):
    settings = {"data.name": "folder", "data.path": str(tmp_path / "nowhere"), "augment.shift": 0}
    with pytest.raises(RuntimeError, match=r"^zoh, seed 0: there is no folder .*nowhere"):
        study(tmp_path / "study", settings=settings)
    assert read_study(tmp_path / "study").results == []


def test_a_run_that_someone_else_stopped_ends_the_study_politely(tmp_path):
    class Stopped:
        def carry_out(self, runs, stop):
            yield [(runs[0], Outcome("stopped"))]
            assert stop.number

    with pytest.raises(Interrupted, match="stopped after 0 of 4 runs") as stopped:
        study(tmp_path, Stopped())
    assert stopped.value.exit_code == 143


class Crashing(Here):
    """Loses the process of a run the first times."""

    def __init__(self, times):
        super().__init__()
        self.left = {("zoh", 0): times}

    def carry_out(self, runs, stop):
        for run in runs:
            which = run.discretization, run.seed
            if self.left.get(which, 0):
                self.left[which] -= 1
                self.carried_out.append(which)
                (run.folder.path).mkdir(exist_ok=True)
                (run.folder / ".0123456789abcdef.unfinished").touch()
                yield [(run, Outcome("crashed", "its process was lost"))]
            else:
                yield from super().carry_out([run], stop)


def test_a_lost_process_is_tried_once_more_after_the_others(tmp_path, undisturbed):
    engine = Crashing(times=1)
    assert bits(study(tmp_path, engine), tmp_path) == undisturbed[1]
    assert engine.carried_out == [("zoh", 0), ("bil", 0), ("zoh", 1), ("bil", 1), ("zoh", 0)]
    assert not list(tmp_path.rglob("*.unfinished"))


def test_a_process_lost_twice_is_a_failure(tmp_path):
    left = study(tmp_path, Crashing(times=2), seeds=[0], settings={"epochs": 1})
    assert [(result.discretization, result.status, result.error) for result in left.results] == [
        ("zoh", "failed", "its process was lost, twice"),
        ("bil", "done", None),
    ]
    assert not list(tmp_path.rglob("*.unfinished"))


def test_a_finished_run_whose_result_was_lost_is_not_trained_again(done, undisturbed):
    before = (done / "results" / "bil-1.json").read_bytes()
    (done / "results" / "bil-1.json").unlink()
    assert bits(study(done), done) == undisturbed[1]
    assert (done / "results" / "bil-1.json").read_bytes() == before, "with the same times"


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "best.safetensors"])
@pytest.mark.parametrize("damage", ["", "{", "[1]"])
def test_a_finished_run_that_is_damaged_is_done_again(done, undisturbed, name, damage):
    (done / "results" / "bil-1.json").unlink()
    if name.endswith(".safetensors"):
        (done / "runs" / "bil-1" / name).unlink()
    else:
        (done / "runs" / "bil-1" / name).write_text(damage)
    assert bits(study(done), done) == undisturbed[1]


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("best", {"best.safetensors", "metrics.jsonl", "summary.json"}),
        ("all", {"best.safetensors", "metrics.jsonl", "summary.json", "last.safetensors", "training.pt", ".lock"}),
        ("nothing", None),
    ],
)
def test_what_stays_of_a_run(tmp_path, keep, kept):
    study(tmp_path, keep=keep, settings={"epochs": 1}, discretizations=["zoh"], seeds=[0])
    folder = tmp_path / "runs" / "zoh-0"
    assert (folder.exists() and {path.name for path in folder.iterdir()}) == (kept or False)


def test_a_second_process_is_refused(done):
    with RunFolder(done).locked(), pytest.raises(RuntimeError, match="another process is writing into"):
        study(done)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {"optim.clip": 2.0}}, "holds a study with optim.clip 1.0, not 2.0; give another --out"),
        ({"settings": {"epochs": 3}}, "holds a study with epochs 2, not 3"),
        ({"threads": 2}, "holds a study with threads per run 1, not 2"),
        ({"discretizations": ["zoh"]}, "holds a study with discretization 'bil', which this command leaves out"),
        ({"seeds": [0, 2]}, "holds a study with seed 1, which this command leaves out"),
    ],
)
def test_another_experiment_is_refused(done, change, words):
    before = (done / "study.json").read_bytes()
    with pytest.raises(ValueError, match=words):
        study(done, **change)
    assert (done / "study.json").read_bytes() == before


def test_how_it_is_judged_may_change(done):
    assert study(done, level=0.01, baseline="bil").plan.level == 0.01
    plan = study(done, discretizations=None, seeds=None).plan
    assert (plan.level, plan.baseline, plan.discretizations, plan.seeds) == (0.01, "bil", DISCRETIZATIONS, [0, 1])


def test_plan_records_what_the_runs_share(done):
    plan = json.loads((done / "study.json").read_text())
    assert plan["settings"]["optim.batch_size"] == 256
    assert "optim.clip" not in plan["settings"]
    assert plan["config"]["optim.clip"] == 1.0
    assert plan["threads"] == 1
    assert not {"seed", "out", "model.discretization"} & plan["config"].keys()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\xff", "1" * 9999])
def test_a_damaged_plan_is_named(done, text):
    (done / "study.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"study.json' is damaged: "):
        study(done)


@pytest.mark.parametrize(("name", "value"), [("metric", "beauty"), ("seeds", []), ("discretizations", [])])
def test_a_plan_with_impossible_values_is_named(done, name, value):
    plan = json.loads((done / "study.json").read_text())
    (done / "study.json").write_text(json.dumps(plan | {name: value}))
    with pytest.raises(ValueError, match=r"study.json' is damaged: "):
        read_study(done)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_impossible_seeds(tmp_path, seed):
    with pytest.raises(ValueError, match=r"^seeds must be at least 0 and less than 2\*\*63, got "):
        study(tmp_path, seeds=[0, seed])


def test_a_plan_whose_names_lead_out_of_its_folder(tmp_path):
    write(tmp_path / "study", STUDIES["one seed"])
    plan = tmp_path / "study" / "study.json"
    plan.write_text(plan.read_text().replace('"bil"', '"../../bil"'))
    with pytest.raises(ValueError, match=r"study\.json' is damaged: '../../bil' is not the name of a discretization"):
        read_study(tmp_path / "study")


@pytest.mark.parametrize(
    "changed",
    [
        {"stable": [-2]},
        {"stable": ["-2", 0]},
        {"first_non_finite": {"layer": "layers.0"}},
        {"layers": None},
        {"layers": [{"layer": "layers.0", "direction": "forward", "z_range": None, "unstable": "0.5"}]},
        {"layers": [{"layer": "layers.0", "direction": "forward", "z_range": [1.0], "unstable": 0.5}]},
    ],
)
def test_a_diagnosis_with_impossible_values_is_named(tmp_path, changed):
    write(tmp_path / "study", STUDIES["all failed"])
    found = {path: json.loads(path.read_text()) for path in (tmp_path / "study" / "results").iterdir()}
    path, result = next((path, result) for path, result in found.items() if result["diagnosis"])
    assert not read_study(tmp_path / "study").damaged
    path.write_text(json.dumps(result | {"diagnosis": result["diagnosis"] | changed}))
    assert "diagnosis is " in read_study(tmp_path / "study").damaged[path]
