"""Channels-last kernels for the operators that lose the format, switched on by one line.

>>> import nhwc
>>> with nhwc.kernels.use():
...     "instance_norm" in nhwc.kernels.active()
True
"""

from __future__ import annotations

from nhwc.kernels import (
    activation,
    batch_norm,
    conv2d,
    conv3d,
    conversion,
    deform_conv,
    grid_sample,
    indexing,
    joining,
    mixed,
    norm,
    padding,
    pool_average,
    pool_maximum,
    pool_unpool,
    resample,
    roi,
    roi_pool,
    roi_position,
    shuffle,
    softmax,
    triton,
    unfold,
)
from nhwc.kernels.registry import Kernel, kernels, replacing
from nhwc.kernels.switch import active, disable, enable, use

__all__ = ["Kernel", "active", "disable", "enable", "kernels", "replacing", "use"]

#: The files that register kernels, imported above for that.
FAMILIES = (
    activation,
    batch_norm,
    conv2d,
    conv3d,
    conversion,
    deform_conv,
    grid_sample,
    indexing,
    joining,
    mixed,
    norm,
    padding,
    pool_average,
    pool_maximum,
    pool_unpool,
    resample,
    roi,
    roi_pool,
    roi_position,
    shuffle,
    softmax,
    triton,
    unfold,
)
