"""Run files of cases through the product: `python -m fuzz.cases FILE…`.

Each case is tried whole, a byte at a time and cut at random.  Prints each case that
differs with what came and what was due, a count a file, and exits 1 when any differs.
A kind, a key or a verdict that isn't known here fails its case, and so does any
exception: nothing is passed over.

`--outcomes` prints as JSON lines what the product did instead, also for a file
without `expect`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fuzz import (
    case_client_hello,
    case_dns,
    case_hosted_model,
    case_hosts_addresses,
    case_http_head,
    case_local_model,
    case_mcp,
    case_secret_rule,
)
from fuzz.case_files import Case, Outcome, Suite, Way, load, right_outcomes, ways

SUITES: tuple[Suite, ...] = (
    case_http_head.SUITE,
    case_hosts_addresses.SUITE,
    case_client_hello.SUITE,
    case_mcp.SUITE,
    case_hosted_model.SUITE,
    case_secret_rule.SUITE,
    case_local_model.SUITE,
    case_dns.SUITE,
)
"""Later parts of the product add theirs here."""

SEEDS = 4
"""So many random cuts of each case, unless `--seeds` says otherwise."""

CASE_MAX_S = 60
"""A case that takes more of the processor's time hangs, however busy the machine is."""

WAIT_MAX_S = 600
"""So does one that takes longer by the clock: what waits takes no processor's time."""

SHOWN_MAX_CHARS = 1500


@dataclass(slots=True)
class Report:
    """What became of one case: differences by way, and the outcomes that came."""

    case: Case
    differing: dict[str, list[str]] = field(default_factory=dict)
    outcomes: list[tuple[Way, Outcome]] = field(default_factory=list)


def suite_of(path: Path, cases: Sequence[Case]) -> Suite | None:
    """Return the suite of a file: by its name, else by what its cases are.

    A file of another name belongs to the suite that fits most of its cases, if one
    fits more than every other does.
    """
    for suite in SUITES:
        if path.stem == suite.name:
            return suite
    fitting = Counter({suite.name: sum(map(suite.fits, cases)) for suite in SUITES})
    (name, most), *others = fitting.most_common()
    if not most or (others and others[0][1] == most):
        return None
    return next(suite for suite in SUITES if suite.name == name)


def suite_for(case: Case, path: Path, most: Suite | None) -> Suite | None:
    """Return the suite of one case of a file whose cases are mostly of another.

    A file that is named as a suite is its alone; another may hold the cases of several.
    """
    if most is not None and (path.stem == most.name or most.fits(case)):
        return most
    fitting = [suite for suite in SUITES if suite.fits(case)]
    return fitting[0] if len(fitting) == 1 else most


def try_case(suite: Suite | None, case: Case, seeds: int = SEEDS) -> Report:
    """Try a case every way; an exception is a difference, whatever it is."""
    report = Report(case)
    if suite is None:
        report.differing["read"] = ["no suite knows cases like those of its file"]
        return report
    try:
        suite.check(case)
    except Exception as error:  # noqa: BLE001  # what can't be read is a failure, not an end
        report.differing["read"] = [_shown(error)]
        return report
    for way in ways(case, seeds):
        try:
            with _time_limit():
                outcome = suite.perform(case, way)
            report.outcomes.append((way, outcome))
            differing = _differing(suite, case, outcome)
        except Exception as error:  # noqa: BLE001  # the next case is tried all the same
            differing = [_shown(error)]
        if differing:
            report.differing[way.name] = differing
    return report


def _differing(suite: Suite, case: Case, outcome: Outcome) -> list[str]:
    """Return how an outcome differs from the expected one; nothing if any that is right fits."""
    if "expect" not in case:
        return []
    found = [suite.differences(outcome, due) for due in right_outcomes(case)]
    return [] if any(not each for each in found) else found[0]


def _shown(error: BaseException) -> str:
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f" ({notes})" if notes else "")


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError in a case that takes too long (in the main thread)."""
    with (
        _timer(signal.ITIMER_PROF, signal.SIGPROF, CASE_MAX_S, "of the processor's time"),
        _timer(signal.ITIMER_REAL, signal.SIGALRM, WAIT_MAX_S, "by the clock"),
    ):
        yield


@contextmanager
def _timer(which: int, number: signal.Signals, seconds: float, words: str) -> Iterator[None]:
    """Raise TimeoutError after so many seconds of one of the process's timers.

    Whoever had set it gets it back: a test's own time limit is one.
    """

    def late(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"no end after {seconds} s {words}")

    handler = signal.signal(number, late)
    left, _ = signal.setitimer(which, seconds)
    try:
        yield
    finally:
        signal.setitimer(which, 0)
        signal.signal(number, handler)
        signal.setitimer(which, left)


def print_differing(report: Report) -> None:
    """Print a case that differs: how, what came, what was due."""
    case = report.case
    print(f"{case.get('id')} ({case.get('kind')}): {case.get('why', '')}")
    for name, found in report.differing.items():
        print(f"  {name}: {'; '.join(found)}")
    for way, outcome in report.outcomes:
        if way.name in report.differing:
            print(f"  came: {_json(outcome)}")
            break
    print(f"  due:  {_json(case.get('expect'))}")


def print_outcomes(report: Report) -> None:
    """Print what the product did with a case, each outcome once with the ways that led to it."""
    by_outcome: dict[str, list[str]] = {}
    for way, outcome in report.outcomes:
        by_outcome.setdefault(json.dumps(outcome, sort_keys=True), []).append(way.name)
    case = report.case
    for text, names in by_outcome.items():
        line = {"id": case.get("id"), "kind": case.get("kind"), "ways": names}
        print(json.dumps(line | {"outcome": json.loads(text)}))
    if not report.outcomes:
        print(json.dumps({"id": case.get("id"), "error": report.differing}))


def _json(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_MAX_CHARS else f"{text[:SHOWN_MAX_CHARS]}… ({len(text)})"


def run_file(path: Path, *, outcomes: bool, seeds: int) -> int:
    """Run one file; return how many of its cases differ.  One that can't be read is a failure."""
    try:
        cases = list(load(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        print(f"{path} can't be read: {why}", file=sys.stderr)
        return 1
    suite = suite_of(path, cases)
    differ = 0
    for case in cases:
        report = try_case(suite_for(case, path, suite), case, seeds)
        differ += bool(report.differing)
        if outcomes:
            print_outcomes(report)
        elif report.differing:
            print_differing(report)
    name = suite.name if suite else "unknown"
    count = f"{path} ({name}): {len(cases)} cases, {differ} differ"
    print(count, file=sys.stderr if outcomes else sys.stdout)
    return differ


def main(argv: Sequence[str] | None = None) -> int:
    """Run every file named; return 1 when any case differs."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.cases", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--outcomes", action="store_true", help="print what the product did")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="random cuts of each case")
    given = parser.parse_args(argv)
    differ = [run_file(path, outcomes=given.outcomes, seeds=given.seeds) for path in given.files]
    return 1 if any(differ) else 0


if __name__ == "__main__":
    sys.exit(main())
