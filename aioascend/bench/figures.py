# SPDX-License-Identifier: Apache-2.0
"""Figures that others have published for what concurrency brings on Ascend devices, as profiles.

Each profile in `profiles/` is made so that one request after the other gives the published "before". What the stages
take by themselves has not been published: it is chosen, so that the sum is right and the published "after" is possible.
The bound is what the busiest stage lets pass, worked out from the timeline of the sequential run. The published
throughput came from real devices, ours from a simulated one with the same "before"; so what is compared is the use
that is made of a device, not the speed of one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aioascend as aa
from aioascend.bench import video
from aioascend.bench.device import device_profile
from aioascend.bench.harness import Case, Sample, measure, run_on, stopwatch
from aioascend.bench.results import Goal, Part, Row, median_and_spread
from aioascend.bench.settings import Settings
from aioascend.bench.staged import (
    check,
    description,
    make_requests,
    overlapping,
    sequential,
    warm_up,
)
from aioascend.testing import TaskRecord

__all__ = ["FIGURES", "NAME", "Figure", "Variant", "goal", "run", "stage_seconds"]

NAME = "figures"
SEQUENTIAL = "sequential"

Program = Callable[[aa.Device, int], Awaitable[Sample]]
"""Runs so many requests; `rate` of the sample's figures are requests per second."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way to run the requests: ours, or the sequential one.

    Attributes:
        name: What the rows call it.
        published: Requests per second that were published for it.
        requests: So many in one measurement.
        program: Runs them.
        in_quick: Also measured in quick runs.
        fills: Held to the bound. Not where each stream sends a request and waits for its answer, so that it leaves its
            AI Core alone meanwhile.
    """

    name: str
    published: float
    requests: int
    program: Program
    in_quick: bool = True
    fills: bool = True


@dataclasses.dataclass(frozen=True)
class Figure:
    """A published figure; the first of its variants is the sequential one.

    Attributes:
        name: What it is about.
        unit: Of its throughput.
        profile: File of the device's profile.
        variants: The ways to run it.
        at_once: How many requests a stage, by its name, can have at the same time; 1 where it is not named.
        host_seconds: What the stages on the host take, by name.
    """

    name: str
    unit: str
    profile: str
    variants: tuple[Variant, ...]
    at_once: dict[str, int] = dataclasses.field(default_factory=dict)
    host_seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the profile is."""
        return Path(__file__).parent / "profiles" / self.profile

    @property
    def before(self) -> float:
        """Requests per second that were published for the sequential way."""
        return self.variants[0].published

    def variant(self, name: object) -> Variant:
        """The variant of this name."""
        return next(variant for variant in self.variants if variant.name == name)

    def bound(self, stages: dict[str, float]) -> float:
        """Requests per second that the busiest stage lets pass; `stages` are seconds on the device for one."""
        every = {**stages, **self.host_seconds}
        return 1 / max(seconds / self.at_once.get(stage, 1) for stage, seconds in every.items())


def stage_seconds(records: Iterable[TaskRecord], requests: int) -> dict[str, float]:
    """Seconds of device time that a request spends in each stage: the copies, and the models by name."""
    stages: dict[str, float] = {}
    for record in records:
        stage = record.name or record.unit
        if record.duration > 0:
            stages[stage] = stages.get(stage, 0.0) + record.duration / requests
    return stages


# --- the ways to run them ---


@asynccontextmanager
async def opened(
    npu: aa.Device, names: Sequence[str], streams: int
) -> AsyncIterator[tuple[list[aa.Model], list[aa.Stream]]]:
    """The models of these names and so many streams, until the end of the block."""
    async with AsyncExitStack() as stack:
        yield (
            [await stack.enter_async_context(npu.load_model(description(name))) for name in names],
            [await stack.enter_async_context(npu.create_stream()) for _ in range(streams)],
        )


def one_by_one(model: str) -> Program:
    """Each step of each request is waited for before the next one."""

    async def program(npu: aa.Device, requests: int) -> Sample:
        batch = make_requests(requests)
        async with opened(npu, [model], 1) as (models, streams):
            with stopwatch() as watch:
                await sequential(npu, streams[0], models, batch)
        check(batch)
        return watch.sample(requests, rate=requests / watch.seconds)

    return program


def on_streams(model: str, count: int, copies: int) -> Program:
    """Whichever stream is free takes the next request; the model is loaded so many times. All of the run counts."""

    async def program(npu: aa.Device, requests: int) -> Sample:
        batch = make_requests(requests)
        async with opened(npu, [model] * copies, count) as (models, streams):
            lanes = [(stream, models[number % copies]) for number, stream in enumerate(streams)]
            await warm_up(npu, lanes)
            with stopwatch() as watch:
                await overlapping(npu, lanes, batch)
        check(batch)
        return watch.sample(requests, rate=requests / watch.seconds)

    return program


def frame_by_frame(npu: aa.Device, requests: int) -> Awaitable[Sample]:
    """Each step of each frame is waited for before the next one."""
    return _video(npu, requests, 0)


def of_videos(videos: int) -> Program:
    """Frames of so many videos. What counts is the time from the second frame that is through to the last one.

    Filling the pipeline takes more than two frames' time, which would weigh on a run of a second as it does not on a
    camera's hours; and the first frame through is late, because its threads are only started then.
    """
    return lambda npu, requests: _video(npu, requests, videos)


