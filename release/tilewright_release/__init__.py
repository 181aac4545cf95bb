"""The factory behind `tilewright dev ...`: it makes, checks and explains what a wheel carries.

It works on a checkout, never on an installed package: what it reads are `prebuilt/` and `wheels/`,
what it writes is under `build/` and in a cache outside the checkout.
"""
