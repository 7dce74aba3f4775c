# SPDX-License-Identifier: BSD-3-Clause
"""The values that the fuzzer draws: expressions, evaluated with the names of fuzz_world.names().

Each argument has values with which a program usually starts, and odd ones, with which it often
does not. They are separated by two spaces or a line end; those in one line by one space.
"""

ARGS = (
    """
[PROBE]  [PROBE, 'a', b'b\\xff', '']  (PROBE, Path('x'), '\\udcff')  [PROBE, '\\u20ac', Str('s')]
PROBE  os.fsencode(PROBE)  Path(PROBE)  Fspath(PROBE)  Fspath(os.fsencode(PROBE))  'probe'
b'probe'  ['probe', 'x']  ['./probe', '--']  ['bin/../probe']  [Path('probe')]
[Path('./probe'), Fspath(b'y')]  iter([PROBE, 'a'])  (arg for arg in [PROBE, b'b'])  {PROBE: 1}
{PROBE}  dict.fromkeys([PROBE, 'k']).keys()  [Str(PROBE)]  ['sh', '-c', SCRIPT, 'name']
['/bin/sh', '-c', 'echo out; echo err >&2; ' + SCRIPT]  ['sh', '-c', 'exit 4']  ['true']
['false']  'true'  ['./script', 'x y']  ['sub/inner']  ['inner', 'i']  [b'./script']
[PROBE] + [str(n) for n in range(300)]
""",
    """
[]  ()  iter(())  ''  b''  ['']  [b'', 'x']  None  5  5.5  [None]  [PROBE, None]  [PROBE, 5]
[PROBE, '\\0']  ['pro\\0be']  [b'pro\\0be', 'x']  [PROBE, '\\ud800']  ['\\ud800']  'nonesuch'
['nonesuch', 'a']  [b'nonesuch']  [Path('nonesuch')]  Path('nonesuch/x')  ['./nonesuch']
['/nonesuch/x']  ['notexec']  ['./bin/notexec']  ['folder']  ['./bin/folder']  ['./bin']
['noshebang']  ['./bin/noshebang', 'x']  ['badshebang']  ['./bin/badshebang']  ['empty']
['bin/empty']  ['loop']  ['./bin/loop']  ['dangling']  ['bin/dangling']  ['closed/x']  ['probe/x']
['./probe/x']  ['x' * 300]  ['./' + 'x' * 300]  ['/' + 'x/' * 3000]  [PROBE, 'x' * 140000]
[PROBE] + ['x' * 100000] * 30  [bytearray(b'probe')]  bytearray(b'probe')  [[PROBE]]  [Fspath(5)]
[PROBE, Fspath(OSError(5, 'on_purpose'))]  Fspath(LookupError('on_purpose'))  failing([PROBE])
range(2)  True  memoryview(b'probe')  Path('.')  ['/']  ['..']
""",
)
VALUES = {
    "args": ARGS,
    "cwd": (
        """
None  here  os.fsencode(here)  'sub'  Path('sub')  Fspath(b'sub')  '/'  '.'  '..'  b'sub/..'
'closed'
""",
        """
''  b''  'nonesuch'  b'nonesuch'  Path('nonesuch')  Fspath(b'nonesuch')  'probe'  'probe/x'  '\\0'
b'su\\0b'  'x' * 300  'bin/loop'  5  []  24  '\\ud800'  Fspath(5)
Fspath(LookupError('on_purpose'))  False  bytearray(b'sub')
""",
    ),
    "env": (
        """
None  {}  {'A': '1'}  {b'A': b'\\xff', 'B': '\\udcfe'}  {'PATH': here + '/bin', 'B': ''}
{'PATH': ''}  {'PATH': ':'}  {'PATH': '.:' + here}  {'PATH': '/nonesuch:sub:bin'}
{'PATH': here + '/closed:' + here + '/probe:/bin'}  {'PATH': here + '/sub:/bin'}
{b'PATH': os.fsencode(here) + b'/bin'}  os.environ  dict(os.environ)  os.environ.copy()
os.environb  dict(os.environ, NEW='1')  dict(os.environb, NEW=b'1')  Mapping(A='1')
Mapping(PATH=here)  {'A': Path('x'), Fspath('P'): 'y'}  {'A' * 1000: 'x' * 100000}
{Str('A'): Str('b')}  {'': 'empty'}  {'A': '=', 'Z': '\\u20ac'}
{'LD_LIBRARY_PATH': '/nonesuch', 'A': '1'}
""",
        """
{b'PATH': b'/bin', 'PATH': here}  {'A=': ''}  {b'=A': b''}  {'A': '1\\0'}  {'A\\0': '1'}
{b'PATH': b'/bin\\0'}  {'PATH': 'x\\0:/bin'}  {'A': 1}  {1: 'a'}  {'A': None}  {'PATH': None}
{'PATH': 5}  {'A': '\\ud800'}  [('A', '1')]  []  ''  b''  ()  5  False  Items(('A', '1'))
Items(('PATH', here), ('A', '1'))  Items(('A', '1', '2'))  Items()  {'A': 'x' * 140000}
{'A': Fspath(5)}  {'A': Fspath(LookupError('on_purpose'))}  {Fspath('PATH'): here + '/bin'}
{'PATH': Fspath(here + '/bin')}  {b'A': '1', 'A': '2'}  set()  object()
""",
    ),
    "close_fds": ("True True False False 1 0 None", "'' 'x' 1.5 [] Index(0) fail"),
    "pass_fds": (
        "() (21,) [20] (20,20) (200,21) (300,) {24} {20:1} iter([20,21]) (20,) [22,23] (0,) (1,2)"
        " (0,1,2) range(20,24) map(int,[24]) [Int(21)] frozenset([300,20]) [] (2,20)",
        "(99,) (True,) (-1,) (20,-1) (20.0,) (20.7,) ('20',) (b'20',) (None,) None 20 0 'ab' ''"
        " (2**31,) (2**31-1,) (2**64,) failing([20]) (Index(20),) [HasFileno(20)] (20,99,21)"
        " (250,99) ([],) object() (21,True,21) iter(()) iter([99]) iter([-1]) (1023,) (2000,)",
    ),
    "start_new_session": ("True True False 1 0", "None '' 'x' 2 2**40 1.5 Index(1) -1"),
    "bufsize": ("0 1 -1 None 4096", "1.5 'x' True -5 2**70"),
    "executable": (
        "None PROBE os.fsencode(PROBE) Path(PROBE) 'probe' b'probe' '/bin/sh' './probe' 'true'",
        "'nonesuch' './nonesuch' '' b'' 5 None 'bin/folder' 'bin/notexec' '\\0' 'pro\\0be' [] True"
        " 'bin/noshebang' b'empty' '\\ud800' Fspath(LookupError('on_purpose')) Fspath(5) False",
    ),
    "preexec_fn": ("None (lambda:os.umask(0o7)) (lambda:None)", "fail 5 '' (lambda:os._exit(3))"),
    "shell": ("True True False 1 0", "None '' 'x' [] Index(0)"),
    "universal_newlines": ("True False None", "'' 5 []"),
    "text": ("True False None", "'' 5 []"),
    "encoding": ("'latin-1' 'utf-8' None", "'nonesuch' '' 5 b'utf-8'"),
    "errors": ("'ignore' 'strict' None", "'nonesuch' '' 5"),
    "startupinfo": ("None", "1 '' 0 False"),
    "creationflags": ("0", "1 None '' 0.0 False"),
    "restore_signals": ("True False False 1 0", "None '' 'x' 2 2**40 1.5 Index(0)"),
    "user": ("65534 'nobody' os.geteuid() None", "'nonesuch' -1 1.5 [] 2**40 '' True"),
    "group": ("65534 'nogroup' os.getegid() None", "'nonesuch' -1 1.5 [] 2**40 '' True"),
    "extra_groups": (
        "[65534] ['nogroup',1] () None iter([1])",
        "5 'x' [-1] [1.5] [2**40] '' [''] ",
    ),
    "umask": ("0o77 -1 0 0o777", "None 'x' 0o7777 2**40 -2 1.5 True"),
    "pipesize": ("-1 65536 4096 131072", "0 -2 'x' 1.5 None 2**40"),
    "process_group": ("None 0 0 os.getpgrp()", "-1 1 999999 '0' 2**31 2**40 True 1.5 -2"),
    "nonesuch": ("", "1"),
    "patch": ("", "None"),
}
FILES = (
    "None 20 21 200 300 DEVNULL open(FILE) open(FILE,'ab') HasFileno(20) 0 1 2 23 25 Int(20)",
    "99 -4 -5 2**31 2**70 'x' b'x' 1.5 True False object() io.StringIO() HasFileno('x')"
    " HasFileno(99) HasFileno(-1) HasFileno(-7) HasFileno(None) 24 2000 -1.0"
    " HasFileno(2**31) HasFileno(-3)",
)
PIPES = "PIPE PIPE PIPE PIPE "
VALUES["stdin"] = VALUES["stdout"] = PIPES + FILES[0], FILES[1] + " STDOUT"
VALUES["stderr"] = PIPES + "STDOUT STDOUT " + FILES[0], FILES[1]
SHELL = (
    "SCRIPT",
    "'exec probe a'",
    "b'exit 5'",
    "['exit $1','n','6']",
    "[SCRIPT,'a']",
    "(SCRIPT,)",
    "'nonesuch'",
    "iter([SCRIPT])",
    "'echo $0 $A; exec ./probe'",
)

