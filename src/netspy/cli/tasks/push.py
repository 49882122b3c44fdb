"""`netspy tasks push`: the tasks of a file or of standard input, to the end of the list."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from netspy.cli.job import ArgumentOption, SetOption
from netspy.cli.output import say, things
from netspy.cli.tasks.source_list import TaskKey, find_target, place_of
from netspy.errors import ConfigError, NetspyError, SerializationError
from netspy.observe.log import is_terminal
from netspy.stdio import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netspy.cli.tasks.lines import Format, Line
    from netspy.settings import Settings

HELP = """Push the tasks of a file, or of standard input (-), to the end of the list. Any process may push at any time.

\b
Formats, by the file's ending (--format for others; standard input is JSON lines)
  .jsonl  one JSON value per line: an object, a number, a text …
  .csv    with a heading line: each record is an object of texts
  .txt    each line is a text, such as a URL

Empty lines are left out. A file is checked before the first task is pushed; standard input is checked and pushed in
pieces of 1,000. A line that is no task ends it with nothing of its piece pushed, unless --skip-bad leaves it out.

\b
Examples
  netspy tasks push products.csv --spider main.py
  netspy tasks push urls.txt --task-key Products -s REDIS_URL=redis://10.0.0.5:6379/0
  mysql -N -e "SELECT JSON_OBJECT('id', id) FROM product" | netspy tasks push - --spider main.py
"""

PIECE = 1000
PIECE_BYTES = 8_000_000


def push(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where the tasks are; - is standard input.")],
    spider: Annotated[
        str | None,
        typer.Option("--spider", metavar="FILE[:CLASS]", help="The TaskSpider that they are for."),
    ] = None,
    task_key: TaskKey = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="jsonl|csv|text", help="What the file's ending can't say."),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave lines out that are no task.")] = False,
    from_line: Annotated[
        int, typer.Option("--from-line", metavar="N", min=1, help="Push lines N and later only.")
    ] = 1,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Say on stdout how many were pushed, and where to."""
    from netspy.assembly.outside import OutsideSource

    target = find_target(spider, task_key, arguments, values)
    source_file = _File(file, _format(file, form), from_line)
    pushed = _Pushed(skip_bad=skip_bad, total=source_file.check(skip_bad=skip_bad))
    with _serving(target.settings) as settings:
        source = OutsideSource(settings, target.list_name, on_outage=_say_outage)
        try:
            with source, source_file.lines() as lines:
                while piece := pushed.piece(lines):
                    source.add(piece)
                    pushed.reach(source.added)
        except SerializationError as error:
            pushed.end_line()
            raise ConfigError(
                f"lines {pushed.next_line} to {pushed.read_to}: {error}; none of them was pushed"
            ) from None
        except BaseException as error:
            pushed.reach(source.added)
            pushed.end_line()
            if not isinstance(error, NetspyError | KeyboardInterrupt):
                raise
            if pushed.count or isinstance(error, KeyboardInterrupt):
                say(
                    f"{things(pushed.count, 'task')} pushed before that; go on with --from-line {pushed.next_line}"
                )
            raise
    pushed.end_line()
    if pushed.left_out:
        say(f"{things(pushed.left_out, 'line')} left out")
    print(f"pushed {things(pushed.count, 'task')} to {place_of(target)}")
    return 0


def _format(file: str, form: str | None) -> Format:
    from netspy.cli.tasks.lines import format_of

    if form is not None:
        if form not in {"jsonl", "csv", "text"}:
            raise typer.BadParameter(f"--format {form!r} is none of jsonl, csv, text")
        return form  # type: ignore[return-value]
    return "jsonl" if file == "-" else format_of(Path(file))


