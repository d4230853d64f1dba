"""Adapted models of transformers: the same predictions with `mamba`, consistent ones with every rule; one at a time."""

import copy
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

import tustin
from tests.adapters.language_models import MODELS, built, each_model, jamba, logits, mamba, tokens
from tests.native import each_discretization
from tests.tolerances import assert_close
from tustin.adapters import mixers, one_token

Build = Callable[..., nn.Module]
CLOSE = {torch.float32: 1e-4}


# ── the same numbers ─────────────────────────────────────────────────────────────────────────────────────────────────


@each_model
def test_with_mamba_nothing_changes(build: Build) -> None:
    model, own = tustin.adapt(built(build)), built(build)
    assert_close(logits(model, tokens()), logits(own, tokens()), CLOSE)
    padding = torch.ones(2, 12)
    padding[0, :4] = 0
    how = {"attention_mask": padding}
    assert_close(logits(model, tokens(), **how), logits(own, tokens(), **how), CLOSE)


@each_model
def test_generate_writes_the_same_text(build: Build) -> None:
    """200 tokens, one after the other."""
    how = {"max_new_tokens": 200, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    texts = [model.generate(tokens(1, 5), **how) for model in (tustin.adapt(built(build)), built(build))]
    assert texts[0].shape == (1, 205)
    assert torch.equal(*texts)
    assert len(texts[0].unique()) > 3  # not one word again and again


@each_model
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients(build: Build, checkpointing: bool) -> None:
    gradients = []
    for adapted in (True, False):
        model = built(build).train()
        if adapted:
            tustin.adapt(model)
            if checkpointing:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model(tokens(), labels=tokens(), use_cache=False).loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, gradient in gradients[1].items():
        if gradient is not None and gradient.abs().max() > 1e-6:
            assert_close(gradients[0][name], gradient, CLOSE, name)


@each_model
@each_discretization
def test_decoding_continues_the_prompt(build: Build, discretization: str) -> None:
    """Prompt and then token by token, or all tokens at once; and every rule but the model's own gives other numbers."""
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-5)):
        if (build, dtype) == (jamba, torch.float64):
            continue  # which Jamba does not know
        model = tustin.adapt(built(build).to(dtype), discretization)
        ids = tokens()
        whole = logits(model, ids)
        with torch.no_grad():
            out = model(ids[:, :7], use_cache=True)
            parts = [out.logits]
            name = "cache_params" if hasattr(out, "cache_params") else "past_key_values"
            for k in range(7, 12):
                out = model(ids[:, k : k + 1], use_cache=True, **{name: out[name]})
                parts.append(out.logits)
        assert_close(torch.cat(parts, 1).float(), whole, {torch.float32: tolerance})
        changed = (whole - logits(built(build).to(dtype), ids)).abs().max() > 1e-3 * whole.abs().max()
        assert changed == (discretization != "mamba")


def test_decoding_takes_the_short_way_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of float32 on a CPU does; a mask, a gradient and a cache that does not fit do not."""
    taken = []
    short = one_token._one_token
    monkeypatch.setattr(one_token, "_one_token", lambda *arguments: taken.append(1) or short(*arguments))
    model, ids = tustin.adapt(built(mamba), "true_foh"), tokens()
    with torch.no_grad():
        cache = model(ids, use_cache=True).cache_params
    ways = [({}, False), ({"attention_mask": torch.ones(2, 1)}, False), ({}, True)]
    found = []
    for how, gradient in ways:
        with torch.set_grad_enabled(gradient):
            found.append(model(ids[:, :1], cache_params=copy.deepcopy(cache), use_cache=True, **how).logits)
    assert len(taken) == 2  # the layers, once
    for other in found[1:]:
        assert_close(other.detach(), found[0], {torch.float32: 1e-5})
    with torch.no_grad(), pytest.raises(ValueError, match="state"):
        model(ids[:1, :1], cache_params=cache, use_cache=True)
    assert len(taken) == 2


def test_the_short_way_takes_layers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer with a hook, or one that somebody has put in its place, computes for itself; so does a larger batch."""
    taken = []
    linear = one_token.native.linear
    monkeypatch.setattr(one_token.native, "linear", lambda *arguments: taken.append(1) or linear(*arguments))

    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    def replaced(mixer: nn.Module) -> None:
        mixer.out_proj.__class__ = Doubled

    def hooked(mixer: nn.Module) -> None:
        mixer.in_proj.register_forward_hook(lambda module, inputs, output: 2 * output)

    def given_a_forward(mixer: nn.Module) -> None:
        forward = mixer.x_proj.forward
        mixer.x_proj.forward = lambda x: 2 * forward(x)

    for change, batch, layers in (
        (lambda mixer: None, 2, 6),
        (lambda mixer: None, 9, 0),
        (replaced, 2, 5),
        (hooked, 2, 5),
        (given_a_forward, 2, 5),
    ):
        both = []
        for model in (tustin.adapt(built(mamba)), built(mamba)):
            change(model.backbone.layers[1].mixer)
            taken.clear()
            with torch.no_grad():
                cache = model(tokens(batch), use_cache=True).cache_params
                both.append(model(tokens(batch)[:, :1], cache_params=cache, use_cache=True).logits)
            if not both[1:]:
                assert len(taken) == layers
        assert_close(*both, CLOSE)


