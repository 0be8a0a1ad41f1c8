"""Models through eager NCHW and channels last, torch.compile, ONNX Runtime, OpenVINO and nhwc.engine, in float32.

Each contender is a process of its own; blocks alternate in random order with a rest before each, since the spinning
thread pools of two runtimes slow each other. Ratios say how many times faster than eager NCHW a contender is.

    pip install -r benchmarks/requirements.txt
    python benchmarks/peers.py --models resnet50,mobilenet_v2 --batches 1,8 --budget 1200 -o results.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from alternation import Entry, alternate, prepare, summary
from contenders import CONTENDERS, missing
from peer_models import LISTS, known

from nhwc.errors import NhwcError, SchemaError, TargetError
from nhwc.machine import ChildError, available_cores, conditions
from nhwc.machine.child import Child, environ_for_python
from nhwc.schema.typed import plain
from nhwc.suites.files import write_whole

FORMAT, VERSION = "nhwc-peers", 1
BASELINE = "eager_nchw"
#: The greatest difference from eager float32, as a share of its greatest output, at which a contender is timed.
TOLERANCE = 1e-3
REST_S = 0.25
MODELS = (
    "resnet18,resnet50,mobilenet_v2,mnasnet1_0,densenet121,shufflenet_v2_x1_0,squeezenet1_1,googlenet,vgg11_bn,"
    "resnext50_32x4d"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, or 2 with one sentence."""
    try:
        measure(parse(arguments))
    except NhwcError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("peers: interrupted; --resume goes on", file=sys.stderr)
        return 130
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Models may be "tutorial", all 34 of the tutorial's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS, help=f"names with commas between, or: {', '.join(LISTS)}")
    parser.add_argument("--batches", default="1,8", help="pictures per step")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="some of these; the first is the baseline")
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="for everything")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each contender at most")
    parser.add_argument("--block-ms", type=float, default=300.0, help="how long a block lasts at least")
    parser.add_argument("--threads", type=int, default=max(1, int(available_cores())), help="of every contender")
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and order")
    parser.add_argument("--resume", action="store_true", help="keep what -o FILE already holds and go on")
    parser.add_argument("-o", "--output", type=Path, help="write every sample as JSON, after each model")
    asked = parser.parse_args(arguments)
    asked.models = list(LISTS.get(asked.models) or asked.models.split(","))
    asked.contenders = asked.contenders.split(",")
    try:
        asked.batches = [int(batch) for batch in asked.batches.split(",")]
    except ValueError:
        parser.error(f"--batches {asked.batches}: write whole numbers with commas between, such as 1,8")
    unknown = [name for name in asked.contenders if name not in CONTENDERS]
    if unknown:
        parser.error(f"--contenders: there is no {unknown[0]!r}; the known ones are {', '.join(CONTENDERS)}")
    if BASELINE not in asked.contenders:
        parser.error(f"--contenders must hold {BASELINE}, which every ratio is against")
    if asked.resume and asked.output is None:
        parser.error("--resume needs the file to go on with: -o FILE")
    return asked


def measure(asked: argparse.Namespace) -> None:
    """Measure every model at every batch, and write and print each as soon as it is done."""
    unknown = [name for name in asked.models if name not in known()]
    if unknown:
        raise TargetError(f"--models: torchvision has no model {unknown[0]!r} for pictures or video")
    document = opened(asked)
    done = {(result["model"], result["batch"]) for result in document["results"]}
    todo = [(model, batch) for model in asked.models for batch in asked.batches if (model, batch) not in done]
    if done:
        print(f"{len(done)} already measured, {len(todo)} to go")
    present = []
    for name in asked.contenders:
        absent = missing(name)
        if absent:
            print(f"{name} is left out: {', '.join(absent)} not installed (pip install -r benchmarks/requirements.txt)")
        else:
            present.append(name)
    end = time.monotonic() + asked.budget
    for place, (model, batch) in enumerate(todo):
        left = end - time.monotonic()
        if left <= 0:
            print(f"the budget of {asked.budget:.0f} s ended: {len(todo) - place} of {len(todo)} not measured")
            break
        result = one(model, batch, present, asked, left / (len(todo) - place))
        document["results"].append(result)
        if asked.output is not None:
            write_whole(asked.output, json.dumps(document, indent=1, allow_nan=False) + "\n")
        print(table(result), flush=True)


