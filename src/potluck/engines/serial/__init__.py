"""Microcontrollers as clients: a byte protocol over serial ports and sockets, and the boards that speak it."""
