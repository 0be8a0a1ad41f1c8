"""The models of PyTorch's tutorial on channels last, with the ranges that it claims for two devices."""

from __future__ import annotations

from nhwc.suite import Claim, Suite, SuiteModel

#: +8 % to +35 %, in training with mixed precision.
VOLTA = Claim("cuda", "Volta GPU, AMP training", 1.08, 1.35)
#: +26 % to +76 %; the tutorial names no mode.
ICE_LAKE = Claim("cpu", "Xeon, Ice Lake or newer", 1.26, 1.76)

ON_VOLTA = frozenset(
    "alexnet mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 resnet18 resnet34 resnet50 resnet101 resnet152 "
    "resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0 "
    "squeezenet1_1 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn wide_resnet50_2 wide_resnet101_2".split()
)
ON_ICE_LAKE = frozenset(
    "alexnet densenet121 densenet161 densenet169 googlenet inception_v3 mnasnet0_5 mnasnet1_0 resnet18 resnet34 "
    "resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0 "
    "squeezenet1_1 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn wide_resnet50_2 wide_resnet101_2".split()
)


def _claims(name: str) -> tuple[Claim, ...]:
    return tuple(claim for claim, listed in ((VOLTA, ON_VOLTA), (ICE_LAKE, ON_ICE_LAKE)) if name in listed)


TUTORIAL = Suite(
    "tutorial",
    "the models that PyTorch's tutorial on channels last lists, with the range that it claims for a Volta GPU in AMP "
    "training (1.08 to 1.35) and for a Xeon of the Ice Lake generation or newer (1.26 to 1.76)",
    tuple(SuiteModel(name, name, _claims(name)) for name in sorted(ON_VOLTA | ON_ICE_LAKE)),
)
