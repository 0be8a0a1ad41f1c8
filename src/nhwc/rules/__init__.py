"""Trace → findings. One small file per rule; importing this package registers them all."""

from nhwc.rules import (
    nh101_explicit_copy,
    nh102_hidden_copy,
    nh103_library_reorder,
    nh104_weight_reorder,
    nh105_weight_copy,
    nh201_format_loss,
    nh202_mixed_operands,
    nh203_contiguous_gradient,
    nh204_slow_convolution,
    nh205_slow_in_channels_last,
    nh301_gradient_strides,
    nh302_noncanonical_strides,
    nh303_layout_dependent,
    nh401_fused_optimizer,
    nh402_rank_layouts,
    nh403_raises,
)
from nhwc.rules.findings import find, rank
from nhwc.rules.registry import RULES, Draft, Rule, rule, rule_for

__all__ = ["RULES", "Draft", "Rule", "find", "rank", "rule", "rule_for"]

_RULE_FILES = (
    nh101_explicit_copy,
    nh102_hidden_copy,
    nh103_library_reorder,
    nh104_weight_reorder,
    nh105_weight_copy,
    nh201_format_loss,
    nh202_mixed_operands,
    nh203_contiguous_gradient,
    nh204_slow_convolution,
    nh205_slow_in_channels_last,
    nh301_gradient_strides,
    nh302_noncanonical_strides,
    nh303_layout_dependent,
    nh401_fused_optimizer,
    nh402_rank_layouts,
    nh403_raises,
)
