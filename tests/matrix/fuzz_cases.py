# SPDX-License-Identifier: BSD-3-Clause
"""The cases that hypothesis draws for the fuzzer: expressions, which fuzz_worker.py evaluates.

Each argument has good values, with which a program usually starts, and odd ones, with which it
often does not.
"""

import inspect
import re
import subprocess

from hypothesis import strategies as st


def one(text):
    """Of expressions between two spaces or a line end; in one line, between single spaces."""
    return st.sampled_from(re.split("  |\n", text.strip()) if "\n" in text else text.split())


def usually(good, odd):
    """With more that is odd, next to nothing would start."""
    return st.sampled_from([good] * 9 + [odd]).flatmap(lambda either: either)


def joined(forms, elements):
    """Up to three of the elements, between commas."""
    return st.builds(str.format, forms, st.lists(elements, max_size=3).map(", ".join))


def path(good):
    kinds = one("{} {} {} Str({}) os.fsencode({}) Path({}) Fspath({}) Fspath(os.fsencode({}))")
    found, not_found = (st.builds(str.format, kinds, one(text)) for text in (good, NOT_FOUND))
    return usually(found, not_found | ODD)


def values(good, odd="99"):
    return usually(one(good), one(odd) | ODD)


# Odd for each argument.
ODD = one("""
None  ''  'x'  b''  b'x'  'ab'  '\\0'  'pro\\0be'  '\\ud800'  []  [[]]  ()  {}  set()  object()
iter(())  range(2)  ([20][n] for n in (0, 1))  0  1  2  5  24  -1  -2  -5  1.5  -1.0  20.0  True
False  2**31-1  2**31  2**40  2**64  2**70  (lambda: [][0])  Index(0)  Index(20)  Fspath(5)
bytearray(b'probe')  memoryview(b'x')  Fspath(LookupError('why'))  Fspath(OSError(5, 'why'))
""")
NOT_FOUND = """
''  '/'  '.'  '..'  'nonesuch'  './nonesuch'  '/nonesuch/x'  'nonesuch/x'  'notexec'  './notexec'
'sub'  './sub'  'noshebang'  './noshebang'  'badshebang'  './badshebang'  'empty'  './empty'
'loop'  './loop'  'dangling'  './dangling'  'closed/x'  'probe'  'probe/x'  './probe/x'  'x' * 300
'./' + 'x' * 300  '/' + 'x/' * 3000
"""
PROGRAM = path("PROBE PROBE 'probe' './probe' './script' 'sub/../probe' 'inner' 'sub/inner' 'true'")
ARGUMENT = values(
    "'a' '' '--' b'b\\xff' Path('x') Fspath(b'y') '\\udcff' '\\u20ac' Str('s') 'x'*100000",
    "'x'*140000 [PROBE]",
)
LISTS = one("[{},{}] [{},{}] ({},{}) iter([{},{}]) (arg+arg[:0]for(arg)in[{},{}])")
COMMANDS = one("""
['sh', '-c', SCRIPT, 'name']  ['sh', '-c', 'echo out; echo err >&2; ' + SCRIPT]  'false'
['sh', '-c', 'exit 4']  ['./script', 'x y']  [PROBE] + [str(n) for n in range(300)]  {PROBE}
{PROBE: 1}  dict.fromkeys([PROBE, 'k']).keys()
""")
SHELL = one("""
SCRIPT  'exec probe a'  b'exit 5'  ['exit $1', 'n', '6']  [SCRIPT, 'a']  (SCRIPT,)  'nonesuch'
iter([SCRIPT])  'echo $0 $A; exec ./probe'
""")
ARGS = usually(
    PROGRAM | COMMANDS | st.builds(str.format, LISTS, PROGRAM, joined(st.just("{}"), ARGUMENT)),
    ODD | one("[PROBE]+['x'*100000]*30 ([PROBE][n]for(n)in(0,1)) [b'','x'] 5.5"),
)
ENV_NAME = one(
    "'A' b'A' 'B' 'PATH' 'PATH' b'PATH' '' Str('A') Fspath('P') 'A'*1000 'LD_LIBRARY_PATH'"
    " 'A=' b'=A' 'A\\0' Fspath('PATH') 1 None"
)
ENV_VALUE = values(
    "'1' '' b'\\xff' '\\udcfe' '=' '\\u20ac' Str('b') Path('x') 'x'*100000 '.:'+here here ':'"
    " '/nonesuch:sub' here+'/closed:'+here+'/probe:/bin' here+'/sub:/bin'",
    "'1\\0' 'x\\0:/bin' 'x'*140000 Fspath(here)",
)
ENV = joined(
    one("{{{}}} {{{}}} {{**os.environ,{}}} {{**os.environb,{}}} Mapping({{{}}})"),
    st.builds("{}: {}".format, ENV_NAME, ENV_VALUE),
)
NO_ENV = one(
    "[('A','1')] Items([('A','1')]) Items([('PATH',here)]) Items([('A','1','2')]) Items([])"
)
FILES = "None 20 21 200 300 DEVNULL open(FILE) open(FILE,'ab') HasFileno(20) 0 1 2 23 25 Int(20)"
FILES += " PIPE PIPE PIPE PIPE"
ODD_FILES = (
    "-4 io.StringIO() HasFileno('x') HasFileno(99) HasFileno(-1) HasFileno(-3) HasFileno(-7)"
)
ODD_FILES += " HasFileno(None) HasFileno(2**31) 24 2000 99 STDOUT"
FLAG = values("True True False False 1 0 None")
VALUES = {
    "env": usually(ENV | one("None os.environ os.environb os.environ.copy()"), NO_ENV | ODD),
    "cwd": path("here 'sub' 'sub' '/' '.' '..' 'sub/..' 'closed'"),
    "executable": path("PROBE 'probe' './probe' '/bin/sh' 'true'"),
    "stdin": values(FILES, ODD_FILES),
    "stdout": values(FILES, ODD_FILES),
    "stderr": values("STDOUT STDOUT " + FILES, ODD_FILES),
    "pass_fds": values(
        "() (21,) [20] (20,20) (200,21) (300,) {24} {20:1} iter([20,21]) (20,) [22,23] (0,) (1,2)"
        " (0,1,2) range(20,24) map(int,[24]) [Int(21)] frozenset([300,20]) [] (2,20)",
        "(99,) (True,) (-1,) (20,-1) (20.0,) (20.7,) ('20',) (b'20',) (None,) 20 (2**31,) ([],)"
        " (2**31-1,) (2**64,) (Index(20),) [HasFileno(20)] (20,99,21) (250,99) (21,True,21)"
        " iter([99]) iter([-1]) (1023,) (2000,)",
    ),
    "bufsize": values("0 1 -1 None 4096"),
    "encoding": values("'latin-1' 'utf-8' None", "'nonesuch' b'utf-8'"),
    "errors": values("'ignore' 'strict' None", "'nonesuch'"),
    "startupinfo": values("None"),
    "creationflags": values("0", "0.0"),
    "preexec_fn": values("None (lambda:os.umask(0o7)) (lambda:None)", "(lambda:os._exit(3))"),
    "user": values("65534 'nobody' os.geteuid() None", "'nonesuch'"),
    "group": values("65534 'nogroup' os.getegid() None", "'nonesuch'"),
    "extra_groups": values("[65534] ['nogroup',1] () None iter([1])", "[-1] [1.5] [2**40] ['']"),
    "umask": values("0o77 -1 0 0o777", "0o7777"),
    "nonesuch": ODD,
    "patch": ODD,
}
FLAGS = "close_fds start_new_session restore_signals shell universal_newlines text".split()
VALUES.update(dict.fromkeys(FLAGS, FLAG))
OFTEN = ["env", "cwd", "executable", "stdin", "stdout", "stderr", "pass_fds", *FLAGS[:4]]
KNOWN = {"nonesuch", "patch"}.union(inspect.signature(subprocess.Popen.__init__).parameters)
# What only the standard code can do would hide the rest.
NAMES = usually(st.sampled_from(OFTEN), st.sampled_from(sorted(KNOWN.intersection(VALUES))))


