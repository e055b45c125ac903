"""dm-reverb's checkpoint of 0.57 GB while one client inserts and one samples, each item by item.

Prints bytes a second, and the longest waits for one insert and for one sample in milliseconds.
"""
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
sys.stderr = os.fdopen(os.dup(2), 'w')  # tracebacks; dm-reverb's and TensorFlow's own lines are thousands
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import numpy as np
import reverb

ITEMS, ITEM_BYTES = 20_000, 28_236


def serve(directory):
    table = reverb.Table('t', reverb.selectors.Uniform(), reverb.selectors.Fifo(), ITEMS,
                         reverb.rate_limiters.MinSize(1))
    server = reverb.Server([table], port=None, checkpointer=reverb.checkpointers.DefaultCheckpointer(directory))
    print(server.port, flush=True)
    server.wait()


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def make_step():
    return {'action': np.int32(1), 'discount': np.float32(1), 'reward': np.float32(1),
            'obs': np.random.randint(0, 256, (84, 84, 4), dtype=np.uint8)}


class Caller(threading.Thread):
    """Calls `work` again and again; knows the longest that one call took."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.longest = work, 0.0

    def run(self):
        while True:
            begin = time.monotonic()
            self.work()
            self.longest = max(self.longest, time.monotonic() - begin)


def main():
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen([sys.executable, __file__, directory], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        address = f'localhost:{int(server.stdout.readline())}'
        steps = [make_step() for _ in range(16)]
        writer = reverb.Client(address).writer(1, max_in_flight_items=1000)
        sampler = reverb.Client(address)
        for i in range(ITEMS):
            writer.append(steps[i % 16])
            writer.create_item('t', 1, 1.0)
        writer.flush()

        def insert():
            writer.append(steps[0])
            writer.create_item('t', 1, 1.0)
            writer.flush()

        callers = [Caller(insert), Caller(lambda: list(sampler.sample('t', 1)))]
        for caller in callers:
            caller.start()
        time.sleep(1)
        for caller in callers:
            caller.longest = 0.0
        begin = time.monotonic()
        reverb.Client(address).checkpoint()
        seconds = time.monotonic() - begin
        print(ITEMS * ITEM_BYTES / seconds, *(caller.longest * 1e3 for caller in callers), flush=True)
        server.kill()
        server.wait()


serve(sys.argv[1]) if len(sys.argv) > 1 else main()