def opened(asked: argparse.Namespace) -> dict[str, Any]:
    """The document to fill: new, or with --resume the one in the output file, if it was made alike."""
    protocol = {
        "baseline": BASELINE,
        "block_ms": asked.block_ms,
        "dtype": "float32",
        "mode": "inference",
        "rest_s": REST_S,
        "seed": asked.seed,
        "threads": asked.threads,
        "tolerance": TOLERANCE,
    }
    peers = {package for name in CONTENDERS for package in CONTENDERS[name].packages}
    new = {
        "format": FORMAT,
        "version": VERSION,
        "command": "python " + " ".join(sys.argv),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "protocol": protocol,
        "conditions": plain(conditions("cpu")),
        "peers": versions(sorted(peers)),
        "results": [],
    }
    if not (asked.resume and asked.output.exists()):
        return new
    return resumed(asked.output, new)


def resumed(path: Path, new: dict[str, Any]) -> dict[str, Any]:
    """The document in a file, if its samples can stand beside new ones; SchemaError says why they cannot."""
    try:
        old: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise SchemaError(f"{path} is not JSON ({error}); take another file, or leave out --resume") from error
    if not isinstance(old, dict) or (old.get("format"), old.get("version")) != (FORMAT, VERSION):
        raise SchemaError(f"{path} holds no {FORMAT} of version {VERSION}; take another file, or leave out --resume")
    for key in ("protocol", "conditions", "peers"):
        changed = sorted(name for name in {**old[key], **new[key]} if old[key].get(name) != new[key].get(name))
        if changed:
            raise SchemaError(
                f"{path} was measured with other {key} ({', '.join(changed)}): its ratios cannot stand beside new "
                "ones; take another file"
            )
    kept: dict[str, Any] = old
    return kept


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Package → installed version, "" where it is not installed."""
    from nhwc.machine.versions import installed_version

    return {package: installed_version(package) for package in packages}


def one(model: str, batch: int, names: Sequence[str], asked: argparse.Namespace, share_s: float) -> dict[str, Any]:
    """One model at one batch, in at most about ``share_s`` seconds."""
    start = time.monotonic()
    entries = [Entry(name) for name in names]
    environ = environ_for_python({**os.environ, "OMP_NUM_THREADS": str(asked.threads)})
    question = {"model": model, "batch": batch, "threads": asked.threads, "seed": asked.seed}
    command = [sys.executable, str(Path(__file__).with_name("contenders.py"))]
    with ExitStack() as stack:
        workers: dict[str, Child] = {}
        for place, entry in enumerate(entries):
            progress(f"{model}, batch {batch}: preparing {entry.name}", place, len(entries))
            try:
                workers[entry.name] = stack.enter_context(Child(entry.name, command, environ))
            except ChildError as error:
                entry.failure = str(error)
                continue
            prepare(workers[entry.name], entry, question, TOLERANCE, asked.block_ms)
            if entry.failure:
                workers.pop(entry.name).close()
        alternate(
            workers,
            entries,
            rounds=asked.rounds,
            until_s=start + share_s,
            rest_s=REST_S,
            seed=asked.seed,
            progress=lambda done, total: progress(f"{model}, batch {batch}: rounds", done, total),
        )
    progress("", 0, 0)
    seconds = round(time.monotonic() - start, 1)
    return {"model": model, "batch": batch, "seconds": seconds, "contenders": summary(entries, BASELINE)}


def table(result: dict[str, Any]) -> str:
    """A result as text: median milliseconds, and the ratio with its interval."""
    rounds = max((len(each["samples_ms"]) for each in result["contenders"]), default=0)
    lines = [f"{result['model']}, batch {result['batch']}: {rounds} rounds in {result['seconds']:.0f} s"]
    for each in result["contenders"]:
        label = CONTENDERS[each["name"]].label
        if each["failure"]:
            lines.append(f"  {label:<38} {each['failure']}")
            continue
        ms = statistics.median(each["samples_ms"]) if each["samples_ms"] else float("nan")
        ratio = each["ratio"]
        told = "1" if ratio is None else f"{ratio['estimate']:.2f}  {interval(ratio)}"
        lines.append(f"  {label:<38} {ms:9.2f} ms  {told}")
    return "\n".join(lines)


def interval(ratio: dict[str, Any]) -> str:
    """The 95 % interval as text; too few rounds have none."""
    if not isinstance(ratio["high"], float):
        return "(too few rounds for an interval)"
    return f"({ratio['low']:.2f} to {ratio['high']:.2f})"


def progress(stage: str, done: int, total: int) -> None:
    """One line on stderr that is written over, on a terminal only; an empty stage clears it."""
    if sys.stderr.isatty():
        text = f"{stage} {done}/{total}" if stage else ""
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
