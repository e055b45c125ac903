/* Who listens on a TCP port: the kernel's socket tables give the inode, the descriptors under /proc
 * say whose it is. Best effort: other users' processes stay hidden. */
#include "core/address.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TCP_LISTENING = 0x0a };

static unsigned long inode_in(const char *table, uint16_t port)
{
    FILE *file = fopen(table, "re");
    if (!file)
        return 0;
    char line[512];
    unsigned long inode = 0;
    while (inode == 0 && fgets(line, sizeof line, file)) {
        unsigned local, state;
        unsigned long found;
        int fields = sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*u %*d %lu",
                            &local, &state, &found);
        if (fields == 3 && local == port && state == TCP_LISTENING)
            inode = found;
    }
    fclose(file);
    return inode;
}

static bool process_has(const char *process, const char *link)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR *descriptors = opendir(path);
    if (!descriptors)
        return false;
    bool has = false;
    for (struct dirent *entry; !has && (entry = readdir(descriptors));) {
        char target[64];
        ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, target, sizeof target - 1);
        has = length > 0 && strncmp(target, link, (size_t)length) == 0 &&
              strlen(link) == (size_t)length;
    }
    closedir(descriptors);
    return has;
}

long address_owner_of_port(uint16_t port)
{
    unsigned long inode = inode_in("/proc/net/tcp", port);
    if (inode == 0)
        inode = inode_in("/proc/net/tcp6", port);
    DIR *processes = inode ? opendir("/proc") : NULL;
    if (!processes)
        return 0;
    char link[64];
    snprintf(link, sizeof link, "socket:[%lu]", inode);
    long owner = 0;
    for (struct dirent *entry; owner == 0 && (entry = readdir(processes));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && process_has(entry->d_name, link))
            owner = strtol(entry->d_name, NULL, 10);
    closedir(processes);
    return owner;
}
