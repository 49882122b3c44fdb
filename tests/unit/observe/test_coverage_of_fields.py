"""Field coverage: what counts as filled, how it is bounded, added up and shown."""

import msgspec

from netspy.messages.row import Row
from netspy.observe import coverage as coverages
from netspy.observe.counters import Counters
from netspy.observe.coverage import MAX_FIELDS, MAX_TABLES, Coverage, TableCoverage, lines, merge_coverage
from netspy.observe.summary import RunSummary, human, line, merge, parse_line


def test_zero_and_false_are_values_and_empty_things_are_not():
    coverage = Coverage()
    coverage.add(
        [Row("t", {"a": 0, "b": False, "c": "", "d": None, "e": [], "f": {}, "g": "x", "h": 0.0, "i": b""})]
    )
    assert coverage.tables() == {
        "t": TableCoverage(1, {"a": 1, "b": 1, "c": 0, "d": 0, "e": 0, "f": 0, "g": 1, "h": 1, "i": 0})
    }


def test_a_value_without_a_truth_counts_as_filled():
    class Array:
        def __bool__(self):
            raise ValueError("ambiguous")

    coverage = Coverage()
    coverage.add([Row("t", {"a": Array(), "b": None}), Row("t", {"a": 1, "b": 2})])
    assert coverage.tables() == {"t": TableCoverage(2, {"a": 2, "b": 1})}


def test_tables_and_fields_are_bounded():
    coverage = Coverage()
    for n in range(MAX_TABLES + 10):
        coverage.add([Row(f"t{n}", {"a": 1})])
    coverage.add([Row("t0", {f"f{n}": 1}) for n in range(2 * MAX_FIELDS)])
    tables = coverage.tables()
    assert len(tables) == MAX_TABLES
    assert len(tables["t0"].filled) == MAX_FIELDS
    assert tables["t0"].rows == 2 * MAX_FIELDS + 1


def test_processes_are_added_up_and_the_line_brings_it_back():
    one = RunSummary(coverage={"t": TableCoverage(2, {"a": 2, "b": 1})}, items=2)
    two = RunSummary(coverage={"t": TableCoverage(3, {"a": 1}), "u": TableCoverage(1, {})}, items=4)
    both = merge([one, two])
    assert both.coverage == {"t": TableCoverage(5, {"a": 3, "b": 1}), "u": TableCoverage(1, {})}
    assert parse_line(line(both)) == both
    assert '"coverage":{"t":{"rows":5,"filled":{"a":3,"b":1}}' in line(both)
    assert merge_coverage([]) == {}


def test_people_see_the_emptiest_fields_first_and_never_a_rounded_100():
    shown = lines(
        {
            "books": TableCoverage(1000, {"isbn": 1000, "price": 830, "note": 1, "title": 999, "gone": 0}),
            "tags": TableCoverage(1, {"name": 1, "n": 1}),
        }
    )
    assert shown == [
        "books: 1,000 rows, gone 0%, note <1%, price 83%, title >99%, isbn 100%",
        "tags: 1 row, all 2 fields filled",
    ]
    many = lines({"t": TableCoverage(2, {f"f{n:02}": 1 for n in range(20)})})
    assert many[0].endswith("f07 50%, … 12 more fields")
    assert lines({f"t{n}": TableCoverage(1, {"a": 1}) for n in range(10)})[-1] == "… 2 more tables"
    text = human(RunSummary(coverage={"books": TableCoverage(2, {"isbn": 2, "price": 1})}))
    assert "  coverage   books: 2 rows, price 50%, isbn 100%" in text


def test_counters_carry_it_and_the_names_stay_as_they_are():
    counters = Counters()
    counters.cover([Row("t", {"a": 1})])
    assert counters.coverage.tables() == {"t": TableCoverage(1, {"a": 1})}
    assert set(msgspec.to_builtins(coverages.TableCoverage(1, {}))) == {"rows", "filled"}


def test_a_single_field_that_is_always_filled_is_named():
    tables = {"t": coverages.TableCoverage(3, {"url": 3})}
    assert coverages.lines(tables) == ["t: 3 rows, url 100%"]
