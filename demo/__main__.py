"""``make demo``: audit two models on photographs that scikit-image ships; measure and verify the first; write pages.

shufflenet_v2_x1_0 gets the photographs as they are. r3d_18 classifies videos, and no package at hand ships one: it gets
clips made of a photograph seen through a window that moves from corner to corner.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import skimage

PHOTOGRAPHS = (
    "astronaut.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "coins.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "rocket.jpg",
)
MODELS = ("shufflenet_v2_x1_0", "r3d_18")
SECONDS = 15  # for measuring the first model


def main(folder: Path) -> None:
    """Copy the photographs into ``folder`` and run the commands on them, their pages beside them."""
    pictures = folder / "photographs"
    pictures.mkdir(parents=True, exist_ok=True)
    for name in PHOTOGRAPHS:
        shutil.copy(Path(skimage.__file__).parent / "data" / name, pictures)
    pages = [folder / f"{model}.html" for model in MODELS]
    for model, page in zip(MODELS, pages, strict=True):
        run("audit", model, "--images", str(pictures), "-o", str(page))
    first = (MODELS[0], "--images", str(pictures))
    pages.append(folder / f"{MODELS[0]}.bench.html")
    run("bench", *first, "--budget", str(SECONDS), "-o", str(pages[-1]))
    run("verify", *first)
    print("\nOpen in a browser:", *(f"  {page.resolve().as_uri()}" for page in pages), sep="\n")


def run(*arguments: str) -> None:
    """Run the ``nhwc`` command as a shell would."""
    print(f"\n$ nhwc {' '.join(arguments)}\n", flush=True)
    subprocess.run([sys.executable, "-m", "nhwc", *arguments], check=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
