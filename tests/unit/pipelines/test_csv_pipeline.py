from __future__ import annotations

import csv
import datetime as dt
import itertools
import os
import signal
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from kinds_of_values import ITEM
from test_jsonl_pipeline import run_side_by_side

from netspy.errors import ItemError
from netspy.pipelines.csv import CsvPipeline
from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.local import shared_file
from netspy.pipelines.local.shared_file import locked
from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pipeline(settings: Settings) -> CsvPipeline:
    [made] = load_pipelines([CsvPipeline], settings)
    assert isinstance(made, CsvPipeline)
    return made


def again(settings: Settings) -> CsvPipeline:
    """As a second run, or a second process, would have it."""
    [made] = load_pipelines([CsvPipeline], settings)
    assert isinstance(made, CsvPipeline)
    return made


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


STO_08 = [
    {"a": "x,y", "b": 'q"q', "c": "l1\nl2\r\nl3"},
    {"a": "=1+1", "b": "007", "c": ""},
    {"a": "中文", "b": None, "c": " s "},
]
READ_BACK = [{k: "" if v is None else v for k, v in row.items()} for row in STO_08]


@pytest.mark.parametrize("bom", [False, True])
def test_line_breaks_quotes_and_a_second_run_read_back_as_they_went_in(settings, out, bom) -> None:
    for _run in range(2):
        pipeline = again(settings)
        pipeline.bom = bom
        pipeline.save_items("t", STO_08)

    assert rows(out / "t.csv") == READ_BACK * 2
    content = (out / "t.csv").read_bytes()
    assert content.count(b"\xef\xbb\xbf") == bom
    assert content.startswith(b"\xef\xbb\xbf") == bom
    assert content.count(b"a,b,c") == 1


def test_every_kind_of_value_has_a_cell(pipeline, out) -> None:
    pipeline.save_items("t", [ITEM])
    assert rows(out / "t.csv") == [
        {
            "id": "1",
            "j": '{"a":[1,{"b":"中"}]}',
            "l": '["x"]',
            "s": '["x"]',
            "none": "",
            "t": "true",
            "nan": "nan",
            "dec": "19.995",
            "dt": "2026-01-01T08:00:00+08:00",
            "iso": "2026-01-01T08:00:00Z",
            "by": "//4=",
            "sur": "a\ufffd",
            "big": str(2**70),
        }
    ]


def test_a_new_column_widens_the_file_and_keeps_every_old_byte_of_text(settings, pipeline, out) -> None:
    pipeline.save_items("t", STO_08)
    again(settings).save_items("t", [{"d": "new", "a": "1"}])
    pipeline.save_items("t", [{"c": "back", "e": Decimal("1.50")}])

    everything = rows(out / "t.csv")
    assert everything[:3] == [row | {"d": "", "e": ""} for row in READ_BACK]
    assert everything[3:] == [
        {"a": "1", "b": "", "c": "", "d": "new", "e": ""},
        {"a": "", "b": "", "c": "back", "d": "", "e": "1.50"},
    ]
    assert [p.name for p in out.iterdir()] == ["t.csv"]


def test_a_widened_file_keeps_its_permissions_and_its_mark(pipeline, out) -> None:
    pipeline.bom = True
    pipeline.save_items("t", [{"a": 1}])
    (out / "t.csv").chmod(0o640)
    pipeline.save_items("t", [{"b": 1}])
    assert (out / "t.csv").stat().st_mode & 0o777 == 0o640
    assert (out / "t.csv").read_bytes() == b"\xef\xbb\xbfa,b\r\n1,\r\n,1\r\n"


def test_an_item_without_fields_is_refused_instead_of_an_empty_line(pipeline, out) -> None:
    with pytest.raises(ItemError, match="no fields"):
        pipeline.save_items("t", [{"a": 1}, {}])
    assert not out.exists()


def test_a_single_empty_cell_is_still_a_row(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": None}, {"a": ""}, {"a": "x"}])
    assert rows(out / "t.csv") == [{"a": ""}, {"a": ""}, {"a": "x"}]


def test_formulas_are_disarmed_only_when_asked_and_only_in_text(settings, pipeline, out) -> None:
    pipeline.save_items("plain", [{"a": "=cmd()", "b": -5}])
    pipeline.escape_formulas = True
    pipeline.save_items("safe", [{"a": "=cmd()", "b": -5}, {"a": "@x", "b": "-5"}, {"a": "x=", "b": "\t="}])
    assert rows(out / "plain.csv") == [{"a": "=cmd()", "b": "-5"}]
    assert rows(out / "safe.csv") == [
        {"a": "'=cmd()", "b": "-5"},
        {"a": "'@x", "b": "'-5"},
        {"a": "x=", "b": "'\t="},
    ]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("\n=1+1", "'\n=1+1"),
        ("\r=1+1", "'\r=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        (b"\xf8", "'+A=="),  # base64
        (dt.timedelta(days=-1), "'-P1D"),
        (Decimal("-1.50"), "-1.50"),
        (-0.5, "-0.5"),
        (True, "true"),
        (None, ""),
        (["=1+1"], '["=1+1"]'),
    ],
)
def test_whatever_is_no_number_is_disarmed(pipeline, out, value, cell) -> None:
    pipeline.escape_formulas = True
    pipeline.save_items("safe", [{"id": 1, "a": value}])
    assert rows(out / "safe.csv") == [{"id": "1", "a": cell}]


