"""The benchmarks of models: honest statistics, complete tables, one line for nonsense. No test looks at a clock."""

import functools
import json
import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tustin.bench import files, inference, inference_tables, measuring, memory, model_plots, resolution, training_tables
from tustin.bench import models as bench_models
from tustin.bench.inference_facts import as_facts, from_facts, p95
from tustin.bench.measuring import Measured, balanced_order
from tustin.bench.models import Candidate, Case
from tustin.bench.pairing import Ratio, beyond_noise, median_interval, noise, paired, standing
from tustin.cli import main
from tustin.study.texts import as_latex, as_markdown

from .models import OPTIONS, RESOLUTION, made_up, made_up_resolution, seconds_of

ROOT = Path(__file__).parents[2]
NANO = "vim_nano_patch4_stride2_8"
CASE = Case(Candidate(NANO, "zoh"), 2, 8)


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "confidence", "k"), [(6, 0.95, 1), (12, 0.95, 3), (18, 0.99, 4), (14, 0.998, 2)])
def test_the_interval_of_a_median_is_the_one_of_the_textbook(n, confidence, k):
    assert median_interval(range(n, 0, -1), confidence) == (k, n + 1 - k)


def test_the_interval_misses_the_median_as_rarely_as_it_says():
    samples = torch.distributions.Exponential(1.0).sample  # as lopsided as times are
    torch.manual_seed(0)
    missed = 0
    for _ in range(2000):
        low, high = median_interval(samples((12,)).tolist(), 0.95)
        missed += not low <= math.log(2) <= high
    assert 0.02 < missed / 2000 < 0.055  # 0.0386 for the third smallest of twelve


def test_too_few_rounds_know_nothing():
    assert median_interval([1.0, 1.1], 0.95) == (0.0, math.inf)
    assert not beyond_noise(Ratio((2.0, 2.0, 2.0)), noise=0.0, comparisons=1)
    assert noise(None) == math.inf


def test_ratios_are_formed_within_a_round():
    own, other = {0: [1.0, 9.0, 2.0], 1: [40.0], 3: [8.0]}, {0: [1.0], 1: [20.0], 2: [5.0]}
    assert paired(own, other) == Ratio((2.0, 2.0))
    assert paired({0: [1.0]}, {1: [1.0]}) is None
    assert paired({0: [1.0, 9.0, 4.0]}, {0: [2.0, 18.0, 1.0]}) == Ratio((0.5,))


def series(cost: float, rounds: int = 16, wobble: float = 0.003) -> dict[int, list[float]]:
    """Rounds that drift far more than anything differs by."""
    return {n: [cost * (1 + 0.3 * n) * (1 + wobble * ((7 * n + int(1000 * cost)) % 5 - 2) / 2)] for n in range(rounds)}


def test_a_clear_winner_is_called_one():
    found = standing({"zoh": series(1.0), "bil": series(0.95), "rk4": series(0.98)}, "zoh", noise=0.005)
    assert (found.fastest, found.tied, found.runner_up) == ("bil", ("bil",), "rk4")
    assert found.margin.median == pytest.approx(0.98 / 0.95, rel=0.01)


def test_a_winner_within_noise_is_called_a_tie():
    close = {"zoh": series(1.0), "rk4": series(0.953), "bil": series(0.95)}
    found = standing(close, "zoh", noise=0.005)
    assert found.tied == ("rk4", "bil")  # in their own order, whoever was faster by a hair
    assert standing(close | {"rk4": series(0.98)}, "zoh", noise=0.1).tied == ("zoh", "rk4", "bil")
    assert standing({"zoh": series(1.0, 4), "bil": series(0.5, 4)}, "zoh", noise=0.0).tied == ("zoh", "bil")


def test_one_rule_alone_has_no_runner_up():
    found = standing({"zoh": series(1.0)}, "zoh", noise=0.0)
    assert (found.tied, found.runner_up, found.margin) == (("zoh",), None, None)


def test_one_round_that_contradicts_is_forgiven_but_not_many():
    ratio = Ratio((1.05,) * 15 + (0.9,))
    assert beyond_noise(ratio, noise=0.0, comparisons=5)
    assert not beyond_noise(Ratio((1.05,) * 13 + (0.9,) * 3), noise=0.0, comparisons=5)
    assert not beyond_noise(Ratio((1.009,) * 16), noise=0.0, comparisons=1)  # below one percent, however often


