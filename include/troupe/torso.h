/* What reads observations, the same choice for every agent. */
#ifndef TRP_TORSO_H
#define TRP_TORSO_H

#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* An image is uint8 [height][width], [height][width][channels], or frames of it in front, as
 * frame_stack makes them (of 3 axes the first one is frames where it is the shortest); networks
 * have the frames as channels, oldest first. What does not fit is refused by name, such as images
 * of less than 36 x 36 pixels for nature. */
typedef enum {
    TRP_TORSO_BY_SHAPE, /* nature for images, else mlp */
    TRP_TORSO_MLP,      /* linear layers, `hidden` and `activation` of the agent, as trp_mlp() has;
                           reads an image's bytes as a row */
    TRP_TORSO_NATURE,   /* as trp_nature_cnn() has */
    TRP_TORSO_IMPALA,   /* as trp_impala_resnet() has */
} trp_torso;

TRP_END_DECLS
#endif
