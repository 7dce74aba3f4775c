# SPDX-License-Identifier: BSD-3-Clause
"""What RECIPES.md recommends, as it stands there, with real processes."""

import asyncio
import concurrent.futures
import importlib.util
import multiprocessing
import os
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from .. import pidwait
from ..asyncio.loops import run_in
from ..needs import THERE, needs
from ..processes import become_zombie, eventually, exiting, gone_pid, need_program, sleeping, state
from .conftest import run as run_python
from .recipes import (
    IN_LOOPS,
    IN_SHELL,
    IN_WAITING,
    NEEDS,
    RECIPES,
    SHELL,
    Folder,
    with_our_name,
)

BEFORE, AFTER = 0, 1
tested = set(IN_LOOPS) | IN_SHELL | IN_WAITING


def of(title):
    """A test of that recipe; none where its library is missing."""
    tested.add(title)
    library = NEEDS.get(title)
    is_there = library is None or importlib.util.find_spec(library) is not None
    return lambda test: test if is_there else None


def run(title, part=0, **names):
    """Run the recipe's code with these names; return all names that there are then."""
    exec(compile(with_our_name(RECIPES[title][part]), title, "exec"), names)
    return names


def script(path, title, main, part=0):
    """A script of the recipe's code, and some more."""
    imports = "import os, signal, sys, time\nimport %s as pidwait\n" % pidwait.__name__
    path.write_text(imports + with_our_name(RECIPES[title][part]) + main)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    return [sys.executable, str(path)], env


def exits(*pairs):
    return sorted("%s exited with %d" % pair for pair in pairs)


def printed(capsys):
    return sorted(capsys.readouterr().out.splitlines())


def test_each_is_tested_and_short():
    assert set(RECIPES) == tested
    for title, parts in RECIPES.items():
        assert parts or SHELL[title], title
        for code in parts + SHELL[title]:
            assert len(code.splitlines()) <= (60 if title in IN_WAITING else 17), title


@of("From psutil.wait_procs")
@pytest.mark.peers
@pytest.mark.parametrize("part", [BEFORE, AFTER])
def test_psutil(part, start, capsys):
    stubborn = """sh -c 'trap "" TERM; echo; exec sleep 60'"""
    parent = start("sh", "-c", "sleep 60 & %s & wait" % stubborn, stdout=subprocess.PIPE)
    parent.stdout.readline()
    ended = run("From psutil.wait_procs", part)["stop_children"](parent.pid, 1)
    assert parent.wait() is not None
    if part == BEFORE:  # psutil does not know the codes of another's children
        ended = [(child, child.returncode) for child in ended]
    (first, code), (second, other) = ended
    assert first.pid != second.pid and parent.pid not in (first.pid, second.pid)
    assert code in (None, -signal.SIGTERM) and other in (None, -signal.SIGKILL)
    pairs = [(first.pid, code), (second.pid, other)][: 1 if part == BEFORE else 2]
    assert printed(capsys) == sorted("%d exited with %s" % pair for pair in pairs)


@of("From a loop over Popen.wait(timeout)")
@pytest.mark.parametrize("part", [BEFORE, AFTER])
def test_popens(part, start, capsys):
    popens = [start(*exiting(code)) for code in (0, 3, 5)]
    run("From a loop over Popen.wait(timeout)", part, popens=popens)
    assert printed(capsys) == exits(*((popen.pid, popen.returncode) for popen in popens))
    assert [popen.returncode for popen in popens] == [0, 3, 5]


@of("From a loop over os.waitpid(-1)")
@pytest.mark.parametrize("part", [BEFORE, AFTER])
def test_waitpid(part, zombie, herd, capsys):
    others = zombie(7)
    jobs = {herd.fork(code, 0): "job %d" % code for code in (3, 5)}
    pids = list(jobs)
    run("From a loop over os.waitpid(-1)", part, jobs=jobs)
    assert printed(capsys) == exits(("job 3", 3), ("job 5", 5))
    assert [state(pid) for pid in pids] == [None, None] and jobs == {}
    assert others.wait() == (0 if part == BEFORE else 7)


