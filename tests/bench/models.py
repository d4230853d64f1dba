"""Results of the benchmarks of models with made-up times, so that every ratio is known."""

from tustin.bench import resolution
from tustin.bench.arguments import PAPER_DISCRETIZATIONS
from tustin.bench.inference import Options, Result, plan
from tustin.bench.measuring import Measured
from tustin.bench.models import PEERS, Candidate, Case

from .results import MACHINE as SCAN_MACHINE

OPTIONS = Options("vim_tiny_patch16_224", PAPER_DISCRETIZATIONS, (1, 4, 8, 16, 32), "cpu", 2, 16)
MACHINE = SCAN_MACHINE | {"backends": dict.fromkeys(PAPER_DISCRETIZATIONS, "native")}
COST = {"zoh": 1.0, "foh": 1.02, "bil": 0.95, "pol": 1.004, "hoh": 1.011, "rk4": 0.952}
ROUNDS = 16
NOISE = 0.003


def seconds_of(case: Case, number: int) -> float:
    """35 ms per image for zoh, of which the first costs twice; drifting from round to round, with a little noise."""
    candidate = case.candidate
    cost = COST.get(candidate.discretization, 1.03) if candidate.discretization else 0.6
    cost *= 12 if candidate.backend == "reference" else 1
    cost *= 3.5 if case.training else 1
    drift = 1 + 0.1 * number
    wobble = 1 + NOISE * ((hash_of(case) + 5 * number) % 7 - 3) / 3
    return 0.035 * (case.batch + 1) * (case.img_size / 224) ** 2 * cost * drift * wobble


def hash_of(case: Case) -> int:
    return sum(map(ord, case.candidate.name)) + case.batch


def made_up(options: Options = OPTIONS, cost=None) -> Result:
    """A complete result; `cost` replaces how long a case takes in a round."""
    measured = Measured(rounds=ROUNDS)
    for case in plan(options):
        rounds = range(0, ROUNDS, 4) if case.candidate.backend == "reference" else range(ROUNDS)
        measured.seconds[case] = {number: [(cost or seconds_of)(case, number)] * 2 for number in rounds}
        if not (case.candidate.again or case.candidate.compiled or case.candidate.backend == "reference"):
            measured.peaks[case] = 20_000_000 * case.batch
    return Result(options, "tustin bench inference", "2026-01-02", MACHINE, measured)


RESOLUTION = resolution.Options("vim_tiny_patch16_224", "bil", resolution.SIZES, "cpu", 2, ROUNDS)


def made_up_resolution(options: resolution.Options = RESOLUTION) -> resolution.Result:
    """DeiT grows with the square of the tokens: overtaken between 384 and 512 px, in memory between 512 and 768."""
    measured = Measured(rounds=ROUNDS)
    for size in options.sizes:
        tokens = (size / 16) ** 2
        ours = Case(Candidate(options.model, options.discretization), 1, size, False, "cpu", 2)
        peer = Case(Candidate(PEERS[options.model], None), 1, size, False, "cpu", 2)
        measured.seconds[ours] = {number: [2e-4 * tokens * (1 + 0.1 * number)] for number in range(ROUNDS)}
        measured.seconds[peer] = {
            number: [(5e-5 * tokens + 2.3e-7 * tokens**2) * (1 + 0.1 * number)] for number in range(ROUNDS)
        }
        measured.peaks[ours] = int(12_000 * tokens)
        measured.peaks[peer] = int(6_000 * tokens + 5 * tokens**2)
    return resolution.Result(options, "tustin bench resolution", "2026-01-02", MACHINE, measured)
