"""Five faults, the same for netspy and its peers, each crawl from a fresh Redis, one process at a time.

    python benchmarks/faults/run.py                                  all; environments are made when missing
    python benchmarks/faults/run.py --only netspy,feapder --cases kill-40,redis
    python benchmarks/faults/run.py --json faults.json               keep the results
    python benchmarks/faults/run.py --from faults.json --write-docs  the tables of docs/comparison.md anew

Needs redis-server on PATH. Everything stays on loopback. A case is ended by pid after --limit seconds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report
from cases import CASES, Case
from frameworks import FRAMEWORKS, Framework, python_of, versions
from world import Note, World

from netspy.testing.servers import RedisServer


def once(framework: Framework, python: str, case: Case, limit: float, keep: Path | None) -> dict[str, Any]:
    """Run one case and say what came of it."""
    with World(framework, python, case.plan, limit) as world:
        case.run(world)
        rows, hits = world.rows(), world.site.all_hits()
        lost = world.plan.pages - len(rows)
        if lost and world.codes[-1] == "0":
            world.notes.append(Note("silent"))
        traces = sum((one.stderr + one.stdout).count("Traceback (most recent") for one in world.results)
        if traces:
            world.notes.append(Note("traces", str(traces)))
        if keep is not None:
            text = "\n".join(f"--- {one.returncode}\n{one.stdout}\n{one.stderr}" for one in world.results)
            keep.write_text(text, "utf-8")
        return {
            "expected": world.plan.pages,
            "fetched": len(hits),
            "stored": len(rows),
            "lost": lost,
            "fetched_twice": sum(count - 1 for count in hits.values()),
            "rows_twice": sum(count - 1 for count in rows.values()),
            "codes": world.codes,
            "seconds": round(world.ended_at - (world.fault_at or world.began), 1),
            "notes": [list(note) for note in world.notes],
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "netspy-faults")
    parser.add_argument("--only", help=f"of {', '.join(FRAMEWORKS)}")
    parser.add_argument("--cases", help=f"of {', '.join(CASES)}")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one case")
    parser.add_argument("--json", type=Path, help="file for the results; those of other runs in it stay")
    parser.add_argument("--logs", type=Path, help="folder for what the spiders print")
    parser.add_argument(
        "--from", type=Path, dest="source", help="results of an earlier run instead of a new one"
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="put the tables into the two pages of the docs"
    )
    options = parser.parse_args()
    found = json.loads(options.source.read_text("utf-8")) if options.source else measure(options)
    for language in report.PAGES if options.write_docs else ():
        report.write(found, language)
    print(report.tables(found, "en"))
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    names = options.only.split(",") if options.only else list(FRAMEWORKS)
    cases = options.cases.split(",") if options.cases else list(CASES)
    options.dir.mkdir(parents=True, exist_ok=True)
    pythons = {name: python_of(FRAMEWORKS[name].environment, options.dir) for name in names}
    found: dict[str, Any] = {"versions": {}, "results": {}}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text("utf-8"))
    with RedisServer() as server:
        redis = server.client().info("server")["redis_version"]
    found["date"] = dt.datetime.now(dt.UTC).date().isoformat()
    found["machine"] = f"Python {sys.version.split()[0]}, Redis {redis}"
    for name in names:
        found["versions"][name] = versions(FRAMEWORKS[name], pythons[name])
        for case in cases:
            began = time.monotonic()
            keep = None
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                keep = options.logs / f"{name}-{case}.log"
            result = once(FRAMEWORKS[name], pythons[name], CASES[case], options.limit, keep)
            found["results"].setdefault(case, {})[name] = result
            print(f"{time.monotonic() - began:5.1f} s  {name} {case}: {result}", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1), "utf-8")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
