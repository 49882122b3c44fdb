import asyncio, os, sys, json, logging, common as b
from crawlee import ConcurrencySettings, Request
from crawlee.crawlers import ParselCrawler, BeautifulSoupCrawler
from crawlee.storage_clients import MemoryStorageClient

HC = os.environ.get("BENCH_HC", "impit")
KIND = os.environ.get("BENCH_KIND", "parsel")


async def main():
    if HC == "httpx":
        from crawlee.http_clients import HttpxHttpClient

        hc = HttpxHttpClient()
    elif HC == "curl":
        from crawlee.http_clients import CurlImpersonateHttpClient

        hc = CurlImpersonateHttpClient()
    else:
        from crawlee.http_clients import ImpitHttpClient

        hc = ImpitHttpClient()
    if os.environ.get("BENCH_DIST") == "1":
        from crawlee.storage_clients import RedisStorageClient

        sc = RedisStorageClient(connection_string=b.REDIS)
    else:
        sc = MemoryStorageClient()
    cls = ParselCrawler if KIND == "parsel" else BeautifulSoupCrawler
    cr = cls(
        http_client=hc,
        storage_client=sc,
        use_session_pool=False,
        concurrency_settings=ConcurrencySettings(
            min_concurrency=b.CONC, desired_concurrency=b.CONC, max_concurrency=b.CONC
        ),
        configure_logging=False,
        max_request_retries=3,
        **({"parser": "lxml"} if KIND != "parsel" else {}),
    )
    f = open(os.path.join(b.OUT, "items.jsonl"), "w")

    @cr.router.default_handler
    async def h(ctx):
        b.page()
        if KIND == "parsel":
            links = ctx.selector.css(b.LINKS).getall()
        else:
            links = [a["href"] for a in ctx.soup.select("a.detail")]
        await ctx.add_requests([Request.from_url(b.BASE + x, label="d") for x in links])

    @cr.router.handler("d")
    async def d(ctx):
        b.page()
        b.item()
        if KIND == "parsel":
            it = {k: ctx.selector.css(q).get() for k, q in b.FIELDS.items()}
        else:
            s = ctx.soup
            it = {}
            for k, q in b.FIELDS.items():
                css, _, ps = q.partition("::")
                e = s.select_one(css)
                it[k] = None if e is None else (e.get(ps[5:-1]) if ps.startswith("attr") else e.get_text())
        it["url"] = ctx.request.url
        if os.environ.get("BENCH_DATASET") == "1":
            await ctx.push_data(it)
        else:
            f.write(json.dumps(it) + "\n")

    b.begin()
    await cr.run(b.START_URLS)
    f.close()


logging.basicConfig(level=logging.WARNING)
logging.getLogger("crawlee").setLevel(logging.WARNING)
if os.environ.get("BENCH_UVLOOP") == "1":
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())
