"""An arrangement put on a model: formats of weights, conversions at module boundaries, kernels for this model only."""

from nhwc.optimization.applying import arrange, is_arranged, rearranged, take_off
from nhwc.optimization.arrangement import Arrangement, arrangement_of
from nhwc.optimization.scope import kernels_of

__all__ = ["Arrangement", "arrange", "arrangement_of", "is_arranged", "kernels_of", "rearranged", "take_off"]
