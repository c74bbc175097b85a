# SPDX-License-Identifier: Apache-2.0
"""Processes that end with work in flight, many of them: `PYTHONPATH=tests python -m lifetimes.endurance --count 500`.

Each is a fresh process (lifetimes.process), in a state and with an ending that its seed says. It must end by itself,
with the exit code that is due, and write nothing to stderr but what Python itself writes. From Python 3.11 on: before,
Ctrl-C is raised wherever the loop is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WATCHDOG_S = 60
TESTS = str(Path(__file__).parents[1])
WAYS = ("exit", "interrupt", "loop", "fork")

EXIT_CODES = {"return": 0, "exception": 1}  # of the way "exit"; 3 otherwise
TRACE = r"Traceback .*\n(  .*\n)*(.*\n\n(During|The above) .*\n\nTraceback .*\n(  .*\n)*)*"  # and what was handled then
ON_PURPOSE = re.compile(TRACE + r"LookupError: on purpose\n")
UNTOLD = re.compile(
    rf"(Exception ignored in: '|)an operation that nobody awaited has failed'?\n({TRACE})?"
    r"aioascend\.errors\.TaskError: .*\n"
)
# asyncio takes the first Ctrl-C for a cancel; the second is raised wherever Python is, in a task or while it cleans up.
UPON_A_SECOND_INTERRUPT = [
    re.compile(rf"Task exception was never retrieved\nfuture: .*\n{TRACE}KeyboardInterrupt\n"),
    re.compile(r"Task was destroyed but it is pending!\ntask: .*\n"),
    re.compile(rf"Exception ignored in: .*\n({TRACE})?ResourceWarning: unclosed (event loop )?<.*\n"),
    re.compile(rf"Exception ignored in: .*\n({TRACE})?RuntimeWarning: coroutine '.*' was never awaited\n"),
]


class Run:
    """One process from its start to its end."""

    def __init__(self, way: str, seed: int) -> None:
        self.way = way
        self.seed = seed
        self.chance = random.Random(f"{way} {seed} from outside")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "lifetimes.process", way, str(seed)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.twice = False
        self.stdout = ""
        self.stderr = ""

    def watch(self) -> str:
        """Until it has ended. Says what is wrong with that, if anything."""
        try:
            if self.way == "interrupt":
                self.interrupt()
            self.read()
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGABRT)  # upon which they say where their threads are
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.read()
                return "it did not end"
            os.killpg(self.process.pid, signal.SIGKILL)
            self.read()
            return "it did not even end when it was aborted"
        return self.judge()

    def read(self) -> None:
        stdout, self.stderr = self.process.communicate(timeout=WATCHDOG_S)
        self.stdout += stdout

    def interrupt(self) -> None:
        """Ctrl-C at some moment, perhaps twice."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.stdout += line
            if line == "ready\n":
                break
        moments = self.chance.choice([(0.05,), (0.02, 0.02)])
        self.twice = len(moments) == 2
        for longest in moments:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(self.chance.uniform(0, longest))
                return
            self.process.send_signal(signal.SIGINT)

    def judge(self) -> str:
        lines = self.stdout.splitlines()
        if not lines:
            return "it did not begin"
        _, state, *how = lines[0].split(maxsplit=2)
        code = {"exit": EXIT_CODES.get(" ".join(how), 3)}.get(self.way, 0)
        if self.process.returncode != code:
            return f"exit code {self.process.returncode}, not {code}"
        if self.way != "exit" and lines[-1] != ("interrupted" if self.way == "interrupt" else "done"):
            return "it did not get to its end"
        stderr = self.stderr
        if state == "untold":  # closing tells it
            stderr = UNTOLD.sub("", stderr)
        if self.twice:
            for inherent in UPON_A_SECOND_INTERRUPT:
                stderr = inherent.sub("", stderr)
        if self.way == "exit" and how == ["exception"]:
            return "" if ON_PURPOSE.fullmatch(stderr) else "it wrote more or less than the traceback"
        return "it wrote to stderr" if stderr else ""

    def report(self) -> str:
        return f"{self.way} {self.seed}: exit code {self.process.returncode}\n{self.stdout}{self.stderr}"


def endure(way: str, seeds: range, parallel: int = 1) -> Iterator[str]:
    """Runs a process for each seed; yields what was wrong."""

    def one(seed: int) -> str:
        run = Run(way, seed)
        complaint = run.watch()
        return complaint and f"{complaint}: {run.report()}"

    with ThreadPoolExecutor(parallel) as pool:
        yield from filter(None, pool.map(one, seeds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", default=WAYS, help=f"any of {', '.join(WAYS)}; all by default")
    parser.add_argument("--count", type=int, default=10, help="processes for each way")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--parallel", type=int, default=2, help="processes at the same time")
    options = parser.parse_args()
    failures = 0
    for way in options.ways:
        wrong = 0
        for complaint in endure(way, range(options.first, options.first + options.count), options.parallel):
            wrong += 1
            print(complaint, flush=True)
        print(f"{way}: {options.count} processes, {wrong} ended wrongly", flush=True)
        failures += wrong
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
