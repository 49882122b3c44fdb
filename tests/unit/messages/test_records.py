"""Items of other kinds: how they become rows, what is checked, and what is kept of a refused one."""

import dataclasses
import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Annotated, Any, ClassVar

import msgspec
import pydantic
import pytest

from netspy.errors import ItemError
from netspy.messages.item import Item, UpdateItem
from netspy.messages.records import class_path, is_record, kind_of, raw_row, remade, row_of
from netspy.messages.response import Response
from netspy.messages.row import Row


class Tag(msgspec.Struct):
    name: str


@dataclasses.dataclass(slots=True)
class Book:
    __table_name__: ClassVar[str] = "books"
    __unique_key__: ClassVar[str] = "isbn"
    isbn: str
    price: float | None = None
    tags: list[Tag] = dataclasses.field(default_factory=list)
    _page: str = "kept out"


class Price(msgspec.Struct):
    isbn: str
    price: Annotated[float, msgspec.Meta(ge=0)]
    seen: dt.datetime | None = None


class Shop(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    __unique_key__ = ("name",)
    name: str
    since: dt.date | None = None
    rate: Decimal = Decimal("1.50")


class Strict(Item):
    __validate__ = True
    sku: str
    price: float | None = None


def row(value, **more):
    return row_of(value, **{"validate": False, **more})[0]


def test_fields_come_out_as_plain_values_and_nested_records_as_dicts():
    made = row(Book("a", 1.5, [Tag("x")]))
    assert made == Row("books", {"isbn": "a", "price": 1.5, "tags": [{"name": "x"}]}, None, None, ("isbn",))
    shop = row(Shop(name="s", since=dt.date(2026, 1, 2), more=[1]))
    assert shop.data == {"name": "s", "since": dt.date(2026, 1, 2), "rate": Decimal("1.50"), "more": [1]}


def test_a_list_that_is_changed_after_the_yield_is_stored_as_it_was():
    book = Book("a", tags=[Tag("x")])
    made = row(book)
    book.tags.append(Tag("y"))
    assert made.data["tags"] == [{"name": "x"}]


def test_the_table_is_the_class_name_in_snake_case():
    @dataclasses.dataclass
    class HTTPPageItem:
        n: int

    assert row(HTTPPageItem(1)).table == "http_page"


def test_fingerprints_follow_the_key_or_all_fields():
    def mark(value):
        return row_of(value, validate=False)[1]

    assert mark(Book("a", 1.0)) == mark(Book("a", 2.0)) != mark(Book("b", 1.0))
    assert mark(Price("a", 1.0)) != mark(Price("a", 2.0))
    assert row_of(Book("a"), validate=False, mark=False)[1] is None

    class Same(Item):
        __table_name__ = "books"
        __unique_key__ = "isbn"

    assert mark(Same(isbn="a")) == mark(Book("a"))


def test_an_update_key_makes_an_update_and_needs_its_value():
    @dataclasses.dataclass
    class Stock:
        __update_key__ = "sku"
        sku: str | None
        n: int = 0

    made, fingerprint = row_of(Stock("a", 3), validate=False)
    assert made.update_keys == ("sku",)
    assert fingerprint != row_of(Stock("a", 4), validate=False)[1]
    with pytest.raises(ItemError, match="Stock needs a value for 'sku'"):
        row_of(Stock(None), validate=False)


def test_pre_to_db_runs_first_and_may_clean_or_refuse():
    @dataclasses.dataclass
    class Cleaned:
        price: Any

        def pre_to_db(self):
            self.price = float(self.price)

    assert row(Cleaned("1.5"), validate=True).data == {"price": 1.5}
    with pytest.raises(ValueError, match="could not convert"):
        row(Cleaned("free"))


def test_keys_that_are_no_names_are_refused():
    class Wrong(msgspec.Struct):
        __unique_key__: str = "a"
        a: int = 1

    with pytest.raises(ItemError, match=r"Wrong.__unique_key__ is a field of the Struct"):
        kind_of(Wrong)

    @dataclasses.dataclass
    class Numbers:
        __unique_key__ = (1,)
        a: int = 1

    with pytest.raises(ItemError, match="field names are wanted"):
        row(Numbers())


def test_what_netspy_itself_makes_is_no_item():
    assert not is_record(Response)
    assert not is_record(Row)
    assert not is_record(int)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Book("a", "1.5"), r"Book\.price: expected `float \| null`, got `str`; price = '1\.5'"),
        (Book("a", tags=[Tag(1)]), r"Book\.tags\[0\]\.name: expected `str`, got `int`"),
        (Price("a", -1.0), r"Price\.price: expected `float` >= 0"),
        (Price("a", True), r"Price\.price: expected `float`, got `bool`"),
        (Price("a", 1.0, "2026-01-01"), r"Price\.seen: expected `datetime \| null`, got `str`"),
        (Strict(sku=1), r"Strict\.sku: expected `str`, got `int`; sku = 1"),
        (Strict(), r"Strict\.sku is missing"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_value(value, reason):
    with pytest.raises(ItemError, match=reason):
        row(value, validate=True)


def test_a_model_that_was_changed_after_its_check_is_checked_again():
    shop = Shop(name="s")
    shop.rate = "a lot"
    with pytest.raises(ItemError, match=r"Shop\.rate: .* it is 'a lot'"):
        row(shop, validate=True)


def test_right_values_pass_unchanged():
    assert row(Book("a", 1), validate=True).data["price"] == 1
    assert type(row(Book("a", 1), validate=True).data["price"]) is int
    assert row(Price("a", 1.0, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), validate=True)
    assert row(Strict(sku="a", other=object), validate=True).data == {"price": None, "sku": "a"}


def test_a_class_may_ask_for_the_check_or_leave_it_out():
    with pytest.raises(ItemError, match="Strict"):
        row(Strict(sku=1), validate=False)

    class Free(Item):
        __validate__ = False
        sku: str

    assert row(Free(sku=1), validate=True).data == {"sku": 1}


def test_types_that_can_not_be_found_or_checked_leave_only_their_field_unchecked():
    class Half(Item):
        a: "NoSuchName"  # noqa: F821 - that is the hazard
        b: dict[str, int] | list[int] | set[int]
        c: int

    assert row(Half(a=1, b="?", c=1), validate=True)
    with pytest.raises(ItemError, match=r"Half\.c"):
        row(Half(a=1, b="?", c="x"), validate=True)


def test_fields_of_a_base_class_are_checked_and_may_be_declared_anew():
    class Base(Item):
        a: int
        b: int

    class Derived(Base):
        b: str

    assert row(Derived(a=1, b="x"), validate=True)
    with pytest.raises(ItemError, match=r"Derived\.a"):
        row(Derived(a="1", b="x"), validate=True)


def test_what_can_be_kept_of_a_refused_item_is_kept():
    class Broken(Item):
        def to_dict(self):
            raise RuntimeError("no")

    class Update(UpdateItem):
        __pipelines__ = (Book,)

    assert raw_row(Broken(a=1, _b=2)) == Row("broken", {"a": 1})
    assert raw_row(Book("a")).data["isbn"] == "a"
    assert raw_row(Update(a=1)).pipelines == (class_path(Book),)
    assert raw_row(object()).data["item"].startswith("<object")


@pytest.mark.parametrize(
    "value", [Book("a", 1.5, [Tag("x")]), Price("a", 1.0), Shop(name="s"), Strict(sku="a")]
)
def test_an_item_can_be_made_again_of_its_fields(value):
    before = row(value)
    again = remade(raw_row(value), type(value))
    assert type(again) is type(value)
    assert row(again) == before


def test_fields_that_make_no_item_are_said():
    with pytest.raises(ItemError, match="Book can't be made of the fields"):
        remade(Row("books", {"price": 1.0}), Book)


def test_pydantic_is_not_imported_by_netspy():
    code = "import sys, netspy, netspy.engine.page.output; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
