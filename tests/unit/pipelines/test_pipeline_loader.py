from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from netspy.errors import ConfigError
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.console import ConsolePipeline
from netspy.pipelines.loader import load_pipelines, pipeline_name

if TYPE_CHECKING:
    from pathlib import Path

    from netspy.settings import Settings


class Plain:
    """No BasePipeline, and no room for settings."""

    __slots__ = ()

    def save_items(self, table, items):
        return True


class Needy(BasePipeline):
    def __init__(self, url):
        pass


def test_both_spellings_classes_and_objects_are_taken_in_order(settings: Settings) -> None:
    ready = ConsolePipeline()
    made = load_pipelines(
        ["netspy.pipelines.console.ConsolePipeline", "netspy.pipelines.csv:CsvPipeline", Plain, ready],
        settings,
    )
    assert [type(p).__name__ for p in made] == ["ConsolePipeline", "CsvPipeline", "Plain", "ConsolePipeline"]
    assert made[3] is ready
    assert made[0].settings is made[3].settings is settings
    assert pipeline_name(made[1]) == pipeline_name(type(made[1])) == "netspy.pipelines.csv.CsvPipeline"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("netspy.pipelines.hbase.HbasePipeline", "there is no module .*sqlite.SqlitePipeline"),
        ("netspy.pipelines.kafka:KafkaPipelin", "did you mean KafkaPipeline"),
        (
            "netspy.pipelines.sqllite.SqlitePipeline",
            "there is no module netspy.pipelines.sqllite; netspy has",
        ),
        ("netspy.pipelines.csv.CsvPipline", "did you mean CsvPipeline"),
        ("nowhere.at.all.Pipe", "no module nowhere.at.all; check the spelling"),
        ("__main__.NoSuchPipe", "move the class to a module"),
        ("CsvPipeline", "is no class path"),
        ("", "is no class path"),
        (".Relative", "is no class path"),
        ("os.path", "has no save_items"),
        ("broken_project.needs.Pipe", "needs some_driver_nobody_has, which isn't installed"),
        ("broken_project.raises.Pipe", "importing broken_project.raises failed: ZeroDivisionError"),
    ],
)
def test_a_path_that_can_not_be_loaded_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, path: str, words: str
) -> None:
    project = tmp_path / "broken_project"
    project.mkdir()
    (project / "needs.py").write_text("import some_driver_nobody_has\n")
    (project / "raises.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=words) as caught:
        load_pipelines([path], settings)
    assert repr(path) in str(caught.value) or path == "os.path"


def test_a_class_that_can_not_be_made_is_named(settings: Settings) -> None:
    with pytest.raises(ConfigError, match=r"Needy.*making it failed: TypeError"):
        load_pipelines([Needy], settings)
