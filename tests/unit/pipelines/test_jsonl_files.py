"""JSON lines in compressed files and in files that are put away when they are full."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
import zstandard

from netspy.cli.run import pipeline_for
from netspy.errors import ConfigError
from netspy.pipelines.jsonl import JsonlPipeline
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.local import compressed
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ["gzip", "zstd"]


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return reader.read()


def rows(path: Path) -> list[dict]:
    content = unpacked(path) if path.suffix in {".gz", ".zst"} else path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def made(settings: Settings, kind: str, **more: object) -> JsonlPipeline:
    [pipeline] = load_pipelines(
        [JsonlPipeline], msgspec.structs.replace(settings, JSONL_COMPRESSION=kind, **more)
    )
    return pipeline


def file_of(out: Path, kind: str) -> Path:
    return out / f"t.jsonl{compressed.CODECS[kind].suffix}"


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_several_runs_are_one_file_that_any_reader_takes(settings, out, kind) -> None:
    for run in range(3):
        made(settings, kind).save_items("t", [{"n": run, "text": "中" * 100}, {"n": run + 10}])
    assert [row["n"] for row in rows(file_of(out, kind))] == [0, 10, 1, 11, 2, 12]
    assert made(settings, kind).where() == str(out / f"*.jsonl{compressed.CODECS[kind].suffix}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [1, 5, 12, -9, -1])
def test_a_batch_torn_anywhere_is_cut_off_and_the_ones_before_it_stay(settings, out, kind, kept) -> None:
    pipeline = made(settings, kind)
    pipeline.save_items("t", [{"n": 1}])
    pipeline.save_items("t", [{"n": 2}])
    path = file_of(out, kind)
    whole = path.stat().st_size
    pipeline.save_items("t", [{"n": n, "x": os.urandom(9).hex()} for n in range(500)])
    size = path.stat().st_size
    os.truncate(path, whole + kept if kept > 0 else size + kept)

    made(settings, kind).save_items("t", [{"n": 3}])

    assert [row["n"] for row in rows(path)] == [1, 2, 3]
    assert path.with_name(path.name + ".torn").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_batch_torn_is_cut_to_nothing(settings, out, kind) -> None:
    pipeline = made(settings, kind)
    pipeline.save_items("t", [{"n": n} for n in range(100)])
    os.truncate(file_of(out, kind), 40)
    made(settings, kind).save_items("t", [{"n": 3}])
    assert [row["n"] for row in rows(file_of(out, kind))] == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_the_mark_of_a_member_inside_of_data_and_across_blocks_misleads_nobody(
    settings, out, kind, monkeypatch
) -> None:
    monkeypatch.setattr(compressed, "_BLOCK", 61)
    codec = compressed.CODECS[kind]
    path = file_of(out, kind)
    pipeline = made(settings, kind)
    # Text that doesn't shrink, so that parts of it stand in the file as they are.
    noise = os.urandom(40_000).hex() + codec.magic.decode("latin-1") * 50
    pipeline.save_items("t", [{"n": 1, "x": noise}])
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(codec.magic + b"\x00" * 30 + codec.magic)
    made(settings, kind).save_items("t", [{"n": 2}])
    assert [row["n"] for row in rows(path)] == [1, 2]
    assert path.stat().st_size < whole + 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_somebody_else_without_a_last_newline_goes_on_with_a_new_line(settings, out, kind) -> None:
    out.mkdir(parents=True)
    file_of(out, kind).write_bytes(compressed.CODECS[kind].pack(b'{"n":1}\n{"n":2}'))
    made(settings, kind).save_items("t", [{"n": 3}])
    assert [row["n"] for row in rows(file_of(out, kind))] == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_end_of_a_long_file_is_read_to_find_out_that_it_is_whole(settings, out, kind) -> None:
    pipeline = made(settings, kind)
    for n in range(30):
        pipeline.save_items("t", [{"n": n, "x": os.urandom(50_000).hex()}])
    from netspy.pipelines.local.shared_file import locked

    read = 0
    with locked(file_of(out, kind)) as file:
        plain = file.read

        def counting(offset: int, length: int) -> bytes:
            nonlocal read
            read += length
            return plain(offset, length)

        file.read = counting
        assert compressed.whole_part(file, compressed.CODECS[kind]).end == file.size()
        assert read < file.size() * 1.8  # the last block, and the last member to the end


KILLED = """
import itertools, sys
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
kind, out = sys.argv[1:]
[pipeline] = load_pipelines(["netspy.pipelines.jsonl.JsonlPipeline"], Settings(JSONL_OUTPUT_DIR=out, JSONL_COMPRESSION=kind))
import os
for n in itertools.count():
    pipeline.save_items("t", [{"n": n, "x": os.urandom(200_000).hex()} for i in range(5)])
    print(n, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_loses_no_batch_that_it_reported(settings, out, kind) -> None:
    reported = -1
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, kind, str(out)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            reported = int(line)
            if reported == 2:
                child.kill()
    made(settings, kind).save_items("t", [{"n": -1}])
    found = [row["n"] for row in rows(file_of(out, kind))]
    assert found[-1] == -1
    assert set(range(reported + 1)) <= set(found)
    assert all(found.count(n) == 5 for n in set(found) - {-1})


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_a_full_file_is_put_away_under_the_next_number_and_no_row_is_lost(settings, out, kind) -> None:
    pipeline = made(settings, kind, JSONL_ROTATE_BYTES=3000)
    for n in range(12):
        pipeline.save_items("t", [{"n": n, "x": os.urandom(600).hex()}])
    suffix = "" if kind == "none" else compressed.CODECS[kind].suffix
    files = sorted(out.iterdir())
    assert [f.name for f in files][:2] == [f"t.0000{n}.jsonl{suffix}" for n in (1, 2)]
    assert files[-1].name == f"t.jsonl{suffix}"
    assert [row["n"] for file in files for row in rows(file)] == list(range(12))
    assert all(file.stat().st_size <= 3000 for file in files)


def test_numbers_go_on_behind_the_ones_that_are_there(settings, out) -> None:
    out.mkdir(parents=True)
    (out / "t.00041.jsonl").write_bytes(b'{"n":0}\n')
    (out / "t.notes.jsonl").write_bytes(b'{"n":0}\n')
    pipeline = made(settings, "none", JSONL_ROTATE_BYTES=10)
    pipeline.save_items("t", [{"n": 1}])
    pipeline.save_items("t", [{"n": 2}])
    assert rows(out / "t.00042.jsonl") == [{"n": 1}]
    assert rows(out / "t.jsonl") == [{"n": 2}]


def test_a_batch_larger_than_the_limit_is_written_whole(settings, out) -> None:
    pipeline = made(settings, "none", JSONL_ROTATE_BYTES=10)
    pipeline.save_items("t", [{"n": n} for n in range(5)])
    assert [row["n"] for row in rows(out / "t.jsonl")] == list(range(5))


@pytest.mark.parametrize(
    "url", ["sqlite:///items.db", "mysql://me:secret@db/shop.csv", "s3://bucket/items.jsonl"]
)
def test_a_url_on_the_command_line_makes_no_folder_of_that_name(url, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is a URL, and -o writes files; .*ITEM_PIPELINES") as refused:
        pipeline_for(url)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.jsonl", "a.v2.ndjson.GZ"])
def test_the_file_name_on_the_command_line_says_how_to_compress(settings, tmp_path, name) -> None:
    pipeline = pipeline_for(str(tmp_path / name))
    pipeline.settings = settings
    pipeline.save_items("items", [{"n": 1}])
    pipeline.save_items("../x", [{"n": 2}])
    [beside] = [p for p in tmp_path.iterdir() if p.name != name]
    stem, packing = (
        (name[:-3], name[-3:])
        if name.endswith(("gz", "GZ"))
        else (name.removesuffix(".zst"), name[len(name.removesuffix(".zst")) :])
    )
    base, suffix = stem.rsplit(".", 1)
    assert beside.name.startswith(f"{base}._x-")
    assert beside.name.endswith(f".{suffix}{packing}")
    assert (
        rows(tmp_path / name) == [{"n": 1}]
        if not name.endswith("GZ")
        else gzip.decompress((tmp_path / name).read_bytes())
    )


def test_several_processes_rotate_without_losing_or_doubling_a_row(settings, out) -> None:
    code = """
import sys
from netspy.pipelines.loader import load_pipelines
from netspy.settings import Settings
out, who = sys.argv[1:]
[p] = load_pipelines(["netspy.pipelines.jsonl.JsonlPipeline"], Settings(JSONL_OUTPUT_DIR=out, JSONL_COMPRESSION="gzip", JSONL_ROTATE_BYTES=1200))
for n in range(40):
    p.save_items("t", [{"id": f"{who}-{n}", "x": "y" * 50}])
"""
    children = [subprocess.Popen([sys.executable, "-c", code, str(out), str(who)]) for who in range(3)]
    assert [child.wait(100) for child in children] == [0, 0, 0]
    found = [row["id"] for file in out.iterdir() for row in rows(file)]
    assert sorted(found) == sorted(f"{who}-{n}" for who in range(3) for n in range(40))
    assert len(list(out.iterdir())) > 3
