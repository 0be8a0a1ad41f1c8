"""The scripts under benchmarks/ import each other by name, as they do when one is run."""

import sys

from meta.project import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
