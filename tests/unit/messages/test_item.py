"""Items: which fields make the row, which table it goes to, and which items are the same."""

from decimal import Decimal

import pytest

from netspy.errors import ItemError
from netspy.messages.item import Item, UpdateItem, snake_case


class BookItem(Item):
    __unique_key__ = "isbn"

    isbn: str
    price = None
    tags = []
    _private = "x"

    def label(self) -> str:
        return f"{self.isbn}!"

    @property
    def computed(self) -> int:
        return 1


class StockItem(UpdateItem):
    __table_name__ = "stock_levels"
    __update_key__ = ["shop", "isbn"]
    __pipelines__ = "my.Pipeline"


def test_the_row_has_public_fields_over_class_defaults() -> None:
    item = BookItem(isbn="1", title="T")
    item.pages = 3
    item["year"] = 2026
    item._note = "not a field"
    item.hook = print
    assert item.to_dict() == {"price": None, "tags": [], "isbn": "1", "title": "T", "pages": 3, "year": 2026}
    assert (item.isbn, item["title"], item.price, item["price"], item.label()) == ("1", "T", None, None, "1!")
    assert "price" in item
    assert "isbn" in item
    assert "nothing" not in item
    with pytest.raises(KeyError):
        item["nothing"]
    with pytest.raises(AttributeError):
        _ = BookItem().isbn


def test_items_do_not_share_a_list_that_is_a_class_default() -> None:
    one, other = BookItem(isbn="1"), BookItem(isbn="2")
    one.tags.append("x")
    assert (one.tags, other.tags, BookItem.tags) == (["x"], [], [])
    assert BookItem(isbn="3", tags=["y"]).tags == ["y"]


def test_fields_are_inherited_and_a_method_ends_one() -> None:
    class Special(BookItem):
        extra = 1

        def price(self): ...

    assert set(Special(isbn="1").to_dict()) == {"isbn", "tags", "extra"}
    assert Special(isbn="1").table_name == "special"
    assert Special(isbn="1").unique_key == ("isbn",)


@pytest.mark.parametrize(
    ("name", "table"),
    [("NewsItem", "news"), ("News", "news"), ("HTTPPageItem", "http_page"), ("Item", "item"), ("Page2Item", "page2"),
     ("Items", "items"), ("MyDBRow", "my_db_row"), ("news_item", "news"), ("_PrivateItem", "private")],
)  # fmt: skip
def test_the_table_is_named_after_the_class(name: str, table: str) -> None:
    assert snake_case(name) == table
    assert type(name, (Item,), {})().table_name == table


def test_table_and_pipelines_can_be_set_per_item() -> None:
    item = StockItem(shop=1, isbn="1")
    assert (item.table_name, item.pipelines, item.update_key, item.unique_key) == (
        "stock_levels", ("my.Pipeline",), ("shop", "isbn"), (),
    )  # fmt: skip
    item.table_name = "other"
    item.pipelines = ["a.B", "c.D"]
    assert (item.table_name, item.pipelines) == ("other", ("a.B", "c.D"))
    assert StockItem(table_name="third").table_name == "third"
    assert StockItem(table_name="third").to_dict() == {}
    assert BookItem().pipelines is None
    item["table_name"] = "fourth"
    assert item.table_name == "fourth"


def test_the_unique_key_alone_makes_two_items_the_same() -> None:
    one = BookItem(isbn="1", title="a")
    assert len(one.fingerprint) == 32
    assert one.fingerprint == BookItem(isbn="1", title="b").fingerprint
    assert one.fingerprint != BookItem(isbn=1, title="a").fingerprint
    elsewhere = BookItem(isbn="1")
    elsewhere.table_name = "elsewhere"
    assert one.fingerprint != elsewhere.fingerprint


def test_without_a_key_every_non_empty_field_counts() -> None:
    one = Item(a=1, b=None, c="", d=[])
    assert one.fingerprint == Item(a=1).fingerprint
    assert one.fingerprint == Item(d={}, a=1).fingerprint
    distinct = [
        Item(a=value).fingerprint for value in (1, "1", 1.0, True, 0, False, Decimal(1), [1], (1,), b"1")
    ]
    assert len(set(distinct)) == len(distinct)
    assert Item(a=object()).fingerprint != Item(a=1).fingerprint


def test_a_key_without_any_value_does_not_make_all_such_items_one() -> None:
    class Pair(Item):
        __unique_key__ = ("a", "b")

    assert Pair(a=None, b=None, t=1).fingerprint != Pair(a=None, b=None, t=2).fingerprint
    assert Pair(a=1, b=None, t=1).fingerprint == Pair(a=1, b=None, t=2).fingerprint


def test_a_missing_key_field_is_named() -> None:
    with pytest.raises(
        ItemError, match="BookItem has no field 'isbn', which its __unique_key__ names; it has"
    ):
        _ = BookItem(title="x").fingerprint


def test_an_update_counts_with_all_its_fields() -> None:
    one = StockItem(shop=1, isbn="1", left=3)
    assert one.fingerprint != StockItem(shop=1, isbn="1", left=2).fingerprint
    assert one.fingerprint == StockItem(left=3, isbn="1", shop=1).fingerprint
    with pytest.raises(ItemError, match="needs a value for 'isbn'"):
        _ = StockItem(shop=1, left=2).fingerprint

    class ByUnique(UpdateItem):
        __unique_key__ = "a"

    assert ByUnique(a=1).update_key == ("a",)
    with pytest.raises(ItemError, match="neither __update_key__ nor __unique_key__"):
        _ = UpdateItem(a=1).update_key


@pytest.mark.parametrize("name", ["fingerprint", "to_dict", "pre_to_db", "unique_key"])
def test_a_field_named_like_an_attribute_of_item_is_refused(name: str) -> None:
    with pytest.raises(ItemError, match="give the field another name"):
        Item(**{name: 1})
    with pytest.raises(ItemError, match="give the field another name"):
        Item()[name] = 1


def test_wrong_declarations_are_refused_where_the_class_is_made() -> None:
    with pytest.raises(ItemError, match="give the field another name"):
        type("Bad", (Item,), {"table_name": "x"})
    with pytest.raises(ItemError, match="field names are wanted"):
        type("Bad", (Item,), {"__unique_key__": [1]})
    with pytest.raises(ItemError, match="field names are wanted"):
        type("Bad", (UpdateItem,), {"__update_key__": 5})


def test_pre_to_db_may_be_defined_and_does_nothing_by_default() -> None:
    class Clean(Item):
        def pre_to_db(self) -> None:
            self.title = self.title.strip()

    item = Clean(title=" x ")
    item.pre_to_db()
    assert item.to_dict() == {"title": "x"}
    assert Item(a=1).pre_to_db() is None


def test_the_repr_is_short() -> None:
    assert repr(BookItem(isbn="1")) == "BookItem(price=None, tags=[], isbn='1')"
    assert len(repr(Item(a="x" * 10_000))) < 200
