/* All of the client. In a sketch, `Potluck board(Serial, arena, sizeof arena);` and `board.poll()` in loop() is enough. */
#ifndef POTLUCK_H
#define POTLUCK_H

#include "pl_live.h"

#if defined(ARDUINO) && defined(__cplusplus)
#include <Arduino.h>

/* One board: its line, its memory. There is one per sketch, because there is one flash. */
class Potluck {
public:
    Potluck(Stream &line, void *arena, uint32_t bytes) : line_(line), arena_(arena), bytes_(bytes) {}
    void begin();           /* after Serial.begin: finds what flash holds */
    void poll();            /* from loop(): answers what has come; trains when told to */
    bool ready() const;     /* set up, with weights */
    /* A sensor: memory for two windows, and readings from one window to the next. */
    void listen(pl_real *ring, uint32_t numbers, uint16_t every) { pl_live_init(&live_, &client_, ring, numbers, every); }
    int32_t feed(const pl_real *reading) { return pl_live_feed(&live_, reading); } /* a class, or PL_NO_LABEL */
    bool record(uint16_t label) { return pl_live_record(&live_, label) == 0; }     /* the last window was this */
    /* From all samples, without a host. Between two calls of learn_more the board does all else: a call takes one sample,
       and of a CFC one mini-batch. PL_LEARNING: call again; PL_LEARNT: stored; below 0: it ended without a trace. */
    bool learn(float lr, uint8_t epochs, uint64_t key);
    int learn_more() { return pl_alone_slice(&client_); }
    bool learning() const { return client_.course.alone != 0; }
    void stop_learning() { pl_alone_stop(&client_); }
    pl_client &client() { return client_; }
    Stream &line() { return line_; }

private:
    Stream &line_;
    void *arena_;
    uint32_t bytes_;
    pl_client client_;
    pl_live live_;
};
#endif

#endif
