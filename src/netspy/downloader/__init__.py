"""The downloader: one request in, one response out, or the reason why not.

The path of a fetch (`curl.py: CurlDownloader.fetch`):

1. `messages.urls.require_http` gives the URL as it goes out; anything but http and https ends here.
2. `outgoing.py` reads the request's keywords: method, headers, body (`body.py`), cookies, timeouts, proxy,
   TLS.
3. The jar (`cookies.py`) adds its cookies; `headers.py` makes and checks the header lines.
   Under BLOCK_PRIVATE_ADDRESSES `guard.py` looks up what a proxy is to reach; direct connections it judges
   when libcurl opens their sockets.
4. `pool.py` lends an easy handle (`transfer.py`); `multi.py` runs it on the event loop.
5. While it runs, `transfer.py: Reception` reads the head, refuses unwanted content types, and hands each
   piece of the body to `decoding.py`, which stops at MAX_RESPONSE_SIZE decoded bytes.
6. A redirect goes through `redirects.py` (method, credentials, target) and back to 3, with the time that is
   left.
7. The last answer becomes the Response, the others its history. A failure becomes a DownloadError
   (`failures.py`) that says how it failed and whether another try can help.

`middleware.py` has the base class of what users wrap around a fetch; the engine calls it.
"""