@of("Find processes, and wait for them")
def test_finding(tmp_path):
    names = run("Find processes, and wait for them")
    program = tmp_path / ("sleep %d" % os.getpid())  # suites may run side by side
    program.symlink_to(shutil.which("sleep"))
    popens = [subprocess.Popen([str(program), "60"]) for _ in range(2)]
    eventually(lambda: all(pidwait.ProcessInfo(one.pid).name() == program.name for one in popens))
    exited, alive = names["wait_for_all_named"](program.name, 0)
    assert (exited, [one.pid for one in alive]) == ([], sorted(one.pid for one in popens))
    for popen in popens:
        popen.kill()
    exited, alive = names["wait_for_all_named"](program.name, 60)
    assert (len(exited), alive) == (2, [])
    for popen in popens:
        popen.wait()


@of("Find processes, and wait for them")
def test_family(start):
    names = run("Find processes, and wait for them", 1)
    shell = start("sh", "-c", "sleep 60 & echo $!; wait", stdout=subprocess.PIPE)
    inner = int(shell.stdout.readline())
    exited, alive = names["wait_for_family"](shell.pid, 0)
    assert (exited, [one.pid for one in alive]) == ([], [shell.pid, inner])
    os.kill(inner, signal.SIGTERM)
    exited, alive = names["wait_for_family"](shell.pid, 60)
    assert [code for info, code in exited if info.pid == shell.pid] == [0] and alive == []


@pytest.fixture
def tree(tmp_path):
    """tree(script) is a command that starts daemons; tree.lives() tells whether one is left."""
    path = str(tmp_path / "witness")
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(end)

    def command(then):
        daemon = "setsid sleep 60 & " if THERE["keeper of trees"] else ""  # it leaves a group
        script = 'exec 9>"$0"; ' + daemon + "(sleep 60 &) ; echo ready; "
        return ["sh", "-c", script + then, path]

    command.lives = lambda: not poll.poll(0)
    yield command
    os.close(os.open(path, os.O_WRONLY))  # a test that was skipped has had no writer
    eventually(lambda: not command.lives())
    os.close(end)


WITH_TIME_OUT = "Run a command with a time-out, and leave nothing behind"


@of(WITH_TIME_OUT)
def test_command_with_time_out(tree):
    output_of = run(WITH_TIME_OUT)["output_of"]
    assert output_of(tree("exit 3")) == (3, b"ready\n") and not tree.lives()
    trap = "trap 'echo last; exit' TERM; while :; do sleep 0.01; done"
    code, output = output_of(tree(trap), 0.5)  # sh may say that the sleep was terminated
    assert (code, output[:6], output[-5:]) == (None, b"ready\n", b"last\n") and not tree.lives()


@of(WITH_TIME_OUT)
def test_commands_with_time_out_in_asyncio(tree):
    outputs_of = run(WITH_TIME_OUT, AFTER)["outputs_of"]
    outputs = outputs_of([tree("exit 3"), tree("sleep 60")], 0.5)
    done, late = run_in(asyncio.new_event_loop(), outputs)
    assert (done.returncode, done.stdout, late.output) == (3, b"ready\n", b"ready\n")
    assert not tree.lives()


@needs("/proc")
@of("Run a program with limits, and tell what it used")
def test_judge(tree):
    need_program("prlimit")
    judge = run("Run a program with limits, and tell what it used")["judge"]
    limits = "grep -E 'Max (processes|address)' /proc/self/limits; read line; echo $line; exit 3"
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = 1000 if most < 0 else min(most, 1000)
    code, output, usage = judge(["sh", "-c", limits], b"input\n", processes=most)
    assert 0 < usage.max_rss < 512 << 20
    words = output.split()
    assert (code, words[-1]) == (3, b"input") and {b"%d" % most, b"%d" % (512 << 20)} < set(words)
    for seconds in 0.5, 5, 50:  # a slow machine may not get to the output
        code, output, usage = judge(tree("sleep 60"), seconds=seconds, processes=most)
        assert usage.max_rss > 0 and code is None and not tree.lives()
        if output:
            break
    assert output == b"ready\n"


