/* The kernels of agents/ (kernels_agents.def). */
#ifndef TRP_AGENTS_BODIES_ALL_H
#define TRP_AGENTS_BODIES_ALL_H

#include "dqn.h"
#include "moves.h"
#include "mpo.h"
#include "offline.h"
#include "r2d2.h"
#include "unrolls.h"

#endif
