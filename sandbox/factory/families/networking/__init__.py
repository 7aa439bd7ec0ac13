"""Servers and clients on the loopback interface."""
