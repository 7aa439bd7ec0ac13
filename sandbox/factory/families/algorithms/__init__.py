"""Algorithms, simulation and numbers."""