def test_the_same_difference_is_claimed_again_and_no_other():
    """Two runs with other noise: what one claims, the other does not contradict."""
    for seed in range(20):
        torch.manual_seed(seed)
        claims = []
        for _ in range(2):
            made = {
                name: {n: [cost * (1 + 0.02 * torch.randn(()).item())] for n in range(16)}
                for name, cost in (("zoh", 1.0), ("foh", 1.0), ("bil", 0.93))
            }
            claims.append(standing(made, "zoh", noise=0.01).tied)
        winners = {tied for tied in claims if len(tied) == 1}
        assert winners <= {("bil",)}


# --- rounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4, 6, 8])
def test_everyone_has_every_place_and_follows_every_other_once(n):
    rows = [balanced_order(n, number) for number in range(n)]
    for row in rows:
        assert sorted(row) == list(range(n))
    for place in range(n):
        assert {row[place] for row in rows} == set(range(n))
    followed = [pair for row in rows for pair in pairwise(row)]
    assert len(set(followed)) == len(followed) == n * (n - 1)


class FakeWorker:
    """Answers at once, from a table of made-up costs."""

    def __init__(self, started, environment):
        self.environment = environment
        self.calls = []
        started.append(self)

    def first_calls(self, case):
        self.calls.append(("first", case))
        if case.candidate.compiled:
            raise RuntimeError("InductorError: no compiler\nsecond line")
        return 1.0, 0.5

    def laps(self, cases, orders, at_least):
        self.calls += [("lap", case) for case in cases]
        return [[seconds_of(case, 0)] for case in cases]

    def peak(self, case):
        self.calls.append(("peak", case))
        return 10**9 * case.batch

    def close(self):
        self.calls.append(("close", None))


@pytest.fixture
def workers(monkeypatch):
    started = []
    monkeypatch.setattr(measuring, "Worker", functools.partial(FakeWorker, started))
    monkeypatch.setattr(measuring.memory.workloads, "available_bytes", lambda device: 10**15)
    return started


def silent(*progress):
    pass


