"""Results of the benchmarks of models with made-up times, so that every ratio is known."""

from collections.abc import Callable, Mapping, Sequence

from tests.bench.results import MACHINE as SCAN_MACHINE
from tustin.bench import resolution
from tustin.bench.inference import cases
from tustin.bench.models import PEERS
from tustin.cli.bench_arguments import PAPER_DISCRETIZATIONS
from tustin.report.measurement import Case, Options, Result
from tustin.report.speed import Candidate, ModelCase, Speed
from tustin.report.timing import Lap, Timing

ROUNDS = 16
MODEL, NANO = "vim_tiny_patch16_224", "vim_nano_patch4_stride2_8"
SIZES = (224, 384, 512, 768, 1024, 1248)
OPTIONS = Options(
    model=MODEL, discretizations=PAPER_DISCRETIZATIONS, batch_sizes=(1, 4, 8, 16, 32), threads=2, rounds=ROUNDS
)
RESOLUTION = Options(model=MODEL, discretizations=("bil",), sizes=SIZES, threads=2, rounds=ROUNDS)
MACHINE = SCAN_MACHINE | {"backends": dict.fromkeys(PAPER_DISCRETIZATIONS, "native")}
COST = {"zoh": 1.0, "foh": 1.02, "bil": 0.95, "pol": 1.004, "hoh": 1.011, "rk4": 0.952}
NOISE = 0.003
CASE = ModelCase(Candidate(NANO, "zoh"), 2, 8)


def of_rounds(rounds: Mapping[int, Sequence[float]], party: int = 0) -> Timing:
    """The calls of each round."""
    return Timing({Lap(party, number, lap): call for number, own in rounds.items() for lap, call in enumerate(own)})


def seconds_of(case: ModelCase, number: int) -> float:
    """35 ms per image for zoh, of which the first costs twice; drifting from round to round, with a little noise."""
    candidate = case.candidate
    cost = COST.get(candidate.discretization, 1.03) if candidate.discretization else 0.6
    cost *= 12 if candidate.backend == "reference" else 1
    cost *= 3.5 if case.training else 1
    drift = 1 + 0.1 * number
    wobble = 1 + NOISE * ((hash_of(case) + 5 * number) % 7 - 3) / 3
    return 0.035 * (case.batch + 1) * (case.img_size / 224) ** 2 * cost * drift * wobble


def hash_of(case: ModelCase) -> int:
    return sum(map(ord, case.candidate.name)) + case.batch


def result_of(benchmark: str, options: Options, timings: dict[Case, Timing], peaks: dict[Case, int]) -> Result:
    command = f"tustin bench {benchmark}"
    return Result(benchmark, command, "2026-01-02", options, MACHINE, ROUNDS, 2, timings, peaks)


def made_up(
    options: Options = OPTIONS, cost: Callable[[ModelCase, int], float] = seconds_of, training: bool = False
) -> Result:
    """A complete result; `cost` tells how long a case takes in a round."""
    timings: dict[Case, Timing] = {}
    peaks: dict[Case, int] = {}
    for case in cases(options, training):
        rounds = range(0, ROUNDS, 4) if case.candidate.backend == "reference" else range(ROUNDS)
        timings[case] = of_rounds({number: [cost(case, number)] * 2 for number in rounds})
        if not (case.candidate.again or case.candidate.compiled or case.candidate.backend == "reference"):
            peaks[case] = 20_000_000 * case.batch
    return result_of("train" if training else "inference", options, timings, peaks)


def speed(*arguments, **changes) -> Speed:
    return Speed(made_up(*arguments, **changes))


def made_up_resolution(options: Options = RESOLUTION) -> Result:
    """DeiT grows with the square of the tokens: overtaken between 384 and 512 px, in memory between 512 and 768."""
    timings: dict[Case, Timing] = {}
    peaks: dict[Case, int] = {}
    for size in options.sizes:
        tokens = (size / 16) ** 2
        ours, peer = resolution.pairs(options)[size]
        assert peer.candidate.model == PEERS[options.model]
        for case, cost in ((ours, 2e-4 * tokens), (peer, 5e-5 * tokens + 2.3e-7 * tokens**2)):
            timings[case] = of_rounds({number: [cost * (1 + 0.1 * number)] for number in range(ROUNDS)})
        peaks[ours] = int(12_000 * tokens)
        peaks[peer] = int(6_000 * tokens + 5 * tokens**2)
    return result_of("resolution", options, timings, peaks)
