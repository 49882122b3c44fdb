"""FilesPipeline on both of its stores: a folder, and S3 (moto's server)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import boto3
import msgspec
import pytest
from moto.server import ThreadedMotoServer

from netspy.errors import ConfigError, ItemError, MissingExtraError
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.dead_letters.file import DeadLetterFile
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.files import FilesPipeline
from netspy.pipelines.loader import load_pipelines, pipeline_name
from netspy.pipelines.media import stores as file_stores
from netspy.pipelines.media.keys import check_key, default_key, ending
from netspy.settings import Settings
from netspy.testing.site import Answer, LocalSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JPEG = b"\xff\xd8\xff" + bytes(range(256)) * 40


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


class Kept:
    """Looks into a store from outside."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        if settings.S3_ENDPOINT_URL:
            self.bucket = settings.FILES_STORE.removeprefix("s3://").partition("/")[0]
            self.client = boto3.client(
                "s3", endpoint_url=settings.S3_ENDPOINT_URL, region_name="us-east-1",
                aws_access_key_id="key", aws_secret_access_key="secret",
            )  # fmt: skip

    def files(self) -> dict[str, bytes]:
        if not self.settings.S3_ENDPOINT_URL:
            from pathlib import Path

            root = Path(self.settings.FILES_STORE)
            found = [p for p in root.rglob("*") if p.is_file()]
            names = {str(p.relative_to(root)): p.read_bytes() for p in found}
        else:
            listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix="pre/fix/").get("Contents", [])
            names = {}
            for entry in listed:
                with self.client.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"] as body:
                    names[entry["Key"].removeprefix("pre/fix/")] = body.read()
        return {name: data for name, data in names.items() if not name.startswith(".urls/")}

    def remove(self, key: str) -> None:
        if self.settings.S3_ENDPOINT_URL:
            self.client.delete_object(Bucket=self.bucket, Key=f"pre/fix/{key}")
        else:
            os.unlink(os.path.join(self.settings.FILES_STORE, key))


