# SPDX-License-Identifier: Apache-2.0
"""Where does somebody speak? A model with a state hears several microphones; what it finds goes to a second model.

    python examples/speech.py [--loop asyncio|uvloop|trio]

Chunks of 32 ms come in. For each, the voice activity detector takes the samples and its state of the chunk before, and
gives a probability and the next state. The state stays on the device: two buffers a microphone that change places. Each
microphone has a stream and a task of its own, and all share one loaded model, whose runs the runtime keeps apart.

The detector is the one of the package silero-vad (`pip install --no-deps silero-vad==6.2.3`). The voices are made here,
vowels whose pitch and sound change, so that it is known when they speak. The second model, a loudness meter, is a
description (docs/simulator/model-description.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio.lowlevel
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

import aioascend as aa
from _loops import package_file, run, together

RATE, CHUNK, BEFORE = 16_000, 512, 64  # a run takes the last 64 samples of the chunk before as well
LONGEST = 3 * RATE
SPEECH, PAUSE = 0.5, 8  # the probability from which on it is speech, the chunks without it that end an utterance
METER = f"""
latency_us = 500
inputs = [{{ name = "samples", shape = [1, {LONGEST}] }}]
outputs = [{{ name = "sum", shape = [1, 1], fill = "sum" }}]
"""

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Utterance:
    """From when to when, in seconds, and how loud, 0 to 1."""

    start: float
    end: float
    loudness: float


def voice(seconds: float, pitch: float) -> Samples:
    """Harmonics of a pitch that wavers, the louder the nearer they are to formants that move."""
    t = np.arange(int(seconds * RATE)) / RATE
    tone = pitch * (1 + 0.08 * np.sin(13 * t) + 0.02 * np.sin(31 * t))
    phase = 2 * np.pi * np.cumsum(tone) / RATE
    formants = [centre * (1 + 0.25 * np.sin(21 * t + which)) for which, centre in enumerate((700, 1200, 2500))]
    wave = np.zeros_like(t)
    for harmonic in range(1, int(3500 / pitch)):
        gain = sum(1 / (1 + ((harmonic * tone - formant) / 90) ** 2) for formant in formants)
        wave += gain * np.sin(harmonic * phase) / harmonic**0.5
    wave *= 0.55 + 0.45 * np.sin(25 * t)
    return np.asarray(0.3 * wave / np.abs(wave).max(), np.float32)


def recording(spoken: list[tuple[float, float]], pitch: float) -> Samples:
    """Seven seconds of faint noise, and a voice in it from when to when."""
    wave = (0.002 * np.random.default_rng(2).standard_normal(7 * RATE)).astype(np.float32)
    for start, end in spoken:
        wave[int(start * RATE) : int(end * RATE)] += voice(end - start, pitch)
    return wave


async def microphone(wave: Samples) -> AsyncIterator[Samples]:
    for start in range(0, len(wave) - CHUNK + 1, CHUNK):
        await anyio.lowlevel.checkpoint()
        yield wave[start : start + CHUNK]


async def measured(meter: aa.Model, chunks: list[Samples], end: int) -> Utterance:
    """The utterance of these chunks, of which the last has the number `end`."""
    samples = np.concatenate(chunks)[:LONGEST]
    padded = np.zeros((1, LONGEST), np.float32)
    padded[0, : len(samples)] = np.abs(samples)
    total = await meter(padded)
    return Utterance((end - len(chunks)) * CHUNK / RATE, end * CHUNK / RATE, float(total.item()) / len(samples))


async def hear(npu: aa.Device, detector: aa.Model, meter: aa.Model, wave: Samples) -> list[Utterance]:
    """The utterances of one microphone."""
    found: list[Utterance] = []
    kept: list[Samples] = []  # of the utterance that goes on, with the pause at its end
    number = quiet = 0
    window, likely = np.zeros((1, BEFORE + CHUNK), np.float32), np.empty((1, 1), np.float32)
    x, y = npu.empty_like(window), npu.empty_like(likely)
    state, following = npu.empty((2, 1, 128)), npu.empty((2, 1, 128))
    async with npu.create_stream() as stream:
        stream.memset(state, 0)
        async for chunk in microphone(wave):
            window = np.concatenate((window[:, -BEFORE:], chunk[None]), axis=1)
            stream.memcpy(x, window)
            stream.execute(detector, [x, state], [y, following])
            await stream.memcpy(likely, y)  # the one await of a chunk
            state, following = following, state

            number += 1
            quiet = 0 if likely.item() >= SPEECH else quiet + 1
            if kept or not quiet:
                kept.append(chunk)
            if kept and (quiet == PAUSE or number == len(wave) // CHUNK):
                found.append(await measured(meter, kept[: len(kept) - quiet], number - quiet))
                kept.clear()
    return found


async def main() -> bool:
    told = {110: [(1.0, 2.5), (4.0, 5.5)], 150: [(0.5, 2.0)], 210: [(2.0, 4.0), (5.0, 6.5)]}  # by pitch
    waves = await anyio.to_thread.run_sync(lambda: [recording(spoken, pitch) for pitch, spoken in told.items()])
    async with aa.open_device(0) as npu:
        detector = await npu.load_model(package_file("silero_vad", "data/silero_vad_openvino_16k.onnx"))
        meter = await npu.load_model(METER.encode(), name="meter")
        heard = await together(lambda wave: hear(npu, detector, meter, wave), waves)

    for pitch, found in zip(told, heard, strict=True):
        print(f"{pitch} Hz:", *(f"{one.start:.2f} to {one.end:.2f} s, loudness {one.loudness:.3f};" for one in found))
    times = [(one.start, one.end) for found in heard for one in found]
    wanted = [span for spoken in told.values() for span in spoken]
    loud = all(0.01 < one.loudness < 0.3 for found in heard for one in found)
    return loud and len(times) == len(wanted) and bool(np.allclose(times, wanted, rtol=0, atol=0.3))


if __name__ == "__main__":
    run(main, __doc__)
