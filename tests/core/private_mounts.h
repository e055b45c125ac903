/* Mounts that are this process's and its children's alone, so that nothing stays behind whatever
 * happens to it. */
#ifndef TRP_TESTS_PRIVATE_MOUNTS_H
#define TRP_TESTS_PRIVATE_MOUNTS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/alloc.h"

static inline void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    close(fd);
}

/* From here on; of a group of tests. */
static inline int private_mounts(void **state)
{
    (void)state;
    uid_t user = geteuid();
    gid_t group = getegid();
    if (unshare(CLONE_NEWNS | (user ? CLONE_NEWUSER : 0)) != 0)
        fail_msg("no mount namespace: %s", strerror(errno));
    if (user) {
        char *map = xasprintf("0 %u 1", user);
        write_text("/proc/self/uid_map", map);
        free(map);
        write_text("/proc/self/setgroups", "deny");
        map = xasprintf("0 %u 1", group);
        write_text("/proc/self/gid_map", map);
        free(map);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        fail_msg("private mounts: %s", strerror(errno));
    return 0;
}

/* `options`: "size=160k". */
static inline void mount_memory(const char *path, unsigned long flags, const char *options)
{
    if (mount("tmpfs", path, "tmpfs", flags, options) != 0)
        fail_msg("mount a tmpfs at %s: %s", path, strerror(errno));
}

#endif