@of("Tool runners and test runners")
def test_tool(tree):
    run_tool = run("Tool runners and test runners")["run_tool"]
    shown = []
    assert run_tool(tree("exit 3"), 60, shown.append) == 3
    for timeout in 0.5, 5, 50:  # a slow machine may not get to the output
        assert run_tool(tree("sleep 60"), timeout, shown.append) == -signal.SIGTERM
        if len(shown) == 2:
            break
    assert shown == ["ready"] * 2 and not tree.lives()
    with pytest.raises(ZeroDivisionError):
        run_tool(tree("sleep 60"), 60, lambda line: 1 / 0)
    assert not tree.lives()


@of("Daemons that should stay")
def test_daemon_that_stays(tree, tmp_path):
    start_server = run("Daemons that should stay")["start_server"]
    log = tmp_path / "log"
    start_server(["sh", "-c", "echo; sleep 60 & echo $! >&2"], str(log))
    with pidwait.Process(int(log.read_text())) as daemon:
        assert not daemon.has_exited()
        daemon.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        start_server(tree("sleep 60"), str(log), 0.5)
    assert not tree.lives()


@of("A tree's output line by line in asyncio")
def test_lines_in_asyncio(tree):
    each_line = run("A tree's output line by line in asyncio")["each_line"]
    lines = []
    three = each_line(tree("echo 2; exit 3"), lines.append)
    assert run_in(asyncio.new_event_loop(), three) == 3
    for timeout in 0.5, 5, 50:  # a slow machine may not get to the output
        late = asyncio.wait_for(each_line(tree("sleep 60"), lines.append), timeout)
        with pytest.raises(asyncio.TimeoutError):
            run_in(asyncio.new_event_loop(), late)
        if len(lines) == 3:
            break
    assert lines == [b"ready\n", b"2\n", b"ready\n"] and not tree.lives()


@of("Terminate, then kill")
def test_terminate(start, sleeper):
    stop = run("Terminate, then kill")["stop"]
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    worker.start()
    with pidwait.spawn(sleeping(60)) as child, pidwait.spawn(exiting(3)) as early:
        become_zombie(early.pid)
        ended = stop([sleeper, child, early, worker], patience=60)
        codes = {id(proc): code for proc, code in ended}
        assert codes.pop(id(early)) == 3
        assert codes == dict.fromkeys(map(id, (sleeper, child, worker)), -signal.SIGTERM)
    worker.join()
    if hasattr(worker, "close"):  # Python 3.7
        worker.close()


