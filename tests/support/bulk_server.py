"""A small stand-in for an Elasticsearch node: the bulk API with an answer for each row, and searches that find all."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class BulkServer:
    """Keeps documents in memory. What the attributes say is how it misbehaves.

    `statuses` are the answers to the next bulk requests (0 = cut the connection); `busy` counts the refusals (`refusal`) of
    a document with this id; `login` or `api_key` is asked for when set; `most` is the largest body in bytes.
    """

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, dict]] = {}
        self.types: dict[tuple[str, str], type] = {}
        self.statuses: list[int] = []
        self.busy: Counter[str] = Counter()
        self.refusal = (429, "es_rejected_execution_exception")
        self.login: tuple[str, str] | None = None
        self.api_key = ""
        self.most = 100 << 20
        self.bulks: list[int] = []  # rows of each bulk request
        self._numbers = count()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _allowed(self, header: str | None) -> bool:
        if self.api_key:
            return header == f"ApiKey {self.api_key}"
        if self.login:
            return header == "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        return True

    def answer(self, method: str, path: str, header: str | None, body: bytes) -> tuple[int, Any]:
        if not self._allowed(header):
            return 401, {"error": {"type": "security_exception", "reason": "missing credentials"}}
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        with self._lock:
            if method == "GET" and parts == [""]:
                return 200, {"version": {"number": "8.0.0"}}
            if method == "POST" and parts == ["_bulk"]:
                return self._bulk(body)
            if method == "POST" and parts[1:] == ["_refresh"]:
                return 200, {}
            if parts[1:] == ["_search"]:
                hits = [{"_id": key, "_source": doc} for key, doc in self.documents.get(parts[0], {}).items()]
                return 200, {"hits": {"hits": hits}}
            if method == "DELETE" and len(parts) == 1:
                self.documents.pop(parts[0], None)
                self.types = {key: kind for key, kind in self.types.items() if key[0] != parts[0]}
                return 200, {}
        return 405, {"error": f"no {method} {path}"}

    def _bulk(self, body: bytes) -> tuple[int, Any]:
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return status, {"error": {"type": "es_rejected_execution_exception", "reason": "on command"}}
        if len(body) > self.most:
            return 413, ""
        lines = body.split(b"\n")
        assert lines.pop() == b"", "a bulk body ends with a newline"
        results = []
        for action_line, document_line in zip(lines[::2], lines[1::2], strict=True):
            [(action, meta)] = json.loads(action_line).items()
            results.append({action: self._one(action, meta, json.loads(document_line))})
        self.bulks.append(len(results))
        errors = any(next(iter(result.values()))["status"] >= 300 for result in results)
        return 200, {"errors": errors, "items": results}

    def _one(self, action: str, meta: dict, document: dict) -> dict:
        index, key = meta["_index"], meta.get("_id")
        if key == "" or (key and len(key.encode()) > 512):
            return _no(400, "illegal_argument_exception", "bad _id")
        if (
            index != index.lower()
            or set(index) & set('\\/*?"<>| ,#:')
            or index[:1] in "_-+."
            or len(index.encode()) > 255
        ):
            return _no(400, "invalid_index_name_exception", index)
        if key is not None and self.busy[key] > 0:
            self.busy[key] -= 1
            return _no(*self.refusal, "not now")
        fields = document["doc"] if action == "update" else document
        for name, value in fields.items():
            kind = int if type(value) is int else type(value)
            known = self.types.setdefault((index, name), kind)
            if known is int and (type(value) is str or (type(value) is int and abs(value) >= 2**63)):
                return _no(400, "document_parsing_exception", f"failed to parse field [{name}]")
        documents = self.documents.setdefault(index, {})
        if action == "update":
            assert document["doc_as_upsert"] is True
            fields = {**documents.get(key or "", {}), **fields}
        documents[f"auto-{next(self._numbers)}" if key is None else key] = fields
        return {"status": 201}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body leave together

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                status, answer = server.answer(
                    self.command, self.path, self.headers.get("authorization"), body
                )
                if status == 0:
                    self.close_connection = True
                    return
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _no(status: int, kind: str, reason: str) -> dict:
    return {"status": status, "error": {"type": kind, "reason": reason}}