def test_memory_is_measured_apart_and_half_of_the_rounds_in_a_fresh_process(workers):
    options = replace(OPTIONS, discretizations=("zoh", "bil"), batch_sizes=(1, 8))
    found = measuring.measure(inference.plan(options), 6, silent)
    of_memory, of_time = workers[:3], workers[3:]
    assert [worker.environment for worker in of_memory] == [memory.ENVIRONMENT] * 3  # zoh, bil and DeiT
    assert [worker.environment for worker in of_time] == [measuring.KEEP_MEMORY] * 2
    assert all(worker.calls[-1] == ("close", None) for worker in workers)
    assert found.rounds == 6
    for case, rounds in found.seconds.items():
        assert list(rounds) == ([0] if case.candidate.backend == "reference" else list(range(6)))
    first = [[case for kind, case in worker.calls if kind == "first"] for worker in of_time]
    assert [case.batch for case in first[0] if case.candidate.backend == "reference"] == [1]
    assert not first[1]  # known by then
    laps = [[case for kind, case in worker.calls if kind == "lap"] for worker in of_time]
    assert len(laps[0]) == len(laps[1])
    assert not any(case.candidate.backend == "reference" for case in laps[0] + laps[1])
    first_round = laps[0][: len(laps[0]) // 3]
    assert [case.batch for case in first_round] == sorted(case.batch for case in first_round)


def test_one_round_needs_one_process(workers):
    measuring.measure([CASE], 1, silent)
    assert [worker.environment for worker in workers] == [memory.ENVIRONMENT, measuring.KEEP_MEMORY]


def test_the_rounds_fill_the_budget():
    expected = dict.fromkeys([replace(CASE, batch=batch) for batch in range(1, 9)], 2.0)
    assert measuring._rounds_within(200.0, expected) == 12
    assert measuring._rounds_within(1e9, expected) == measuring.MOST_ROUNDS
    assert measuring._rounds_within(0.0, expected) == measuring.FEWEST_ROUNDS


def test_a_batch_that_would_not_fit_ends_the_growth_and_is_named(workers, monkeypatch):
    monkeypatch.setattr(measuring.memory.workloads, "available_bytes", lambda device: 30 * 10**9)
    options = replace(OPTIONS, discretizations=("zoh", "bil"), batch_sizes=(1, 8, 16, 32, 64))
    found = measuring.measure(inference.plan(options), 2, silent)
    assert {case.batch for case in found.seconds} == {1, 8, 16}
    assert {case.batch for case in found.skipped} == {32, 64}
    lines = inference_tables.left_out(found)
    assert lines[0] == (
        "zoh, batch 32, 224 px: it would need about 32 GB of memory, more than 80% of the 30 GB that are free"
    )
    result = inference.Result(options, "tustin bench inference", "2026-01-02", made_up().machine, found)
    assert result.scenarios() == {"real-time": 1, "high throughput": 16}


@pytest.mark.parametrize(
    "message",
    [
        "OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "the process that was timing zoh ended with code -9; if that is -9, the system ran out of memory",
    ],
)
def test_memory_that_runs_out_all_the_same_ends_the_growth(workers, monkeypatch, message):
    def peak(self, case):
        if case.batch > 4:
            raise RuntimeError(message)
        return 1

    monkeypatch.setattr(FakeWorker, "peak", peak)
    found = measuring.measure([replace(CASE, batch=batch) for batch in (1, 4, 8, 16)], 1, silent)
    assert {case.batch for case in found.seconds} == {1, 4}
    assert {reason[:27] for reason in found.skipped.values()} == {"the memory was not enough: "}


def test_any_other_failure_is_not_hidden(workers, monkeypatch):
    def peak(self, case):
        raise RuntimeError("the process that was timing zoh ended with code -11; if that is -9, it ran out of memory")

    monkeypatch.setattr(FakeWorker, "peak", peak)
    with pytest.raises(RuntimeError, match="code -11"):
        measuring.measure([CASE], 1, silent)


def test_memory_is_predicted_by_a_line_through_the_last_two(monkeypatch):
    monkeypatch.setattr(memory.workloads, "available_bytes", lambda device: 1000)
    known = {replace(CASE, batch=1): 100, replace(CASE, batch=2): 150}
    assert memory.too_large(replace(CASE, batch=14), known) is None  # 750
    assert "about 8.5e-07 GB" in memory.too_large(replace(CASE, batch=16), known)
    assert memory.too_large(replace(CASE, batch=8), {replace(CASE, batch=1): 100}) is None
    assert memory.too_large(replace(CASE, batch=9), {replace(CASE, batch=1): 100})
    assert memory.too_large(CASE, {}) is None


def test_what_torch_compile_cannot_do_is_left_out_and_told(workers):
    options = replace(OPTIONS, discretizations=("zoh", "bil"), batch_sizes=(1,), compile=True)
    found = measuring.measure(inference.plan(options), 2, silent)
    assert not any(case.candidate.compiled for case in found.seconds)
    assert inference_tables.left_out(found) == [
        "zoh, torch.compile, batch 1, 224 px: InductorError: no compiler second line",
        "deit_tiny_patch16_224, torch.compile, batch 1, 224 px: InductorError: no compiler second line",
    ]


# --- what is timed ----------------------------------------------------------------------------------------------------


def test_the_plan_has_every_rule_the_noise_and_the_peers():
    names = [candidate.name for candidate in inference.candidates(OPTIONS)]
    assert names == [
        *OPTIONS.discretizations,
        "zoh again",
        "zoh, reference backend",
        "deit_tiny_patch16_224",
    ]
    cases = inference.plan(OPTIONS)
    assert {case.batch for case in cases if case.candidate.backend == "reference"} == {1, 4}
    compiled = inference.candidates(replace(OPTIONS, compile=True))
    assert [c.name for c in compiled if c.compiled] == [
        "zoh, torch.compile",
        "deit_tiny_patch16_224, torch.compile",
    ]
    training = inference.candidates(replace(OPTIONS, training=True))
    assert [c.name for c in training] == [*OPTIONS.discretizations, "zoh again", "deit_tiny_patch16_224"]
    assert "deit" not in inference.candidates(replace(OPTIONS, model=NANO))[-1].model


def test_rules_share_weights_and_images_and_compute_what_is_theirs():
    zoh, again, bil = (
        replace(CASE, candidate=candidate)
        for candidate in (Candidate(NANO, "zoh"), Candidate(NANO, "zoh", again=True), Candidate(NANO, "bil"))
    )
    results = [bench_models.make_call(case)() for case in (zoh, again, bil)]
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    assert not torch.equal(results[0], results[2])
    models = [bench_models._model(case.candidate, 8, False, "cpu") for case in (zoh, again, bil)]
    pointers = [[parameter.data_ptr() for parameter in model.parameters()] for model in models]
    assert pointers[0] == pointers[1] == pointers[2]
    assert models[2].config["discretization"] == "bil"


def test_a_training_step_computes_gradients_and_leaves_the_weights():
    case = replace(CASE, training=True)
    model = bench_models._model(case.candidate, 8, True, "cpu")
    before = [parameter.clone() for parameter in model.parameters()]
    seen = []
    hook = model.head.weight.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.abs().max()))
    step = bench_models.make_call(case)
    assert step() is None
    hook.remove()
    assert seen[0] > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_deit_takes_images_of_any_multiple_of_its_patches():
    peer = Candidate("deit_tiny_patch16_224", None)
    assert bench_models.make_call(Case(peer, 1, 48))().shape == (1, 1000)
    assert bench_models.smallest_size(peer.model) == 32
    assert bench_models.own_size(NANO) == 8


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells no peak")
def test_more_images_need_more_memory():
    small, large = (
        memory.growth(replace(CASE, candidate=Candidate("vim_nano_patch4_32", "bil"), batch=batch, img_size=32))
        for batch in (2, 64)
    )
    assert 0 <= small < large < 10**9


