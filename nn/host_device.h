/* The devices whose memory is the host's. */
#ifndef TRP_NN_HOST_DEVICE_H
#define TRP_NN_HOST_DEVICE_H

#include "device.h"

extern const char host_device_names[]; /* for messages */

/* NULL: there is none of that name. */
trp_device *host_device_find(const char *name);

#endif