def test_a_token_under_autocast() -> None:
    both = []
    for model in (tustin.adapt(built(mamba)), built(mamba)):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            cache = model(tokens(), use_cache=True).cache_params
            both.append(model(tokens()[:, :1], cache_params=cache, use_cache=True).logits)
    assert both[0].dtype == both[1].dtype
    assert_close(both[0].bfloat16(), both[1].float(), {torch.bfloat16: 0.05})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    own = built(mamba)
    model = tustin.adapt(copy.deepcopy(own).to(dtype))
    assert_close(logits(model, tokens()).to(dtype), logits(own, tokens()), {dtype: 0.05})
    with torch.no_grad():
        out = model(tokens()[:, :5], use_cache=True)
        step = model(tokens()[:, 5:6], use_cache=True, cache_params=out.cache_params).logits
    assert_close(step[:, 0].to(dtype), logits(model, tokens())[:, 5], {dtype: 0.02})


def test_autocast() -> None:
    model, own = tustin.adapt(built(mamba)), built(mamba)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(logits(model, tokens()).bfloat16(), logits(own, tokens()), {torch.bfloat16: 0.05})


def test_an_activation_that_is_not_silu() -> None:
    model, own = tustin.adapt(built(mamba, hidden_act="gelu")), built(mamba, hidden_act="gelu")
    assert_close(logits(model, tokens()), logits(own, tokens()), CLOSE)


def test_beams() -> None:
    how = {"max_new_tokens": 10, "num_beams": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    assert torch.equal(*[model.generate(tokens(), **how) for model in (tustin.adapt(built(mamba)), built(mamba))])


# ── one model at a time ──────────────────────────────────────────────────────────────────────────────────────────────


def test_each_model_has_its_own_rule() -> None:
    """Also where they were made from one config; a third stays as it was, and so do transformers' functions."""
    config = built(mamba).config
    models = []
    for _ in range(3):
        torch.manual_seed(0)
        models.append(transformers.MambaForCausalLM(config).eval())
    before = logits(models[2], tokens())
    tustin.adapt(models[0], "bil")
    tustin.adapt(models[1], "zoh")
    assert [getattr(model.config, "discretization", None) for model in models] == ["bil", "zoh", None]
    assert not hasattr(config, "discretization")
    assert torch.equal(logits(models[2], tokens()), before)
    first, second = (logits(model, tokens()) for model in models[:2])
    assert not torch.equal(first, second)


@each_model
def test_restore(build: Build) -> None:
    model = built(build)
    before, classes = logits(model, tokens()), [type(module) for module in model.modules()]
    assert tustin.restore(model) is model  # which was not adapted
    assert tustin.restore(tustin.adapt(tustin.adapt(model, "bil"), "zoh")) is model
    assert torch.equal(logits(model, tokens()), before)
    assert [type(module) for module in model.modules()] == classes
    assert not hasattr(model.config, "discretization")


def test_config_changes_survive_restore() -> None:
    model = tustin.adapt(built(mamba), "bil")
    model.config.use_cache = False
    assert tustin.restore(model).config.use_cache is False


def test_copies_and_pickles() -> None:
    model = tustin.adapt(built(mamba), "bil")
    expected = logits(model, tokens())
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)):
        assert torch.equal(logits(other, tokens()), expected)
        assert torch.equal(logits(tustin.restore(other), tokens()), logits(built(mamba), tokens()))
    assert torch.equal(logits(model, tokens()), expected)  # restoring a copy leaves the model alone