@st.composite
def start(draw):
    """The arguments of one start."""
    options = {"args": draw(ARGS)}
    for name in draw(st.lists(NAMES, max_size=7, unique=True)):
        options[name] = draw(VALUES[name])
    if "shell" in options:
        options["args"] = draw(usually(SHELL, ARGS))
    return options


# What may have changed in the process that starts: each is possible after those before it.
WORLD = """
os.environ.pop('PATH', None)  os.environ.clear()  os.environ.update(PATH='')
os.environ.update(PATH='/nonesuch:.')  os.environ.update(PATH='sub:/bin')
os.environb.update({b'X\\xff': b'\\xfe'})  os.putenv('UNSEEN', '1')  os.unsetenv('FUZZ')
setattr(os, 'environ', dict(os.environ))  signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, lambda *args: None)  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  signal.signal(signal.SIGUSR2, lambda *args: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD])
setattr(sys, 'stdout', None)  setattr(sys, '__stdout__', None)  os.umask(0o77)  os.setpgid(0, 0)
[os.set_inheritable(fd, False) for fd in (0, 1, 2)]
os.close(0)  os.close(1)  os.close(2)  os.closerange(0, 3)  os.dup2(20, 3)  os.dup2(20, 4, False)
os.chdir('sub')  (os.mkdir('gone'), os.chdir('gone'), os.rmdir('../gone'))  seam.forget()
(system.become(65534), system.prctl(system.PR_SET_DUMPABLE, 1))
limit(3)  limit(5)  limit(8)  limit(24)  limit(64)  limit(4096)
"""
CHANGES = st.lists(one(WORLD), max_size=4, unique=True)
CASES = st.fixed_dictionaries(
    {
        # Of two starts, the first may change something for the second.
        "starts": usually(st.tuples(start()), st.tuples(start(), start())),
        "world": (st.just([]) | CHANGES).map(lambda drawn: sorted(drawn, key=WORLD.index)),
        "wait": one("child.wait() child.wait(2) child.communicate(timeout=2)"),
    }
)
