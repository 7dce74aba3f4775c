# SPDX-License-Identifier: BSD-3-Clause
"""Windows: the calls for job objects, which trees need, and their check."""

from struct import Struct

from ..._base.errors import Failed, call
from ..calls import Calls
from .calls import Wrapper32, row32
from .handle import Owned

_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
# LARGE_INTEGER PerProcessUserTimeLimit, PerJobUserTimeLimit; DWORD LimitFlags; and more
_LIMITS = Struct("qqIPPIPII6Q4P")
_PROCESS_ID_LIST = 3  # JobObjectBasicProcessIdList
# DWORD NumberOfAssignedProcesses, NumberOfProcessIdsInList; ULONG_PTR ProcessIdList[1];
_PROCESSES = Struct("IIP")
_ERROR_MORE_DATA = 234


class _LimitJob(Wrapper32):
    """SetInformationJobObject(job, flags of its limits)"""

    def __call__(self, job: int, flags: int) -> None:
        memory = bytearray(_LIMITS.size)
        memory[16:20] = flags.to_bytes(4, "little")
        self._function(job, _EXTENDED_LIMITS, memory, len(memory))


class _QueryJob(Wrapper32):
    """QueryInformationJobObject(job) -> the number of running processes, the pid of one"""

    def __call__(self, job: int) -> "tuple[int, int]":
        memory = bytearray(_PROCESSES.size)
        try:
            self._function(job, _PROCESS_ID_LIST, memory, len(memory), None)
        except Failed as why:
            if why.winerror != _ERROR_MORE_DATA:
                raise
        running, _, pid = _PROCESSES.unpack(memory)
        return running, pid


JOB_CALLS = Calls(
    {
        "CreateJobObjectW": row32("HANDLE PVOID PVOID"),
        "AssignProcessToJobObject": row32("BOOL HANDLE HANDLE"),
        "TerminateJobObject": row32("BOOL HANDLE DWORD"),
        # job, class, buffer, size; to query also: size needed
        "SetInformationJobObject": row32("BOOL HANDLE ENUM PVOID DWORD", wrapper=_LimitJob),
        "QueryInformationJobObject": row32("BOOL HANDLE ENUM PVOID DWORD PVOID", wrapper=_QueryJob),
        "ResumeThread": row32("DWORD HANDLE", 0xFFFFFFFF),
    }
)


def check_job() -> None:
    """Make a job, as for a tree, and ask for its processes."""
    with Owned(JOB_CALLS["CreateJobObjectW"], None, None) as job:
        call(JOB_CALLS["QueryInformationJobObject"], job.number)


JOB_CHECKS = [("job objects", "CreateJobObjectW", check_job)]
