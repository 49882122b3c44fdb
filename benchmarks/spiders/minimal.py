"""The hand-written limit: aiohttp (or pycurl) + selectolax or parsel, N workers on one loop, set dedup, JSONL out."""

import asyncio, json, os, sys, common as b
from collections import deque

PARSER = os.environ.get("BENCH_PARSER", "parsel")
CLIENT = os.environ.get("BENCH_CLIENT", "aiohttp")


async def main():
    if CLIENT == "aiohttp":
        import aiohttp

        s = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=b.CONC, ssl=False), cookie_jar=aiohttp.DummyCookieJar()
        )

        async def get(u):
            async with s.get(u) as r:
                return await r.read()

        close = s.close
    else:
        import wreq

        c = wreq.Client(verify=False)

        async def get(u):
            return bytes(await (await c.get(u)).bytes())

        async def close():
            pass

    if PARSER == "parsel":
        from parsel import Selector

        def links(t):
            return Selector(text=t).css(b.LINKS).getall()

        def ext(t):
            s = Selector(text=t)
            return {k: s.css(q).get() for k, q in b.FIELDS.items()}
    else:
        from selectolax.lexbor import LexborHTMLParser as P

        def links(t):
            return [n.attributes.get("href") for n in P(t).css("a.detail")]

        spec = {k: (q.partition("::")[0], q.partition("::")[2]) for k, q in b.FIELDS.items()}

        def ext(t):
            p = P(t)
            o = {}
            for k, (c, ps) in spec.items():
                n = p.css_first(c)
                o[k] = (
                    None
                    if n is None
                    else (n.text(deep=False) if ps == "text" else n.attributes.get(ps[5:-1]))
                )
            return o

    q = deque((u, True) for u in b.START_URLS)
    seen = set(b.START_URLS)
    f = open(os.path.join(b.OUT, "items.jsonl"), "w")
    b.begin()
    busy = 0

    async def w():
        nonlocal busy
        while True:
            if not q:
                if not busy:
                    return
                await asyncio.sleep(0.001)
                continue
            u, is_list = q.popleft()
            busy += 1
            t = (await get(u)).decode()
            b.page()
            if is_list:
                for h in links(t):
                    x = b.BASE + h
                    if x not in seen:
                        seen.add(x)
                        q.append((x, False))
            else:
                b.item()
                o = ext(t)
                o["url"] = u
                f.write(json.dumps(o) + "\n")
            busy -= 1

    await asyncio.gather(*[w() for _ in range(b.CONC)])
    f.close()
    await close()


import uvloop

uvloop.run(main())
