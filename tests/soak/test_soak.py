# SPDX-License-Identifier: Apache-2.0
"""`aioascend soak`: a short run passes, its plan can be repeated, and it notices what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioascend._arguments import check_file
from aioascend.soak.balance import ENOUGH_ROUNDS, Growth
from aioascend.soak.plan import Rates, plan_round

WATCHDOG_S = 120
RATES = Rates(faults=0.01, cancellations=0.05, streams=8)
MANY_ABORTS = "from aioascend.soak import plan\nplan.ERRANDS['abort'] = 60\n"
SHORT = ("--operations", "1500", "--seed", "7")


def soak(*arguments: str, planted: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in which something was changed before."""
    code = f"import sys\n{planted}\nfrom aioascend.cli import main\nsys.exit(main(['soak', *sys.argv[1:]]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a short run on each loop."""
    found = {}
    for loop in ("asyncio", "uvloop", "trio"):
        file = tmp_path_factory.mktemp("soak") / "result.json"
        done = soak(*SHORT, "--loop", loop, "--faults", "0.03", "--json", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        assert "all as it must be" in done.stdout
        found[loop] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_a_short_run_passes_on_every_loop(results: dict[str, Any]) -> None:
    for result in results.values():
        assert result["problem"] is None
        assert result["operations"] >= 1500
        assert result["ended"]["success"] > 700
        assert result["ended"]["DependencyError"] > 10
        assert result["faults"]["task"] > 10
        assert result["faults"]["abort"] > 0
        assert sum(result["cancellations"].values()) > 20


def test_a_seed_repeats_the_plan(results: dict[str, Any]) -> None:
    assert len({result["plan"] for result in results.values()}) == 1
    plan = plan_round(7, 0, 2000, RATES)
    assert plan == plan_round(7, 0, 2000, RATES)
    others = [plan_round(8, 0, 2000, RATES), plan_round(7, 1, 2000, RATES), plan_round(7, 0, 2001, RATES)]
    assert len({plan.digest, *(other.digest for other in others)}) == 4


def test_the_plan_has_what_was_asked_for() -> None:
    def count(plan: Any, what: str) -> int:
        acts = [act for lane in plan.lanes for chain in lane for act in getattr(chain, "acts", ())]
        return sum(getattr(act, what) is not None for act in acts)

    plan = plan_round(1, 1, 10_000, RATES)
    assert len(plan.lanes) == 10  # two of them in the thread
    assert 70 < count(plan, "fault") < 130
    assert 400 < count(plan, "cancel") < 600
    assert count(plan_round(1, 1, 1000, Rates(0, 0, 8)), "fault") == 0


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        pytest.param(
            "import aioascend as aa\nfill = aa.Stream.memset\n"
            "aa.Stream.memset = lambda self, dst, value: fill(self, dst, value ^ 1)",
            "succeeded with wrong bytes",
            id="a wrong byte",
        ),
        pytest.param(
            "from aioascend.testing import Simulator\nSimulator.timeline = lambda self, failed: []",
            "failed, but no such task did",
            id="a failure from nowhere",
        ),
        pytest.param(
            "from aioascend.soak.ledger import Ledger\nLedger.tell = lambda *args, **kwargs: None",
            "nobody was told of a failure",
            id="a failure that went nowhere",
        ),
        pytest.param(
            "from aioascend.soak.failures import Failures\nFailures.certain = lambda self, submission: "
            "(failure for failure in self.all() if submission.session in failure.certain)",
            "succeeded behind a failure that nobody had been told of",
            id="a success that must not be",
        ),
        pytest.param(
            MANY_ABORTS
            + "from aioascend.soak.ledger import Abort, Ledger\nLedger.abort = lambda self, session: Abort(session, 0)",
            "is said to have been aborted, or to be behind that, and cannot be",
            id="an abort that was not one",
        ),
        pytest.param(
            MANY_ABORTS + "from aioascend.soak.aborts import Aborts\nAborts._reached_by = lambda self, abort: set()",
            "somebody was told once more",
            id="an abort that is told again",
        ),
        pytest.param(
            "from aioascend.soak import rounds\n"
            "patterns = rounds.Round._patterns\nkept = []\n"
            "async def keep(self, npu):\n"
            "    kept.append(await npu.pinned(16, 'uint8'))\n    return await patterns(self, npu)\n"
            "rounds.Round._patterns = keep",
            "host_blocks in the simulator, and were 0",
            id="a counter that does not balance",
        ),
        pytest.param(
            "import aioascend as aa\nmemcpy = aa.Stream.memcpy\ncalls = iter(range(10**9))\n"
            "def broken(self, dst, src):\n"
            "    if next(calls) == 500:\n        raise LookupError('lost my way')\n    return memcpy(self, dst, src)\n"
            "aa.Stream.memcpy = broken",
            "LookupError: lost my way",
            id="an exception that is not documented",
        ),
    ],
)
def test_what_is_wrong_is_noticed(planted: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = soak(*SHORT, "--faults", "0.03", "--json", str(file), planted=planted)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "seed 7" in done.stdout
    assert "round 0: " in done.stdout
    problem = json.loads(file.read_text(encoding="utf-8"))["problem"]
    assert problem["round"] == 0
    assert any(said in sentence for sentence in problem["sentences"])
    assert problem["sentences"][0] in done.stdout


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_device_is_lost_in_every_round(loop: str, tmp_path: Path) -> None:
    """And comes back in some of them; no lane ends by an exception."""
    file = tmp_path / "result.json"
    done = soak(
        *("--operations", "4000", "--seed", "2", "--loop", loop, "--json", str(file)),
        planted="from aioascend.soak import plan, runner\nplan.LOSS_RATE = 1\nrunner.ROUND_OPERATIONS = 500",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["rounds"] > 6
    assert result["faults"]["lost device"] > 4
    assert 0 < result["faults"]["reset"] < result["faults"]["lost device"]
    assert result["ended"]["DeviceLostError"] > 10


def test_a_result_that_cannot_be_written() -> None:
    done = soak("--operations", "100", "--json", "/dev/full")
    assert done.returncode == 2
    assert "all as it must be" in done.stdout
    assert done.stderr == "aioascend soak: --json /dev/full: No space left on device\n"


def test_nothing_moves() -> None:
    done = soak(
        *SHORT,
        planted="from aioascend.soak import awaiting, watchdog\nimport anyio\nwatchdog.PATIENCE_S = 1.0\n"
        "async def stuck(*args):\n    await anyio.sleep_forever()\nawaiting.ENDINGS['last'] = stuck",
    )
    assert done.returncode == 1
    assert "nothing moves in round 0, seed 7" in done.stderr
    assert "_run_once" in done.stderr  # the stacks of the threads
    assert "sleep_forever" in done.stderr  # and of the tasks


def test_growth_is_judged_by_the_second_half() -> None:
    flat = [50_000_000, *[100_000_000 + 500_000 * (n % 3) for n in range(2 * ENOUGH_ROUNDS)]]
    assert Growth(flat).flat
    growing = [100_000_000 + 500_000 * n for n in range(2 * ENOUGH_ROUNDS)]
    assert not Growth(growing).flat
    assert Growth(growing).share > 0.02
    assert Growth(growing[:3]).flat  # too few to tell
    assert not Growth(growing[:3]).judged


@pytest.mark.parametrize(
    "arguments",
    [
        ("--minutes", "0"),
        ("--operations", "-3"),
        ("--faults", "1.5"),
        ("--minutes", "1", "--operations", "5"),
        ("--loop", "gevent"),
        ("--streams", "129"),
        ("--json", "no/such/folder/file.json"),
        ("--json", "/proc/no.json"),
        ("--json", "a" * 300),
    ],
)
def test_arguments_that_are_wrong(arguments: tuple[str, ...]) -> None:
    from aioascend import cli

    try:
        status = cli.main(["soak", *arguments])
    except SystemExit as leaving:
        status = int(str(leaving.code))
    assert status == 2


def test_nothing_is_written_where_nothing_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from aioascend import cli

    assert cli.main(["soak", "--json", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_looking_whether_a_file_can_be_written_leaves_no_trace(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("as it was", encoding="utf-8")
    for path in (new, old, Path("/dev/null")):
        check_file("--json", path)
    assert not new.exists()
    assert old.read_text(encoding="utf-8") == "as it was"
