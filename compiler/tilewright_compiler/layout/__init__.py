"""Layouts: GF(2) linear maps from hardware indices to tile elements. Pure algebra, no IR."""