# --- tables -----------------------------------------------------------------------------------------------------------


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def test_fastest_names_ties_and_the_paper_beside():
    found = rows(inference_tables.fastest_table(made_up()))
    assert list(found) == ["1", "4", "8", "16", "32", "64", "128", "256", "512"]
    assert found["1"][0] == "tie: bil, rk4"
    assert found["1"][5:] == ("no", "bil", "13.46", "74.28")
    assert found["512"] == ("–", "–", "–", "–", "–", "–", "bil", "0.21", "4804.37")


def test_a_winner_beyond_noise_stands_alone():
    def cost(case, number):
        return seconds_of(case, number) * (0.9 if case.candidate.discretization == "bil" else 1)

    found = rows(inference_tables.fastest_table(made_up(cost=cost)))
    assert found["8"][0] == "bil"
    assert found["8"][3] == "rk4"
    assert found["8"][4].startswith("+11.")
    assert found["8"][5] == "yes"


def test_scenarios_have_gain_and_interval_and_the_paper_beside():
    found = rows(inference_tables.scenarios_table(made_up()))
    assert found["real-time"][:2] == ("1", "tie: bil, rk4")
    assert found["real-time"][2].endswith(" ms")
    assert found["real-time"][3].startswith("+5.")
    assert found["real-time"][4:] == ("yes", "1", "bil", "13.46 ms", "0.37 % faster")
    assert found["high throughput"][0] == "32"
    assert found["high throughput"][5:] == ("512", "bil", "4804 images/s", "0.67 % faster")
    table = inference_tables.scenarios_table(made_up(replace(OPTIONS, batch_sizes=(1, 4))))
    assert list(rows(table)) == ["real-time", "high throughput"]
    assert "was not measured" in table.note


def test_another_model_is_not_compared_with_the_paper():
    small = replace(OPTIONS, model="vim_small_patch16_224")
    for table in inference_tables.tables(made_up(small)):
        assert not any("paper" in name for name in table.header)


def test_the_grid_has_all_candidates_and_batch_sizes():
    tables = {table.name: table for table in inference_tables.tables(made_up())}
    assert list(tables) == ["fastest", "scenarios", "relative", "latency", "throughput", "memory", "checks"]
    throughput = rows(tables["throughput"])
    assert len(throughput) == 9
    assert all(len(cells) == 5 for cells in throughput.values())
    assert throughput["zoh, reference backend"][2:] == ("–", "–", "–")
    relative = rows(tables["relative"])
    assert relative["zoh"] == ("1",) * 5
    assert relative["deit_tiny_patch16_224"][0].startswith("0.60")
    assert "zoh again" in relative
    assert "zoh again" not in rows(tables["memory"])


@pytest.mark.parametrize(("peak", "text"), [(None, "–"), (70_000, "< 2"), (2 << 20, "2"), (47_600_000, "45")])
def test_memory_is_told_as_exactly_as_it_is_known(peak, text):
    assert inference_tables.memory_text(peak) == text


def test_checks_are_about_the_worst_rule():
    checks = made_up().checks()
    assert checks[0].claim == "batch 1, throughput : zoh's, worst rule"
    assert {(check.which, check.holds, check.bound) for check in checks} == {("foh", True, 0.97)}
    slow = made_up(cost=lambda case, n: seconds_of(case, n) * (1.1 if case.candidate.discretization == "rk4" else 1))
    assert {(check.which, check.holds) for check in slow.checks()} == {("rk4", False)}


