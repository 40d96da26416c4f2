"""A worker whose clock is wrong (RELIABILITY 32): only the database's clock decides."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from tests.chaos.rounds import Round
from tests.chaos.scenario import Skipped, scenario

HOUR = 3600
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long off(void) { const char *s = getenv("CHAOS_CLOCK_OFF"); return s ? atol(s) : 0; }

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, at);
    if (!answer && id == CLOCK_REALTIME) at->tv_sec += off();
    return answer;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void) zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def wrong_clock(round_: Round) -> Path:
    """A library that moves a process's wall clock, and nothing else of it."""
    compiler = shutil.which("cc")
    if compiler is None or not Path("/proc/self/maps").exists():
        raise Skipped("moving a process's clock needs Linux and a C compiler")
    library = round_.cluster.home / "wrong_clock.so"
    if not library.exists():
        source = library.with_suffix(".c")
        source.write_text(SHIM)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@scenario("an hour ahead", "an hour behind")
def workers_with_a_wrong_clock_do_everything_on_time(round_: Round) -> None:
    library = wrong_clock(round_)
    for off, fault in ((HOUR, "an hour ahead"), (-HOUR, "an hour behind")):
        worker = round_.start_worker(env={"LD_PRELOAD": str(library), "CHAOS_CLOCK_OFF": str(off)})
        told = round_.run("tell_the_time", None)
        stumbled = round_.run("stumble", None)
        queued_at = time.time()
        delayed = round_.run("note", {"seconds": 0.2}, delay=1)
        runs = [told, stumbled, delayed, *round_.load(10, seconds=0.2)]
        round_.until_ended(runs)

        if abs(round_.row(told)["output"] - time.time() - off) < 60:
            round_.saw(fault)
        late = round_.until_begun(delayed) - queued_at
        round_.expect(0.99 <= late <= 3.5, f"what should wait 1 s waited {late:.2f} s")
        round_.expect(max(round_.column("lost_count", runs)) == 0, "a lease was taken for expired")
        round_.expect_counts(delayed, deliveries=1)
        round_.stop(worker)
