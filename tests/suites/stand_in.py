"""Stands in for the process that measures one model: what it does follows from the model's name.

Called as ``stand_in.py [...] TARGET [options]``; every call leaves its words in the file that STAND_IN_LOG names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import bench_sample

from nhwc.cli.child import end_with_parent
from nhwc.schema import dump_bench


def main(words: list[str]) -> int:
    end_with_parent()
    target = words[words.index("bench") + 1] if "bench" in words else words[0]
    with Path(os.environ["STAND_IN_LOG"]).open("a", encoding="utf-8") as log:
        log.write(" ".join(words) + "\n")
    if target == "slow":
        time.sleep(120)
    if target == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if target == "raises":
        sys.stderr.write("some warning\nnhwc: the model raised ValueError: no; --debug shows the traceback\nmore\n")
        return 2
    if target == "silent":
        return 3
    if target == "babbles":
        sys.stdout.write("this is no measurement\n")
        return 0
    made = bench_sample.slower() if target == "slower" else bench_sample.faster()
    sys.stdout.write(f"building {target}, which talks\n{json.dumps(dump_bench(made))}\n")
    return 1 if target == "slower" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
