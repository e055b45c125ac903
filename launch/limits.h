/* Bounds of launch/ that are no option, with their arithmetic. */
#ifndef TRP_LAUNCH_LIMITS_H
#define TRP_LAUNCH_LIMITS_H

#include <stdint.h>

enum {
    /* launch/: "name/4095" fits a log prefix and, with ".sock", a socket path beside a directory.
     */
    GROUP_NAME_BYTES_MAX = 40,
    PROGRAM_NODES_MAX = 4096,
    NODE_GPUS_MAX = 64, /* devices.c: GPUs of a host */
    /* gangs.c: each connects to several others, and the launcher tells each of all of them. */
    LEARNERS_MAX = 256,
    /* gangs.c: a member of a broken generation sees that within what it waits for the others, asks
     * for a second who it is, and has as long to say so. */
    GANG_WORD_MS = 2000,
    /* restart.c: of a node that failed again before it ran so long; doubled each time, up to the
     * last one. */
    RESTART_LASTED_MS = 10000,
    RESTART_PAUSE_MS = 100,
    RESTART_PAUSE_MAX_MS = 5000,
    /* cache.c: a learner answers within a step, one that moves within a few; as many clients that
     * are new at once are answered side by side. */
    CACHE_RECALL_MS = 2000,
    CACHE_THREADS = 16,
    /* control.c: one packet between launcher and node; an error message is at most 1023 bytes. */
    CONTROL_MESSAGE_BYTES_MAX = 2048,
    /* host.c: how long a child waits to tell the launcher; the launcher reads all the time. */
    CONTROL_SEND_MS = 5000,
    HOST_REPORT_MS = 200, /* between two reports of a node's metrics */
    /* stop.c: timeout, and others that pass signals on, send one twice within a moment; a hand on
     * Ctrl-C is slower, or presses once more. */
    SIGNAL_ECHO_MS = 250,
    /* context.c: a peer that is waited for. */
    DIAL_TIMEOUT_MS = 60000,
    /* gangs.c: a server that is younger may only be slow to answer for the first time. */
    SERVER_SERVED_MS = 1000,
    /* context.c: learners try again themselves, and look whether a server will ever be back. */
    SERVER_CONNECT_MS = 1000,
    /* follow.c: a group of learners waits a minute itself for one that does not come. */
    PUBLISHER_TIMEOUT_MS = 2 * DIAL_TIMEOUT_MS,
    /* host.c: a child outlives its launcher by less than the 2 s that are promised. */
    HOST_ORPHAN_MS = 1500,
    /* metrics.c: 32 x 80 bytes a node; looked up by comparing words. */
    METRICS_MAX = 32,
    METRIC_NAME_BYTES_MAX = 32,
    /* progress.c: metrics of the program's own nodes are shown as long as there is room. */
    PROGRESS_LINE_MAX = 160,
    /* lines.c: an unfinished line of a node is passed on when it has so many bytes. */
    NODE_LINE_BYTES_MAX = 64 * 1024,
    /* output.c: what a slow terminal may owe: 4 MiB, then lines are dropped and counted. */
    OUTPUT_LINES_MAX = 16384,
    OUTPUT_BYTES_MAX = 4 << 20,
    /* config.c: config.json; a command line (2 MiB) and 4096 groups with agents of their own, 2 KiB
     * each. */
    RUN_CONFIG_BYTES_MAX = 16 << 20,
    /* run_dir.c: a node's log, and the one before it: 2 x 16 MiB a node, some 200 000 lines. */
    LOG_FILE_BYTES_MAX = 16 << 20,
    /* progress.c: metrics.csv, and the one before it: 2 x 256 MiB, some 60 hours of 100 metrics. */
    METRICS_FILE_BYTES_MAX = 256 << 20,
    /* progress.c: its end, from which a resumed run has the steps of earlier lives: a minute of 200
     * nodes with 10 metrics each, read in 20 ms. */
    METRICS_RECALLED_BYTES = 8 << 20,
    /* run.c: lines of a failed node's log that are shown again at the end. */
    LAST_LINES_MAX = 8,
    LAST_LINE_BYTES_MAX = 240,
};

#endif
