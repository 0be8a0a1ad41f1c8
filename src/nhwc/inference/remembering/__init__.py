"""What is kept between processes, so that a model that is built again is neither captured nor compared again."""

from nhwc.inference.remembering.accuracies import Accuracies
from nhwc.inference.remembering.kept import Captures

__all__ = ["Accuracies", "Captures"]
