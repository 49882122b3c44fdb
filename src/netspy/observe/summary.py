"""The run summary: one JSON line for programs, a short block for people."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from netspy.observe import coverage as coverages
from netspy.observe.counters import NAMES, Counters
from netspy.observe.coverage import TableCoverage
from netspy.observe.log import without_passwords
from netspy.observe.outcome import OUTCOMES, ExitCode, Outcome, causes_of, exit_code, outcome_of
from netspy.observe.progress import duration, rate_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MARK = "NETSPY_RUN_SUMMARY"
"""What the summary's line begins with."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """What a run did. `elapsed` in seconds, `rate` in pages per second, times in ISO 8601 (UTC).

    The counters are those of `netspy.observe.counters.NAMES`. `reasons` maps why requests failed for good to
    how often, `user` holds the spider's own counters, `outputs` says where the items are. `coverage` has for each
    table the `rows` stored and in how many of them each field was `filled`.
    """

    schema: int = 1
    spider: str = ""
    redis_key: str = ""
    run_id: str = ""
    namespace: str = ""
    kind: str = ""
    outcome: Outcome = "finished"
    reason: str = ""
    exit_code: int = 0
    elapsed: float = 0.0
    rate: float = 0.0
    nodes: int = 1
    request_ok: int = 0
    request_failed: int = 0
    retry: int = 0
    dropped: int = 0
    robots_dropped: int = 0
    content_type_dropped: int = 0
    dedup_dropped: int = 0
    parse_error: int = 0
    items: int = 0
    item_dedup_dropped: int = 0
    item_failed: int = 0
    dedup_degraded: int = 0
    pages: int = 0
    bytes: int = 0
    queued: int = 0
    delivered: int = 0
    released: int = 0
    lease_lost: int = 0
    reclaimed: int = 0
    poisoned: int = 0
    invalid_url: int = 0
    callback_error: int = 0
    pipeline_retry: int = 0
    alerts: int = 0
    tasks_taken: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    reasons: dict[str, int] = {}
    user: dict[str, int] = {}
    outputs: list[str] = []
    coverage: dict[str, TableCoverage] = {}
    started: str = ""
    finished: str = ""


def build(
    counters: Counters,
    *,
    spider: str,
    kind: str,
    outcome: Outcome,
    code: ExitCode,
    started: datetime,
    finished: datetime,
    elapsed_s: float,
    reason: str = "",
    redis_key: str = "",
    run_id: str = "",
    namespace: str = "",
    nodes: int = 1,
    outputs: Iterable[str] = (),
) -> RunSummary:
    """The summary of one process from its counters. Passwords in `reason` and `outputs` are hidden."""
    own = counters.own()
    return RunSummary(
        spider=spider,
        redis_key=redis_key,
        run_id=run_id,
        namespace=namespace,
        kind=kind,
        outcome=outcome,
        reason=without_passwords(reason),
        exit_code=int(code),
        elapsed=round(elapsed_s, 3),
        rate=_rate(own["pages"], elapsed_s),
        nodes=nodes,
        reasons=dict(counters.reasons),
        user=dict(counters.user),
        outputs=[without_passwords(output) for output in outputs],
        coverage=counters.coverage.tables(),
        started=_iso(started),
        finished=_iso(finished),
        **own,
    )


def line(summary: RunSummary) -> str:
    """`NETSPY_RUN_SUMMARY {json}`: one line, in ASCII so that no terminal or pipe breaks it."""
    return f"{MARK} {json.dumps(msgspec.to_builtins(summary), separators=(',', ':'))}"


def parse_line(text: str) -> RunSummary | None:
    """The summary in a line of output; None when the line isn't one (or is cut off)."""
    mark, _, rest = text.strip().partition(" ")
    if mark != MARK:
        return None
    try:
        return msgspec.json.decode(rest, type=RunSummary)
    except msgspec.DecodeError:
        return None


