/* Readings of a sensor, as they come: standardised, put into windows as the host cuts them, classified, and recorded with
   a label when somebody gives one. */
#ifndef PL_LIVE_H
#define PL_LIVE_H

#include "pl_client.h"

PL_BEGIN

enum { PL_NO_LABEL = -1 };

typedef struct pl_live {
    pl_client *client;
    pl_real *ring;            /* twice a window: each reading lies there twice, so that every window lies in one piece */
    uint32_t room;            /* numbers that it holds */
    uint16_t every;           /* readings from one window to the next */
    uint16_t at, wait;        /* where the next reading goes; readings until the next window */
    uint32_t setups;          /* how many there were when the readings were put in order: for that network */
    int32_t label;            /* of the last window */
} pl_live;

/* `ring` has room for 2 * steps * inputs numbers of the network; a window every `every` readings. */
void pl_live_init(pl_live *live, pl_client *client, pl_real *ring, uint32_t room, uint16_t every);
/* One reading of all channels, as the sensor gives it. The class of the window that it completes, else PL_NO_LABEL. */
int32_t pl_live_feed(pl_live *live, const pl_real *reading);
/* Records the last `steps` readings with this label. 0, or the trouble. */
int pl_live_record(pl_live *live, uint16_t label);

PL_END

#endif
