/* Bounds of replay/model/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_MODEL_LIMITS_H
#define TRP_REPLAY_MODEL_LIMITS_H

enum {
    /* replay/: a table's name travels in every request for it. */
    TABLE_NAME_BYTES_MAX = 255,
    /* replay/: a signature travels in every ServerInfo: 1000 columns of 1 KB. */
    TABLE_SIGNATURE_BYTES_MAX = 1 << 20,
    /* signature.c: a table of 4096 columns is beyond anyone's; names in paths are cut. */
    SIGNATURE_LEAVES_MAX = 4096,
    /* Clients' protobuf reads 100 messages deep; a level of a dict is 3 of them. */
    SIGNATURE_DEPTH_MAX = 30,
    SIGNATURE_NAME_BYTES_MAX = 256,
};

#endif
