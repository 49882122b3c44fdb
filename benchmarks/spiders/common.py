"""Shared by every peer spider: the work to do, and the probe that measures it."""

import atexit, itertools, json, os, resource, time

BASE = os.environ.get("BENCH_BASE", "http://127.0.0.1:18080")
LISTS = int(os.environ.get("BENCH_LISTS", "50"))
PER = int(os.environ.get("BENCH_PER", "40"))
CONC = int(os.environ.get("BENCH_CONC", "64"))
OUT = os.environ.get("BENCH_OUT", ".")
REDIS = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:16379/0")
START_URLS = [f"{BASE}/list/{i}.html" for i in range(LISTS)]
LINKS = "a.detail::attr(href)"
FIELDS = {
    "title": "h1.title::text",
    "price": "span.price::text",
    "old": "del.old::text",
    "brand": "p.brand a::text",
    "sku": "p.sku b::text",
    "stock": "p.stock::text",
    "score": "div.rating::attr(data-score)",
}
_c = itertools.count(1)
_items = itertools.count(1)
_s = {"n": 0, "items": 0, "t0": None, "c0": None, "t1": None, "c1": None}


def begin():
    if _s["t0"] is None:
        _s["t0"], _s["c0"] = time.perf_counter(), time.process_time()


def page():
    _s["n"] = next(_c)
    _s["t1"] = time.perf_counter()


def item():
    _s["items"] = next(_items)


def extract(response):
    return {k: response.css(q).get() for k, q in FIELDS.items()} | {"url": response.url}


@atexit.register
def report():
    if not _s["t1"]:
        return print(json.dumps({"pps": 0, "pages": 0}))
    n = _s["n"]
    act = _s["t1"] - _s["t0"]
    print(
        "\n"
        + json.dumps(
            {
                "pages": n,
                "items": _s["items"],
                "active_s": round(act, 2),
                "pps": round(n / act, 1),
                "wall_s": round(time.perf_counter() - _s["t0"], 2),
                "cpu_per_k": round((time.process_time() - _s["c0"]) / n * 1000, 3),
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        ),
        flush=True,
    )
