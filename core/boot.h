/* Which boot of which host this is: two processes that read the same id share memory and files. */
#ifndef TRP_CORE_BOOT_H
#define TRP_CORE_BOOT_H

enum { BOOT_ID_BYTES = 40 };

/* The kernel's random id of this boot as text, padded with zeros; only zeros where it cannot be
 * told. */
void boot_id_read(char id[BOOT_ID_BYTES]);

#endif