def merge(summaries: Sequence[RunSummary], *, fail_on_nothing_to_do: bool = False) -> RunSummary:
    """One summary of the whole run from those of its processes. Raises ValueError for an empty sequence.

    Counts are added, `elapsed` spans from the first start to the last end. The outcome is the worst one; but
    "nothing to do" and "all failed" are judged by the sums: what one process found is no verdict on the run.
    """
    if not summaries:
        raise ValueError("no summaries to merge: no process of the run has reported")
    first = summaries[0]
    totals: Any = {name: sum(getattr(one, name) for one in summaries) for name in NAMES}
    started = min((one.started for one in summaries if one.started), default="")
    finished = max((one.finished for one in summaries if one.finished), default="")
    elapsed = max(one.elapsed for one in summaries)
    if started and finished:
        span = datetime.fromisoformat(finished) - datetime.fromisoformat(started)
        elapsed = max(elapsed, round(span.total_seconds(), 3))
    outcome, reason, code = _merged_end(summaries, totals, fail_on_nothing_to_do=fail_on_nothing_to_do)
    return RunSummary(
        spider=first.spider,
        redis_key=first.redis_key,
        run_id=first.run_id,
        namespace=first.namespace,
        kind=first.kind,
        outcome=outcome,
        reason=reason,
        exit_code=int(code),
        elapsed=elapsed,
        rate=_rate(totals["pages"], elapsed),
        nodes=sum(one.nodes for one in summaries),
        reasons=_sum(one.reasons for one in summaries),
        user=_sum(one.user for one in summaries),
        outputs=list(dict.fromkeys(output for one in summaries for output in one.outputs)),
        coverage=coverages.merge_coverage(one.coverage for one in summaries),
        started=started,
        finished=finished,
        **totals,
    )


_JUDGED_BY_SUMS = frozenset({"finished", "nothing_to_do", "all_failed"})


def _merged_end(
    summaries: Sequence[RunSummary], totals: Mapping[str, int], *, fail_on_nothing_to_do: bool
) -> tuple[Outcome, str, ExitCode]:
    rank = list(OUTCOMES)
    worst = max(
        (one for one in summaries if one.outcome not in _JUDGED_BY_SUMS),
        key=lambda one: rank.index(one.outcome),
        default=None,
    )
    if worst is not None:
        return worst.outcome, worst.reason, ExitCode(worst.exit_code)
    outcome = outcome_of(
        ok=totals["request_ok"],
        failed=totals["request_failed"],
        other=handled_otherwise(totals),
        items=totals["items"],
        items_failed=totals["item_failed"],
    )
    if refused_all(outcome, totals):
        outcome = "all_failed"
    elif outcome == "nothing_to_do" and any(one.outcome == "finished" for one in summaries):
        outcome = "finished"
    reason = next((one.reason for one in summaries if one.outcome == outcome and one.reason), "")
    return outcome, reason, exit_code(outcome, fail_on_nothing_to_do=fail_on_nothing_to_do)


def handled_otherwise(counts: Mapping[str, int]) -> int:
    """Requests that were handled without counting as ok or failed: `other` of `outcome_of`."""
    return sum(counts[name] for name in ("dropped", "robots_dropped", "content_type_dropped"))


def refused_all(outcome: Outcome, counts: Mapping[str, int]) -> bool:
    """Whether a run did nothing because nothing that its spider yielded could be taken."""
    return outcome == "nothing_to_do" and bool(counts["parse_error"] or counts["invalid_url"])


def judge_run(
    ended: Outcome,
    counts: Mapping[str, int],
    *,
    signal: int | None = None,
    fail_on_nothing_to_do: bool = False,
) -> tuple[Outcome, ExitCode]:
    """Outcome and exit code of a process that ended as `ended`, seen in the light of the counts.

    A run that ended of itself is "all_failed" when it had work and nothing came of it, and not
    "nothing_to_do" when it dropped pages. `signal` is the one that stopped the run, None when none did. A
    node that says "finished" without work of its own (others did it) is believed.
    """
    crash, stop = causes_of(ended, signal)
    outcome = outcome_of(
        crash=crash,
        stop=stop,
        ok=counts["request_ok"],
        failed=counts["request_failed"],
        other=handled_otherwise(counts),
        items=counts["items"],
        items_failed=counts["item_failed"],
    )
    if refused_all(outcome, counts):
        outcome = "all_failed"
    elif outcome == "nothing_to_do" and ended == "finished":
        outcome = ended
    return outcome, exit_code(outcome, stop=stop, fail_on_nothing_to_do=fail_on_nothing_to_do)