# What may have changed in the process that starts: each is possible after those before it.
WORLD = (
    "os.environ.pop('PATH',None)",
    "os.environ.clear()",
    "os.environ.update(PATH='')",
    "os.environ.update(PATH='/nonesuch:.')",
    "os.environ.update(PATH='bin:/bin')",
    "os.environb.update({b'X\\xff':b'\\xfe'})",
    "os.putenv('UNSEEN','1')",
    "os.unsetenv('FUZZ')",
    "setattr(os,'environ',dict(os.environ))",
    "signal.signal(signal.SIGCHLD,signal.SIG_IGN)",
    "signal.signal(signal.SIGCHLD,lambda *args:None)",
    "signal.signal(signal.SIGPIPE,signal.SIG_DFL)",
    "signal.signal(signal.SIGUSR1,signal.SIG_IGN)",
    "signal.signal(signal.SIGUSR2,lambda *args:None)",
    "signal.pthread_sigmask(signal.SIG_BLOCK,[signal.SIGUSR1,signal.SIGCHLD])",
    "setattr(sys,'stdout',None)",
    "setattr(sys,'__stdout__',None)",
    "os.umask(0o77)",
    "os.setpgid(0,0)",
    "uninheritable()",
    "os.close(0)",
    "os.close(1)",
    "os.close(2)",
    "os.closerange(0,3)",
    "place(os.open(FILE,os.O_RDWR),3,True)",
    "place(os.open(FILE,os.O_RDWR),4,False)",
    "os.chdir('sub')",
    "gone()",
    "forget()",
    "unprivileged()",
    "limit(3)",
    "limit(5)",
    "limit(8)",
    "limit(24)",
    "limit(64)",
    "limit(4096)",
)
