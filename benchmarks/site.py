"""Generate the static test site: list pages, detail pages, small pages (deterministic)."""

import argparse
import gzip
import json
import random
from pathlib import Path

WORDS = [
    "steel",
    "cotton",
    "classic",
    "modern",
    "portable",
    "wireless",
    "travel",
    "kitchen",
    "garden",
    "outdoor",
    "light",
    "heavy",
    "compact",
    "series",
    "edition",
    "premium",
    "natural",
    "organic",
    "digital",
    "smart",
    "vintage",
    "leather",
    "ceramic",
    "glass",
    "bamboo",
    "carbon",
    "titanium",
    "alloy",
    "folding",
    "adjustable",
    "waterproof",
    "insulated",
    "rechargeable",
    "quiet",
    "fast",
    "battery",
    "handle",
    "cover",
    "frame",
    "panel",
    "sensor",
    "engine",
    "filter",
    "cable",
    "adapter",
    "stand",
    "holder",
    "bottle",
    "lamp",
    "jacket",
    "shoe",
    "bag",
    "wallet",
    "watch",
    "clock",
    "speaker",
    "keyboard",
    "mouse",
    "screen",
    "camera",
    "lens",
    "tripod",
    "desk",
    "chair",
    "the",
    "a",
    "of",
    "with",
    "for",
    "and",
    "from",
    "into",
    "over",
    "under",
    "quality",
    "design",
    "designed",
    "made",
    "daily",
    "use",
    "customers",
    "warranty",
    "shipping",
    "returns",
    "review",
    "excellent",
    "average",
    "bought",
    "product",
    "works",
    "great",
    "very",
    "happy",
    "price",
]
CJK = "高品质不锈钢保温杯便携式户外旅行家用厨房电器智能手表蓝牙耳机机械键盘显示器支架充电宝数据线"


def para(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n)).capitalize() + "."


HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="description" content="{desc}">
<link rel="canonical" href="{url}"><link rel="stylesheet" href="/static/app.css?v=8123"><link rel="icon" href="/favicon.ico">
<script>window.dataLayer=window.dataLayer||[];function gtag(){{dataLayer.push(arguments)}}gtag('js',new Date());gtag('config','G-XXXX');</script>
<style>.grid{{display:grid;grid-template-columns:repeat(4,1fr)}}.card{{border:1px solid #ddd;padding:1rem}}.card:hover{{box-shadow:0 0 3px #000}}</style>
</head><body class="page"><header class="site-header"><a class="logo" href="/"><img src="/static/logo.svg" alt="Shop"></a><nav><ul>
"""
FOOT = """<footer class="site-footer"><div class="cols">{cols}</div><p>&copy; 2026 Example Shop. All rights reserved.</p></footer>
<script src="/static/app.js?v=8123" defer></script><script>(function(){{var s=document.createElement('script');s.async=1;s.src='/t.js';document.head.appendChild(s);}})();</script>
</body></html>
"""


def header(r, title, url):
    nav = "".join(
        f'<li class="nav-item"><a href="/cat/{i}.html" data-id="{i}"><span>{r.choice(WORDS).title()}</span></a></li>\n'
        for i in range(24)
    )
    return (
        HEAD.format(title=title, desc=para(r, 20), url=url)
        + nav
        + "</ul></nav><form class='search'><input name=q placeholder=Search><button>Go</button></form></header>\n"
    )


def footer(r):
    cols = "".join(
        "<div class='col'><h4>%s</h4><ul>%s</ul></div>"
        % (
            r.choice(WORDS).title(),
            "".join(
                f"<li><a href='/help/{c}/{i}.html'>{r.choice(WORDS)} {r.choice(WORDS)}</a></li>"
                for i in range(7)
            ),
        )
        for c in range(4)
    )
    return FOOT.format(cols=cols)


def detail(r, n):
    name = f"{r.choice(WORDS).title()} {r.choice(WORDS)} {r.choice(WORDS)} {n} {''.join(r.sample(CJK, 6))}"
    price = f"{r.uniform(3, 900):.2f}"
    brand, sku = r.choice(WORDS).title(), f"SKU-{n:06d}"
    specs = "".join(
        f'<tr class="spec"><th scope="row">{r.choice(WORDS)} {i}</th><td>{para(r, 4)}</td></tr>\n'
        for i in range(25)
    )
    desc = "".join(f"<p>{para(r, r.randint(40, 110))}</p>\n" for _ in range(r.randint(8, 24)))
    reviews = "".join(
        f'<article class="review" id="r{i}" data-rating="{r.randint(1, 5)}"><header><span class="author">{r.choice(WORDS).title()} {r.choice("ABCDEFG")}.</span>'
        f'<time datetime="2026-0{r.randint(1, 9)}-1{r.randint(0, 9)}">2026</time><span class="stars">{"&#9733;" * r.randint(1, 5)}</span></header><p>{para(r, r.randint(15, 60))}</p>'
        f'<div class="helpful"><button type="button">Yes</button><button type="button">No</button></div></article>\n'
        for i in range(r.randint(10, 40))
    )
    related = "".join(
        f'<li class="rel"><a class="rel-link" href="/item/{r.randrange(2000)}.html"><img loading="lazy" src="/img/{r.randrange(999)}.jpg" alt=""><span>{r.choice(WORDS)} {r.choice(WORDS)}</span></a><em>${r.uniform(3, 99):.2f}</em></li>\n'
        for _ in range(20)
    )
    ld = json.dumps(
        {
            "@context": "https://schema.org",
            "@type": "Product",
            "name": name,
            "sku": sku,
            "offers": {"price": price, "priceCurrency": "USD"},
            "description": para(r, 60),
        },
        ensure_ascii=False,
    )
    return (
        header(r, name, f"/item/{n}.html")
        + f'<script type="application/ld+json">{ld}</script><main id="content"><ol class="breadcrumb"><li><a href="/">Home</a></li><li><a href="/cat/1.html">Cat</a></li><li>{brand}</li></ol>'
        f'<div class="product" data-sku="{sku}"><div class="gallery">'
        + "".join(f'<img src="/img/{n}-{i}.jpg" alt="{i}" width=600 height=600>' for i in range(8))
        + "</div>"
        f'<div class="info"><h1 class="title">{name}</h1><div class="price-box"><span class="price">${price}</span><del class="old">${float(price) * 1.2:.2f}</del></div>'
        f'<p class="brand">Brand: <a href="/brand/{brand}.html">{brand}</a></p><p class="sku">SKU: <b>{sku}</b></p><p class="stock in">In stock ({r.randint(1, 99)})</p>'
        f'<div class="rating" data-score="{r.uniform(1, 5):.1f}"><span class="count">{r.randint(1, 900)} reviews</span></div><button class="buy">Add to cart</button></div></div>\n'
        f'<section class="desc"><h2>Description</h2>{desc}</section><section class="specs"><h2>Specs</h2><table class="spec-table"><tbody>{specs}</tbody></table></section>'
        f'<section class="reviews"><h2>Reviews</h2>{reviews}</section><aside class="related"><h2>Related</h2><ul>{related}</ul></aside></main>'
        + footer(r)
    )


def listing(r, n, per, total):
    cards = "".join(
        f'<div class="card" data-id="{n * per + i}"><a class="thumb" href="/item/{n * per + i}.html"><img loading="lazy" src="/img/{n * per + i}.jpg" alt=""></a>'
        f'<h3><a class="detail" href="/item/{n * per + i}.html" title="{para(r, 5)}">{para(r, 6)}</a></h3><p class="blurb">{para(r, r.randint(20, 40))}</p>'
        f'<div class="meta"><span class="p">${r.uniform(3, 900):.2f}</span><span class="s">{r.randint(1, 900)} sold</span><ul class="tags">'
        + "".join(f"<li>{r.choice(WORDS)}</li>" for _ in range(4))
        + "</ul></div></div>\n"
        for i in range(per)
    )
    pages = "".join(
        f'<li><a href="/list/{p}.html">{p}</a></li>' for p in range(max(0, n - 5), min(total, n + 5))
    )
    return (
        header(r, f"List {n}", f"/list/{n}.html")
        + f'<main><h1>Products, page {n}</h1><div class="filters">'
        + "".join(f"<label><input type=checkbox name=f{i}>{r.choice(WORDS)}</label>" for i in range(30))
        + f'</div><div class="grid">{cards}</div><ul class="pager">{pages}</ul></main>'
        + footer(r)
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dir", required=True)
    ap.add_argument("--lists", type=int, default=200)
    ap.add_argument("--per", type=int, default=40)
    a = ap.parse_args()
    root = Path(a.dir)
    for d in ("list", "item", "small"):
        (root / d).mkdir(parents=True, exist_ok=True)
    r = random.Random(7)
    sizes = []

    def put(p, text):
        b = text.encode()
        sizes.append(len(b))
        (root / p).write_bytes(b)
        g = root / (p + ".gz")
        g.write_bytes(gzip.compress(b, 6, mtime=0))

    for n in range(a.lists):
        put(f"list/{n}.html", listing(r, n, a.per, a.lists))
    for n in range(a.lists * a.per):
        put(f"item/{n}.html", detail(r, n))
    ls = sizes[: a.lists]
    ds = sizes[a.lists :]
    for n in range(200):
        put(
            f"small/{n}.html",
            "<!doctype html><title>s%d</title><h1>small %d</h1>" % (n, n)
            + "".join(f"<p>{para(r, 14)}</p>" for _ in range(18)),
        )
    print(
        "list avg KB %.1f; detail min/avg/max KB %.1f %.1f %.1f; small avg %.1f"
        % (
            sum(ls) / len(ls) / 1024,
            min(ds) / 1024,
            sum(ds) / len(ds) / 1024,
            max(ds) / 1024,
            sum(sizes[-200:]) / 200 / 1024,
        )
    )


main()
