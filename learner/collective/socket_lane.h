/* Lanes over stream sockets: TCP and unix sockets. */
#ifndef TRP_LEARNER_SOCKET_LANE_H
#define TRP_LEARNER_SOCKET_LANE_H

#include "transport.h"

/* Takes a connected, non-blocking socket. */
struct peer_lane *socket_lane_create(int fd);

#endif