def test_training_is_held_to_its_own_bounds_beside_the_papers_costs():
    result = made_up(replace(OPTIONS, training=True, batch_sizes=(8,)))
    steps, checks = training_tables.tables(result)
    found = rows(steps)
    assert found["bil"][-1] == "−2.77 %"
    assert found["pol"][-1] == "−9.13 %"
    assert found["hoh"][-1] == "−11.23 %"
    assert found["zoh"][3:] == ("–", "–", "–")
    assert found["bil"][3].startswith("+5.")
    assert found["zoh again"][4] == "no"
    assert [row[1] for row in checks.rows] == ["≥ 1", "≥ 0.95"]
    assert [row[4] for row in checks.rows] == ["yes", "yes"]


def test_tables_are_markdown_and_latex():
    for table in inference_tables.tables(made_up()):
        assert as_markdown(table, 3).startswith("### ")
        assert "≥" not in as_latex(table)
        assert r"\begin{tabular}" in as_latex(table)


def test_what_95_of_100_do_not_exceed():
    assert p95(list(range(101))) == 95
    assert p95([7.0]) == 7.0


# --- resolution -------------------------------------------------------------------------------------------------------


def test_the_crossing_is_where_ours_stays_ahead():
    assert resolution.crossing({1: 1, 2: 2, 3: 3}, {1: 0.5, 2: 3, 3: 9}) == (1, 2)
    assert resolution.crossing({1: 1, 2: 2, 3: 3}, {1: 2, 2: 1, 3: 9}) == (2, 3)
    assert resolution.crossing({1: 1, 2: 2}, {1: 2, 2: 3}) == (0, 1)
    assert resolution.crossing({1: 1, 2: 2}, {1: 2, 2: 1}) is None
    assert resolution.crossing({}, {}) is None


def test_resolution_tells_times_memory_and_where_they_cross():
    result = made_up_resolution()
    assert resolution.conclusions(result) == [
        "From 512 px on vim_tiny_patch16_224 is faster than deit_tiny_patch16_224 (not yet at 384 px).",
        "From 768 px on vim_tiny_patch16_224 needs less memory than deit_tiny_patch16_224 (not yet at 512 px).",
    ]
    found = rows(resolution.tables(result)[0])
    assert found["1248 px"][0] == "6085"
    assert found["224 px"][3].startswith("0.48 (")
    backwards = replace(result, measured=Measured(1, {}, {}, {}))
    assert resolution.conclusions(backwards) == []


def test_being_faster_in_most_rounds_is_not_enough_to_say_so():
    result = made_up_resolution()
    ours, seconds = result.case(result.ours, 512), dict(result.measured.seconds)
    rounds = seconds[ours]
    seconds[ours] = {number: [10 * t for t in laps] if number % 3 == 0 else laps for number, laps in rounds.items()}
    doubtful = replace(result, measured=replace(result.measured, seconds=seconds))
    assert doubtful.peer_by_ours(512).median > 1
    assert "From 768 px on vim_tiny_patch16_224 is faster" in resolution.conclusions(doubtful)[0]


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_pictures_are_written_whole_and_the_same_every_time(tmp_path, ending):
    for name, save, result in (
        ("inference", model_plots.save_inference, made_up()),
        ("resolution", model_plots.save_resolution, made_up_resolution()),
    ):
        paths = [tmp_path / f"{name}-{number}.{ending}" for number in (1, 2)]
        for path in paths:
            save(path, result)
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert len(paths[0].read_bytes()) > 10_000


def test_the_picture_shows_every_rule_its_interval_and_the_noise():
    left, right = model_plots.draw_inference(made_up()).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        *OPTIONS.discretizations,
        "deit_tiny_patch16_224",
    ]
    shown = {text.get_text() for text in right.get_legend().get_texts()}
    assert shown == {"noise: zoh against itself", "foh", "bil", "pol", "hoh", "rk4"}
    assert sum(line.get_linestyle() == "None" for line in right.get_lines()) >= 5
    time, space = model_plots.draw_resolution(made_up_resolution()).axes
    assert "where they cross" in {text.get_text() for text in time.get_legend().get_texts()}
    assert space.get_ylabel() == "MiB"


def test_a_picture_of_one_round_has_no_bars_and_one_of_one_rule_nothing_to_compare(tmp_path):
    model_plots.save_inference(tmp_path / "alone.png", made_up(replace(OPTIONS, discretizations=("zoh",))))
    result = made_up()
    short = {case: {0: rounds[0]} for case, rounds in result.measured.seconds.items()}
    model_plots.save_inference(
        tmp_path / "short.png", replace(result, measured=replace(result.measured, seconds=short))
    )


