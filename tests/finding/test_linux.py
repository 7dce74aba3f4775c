# SPDX-License-Identifier: BSD-3-Clause
"""What Linux tells about a process, hides, or does not tell; /proc in other forms, and none."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from .. import pidwait, trouble
from ..processes import (
    MAIN_THREAD_ENDS,
    become_zombie,
    eventually,
    needs_pthread_exit,
    run_python,
    state,
    stop,
)
from ..trouble import Child, Stranger, raises, system
from ..trouble.conftest import namespaces, real_root  # noqa: F401
from .steps import before_call, bind

ALL = "pid name ppid cmdline status create_time username uids".split()
US, THEM = 65432, 65433
TICKS = os.sysconf("SC_CLK_TCK")


def test_states_have_words_and_of_a_zombie_only_the_arguments_are_gone(sleeper, herd, start):
    eventually(lambda: state(sleeper.pid) == "S")
    stopped = start("sleep", "60", start_new_session=True)
    stop(stopped.pid)
    zombie = herd.fork(7, 0)
    become_zombie(zombie)
    pids = os.getpid(), sleeper.pid, stopped.pid, zombie
    words = ["running", "sleeping", "stopped", "zombie"]
    assert [pidwait.ProcessInfo(pid).status() for pid in pids] == words
    me = pidwait.ProcessInfo(os.getpid())
    found = pidwait.ProcessInfo(zombie).as_dict()
    assert (found["cmdline"], found["ppid"], found["uids"]) == ([], me.pid, os.getresuid())
    assert (found["username"], found["name"]) == (me.username(), me.name()[:15])
    assert found["create_time"] >= me.create_time()


@needs_pthread_exit
def test_a_process_whose_main_thread_has_ended_still_runs(start):
    child = start(sys.executable, "-S", "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(child.pid)
    info = pidwait.ProcessInfo(child.pid)
    assert (info.status(), info.cmdline(), info.ppid()) == ("zombie", [], os.getpid())
    assert info.is_running()
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(info, 0)
    child.stdin.close()
    assert pidwait.wait(info, 60) == 9


NAMES = ["a b", "a) Z 1 (b", "a\nb\tc\\", "fifteen-bytes-x", "sixteen-bytes-xy"]
NAMES += ["\xe9" * 10, "\udcff" * 20]  # cut off in a character; not UTF-8


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_and_arguments_may_have_any_bytes(start, tmp_path, name):
    """The kernel keeps 15 bytes of a name; the rest is in the arguments."""
    path = os.path.join(os.fsencode(str(tmp_path)), os.fsencode(name))
    os.symlink("/bin/sh", path)
    words = ["-c", "read line", "", b"\xff\xfe", "a b", "line\nline\r\n", "x" * 90000, ""]
    info = pidwait.ProcessInfo(start(path, *words, stdin=subprocess.PIPE).pid)
    eventually(lambda: info.status() == "sleeping")
    assert info.name() == name
    assert info.cmdline() == [os.fsdecode(path)] + [os.fsdecode(word) for word in words]
    # A zombie's arguments are gone, and with them the rest of its name.
    os.kill(info.pid, signal.SIGKILL)
    become_zombie(info.pid)
    assert info.name() == os.fsdecode(os.fsencode(name)[:15])


def test_a_thread_of_the_kernel_has_no_arguments():
    if state(2) is None or pidwait.ProcessInfo(2).name() != "kthreadd":
        pytest.skip("a PID namespace, or a sandbox, shows no threads of the kernel")
    found = pidwait.ProcessInfo(2).as_dict()
    assert (found["cmdline"], found["ppid"]) == ([], 0)
    assert found["uids"].real == 0 and pidwait.ProcessInfo(2).is_running()


# Seconds by which time.time() is off, at one call after the other: others may run between the
# looks at two clocks, and then the first is old.
@pytest.mark.parametrize("off", [[3600] * 20, [-0.5], [-0.5, -0.5], [0, -0.5]])
def test_create_time_follows_the_clock_that_is_set_and_no_busy_machine(sleeper, monkeypatch, off):
    info = pidwait.ProcessInfo(sleeper.pid)
    first, real, left = info.create_time(), time.time, list(off)
    assert info.create_time() == first
    monkeypatch.setattr(time, "time", lambda: real() + (left.pop(0) if left else 0))
    assert abs(info.create_time() - first - max(off[0], 0)) < 0.1
    monkeypatch.undo()
    assert abs(info.create_time() - first) < 0.1
    assert info == pidwait.ProcessInfo(sleeper.pid)


@pytest.fixture
def opened(monkeypatch):
    """The paths that are opened."""
    paths, real = [], os.open
    list(pidwait.process_iter([]))  # what is looked at first

    def noted(path, *args, **kwargs):
        paths.append(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", noted)
    return paths


@pytest.mark.parametrize("attrs", [None, ["pid"]])
def test_a_listing_of_pids_reads_nothing_before_somebody_asks(sleeper, opened, attrs):
    found = {info.pid: info for info in pidwait.process_iter(attrs)}
    assert opened == []
    assert found[sleeper.pid].ppid() == os.getpid() and opened != []


def test_for_children_alone_each_process_is_read_once(sleeper, opened):
    me = pidwait.ProcessInfo(os.getpid())
    del opened[:]
    assert sleeper.pid in [child.pid for child in me.children()]
    assert opened.count("/proc/%d" % sleeper.pid) == 1


def test_oneshot_keeps_what_has_been_read_for_its_thread(start):
    code = "read line; printf renamed > /proc/$$/comm; echo; read line"
    child = start("sh", "-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    info = pidwait.ProcessInfo(child.pid)
    eventually(lambda: info.name() == "sh")
    found = []
    with info.oneshot():
        assert info.name() == "sh"
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        thread = threading.Thread(target=lambda: found.append(info.name()))
        thread.start()
        thread.join()
        with info.oneshot():
            assert info.name() == "sh"
        assert (info.name(), info.as_dict(["name"]), found) == ("sh", {"name": "sh"}, ["renamed"])
    assert info.name() == "renamed"


# Lines that /proc shows: our files, put over those of a child

# Each of the fields from the state on is its number in proc_pid_stat(5), plus 100.
FIELDS = b" ".join(b"%d" % (100 + number) for number in range(4, 53)) + b"\n"
WORDS = "running sleeping disk-sleep stopped tracing-stop dead zombie idle parked q".split()


class Shown:
    """A child, and files over those that /proc shows of it."""

    def __init__(self, folder, *names):
        self._child = Child()
        self._path = os.path.join(folder, "shown-")
        for name in names:
            self.show(name, b"77 (x) S " + FIELDS)
            bind(self._path + name, "/proc/%d/%s" % (self._child.pid, name))
        self.info = pidwait.ProcessInfo(self._child.pid)

    def show(self, name, text):
        with open(self._path + name, "wb") as file:
            file.write(text)

    def close(self):
        self._child.end(0)
        self._child.reap()


def each_field_of_a_line_of_proc_is_told(folder):
    shown = Shown(folder, "stat", "status", "cmdline")
    info = shown.info
    shown.show("status", b"Name:\ta\\nUid:\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n")
    for text, words in (
        (b"", []),
        (b"sh\0\0", ["sh", ""]),
        (b"\0", [""]),
        (b"server: worker 3", ["server:", "worker", "3"]),  # a title over all arguments
    ):
        shown.show("cmdline", text)
        assert info.cmdline() == words
    found = info.as_dict()
    assert (found["name"], found["status"], found["ppid"]) == ("x", "sleeping", 104)
    assert (found["uids"].real, found["uids"].effective, found["uids"].saved) == (1, 2, 3)
    boot = time.time() - time.clock_gettime(7)  # CLOCK_BOOTTIME, in Python 3.7 and later
    assert abs(found["create_time"] - boot - 122 / TICKS) < 1
    for letter, word in zip("RSDTtXZIPq", WORDS):
        shown.show("stat", b"77 (a) S) %s " % letter.encode() + FIELDS)
        assert (info.status(), info.name()) == (word, "a) S")
    # Of what is like a name in the arguments only the same first 15 bytes tell the rest.
    for name, text, told in (
        (b"a-quite-long-na", b"/bin/a-quite-long-name\0a-quite-long-nap\0", "a-quite-long-name"),
        (b"a-quite-long-na", b"a-quite-long-na\0", "a-quite-long-na"),
        (b"a-quite-long-na", b"/bin/python\0a-quite-long-name\0", "a-quite-long-na"),
        (b"a-quite-long-n", b"/bin/a-quite-long-name\0", "a-quite-long-n"),
        # A title over the arguments, filled up by spaces or NULs, or with a folder in it.
        (b"a-quite-long-na", b"a-quite-long-name: 3 of /x/y      ", "a-quite-long-name"),
        (b"a-quite-long-na", b"a-quite-long-name: 3 of /x/y\0\0\0", "a-quite-long-name"),
        (b"a-quite-long-na", b"a-quite-long-name 3 of /x/y    \0", "a-quite-long-name"),
        (b"a-quite-long-na", b"a-quite-long-na: 3\0", "a-quite-long-na"),
        # Titles whose first 15 bytes have become the name, as by the package setproctitle.
        (b"quite: a title ", b"quite: a title of mine\0\0", "quite: a title "),
        (b"quite a title o", b"quite a title of mine /x/y\0", "quite a title o"),
        (b"quite a title o", b"quite a title of mine\0\0\0", "quite a title o"),
        (b"a-quite-long-na", b"/bin/a-quite-long-name: x\0-x\0", "a-quite-long-name"),
        (b"a quite long na", b"/bin/a quite long name: 3\0\0", "a quite long name"),
        # A program whose name has spaces, and which has arguments.
        (b"a quite long na", b"/bin/a quite long name\0-x\0", "a quite long name"),
        (b"a-quite-long-na", b"/bin/a-quite-long-name 1.2\0-x\0", "a-quite-long-name 1.2"),
        (b"a-quite-long-na", b"/bin/a: b/a-quite-long-name\0-x\0", "a-quite-long-name"),
    ):
        shown.show("stat", b"77 (%s) S " % name + FIELDS)
        shown.show("cmdline", text)
        assert info.name() == told
    for text in (b"", b"77 (a) S 1 2 3"):  # it goes while it is read
        shown.show("stat", text)
        raises(ProcessLookupError, info.name)
        assert info.pid not in [one.pid for one in pidwait.process_iter(["name"])]
    shown.close()


def a_thread_that_becomes_the_main_one_by_exec_does_not_hide_the_process(folder):
    """At that moment /proc shows the old main thread, without a parent and with no threads."""
    shown = Shown(folder, "stat")
    gone = b"77 (x) X " + FIELDS.replace(b"104", b"0").replace(b"120", b"0")
    for number in range(1, 6):
        shown.show("stat", gone)
        alive = before_call(number, lambda: shown.show("stat", b"77 (x) S " + FIELDS))
        with alive:
            assert shown.info.ppid() == 104
        assert alive.reached
    shown.close()


def interrupted(folder, name):
    """While a read of this file sleeps, a signal handler raises what the system might say, too."""
    path = os.path.join(folder, "fifo")
    child, me = Child(), os.getpid()
    info = pidwait.ProcessInfo(child.pid)
    info.as_dict()
    os.mkfifo(path)
    bind(path, "/proc/%d/%s" % (child.pid, name))
    looks = [info.as_dict, lambda: list(pidwait.process_iter(["uids"]))]
    if name == "stat":
        looks += [lambda: pidwait.ProcessInfo(child.pid), info.is_running, info.children]

    def when_it_sleeps():
        eventually(lambda: state(me) == "S")
        os.kill(me, signal.SIGUSR1)

    for error in (ProcessLookupError, PermissionError, FileNotFoundError, KeyboardInterrupt):
        raised = error(errno.EEXIST, "on purpose")

        def handler(number, frame, raised=raised):
            raise raised

        signal.signal(signal.SIGUSR1, handler)
        for look in looks:
            other = trouble.fork(when_it_sleeps)
            assert raises(error, look) is raised
            os.waitpid(other, 0)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # with the error its traceback goes, and its fds
    child.end(0)
    child.reap()


def an_error_of_a_handler_is_not_taken_for_an_answer(folder):
    interrupted(folder, "stat")


def an_error_of_a_handler_is_not_taken_for_an_answer_to_as_dict(folder):
    interrupted(folder, "status")


# What we may not see


def become_them():
    system.become(THEM)


def hidden(how):
    strangers = [Stranger(become_them) for _ in range(2)]
    system.mount("proc", "/proc", how)
    known = pidwait.ProcessInfo(strangers[0].pid)
    known.as_dict()  # loads what is not for everybody to read
    system.become(US)
    for stranger in strangers:
        info = pidwait.ProcessInfo(stranger.pid)
        assert pidwait.pid_exists(stranger.pid)
        for name in ALL[1:]:
            raises(PermissionError, getattr(info, name))
        with info.oneshot():
            raises(PermissionError, info.cmdline)
        told = dict(dict.fromkeys(ALL, "hidden"), pid=stranger.pid)
        assert info.as_dict(ad_value="hidden") == told
        assert info.as_dict(["name"]) == {"name": None}
        assert info.is_running() and info.children() == []
        assert info == info != pidwait.ProcessInfo(stranger.pid)  # nobody can tell
        trouble.times_out(lambda timeout, info=info: pidwait.wait(info, timeout), 0)
    listed = {info.pid: info.info for info in pidwait.process_iter(["name", "uids"], "hidden")}
    shown = [listed[one.pid] for one in strangers if one.pid in listed]
    assert shown == ([{"name": "hidden", "uids": "hidden"}] * 2 if how == "hidepid=1" else [])
    assert listed[os.getpid()]["uids"].real == US
    raises(PermissionError, known.name)
    for stranger in strangers:
        stranger.end(0)
        stranger.reap()
        assert not pidwait.pid_exists(stranger.pid)
    assert not known.is_running()
    raises(ProcessLookupError, known.cmdline)


@needs_pthread_exit
@pytest.mark.root
@pytest.mark.parametrize("how", ["hidepid=1", "hidepid=2"])
def test_what_is_hidden_is_a_permission_error_or_ad_value(real_root, how):  # noqa: F811
    trouble.run(hidden, how, within=real_root)


def of_another_user(backend):
    stranger = Stranger(become_them)
    info = pidwait.ProcessInfo(stranger.pid)
    info.as_dict()
    system.become(US)
    assert pidwait.pid_exists(stranger.pid)
    assert info.uids() == (THEM, THEM, THEM) and info.username() == str(THEM)
    assert None not in info.as_dict(["name", "cmdline", "status"]).values()
    stranger.become_zombie(7)
    assert pidwait.pid_exists(stranger.pid)
    assert (info.status(), info.cmdline(), info.uids().saved) == ("zombie", [], THEM)
    assert pidwait.wait(info, trouble.LONG) in (7, None)
    stranger.reap()
    assert not pidwait.pid_exists(stranger.pid)
    raises(ProcessLookupError, info.uids)


@needs_pthread_exit
@pytest.mark.root
def test_processes_of_another_user_are_told_like_ours():
    trouble.run_on_each_backend(of_another_user)


# /proc in other forms


def in_a_pid_namespace_its_processes_are_listed(folder):
    pids = [info.pid for info in pidwait.process_iter()]
    assert pids[0] == 1 and os.getpid() in pids and len(pids) < 10
    assert pidwait.ProcessInfo(1).ppid() == 0


def can_not_be_listed(text="/proc shows another PID namespace"):
    for function in (
        lambda: list(pidwait.process_iter()),
        lambda: pidwait.ProcessInfo(os.getpid()),
    ):
        error = raises(OSError, function)
        assert error.errno == errno.ENOENT and "can't be listed in /proc: " + text in str(error)
    assert pidwait.pid_exists(os.getpid())


def without_a_proc_nothing_is_listed(folder):
    system.mount("tmpfs", "/proc")
    can_not_be_listed("")


def a_proc_that_shows_other_pids_is_not_read(folder):
    path = os.path.join(folder, "status")
    with open("/proc/self/status", "rb") as file:
        before, _, after = file.read().partition(b"NSpid:\t%d\n" % os.getpid())

    def show(line):
        with open(path, "wb") as file:
            file.write(before + line + after)
        bind(path, os.path.realpath("/proc/self/status"))

    def of_linux_4_0():
        show(b"")
        assert os.getpid() in [info.pid for info in pidwait.process_iter()]

    def where_ours_is_the_same_by_chance():
        show(b"NSpid:\t9\t%d\n" % os.getpid())
        can_not_be_listed()

    def of_linux_4_0_that_shows_others():
        show(b"")
        can_not_be_listed()

    trouble.forked(of_linux_4_0)
    trouble.forked(where_ours_is_the_same_by_chance)
    system.call("unshare", 0x20000000)  # CLONE_NEWPID
    trouble.forked(of_linux_4_0_that_shows_others)


PLAYS = [
    each_field_of_a_line_of_proc_is_told,
    a_thread_that_becomes_the_main_one_by_exec_does_not_hide_the_process,
    an_error_of_a_handler_is_not_taken_for_an_answer,
    an_error_of_a_handler_is_not_taken_for_an_answer_to_as_dict,
    in_a_pid_namespace_its_processes_are_listed,
    without_a_proc_nothing_is_listed,
    a_proc_that_shows_other_pids_is_not_read,
]


@needs_pthread_exit
@pytest.mark.parametrize("play", PLAYS)
def test(namespaces, tmp_path, play):  # noqa: F811
    trouble.run(play, str(tmp_path), within=namespaces)


def without_fds():
    info = pidwait.ProcessInfo(os.getpid())
    info.as_dict()
    with system.limit_is_zero():
        for function in (lambda: list(pidwait.process_iter([])), info.as_dict, info.is_running):
            assert raises(OSError, function).errno == errno.EMFILE
        assert pidwait.pid_exists(os.getpid())
        assert not pidwait.pid_exists(2**31 - 1)


def test_without_file_descriptors_a_look_says_so_and_pid_exists_still_tells():
    trouble.run(without_fds)


LISTING_WITHOUT_EPOLL = """
import os, select, subprocess, sys
del select.epoll
import %s as pidwait
child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
before = os.listdir("/proc/self/fd")
me = pidwait.ProcessInfo(os.getpid())
assert me in pidwait.process_iter(["name", "uids"])
[info] = me.children()
info.terminate()
assert os.listdir("/proc/self/fd") == before
with child:
    assert pidwait.wait(child, 60) == -15
