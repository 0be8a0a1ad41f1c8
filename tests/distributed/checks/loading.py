"""Four ranks go on with what two have saved: in shares of another size, one of them empty."""

from __future__ import annotations

import os
from pathlib import Path

from distributed.checks import norm
from distributed.checks.states import load_and_go_on, replicated, sharded

from nhwc.distributed import World

SAVED = Path(os.environ.get("SAVED", ""))


def check_shares_of_another_size(here: World) -> None:
    load_and_go_on(here, SAVED, build=sharded)


def check_replicas(here: World) -> None:
    load_and_go_on(here, SAVED, build=replicated)


def check_batch_norm_where_a_rank_has_no_image(here: World) -> None:
    norm.check_one_process_on_the_whole_batch(here)
    norm.check_half_and_single_precision(here)
