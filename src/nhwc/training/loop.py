"""The loop of a run: epochs of steps, an evaluation and a checkpoint after each."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from nhwc import kernels
from nhwc.errors import TrainingError, printable
from nhwc.training import ranks
from nhwc.training.agreement import Agreement
from nhwc.training.choosing import Choice
from nhwc.training.context import Context
from nhwc.training.evaluation import Judge
from nhwc.training.finding import Found
from nhwc.training.logs import Sinks, open_sinks
from nhwc.training.optimizers import make_optimizer
from nhwc.training.persistence import Memory
from nhwc.training.precision import Precision
from nhwc.training.preparation import Prepared
from nhwc.training.progress import EpochNumbers, Place, no_number
from nhwc.training.randomness import seed_everything
from nhwc.training.records import EvaluationRecord, Sink, StepRecord
from nhwc.training.result import TrainReport
from nhwc.training.schedules import learning_rate
from nhwc.training.shares import Shares, Stopwatch
from nhwc.training.sources import Sources, loader
from nhwc.training.spelling import spelled
from nhwc.training.steps import Stepper
from nhwc.training.stopping import Stopping
from nhwc.training.wording import counted


class Training:
    """One run on one rank."""

    def __init__(self, prepared: Prepared, choice: Choice, sources: Sources, context: Context) -> None:
        self._prepared, self._choice, self._sources, self._context = prepared, choice, sources, context
        self._settings = settings = context.settings
        self._batches = loader(sources, context, training=True)
        self._steps = math.ceil(len(self._batches) / settings.accumulate)
        optimizer = make_optimizer(prepared.wrapped, settings)
        precision = Precision(settings.amp, context.device)
        self._watch = Stopwatch(context.device)
        if context.world.size > 1 and not settings.fsdp:
            self._watch.watch(prepared.core)
        self._numbers = EpochNumbers(context.device)
        self._stepper = Stepper(
            prepared, optimizer, precision, settings, sources.classes, self._numbers.sums, self._watch
        )
        self._agreement = Agreement(context)
        self._judge: Judge | None = None
        if sources.evaluation is not None:
            judged = loader(sources, context, training=False)
            self._judge = Judge(prepared, judged, precision, context, self._agreement, sources.classes, sources.shape)
        self._images_per_step = settings.batch * settings.accumulate * context.world.size
        order = {
            "seed": settings.seed,
            "images": len(sources.training),
            "images per step": self._images_per_step,
            "steps per epoch": self._steps,
        }
        self._memory = Memory(
            prepared, optimizer, precision, self._batches, self._numbers, context, order, sources.names
        )
        self._place = Place()
        self._evaluation: EvaluationRecord | None = None
        self._best: float | None = None
        self._records: list[StepRecord] = []
        self._told: set[str] = set()
        self._tell = Sinks(())
        seed_everything(settings.seed + context.world.rank)  # from here on ranks draw their own numbers

    def run(self, found: Found | None, notes: Sequence[str], sinks: Sequence[Sink]) -> TrainReport:
        """Go on from the checkpoint that was found, to the end; ``sinks`` and the run's own logs are told.

        notes: sentences on what came before.
        """
        notes = [*notes, *([] if found is None else self._restore(found))]
        first = self._context.world.rank == 0
        self._tell = Sinks([*sinks, *self._own_sinks()] if first else [])
        try:
            for note in [*notes, *self._introduction()]:
                self._tell.note(note)
            self._run()
            report = self._report()
            for line in report.summary(evaluated=self._settings.evaluate_only):
                self._tell.note(line)
            return report
        finally:
            self._tell.close()
            self._batches.close()
            if self._judge is not None:
                self._judge.close()

    def _own_sinks(self) -> list[Sink]:
        return open_sinks(self._settings, self._place.update, self._sources.names)

    def _restore(self, found: Found) -> list[str]:
        state = found.state
        self._place, notes = self._memory.restore(state)
        self._evaluation = None if state["evaluation"] is None else EvaluationRecord(**state["evaluation"])
        self._best = state["best_top1"]
        if self._judge is not None and self._settings.evaluate_only:
            self._judge.averaged = state["average"] is not None
        return [found.said, *notes]

    def _introduction(self) -> list[str]:
        prepared, sources, settings = self._prepared, self._sources, self._settings
        judged = 0 if sources.evaluation is None else len(sources.evaluation)
        format_, kernels_ = prepared.memory_format.replace("_", " "), "on" if prepared.kernels else "off"
        first = f"weights and batches in {format_} ({self._choice.why}), nhwc's kernels {kernels_}"
        if settings.evaluate_only:
            return [first, f"{judged} images of {sources.classes} classes to evaluate on"]
        images = f"{len(sources.training)} images of {sources.classes} classes to train on, {judged} to evaluate on"
        lines = [first, images, self._on_steps()]
        if self._context.world.size == 1 and (settings.fsdp or settings.sync_batch_norm):
            two = f"{spelled('fsdp')} and {spelled('sync_batch_norm')}"
            lines.append(f"there is one process: {two} change nothing; start several with torchrun")
        lines += self._choice.notes
        if settings.folder is None:
            lines.append("no folder is named: nothing will be kept")
        return lines

    def _on_steps(self) -> str:
        size, batches, accumulate = self._context.world.size, len(self._batches), self._settings.accumulate
        where = f"{size} process{'es' if size > 1 else ''} on {self._context.device.type}"
        share = self._settings.batch * size
        rest = batches % accumulate
        if batches < accumulate:
            few = f"fewer batches than {spelled('accumulate')} {accumulate}"
            return f"{counted(self._steps, 'step')} an epoch, of {share * batches} images ({few}), {where}"
        last = f" (its last of {share * rest})" if rest else ""
        return f"{counted(self._steps, 'step')} an epoch, of {self._images_per_step} images{last}, {where}"

    def _run(self) -> None:
        if self._settings.evaluate_only:
            try:
                self._evaluate()
            except Stopping as stopping:
                raise KeyboardInterrupt from stopping
            return
        if self._finished():
            more = spelled("max_steps" if self._at_most() else "epochs")
            self._tell.note(f"already done; raise {more} to go on")
        try:
            while not self._finished():
                self._train_epoch()
                better = self._evaluate()
                if self._place.step == self._steps:
                    self._place = self._place.next_epoch()
                    self._numbers.clear()
                self._save(best=better)
        except Stopping as stopping:
            self._save(best=False)
            folder = self._settings.folder
            kept = "" if folder is None else f"; go on from {folder} with {spelled('resume')}"
            self._tell.note(f"stopped in epoch {self._place.epoch} after step {self._place.step}{kept}")
            raise KeyboardInterrupt from stopping

    def _finished(self) -> bool:
        return self._place.epoch >= self._settings.epochs or self._at_most()

    def _at_most(self) -> bool:
        return self._settings.max_steps is not None and self._place.update >= self._settings.max_steps

    def _save(self, *, best: bool) -> None:
        self._memory.save(self._place, self._evaluation, self._best, best=best)

    def _train_epoch(self) -> None:
        settings = self._settings
        if self._place.step == 0:
            self._batches.set_epoch(self._place.epoch)
        if self._place.step == self._steps:  # it was stopped while it was evaluated
            return
        self._prepared.wrapped.train()
        batches = iter(self._batches)
        while self._place.step < self._steps and not self._at_most():
            began = time.perf_counter()
            rate = learning_rate(settings, self._place.epoch, self._place.step, self._steps)
            count = min(settings.accumulate, len(self._batches) - self._place.step * settings.accumulate)
            self._place = self._place.after_step()
            self._stepper.take(batches, count, rate, self._place.update)
            self._after_step(began, rate)
            due = settings.save_every is not None and self._place.update % settings.save_every == 0
            if due and self._place.step < self._steps:
                self._save(best=False)

    def _after_step(self, began: float, rate: float) -> None:
        place = self._place
        due = place.step % self._settings.print_every == 0 or place.step == self._steps or self._at_most()
        if due:
            self._watch.collect()  # waits for the device, so that the clock below sees the work
        self._numbers.add_step(time.perf_counter() - began)
        self._tell.advance(f"epoch {place.epoch}", place.step, self._steps)
        if due:
            record = self._numbers.record(place, self._steps, rate)
            if not math.isfinite(record.loss):
                raise no_number(record.loss, place, self._memory.kept())
            self._records.append(record)
            self._tell_skipped()
            self._tell.step(record)
        self._agreement.after_step(together=due)

    def _tell_skipped(self) -> None:
        for name, reason in self._skipped().items():
            if name not in self._told:
                self._told.add(name)
                self._tell.note(f"{printable(name)} cannot be read and takes no part: {printable(reason)}")

    def _skipped(self) -> dict[str, str]:
        return {**self._batches.skipped, **({} if self._judge is None else self._judge.skipped)}

    def _evaluate(self) -> bool:
        """Evaluate where there is data to; returns whether it is the best so far."""
        if self._judge is None:
            if self._settings.evaluate_only:
                raise TrainingError(
                    f"there is nothing to evaluate on; name it as {spelled('evaluate')}, or put val/ beside train/"
                )
            return False
        found = self._judge.judge(self._place, self._tell.advance)
        self._tell_skipped()
        if not math.isfinite(found.loss):
            raise no_number(found.loss, self._place, self._memory.kept(), self._settings.evaluate_only)
        self._evaluation = found
        self._tell.evaluation(self._evaluation)
        better = self._best is None or self._evaluation.top1 > self._best
        self._best = self._evaluation.top1 if better else self._best
        return better

    def _report(self) -> TrainReport:
        self._watch.collect()
        seconds: dict[str, float | None] = dict(self._watch.seconds)
        if self._context.sharded:
            seconds["communication"] = None
        average = self._prepared.average
        skipped = {name: reason for each in ranks.everyones(self._skipped()) for name, reason in each.items()}
        return TrainReport(
            model=self._prepared.core,
            average=None if average is None else average.model,
            epochs=self._place.epoch,
            updates=self._place.update,
            records=tuple(self._records),
            evaluation=self._evaluation,
            best_top1=self._best,
            images=self._numbers.images,
            seconds=self._numbers.seconds,
            shares=Shares(seconds),
            memory_format=self._prepared.memory_format,
            kernels=kernels.active() if self._prepared.kernels else (),
            skipped=skipped,
            classes=self._sources.names,
            folder=self._settings.folder,
        )
