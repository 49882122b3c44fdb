"""What a page has to do besides when its spider works on tasks: its task's salt, its report, the hook of its task's end."""

from __future__ import annotations

from netspy.engine.env import Env
from netspy.engine.page.effects import Effects
from netspy.engine.page.page import Page
from netspy.engine.parts import TaskParts
from netspy.errors import UnknownCallbackError
from netspy.messages.entry import Lease


def is_task_end(lease: Lease) -> bool:
    """Whether this is the last request of a task: nothing is fetched, it tells how the task ended."""
    return lease.task[:1] == "!"


class TaskPages:
    """`effects` carries out what callbacks ask for beside requests and items."""

    def __init__(self, env: Env, parts: TaskParts, effects: Effects) -> None:
        self._name = env.name
        self._log = env.log
        self._counters = env.counters
        self._parts = parts
        self._silent: set[str] = set()
        self.effects = effects
        self.salt = parts.salt

    def prepare_end(self, page: Page) -> None:
        """Make the page of a task's end call its hook. Raises UnknownCallbackError when there is none."""
        ended = self._parts.ended
        failures = page.lease.task[1:]
        if ended is None or not failures.isdigit():
            raise UnknownCallbackError(f"{self._name} has no tasks, so none can end")
        page.origin.label = f"{self._name}.{'task_failed' if int(failures) else 'task_done'}"
        request = page.request
        told = request.cb_kwargs or {}
        request.cb_kwargs = {
            "task": told.get("task"), "failed": int(failures), "token": told.get("token", ""),
        }  # fmt: skip
        page.function = ended

    def count_end(self, lease: Lease) -> None:
        """The hook of a task's end has run. Where reports are expected they count, where they are written."""
        if not self._parts.reported:
            self._counters.inc("tasks_done" if lease.task == "!0" else "tasks_failed")

    def look_for_report(self, page: Page, how: str) -> None:
        """Whether a task's last page seems to have ended without a word about the task; said once per callback."""
        if page.reported or not self._parts.reported or page.put_early or not page.task:
            return
        label = page.origin.label
        if label not in self._silent:
            self._silent.add(label)
            self._log.warning(
                "{} ended for a task without update_task and without further requests ({}). Unless another page of the "
                "task reports, it stays in process and is crawled again after BATCH_LOST_TASK_STALE",
                label, how,
            )  # fmt: skip
