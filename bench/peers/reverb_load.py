"""dm-reverb's clients on bench_replay's work: on dm-reverb's own server, and on ADDRESS, served by PID.

    reverb_load.py growing|full|samples [ADDRESS PID]

growing: inserts into a table that stays below its size; full: inserts into tables that trim, and samples;
samples: these alone. The two servers take turns, segment by segment, and in who begins, because the
machine's speed moves while this runs. Prints a line for each segment: theirs|ours, insert|grow|sample, size,
writers, way, items per second, and the processor microseconds an item of clients and server.
"""
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
sys.stderr = os.fdopen(os.dup(2), 'w')  # tracebacks; dm-reverb's and TensorFlow's own lines are thousands
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
import numpy as np
import reverb
import tensorflow as tf

SECONDS = float(os.environ.get('BENCH_SECONDS', '0.5'))
SIZES = {'52B': 100_000, '28KB': 5_000}  # items in a full table
GROWING, UNBOUNDED = 'growing', 100_000_000  # a table of both sizes
ROUNDS = {'grow': 4, 'insert': 8, 'sample': 8}  # even, so that both begin as often
BATCH, PREFETCHED = 256, 2


def make_step(size):
    step = {'action': np.int32(1), 'reward': np.float32(1), 'discount': np.float32(1)}
    if size == '52B':
        step.update(obs=np.random.rand(4).astype(np.float32), next=np.random.rand(4).astype(np.float32),
                    extra=np.random.rand(2).astype(np.float32))
    else:
        step.update(obs=np.random.randint(0, 256, (84, 84, 4), dtype=np.uint8))
    return step


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve():
    tables = [reverb.Table(size, reverb.selectors.Uniform(), reverb.selectors.Fifo(), count,
                           reverb.rate_limiters.MinSize(1)) for size, count in [*SIZES.items(), (GROWING, UNBOUNDED)]]
    server = reverb.Server(tables, port=None)
    print(server.port, flush=True)
    server.wait()


def insert_trajectories(address, table, steps, stop):
    count = 0
    with reverb.Client(address).trajectory_writer(num_keep_alive_refs=1) as writer:
        while not stop.is_set():
            writer.append(steps[count % len(steps)])
            writer.create_item(table, 1.0, {name: column[-1:] for name, column in writer.history.items()})
            count += 1
            if count % 200 == 0:
                writer.flush(block_until_num_items=100)
        writer.flush()
    return count


def insert_legacy(address, table, steps, stop):
    count = 0
    with reverb.Client(address).writer(max_sequence_length=1, max_in_flight_items=1000) as writer:
        while not stop.is_set():
            writer.append(steps[count % len(steps)])
            writer.create_item(table, 1, 1.0)
            count += 1
    return count


def fill(address, size):
    steps = [make_step(size) for _ in range(16)]
    with reverb.Client(address).writer(max_sequence_length=1, max_in_flight_items=1000) as writer:
        for count in range(SIZES[size]):
            writer.append(steps[count % len(steps)])
            writer.create_item(size, 1, 1.0)


def cpu_us(pid):
    clock = ctypes.c_int()
    ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    return time.clock_gettime(clock.value) * 1e6


def measure(what, case, servers, work, warm_up=lambda whose: None):
    """`work(address, whose)` returns a number of items."""
    for turn in range(ROUNDS[what]):
        for whose, (address, pid) in list(servers.items())[::-1 if turn % 2 else 1]:
            warm_up(whose)
            server, client, begin = cpu_us(pid), time.process_time(), time.monotonic()
            items = work(address, whose)
            seconds = time.monotonic() - begin
            print(f'{whose} {what} {case} {items / seconds:.0f} '
                  f'{(time.process_time() - client) * 1e6 / items:.2f} {(cpu_us(pid) - server) / items:.2f}', flush=True)


def write(insert, address, table, size, writers):
    steps = [make_step(size) for _ in range(16)]
    stop, counts = threading.Event(), []
    threads = [threading.Thread(target=lambda: counts.append(insert(address, table, steps, stop)))
               for _ in range(writers)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts)


def measure_writers(what, servers, size, table):
    for writers in (1, 4, 16):
        for name, way in (('TrajectoryWriter', insert_trajectories), ('Writer', insert_legacy)):
            measure(what, f'{size} {writers} {name}', servers,
                    lambda address, _: write(way, address, table, size, writers))


def make_dataset(address, table, in_flight, workers):
    example = make_step(table)
    dataset = reverb.TrajectoryDataset(
        address, table,
        dtypes={name: tf.as_dtype(np.asarray(value).dtype) for name, value in example.items()},
        shapes={name: tf.TensorShape([1] + list(np.shape(value))) for name, value in example.items()},
        max_in_flight_samples_per_worker=in_flight, num_workers_per_iterator=workers).batch(BATCH).prefetch(PREFETCHED)
    batches = iter(dataset)
    next(batches)
    return batches


def read(batches, seconds, least=0):
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds or count < least:
        next(batches)
        count += BATCH
    return count


def measure_datasets(servers, size):
    for in_flight, workers in ((100, 1), (512, 1), (1000, 4)):
        batches = {whose: make_dataset(address, size, in_flight, workers)
                   for whose, (address, _) in servers.items()}
        # What came while the other server had its turn is not counted: all that the dataset has room for.
        room = in_flight * workers + (PREFETCHED + 1) * BATCH
        measure('sample', f'{size} 0 dataset({in_flight},{workers})', servers,
                lambda _, whose: read(batches[whose], SECONDS), lambda whose: read(batches[whose], 0, room))
        del batches


def run(cases, servers):
    for size in SIZES:
        if cases == 'growing':
            measure_writers('grow', servers, size, GROWING)
            continue
        for address, _ in servers.values():
            fill(address, size)
        if cases == 'full':
            measure_writers('insert', servers, size, size)
        measure_datasets(servers, size)


def main():
    own = subprocess.Popen([sys.executable, __file__, '--serve'], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        servers = {'theirs': (f'localhost:{int(own.stdout.readline())}', own.pid)}
        if len(sys.argv) > 3:
            servers = {'ours': (sys.argv[2], int(sys.argv[3])), **servers}
        # The last client of a process shuts gRPC down, which takes it up to 10 s: let it not be a writer's.
        clients = [reverb.Client(address) for address, _ in servers.values()]
        run(sys.argv[1], servers)
        del clients
    finally:
        own.kill()
        own.wait()


if __name__ == '__main__':
    serve() if '--serve' in sys.argv else main()
