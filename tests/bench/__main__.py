# SPDX-License-Identifier: BSD-3-Clause
import argparse
import os
import sys

from .. import pidwait
from . import (
    aio,
    core,
    imports,
    latency,
    many,
    spawn,
    trees,
)

BENCHES = {
    "latency": latency,
    "import": imports,
    "spawn": spawn,
    "many": many,
    "aio": aio,
    "trees": trees,
}
LIST = "\n".join(
    "  {:14} {}".format(name, module.__doc__.splitlines()[0]) for name, module in BENCHES.items()
)


def positive(type_):
    def convert(text):
        number = type_(text)
        if number <= 0:
            raise ValueError(text)
        return number

    convert.__name__ = "positive " + type_.__name__
    return convert


def parts(name):
    return getattr(BENCHES[name], "PARTS", ())


def parse(argv):
    parted = ["{}: {}".format(name, ", ".join(parts(name))) for name in BENCHES if parts(name)]
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure against peers; 1 if a bound is exceeded or could not be measured.",
        epilog="benches:\n" + LIST,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="none: list the benches")
    parser.add_argument("--rounds", type=positive(int), help="instead of each bench's own number")
    parser.add_argument(
        "--part",
        action="append",
        help="only this part of the bench named; may be given again: " + "; ".join(parted),
    )
    parser.add_argument(
        "--beside",
        metavar="FOLDER",
        help="of latency and many: a second checkout, to measure in turns with us",
    )
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error("unknown: {}; the benches:\n{}".format(", ".join(unknown), LIST))
    if options.part:
        if len(options.names) != 1:
            parser.error("--part needs one bench")
        known = parts(options.names[0])
        for part in options.part:
            if part not in known:
                parser.error(
                    "no part {} of {}; its parts: {}".format(
                        part, options.names[0], ", ".join(known) or "none"
                    )
                )
    return options


def about():
    facts = pidwait.probe()
    return {
        "python": facts["python"],
        "system": facts["system"],
        "backend": facts["backend"],
        "psutil": getattr(core.psutil, "__version__", "none"),
        "load": "%.1f %.1f %.1f" % os.getloadavg() if hasattr(os, "getloadavg") else "unknown",
    }


def main(argv=None):
    options = parse(argv)
    if not options.names:
        print(LIST)
        return 0
    print(", ".join("{} {}".format(*item) for item in about().items()), flush=True)
    ok = True
    for name in options.names:
        print("\n{}: {}".format(name, BENCHES[name].__doc__.splitlines()[0]))
        try:
            rows = BENCHES[name].run(options)
        except core.Unavailable as error:
            print("  can't be measured:", error, flush=True)
            ok = False
        else:
            core.print_table(rows)
            sys.stdout.flush()
            ok = ok and all(row.ok for row in rows)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
