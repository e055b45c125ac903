/* Doubly linked lists whose links lie in their elements. A zeroed list is empty; the owner of the
 * list owns the links. */
#ifndef TRP_CORE_LIST_H
#define TRP_CORE_LIST_H

#include <stddef.h>

struct list_link {
    struct list_link *next, *previous;
};

struct list {
    struct list_link *first, *last;
};

/* Appends an element that is in no list. */
static inline void list_push(struct list *list, struct list_link *link)
{
    *link = (struct list_link){.previous = list->last};
    if (list->last)
        list->last->next = link;
    else
        list->first = link;
    list->last = link;
}

/* Takes one of its elements out. */
static inline void list_remove(struct list *list, struct list_link *link)
{
    if (link->previous)
        link->previous->next = link->next;
    else
        list->first = link->next;
    if (link->next)
        link->next->previous = link->previous;
    else
        list->last = link->previous;
}

/* The element whose member at `offset` is the link. NULL is fine. */
static inline void *list_entry(const struct list_link *link, size_t offset)
{
    return link ? (char *)link - offset : NULL;
}

#define LIST_FIRST(list, type, member) ((type *)list_entry((list)->first, offsetof(type, member)))
#define LIST_NEXT(entry, type, member)                                                             \
    ((type *)list_entry((entry)->member.next, offsetof(type, member)))

/* A loop over all elements; the one that it is at may leave the list. */
#define LIST_EACH(type, each, list, member)                                                        \
    for (type *each = LIST_FIRST(list, type, member), *each##_next;                                \
         each && (each##_next = LIST_NEXT(each, type, member), 1); each = each##_next)

#endif
