"""The real dm-reverb 0.14 client against `troupe replay serve`.

BUILD_DIR names the build; unittest's flags are taken (-k PATTERN, -v). With --reference the same
tests run against Reverb's own server, which shows that they expect what Reverb does; the ones
marked beyond_reverb expect more and are left out.
"""

import os
import sys
import unittest

sys.dont_write_bytecode = True
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
# The client's gRPC may notice a finished connect only when this timer fires: 5 s by default.
os.environ.setdefault('GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS', '100')


def main():
    arguments = sys.argv[1:]
    if '--reference' in arguments:
        arguments.remove('--reference')
        os.environ['TROUPE_REVERB_REFERENCE'] = '1'
    here = os.path.dirname(os.path.abspath(__file__))
    unittest.main(module=None, argv=[
        sys.argv[0], 'discover', '-s', here, '-p', 'dm_reverb_*.py', *arguments])


if __name__ == '__main__':
    main()
