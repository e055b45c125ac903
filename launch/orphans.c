/* Every node's process locks one byte of RUN_DIR/nodes, that of its number: the kernel drops the
 * lock with the process, whatever ended it, and tells who holds one. Nothing is ever written there.
 */
#include "orphans.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/printable.h"

static int open_nodes(const char *run_dir)
{
    char *path = xasprintf("%s/nodes", run_dir);
    int fd = own_file_open(path, O_RDWR | O_CREAT, 0666);
    free(path);
    return fd;
}

/* The process keeps the descriptor: a lock of this kind is lost with the first that is closed. */
void orphans_mark(const char *run_dir, uint32_t number)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    int fd = open_nodes(run_dir);
    if (fd < 0 || fcntl(fd, F_SETLK, &byte) != 0)
        trp_log(TRP_WARN, "a resume will not wait for this node path=%s/nodes reason=%s", run_dir,
                file_errno_words(errno));
}

/* False: no node runs. Else `held` is the byte of one and its process. */
static bool find_one(int fd, struct flock *held)
{
    *held = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, held) == 0 && held->l_type != F_UNLCK;
}

/* False: the process still runs at the deadline, or cannot be seen from here. */
static bool await_end(pid_t pid, struct deadline deadline)
{
    int fd = pidfd_open(pid, 0);
    if (fd < 0)
        return errno == ESRCH && !deadline_passed(deadline, &clock_monotonic);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    int count;
    do
        count = poll(&end, 1, (int)deadline_left_ms(deadline, &clock_monotonic));
    while (count < 0 && errno == EINTR);
    close(fd);
    return count > 0;
}

trp_status orphans_await(const char *run_dir, const trp_program *program, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    struct flock held;
    int fd = open_nodes(run_dir);
    trp_status status = fd >= 0 ? TRP_OK
                                : trp_fail(file_errno_status(errno, TRP_INTERNAL), "%s/nodes: %s",
                                           run_dir, file_errno_words(errno));
    while (fd >= 0 && status == TRP_OK && find_one(fd, &held)) {
        uint32_t index = 0;
        const struct node_group *group = program_node(program, (uint32_t)held.l_start, &index);
        const char *name = group ? group->name : "node";
        print_text(stderr, "%s: waits for %s/%u of the life before to end (process %d)\n",
                   program->name, name, index, (int)held.l_pid);
        if (!await_end(held.l_pid, deadline))
            status =
                trp_fail(TRP_FAILED_PRECONDITION,
                         "%s: %s/%u of the life before still runs after %g s (process %d): end "
                         "it, or wait longer with --grace=SECONDS",
                         run_dir, name, index, (double)timeout_ms / 1000, (int)held.l_pid);
    }
    if (fd >= 0)
        close(fd);
    return status;
}
