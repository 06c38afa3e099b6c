"""Which process of a run under xdist takes which file of tests."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Files that share a server which takes long to start go together.
_TOGETHER = ("tests/monitoring/flink/",)
# What pytest-playwright calls a test that drives a browser.
_DRIVES_A_BROWSER = "[chromium"


class FilesInOrder(LoadFileScheduling):
    """Files in the order in which they were collected, those with a browser in processes of their own.

    Playwright keeps an event loop in the thread of its process, in which no other test can run one from then on. One
    process begins with the browser's files; the others take some only when nothing else is left.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in _TOGETHER if nodeid.startswith(place)), super()._split_scope(nodeid))

    def _reschedule(self, node: WorkerController) -> None:
        """A process has to know the test after the one that it begins; no more than that waits behind a long one."""
        if node.shutting_down:
            return
        if not self.workqueue or self._next_for(node) is None:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_for(node)
        assert file is not None
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str | None:
        """The file that `node` shall take next; None: none is left that it can."""
        browser = next((file for file, tests in self.workqueue.items() if _with_browser(tests)), None)
        other = next((file for file, tests in self.workqueue.items() if not _with_browser(tests)), None)
        if self._drives(node):
            return browser
        if len(self.nodes) > 1 and not any(map(self._drives, self.nodes)):
            return browser or other
        return other or browser

    def _drives(self, node: WorkerController) -> bool:
        return any(map(_with_browser, self.assigned_work[node].values()))


def _with_browser(tests: dict[str, bool]) -> bool:
    return any(_DRIVES_A_BROWSER in test for test in tests)
