"""ultralytics/ultralytics#25362: exported runtimes bind ``data_ptr()`` as contiguous and read channels last wrongly.

The model answers otherwise once its input is converted. No operator copies or loses anything, so the audit is silent:
only comparing outputs finds it. A border around the part that reads addresses cures it. NumPy heeds strides.
"""

import numpy as np
import torch
from torch import nn

import nhwc

EXPECT = {
    "outputs_equal": False,
    "observe": {
        "layout_invariant": False,
        "layout_invariant_behind_a_border": True,
        "numpy_equal": True,
        "numpy_c_order": False,
    },
}


class Bound(nn.Module):
    """Mimics a runtime that takes an address and a shape, and assumes dense N, C, H, W."""

    def forward(self, x):
        flat = torch.empty(x.numel()).set_(x.untyped_storage(), x.storage_offset(), (x.numel(),), (1,))
        return flat.view(x.shape).sum(dim=(2, 3))


def build():
    return Bound(), (torch.randn(2, 3, 4, 4),)


def observe():
    model, (x,) = build()
    y = nhwc.to_format(x, "channels_last")
    plain, invariant = model(x), torch.allclose(model(x), model(y))
    bordered = nhwc.convert(model, "contiguous", inputs=True)
    return {
        "layout_invariant": invariant,
        "layout_invariant_behind_a_border": torch.allclose(plain, bordered(y)),
        "numpy_equal": np.array_equal(x.numpy(), y.numpy()),
        "numpy_c_order": y.numpy().flags["C_CONTIGUOUS"],
    }
