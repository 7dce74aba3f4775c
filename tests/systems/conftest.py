# SPDX-License-Identifier: BSD-3-Clause
import gc
import importlib

import pytest

from .. import kqueue as kqueues
from .. import pidwait

ffi = importlib.import_module(pidwait.__name__ + "._ffi")
probe = importlib.import_module(pidwait.__name__ + "._probe")


@pytest.fixture
def on():
    """on(system, binding) makes this process look like one on that system; return its Kernel."""
    patches, kernels = pytest.MonkeyPatch(), []

    def on(system, binding="own"):
        reason = None if binding == "own" else ffi.missing(binding)
        if reason:
            pytest.skip(str(reason))
        kernels.append(kqueues.use(system, patches))
        patches.setenv("PIDWAIT_BACKEND", "kqueue")
        patches.setenv("PIDWAIT_FFI", "auto" if binding == "own" else binding)
        on.patch = patches
        return kernels[-1]

    yield on
    gc.collect()
    patches.undo()
    probe.forget()
    for kernel in kernels:
        kernel.close()
