"""Tasks in files: what is a task, what is none, and at which line."""

import datetime as dt
import io

import pytest

from netspy.cli.tasks.lines import MAX_LINE, format_of, read_lines
from netspy.errors import ConfigError
from netspy.messages import codec


def read(data: bytes, form="jsonl"):
    """(number, value) of the tasks, (number, trouble) of the others, as the command reads them."""
    file = io.BytesIO(data)
    lines = list(read_lines(iter(lambda: file.readline(MAX_LINE), b""), form))
    good = [(line.number, line.value) for line in lines if not line.trouble]
    return good, [(line.number, line.trouble) for line in lines if line.trouble]


def test_json_lines_of_every_kind_empty_lines_and_a_byte_order_mark():
    good, bad = read(b'\xef\xbb\xbf{"id": 1}\r\n\n  \n"https://example.com/"\n7\nnull\n[1, 2]')
    assert good == [(1, {"id": 1}), (4, "https://example.com/"), (5, 7), (6, None), (7, [1, 2])]
    assert bad == []


def test_what_netspy_wrote_comes_back_with_its_types_and_what_others_wrote_with_their_keys():
    when = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    good, bad = read(codec.encode({"at": when, "pair": (1, 2)}) + b'\n{"!strange": 1}\n')
    assert good == [(1, {"at": when, "pair": (1, 2)}), (2, {"!strange": 1})]
    assert bad == []


def test_bad_lines_are_named_and_the_others_are_read_all_the_same():
    good, bad = read(b'{"id": 1}\nnope\n{"id": \n{"id": 4}\n\xff\xfe\n')
    assert good == [(1, {"id": 1}), (4, {"id": 4})]
    assert [number for number, _ in bad] == [2, 3, 5]
    assert "no JSON value" in bad[0][1]
    assert "'nope'" in bad[0][1]


def test_a_line_without_an_end_is_not_read_into_memory():
    class Endless(io.RawIOBase):
        left = 3 * MAX_LINE
        largest = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            count = min(len(buffer), self.left)
            buffer[:count] = b"x" * count
            self.left -= count
            return count

    file = io.BufferedReader(Endless())
    lines = list(read_lines(iter(lambda: file.readline(MAX_LINE), b""), "text"))
    assert [(line.number, line.value) for line in lines] == [(1, None)]
    assert "longer than 4,194,304 bytes" in lines[0].trouble


def test_the_line_after_one_that_is_too_long_has_its_number():
    good, bad = read(b"[" + b" " * (2 * MAX_LINE) + b"]\n5\n")
    assert good == [(2, 5)]
    assert [number for number, _ in bad] == [1]


def test_csv_records_are_dicts_of_texts_also_over_several_lines():
    good, bad = read('id,name\n1,a\n2,"b\nc"\n\n3,日本\n'.encode(), "csv")
    assert good == [
        (2, {"id": "1", "name": "a"}),
        (4, {"id": "2", "name": "b\nc"}),
        (6, {"id": "3", "name": "日本"}),
    ]
    assert bad == []


def test_csv_records_of_another_length_or_code_are_named():
    good, bad = read(b"id,name\n1\n2,b,c\n3,\xff\n4,d\n", "csv")
    assert good == [(5, {"id": "4", "name": "d"})]
    assert bad == [(2, "1 values for 2 columns"), (3, "3 values for 2 columns"), (4, "not UTF-8 (line 4)")]


@pytest.mark.parametrize("head", [b"id,id\n", b"id,\n", b"id,\xff\n"])
def test_a_csv_heading_that_names_no_columns_is_an_error(head):
    with pytest.raises(ConfigError, match="line 1: the heading"):
        read(head + b"1,2\n", "csv")


def test_a_quote_that_is_never_closed_does_not_make_the_rest_of_the_file_one_task():
    good, bad = read(b'id,name\n1,a\n2,"b\n3,c\n4,d\n', "csv")
    assert good == [(2, {"id": "1", "name": "a"})]
    assert bad == [(5, "no CSV record (unexpected end of data)")]


@pytest.mark.parametrize("head", [b"id;name\n", b"id\tname\n", b"\xef\xbb\xbfid|name\n"])
def test_columns_that_are_not_separated_by_commas_are_an_error(head):
    with pytest.raises(ConfigError, match=r"line 1: the heading .* is one column"):
        read(head + b"1;2\n", "csv")


def test_lines_of_spaces_are_no_records_unless_there_is_but_one_column():
    assert read(b"  \nid,name\n   \n1,a\n", "csv") == ([(4, {"id": "1", "name": "a"})], [])
    assert read(b'id\n1\n" "\n\n', "csv") == ([(2, {"id": "1"}), (3, {"id": " "})], [])


def test_text_lines_are_texts():
    assert read(b"https://example.com/a\n\n  b  \n\xff\n", "text") == (
        [(1, "https://example.com/a"), (3, "b")],
        [(4, "not UTF-8 (byte 1)")],
    )


def test_the_format_goes_by_the_name(tmp_path):
    names = ("a.jsonl", "a.NDJSON", "b.csv", "c.txt")
    assert [format_of(tmp_path / name) for name in names] == ["jsonl", "jsonl", "csv", "text"]
    with pytest.raises(ConfigError, match="--format"):
        format_of(tmp_path / "a.dat")
    with pytest.raises(ConfigError, match="jq -c"):
        format_of(tmp_path / "a.json")