class _File:
    """The file or standard input, as lines."""

    def __init__(self, name: str, form: Format, from_line: int) -> None:
        self._name = name
        self._form = form
        self._from = from_line

    @contextmanager
    def lines(self) -> Iterator[Iterator[Line]]:
        """Its lines from the first one wanted on. Raises ConfigError for a file that can't be read."""
        from netspy.cli.tasks.lines import MAX_LINE, read_lines

        try:
            if self._name == "-":
                if is_missing(sys.stdin):  # its descriptor was closed before we started
                    raise ConfigError(
                        "standard input is closed; pipe the tasks into the command, or name a file"
                    )
                stdin = sys.stdin.buffer
                yield self._wanted(read_lines(iter(lambda: stdin.readline(MAX_LINE), b""), self._form))
                return
            with Path(self._name).open("rb") as file:
                yield self._wanted(read_lines(iter(lambda: file.readline(MAX_LINE), b""), self._form))
        except OSError as error:
            raise ConfigError(f"{self._name} can't be read: {error.strerror or error}") from None

    def _wanted(self, lines: Iterator[Line]) -> Iterator[Line]:
        return (line for line in lines if line.number >= self._from)

    def check(self, *, skip_bad: bool) -> int | None:
        """Read a file through, so that nothing is pushed of one with a bad line; the number of its tasks. None for what
        can be read only once. Raises ConfigError.
        """
        if self._name == "-" or not Path(self._name).is_file():
            return None
        count = 0
        with self.lines() as lines:
            for line in lines:
                if not line.trouble:
                    count += 1
                elif not skip_bad:
                    raise bad_line(line)
        return count


def bad_line(line: Line) -> ConfigError:
    """The error for a line that is no task."""
    return ConfigError(
        f"line {line.number}: {line.trouble}; mend it, or leave such lines out with --skip-bad"
    )


class _Pushed:
    """How far it is: on a terminal one line that is written anew."""

    def __init__(self, *, skip_bad: bool, total: int | None) -> None:
        from netspy.observe.progress import RateMeter

        self.count = 0
        self.next_line = 1
        self._skip_bad = skip_bad
        self._total = total
        self.read_to = 0
        self.left_out = 0
        self._rate = RateMeter()
        self._shows = is_terminal(sys.stderr)
        self._shown = False

    def piece(self, lines: Iterator[Line]) -> list[Any]:
        """The next tasks, [] at the end. Raises ConfigError for a line that is none, unless they are to be left out."""
        values: list[Any] = []
        size = 0
        for line in lines:
            if line.trouble:
                if not self._skip_bad:
                    raise bad_line(line)
                self.left_out += 1
                if self.left_out <= 20:
                    self.end_line()
                    say(f"line {line.number} is left out: {line.trouble}")
                continue
            self.read_to = line.number
            values.append(line.value)
            size += line.size
            if len(values) >= PIECE or size >= PIECE_BYTES:
                break
        return values

    def reach(self, count: int) -> None:
        """So many are stored."""
        from netspy.observe.progress import rate_text

        if count == self.count:
            return
        self.next_line = self.read_to + 1
        self.count = count
        rate = self._rate.update(self.count)
        if self._shows:
            of = f" of {self._total:,}" if self._total is not None else ""
            sys.stderr.write(f"\r\x1b[Kpushed {self.count:,}{of}  {rate_text(rate)}")
            sys.stderr.flush()
            self._shown = True

    def end_line(self) -> None:
        """Give the terminal's line back."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False


@contextmanager
def _serving(settings: Settings) -> Iterator[Settings]:
    """As `serving`, but tasks may come before the first crawl: an embedded server is made where there is none. One that
    doesn't answer is not waited for long.
    """
    from netspy.assembly import EMBEDDED
    from netspy.redisio.client import CLI_PATIENCE_S

    if settings.TASK_SOURCE and not settings.TASK_SOURCE.strip().startswith("stream:"):
        yield settings
        return
    patience = min(settings.REDIS_START_TIMEOUT, CLI_PATIENCE_S)
    settings = msgspec.structs.replace(settings, REDIS_START_TIMEOUT=patience)
    if settings.REDIS_URL != EMBEDDED:
        yield settings
        return
    from netspy.redisio.embedded.server import EmbeddedRedis

    with EmbeddedRedis(settings.EMBEDDED_DATA_DIR) as url:
        yield msgspec.structs.replace(settings, REDIS_URL=url)


def _say_outage(away: bool, seconds: float) -> None:
    say("the store is away; waiting for it" if away else f"the store is back after {seconds:.1f} s")