async def _video(npu: aa.Device, requests: int, videos: int) -> Sample:
    frames = make_requests(requests if videos == 0 else max(3, requests))
    async with opened(npu, ["preprocess", "detect", "classify"], video.IN_FLIGHT if videos else 1) as (models, streams):
        for model in models if videos else []:
            await warm_up(npu, [(stream, model) for stream in streams[:2]])
        with stopwatch() as watch:
            if videos:
                times = await video.play(npu, streams, models, [frames[number::videos] for number in range(videos)])
            else:
                await video.one_by_one(npu, streams[0], models, frames)
    check(frames, len(models))
    rate = len(frames) / watch.seconds
    if videos:
        return watch.sample(len(frames), rate=(len(frames) - 2) / (times[-1] - times[1]), rate_with_filling=rate)
    return watch.sample(len(frames), rate=rate)


FIGURES = (
    Figure(
        "video frame",
        "frames/s",
        "video-frame.toml",
        (
            Variant(SEQUENTIAL, 1 / 0.186, 2, frame_by_frame),
            Variant("aioascend, 1 video", 1 / 0.058, 9, of_videos(1), in_quick=False),
            Variant("aioascend, 4 videos", 1 / 0.058, 9, of_videos(4)),
            Variant("aioascend, 8 videos", 1 / 0.058, 9, of_videos(8), in_quick=False),
        ),
        host_seconds={"post-process": video.POST_SECONDS},
    ),
    Figure(
        "BERT-Large",
        "sentences/s",
        "bert-large.toml",
        (
            Variant(SEQUENTIAL, 142, 15, one_by_one("bert")),
            Variant("aioascend, 4 streams", 387, 100, on_streams("bert", 4, copies=4)),
            Variant("aioascend, dynamic", 512, 100, on_streams("bert", 8, copies=4)),
        ),
        at_once={"bert": 4},
    ),
    Figure(
        "detection service",
        "frames/s",
        "detection-service.toml",
        (
            Variant(SEQUENTIAL, 110, 10, one_by_one("detector")),
            Variant("aioascend, overlap", 145, 40, on_streams("detector", 2, copies=2)),
        ),
    ),
)


# --- measuring ---


def run(settings: Settings) -> list[Row]:
    """Measure every variant of every figure, on the first loop of the settings that has asyncio.gather.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    loop = settings.asyncio_loops[0]
    cases = [
        _case(settings, figure, variant, loop)
        for figure in FIGURES
        for variant in figure.variants
        if variant.in_quick or not settings.quick
    ]
    measured = measure(NAME, cases, settings)
    rows = []
    for figure in FIGURES:
        own = [(case, samples) for case, samples in measured if case.parameters["figure"] == figure.name]
        before, bound = own[0][1], own[0][1][0].figures["bound"]
        for case, samples in own:
            rows.append(_row(figure, case, samples, bound, before))
    return rows


def _case(settings: Settings, figure: Figure, variant: Variant, loop: str) -> Case:
    async def main() -> Sample:
        with device_profile(settings, figure.path.read_text(encoding="utf-8")) as sim:
            async with aa.open_device(0) as npu:
                sample = await variant.program(npu, settings.count(variant.requests))
            if variant.name == SEQUENTIAL:
                sample.figures["bound"] = figure.bound(stage_seconds(sim.timeline(), sample.operations))
        return sample

    return Case(variant.name, loop, {"figure": figure.name}, lambda: run_on(loop, main))


def _row(figure: Figure, case: Case, samples: Sequence[Sample], bound: float, before: Sequence[Sample]) -> Row:
    variant = figure.variant(case.contender)
    median, spread = median_and_spread([sample.figures["rate"] for sample in samples])
    times, _ = median_and_spread(
        [one.figures["rate"] / other.figures["rate"] for one, other in zip(samples, before, strict=True)]
    )
    filling = [sample.figures["rate_with_filling"] for sample in samples if "rate_with_filling" in sample.figures]
    return Row(
        scenario=NAME,
        contender=case.contender,
        loop=case.loop,
        parameters=case.parameters,
        unit=figure.unit,
        median=median,
        spread=spread,
        cpu_us_per_op=median_and_spread([sample.cpu_seconds / sample.operations * 1e6 for sample in samples])[0],
        ratios={
            "of_bound": median / bound,
            "times_before": median / figure.before,
            "published_times_before": variant.published / figure.before,
            "times_sequential": times,
        },
        counters={
            "published": variant.published,
            "bound": bound,
            **({"with_filling": median_and_spread(filling)[0]} if filling else {}),
        },
    )


def goal(rows: Sequence[Row]) -> Goal | None:
    """At least what was published, by the published "before", and at least 95 % of the profile's bound."""
    parts = []
    for row in rows:
        if row.scenario != NAME or row.contender == SEQUENTIAL:
            continue
        figure = next(figure for figure in FIGURES if figure.name == row.parameters["figure"])
        name = f"{figure.name}, {row.contender}"
        note = f"{row.median:.4g} of {row.counters['bound']:.4g} {row.unit}, published {row.counters['published']:.4g}"
        gain, published = row.ratios["times_before"], row.ratios["published_times_before"]
        parts.append(Part(f"{name}: times the published before", gain, published, at_least=True, note=note))
        if figure.variant(row.contender).fills:
            parts.append(Part(f"{name}: share of the bound", row.ratios["of_bound"], 0.95, at_least=True, note=note))
    return Goal("6 published figures", tuple(parts)) if parts else None
