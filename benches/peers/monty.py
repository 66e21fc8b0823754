"""pydantic-monty, asked as benches/src/sandbox.rs says. Each session is a worker process of its pool."""

import json
import sys
import time

import pydantic_monty

CALLING = """
s = 0
for i in range({calls}):
    r = read({{'path': '/a/' + str(i), 'n': i}})
    s += r['n']
s
"""


def laps(count, work):
    for _ in range(count // 10 + 1):
        work()
    samples = []
    for _ in range(count):
        before = time.perf_counter()
        work()
        samples.append((time.perf_counter() - before) * 1e6)
    return {"samples": samples}


with pydantic_monty.Monty() as pool:

    def trivial():
        with pool.checkout() as session:
            assert session.feed_run("1+1") == 2

    def calling(calls):
        with pool.checkout() as session:
            code = CALLING.format(calls=calls)
            total = session.feed_run(code, external_lookup={"read": lambda given: {"n": given["n"]}})
            assert total == calls * (calls - 1) // 2

    for line in sys.stdin:
        ask = json.loads(line)
        told = "unsupported"
        try:
            if ask["ask"] == "trivial":
                told = laps(ask["count"], trivial)
            if ask["ask"] == "calls":
                told = laps(ask["count"], lambda: calling(ask["calls"]))
        except pydantic_monty.MontyError as error:
            print(f"monty: {error}", file=sys.stderr)
        print(json.dumps(told), flush=True)