@of("Terminate, then kill")
def test_kill(start):
    stop = run("Terminate, then kill")["stop"]
    ignores = 'trap "" TERM; echo; exec sleep 60'
    stubborn = start("sh", "-c", ignores, stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    assert stop([stubborn], patience=0.1) == [(stubborn, -signal.SIGKILL)]


OTHERS = "End processes as honcho, mirakuru and pytest-xprocess do"


@of(OTHERS)
def test_first_exit_ends_all(tree, tmp_path):
    run_until_one_exits = run(OTHERS)["run_until_one_exits"]
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    first = ["sh", "-c", 'read line < "$0"; exit 3', fifo]
    other = tree("echo > %s; sleep 60" % shlex.quote(fifo))
    assert run_until_one_exits([other, first]) == 3 and not tree.lives()


@of(OTHERS)
def test_command_that_becomes_a_daemon(tree):
    names = run(OTHERS, 1)
    popen = names["start"](tree("exit 3"))
    eventually(lambda: names["has_become_daemon"](popen))
    assert tree.lives() and os.getpgid(popen.pid) == popen.pid
    assert names["stop"](popen) == 3 and not tree.lives()
    assert not names["has_become_daemon"](popen)


@of(OTHERS)
def test_end_of_what_another_run_has_started(start):
    terminate = run(OTHERS, 2)["terminate"]
    shell = start("sh", "-c", "sleep 60 & echo; wait", stdout=subprocess.PIPE)
    shell.stdout.readline()
    assert terminate(shell.pid) == 1 and shell.stdout.read() == b""
    assert shell.wait() == -signal.SIGTERM and terminate(shell.pid) == 0


@of("A pool of N")
def test_pool(tmp_path):
    run_all = run("A pool of N")["run_all"]
    commands = []
    for number in range(5):
        os.mkfifo(str(tmp_path / ("fifo%d" % number)))
        code = 'cd "$0"; : > started%d; read line < fifo%d; exit %d'
        commands.append(["sh", "-c", code % ((number,) * 3), str(tmp_path)])
    results = run_all(commands, at_once=2)
    for done, number in enumerate([1, 0, 2, 4, 3]):
        fifo = tmp_path / ("fifo%d" % number)
        # It is started in next(); to open the FIFO waits for that.
        teller = threading.Thread(target=fifo.write_text, args=("\n",))
        teller.start()
        assert next(results) == (commands[number], number)
        teller.join()
        assert len(list(tmp_path.glob("started*"))) <= done + 2
    assert list(results) == []


@of("A pidfile")
def test_pidfile(tmp_path, zombie, sleeper):
    stop_daemon = run("A pidfile")["stop_daemon"]
    pidfile = tmp_path / "pid"
    stop_daemon(str(pidfile), None)
    for pid in gone_pid(), zombie(0).pid:
        pidfile.write_text("%d\n" % pid)
        stop_daemon(str(pidfile), lambda pid: True)
    pidfile.write_text("%d\n" % sleeper.pid)
    stop_daemon(str(pidfile), lambda pid: pid != sleeper.pid)
    assert sleeper.poll() is None
    stop_daemon(str(pidfile), lambda pid: pid == sleeper.pid, timeout=60)
    assert sleeper.wait() == -signal.SIGTERM


CHILD = """
def stop():
    os.write(1, b"stopped\\n")
    os._exit(0)

end_with_parent(stop)
os.write(1, b"watches\\n")
time.sleep(60)
"""


@of("End my program with its parent")
@pytest.mark.parametrize("launcher", [(), ("sh", "-c", '"$@"; exit', "sh")])
def test_parent(tmp_path, start, launcher):
    main = CHILD.replace("parent", "client") if launcher else CHILD
    title = "End my program with its parent"
    command, env = script(tmp_path / "child.py", title, main, AFTER if launcher else BEFORE)
    command = [*launcher, *command]
    code = "import subprocess, sys; subprocess.Popen(%r); sys.stdin.read()" % command
    parent = start(
        sys.executable, "-c", code, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout.readline() == b"watches\n"
    parent.kill()
    assert parent.stdout.read() == b"stopped\n"


@of("End my program with its parent")
def test_parent_that_has_exited(monkeypatch):
    """Before it was watched, and its pid belongs to another process."""
    monkeypatch.setenv("PARENT_PID", str(os.getpid()))
    called = threading.Event()
    run("End my program with its parent")["end_with_parent"](called.set)
    assert called.wait(60)


@of("Wait until a server is ready, or has exited")
def test_check(start, sleeper):
    wait_until = run("Wait until a server is ready, or has exited")["wait_until"]
    answers = [False, True]
    wait_until(lambda: answers.pop(0), sleeper)
    with pytest.raises(RuntimeError, match="exited with 3"):
        wait_until(lambda: False, start(*exiting(3)))
    with pytest.raises(TimeoutError):
        wait_until(lambda: False, sleeper, 0)


SHUTDOWN = """
def wait_procs(procs):
    os.write(1, b"waits\\n")
    return wait_them(procs)

wait_them, pidwait.wait_procs = pidwait.wait_procs, wait_procs
code = 'trap "exit 5" INT; trap "exit 6" TERM; echo started; '
code += 'while [ ! -e "$0" ]; do sleep 0.01; done; exit 7'
children = [pidwait.spawn(["sh", "-c", code, sys.argv[1]], process_group=0) for _ in range(2)]
wait_softly(children)
print(*(child.exitcode for child in children), flush=True)
for child in children:
    child.close()
"""


@of("Soft shutdown")
@pytest.mark.parametrize("presses", [0, 1, 2])
def test_shutdown(tmp_path, start, presses):
    end = tmp_path / "end"
    command, env = script(tmp_path / "script.py", "Soft shutdown", SHUTDOWN)
    program = start(*command, str(end), env=env, stdout=subprocess.PIPE, start_new_session=True)
    lines = [program.stdout.readline() for _ in range(3)]
    assert sorted(lines) == [b"started\n", b"started\n", b"waits\n"]
    for press in range(presses):
        # As the terminal does: to the group in the foreground.
        os.killpg(program.pid, signal.SIGINT)
        if press == 0:
            assert program.stdout.readline() == b"press Ctrl-C again to end them\n"
        assert program.stdout.readline() == b"waits\n"
    if presses < 2:
        end.touch()
    assert program.stdout.readline() == (b"6 6\n" if presses == 2 else b"7 7\n")
    assert program.wait() == 0


@of("In a selector")
def test_selector(start_told, capsys):
    """The connection has something first, and only then does the child exit."""
    serve = run("In a selector")["serve"]
    child = start_told(3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        got = []

        def answer(connection):
            got.append(connection.recv(1))
            child.stdin.close()

        serve([child], ours, answer)
    assert got == [b"x"]
    assert printed(capsys) == exits((child.pid, 3))


@of("In asyncio")
def test_ending_all_in_asyncio(start):
    end_all = run("In asyncio")["end_all"]
    stubborn = start(sys.executable, "-c", STUBBORN, stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    obeys = start(*sleeping(60))
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(end_all([obeys], 60)) == [(obeys, -15)]
        assert loop.run_until_complete(end_all([stubborn], 0.05)) == [(stubborn, -9)]
    finally:
        loop.close()


STUBBORN = """if True:
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(flush=True)
    time.sleep(60)
"""


@of("With pexpect")
def test_pexpect(capsys):
    import pexpect

    terminals = [pexpect.spawn("sh", ["-c", "echo hello; exit %d" % code]) for code in (0, 3)]
    for terminal in terminals:
        become_zombie(terminal.pid)
    run("With pexpect", terminals=terminals)
    assert printed(capsys) == ["b'hello\\r\\n' 0", "b'hello\\r\\n' 3"]


@of("With multiprocessing")
@pytest.mark.parametrize("code", [0, 3])
def test_multiprocessing(code):
    """The third one ends at once; if it fails, the others, which would run on, are ended."""
    fork = multiprocessing.get_context("fork").Process
    seconds = 60 if code else 0
    workers = [fork(target=time.sleep, args=(seconds,)) for _ in range(2)]
    workers.append(fork(target=os._exit, args=(code,)))
    run("With multiprocessing")["run"](workers)
    assert [worker.exitcode for worker in workers] == ([-15, -15, 3] if code else [0, 0, 0])
    assert not set(workers) & set(multiprocessing.active_children())
    for worker in workers:
        if hasattr(worker, "close"):  # Python 3.7
            worker.close()


@of("With concurrent.futures")
def test_futures(start_told, sleeper):
    future_of = run("With concurrent.futures")["future_of"]
    child = start_told(3)
    futures = future_of(child), future_of(sleeper)
    assert not futures[0].cancel()
    child.stdin.close()
    done = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)[0]
    assert [future.result() for future in done] == [3]
    sleeper.kill()
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(asyncio.wrap_future(futures[1], loop=loop)) == -signal.SIGKILL
    loop.close()


IS_PATCHED = """
def is_patched():
    import subprocess
    from {} import subprocess as ours
    before = dict(vars(subprocess.Popen))
    ours.unpatch()
    return dict(vars(subprocess.Popen)) != before
""".format(pidwait.__name__)
PROGRAM = """
import beside, os, sys, threading, time
def runs(frame):
    return frame is not None and (frame.f_code.co_name == "<module>"
        and frame.f_code.co_filename.endswith("program.py") or runs(frame.f_back))
def outlive():  # not join(): threading._shutdown() fails if it takes the lock of the main thread
    while runs(sys._current_frames().get(threading.main_thread().ident)):
        time.sleep(0.001)
    print(beside.is_patched())
print(__name__, sys.argv, os.path.abspath(sys.path[0]), flush=True)
threading.Thread(target=outlive).start()
sys.exit(5)
"""
UNCHANGED = "A script that you can't change"


@of(UNCHANGED)
@pytest.mark.parametrize("part, name", [(0, ["program.py"]), (1, ["-m", "program"])])
def test_patched_script(tmp_path, part, name):
    folder = tmp_path.resolve() / "below"
    folder.mkdir()
    folder.joinpath("beside.py").write_text(IS_PATCHED)
    folder.joinpath("program.py").write_text(PROGRAM)
    patched = tmp_path / "patched.py"
    patched.write_text(with_our_name(RECIPES[UNCHANGED][part]))
    alone = run_python(*name, "-x", cwd=str(folder))
    done = run_python(patched, name[-1], "-x", cwd=str(folder))
    assert alone[0] == 5 and alone[1].endswith("\nFalse\n")
    assert done == (5, alone[1].replace("\nFalse", "\nTrue"), "")


ALL = "All tests, or all interpreters"


@of(ALL)
def test_patched_tests(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    test = IS_PATCHED + "def test_it(): assert is_patched()\n"
    tmp_path.joinpath("test_toy.py").write_text(test)
    for recipe, status in ("", 1), (with_our_name(RECIPES[ALL][0]), 0):
        tmp_path.joinpath("conftest.py").write_text(recipe)
        done = run_python("-m", "pytest", "-q", "test_toy.py", cwd=str(tmp_path))
        assert done[0] == status, done


@of(ALL)
def test_patched_interpreters(tmp_path):
    tmp_path.joinpath("sitecustomize.py").write_text(with_our_name(RECIPES[ALL][0]))
    for path, is_patched in ((), False), (tmp_path, True):
        done = run_python("-c", IS_PATCHED + "print(is_patched())", path=path)
        assert done == (0, "%s\n" % is_patched, "")


needs_pidfd = pytest.mark.skipif(
    pidwait.probe()["backend"] != "pidfd", reason="a pidfd shows that it waits"
)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@of("In a zipapp")
def test_zipapp(folder, start, sleeper):
    child = start(*exiting(0, 0.5))
    assert folder.shell(SHELL["In a zipapp"][0], PID=str(child.pid)) == (0, "", "")
    assert child.poll() == 0
    for arguments, status in (
        ("-t 0.1 %d" % sleeper.pid, 124),
        ("%d" % child.pid, 1),
        ("--exit-code %d" % child.pid, 127),
        ("--nonesuch", 2),
        ("run sh -c 'exit 5'", 5),
        ("run -t 0.1 sleep 60", 124),
        ("run sh -c 'kill $$'", -signal.SIGTERM),
        ("run /nonesuch", 127),
    ):
        assert folder.run("./wait.pyz", *shlex.split(arguments))[0] == status, arguments


def links(pid):
    folder = "/proc/%d/fd" % pid
    return [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]


@needs_pidfd
def test_ctrl_c_in_a_zipapp(folder, start, sleeper):
    assert folder.shell(SHELL["In a zipapp"][0], PID=str(start(*exiting(0)).pid))[0] == 0
    waiter = folder.popen("./wait.pyz", "-v", str(sleeper.pid))
    eventually(lambda: state(waiter.pid) == "S" and "pidfd" in str(links(waiter.pid)))
    waiter.send_signal(signal.SIGINT)
    assert waiter.communicate() == ("", "")
    assert waiter.returncode == -signal.SIGINT


def test_program_in_a_zipapp(folder):
    folder.write("app/__main__.py", RECIPES["In a zipapp"][0])
    folder.shell("cp -R pidwait app/")
    folder.write("bin/make", "#!/bin/sh\nexit 3\n").chmod(0o755)
    assert folder.shell(SHELL["In a zipapp"][1]) == (3, "", "")
    assert folder.run("./program.pyz", "sh", "-c", "kill $$") == (143, "", "")
