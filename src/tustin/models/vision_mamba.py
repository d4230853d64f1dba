"""Vision Mamba (ViM, arXiv 2401.09417) with the discretization as an argument; `vim` has its variants."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import torch
from timm.layers import lecun_normal_, to_2tuple
from timm.models._features import feature_take_indices
from timm.utils.model import unwrap_model
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..support.names import unknown
from ..support.ranges import Range, check
from .blocks import Block, PatchEmbed, RMSNorm
from .mixer import Mixer
from .tokens import insert_middle, middle_token, resample_pos_embed, split_middle

__all__ = ["VisionMamba", "Width", "plain_model", "unwrapped"]

POOLS = ("token", "avg", "")
"""What the head reads: the class token, the mean of the patches, or every token."""

Side: TypeAlias = Annotated[int, Range(1, 2**16)]
Patch: TypeAlias = Annotated[int, Range(1, 2**12)]
Width: TypeAlias = Annotated[int, Range(1, 2**16)]
Classes: TypeAlias = Annotated[int, Range(0, 2**24)]
Rate: TypeAlias = Annotated[float, Range(0, 1, below=True)]


class VisionMamba(nn.Module):
    """An image classifier made of bidirectional state-space mixers, with the class token in the middle.

    Args:
        img_size: Image size of the position embedding, a number or (height, width).
        patch_size: Side of a patch.
        stride: Distance between patches; default: the patch size. With less they overlap.
        in_chans: Channels of an image.
        num_classes: Number of classes; 0 for no head.
        global_pool: What the head reads: "token", "avg" (mean of the patches) or "" (every token).
        embed_dim: Width d of a token.
        depth: Number of blocks.
        d_state: Number N of states per channel.
        discretization: Name of the rule, see `tustin.DISCRETIZATIONS`. It is part of the model: trained
            weights need the rule of their training.
        dt_init_backward: Initial step of the backward direction: "vim" as in the official code (about 0.7), "mamba"
            (from 0.001 to 0.1) or "long" (ten times that).
        dt_init_forward: The same for the forward direction; the official code uses "mamba".
        d_conv: Width of the short convolution in tokens; with 1 only the scan mixes tokens.
        conv_dilation: Distance between these tokens, for images that are sampled more finely than in training.
        delta_scale: Multiplies every step Δ, for the same purpose: 0.25 for four times as many tokens.
        state: False removes the scan's state, y = D·u: a control that measures what the state is worth.
        drop_rate: Dropout before the head.
        drop_path_rate: Stochastic depth of the last block; it grows linearly from 0 at the first.
        dynamic_img_size: Accept images of any size by resampling the position embedding; otherwise other sizes are
            errors.
        backend: Backend of the scan, see `tustin.selective_scan`. Not part of `config`, because it does not change the
            model.

    `config` holds these arguments as plain values: `VisionMamba(**model.config)` builds the model again.
    """

    task = "classification"
    classes = "num_classes"
    """Name of the argument with the number of classes."""

    def __init__(
        self,
        img_size: Side | tuple[Side, Side] = 224,
        patch_size: Patch = 16,
        stride: Patch | None = None,
        in_chans: Annotated[int, Range(1, 2**12)] = 3,
        num_classes: Classes = 1000,
        global_pool: str = "token",
        embed_dim: Width = 192,
        depth: Annotated[int, Range(1, 1000)] = 24,
        d_state: Annotated[int, Range(1, 2**12)] = 16,
        discretization: str = "mamba",
        dt_init_backward: str = "vim",
        dt_init_forward: str = "mamba",
        d_conv: Annotated[int, Range(1, 64)] = 4,
        conv_dilation: Annotated[int, Range(1, 64)] = 1,
        delta_scale: Annotated[float, Range(0, 1000, above=True)] = 1.0,
        state: bool = True,
        drop_rate: Rate = 0.0,
        drop_path_rate: Rate = 0.0,
        dynamic_img_size: bool = True,
        backend: str = "auto",
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__", "backend")}
        check(VisionMamba.__init__, arguments)
        super().__init__()
        height, width = to_2tuple(img_size)
        self.config: dict[str, Any] = arguments | {"img_size": [height, width], "stride": stride or patch_size}
        self.embed_dim = self.num_features = self.head_hidden_size = embed_dim
        self.dynamic_img_size = dynamic_img_size
        self.grad_checkpointing = False

        self.patch_embed = PatchEmbed((height, width), patch_size, stride or patch_size, in_chans, embed_dim)
        self.cls_token = nn.Parameter(torch.empty(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.empty(1, self.patch_embed.num_patches + 1, embed_dim))
        rates = torch.linspace(0, drop_path_rate, depth, device="cpu").tolist()
        names = (
            "discretization",
            "dt_init_backward",
            "dt_init_forward",
            "d_conv",
            "conv_dilation",
            "delta_scale",
            "state",
        )
        mixer: dict[str, Any] = {"backend": backend} | {name: arguments[name] for name in names}
        self.layers = nn.ModuleList(Block(Mixer(embed_dim, d_state, **mixer), embed_dim, rate) for rate in rates)
        self.feature_info = [
            {"module": f"layers.{i}", "num_chs": embed_dim, "reduction": self.patch_embed.stride} for i in range(depth)
        ]
        self.norm_f: nn.Module = RMSNorm(embed_dim, backend)
        self.head_drop = nn.Dropout(drop_rate)
        self.reset_classifier(num_classes, global_pool)
        self._init_weights()

    @torch.no_grad()
    def _init_weights(self) -> None:
        """As the official code does it; whatever is not named here keeps what its module set for itself."""
        lecun_normal_(self.patch_embed.proj.weight)
        self.get_parameter("patch_embed.proj.bias").zero_()
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for block in self.layers:  # their outputs add up in the residual stream
            block.get_parameter("mixer.out_proj.weight").div_(math.sqrt(len(self.layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """Images → normalised tokens (batch, n + 1, d), the class token in their middle."""
        x = self._embed(x)
        for block in self.layers:
            x = self._run(block, x)
        x = self.norm_f(x)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Tokens → logits, or with `pre_logits` what the classifier reads."""
        if self.global_pool == "token":
            x = middle_token(x)
        elif self.global_pool == "avg":
            x = split_middle(x)[0].mean(dim=1)
        x = self.head_drop(x)
        x = x if pre_logits else self.head(x)
        return x

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        output_dict: bool = False,
    ) -> Any:
        """The tokens after chosen blocks, without the class token. Arguments and results are those of timm's models.

        Args:
            x: Images.
            indices: Indices of the blocks, or a number n for the last n blocks; default: all.
            return_prefix_tokens: Return each with its class token (batch, 1, d), which timm calls prefix.
            norm: Pass them through the last norm.
            stop_early: Do not run the blocks after the last chosen one.
            output_fmt: "NCHW" for maps (batch, d, h, w), "NLC" for sequences (batch, h·w, d).
            intermediates_only: Return only the intermediates; otherwise the result of `forward_features` and the
                intermediates.
            output_dict: Return a dict, "image_features" and "image_intermediates".
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise ValueError(unknown("output_fmt", output_fmt, ("NCHW", "NLC")))
        chosen, last = feature_take_indices(len(self.layers), indices)
        grid = self.patch_embed.grid_of(x.shape[-2], x.shape[-1])
        x = self._embed(x)
        maps, class_tokens = [], []
        for i, block in enumerate(self.layers[: last + 1] if stop_early else self.layers):
            x = self._run(block, x)
            if i in chosen:
                patches, class_token = split_middle(self.norm_f(x) if norm else x)
                maps.append(patches.transpose(1, 2).unflatten(2, grid) if output_fmt == "NCHW" else patches)
                class_tokens.append(class_token)
        if output_dict:
            features = {} if intermediates_only else {"image_features": self.norm_f(x)}
            prefix = {"image_intermediates_prefix": class_tokens} if return_prefix_tokens else {}
            return {**features, "image_intermediates": maps, **prefix}
        intermediates = list(zip(maps, class_tokens, strict=True)) if return_prefix_tokens else maps
        return intermediates if intermediates_only else (self.norm_f(x), intermediates)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove the layers that these intermediates do not need; `features_only=True` calls it."""
        chosen, last = feature_take_indices(len(self.layers), indices)
        self.layers = self.layers[: last + 1]
        if prune_norm:
            self.norm_f = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return chosen

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: Classes, global_pool: str | None = None) -> None:
        """A new head for `num_classes`, or none for 0; optionally with another pooling."""
        check(VisionMamba.reset_classifier, {"num_classes": num_classes})
        if global_pool is not None:
            if global_pool not in POOLS:
                raise ValueError(unknown("global_pool", global_pool, POOLS))
            self.global_pool = global_pool
        self.num_classes = num_classes
        self.config |= {"num_classes": num_classes, "global_pool": self.global_pool}
        self.head: nn.Module = nn.Identity()
        if num_classes > 0:
            head = nn.Linear(self.embed_dim, num_classes).to(self.pos_embed)
            nn.init.trunc_normal_(head.weight, std=0.02)
            nn.init.zeros_(head.bias)
            self.head = head
        self.head.train(self.training)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Store only the inputs of the blocks, and compute the rest again in the backward pass."""
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Parameters without weight decay: A, D, biases, norms, embeddings."""
        kept = ("pos_embed", "cls_token", "A_log", "A_b_log")
        return {name for name, p in self.named_parameters() if p.ndim <= 1 or name.endswith(kept)}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The depth of each parameter, for layer-wise learning rates."""
        return {
            "stem": r"^cls_token|^pos_embed|^patch_embed",
            "blocks": [(r"^layers\.(\d+)", None), (r"^norm_f", (99999,))],
        }

    def _run(self, block: nn.Module, x: Tensor) -> Tensor:
        x = checkpoint(block, x, use_reentrant=False) if self.grad_checkpointing else block(x)
        return x

    def _embed(self, x: Tensor) -> Tensor:
        """Images → tokens (batch, n + 1, d) with their positions, in at least float32."""
        grid = self.patch_embed(x)  # (batch, d, h, w)
        size, expected = tuple(x.shape[2:]), self.patch_embed.img_size
        if not self.dynamic_img_size and size != expected:
            made_for, got = (f"{height} x {width}" for height, width in (expected, size))
            raise ValueError(f"the model is made for images of {made_for}, got {got}; dynamic_img_size=True takes any")
        patches = grid.flatten(2).transpose(1, 2).to(torch.promote_types(grid.dtype, torch.float32))
        positions = resample_pos_embed(self.pos_embed, self.patch_embed.grid_size, tuple(grid.shape[2:]))
        return insert_middle(patches, self.cls_token) + positions


def unwrapped(model: nn.Module) -> Any:
    """A VisionMamba, or a model made of one, inside the wrappers of compilation and distributed training."""
    model = unwrap_model(model)
    if not hasattr(model, "config"):
        raise ValueError(f"expected a VisionMamba, got {type(model).__name__}")
    return model


def plain_model(model: nn.Module) -> VisionMamba:
    """The same, for a VisionMamba only."""
    model = unwrapped(model)
    if not isinstance(model, VisionMamba):
        raise ValueError(f"expected a VisionMamba, got {type(model).__name__}")
    return model
