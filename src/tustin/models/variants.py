"""The variants of Vision Mamba by name: what images each is made for, and where the authors keep its weights."""

from __future__ import annotations

from typing import Any

from timm.models import generate_default_cfgs

__all__ = ["default_cfgs", "model_names"]


def _cfg(channels: int = 3, size: int = 224, num_classes: int = 1000, **more: Any) -> dict[str, Any]:
    return {
        "input_size": (channels, size, size),
        "num_classes": num_classes,
        "fixed_input_size": True,  # timm's way to hand the size above to the constructor; any other goes in as well
        "first_conv": "patch_embed.proj",
        "classifier": "head",
        **more,
    }


def _official(size: str, filename: str | None) -> dict[str, Any]:
    """Where the authors keep the weights; without a name, it is the only file there."""
    return _cfg(hf_hub_id=f"hustvl/Vim-{size}-midclstok", hf_hub_filename=filename, license="apache-2.0")


_DIGITS = _cfg(1, 8, 10, mean=(0.5,), std=(0.5,), crop_pct=1.0)

default_cfgs = generate_default_cfgs(
    {
        "vim_tiny_patch16_224": _official("tiny", "vim_t_midclstok_76p1acc.pth"),
        "vim_tiny_patch16_stride8_224": _official("tiny", "vim_t_midclstok_ft_78p3acc.pth"),
        "vim_small_patch16_224": _official("small", "vim_s_midclstok_80p5acc.pth"),
        "vim_small_patch16_stride8_224": _official("small", "vim_s_midclstok_ft_81p6acc.pth"),
        "vim_base_patch16_224": _official("base", None),
        "vim_nano_patch4_32": _cfg(3, 32, 10, crop_pct=1.0),
        "vim_nano_patch4_stride2_8": _DIGITS,
        "vim_nano_patch2_8": _DIGITS,
        "vim_nano_patch1_8": _DIGITS,
    }
)


def model_names() -> list[str]:
    """The names of the models of this package; they are in timm's registry."""
    return sorted(default_cfgs)
