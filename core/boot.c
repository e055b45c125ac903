#include "boot.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void boot_id_read(char id[BOOT_ID_BYTES])
{
    memset(id, 0, BOOT_ID_BYTES);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, id, BOOT_ID_BYTES - 1) < 0)
        id[0] = '\0';
    size_t length = strcspn(id, "\n");
    memset(id + length, 0, BOOT_ID_BYTES - length);
    close(fd);
}
