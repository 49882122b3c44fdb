"""When a run is over: one snapshot in, one answer out."""

from __future__ import annotations

from netspy.messages.entry import Counts


def unfinished_because(
    counts: Counts,
    *,
    source_open: str | None = None,
    had_work: bool = True,
    node_age_s: float = float("inf"),
    grace_s: float = 0.0,
) -> str | None:
    """Why the crawl run must go on; None when it is over.

    `source_open`: why the task source may still bring work. `had_work`: this node seeded or claimed something. A node
    that never had work, among others that live, waits `grace_s` seconds (SPIDER_STARTUP_GRACE) after a fresh seeding; a
    job that was seeded long ago, or has no other node, and is empty is over at once.
    """
    if counts.seed == "seeding":
        return f"seeding is going on ({counts.seed_detail or 'another node'})"
    if counts.seed == "none":
        return "nobody has seeded yet"
    if counts.queued:
        return f"{counts.queued} request(s) queued"
    if counts.leased:
        return f"{counts.leased} request(s) leased"
    if counts.delayed:
        return f"{counts.delayed} request(s) delayed"
    if source_open is not None:
        return source_open
    if not had_work and counts.live_nodes > 1 and counts.seed_age_s < grace_s and node_age_s < grace_s:
        return "this node has had no work yet and the run has just been seeded"
    return None


def finished_job_left_behind(counts: Counts, *, own_nodes: int = 1, young_s: float = 30.0) -> bool:
    """Whether a node that did not get to seed faces a job that was finished long ago.

    True when the seeding mark is old, every collection is empty and no other node is alive: spec 000 wants a
    WARNING then, and none for nodes that start together (the mark is too young).
    """
    return (
        counts.seed == "seeded"
        and counts.seed_age_s > young_s
        and not (counts.queued or counts.leased or counts.delayed)
        and counts.live_nodes <= own_nodes
    )


def came_with_the_others(seed_age_s: float, process_age_s: float) -> bool:
    """Whether a node that finds the run seeded was started together with the one that seeded it.

    Then the seeding came after the start of its own process (it takes tenths of a second until it seeds). A run that
    is over by now was its own, and it has met no job of before. Whoever starts a finished job again does so after that
    job's process has ended.
    """
    return seed_age_s <= process_age_s


def nothing_moved(before: Counts, after: Counts) -> bool:
    """Whether no request and no task has changed its place between two readings."""
    return (*before[:4], before.tasks_done, before.tasks_failed) == (
        *after[:4],
        after.tasks_done,
        after.tasks_failed,
    )


def finished_job_text(seeded_ago_s: float, by: str) -> str:
    """What a node says that finds a finished job, and what can be done."""
    return (
        f"this job was seeded {seeded_ago_s:.0f} s ago ({by}) and is finished. To crawl again, set a new RUN_ID "
        "(e.g. NETSPY_RUN_ID=$(date +%s)), or clear the job with `netspy reset`"
    )
