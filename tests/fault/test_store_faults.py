"""Rows 32–34 of the fault table and W8: an SQL database that goes away, loses the reply to a commit, or refuses a row."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from netspy.sqlio.dialects import dialect_of
from netspy.sqlio.engine import make_engine
from netspy.testing.fault_pages import AIR_PAGES, PAGES, serve_pages
from netspy.testing.faults import FaultRun
from netspy.testing.proxy import FaultProxy
from netspy.testing.servers import free_port
from support.gate import Gate

pytestmark = [pytest.mark.slow, pytest.mark.fault]

TITLE = {"mysql": "VARCHAR(20)", "postgresql": "VARCHAR(20)", "sqlite": "TEXT"}
PIPELINES = "netspy.pipelines.sql.SqlPipeline,netspy.pipelines.jsonl.JsonlPipeline"
TITLED = PAGES.replace(
    "yield Page(url=request.url)", "yield Page(url=request.url, title=title(request.url))"
).replace(
    "class Page(mw.Item):",
    """def title(url):
    return "far too long for its column" if url.endswith("/d/3-3") else "fits"


class Page(mw.Item):""",
)


class SqlRun(FaultRun):
    """A run whose table with the unique key is in an SQL database; looked at directly, not through a proxy."""

    look_at: str

    def stored(self):
        engine = make_engine(self.look_at)
        try:
            with engine.connect() as connection:
                return Counter(url for (url,) in connection.exec_driver_sql("SELECT url FROM page"))
        finally:
            engine.dispose()


def make_table(url):
    engine = make_engine(url)
    with engine.begin() as connection:
        kind = dialect_of(connection).kind
        connection.exec_driver_sql(f"CREATE TABLE page (url VARCHAR(200) PRIMARY KEY, title {TITLE[kind]})")
    engine.dispose()


@pytest.fixture
def begin_sql(site, tmp_path):
    """`begin_sql(redis_url, url, source, through=…, SETTING=…)`: rows go to `url`, the nodes reach it by `through`."""
    with ExitStack() as stack:

        def make(redis_url, url, source=PAGES, *, through="", **env):
            env = {"SQL_URL": through or url, "ITEM_PIPELINES": PIPELINES, "ITEM_RETRY_BACKOFF": "0.1", **env}
            run = stack.enter_context(SqlRun(tmp_path, source, redis_url=redis_url, site=site, env=env))
            run.look_at = url
            return run

        yield make


@pytest.fixture(params=["mariadb", "postgres"])
def server(request):
    """A server that is there for the whole session."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["own_mariadb", "own_postgres"])
def mortal(request):
    """A server that the test may kill."""
    return request.getfixturevalue(request.param)


def log(run):
    return "".join(node.stderr for node in run.nodes)


def test_a_database_that_is_killed_and_stays_away_loses_nothing(mortal, either_url, begin_sql, site, note):
    url = mortal.create_database()
    make_table(url)
    expected = serve_pages(site, delay=0.05)
    gate = Gate(site, after=100, delay=0.05)
    # Nobody is dead here, be the machine ever so busy.
    run = begin_sql(either_url, url, HEARTBEAT_STALE="60")
    nodes = [run.node(), run.node()]
    site.wait_hits(60)
    mortal.kill()
    gate.open()
    run.wait(lambda: log(run).count("stores nothing at the moment") >= 2, "both nodes notice")
    run.wait(lambda: run.count("z_inflight") > 0, "pages wait for their rows")
    mortal.start()
    run.fault()
    run.wait(lambda: "stores rows again" in log(run), "rows are stored again")
    run.recovered()
    run.finish(*nodes)
    note("32", run, run.check(expected, fetched_twice=0))
    assert "s3c" not in log(run)


def test_a_database_that_comes_up_after_the_crawl_is_waited_for(mortal, either_url, begin_sql, site, note):
    url = mortal.create_database()
    make_table(url)
    mortal.stop()
    expected = serve_pages(site, lists=10)
    run = begin_sql(either_url, url, LISTS="10")
    node = run.node()
    run.wait(lambda: "stores nothing at the moment" in log(run), "the node notices")
    mortal.start()
    run.fault()
    run.wait(lambda: "stores rows again" in log(run), "rows are stored")
    run.recovered()
    run.finish(node)
    note("32", run, run.check(expected, fetched_twice=0))


def test_a_commit_whose_reply_is_lost_stores_each_row_once(server, either_url, begin_sql, site, note):
    url = server.create_database()
    make_table(url)
    expected = serve_pages(site, delay=0.02)
    with FaultProxy(server.host, server.port) as proxy:
        run = begin_sql(either_url, url, through=server.url(url.rpartition("/")[2], port=proxy.port))
        node = run.node()
        for number in range(1, 4):
            site.wait_hits(60 * number)
            proxy.drop_next_reply(b"COMMIT")
            run.fault()
            proxy.wait_dropped(number)
        rows = min(run.stored().total(), len(expected) - 1)  # that reply may have been the last
        run.wait(lambda: run.stored().total() > rows, "more rows are stored")
        run.recovered()
        run.finish(node)
    note("33", run, run.check(expected, fetched_twice=0))


def test_one_row_that_the_database_refuses_costs_only_itself(server, either_url, begin_sql, site, note):
    url = server.create_database()
    make_table(url)
    expected = serve_pages(site)
    run = begin_sql(either_url, url, TITLED)
    run.finish(run.node())
    note("34", run, run.check(expected, fetched_twice=0, dead_letters=True))
    assert run.dead_letters() == {site.url("/d/3-3"): 1}
    assert set(run.stored()) == expected - {site.url("/d/3-3")}
    [letter] = (run.folder / "failed_items.jsonl").read_text("utf-8").splitlines()
    assert "too long" in letter
    assert "SqlPipeline" in letter


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_w8_a_database_that_never_comes_ends_in_dead_letters_not_in_a_hang(scheme, begin_air, site):
    expected = serve_pages(site, lists=5)
    run = begin_air(
        AIR_PAGES,
        SQL_URL=f"{scheme}://me:s3cret-word@127.0.0.1:{free_port()}/shop",
        ITEM_PIPELINES="netspy.pipelines.sql.SqlPipeline",
        ITEM_RETRY_TIMES="1",
        ITEM_RETRY_BACKOFF="0.1",
        ITEM_STORE_PATIENCE="1",
    )
    node = run.node(LISTS="5")
    result = node.finish(60)
    assert set(run.dead_letters()) == expected
    assert result.summary["item_failed"] == len(expected)
    assert result.returncode != 0
    assert (
        "s3cret-word" not in result.stdout + result.stderr + (run.folder / "failed_items.jsonl").read_text()
    )
