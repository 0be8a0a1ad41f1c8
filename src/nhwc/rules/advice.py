"""What to do about an operator that leaves channels last, by the operator's name as the user calls it."""

from __future__ import annotations

from nhwc.model import Call, TensorMeta
from nhwc.rules.flow import CONVOLUTIONS, caller_name, copy_ends

_ELSEWHERE = "; elsewhere "


def _kernel(name: str) -> str:
    """For recordings of compiled code and of GPUs; where a kernel would help, the audit says so itself."""
    return f"in eager code on the CPU nhwc.kernels.use({name!r}) keeps channels last"


def without_kernel(advice: str, name: str) -> str:
    """What is left of an advice where the kernel ``name`` cannot run; empty where that was all.

    >>> without_kernel("in eager code on the CPU nhwc.kernels.use('pad') keeps channels last; elsewhere crop", "pad")
    'crop'
    """
    return advice.partition(_ELSEWHERE)[2] if advice.startswith(_kernel(name)) else advice


_BY_OPERATOR = {
    "instance_norm": "use group_norm with one group per channel: the same numbers without running statistics",
    "avg_pool3d": "use max_pool3d or a strided convolution where the model allows, or keep this part contiguous",
    "adaptive_avg_pool3d": "use mean over space where the output size is 1, or pool after the last convolution",
    **{
        name: f"{_kernel(name)}{_ELSEWHERE}convert the feature map once before all calls"
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
    },
    "deform_conv2d": f"{_kernel('deform_conv2d')}{_ELSEWHERE}keep the layers around deform_conv2d in contiguous format",
    "im2col": f"{_kernel('unfold')}{_ELSEWHERE}unfold before the channels-last part",
    "col2im": f"{_kernel('unfold')} where each place's values lie side by side: fold(tokens.transpose(1, 2), ...)",
    "repeat_interleave": "use torch.nn.functional.interpolate(mode='nearest'), which keeps channels last",
    "index_select": "gather along N, H or W before the channels-last part, or use narrow and chunk, which are views",
    "repeat": "use expand where the result is only read, or interpolate(mode='nearest')",
    "flatten": "before a Linear, nhwc.convert(model, flatten=inputs) makes it a view, and permutes the weight once",
    "copy_": "allocate the buffer in channels last: memory_format=torch.channels_last where it is made",
    "contiguous": "drop .contiguous() and use reshape, which copies only where it must",
    "pad": "use reflect, replicate or constant padding, which keep channels last",
    "_pad_circular": "use reflect, replicate or constant padding, which keep channels last",
    "cat": "make every operand channels last where it is created: .to(memory_format=torch.channels_last)",
    "grid_sampler": "keep the sampled branch small, or convert its output once where several convolutions read it",
    "pixel_shuffle": "convert to contiguous around this one operator, or shuffle each depth slice as a 4-D tensor",
}
_BY_OPERATOR["reshape"] = _BY_OPERATOR["flatten"]


def advice_for(call: Call) -> str:
    """One sentence on how to avoid the loss at ``call``."""
    if call.name in CONVOLUTIONS:
        return "audit with production shapes: batch 1, small volumes, 1x1x1 kernels and float64 pick another backend"
    name = caller_name(call)
    source, _ = copy_ends(call)
    if (
        source is not None
        and len(source.shape) == 5
        and _is_split(source)
        and name in ("contiguous", "clone", "reshape")
    ):
        return f"use torch.channel_shuffle(x, groups), which keeps channels last, for this view, transpose and {name}"
    for key in (name, call.name, name.removeprefix("_"), call.name.removesuffix("_backward")):
        if key in _BY_OPERATOR:
            return _BY_OPERATOR[key]
    return f"move {name} out of the channels-last part, or replace it by an operator that keeps the format"


def _is_split(meta: TensorMeta) -> bool:
    """Whether a 5-D tensor is a 4-D one with its channels split in two and transposed."""
    return meta.strides[1] < meta.strides[2] or meta.strides[2] < min(meta.strides[3:])
