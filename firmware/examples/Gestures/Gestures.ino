/* A Nano 33 BLE Sense that tells gestures apart and learns from corrections, with or without a host.

   `potluck run` gives it a network, samples and the scale of its readings over Serial, and trains on it. From then on it
   classifies what its sensor reads and lights the LED for class 1. Hold the button of a class when the answer was wrong:
   the last window is recorded with that class, and after ten corrections the board trains by itself, between its
   readings. Network, scale, recordings and weights are in flash: it works offline, and federates when a host is connected. */
#include <Arduino_LSM9DS1.h>
#include <Potluck.h>

enum { CHANNELS = 6, STEPS = 50, EVERY = 25, CLASSES = 3 }; /* as in the experiment file; 25 readings per second */
static const int buttons[CLASSES] = {2, 3, 4};

alignas(8) static uint8_t arena[64 * 1024];
static pl_real ring[2 * STEPS * CHANNELS];
static Potluck board(Serial, arena, sizeof arena);
static unsigned long next_reading;
static unsigned corrections;
static bool held;

void setup()
{
    Serial.begin(115200);
    for (int pin : buttons) pinMode(pin, INPUT_PULLUP);
    pinMode(LED_BUILTIN, OUTPUT);
    IMU.begin();
    board.begin();
    board.listen(ring, 2 * STEPS * CHANNELS, EVERY);
}

static void read_sensor()
{
    pl_real reading[CHANNELS];
    IMU.readAcceleration(reading[0], reading[1], reading[2]);
    IMU.readGyroscope(reading[3], reading[4], reading[5]);
    int32_t label = board.feed(reading);
    if (label != PL_NO_LABEL) digitalWrite(LED_BUILTIN, label == 1 ? HIGH : LOW);
}

static void hear_corrections()
{
    int pressed = -1;
    for (int i = 0; i < CLASSES; i++)
        if (digitalRead(buttons[i]) == LOW) pressed = i;
    if (pressed >= 0 && !held && board.record((uint16_t)pressed)) corrections++;
    held = pressed >= 0;
    if (corrections < 10 || board.learning()) return;
    if (board.learn(0.05f, 10, millis())) corrections = 0; /* not while a host is at work: then later */
}

void loop()
{
    board.poll();
    if (!board.ready()) return;
    if (millis() < next_reading) {
        if (board.learning()) board.learn_more();
        return;
    }
    next_reading = millis() + 40;
    read_sensor();
    hear_corrections();
}
