/* Notices as bytes. The kernel's buffer of a line holds hundreds of them, so a line into which one
 * does not go whole belongs to a rank that has read nothing for long. */
#include "notice.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/file.h"

void notice_send(struct notice_line *line, const struct notice *notice, const char *text)
{
    if (line->fd < 0 || line->closed || line->full)
        return;
    struct notice head = *notice;
    head.text_bytes = (uint32_t)strnlen(text, NOTICE_TEXT_BYTES_MAX);
    struct iovec parts[] = {{&head, sizeof head}, {(void *)(uintptr_t)text, head.text_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = sendmsg(line->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    line->full = sent != (ssize_t)(sizeof head + head.text_bytes);
}

static bool is_whole(const struct notice_line *line, struct notice *notice)
{
    if (line->have < sizeof *notice)
        return false;
    memcpy(notice, line->bytes, sizeof *notice);
    return line->have >= sizeof *notice + notice->text_bytes;
}

static void read_more(struct notice_line *line)
{
    ssize_t came = recv(line->fd, line->bytes + line->have, sizeof line->bytes - line->have,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
    if (came > 0)
        line->have += (size_t)came;
    else if (came == 0 || !errno_is_again(errno))
        line->closed = true;
    struct notice head;
    memcpy(&head, line->bytes, sizeof head);
    bool known =
        line->have < sizeof head || (head.kind >= NOTICE_WAITS && head.kind <= NOTICE_LEAVES &&
                                     head.text_bytes <= NOTICE_TEXT_BYTES_MAX);
    line->closed = line->closed || !known;
}

bool notice_receive(struct notice_line *line, struct notice *notice,
                    char text[NOTICE_TEXT_BYTES_MAX + 1])
{
    if (line->fd < 0 || line->closed)
        return false;
    if (!is_whole(line, notice))
        read_more(line);
    if (line->closed || !is_whole(line, notice))
        return false;
    size_t size = sizeof *notice + notice->text_bytes;
    memcpy(text, line->bytes + sizeof *notice, notice->text_bytes);
    text[notice->text_bytes] = '\0';
    line->have -= size;
    memmove(line->bytes, line->bytes + size, line->have);
    return true;
}

void notice_line_cleanup(struct notice_line *line)
{
    fd_close(line->fd);
    line->fd = -1;
}
