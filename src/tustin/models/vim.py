"""The variants of Vision Mamba in timm's registry, under the name of this module: `timm.list_models(module="vim")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from timm.models import build_model_with_cfg, register_model, resolve_pretrained_cfg
from torch import nn

from ..support.ranges import check
from .checkpoint import load_checkpoint
from .checkpoint.fitting import check_discretization
from .checkpoint.reading import Weights
from .variants import default_cfgs
from .vision_mamba import VisionMamba

__all__ = ["default_cfgs"]  # timm looks for it beside the functions that it registers


def _create(variant: str, pretrained: bool, kwargs: dict[str, Any], **sizes: Any) -> nn.Module:
    told = kwargs.get("pretrained_cfg")
    if isinstance(told, Mapping):  # of a file config.json: the arguments with which the model was saved
        arguments = told.get("model_args") or {}
        check(VisionMamba.__init__, arguments, "model_args.")
        kwargs["pretrained_cfg"] = {name: value for name, value in told.items() if name != "model_args"}
        sizes |= {name: value for name, value in arguments.items() if name not in kwargs}
    overlay, cache = dict(kwargs.get("pretrained_cfg_overlay") or {}), kwargs.get("cache_dir")
    about = resolve_pretrained_cfg(variant, kwargs.get("pretrained_cfg"), overlay)
    allow = kwargs.pop("allow_other_discretization", False)
    named = about.hf_hub_id if about.source == "hf-hub" else about.file or about.hf_hub_id
    source = named if pretrained else None

    def build(**arguments: Any) -> VisionMamba:
        model = VisionMamba(**arguments)
        if source is not None:  # by our own loader, which knows about discretizations, head and positions
            if default_cfgs[variant].default.hf_hub_id == source:
                check_discretization(model.config["discretization"], Weights(source, {}), allow)  # before a download
            options: dict[str, Any] = {"filename": about.hf_hub_filename, "cache_dir": cache}
            load_checkpoint(model, source, allow_other_discretization=allow, **options)
        return model

    features = {"out_indices": min(3, sizes.get("depth", 3)), "feature_cls": "getter"}
    by_timm = pretrained and source is None  # which says that there are none
    model: Any = build_model_with_cfg(build, variant, by_timm, feature_cfg=features, **(sizes | kwargs))
    config = getattr(model, "model", model).config  # features_only=True wraps the model
    model.pretrained_cfg["input_size"] = (config["in_chans"], *config["img_size"])  # so that timm prepares such images
    model.pretrained_cfg["model_args"] = config  # so that timm saves them: without its rule a model is not the same
    return cast(nn.Module, model)


@register_model
def vim_tiny_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    return _create("vim_tiny_patch16_224", pretrained, kwargs, embed_dim=192)


@register_model
def vim_tiny_patch16_stride8_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    return _create("vim_tiny_patch16_stride8_224", pretrained, kwargs, embed_dim=192, stride=8)


@register_model
def vim_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    return _create("vim_small_patch16_224", pretrained, kwargs, embed_dim=384)


@register_model
def vim_small_patch16_stride8_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    return _create("vim_small_patch16_stride8_224", pretrained, kwargs, embed_dim=384, stride=8)


@register_model
def vim_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    return _create("vim_base_patch16_224", pretrained, kwargs, embed_dim=768)


@register_model
def vim_nano_patch4_32(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """For images such as CIFAR's: 64 patches."""
    return _create("vim_nano_patch4_32", pretrained, kwargs, patch_size=4, embed_dim=128, depth=6)


@register_model
def vim_nano_patch4_stride2_8(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """For grey images such as the digits of scikit-learn: 9 patches that overlap by half, the quickest to train."""
    sizes = {"patch_size": 4, "stride": 2, "embed_dim": 64, "depth": 2, "d_state": 8}
    return _create("vim_nano_patch4_stride2_8", pretrained, kwargs, **sizes)


@register_model
def vim_nano_patch2_8(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """For grey images such as the digits of scikit-learn: 16 patches."""
    return _create("vim_nano_patch2_8", pretrained, kwargs, patch_size=2, embed_dim=64, depth=4)


@register_model
def vim_nano_patch1_8(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """The same, a token a pixel: 64 patches."""
    return _create("vim_nano_patch1_8", pretrained, kwargs, patch_size=1, embed_dim=64, depth=4)
