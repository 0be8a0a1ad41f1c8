"""The verification on a terminal: the first sentence, a part for each variant, notes and facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.proof import Outcome
from nhwc.report.registry import report_format
from nhwc.report.terminal import Paper, as_string
from nhwc.report.verification.summary import divergence_facts, headline, more_text, result_text, worst_results

if TYPE_CHECKING:
    from rich.console import Console

    from nhwc.proof import VariantProof, Verification

_STYLES = {
    Outcome.PASSED: "bold green",
    Outcome.DIVERGED: "bold red",
    Outcome.RAISED: "bold red",
    Outcome.NOT_COMPARABLE: "bold yellow",
}


def print_verification(verification: Verification, console: Console) -> None:
    """Print a verification, as wide as the console (120 columns at most), in ASCII where it knows no more."""
    _Page(verification, console).print()


@report_format("text", "verification")
def render_text(verification: Verification, width: int = 100, color: bool = False) -> str:
    """The terminal report as a string, the same on every machine; ``color`` adds ANSI escapes."""
    return as_string(lambda console: print_verification(verification, console), width, color)


class _Page(Paper):
    """Writes one verification to one console."""

    def __init__(self, verification: Verification, console: Console) -> None:
        super().__init__(console)
        self.verification = verification

    def print(self) -> None:
        verification = self.verification
        self.line(headline(verification), "bold green" if verification.passed else "bold red")
        for variant in verification.variants:
            self.gap()
            self.variant(variant)
        self.section("Notes", [f"{note[:1].upper()}{note[1:]}." for note in verification.notes])
        self.gap()
        step = "training step" if verification.training else "forward pass"
        self.line(
            f"{verification.target}, one {step} against float64, factor {verification.factor:g}, "
            f"{verification.device}, torch {verification.torch}, {verification.seconds:.1f} s",
            "dim",
        )

    def variant(self, variant: VariantProof) -> None:
        self.line(f"{variant.name}: {variant.outcome.value}", _STYLES[variant.outcome])
        self.row("•", f"{variant.reason}.", indent=2)
        if variant.kernels:
            self.row("•", f"nhwc's kernels were on: {', '.join(variant.kernels)}", "dim", indent=2)
        for result in worst_results(variant):
            self.row("•", result_text(result), indent=2)
        more = more_text(variant)
        if more:
            self.row("•", more, indent=2)
        if variant.divergence is not None:
            for label, text in divergence_facts(variant.divergence):
                self.row(f"{label:<9}", text, indent=4)