"""


def test_listing_when_the_import_finds_no_select_epoll():
    """As after gevent's or eventlet's patch: a FileIO in its place refuses directories."""
    done = run_python(LISTING_WITHOUT_EPOLL % pidwait.__name__)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FIRST_LISTING_WITH_A_REPLACED_OS = """
import os, sys, types
import %s as pidwait

class Replaced(types.ModuleType):
    def __getattr__(self, name):
        return getattr(os, name)

    def listdir(self, path):
        raise FileNotFoundError(2, "a file system for tests", path)

replaced = Replaced("os")
ours = [module for name, module in sys.modules.items() if name.startswith(pidwait.__name__)]
ours = [module for module in ours if getattr(module, "os", None) is os]
for module in ours:
    module.os = replaced
sys.modules["os"] = replaced
try:
    print(len(list(pidwait.process_iter())))
except FileNotFoundError:
    print("refused")
for module in ours:
    module.os = os
sys.modules["os"] = os
print(pidwait.ProcessInfo(os.getpid()) in pidwait.process_iter(["name"]))
"""


def test_a_listing_that_came_first_while_os_was_replaced_leaves_nothing_behind():
    """As by pyfakefs, for the time of a test."""
    done = run_python(FIRST_LISTING_WITH_A_REPLACED_OS % pidwait.__name__)
    assert (done.stdout, done.stderr) == ("refused\nTrue\n", "")
