/* A board that trains for `potluck run ... --set fleet.boards.CLIENT=serial:/dev/ttyACM0@115200`.
   It needs nothing else: network, samples and tasks come over the line, weights and samples stay in its flash. */
#include <Potluck.h>

alignas(8) static uint8_t arena[64 * 1024]; /* `potluck firmware build` says how much a network takes */
static Potluck board(Serial, arena, sizeof arena);

void setup()
{
    Serial.begin(115200);
    board.begin();
}

void loop() { board.poll(); }