def test_save_and_load(tmp_path: Path) -> None:
    """The rule is in the config; whoever loads the model adapts it, and need not know the rule."""
    model = tustin.adapt(built(mamba), "bil")
    model.save_pretrained(tmp_path)
    assert '"discretization": "bil"' in (tmp_path / "config.json").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = tustin.adapt(transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval())
    assert torch.equal(logits(loaded, tokens()), logits(model, tokens()))
    assert tustin.restore(loaded).config.discretization == "bil"  # as it was loaded


def test_another_rule_than_that_of_its_training_warns_once(tmp_path: Path) -> None:
    built(mamba).save_pretrained(tmp_path)
    model = transformers.MambaForCausalLM.from_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="trained with the discretization 'mamba' and now runs with 'bil'") as caught:
        tustin.adapt(model, "bil")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits(model, tokens())
        tustin.adapt(model, "mamba")
        tustin.adapt(built(mamba), "bil")  # random weights belong to no rule


def test_threads() -> None:
    """Four models, four rules, at once."""
    rules = ("mamba", "bil", "zoh", "rk4")
    models = [tustin.adapt(built(mamba), rule) for rule in rules]
    expected = [logits(model, tokens()) for model in models]
    got: dict[int, list[torch.Tensor]] = {}

    def run(i: int) -> None:
        got[i] = [logits(models[i], tokens()) for _ in range(5)]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, expected[i]) for i, several in got.items() for one in several)
    assert len(got) == 4


@pytest.mark.parametrize("build", [mamba, *[pytest.param(build, marks=pytest.mark.long) for build in MODELS[1:]]])
def test_compile(build: Build, own_caches: None) -> None:
    """One graph, with the rule of the model; and again with another rule."""
    for rule in ("bil", "mamba"):
        model = tustin.adapt(built(build), rule)
        whole = build not in MODELS[2:]  # the attention of the others breaks graphs by itself
        compiled = torch.compile(model, backend="aot_eager", fullgraph=whole)
        assert_close(logits(compiled, tokens(), use_cache=False), logits(model, tokens()), CLOSE)
        torch.compiler.reset()


def test_hooks_of_accelerate() -> None:
    from accelerate.hooks import ModelHook, add_hook_to_module

    calls = []

    class Counting(ModelHook):
        def pre_forward(self, module, *args, **kwargs):  # type: ignore[no-untyped-def]
            calls.append(module)
            return args, kwargs

    model = built(mamba)
    for layer in model.backbone.layers:
        add_hook_to_module(layer.mixer, Counting())
    tustin.adapt(model, "bil")
    assert torch.equal(logits(model, tokens()), logits(tustin.adapt(built(mamba), "bil"), tokens()))
    assert len(calls) == 2
    assert torch.equal(logits(tustin.restore(model), tokens()), logits(built(mamba), tokens()))


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_it_refuses(clean_registry: None) -> None:
    with pytest.raises(TypeError, match=r"adapt: model must be a torch\.nn.Module, got str"):
        tustin.adapt("state-spaces/mamba-130m-hf")  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"Linear has no mixer that can be adapted; expected .* mamba, falcon_"):
        tustin.adapt(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="unknown discretization 'zho'"):
        tustin.adapt(built(mamba), "zho")
    del tustin.DISCRETIZATIONS["foh"]
    with pytest.raises(ValueError, match="discretization 'foh' is not registered; register it first"):
        tustin.adapt(built(mamba), tustin.discretize.foh.FOH)


def test_packed_sequences() -> None:
    model = tustin.adapt(built(mamba))
    with pytest.raises(ValueError, match="seq_idx was given, but adapted models do not support packed sequences"):
        model.backbone.layers[0].mixer(torch.zeros(1, 4, 24), seq_idx=torch.zeros(1, 4, dtype=torch.int32))


def test_a_version_of_transformers_without_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mixer of an older one computes everything by itself."""
    from transformers.models.mamba.modeling_mamba import MambaMixer

    def slow_forward(self, hidden_states):  # type: ignore[no-untyped-def]
        return self.in_proj(hidden_states)

    model = built(mamba)
    monkeypatch.setattr(MambaMixer, "forward", slow_forward)
    mixers.adapted_class.cache_clear()
    version = transformers.__version__
    words = (
        rf"MambaMixer of transformers {version} does not call causal_conv1d_fn; expected transformers 5.15 and newer"
    )
    with pytest.raises(RuntimeError, match=words):
        tustin.adapt(model, "bil")
    assert type(model.backbone.layers[0].mixer) is MambaMixer
    mixers.adapted_class.cache_clear()
