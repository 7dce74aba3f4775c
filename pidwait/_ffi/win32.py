# SPDX-License-Identifier: BSD-3-Clause
"""Windows: prototypes of kernel32 and others, layouts, constants.

The types are C's own: a DWORD is an unsigned int, a BOOL an int, a HANDLE as wide as a
pointer. Without a prototype, ctypes would truncate a HANDLE to an int.
"""

import sys

WORD = 8 if sys.maxsize > 2**32 else 4

INVALID_HANDLE_VALUE = 2 ** (WORD * 8) - 1

# name: (the result that means failure, result, arguments...)
PROTOTYPES = {
    # HANDLE OpenProcess(DWORD dwDesiredAccess, BOOL bInheritHandle, DWORD dwProcessId);
    "OpenProcess": (0, "uintptr_t", "unsigned int", "int", "unsigned int"),
    # BOOL CloseHandle(HANDLE hObject);
    "CloseHandle": (0, "int", "uintptr_t"),
    # DWORD GetProcessId(HANDLE Process);
    "GetProcessId": (0, "unsigned int", "uintptr_t"),
    # DWORD WaitForMultipleObjectsEx(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll,
    #                                DWORD dwMilliseconds, BOOL bAlertable);
    "WaitForMultipleObjectsEx": (
        0xFFFFFFFF,
        "unsigned int",
        "unsigned int",
        "void *",
        "int",
        "unsigned int",
        "int",
    ),
    # BOOL GetExitCodeProcess(HANDLE hProcess, LPDWORD lpExitCode);
    "GetExitCodeProcess": (0, "int", "uintptr_t", "void *"),
    # BOOL GetProcessTimes(HANDLE hProcess, LPFILETIME lpCreationTime, LPFILETIME lpExitTime,
    #                      LPFILETIME lpKernelTime, LPFILETIME lpUserTime);
    "GetProcessTimes": (0, "int", "uintptr_t", "void *", "void *", "void *", "void *"),
    # BOOL TerminateProcess(HANDLE hProcess, UINT uExitCode);
    "TerminateProcess": (0, "int", "uintptr_t", "unsigned int"),
    # HANDLE CreateEventW(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
    #                     BOOL bInitialState, LPCWSTR lpName);
    "CreateEventW": (0, "uintptr_t", "uintptr_t", "int", "int", "uintptr_t"),
    # BOOL SetEvent(HANDLE hEvent); ResetEvent is alike
    "SetEvent": (0, "int", "uintptr_t"),
    "ResetEvent": (0, "int", "uintptr_t"),
    # BOOL RegisterWaitForSingleObject(PHANDLE phNewWaitObject, HANDLE hObject,
    #                                  WAITORTIMERCALLBACK Callback, PVOID Context,
    #                                  ULONG dwMilliseconds, ULONG dwFlags);
    "RegisterWaitForSingleObject": (
        0,
        "int",
        "void *",
        "uintptr_t",
        "void *",
        "uintptr_t",
        "unsigned int",
        "unsigned int",
    ),
    # BOOL UnregisterWaitEx(HANDLE WaitHandle, HANDLE CompletionEvent);
    # It says ERROR_IO_PENDING if the callback is running: the wait is unregistered all the same.
    "UnregisterWaitEx": (None, "int", "uintptr_t", "uintptr_t"),
    # BOOL SetConsoleCtrlHandler(PHANDLER_ROUTINE HandlerRoutine, BOOL Add);
    "SetConsoleCtrlHandler": (0, "int", "void *", "int"),
    # BOOL GenerateConsoleCtrlEvent(DWORD dwCtrlEvent, DWORD dwProcessGroupId);
    "GenerateConsoleCtrlEvent": (0, "int", "unsigned int", "unsigned int"),
    # HANDLE CreateToolhelp32Snapshot(DWORD dwFlags, DWORD th32ProcessID);
    "CreateToolhelp32Snapshot": (INVALID_HANDLE_VALUE, "uintptr_t", "unsigned int", "unsigned int"),
    # BOOL Process32FirstW(HANDLE hSnapshot, LPPROCESSENTRY32W lppe); Process32NextW is alike
    "Process32FirstW": (0, "int", "uintptr_t", "void *"),
    "Process32NextW": (0, "int", "uintptr_t", "void *"),
    # BOOL ReadProcessMemory(HANDLE hProcess, LPCVOID lpBaseAddress, LPVOID lpBuffer,
    #                        SIZE_T nSize, SIZE_T *lpNumberOfBytesRead);
    "ReadProcessMemory": (0, "int", "uintptr_t", "uintptr_t", "void *", "uintptr_t", "void *"),
    # NTSTATUS NtQueryInformationProcess(HANDLE ProcessHandle,
    #                                    PROCESSINFOCLASS ProcessInformationClass,
    #                                    PVOID ProcessInformation,
    #                                    ULONG ProcessInformationLength, PULONG ReturnLength);
    "NtQueryInformationProcess": (
        None,
        "unsigned int",
        "uintptr_t",
        "int",
        "void *",
        "unsigned int",
        "void *",
    ),
    # ULONG RtlNtStatusToDosError(NTSTATUS Status);
    "RtlNtStatusToDosError": (None, "unsigned int", "unsigned int"),
    # BOOL OpenProcessToken(HANDLE ProcessHandle, DWORD DesiredAccess, PHANDLE TokenHandle);
    "OpenProcessToken": (0, "int", "uintptr_t", "unsigned int", "void *"),
    # BOOL GetTokenInformation(HANDLE TokenHandle, TOKEN_INFORMATION_CLASS TokenInformationClass,
    #                          LPVOID TokenInformation, DWORD TokenInformationLength,
    #                          PDWORD ReturnLength);
    "GetTokenInformation": (0, "int", "uintptr_t", "int", "void *", "unsigned int", "void *"),
    # BOOL LookupAccountSidW(LPCWSTR lpSystemName, PSID Sid, LPWSTR Name, LPDWORD cchName,
    #                        LPWSTR ReferencedDomainName, LPDWORD cchReferencedDomainName,
    #                        PSID_NAME_USE peUse);
    "LookupAccountSidW": (
        0,
        "int",
        "void *",
        "void *",
        "void *",
        "void *",
        "void *",
        "void *",
        "void *",
    ),
}

