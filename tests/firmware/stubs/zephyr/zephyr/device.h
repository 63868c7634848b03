struct device { const char *name; };
extern const struct device stub_uart;
#define DT_CHOSEN(name) name
#define DEVICE_DT_GET(node) (&stub_uart)
