# SPDX-License-Identifier: BSD-3-Clause
"""The same as kinds, for what runs a function in a process, and pools of such processes."""

import importlib
import os

from ..processes import eventually

POOLS = {}
# A fork server tells each code once. If two threads ask at the same time, one is told, and the
# other one sets 255 instead, before that or after it: multiprocessing.popen_forkserver. The
# threads of these pools ask, and so does a wait, which does not take 255 for a code.
MAYBE_255 = "ProcessPoolExecutor_forkserver", "multiprocessing_pool"


def pool(name=None):
    def register(function):
        POOLS[name or function.__name__] = function
        return function

    return register


def job(fifo, code):
    """The same, for what runs a function."""
    with open(fifo) as file:
        file.read()
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def multiprocessing_by(package, method):
    @pool("%s_%s" % (package, method))
    def make(fifo, code):
        context = importlib.import_module(package).get_context(method)
        process = context.Process(target=job, args=(fifo, code))
        process.start()

        def owner():
            active = importlib.import_module(package + ".process")._children
            assert process not in active  # joined by the wait
            return process.exitcode

        return process, owner


for method in "fork", "spawn", "forkserver":
    multiprocessing_by("multiprocessing", method)
multiprocessing_by("multiprocess", "fork")  # a fork of it, which pickles more


@pool()
def multiprocessing_pool(fifo, code):
    from multiprocessing import get_context

    # By fork, the next worker inherits what the main thread's Popen waits to be closed.
    pool = get_context("forkserver").Pool(1)
    (worker,) = pool._pool
    pool.apply_async(job, (fifo, code))

    def owner():
        pool.terminate()
        pool.join()
        return worker.exitcode

    return worker, owner


def executor_by(method):
    @pool("ProcessPoolExecutor_" + method)
    def make(fifo, code):
        from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
        from multiprocessing import get_context

        executor = ProcessPoolExecutor(1, mp_context=get_context(method))
        future = executor.submit(job, fifo, code)
        (worker,) = executor._processes.values()

        def owner():
            assert isinstance(future.exception(), BrokenProcessPool)
            executor.shutdown()
            return worker.exitcode

        return worker, owner


for method in "fork", "spawn", "forkserver":
    executor_by(method)


@pool()
def loky(fifo, code):
    from loky.backend import get_context

    process = get_context("loky").Process(target=job, args=(fifo, code))
    process.start()
    return process, lambda: process.exitcode


@pool()
def loky_executor(fifo, code):
    from loky import ProcessPoolExecutor
    from loky.process_executor import TerminatedWorkerError

    executor = ProcessPoolExecutor(1)
    future = executor.submit(job, fifo, code)
    eventually(lambda: executor._processes)
    (worker,) = executor._processes.values()

    def owner():
        error = future.exception()
        assert isinstance(error, TerminatedWorkerError)
        assert "(%d)" % code in str(error)  # "The exit codes of the workers are {EXIT(3)}"
        executor.shutdown()
        return worker.exitcode

    return worker, owner
