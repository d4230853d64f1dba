"""What is timed of whole models: rules that share weights and images, and honest training steps."""

from dataclasses import replace

import torch

from tests.bench.models import CASE, NANO
from tustin.bench import models as bench_models
from tustin.report.speed import Candidate, ModelCase


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
    assert bench_models.make_call(ModelCase(peer, 1, 48))().shape == (1, 1000)
    assert bench_models.smallest_size(peer.model) == 32
    assert bench_models.own_size(NANO) == 8


def test_the_shares_of_a_call_are_all_of_it():
    found = bench_models.shares(bench_models.make_call(CASE))
    assert sum(found.values()) == 1 or abs(sum(found.values()) - 1) < 1e-9
    assert {"scan", "matrix products"} <= set(found)
    assert list(found.values()) == sorted(found.values(), reverse=True)
