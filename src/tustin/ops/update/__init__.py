"""One token at a time: what the scan and the convolution do to their states when the next token comes, in place."""

from .conv import causal_conv_update
from .state import selective_state_update

__all__ = ["causal_conv_update", "selective_state_update"]
