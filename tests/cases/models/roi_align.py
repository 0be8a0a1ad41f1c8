"""pytorch/vision#6619: torchvision's RoI kernels read contiguous only: roi_align copies the whole feature map.

The copy is in a C++ operator, where only the profiler sees it. The boxes, of rank 2, are never converted.
"""

import torch
from torch import nn
from torchvision.ops import roi_align

EXPECT = {"findings": [{"code": "NH102", "operator": "roi_align", "module": "", "bytes": 9216}], "clean": ["@backbone"]}


class RoiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x, boxes):
        f = self.backbone(x)
        crops = roi_align(f, boxes, output_size=4)
        return self.head(crops)  # expect: NH102 operator=conv2d module=head bytes=1536 cause=NH102


def build():
    boxes = torch.tensor([[0.0, 0, 0, 6, 6], [1.0, 2, 2, 9, 9], [1.0, 0, 3, 5, 11]])
    return RoiHead(), (torch.randn(2, 3, 12, 12), boxes)