HEADS: dict[str, str] = {
    "finished": "finished",
    "nothing_to_do": "had nothing to do",
    "limit": "stopped at a limit",
    "stopped": "was stopped",
    "all_failed": "ended with nothing but failures",
    "seeding_failed": "failed while seeding",
    "config_error": "could not run",
    "store_lost": "lost its store",
    "forced": "was stopped by force",
    "failed": "broke",
    "not_master": "left: it is not the master",
}
"""How it ended, as a sentence goes on after the name."""

MAX_SHOWN = 8
"""Reasons and user counters shown to people; the JSON line has all."""


def _tasks(s: RunSummary) -> str:
    parts = [f"{s.tasks_taken:,} taken"] if s.tasks_taken else []
    parts += [f"{s.tasks_done:,} done"] if s.tasks_done else []
    parts += [f"{s.tasks_failed:,} failed"] if s.tasks_failed else []
    return ", ".join(parts)


def human(summary: RunSummary) -> str:
    """A block for people: how it ended, what was fetched, stored and failed, and where the items are."""
    s = summary
    head = f"{s.spider} {HEADS[s.outcome]} after {duration(s.elapsed)}"
    about = [f"{s.nodes} nodes"] if s.nodes > 1 else []
    about += [f"run {s.run_id}"] if s.run_id else []
    lines = [head + (f" ({', '.join(about)})" if about else "") + (f": {s.reason}" if s.reason else "")]
    pages = [f"{s.request_ok:,} done", f"{s.request_failed:,} failed"]
    for count, word in (
        (s.retry, "retried"),
        (s.dedup_dropped, "repeats left out"),
        (s.dropped, "dropped by the spider"),
        (s.robots_dropped, "refused by robots.txt"),
        (s.content_type_dropped, "of another content type"),
        (s.invalid_url, "invalid URLs"),
    ):
        if count:
            pages.append(f"{count:,} {word}")
    if s.tasks_taken or s.tasks_done or s.tasks_failed:
        lines.append(_row("tasks", _tasks(s)))
    if s.kind == "batch_master":
        return "\n".join(lines)
    lines.append(_row("requests", ", ".join(pages)))
    lines.append(
        _row(
            "fetched",
            f"{s.pages:,} {'page' if s.pages == 1 else 'pages'}, {_size(s.bytes)}, {rate_text(s.rate)}",
        )
    )
    items = [f"{s.items:,} stored"]
    if s.item_dedup_dropped:
        items.append(f"{s.item_dedup_dropped:,} known before")
    if s.item_failed:
        items.append(f"{s.item_failed:,} could not be stored (netspy retry --items)")
    lines.append(_row("items", ", ".join(items)))
    lines += [
        _row("coverage" if at == 0 else "", text) for at, text in enumerate(coverages.lines(s.coverage))
    ]
    if s.reasons:
        lines.append(_row("failed", _top(s.reasons, "{count:,} × {name}")))
    for count, word in (
        (s.parse_error, "callbacks raised or yielded something unusable"),
        (s.callback_error, "hooks raised"),
        (s.lease_lost, "requests finished here after another node had taken them over"),
        (s.poisoned, "requests given up because their lease ran out too often"),
        (s.dedup_degraded, "requests let through because the dedup filter did not answer"),
    ):
        if count:
            lines.append(_row("note", f"{count:,} {word}"))
    if s.user:
        lines.append(_row("counted", _top(s.user, "{name} {count:,}")))
    if s.items:
        lines += [_row("stored in" if place == 0 else "", output) for place, output in enumerate(s.outputs)]
    return "\n".join(lines)


def _row(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _top(counts: Mapping[str, int], shape: str) -> str:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [shape.format(name=name, count=count) for name, count in ordered[:MAX_SHOWN]]
    if len(ordered) > MAX_SHOWN:
        shown.append(f"… {len(ordered) - MAX_SHOWN} more kinds")
    return ", ".join(shown)


def _size(count: float) -> str:
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def _rate(pages: int, elapsed_s: float) -> float:
    return round(pages / elapsed_s, 3) if elapsed_s > 0 else 0.0


def _iso(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds")


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
