# SPDX-License-Identifier: BSD-3-Clause
"""Windows: the calls for job objects, which trees need, and their check."""

from struct import Struct

from ..._base.errors import Failed, call
from ..calls import Calls
from .calls import Wrapper32, row32
from .handle import Owned

# JobObjectBasicAccountingInformation. LARGE_INTEGER TotalUserTime, TotalKernelTime; and more
JOB_TIMES = 1, Struct("4q4I")
# JobObjectBasicProcessIdList. DWORD NumberOfAssignedProcesses, and another number; ULONG_PTR pids
JOB_PROCESSES = 3, Struct("IIP")
# JobObjectExtendedLimitInformation. LARGE_INTEGER PerProcessUserTimeLimit, PerJobUserTimeLimit;
# DWORD LimitFlags; and more; SIZE_T PeakProcessMemoryUsed, PeakJobMemoryUsed
JOB_LIMITS = 9, Struct("qqIPPIPII6Q4P")
_ERROR_MORE_DATA = 234


class _LimitJob(Wrapper32):
    """SetInformationJobObject(job, flags of its limits)"""

    def __call__(self, job: int, flags: int) -> None:
        memory = bytearray(JOB_LIMITS[1].size)
        memory[16:20] = flags.to_bytes(4, "little")
        self._function(job, JOB_LIMITS[0], memory, len(memory))


class _QueryJob(Wrapper32):
    """QueryInformationJobObject(job, class, structure) -> the fields of the structure"""

    def __call__(self, job: int, class_: int, structure: Struct) -> "tuple[int, ...]":
        memory = bytearray(structure.size)
        try:
            self._function(job, class_, memory, len(memory), None)
        except Failed as why:
            if why.winerror != _ERROR_MORE_DATA:
                raise
        return structure.unpack(memory)


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
        call(JOB_CALLS["QueryInformationJobObject"], job.number, *JOB_PROCESSES)


JOB_CHECKS = [("job objects", "CreateJobObjectW", check_job)]
