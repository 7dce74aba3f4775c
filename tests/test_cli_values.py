# SPDX-License-Identifier: BSD-3-Clause
"""What the options of the command line take: durations, and names and numbers of signals."""

import importlib
import signal

import pytest

from . import pidwait
from .processes import not_on_windows

common = importlib.import_module(pidwait.__name__ + ".cli._common")
signals = importlib.import_module(pidwait.__name__ + ".cli._signals")


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("0", 0),
        ("3", 3),
        ("+3", 3),
        ("1.5s", 1.5),
        (".5m", 30),
        ("2.m", 120),
        ("3h", 10800),
        ("2d", 172800),
        ("999999d", 86399913600),
        ("100ms", 0.1),
        ("1h30m", 5400),
        ("1d12h", 129600),
        ("1m1.5s", 61.5),
        ("2s500ms", 2.5),
        ("1e-1", 0.1),
        ("1E1m", 600),
        ("0x10", 16),
        ("0x1d", 29),
        ("0x.8p1m", 60),
        ("1e999", float("inf")),
        ("0x1p9999", float("inf")),
        ("inf", float("inf")),
        ("Infinity", float("inf")),
        ("infd", float("inf")),
        (" 0.1\n", 0.1),
    ],
)
def test_durations(text, seconds):
    assert common.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1x",
        "-1",
        "s",
        "ms",
        "1.5.2",
        "nan",
        "1 s",
        "1S",
        "30m1h",
        "1h30",
        "1m1m",
        "e1",
        "0x",
    ],
)
def test_bad_durations(text):
    with pytest.raises(common.Usage, match="is not a duration"):
        common.duration(text)


@pytest.mark.parametrize(
    "text, number",
    [
        ("1", 1),
        ("INT", 2),
        ("sigterm", 15),
        ("SigInt", 2),
        ("0", 0),
        ("EXIT", 0),
        ("130", 2),
        ("129", 1),
    ],
)
def test_signals(text, number):
    if number == 1 and not hasattr(signal, "SIGHUP"):
        text, number = "15", 15
    assert signals.number(text) == number


@not_on_windows("real-time signals")
def test_real_time_signals():
    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    for text, number in [
        ("RTMIN", first),
        ("RTMIN+1", first + 1),
        ("SIGRTMAX-2", last - 2),
        (str(first + 3), first + 3),
        (str(last), last),
        ("RTMIN+%d" % (last - first), last),
        ("RTMAX-%d" % (last - first), first),
    ]:
        assert signals.number(text) == number
    names = [signals.name(number) for number in (first, first + 1, last - 1, last, 9, 0)]
    assert names == ["RTMIN", "RTMIN+1", "RTMAX-1", "RTMAX", "KILL", "EXIT"]
    assert signals.name((first + last) // 2) == "RTMIN+%d" % ((last - first) // 2)  # as kill -l


@pytest.mark.parametrize(
    "text",
    [
        "-1",
        "",
        "x",
        "SIG",
        "_IGN",
        "SIG_DFL",
        "65",
        "128",
        "265",
        "RTMIN+99",
        "RTMAX-99",
        "RTMIN-1",
    ],
)
def test_no_signals(text):
    with pytest.raises(common.Usage, match="is not a signal"):
        signals.number(text)


@not_on_windows("signals that the C library keeps for itself")
def test_signals_of_the_c_library():
    """No handler can be set for them."""
    with pytest.raises(common.Usage, match="is not a signal"):
        signals.number(str(int(signal.SIGRTMIN) - 1))