# --- as data ----------------------------------------------------------------------------------------------------------


def test_the_result_survives_its_json():
    result = made_up()
    facts = json.loads(json.dumps(as_facts(result)))
    again = from_facts(facts)
    assert again == result
    assert as_facts(again) == as_facts(result)
    assert facts["fastest"]["1"]["tied"] == ["bil", "rk4"]
    assert facts["checks"][0]["holds"] is True
    case = next(c for c in facts["cases"] if c["name"] == "bil" and c["batch"] == 8)
    assert case["images_per_second"] == pytest.approx(8e3 / (8 * case["milliseconds_per_image"]["median"]))
    assert case["time_by_baseline"]["low"] <= case["time_by_baseline"]["median"] <= case["time_by_baseline"]["high"]


@pytest.mark.parametrize("facts", [{}, [], {"options": 3}, {"options": {"model": 1}}])
def test_what_is_no_result_is_refused(facts):
    with pytest.raises(ValueError, match="does not hold what a result must"):
        from_facts(facts)


# --- the commands -----------------------------------------------------------------------------------------------------


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
        (["resolution", "--model", NANO], 1, ["DeiT has no such size"]),
        (["resolution", "--sizes", "224,300"], 1, ["300 pixels are no whole number of patches of 16"]),
        (["resolution", "--device", "cuda"], 1, ["--device cuda"]),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_measured(capsys, monkeypatch, argv, code, words):
    monkeypatch.setattr(measuring, "measure", lambda *args: pytest.fail("it was measured"))
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

    def run_resolution(options, command, report):
        seen.append(options)
        return replace(made_up_resolution(options), command=command)

    monkeypatch.setattr(inference, "run", run)
    monkeypatch.setattr(resolution, "run", run_resolution)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: None)
    return seen


def test_defaults_are_the_papers_rules_and_sizes_for_a_cpu(measured, capsys):
    assert main(["bench", "inference", "--threads", "2"]) == 0
    assert main(["bench", "train", "--threads", "2"]) == 0
    assert main(["bench", "resolution", "--threads", "2"]) == 0
    assert measured[0] == replace(OPTIONS, rounds=None)
    assert measured[1] == replace(OPTIONS, rounds=None, batch_sizes=(8,), training=True)
    assert measured[2] == replace(RESOLUTION, rounds=None)
    out, err = capsys.readouterr()
    assert "Fastest rule per batch size" in out
    assert "Training steps, batch 8" in out
    assert "From 512 px on" in out
    assert "tustin bench: round 1 of 1, 0 of 1 done" in err


def test_on_a_gpu_the_batch_grows_as_in_the_paper(measured, monkeypatch):
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(inference, "choose", lambda *args: "triton")
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
    block = files.INFERENCE
    page.write_text(f"before\n{files.SCAN.begin}\nkept\n{files.SCAN.end}\n{block.begin}\nstale\n{block.end}\nafter\n")
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
    assert text.startswith(f"before\n{files.SCAN.begin}\nkept\n")
    assert "stale" not in text
    assert (
        "Measured by `tustin bench inference --discretizations zoh,bil --batch-sizes 1,8 --threads 2`. AMD EPYC" in text
    )
    assert "![inference](images/inference.png)" in text
    assert "### Fastest rule per batch size" in text
    assert picture.stat().st_size > 10_000
    assert r"\label{tab:fastest}" in table.read_text(encoding="utf-8")
    written = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert written == ["inference.json", "inference.md", "inference.png", "inference.tex"]
    assert from_facts(json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))).options == measured[0]
    assert capsys.readouterr().err.count("tustin: wrote ") == 8


def test_json_alone_is_printed_instead(measured, capsys):
    assert main(["bench", "resolution", "--threads", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["benchmark"] == "resolution"
    assert told["conclusions"][0].startswith("From 512 px on")
    assert main(["bench", "train", "--threads", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmark"] == "train"


def test_the_documentation_has_the_marks():
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for block in (files.INFERENCE, files.TRAINING, files.RESOLUTION):
        block.split(page, "docs/performance.md")


# --- a real run, small ------------------------------------------------------------------------------------------------


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
    result = from_facts(json.loads(capsys.readouterr().out))
    names = ["zoh", "bil", "zoh again", "zoh, reference backend"]
    assert [candidate.name for candidate in result.candidates] in (names, names[:3])
    assert result.batch_sizes == [1, 2]
    assert result.standing(1).tied == ("zoh", "bil")
    assert all(seconds > 0 for case in result.measured.seconds for seconds in result.calls(case))
