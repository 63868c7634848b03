/* All of the client. In a sketch, `Potluck board(Serial, arena, sizeof arena);` and `board.poll()` in loop() is enough. */
#ifndef POTLUCK_H
#define POTLUCK_H

#include "pl_client.h"

#if defined(ARDUINO) && defined(__cplusplus)
#include <Arduino.h>

/* One board: its line, its memory. There is one per sketch, because there is one flash. */
class Potluck {
public:
    Potluck(Stream &line, void *arena, uint32_t bytes) : line_(line), arena_(arena), bytes_(bytes) {}
    void begin();           /* after Serial.begin: finds what flash holds */
    void poll();            /* from loop(): answers what has come; trains when told to */
    bool ready() const;     /* set up, with weights */
    pl_client &client() { return client_; }
    Stream &line() { return line_; }

private:
    Stream &line_;
    void *arena_;
    uint32_t bytes_;
    pl_client client_;
};
#endif

#endif
