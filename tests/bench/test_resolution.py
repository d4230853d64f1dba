"""`tustin bench resolution`: where the lines cross, and when that may be said."""

from dataclasses import replace

from tests.bench.models import made_up_resolution, of_rounds
from tustin.bench import resolution
from tustin.bench.resolution import Growth


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def test_the_crossing_is_where_ours_stays_ahead():
    assert resolution.crossing({1: 1, 2: 2, 3: 3}, {1: 0.5, 2: 3, 3: 9}) == (1, 2)
    assert resolution.crossing({1: 1, 2: 2, 3: 3}, {1: 2, 2: 1, 3: 9}) == (2, 3)
    assert resolution.crossing({1: 1, 2: 2}, {1: 2, 2: 3}) == (0, 1)
    assert resolution.crossing({1: 1, 2: 2}, {1: 2, 2: 1}) is None
    assert resolution.crossing({}, {}) is None


def test_resolution_tells_times_memory_and_where_they_cross():
    result = made_up_resolution()
    growth = Growth(result)
    assert resolution.conclusions(growth) == [
        "From 512 px on vim_tiny_patch16_224 is faster than deit_tiny_patch16_224 (not yet at 384 px).",
        "From 768 px on vim_tiny_patch16_224 needs less memory than deit_tiny_patch16_224 (not yet at 512 px).",
    ]
    found = rows(resolution.table(growth))
    assert found["1248 px"][0] == "6085"
    assert found["224 px"][3].startswith("0.48 (")
    nothing = replace(result, timings={}, peaks={})
    assert resolution.conclusions(Growth(nothing)) == []


def test_being_faster_in_most_rounds_is_not_enough_to_say_so():
    result = made_up_resolution()
    ours, _ = resolution.pairs(result.options)[512]
    calls = enumerate(result.timings[ours].seconds)
    slower = of_rounds({number: [call * (10 if number % 3 == 0 else 1)] for number, call in calls})
    doubtful = Growth(replace(result, timings={**result.timings, ours: slower}))
    assert doubtful.ratios[512].median > 1
    assert "From 768 px on vim_tiny_patch16_224 is faster" in resolution.conclusions(doubtful)[0]


def test_a_large_image_is_held_against_the_peer_in_time_and_memory():
    time, memory = resolution.checks(Growth(made_up_resolution()))
    assert time.claim == "one image of 1248 px, time of deit_tiny_patch16_224 : bil"
    assert time.measured == round(Growth(made_up_resolution()).ratios[1248].median, 2)
    assert (memory.relation, memory.bound, memory.holds) == ("≤", 1.0, True)
    small = made_up_resolution()
    assert resolution.checks(Growth(replace(small, options=replace(small.options, sizes=(224, 384))))) == []