# Where a function is that kernel32 lacks.
LIBRARIES = {
    "NtQueryInformationProcess": "ntdll",
    "RtlNtStatusToDosError": "ntdll",
    "OpenProcessToken": "advapi32",
    "GetTokenInformation": "advapi32",
    "LookupAccountSidW": "advapi32",
}

# BOOL WINAPI HandlerRoutine(DWORD dwCtrlType);
HANDLER_ROUTINE = ("int", "unsigned int")
# VOID CALLBACK WaitOrTimerCallback(PVOID lpParameter, BOOLEAN TimerOrWaitFired);
WAITORTIMERCALLBACK = ("void", "uintptr_t", "unsigned char")

# access rights of a process
SYNCHRONIZE = 0x00100000
PROCESS_TERMINATE = 0x0001
PROCESS_VM_READ = 0x0010
PROCESS_QUERY_INFORMATION = 0x0400
PROCESS_QUERY_LIMITED_INFORMATION = 0x1000

# results of the WaitFor functions
WAIT_OBJECT_0 = 0
INFINITE = 0xFFFFFFFF

# flags of RegisterWaitForSingleObject
WT_EXECUTEINWAITTHREAD = 0x4
WT_EXECUTEONLYONCE = 0x8

# GetLastError()
ERROR_ACCESS_DENIED = 5
ERROR_NO_MORE_FILES = 18
ERROR_INVALID_PARAMETER = 87
ERROR_NOT_FOUND = 1168

CTRL_C_EVENT = 0

TH32CS_SNAPPROCESS = 0x00000002
# typedef struct tagPROCESSENTRY32W {
#     DWORD dwSize, cntUsage, th32ProcessID; ULONG_PTR th32DefaultHeapID;
#     DWORD th32ModuleID, cntThreads, th32ParentProcessID; LONG pcPriClassBase;
#     DWORD dwFlags; WCHAR szExeFile[260];
# } PROCESSENTRY32W;
PROCESSENTRY_SIZE = 568 if WORD == 8 else 556
PROCESSENTRY_PID = 8
PROCESSENTRY_THREADS = 28 if WORD == 8 else 20  # the parent's pid follows it
PROCESSENTRY_NAME = 44 if WORD == 8 else 36

# Classes of NtQueryInformationProcess. The first fills a PROCESS_BASIC_INFORMATION, whose second
# word is the address of the PEB. The other, from Windows 8.1 on, fills a UNICODE_STRING and puts
# the text right behind it.
PROCESS_BASIC_INFORMATION = 0
PROCESS_BASIC_INFORMATION_SIZE = 6 * WORD
PROCESS_COMMAND_LINE_INFORMATION = 60
# typedef struct { USHORT Length, MaximumLength; PWSTR Buffer; } UNICODE_STRING;  lengths in bytes
UNICODE_STRING_SIZE = 2 * WORD
UNICODE_STRING_MAX = 0xFFFE
# In the PEB, the address of its RTL_USER_PROCESS_PARAMETERS; there, the UNICODE_STRING CommandLine.
PEB_PARAMETERS = 0x20 if WORD == 8 else 0x10
PARAMETERS_COMMAND_LINE = 0x70 if WORD == 8 else 0x40

TOKEN_QUERY = 0x0008  # access right of a token
# Class of GetTokenInformation: it fills a TOKEN_USER, which is two words, and puts the SID right
# behind it. A SID has 68 bytes at most: a revision, the number of its subauthorities, 6 bytes of
# an authority, and the subauthorities.
TOKEN_USER = 1
TOKEN_USER_SIZE = 2 * WORD
SID_MAX = 68


def error_number(error: OSError) -> "int | None":
    """What GetLastError() said; only on Windows does OSError have the attribute."""
    number: "int | None" = getattr(error, "winerror", None)
    return number
