"""What every spider class has: its hooks, its settings, its arguments. It declares; it holds no loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from netspy import settings as settings_module
from netspy.errors import ConfigError, SpiderError
from netspy.messages.request import Request
from netspy.messages.response import Response
from netspy.observe.counters import Counters
from netspy.observe.log import Logger, get_logger
from netspy.spiders.loading import may_start

if TYPE_CHECKING:
    from netspy.assembly.contract import Stoppable
    from netspy.observe.summary import RunSummary


class BaseParser:
    """The hooks of a spider and what it brings along.

    Keyword arguments of the constructor: those documented here; names of settings (`SPIDER_THREAD_COUNT=8`), which
    beat every other source; and any others, which become attributes: `NewsSpider(section="tech").section`.
    Every hook may be `async def`.
    """

    __custom_setting__: ClassVar[dict[str, Any]] = {}
    kind: ClassVar[str] = "spider"
    shared: bool = False

    start_urls: Sequence[str] = ()

    _name = ""  # what a class sets before super().__init__() must have a place
    _stats: Any = None
    _own_settings: Any = None

    def __init__(
        self,
        *,
        thread_count: int | None = None,
        item_handler: Callable[[list[Any]], Any] | None = None,
        pipelines: Sequence[Any] | None = None,
        **arguments: Any,
    ) -> None:
        """`thread_count`: requests in flight (SPIDER_THREAD_COUNT). `pipelines`: class paths, classes or instances,
        in the place of ITEM_PIPELINES. `item_handler`: gets lists of items in the place of pipelines and dedup.
        """
        self._overrides: dict[str, Any] = {}
        self._override_origins: dict[str, str] = {}
        if thread_count is not None:
            self._overrides["SPIDER_THREAD_COUNT"] = thread_count
        self.item_handler = item_handler
        self.pipelines = pipelines
        self.arguments: dict[str, Any] = {}
        for name, value in arguments.items():
            if name in settings_module.FIELDS or name in settings_module.NOT_BUILT:
                self._overrides[name] = value
            elif hasattr(type(self), name) and callable(getattr(type(self), name)):
                raise ConfigError(
                    f"{type(self).__name__}({name}=…) would replace the method {name}(); choose another argument name"
                )
            else:
                self.arguments[name] = value
                setattr(self, name, value)
                if name.isupper():  # perhaps a misspelt setting: that is told when they are read
                    self._overrides[name] = value
        self.logger: Logger = get_logger(type(self).__name__)
        self._counters = Counters()
        self._runs = 0
        self._loaded: settings_module.Loaded | None = None
        self._running: Stoppable | None = None

    # -- names and settings ----------------------------------------------------------------------------------

    @property
    def job_name(self) -> str:
        """What names the job where nothing else does, such as its keys in Redis: the class, whatever `name` says."""
        return type(self).__name__

    @property
    def name(self) -> str:
        """The name for people, in the log and the summary: the class name, unless you set another."""
        return self._name or type(self).__name__

    @name.setter
    def name(self, value: str) -> None:
        self._name = value
        self.__dict__["logger"] = get_logger(str(value))

    @property
    def stats(self) -> Any:
        """Counters of your own: `self.stats.inc("captchas")`; they appear in the summary. May be replaced."""
        return self.counters.stats if self._stats is None else self._stats

    @stats.setter
    def stats(self, value: Any) -> None:
        self._stats = value

    @property
    def counters(self) -> Counters:
        """What netspy counts."""
        return self._counters

    @counters.setter
    def counters(self, value: Any) -> None:
        raise SpiderError(
            f"{type(self).__name__}.counters = {value!r:.60}: netspy counts there; choose another name, or use self.stats"
        )

    @property
    def scheduler(self) -> BaseParser:
        """Who has `stats`: `self.scheduler.stats.get("captchas")`."""
        return self

    def load_settings(self) -> settings_module.Loaded:
        """Read the layers once: defaults, setting.py, `__custom_setting__`, environment, keywords. Raises ConfigError."""
        if self._loaded is None:
            custom: dict[str, Any] = {}
            for klass in reversed(type(self).__mro__):
                custom.update(vars(klass).get("__custom_setting__", {}))
            self._loaded = settings_module.load(
                custom=custom,
                custom_origin=f"{self.name}.__custom_setting__",
                overrides=self._overrides,
                override_origin=self._override_origins,
            )
        return self._loaded

    def override_settings(self, values: dict[str, Any], origin: str = "keyword") -> None:
        """Set settings above every other source, before the start (the command line's `-s`). `origin` is for messages."""
        self._overrides.update(values)
        self._override_origins.update(dict.fromkeys(values, origin))
        self._loaded = None

    @property
    def settings(self) -> settings_module.Settings:
        """The settings of this spider, a frozen value. An attribute of your own in its place changes no setting."""
        own: Any = self._own_settings
        return self.load_settings().settings if own is None else own

    @settings.setter
    def settings(self, value: Any) -> None:
        self._own_settings = value

    # -- hooks -----------------------------------------------------------------------------------------------

    def start_requests(self) -> Any:
        """Yield the first requests. The default takes them from `start_urls`."""
        return [Request(url) for url in self.start_urls]

    def request_from_seed(self, url: str) -> Request:
        """A seed that is just a URL."""
        return Request(url)

    def parse(self, request: Request, response: Response) -> Any:
        """The callback of requests that name none. Yield requests, items, dicts."""
        raise SpiderError(
            f"{self.name} has no parse(request, response), which requests without a callback go to; "
            f"define it, or give the request for {request.url} a callback"
        )

    def download_midware(self, request: Request) -> Request | None:
        """Called before each download; change the request or return another one."""
        return None

    def validate(self, request: Request, response: Response) -> bool | None:
        """Judge a response before the callback: False drops it, ValidationError has it fetched again."""
        return None

    def failed_request(self, request: Request, response: Response | None) -> Any:
        """Called when a request has failed for good; may yield like a callback."""
        return None

    def exception_request(self, request: Request, response: Response | None, exception: Exception) -> Any:
        """Called before each further try; may yield like a callback."""
        return None

    def start_callback(self) -> None:
        """Called once on each node before it starts to crawl."""

    def end_callback(self) -> None:
        """Called once on each node at its end."""

    def on_alert(self, kind: str, message: str) -> None:
        """Called for what a person should know of: a filling dedup filter, items that can't be stored, poison."""

    def user_pool(self) -> Any:
        """Account pools are not built yet: overriding this is refused at start."""
        return None

    def why_nothing(self) -> str | None:
        """Why a run may have found nothing to do; None = no other reason than usual."""
        return None

    def problem(self) -> str | None:
        """What is wrong with this spider's declaration; None when it can start."""
        if type(self).start_requests is BaseParser.start_requests and not self.start_urls:
            return f"{self.name} has no start_requests: define it and yield the first requests, or set start_urls"
        if type(self).user_pool is not BaseParser.user_pool:
            return f"{self.name}.user_pool: account pools are not built yet; log in from start_requests"
        return None

    # -- running ---------------------------------------------------------------------------------------------

    def start(self, *, processes: int = 1) -> RunSummary:
        """Crawl until the run is over, and print the summary. Blocks.

        Returns the summary when the exit code is 0, else raises SystemExit with the code (see docs/running.md), after
        one line that says why. `processes`: node processes on this machine (Spider only).
        """
        from netspy.launch import start

        may_start(self)
        return start(self, processes=processes)

    def run(self) -> RunSummary:
        """As `start`, in this process, for programs: prints no summary, never exits, raises ConfigError.

        Where an event loop runs in this thread (a notebook), the crawl has a thread of its own meanwhile; that loop stands
        still until the crawl is over, as at any call that blocks: `await asyncio.to_thread(spider.run)` lets it go on.
        """
        from netspy.launch.loops import off_the_loop
        from netspy.launch.single import run_single

        may_start(self)
        return off_the_loop(lambda: run_single(self).summary, self.stop)

    def begin_run(self) -> None:
        """Called at each start: a further run of the same object counts from zero."""
        if self._runs:
            self._counters = Counters()
        self._runs += 1

    def stop(self, reason: str = "stopped by the spider's code") -> None:
        """Stop gracefully, from any thread or callback: running pages end, items are stored, the rest stays queued."""
        if self._running is not None:
            self._running.stop(reason)
