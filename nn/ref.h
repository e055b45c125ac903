/* The reference's float loops that other backends use as they are. */
#ifndef TRP_NN_REF_H
#define TRP_NN_REF_H

#include "backend.h"

void dueling_plain(const struct dueling_job *job);
void embedding_forward_plain(const struct embedding_job *job);
void embedding_backward_plain(const struct embedding_job *job);

#endif
