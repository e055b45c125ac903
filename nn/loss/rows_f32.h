/* The bodies in float: what the public functions loop over. */
#ifndef TRP_NN_LOSS_ROWS_F32_H
#define TRP_NN_LOSS_ROWS_F32_H

#include "rows.h"

#define REAL       float
#define NAME(name) name##_f32
#define MATH(name) name##f
#include "rows_q.h"
#include "rows_atoms.h"
#include "rows_value.h"
#include "rows_categorical.h"
#include "rows_gaussian.h"
#include "rows_policy.h"
#include "rows_actor_critic.h"
#include "rows_mpo.h"
#include "columns.h"
#undef REAL
#undef NAME
#undef MATH

#endif
