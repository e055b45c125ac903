"""dm-reverb's own server under its own clients, on bench_replay's work.

Prints "insert|sample SIZE WRITERS", items per second and the way it was done, separated by tabs;
bench_replay takes the fastest.
"""
import os
import subprocess
import sys
import threading
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
import numpy as np
import reverb
import tensorflow as tf

SECONDS = float(os.environ.get('BENCH_SECONDS', '2'))
SIZES = {'52B': 100_000, '28KB': 5_000}  # items in a full table


def make_step(size):
    step = {'action': np.int32(1), 'reward': np.float32(1), 'discount': np.float32(1)}
    if size == '52B':
        step.update(obs=np.random.rand(4).astype(np.float32), next=np.random.rand(4).astype(np.float32),
                    extra=np.random.rand(2).astype(np.float32))
    else:
        step.update(obs=np.random.randint(0, 256, (84, 84, 4), dtype=np.uint8))
    return step


def serve():
    tables = [reverb.Table(size, reverb.selectors.Uniform(), reverb.selectors.Fifo(), count,
                           reverb.rate_limiters.MinSize(1)) for size, count in SIZES.items()]
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


def rate_of_writers(insert, address, table, writers):
    steps = [make_step(table) for _ in range(16)]
    stop, counts = threading.Event(), []
    threads = [threading.Thread(target=lambda: counts.append(insert(address, table, steps, stop)))
               for _ in range(writers)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - begin)


def rate_of_dataset(address, table, in_flight, workers):
    example = make_step(table)
    dataset = reverb.TrajectoryDataset(
        address, table,
        dtypes={name: tf.as_dtype(np.asarray(value).dtype) for name, value in example.items()},
        shapes={name: tf.TensorShape([1] + list(np.shape(value))) for name, value in example.items()},
        max_in_flight_samples_per_worker=in_flight, num_workers_per_iterator=workers).batch(256).prefetch(2)
    batches = iter(dataset)
    next(batches)
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < SECONDS:
        next(batches)
        count += 256
    return count / (time.monotonic() - begin)


def main():
    server = subprocess.Popen([sys.executable, __file__, '--serve'], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        address = f'localhost:{int(server.stdout.readline())}'
        for size in SIZES:
            for writers in (1, 4):
                for way in (insert_trajectories, insert_legacy):
                    rate = rate_of_writers(way, address, size, writers)
                    print(f'insert {size} {writers}\t{rate:.0f}\t{way.__name__}', flush=True)
            for in_flight, workers in ((100, 1), (512, 1), (1000, 4)):
                rate = rate_of_dataset(address, size, in_flight, workers)
                print(f'sample {size} 0\t{rate:.0f}\tdataset {in_flight}/{workers}', flush=True)
    finally:
        server.kill()
        server.wait()


if __name__ == '__main__':
    serve() if '--serve' in sys.argv else main()
