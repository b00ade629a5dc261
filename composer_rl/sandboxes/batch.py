"""One call of evaluate: jobs spread over template workers, replies put back in order, lost workers replaced."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Sequence

from composer_rl.errors import SandboxError
from composer_rl.sandboxes.answers import SetupFailedError, check_json, decode_evaluation
from composer_rl.sandboxes.base import CallOutcome, Evaluation, EvaluationJob, Limits
from composer_rl.sandboxes.template import frames
from composer_rl.sandboxes.worker import NotAvailableError, Reply, TemplateWorker, WorkerLostError

_QUEUED_PER_WORKER = 2
_LOOK_S = 1.0
_MAX_ATTEMPTS = 2


class Batch:
    """The jobs of one call; `workers` is edited in place when a worker has to be replaced."""

    def __init__(
        self,
        workers: list[TemplateWorker],
        start: Callable[[], TemplateWorker],
        jobs: Sequence[EvaluationJob],
        limits: Limits,
        job_bytes: int,
    ) -> None:
        for position, job in enumerate(jobs):
            if type(job.source) is not str:
                raise ValueError(f"jobs[{position}]: the source must be a str, got {type(job.source).__name__}")
            for call in job.calls:
                check_json(list(call.args), f"jobs[{position}]: the arguments of {call.function}")
        self._workers = workers
        self._start = start
        self._jobs = jobs
        self._limits = limits
        self._job_bytes = job_bytes
        self._pending = deque(range(len(jobs)))
        self._attempts = [0] * len(jobs)
        self._results: list[Evaluation | None] = [None] * len(jobs)
        self._num_left = len(jobs)
        self._selector: selectors.BaseSelector

    def run(self) -> list[Evaluation]:
        """Evaluate every job. Raises SandboxError when the sandbox failed twice on the same one."""
        with selectors.DefaultSelector() as self._selector:
            for worker in self._workers:
                self._selector.register(worker, selectors.EVENT_READ, worker)
            for depth in range(1, _QUEUED_PER_WORKER + 1):
                for worker in list(self._workers):
                    self._serve(worker, selectors.EVENT_WRITE, depth)
            while self._num_left:
                for key, events in self._selector.select(_LOOK_S):
                    self._serve(key.data, events, _QUEUED_PER_WORKER)
                for worker in [worker for worker in self._workers if worker.overdue()]:
                    self._replace(worker, "it did not reply in time")
        return [result for result in self._results if result is not None]

    def _serve(self, worker: TemplateWorker, events: int, depth: int) -> None:
        """Read and write what can be read and written, and keep up to `depth` jobs queued at the worker."""
        try:
            if events & selectors.EVENT_READ:
                for index, num_calls, reply in worker.receive():
                    self._finish(index, num_calls, reply)
            worker.send()
            while len(worker.in_flight) < depth and (taken := self._next()) is not None:
                index, request = taken
                worker.submit(index, len(self._jobs[index].calls), request)
        except WorkerLostError as error:
            self._replace(worker, str(error))
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.wants_write else 0)
        if self._selector.get_key(worker).events != wanted:
            self._selector.modify(worker, wanted, worker)

    def _next(self) -> tuple[int, bytes] | None:
        """Index and frame of the next job; one that does not fit the wire is answered here, without being run."""
        while self._pending:
            index = self._pending.popleft()
            job = self._jobs[index]
            calls = [{"function": call.function, "args": call.args} for call in job.calls]
            request = frames.json_frame({"source": job.source, "calls": calls})
            if len(request) - frames.LENGTH.size <= self._job_bytes:
                return index, request
            message = f"the job takes {len(request)} bytes as JSON; job_bytes allows {self._job_bytes}"
            missing = CallOutcome(ok=False, error_type="NoAnswer", error_message=message)
            self._record(index, Evaluation(status="crashed", outcomes=(missing,) * len(job.calls)))
        return None

    def _finish(self, index: int, num_calls: int, reply: Reply) -> None:
        try:
            self._record(index, decode_evaluation(*reply, num_calls, self._limits))
        except SetupFailedError as error:
            self._retry(index, f"a child could not be confined: {error}")

    def _record(self, index: int, evaluation: Evaluation) -> None:
        self._results[index] = evaluation
        self._num_left -= 1

    def _retry(self, index: int, reason: str) -> None:
        """Put a job back in front, once: what happened was the sandbox's failure, not the job's."""
        self._attempts[index] += 1
        if self._attempts[index] >= _MAX_ATTEMPTS:
            raise SandboxError(f"the sandbox failed {_MAX_ATTEMPTS} times on jobs[{index}]: {reason}")
        self._pending.appendleft(index)

    def _replace(self, worker: TemplateWorker, reason: str) -> None:
        """Take a broken worker out, put its jobs back (only the oldest had begun) and start another one."""
        self._selector.unregister(worker)
        indices = [index for index, _ in worker.in_flight]
        worker.in_flight.clear()
        worker.kill()
        self._workers.remove(worker)
        self._pending.extendleft(reversed(indices[1:]))
        if indices:
            self._retry(indices[0], f"its template process was lost: {reason}")
        try:
            fresh = self._start()
        except NotAvailableError as error:
            raise SandboxError(f"a lost sandbox worker could not be replaced: {error}") from error
        self._workers.append(fresh)
        self._selector.register(fresh, selectors.EVENT_READ, fresh)
        self._serve(fresh, selectors.EVENT_WRITE, _QUEUED_PER_WORKER)