@pytest.fixture(params=["folder", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    common = Settings(
        FAILED_ITEM_PATH=str(tmp_path / "failed_items.jsonl"),
        ITEM_RETRY_BACKOFF=0.0,
        RETRY_BACKOFF=0.0,
        FILES_STORE=str(tmp_path / "store"),
    )
    if request.param == "folder":
        return common
    endpoint = request.getfixturevalue("s3")
    bucket = f"b{hashlib.md5(str(tmp_path).encode()).hexdigest()[:16]}"
    boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1",
        aws_access_key_id="key", aws_secret_access_key="secret",
    ).create_bucket(Bucket=bucket)  # fmt: skip
    return msgspec.structs.replace(
        common,
        FILES_STORE=f"s3://{bucket}/pre/fix",
        S3_ENDPOINT_URL=endpoint,
        S3_REGION="us-east-1",
        S3_ACCESS_KEY_ID="key",
        S3_SECRET_ACCESS_KEY="secret",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Settings:
    return Settings(
        FAILED_ITEM_PATH=str(tmp_path / "failed_items.jsonl"),
        ITEM_RETRY_BACKOFF=0.0, RETRY_BACKOFF=0.0, FILES_STORE=str(tmp_path / "store"),
    )  # fmt: skip


class Store(BasePipeline):
    def __init__(self) -> None:
        self.kept: list[dict] = []

    def save_items(self, table, items):
        self.kept += items


class Run:
    """Writes rows through FilesPipeline and a store of rows."""

    def __init__(self, settings: Settings, kind: Any = FilesPipeline) -> None:
        self.settings = settings
        self.kind = kind
        self.store = Store()
        self.dead = DeadLetterFile(settings.FAILED_ITEM_PATH)
        self.events: list[Any] = []

    def __call__(self, *items: dict, replay: bool = False) -> Any:
        async def main() -> Any:
            writer = BatchWriter(
                load_pipelines([self.store, self.kind], self.settings),
                self.settings,
                dead_letter=self.dead,
                on_event=self.events.append,
            )
            try:
                if replay:
                    return await self.dead.replay(writer)
                return await writer.write([Row("t", item) for item in items])
            finally:
                await writer.close()

        return asyncio.run(asyncio.wait_for(main(), 60))


def entry(url: str, data: bytes, content_type: str, end: str) -> dict:
    digest = hashlib.sha256(data).hexdigest()
    return {
        "url": url, "key": f"{digest[:2]}/{digest}{end}", "size": len(data), "sha256": digest,
        "content_type": content_type,
    }  # fmt: skip


def test_files_are_stored_by_their_content_and_named_in_the_row_before_it_is_stored(settings, site) -> None:
    one = site.route("/a.jpg", JPEG, content_type="image/jpeg")
    two = site.route("/doc", b"%PDF-1", content_type="application/pdf; charset=x")
    run = Run(settings)
    assert run({"id": 1, "file_urls": [one, two]}, {"id": 2, "file_urls": one}, {"id": 3}).stored == 3
    expected = [entry(one, JPEG, "image/jpeg", ".jpg"), entry(two, b"%PDF-1", "application/pdf", ".pdf")]
    assert run.store.kept == [
        {"id": 1, "file_urls": [one, two], "files": expected},
        {"id": 2, "file_urls": one, "files": expected[:1]},
        {"id": 3},
    ]
    assert Kept(settings).files() == {expected[0]["key"]: JPEG, expected[1]["key"]: b"%PDF-1"}
    assert site.hits("/a.jpg") == 1


def test_what_is_there_is_not_fetched_again_and_comes_back_when_it_is_gone(settings, site) -> None:
    url = site.route("/a.jpg", JPEG, content_type="image/jpeg")
    run = Run(settings)
    run({"id": 1, "file_urls": [url]})
    run({"id": 2, "file_urls": [url]})
    assert site.hits("/a.jpg") == 1
    first, second = run.store.kept
    assert first["files"] == second["files"]
    Kept(settings).remove(first["files"][0]["key"])
    run({"id": 3, "file_urls": [url]})
    assert site.hits("/a.jpg") == 2
    assert len(Kept(settings).files()) == 1


def test_files_are_fetched_again_when_that_is_wanted_and_one_content_is_stored_once(settings, site) -> None:
    one, two = site.route("/a.jpg", JPEG), site.route("/b.jpg", JPEG)
    run = Run(msgspec.structs.replace(settings, FILES_EXPIRE=0.0))
    run({"id": 1, "file_urls": [one, two]})
    run({"id": 2, "file_urls": [one, two]})
    assert site.hits("/a.jpg") == 2
    assert len(Kept(settings).files()) == 1


def test_a_file_that_changed_has_another_key(settings, site) -> None:
    url = site.route("/a.jpg", JPEG)
    run = Run(msgspec.structs.replace(settings, FILES_EXPIRE=0.0))
    run({"id": 1, "file_urls": [url]})
    site.route("/a.jpg", JPEG + b"2")
    run({"id": 2, "file_urls": [url]})
    assert set(Kept(settings).files().values()) == {JPEG, JPEG + b"2"}


def test_an_empty_file_and_one_larger_than_a_part_arrive_whole(settings, site, monkeypatch) -> None:
    monkeypatch.setattr(file_stores, "_PART_BYTES", 5 << 20)
    large = os.urandom(1 << 20) * 12
    empty, big = site.route("/empty", b""), site.route("/big.bin", large)
    run = Run(settings)
    run({"id": 1, "file_urls": [empty, big]})
    assert [f["size"] for f in run.store.kept[0]["files"]] == [0, len(large)]
    assert large in Kept(settings).files().values()


# what goes wrong


@pytest.mark.parametrize("status", [404, 410, 403])
def test_a_file_that_is_not_there_is_an_entry_with_the_error_and_the_row_is_stored(
    folder, site, status
) -> None:
    good, bad = site.route("/a.jpg", JPEG), site.route("/b.jpg", b"<html>no", status=status)
    run = Run(folder)
    assert run({"id": 1, "file_urls": [bad, good]}).stored == 1
    missing, there = run.store.kept[0]["files"]
    assert missing == {"url": bad, "error": f"HTTP {status} for {bad}"}
    assert there["size"] == len(JPEG)
    assert list(Kept(folder).files().values()) == [JPEG]
    assert site.hits("/b.jpg") == 1


@pytest.mark.parametrize("status", [201, 204, 205, 207, 226, 299])
def test_hp_04_a_good_status_that_brings_no_file_is_an_entry_with_the_error(folder, site, status) -> None:
    url = site.route("/c.jpg", b"" if status in {204, 205} else b"about the request", status=status)
    run = Run(folder)
    assert run({"id": 1, "file_urls": [url]}).stored == 1
    assert run.store.kept[0]["files"] == [{"url": url, "error": f"HTTP {status} for {url}"}]
    assert Kept(folder).files() == {}
    site.route("/c.jpg", JPEG)
    run({"id": 2, "file_urls": [url]})
    assert list(Kept(folder).files().values()) == [JPEG]  # the first answer isn't remembered as the file


def test_hp_04_a_file_that_is_not_ready_is_asked_for_again(folder, site) -> None:
    url = site.route("/b.pdf", JPEG, fail_first=2, fail_status=202)
    run = Run(folder)
    assert run({"id": 1, "file_urls": [url]}).stored == 1
    assert run.store.kept[0]["files"][0]["size"] == len(JPEG)
    never = site.route("/never.pdf", b"pending", status=202)
    assert run({"id": 2, "file_urls": [never]}).failed == 1
    assert list(Kept(folder).files().values()) == [JPEG]


def test_hp_04_a_part_of_a_file_is_no_file(folder, site) -> None:
    url = site.route("/a.jpg", JPEG[:50], status=206, headers={"Content-Range": f"bytes 0-49/{len(JPEG)}"})
    run = Run(msgspec.structs.replace(folder, SPIDER_MAX_RETRY_TIMES=0))
    assert run({"id": 1, "file_urls": [url]}).failed == 1
    assert Kept(folder).files() == {}
    whole = site.route("/b.jpg", JPEG, status=203)
    assert run({"id": 2, "file_urls": [whole]}).stored == 1


def test_a_busy_server_is_asked_again(folder, site) -> None:
    url = site.route("/a.jpg", JPEG, fail_first=2, fail_status=503)
    run = Run(folder)
    assert run({"id": 1, "file_urls": [url]}).stored == 1
    assert run.store.kept[0]["files"][0]["size"] == len(JPEG)
    assert site.hits("/a.jpg") == 3


def test_a_row_whose_file_may_come_later_is_dead_lettered_for_all_and_completed_by_the_replay(
    folder, site
) -> None:
    url = site.route("/a.jpg", b"", status=503)
    good = site.route("/b.jpg", JPEG)
    run = Run(folder)
    result = run({"id": 1, "file_urls": [good, url]}, {"id": 2, "file_urls": [good]})
    assert (result.stored, result.failed_at) == (1, (0,))
    assert [row["id"] for row in run.store.kept] == [2]
    [letter] = run.dead.read()
    assert set(letter.row.pipelines) == {pipeline_name(run.store), pipeline_name(FilesPipeline)}
    assert "503" in letter.error
    assert site.hits("/a.jpg") == 4  # SPIDER_MAX_RETRY_TIMES
    site.route("/a.jpg", b"at last")
    assert run(replay=True).stored == 1
    assert [f["size"] for f in run.store.kept[-1]["files"]] == [len(JPEG), 7]
    assert site.hits("/b.jpg") == 1
    assert list(run.dead.read()) == []


@pytest.mark.parametrize(("wish", "status", "stored"), [("store", 503, 1), ("dead-letter", 404, 0)])
def test_the_setting_decides_what_becomes_of_rows_without_their_files(
    folder, site, wish, status, stored
) -> None:
    url = site.route("/a.jpg", b"", status=status)
    run = Run(msgspec.structs.replace(folder, FILES_MISSING=wish, SPIDER_MAX_RETRY_TIMES=0))
    assert run({"id": 1, "file_urls": [url]}).stored == stored
    if stored:
        assert str(status) in run.store.kept[0]["files"][0]["error"]


def test_an_answer_that_breaks_off_leaves_nothing_in_the_store(folder, site) -> None:
    url = site.route("/a.jpg", drop=True)
    run = Run(msgspec.structs.replace(folder, SPIDER_MAX_RETRY_TIMES=1))
    assert run({"id": 1, "file_urls": [url]}).failed == 1
    assert Kept(folder).files() == {}


def test_a_body_shorter_than_announced_is_no_file(folder) -> None:
    with Dripping(total=100_000, announced=200_000) as server:
        run = Run(msgspec.structs.replace(folder, SPIDER_MAX_RETRY_TIMES=0))
        assert run({"id": 1, "file_urls": [server.url]}).failed == 1
    assert Kept(folder).files() == {}


def test_a_file_over_the_limit_is_given_up_and_said(folder, site) -> None:
    url = site.route("/a.bin", b"x" * 5000)
    run = Run(msgspec.structs.replace(folder, FILES_MAX_SIZE=1000))
    assert run({"id": 1, "file_urls": [url]}).stored == 1
    assert "FILES_MAX_SIZE=1000" in run.store.kept[0]["files"][0]["error"]
    assert Kept(folder).files() == {}


@pytest.mark.parametrize("value", [7, ["x", 7], {"a": 1}, [None]])
def test_a_field_that_holds_no_urls_fails_its_row_alone(folder, site, value) -> None:
    url = site.route("/a.jpg", JPEG)
    run = Run(folder)
    result = run({"id": 1, "file_urls": value}, {"id": 2, "file_urls": [url]})
    assert (result.stored, result.failed_at) == (1, (0,))
    [letter] = run.dead.read()
    assert "no list of URLs" in letter.error


@pytest.mark.parametrize(
    "url", ["nonsense", "/relative.jpg", "ftp://a/b", "file:///etc/passwd", "javascript:1", "http://"]
)
def test_a_url_that_can_not_be_fetched_is_an_entry_with_the_error(folder, url) -> None:
    run = Run(folder)
    assert run({"id": 1, "file_urls": [url, url, ""]}).stored == 1
    [found] = run.store.kept[0]["files"]
    assert found["url"] == url
    assert found["error"]
    assert Kept(folder).files() == {}


def test_private_addresses_stay_blocked_redirects_included(folder, site) -> None:
    url = site.route("/secret", b"metadata")
    run = Run(msgspec.structs.replace(folder, BLOCK_PRIVATE_ADDRESSES=True))
    assert run({"id": 1, "file_urls": [url, "http://169.254.169.254/latest/"]}).stored == 1
    assert all("BLOCK_PRIVATE_ADDRESSES" in f["error"] for f in run.store.kept[0]["files"])
    assert site.hits("/secret") == 0


def test_redirects_are_followed_and_the_rows_url_stays(folder, site) -> None:
    site.route("/b.jpg", JPEG, content_type="image/jpeg")
    url = site.route("/a", b"moved", status=302, headers={"Location": "/b.jpg"})
    run = Run(folder)
    run({"id": 1, "file_urls": [url]})
    [found] = run.store.kept[0]["files"]
    assert (found["url"], found["size"], found["key"][-4:]) == (url, len(JPEG), ".jpg")


def test_limits_of_pages_do_not_hold_for_files(folder, site) -> None:
    url = site.route("/a.bin", b"x" * 5000, content_type="application/zip")
    run = Run(msgspec.structs.replace(folder, ALLOWED_CONTENT_TYPES=["text/html"], MAX_RESPONSE_SIZE=100))
    run({"id": 1, "file_urls": [url]})
    assert run.store.kept[0]["files"][0]["size"] == 5000


# politeness and memory


def test_one_host_is_asked_for_few_files_at_a_time(folder, site) -> None:
    urls = [site.route(f"/{n}.jpg", f"{n}", delay=0.03) for n in range(8)]
    run = Run(msgspec.structs.replace(folder, FILES_PER_HOST=2, FILES_CONCURRENCY=8))
    run(*({"id": n, "file_urls": [url]} for n, url in enumerate(urls)))
    assert site.peak == 2
    assert [row["files"][0]["size"] for row in run.store.kept] == [1] * 8


def test_downloads_of_one_host_keep_their_distance(folder, site) -> None:
    urls = [site.route(f"/{n}.jpg", f"{n}") for n in range(4)]
    run = Run(msgspec.structs.replace(folder, DOWNLOAD_DELAY=0.05, RANDOMIZE_DOWNLOAD_DELAY=False))
    begun = time.monotonic()
    run({"id": 1, "file_urls": urls})
    times = sorted(hit.time for hit in site.log)
    assert all(at - begun >= number * 0.05 for number, at in enumerate(times))


def test_a_host_that_is_down_keeps_no_other_host_waiting(folder) -> None:
    with LocalSite(host="127.0.0.1") as bad, LocalSite(host="127.0.0.1") as good:
        slow = [bad.route(f"/{n}", b"", status=503, headers={"Retry-After": "30"}) for n in range(4)]
        fine = [good.route(f"/{n}", f"{n}") for n in range(20)]

        async def main() -> None:
            [pipeline] = load_pipelines(
                [FilesPipeline], msgspec.structs.replace(folder, FILES_CONCURRENCY=2, FILES_PER_HOST=2)
            )
            await pipeline.open()
            call = asyncio.create_task(pipeline.prepare_items("t", [{"file_urls": [*slow, *fine]}]))
            await asyncio.to_thread(good.wait_hits, 20, 25.0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await pipeline.close()

        asyncio.run(asyncio.wait_for(main(), 60))
        assert good.total == 20
        assert bad.total <= 4


class Dripping:
    """A server that makes a long body as it goes; it holds none of it."""

    def __init__(self, total: int, announced: int | None = None) -> None:
        self.total, self.announced = total, total if announced is None else announced
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/big.bin"

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                client.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {self.announced}\r\nConnection: close\r\n\r\n"
                client.sendall(head.encode())
                left = self.total
                piece = b"z" * 65536
                while left > 0:
                    try:
                        client.sendall(piece[: min(left, len(piece))])
                    except OSError:
                        break
                    left -= len(piece)


def test_a_large_file_is_never_in_memory_as_a_whole(folder) -> None:
    with Dripping(total=48 << 20) as server:
        run = Run(folder)
        run({"id": 0, "file_urls": []})  # what is loaded once is loaded now
        tracemalloc.start()
        try:
            assert run({"id": 1, "file_urls": [server.url]}).stored == 1
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert run.store.kept[-1]["files"][0]["size"] == 48 << 20
    assert peak < 8 << 20


# keys


@pytest.mark.parametrize(
    "key",
    ["../x", "a/../../x", "/etc/passwd", "a//b", "", ".", ".urls/x", ".incoming/x", "a\\..\\b", "C:x", "a\0b", "a\nb", "a/ b", "a.", "x" * 1000, "a/" + "y" * 300, "\ud83d"],
)  # fmt: skip
def test_no_key_leaves_the_store(folder, site, key) -> None:
    with pytest.raises(ItemError, match="can't be the key"):
        check_key(key)

    class Evil(FilesPipeline):
        def key(self, url, sha256, content_type, item):
            return item["name"]

    url = site.route("/a.jpg", JPEG)
    run = Run(folder, Evil)
    run({"id": 1, "file_urls": [url], "name": key})
    assert "can't be the key" in run.store.kept[0]["files"][0]["error"]
    assert Kept(folder).files() == {}


def test_a_folder_that_is_a_link_to_elsewhere_is_not_written_through(folder, site, tmp_path) -> None:
    class Named(FilesPipeline):
        def key(self, url, sha256, content_type, item):
            return f"link/{sha256}"

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "link").symlink_to(tmp_path / "elsewhere")
    url = site.route("/a.jpg", JPEG)
    run = Run(msgspec.structs.replace(folder, ITEM_RETRY_TIMES=0, ITEM_STORE_PATIENCE=0.0), Named)
    assert run({"id": 1, "file_urls": [url]}).failed == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_keys_of_ones_own_may_be_used_again_for_other_content(settings, site) -> None:
    class Named(FilesPipeline):
        result_field = "pictures"
        urls_field = "picture_urls"

        def key(self, url, sha256, content_type, item):
            return f"{item['id']}.jpg"

    url = site.route("/a.jpg", b"one")
    run = Run(msgspec.structs.replace(settings, FILES_EXPIRE=0.0), Named)
    run({"id": 7, "picture_urls": url})
    site.route("/a.jpg", b"two")
    run({"id": 7, "picture_urls": url})
    assert run.store.kept[-1]["pictures"][0]["key"] == "7.jpg"
    assert Kept(settings).files() == {"7.jpg": b"two"}


@pytest.mark.parametrize(
    ("url", "content_type", "expected"),
    [
        ("http://a/b.JPG?x=.png", "image/png", ".jpg"),
        ("http://a/b.php", "image/png", ".png"),
        ("http://a/b", "image/jpeg", ".jpg"),
        ("http://a/b", "application/octet-stream", ""),
        ("http://a/b.%2e%2e%2fx", "application/octet-stream", ""),
        ("http://a/b.html", "text/html", ".html"),
        ("http://a/b.verylongending", "application/pdf", ".pdf"),
        ("http://a/b", "../../x", ""),
        ("http://a.b", "application/x-nobody-knows", ""),
    ],
)
def test_the_ending_of_a_key_is_short_and_harmless(url, content_type, expected) -> None:
    assert ending(url, content_type) == expected
    assert check_key(default_key(url, "ab" * 32, content_type))


# the store


def test_a_store_that_is_away_is_waited_for_and_files_are_not_fetched_twice(
    folder, site, monkeypatch
) -> None:
    url, other = site.route("/a.jpg", JPEG), site.route("/b.jpg", b"b")
    failures = [OSError(28, "No space left on device")] * 2
    plain = file_stores.FolderStore.keep

    def keep(self, file, key, content_type):
        if failures and content_type == "image/jpeg":
            raise failures.pop()
        plain(self, file, key, content_type)

    monkeypatch.setattr(file_stores.FolderStore, "keep", keep)
    site.route("/a.jpg", JPEG, content_type="image/jpeg")
    run = Run(folder)
    assert run({"id": 1, "file_urls": [other]}, {"id": 2, "file_urls": [url]}).stored == 2
    assert site.hits("/a.jpg") == 3
    assert [event.kind for event in run.events].count("retry") == 2


@pytest.mark.parametrize(
    ("store", "words"), [("s3://", "names no bucket"), ("gs://a/b", "neither a folder nor s3")]
)
def test_a_store_that_is_none_stops_the_start(folder, store, words) -> None:
    with pytest.raises(ConfigError, match=words):
        load_pipelines([FilesPipeline], msgspec.structs.replace(folder, FILES_STORE=store))


def test_a_bucket_without_its_driver_stops_the_start(folder, monkeypatch) -> None:
    monkeypatch.setattr(file_stores, "find_spec", lambda _name: None)
    told = "FILES_STORE='s3://crawl/media' needs the optional dependencies 's3'"
    with pytest.raises(MissingExtraError, match=told):
        load_pipelines([FilesPipeline], msgspec.structs.replace(folder, FILES_STORE="s3://crawl/media"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "404"),
        ({"S3_SECRET_ACCESS_KEY": ""}, "Partial credentials"),
        ({"S3_ACCESS_KEY_ID": "", "S3_SECRET_ACCESS_KEY": ""}, "Unable to locate credentials"),
        ({"S3_ENDPOINT_URL": "minio.local:9000"}, "Invalid endpoint"),
        ({"FILES_STORE": "s3://no/../bucket"}, "404"),
        ({"FILES_STORE": "s3://No bucket!"}, "Invalid bucket name"),
    ],
)
def test_a_bucket_that_can_not_be_used_is_said_and_not_waited_for(
    folder, s3, change, words, monkeypatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nobody")
    own = {
        "FILES_STORE": "s3://nobody-made-this", "S3_ENDPOINT_URL": s3, "S3_REGION": "us-east-1",
        "S3_ACCESS_KEY_ID": "key", "S3_SECRET_ACCESS_KEY": "verysecret",
    }  # fmt: skip
    run = Run(msgspec.structs.replace(folder, **(own | change)))
    started = time.monotonic()
    assert run({"id": 1, "file_urls": ["http://127.0.0.1:1/x"]}).failed == 1
    assert time.monotonic() - started < run.settings.ITEM_STORE_PATIENCE / 10
    [letter] = run.dead.read()
    assert words in letter.error
    assert "see the bucket's name, S3_ENDPOINT_URL" in letter.error
    assert "\n" not in letter.error
    assert "verysecret" not in letter.error


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_are_not(
    folder, s3, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    settings = msgspec.structs.replace(
        folder, FILES_STORE="s3://held", S3_ENDPOINT_URL=s3, S3_REGION="us-east-1",
        S3_ACCESS_KEY_ID="key", S3_SECRET_ACCESS_KEY="secret",
    )  # fmt: skip
    Kept(settings).client.create_bucket(Bucket="held")
    child = (
        "import os, sys, signal, msgspec\n"
        "from netspy.pipelines.media.stores import store_for\n"
        "from netspy.settings import Settings\n"
        "store = store_for(msgspec.json.decode(sys.argv[1], type=Settings))\n"
        "store.open()\n"
        "store.incoming().write_bytes(b'half a file')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    argv = [sys.executable, "-c", child, msgspec.json.encode(settings).decode()]
    subprocess.run(argv, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")}, timeout=60, check=False)
    [left] = (tmp_path / "tmp").iterdir()
    assert [path.read_bytes() for path in left.iterdir() if not path.name.startswith(".")] == [b"half a file"]
    living, second = file_stores.store_for(settings), file_stores.store_for(settings)
    living.open()
    assert not left.exists()
    living.incoming().write_bytes(b"on its way")
    second.open()
    assert living.incoming().parent.is_dir()
    second.close()
    living.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_incoming_files_of_a_process_that_is_gone_are_removed(folder, tmp_path) -> None:
    incoming = tmp_path / "store" / ".incoming"
    incoming.mkdir(parents=True)
    (incoming / "old").write_bytes(b"x")
    (incoming / "new").write_bytes(b"x")
    os.utime(incoming / "old", (time.time() - 10**6,) * 2)
    file_stores.store_for(folder).open()
    assert [p.name for p in incoming.iterdir()] == ["new"]


def test_a_damaged_note_about_a_url_is_no_hindrance(folder, site, tmp_path) -> None:
    url = site.route("/a.jpg", JPEG)
    run = Run(folder)
    run({"id": 1, "file_urls": [url]})
    [note] = (tmp_path / "store" / ".urls").rglob("*.json")
    for damage in (b"", b"{}", json.dumps({**json.loads(note.read_bytes()), "key": "../../x"}).encode()):
        note.write_bytes(damage)
        run({"id": 2, "file_urls": [url]})
    assert site.hits("/a.jpg") == 4
    assert all(row["files"] == run.store.kept[0]["files"] for row in run.store.kept)


def test_a_request_of_ones_own_carries_its_headers(folder, site) -> None:
    seen: list[str | None] = []

    def answer(request: Any) -> Answer:
        seen.append(request.headers.get("referer"))
        return Answer(JPEG)

    url = site.route("/a.jpg", answer)

    class WithReferer(FilesPipeline):
        def make_request(self, url, item):
            request = super().make_request(url, item)
            request.requests_kwargs["headers"]["Referer"] = item["page"]
            return request

    Run(folder, WithReferer)({"id": 1, "file_urls": [url], "page": "http://a/b"})
    assert seen == ["http://a/b"]


def test_a_stop_cuts_downloads_and_leaves_their_rows_to_the_replay(folder, site) -> None:
    url = site.route("/a.jpg", hang=True)
    run = Run(folder)

    async def main() -> Any:
        writer = BatchWriter(load_pipelines([run.store, FilesPipeline], folder), folder, dead_letter=run.dead)
        call = asyncio.create_task(writer.write([Row("t", {"id": 1, "file_urls": [url]})]))
        await asyncio.to_thread(site.wait_hits, 1, 30.0)
        writer.shorten_deadline(time.monotonic() + 0.5)
        result = await call
        await writer.close()
        return result

    assert asyncio.run(asyncio.wait_for(main(), 60)).failed == 1
    assert run.store.kept == []
    [letter] = run.dead.read()
    assert letter.row.data == {"id": 1, "file_urls": [url]}
    assert list(Kept(folder).files()) == []


@pytest.mark.parametrize(
    "prefix",
    [
        "shop#1/\u00fc ?x",
        "100%",
        "a%20b",
        "?",
        "#",
        "a b",
        "\u4e2d\u6587",
        "a+b&c=d;e",
        "a//b",
        "../up",
        "~x",
        "/lead/",
    ],
)
def test_a_prefix_is_no_url_and_is_kept_as_it_is(folder, s3, site, prefix) -> None:
    """Case HB-20: two crawls into "shop#1" and "shop#2" share neither files nor what is known of a URL."""
    client = boto3.client(
        "s3",
        endpoint_url=s3,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    bucket = f"b{hashlib.sha256(prefix.encode()).hexdigest()[:20]}"
    client.create_bucket(Bucket=bucket)
    settings = msgspec.structs.replace(
        folder, FILES_STORE=f"s3://{bucket}/{prefix}", S3_ENDPOINT_URL=s3, S3_REGION="us-east-1",
        S3_ACCESS_KEY_ID="key", S3_SECRET_ACCESS_KEY="secret",
    )  # fmt: skip
    run = Run(settings)
    url = site.route("/a.jpg", JPEG)
    for _ in range(2):
        run({"file_urls": [url]})
    assert site.hits("/a.jpg") == 1
    found = sorted(entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"])
    below = prefix.strip("/") + "/"
    assert [key.startswith(below) for key in found] == [True, True]
    [name] = [key.removeprefix(below) for key in found if ".urls/" not in key]
    assert [item["files"][0]["key"] for item in run.store.kept] == [name, name]


def test_a_prefix_too_long_for_our_keys_stops_the_start(folder) -> None:
    with pytest.raises(ConfigError, match="more than 120 bytes"):
        load_pipelines(
            [FilesPipeline], msgspec.structs.replace(folder, FILES_STORE="s3://b/" + "\u00fc" * 61)
        )


@pytest.mark.parametrize("name", ["shop#1", "a ?b", "100%", "a%20b", "\u4e2d\u6587", "a*b", "a\nb"])
@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_folder_may_have_any_name(folder, site, tmp_path, name, kind) -> None:
    """As case HB-20, on a disk."""
    run = Run(msgspec.structs.replace(folder, FILES_STORE=kind(tmp_path / name)))
    run({"file_urls": [site.route("/a.jpg", JPEG)]})
    assert (tmp_path / name / run.store.kept[0]["files"][0]["key"]).read_bytes()


def test_a_folder_may_be_below_the_home_folder(folder, site, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    run = Run(msgspec.structs.replace(folder, FILES_STORE="~/files"))
    run({"file_urls": [site.route("/a.jpg", JPEG)]})
    assert (tmp_path / "home/files" / run.store.kept[0]["files"][0]["key"]).exists()
    assert not (tmp_path / "~").exists()


def test_what_a_cleaner_removes_in_the_middle_of_a_run_is_made_again(
    settings, site, tmp_path, monkeypatch
) -> None:
    """Case HB-17: the folder for incoming files, the store's whole folder, the machine's temporary folder."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(file_stores.tempfile, "tempdir", str(temporary))
    store = Store()
    dead = DeadLetterFile(settings.FAILED_ITEM_PATH)

    async def main() -> list[Any]:
        writer = BatchWriter(load_pipelines([store, FilesPipeline], settings), settings, dead_letter=dead)
        try:
            results = []
            for number in range(4):
                urls = [site.route(f"/{number}-{n}.jpg", JPEG + bytes([number, n])) for n in range(4)]
                results.append(await writer.write([Row("t", {"file_urls": [url]}) for url in urls]))
                inside = [*temporary.glob("*")]
                for gone in ([tmp_path / "store/.incoming", *inside], [tmp_path / "store", temporary])[
                    number % 2
                ]:
                    shutil.rmtree(gone, ignore_errors=True)
            return results
        finally:
            await writer.close()

    results = asyncio.run(asyncio.wait_for(main(), 60))
    assert [result.failed for result in results] == [0] * 4
    assert len(store.kept) == 16
    assert not any("error" in entry for item in store.kept for entry in item["files"])
    assert not list(temporary.glob("*"))


def test_one_content_is_stored_once_for_each_ending(settings, site) -> None:
    """Case HB-18: the ending tells what a file is, and must not depend on which of its URLs came first."""
    paths = ["/same.jpg", "/same.jpeg", "/same", "/other/same.jpg", "/same.png"]
    run = Run(settings)
    run(*[{"file_urls": [site.route(path, JPEG, content_type="image/jpeg")]} for path in paths])
    assert sorted(name.partition(".")[2] for name in Kept(settings).files()) == ["jpeg", "jpg", "png"]