WHOLE = b'a,b\r\n1,"x\ny"\r\n2,"q""q"\r\n'


def killed_within_a_write(path: Path, written: bytes) -> None:
    """A process that writes to the file is killed when so much of its batch is there."""

    def half(fd: int, data: bytes) -> None:
        del data
        os.write(fd, written)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            shared_file.write_all = half
            with locked(path) as file:
                file.append(b"more than that\r\n", marked=True)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    "torn", [b"3,lo", b'3,"lo\n', b'3,"lo""', b'3,"lo"', b'3,"lo"\r', b'"', b"3", b"3,\xe4\xb8"]
)
def test_a_row_torn_anywhere_is_cut_even_at_a_line_break_inside_quotes(settings, out, torn) -> None:
    """`3,lo` could be a row of the user's, too: that it is ours is known by what the killed process left."""
    out.mkdir(parents=True)
    (out / "t.csv").write_bytes(WHOLE)
    killed_within_a_write(out / "t.csv", torn)
    again(settings).save_items("t", [{"a": "4", "b": "whole"}])
    assert rows(out / "t.csv") == [{"a": "1", "b": "x\ny"}, {"a": "2", "b": 'q"q'}, {"a": "4", "b": "whole"}]
    assert (out / "t.csv.torn").read_bytes() == torn + b"\n"
    assert sorted(path.name for path in out.iterdir()) == ["t.csv", "t.csv.torn"]


@pytest.mark.parametrize("torn", [b'3,"lo\n', b'3,"lo""', b'"', b"3"])
def test_a_row_torn_by_a_power_cut_is_known_by_its_open_quote_or_its_few_fields(settings, out, torn) -> None:
    out.mkdir(parents=True)
    (out / "t.csv").write_bytes(WHOLE + torn)
    again(settings).save_items("t", [{"a": "4", "b": "whole"}])
    assert [row["a"] for row in rows(out / "t.csv")] == ["1", "2", "4"]
    assert (out / "t.csv.torn").read_bytes() == torn + b"\n"


@pytest.mark.parametrize("torn", [b"a", b"a,b", b'"a', b'a,b\r\n1,"x'])
def test_a_file_torn_in_its_first_batch_begins_anew_or_keeps_its_heading(settings, out, torn) -> None:
    killed_within_a_write(out / "t.csv", torn)
    again(settings).save_items("t", [{"a": "4", "b": "whole"}])
    assert rows(out / "t.csv") == [{"a": "4", "b": "whole"}]


def test_a_row_torn_by_another_process_while_we_run_is_cut(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": "1", "b": "x"}])
    with (out / "t.csv").open("ab") as file:
        file.write(b'2,y\r\n3,"half\r\n')
    pipeline.save_items("t", [{"a": "4", "b": "z"}])
    assert [row["a"] for row in rows(out / "t.csv")] == ["1", "2", "4"]


def test_a_torn_header_is_no_header(pipeline, out) -> None:
    out.mkdir(parents=True)
    (out / "t.csv").write_bytes(b'a,"b')
    pipeline.save_items("t", [{"x": 1}])
    assert rows(out / "t.csv") == [{"x": "1"}]


def test_a_file_of_the_user_with_plain_newlines_goes_on(settings, out) -> None:
    out.mkdir(parents=True)
    (out / "t.csv").write_bytes(b'b,a\n1,"x\n"\n')
    again(settings).save_items("t", [{"a": 2, "b": 3}])
    again(settings).save_items("t", [{"c": 4}])
    assert rows(out / "t.csv") == [
        {"b": "1", "a": "x\n", "c": ""},
        {"b": "3", "a": "2", "c": ""},
        {"b": "", "a": "", "c": "4"},
    ]


def test_a_file_that_was_replaced_behind_our_back_is_read_again(pipeline, out) -> None:
    pipeline.save_items("t", [{"a": 1, "b": 2}])
    (out / "t.csv").write_bytes(b"b,a\r\n")
    pipeline.save_items("t", [{"a": 1, "b": 2}])
    assert rows(out / "t.csv") == [{"a": "1", "b": "2"}]


def test_processes_and_threads_share_a_file_while_it_grows_columns(out) -> None:
    expected = run_side_by_side("netspy.pipelines.csv.CsvPipeline", out)
    found = rows(out / "t.csv")
    assert len(found) == len(expected)
    assert {row["id"] for row in found} == expected
    assert {row["text"] for row in found} == {"a\nb" * 50}
    for row in found:  # each value stands in the column of its writer
        filled = {k for k, v in row.items() if v and k not in {"id", "text"}}
        who, n, _ = row["id"].split("-")
        assert filled == {f"c{who}{int(n) // 10}"}


cells = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n'), max_size=8)


@limits(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(st.dictionaries(st.sampled_from("abcd"), cells, min_size=1), min_size=1),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_text_in_whatever_batches_reads_back(tmp_path_factory, batches) -> None:
    folder = tmp_path_factory.mktemp("csv")
    pipeline = again(Settings(CSV_OUTPUT_DIR=str(folder)))
    for batch in batches:
        pipeline.save_items("t", batch)
    items = list(itertools.chain(*batches))
    columns = rows(folder / "t.csv")[0].keys()
    # DictReader takes a row whose every cell is empty for a blank line when there is one column only
    expected = [{c: item.get(c, "") for c in columns} for item in items]
    assert rows(folder / "t.csv") == expected
