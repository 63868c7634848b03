/* What the library and its examples use of Arduino's core, declared as the core declares it. For compiling only. */
#ifndef ARDUINO_STUB_H
#define ARDUINO_STUB_H
#include <stddef.h>
#include <stdint.h>
class Print {
public:
    virtual size_t write(uint8_t) = 0;
    size_t print(const char *);
    size_t print(int);
    size_t println(const char *);
    size_t println(int);
};
class Stream : public Print {
public:
    virtual int available() = 0;
    virtual int read() = 0;
};
class HardwareSerial : public Stream {
public:
    void begin(unsigned long);
    size_t write(uint8_t) override;
    int available() override;
    int read() override;
    operator bool();
};
extern HardwareSerial Serial;
enum { LED_BUILTIN = 13, LOW = 0, HIGH = 1, INPUT = 0, OUTPUT = 1, INPUT_PULLUP = 2 };
extern "C" {
unsigned long millis(void);
unsigned long micros(void);
void delay(unsigned long);
void yield(void);
void pinMode(int, int);
int digitalRead(int);
void digitalWrite(int, int);
}
#endif
