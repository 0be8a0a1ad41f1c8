"""Our own samples, for what torch's database lacks: one file per topic, listed here.

A new sample is one function in the file of its topic, or a file here with a line below.
"""

from nhwc.ops.samples import channels, convolutions, idioms, mixed, modules, norms, pooling, resampling, vision
from nhwc.ops.samples.registry import Draw, OwnOperator, own_operators, sample

__all__ = ["TOPICS", "Draw", "OwnOperator", "own_operators", "sample"]

#: The files that register samples, imported above for that.
TOPICS = (convolutions, norms, pooling, resampling, channels, idioms, mixed, modules, vision)
