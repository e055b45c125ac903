"""Reverb's own server under the flags of `troupe replay serve`: what the tests expect of Troupe
is checked against it (tests/run_dm_reverb.sh --reference). It keeps nothing on disk."""

import argparse
import os
import re
import signal
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import portpicker
import reverb
from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.saved_model import nested_structure_coder

SELECTORS = {
    'fifo': reverb.selectors.Fifo,
    'lifo': reverb.selectors.Lifo,
    'uniform': reverb.selectors.Uniform,
    'max_heap': reverb.selectors.MaxHeap,
    'min_heap': reverb.selectors.MinHeap,
    'prioritized': reverb.selectors.Prioritized,
}

LIMITERS = {
    'min_size': lambda n: reverb.rate_limiters.MinSize(int(n)),
    'queue': lambda n: reverb.rate_limiters.Queue(int(n)),
    'stack': lambda n: reverb.rate_limiters.Stack(int(n)),
    'samples_per_insert': lambda spi, size, buffer: reverb.rate_limiters.SampleToInsertRatio(
        spi, int(size), buffer),
    'rate': lambda spi, size, low, high: reverb.rate_limiters.RateLimiter(
        spi, int(size), low, high),
}


def call(functions, text):
    name, numbers = re.fullmatch(r'(\w+)(?:\((.*)\))?', text).groups()
    return functions[name](*[float(number) for number in (numbers or '').split(',') if number])


def read_signature(path):
    if not path:
        return None
    with open(path, 'rb') as file:
        return nested_structure_coder.decode_proto(
            struct_pb2.StructuredValue.FromString(file.read()))


def make_table(line):
    words = dict(word.split('=', 1) for word in line.split())
    return reverb.Table(
        name=words['name'],
        sampler=call(SELECTORS, words.get('sampler', 'uniform')),
        remover=call(SELECTORS, words.get('remover', 'fifo')),
        max_size=int(words.get('max_size', 1_000_000)),
        max_times_sampled=int(words.get('max_times_sampled', 0)),
        rate_limiter=call(LIMITERS, words.get('limiter', 'min_size(1)')),
        signature=read_signature(words.get('signature')))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--listen', required=True)
    parser.add_argument('--dir')
    parser.add_argument('--table', action='append', required=True)
    args = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    port = int(args.listen.rsplit(':', 1)[1]) or portpicker.pick_unused_port()
    server = reverb.Server([make_table(line) for line in args.table], port)
    print(f'listening on 127.0.0.1:{port}', flush=True)
    signal.sigwait([signal.SIGTERM])
    server.stop()
    sys.stdout.flush()
    os._exit(0)


if __name__ == '__main__':
    main()
