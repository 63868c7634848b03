/* A stand-in for a Nano 33 BLE Sense that runs a sketch on this machine. Serial is standard input and output, the flash a
   file (argv[1]) with NOR's rules, and the sensor and the buttons are played from a descriptor (argv[2]): records of six
   floats and one byte, the pressed button's class or -1. Each record is 40 ms of the sketch's clock; loop() runs SPINS times
   in it. Then another descriptor (argv[3]) gets the state of the LED. Without a record, loop() serves the line. */
#include <Arduino.h>
#include <Arduino_LSM9DS1.h>
#include <FlashIAP.h>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PERIOD = 40, SPINS = 20, PINS = 32, FIRST_BUTTON = 2 };
static const uint32_t BASE = 0x20000000u, SIZE = 1u << 20; /* mbed's addresses have 32 bits */
static uint8_t *const flash = (uint8_t *)(uintptr_t)BASE;
struct Moment {
    float values[6];
    int8_t button;
} __attribute__((packed));
static Moment now_played = {{}, -1};
static unsigned long now;
static uint8_t pins[PINS];
HardwareSerial Serial;
LSM9DS1Class IMU;

static bool waiting(int fd)
{
    pollfd one = {fd, POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
}

void HardwareSerial::begin(unsigned long) {}
HardwareSerial::operator bool() { return true; }
int HardwareSerial::available() { return waiting(0); }
size_t HardwareSerial::write(uint8_t byte) { return ::write(1, &byte, 1) == 1; }
int HardwareSerial::read()
{
    uint8_t byte;
    if (!waiting(0)) return -1;
    if (::read(0, &byte, 1) != 1) exit(0);
    return byte;
}

int LSM9DS1Class::begin() { return 1; }
int LSM9DS1Class::readAcceleration(float &x, float &y, float &z)
{
    x = now_played.values[0], y = now_played.values[1], z = now_played.values[2];
    return 1;
}
int LSM9DS1Class::readGyroscope(float &x, float &y, float &z)
{
    x = now_played.values[3], y = now_played.values[4], z = now_played.values[5];
    return 1;
}

namespace mbed {
int FlashIAP::init() { return 0; }
uint32_t FlashIAP::get_flash_start() const { return BASE; }
uint32_t FlashIAP::get_flash_size() const { return SIZE; }
int FlashIAP::erase(uint32_t addr, uint32_t size)
{
    if (addr < BASE || addr + size > BASE + SIZE || addr % 4096 || size % 4096) return -1;
    for (uint32_t i = 0; i < size; i++) flash[addr - BASE + i] = 0xff;
    return 0;
}
int FlashIAP::program(const void *buffer, uint32_t addr, uint32_t size)
{
    if (addr < BASE || addr + size > BASE + SIZE || addr % 4 || size % 4) return -1;
    for (uint32_t i = 0; i < size; i++)
        if (flash[addr - BASE + i] != 0xff) return -1; /* programmed already */
    for (uint32_t i = 0; i < size; i++) flash[addr - BASE + i] = ((const uint8_t *)buffer)[i];
    return 0;
}
}

extern "C" {
unsigned long millis(void) { return now; }
unsigned long micros(void) { return now * 1000; }
void delay(unsigned long) {}
void yield(void) {}
void pinMode(int, int) {}
int digitalRead(int pin) { return pin == FIRST_BUTTON + now_played.button && now_played.button >= 0 ? LOW : HIGH; }
void digitalWrite(int pin, int value) { pins[pin % PINS] = (uint8_t)value; }
}

void setup();
void loop();

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    int sensor = atoi(argv[2]), lamp = atoi(argv[3]), file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, SIZE) != 0) return 2;
    if (mmap(flash, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) != flash) return 3;
    setup();
    for (;;) {
        pollfd both[2] = {{0, POLLIN, 0}, {sensor, POLLIN, 0}};
        ::poll(both, 2, -1);
        loop();
        if (!(both[1].revents & POLLIN)) {
            if ((both[1].revents & POLLHUP) && !(both[0].revents & POLLIN)) return 0;
            continue;
        }
        if (::read(sensor, &now_played, sizeof now_played) != sizeof now_played) return 0;
        now += PERIOD;
        for (int i = 0; i < SPINS; i++) loop();
        if (::write(lamp, &pins[LED_BUILTIN], 1) != 1) return 0;
    }
}
