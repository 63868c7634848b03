"""Microcontrollers as clients: a byte protocol over serial lines and sockets, and the boards that speak it."""
