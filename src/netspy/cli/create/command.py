"""`netspy create`: a project, a spider, an item or a setting.py to start from."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspy.cli.create import templates
from netspy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_NAME = 60


class Kind(StrEnum):
    """The base class of a new spider."""

    air = "air"
    spider = "spider"
    task = "task"
    batch = "batch"


HELP = """Create a project, a spider, an item or a setting.py. Nothing that exists is overwritten
without --force.

In a project, spiders go to spiders/ and items to items/; elsewhere to the current folder. An item with --table takes its
fields, types and key from the table, if the database of --url or of the settings has it.

\b
Examples
  netspy create -p shop
  netspy create -s news
  netspy create -s news --kind spider
  netspy create -s prices --kind task
  netspy create -i product
  netspy create -i product --table products
  netspy create -i product --table products --url mysql://me:secret@db/shop
  netspy create -i product --table products --url postgres
  netspy create --setting
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("create", help=HELP, short_help="Create a project, a spider, an item or a setting.py.")(
        create
    )


def create(
    *,
    project: Annotated[
        str | None, typer.Option("-p", "--project", metavar="NAME", help="A folder with a spider that runs.")
    ] = None,
    spider: Annotated[str | None, typer.Option("-s", "--spider", metavar="NAME", help="A spider.")] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--kind",
            help="air: one process (default); spider: shared through Redis; task: works off a list of tasks; batch: works "
            "off a table, again and again.",
        ),
    ] = None,
    item: Annotated[str | None, typer.Option("-i", "--item", metavar="NAME", help="An item.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="The item's table (default: its name).")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Where the table is: mysql://, postgresql://, sqlite:///path, or mysql, postgres, sql for the database of "
            "those settings. Without it: where the pipelines of the settings store.",
        ),
    ] = None,
    mysql: Annotated[
        str | None, typer.Option("--mysql", metavar="URL", help="The same for MySQL and MariaDB.")
    ] = None,
    setting: Annotated[
        bool, typer.Option("--setting", help="A setting.py with every setting and its default.")
    ] = False,
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite the file.")] = False,
) -> None:
    """Write what was asked for and say where it is."""
    asked = [project is not None, spider is not None, item is not None, setting]
    if sum(asked) != 1:
        raise typer.BadParameter("give exactly one of -p NAME, -s NAME, -i NAME and --setting")
    if kind is not None and project is None and spider is None:
        raise typer.BadParameter("--kind goes with -s or -p")
    if table is not None and item is None:
        raise typer.BadParameter("--table goes with -i")
    if url is not None and mysql is not None:
        raise typer.BadParameter("give --url or --mysql, not both")
    if (url is not None or mysql is not None) and table is None:
        raise typer.BadParameter("--url and --mysql go with --table, the table to read")
    if force and project is not None:
        raise typer.BadParameter("-f is for one file; a project's folder is never overwritten")
    base = (kind or Kind.air).value
    if project is not None:
        new_project(project, base)
    elif spider is not None:
        file, class_name = module_and_class(spider, "spider")
        folder = home("spiders")
        write({folder / f"{file}.py": templates.spider_module(class_name, base)}, overwrite=force)
        print(f"Run it: netspy run {(folder / file).as_posix()}.py")
    elif item is not None:
        file, class_name = module_and_class(item, "item")
        text = item_text(class_name, table, file, url, mysql)
        write({home("items") / f"{file}.py": text}, overwrite=force)
    else:
        write({Path("setting.py"): templates.setting_module()}, overwrite=force)


def new_project(name: str, kind: str) -> None:
    """A folder `name` with a spider of that name, ready to run. Raises ConfigError when the folder exists."""
    file, class_name = module_and_class(name, "spider")
    root = Path(name)
    if root.exists():
        raise ConfigError(f"{name} exists already; choose another name, or add to it with `netspy create -s`")
    write(
        {
            root / "main.py": templates.main_module(file, class_name),
            root / "setting.py": templates.setting_module(),
            root / "spiders" / "__init__.py": templates.package_module("spiders"),
            root / "spiders" / f"{file}.py": templates.spider_module(class_name, kind),
            root / "items" / "__init__.py": templates.package_module("items"),
            root / "README.md": templates.readme(name, file),
            root / ".gitignore": templates.GITIGNORE,
        }
    )
    print(f"Run it: cd {name} && netspy run main.py")


def module_and_class(name: str, what: str) -> tuple[str, str]:
    """Module and class name for what a person calls it: `news`, `hot-news` and `HotNewsSpider` all do.

    Raises a usage error when no Python name can be made of it.
    """
    plain = name.replace("-", "_")
    if not plain.isidentifier() or plain.startswith("_") or len(plain) > MAX_NAME:
        raise typer.BadParameter(
            f"{name!r} can't be the name of a {what}: use letters, digits, - and _, a letter first, "
            f"and at most {MAX_NAME} characters"
        )
    words = [word for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).split("_") if word]
    if len(words) > 1 and words[-1].lower() == what:
        words.pop()
    module = "_".join(word.lower() for word in words)
    return f"{module}_{what}", "".join(word[0].upper() + word[1:] for word in words) + what.capitalize()


def table_name(given: str | None, file: str) -> str:
    """The item's table: as given, else the module's name without its ending. Raises a usage error."""
    if given is None:
        return file.removesuffix("_item")
    if not given.isidentifier() or len(given) > MAX_NAME:
        raise typer.BadParameter(
            f"{given!r} can't be a table: use letters, digits and _, a letter first, "
            f"and at most {MAX_NAME} characters"
        )
    return given


def item_text(class_name: str, table: str | None, file: str, url: str | None, mysql: str | None) -> str:
    """The item's module: from the table when a database has it. Raises ConfigError, a usage error."""
    value = url or mysql
    if table is None:
        return templates.item_module(class_name, table_name(table, file))
    from netspy.cli.create.item_of_table import address_of, item_module, read_table, table_of_settings

    if value is not None:
        return item_module(class_name, read_table(address_of("--url" if url else "--mysql", value), table))
    found = table_of_settings(table)
    if found is None:
        return templates.item_module(class_name, table_name(table, file))
    return item_module(class_name, found)


def home(folder: str) -> Path:
    """The project's folder of that name when the current folder is a project, else the current folder."""
    return Path(folder) if Path(folder).is_dir() else Path()


def write(files: Mapping[Path, str], *, overwrite: bool = False) -> None:
    """Write the files and say so. Raises ConfigError, before anything is written, when one of them exists."""
    for path in files:
        if path.exists() and not overwrite:
            hint = "-f overwrites it" if len(files) == 1 else "choose another name"
            raise ConfigError(f"{path.as_posix()} exists already; {hint}")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w" if overwrite else "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"{path.as_posix()} can't be written: {error.strerror}") from error
        print(f"created {path.as_posix()}")
