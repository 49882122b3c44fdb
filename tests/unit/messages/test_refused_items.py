"""Refused items: what is kept of them makes the same item again, whatever its class does with names and values."""

import dataclasses
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from netspy.errors import ItemError
from netspy.messages.item import Item
from netspy.messages.records import raw_row, remade, row_of


def row(value, **more):
    return row_of(value, **{"validate": False, **more})[0]


def again(value):
    """The item as a replay makes it of the dead letter."""
    return remade(raw_row(value), type(value))


class Camel(msgspec.Struct, rename="camel"):
    price_eur: float = 0.0
    offers: list["Camel"] = []


class Aliased(pydantic.BaseModel):
    price: float = pydantic.Field(default=1.0, alias="Price")
    day: date = date(2026, 1, 1)
    parts: list["Aliased"] = []

    @pydantic.field_serializer("day")
    def shown(self, value):
        return f"on {value}"

    @pydantic.computed_field
    @property
    def double(self) -> float:
        return 2 * self.price


@pytest.mark.parametrize(
    "value",
    [
        Camel(5.0),
        Camel(5.0, [Camel(6.0)]),
        Aliased(Price=3.0),
        Aliased(Price=3.0, parts=[Aliased(Price=4.0)]),
    ],
)
def test_names_that_a_class_reads_otherwise_lose_no_value(value):
    assert row(again(value)) == row(value)


def test_a_model_with_an_alias_and_a_serializer_passes_its_own_rules():
    made = row(Aliased(Price=3.0, parts=[Aliased(Price=4.0)]), validate=True)
    assert made.data["day"] == "on 2026-01-01"
    assert (made.data["price"], made.data["parts"][0]["double"]) == (3.0, 8.0)
    spoiled = Aliased(parts=[Aliased()])
    spoiled.parts[0].price = "a lot"
    with pytest.raises(ItemError, match=r"Aliased\.parts\.0\.price: .* it is 'a lot'"):
        row(spoiled, validate=True)


def test_a_root_model_inside_is_checked_as_what_it_stands_for():
    class Names(pydantic.RootModel[list[str]]):
        pass

    class Team(pydantic.BaseModel):
        names: Names

    assert row(Team(names=Names(["a"])), validate=True).data == {"names": ["a"]}


class Priced(Item):
    price: Decimal
    sku: str = "a"

    def pre_to_db(self):
        self.price = Decimal(self.price.replace(",", "."))
        self.note = "cleaned"


@dataclasses.dataclass(slots=True)
class PricedSlots:
    price: Any
    sku: str = ""

    def pre_to_db(self):
        self.price = Decimal(self.price.replace(",", "."))


class PricedStruct(msgspec.Struct):
    price: Any
    sku: str = ""

    def pre_to_db(self):
        self.price = Decimal(self.price.replace(",", "."))


class PricedModel(pydantic.BaseModel):
    price: Any
    sku: str = ""

    def pre_to_db(self):
        self.price = Decimal(self.price.replace(",", "."))


@pytest.mark.parametrize("kind", [Priced, PricedSlots, PricedStruct, PricedModel])
def test_an_item_that_is_refused_after_its_cleaning_is_kept_as_it_was_yielded(kind):
    value = kind(price="1,50")
    value.sku = 5
    with pytest.raises(ItemError):
        row(value, validate=True)
    kept = raw_row(value)
    assert kept.data == {"price": "1,50", "sku": 5}
    mended = remade(kept._replace(data={**kept.data, "sku": "a"}), kind)
    assert row(mended, validate=True).data["price"] == Decimal("1.50")


def test_a_table_and_pipelines_that_were_set_for_one_item_are_kept():
    item = Priced(price="1")
    item.table_name = "other"
    item.pipelines = ["shop.Pipeline"]
    made = row(again(item))
    assert (made.table, made.pipelines) == ("other", ("shop.Pipeline",))
    assert row(again(Priced(price="1")))[:3:2] == ("priced", None)


def test_lists_and_items_inside_an_item_are_taken_as_they_are_at_the_yield():
    seller = Item(name="s")
    item = Item(tags=["a"], seller=seller, deep={"x": [1]}, marks={1})
    made = row(item)
    item.tags.append("b")
    item.deep["x"].append(2)
    item.marks.add(2)
    seller.name = "t"
    assert made.data == {"tags": ["a"], "seller": {"name": "s"}, "deep": {"x": [1]}, "marks": {1}}
