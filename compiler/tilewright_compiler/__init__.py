"""The build-time compiler: a kernel of the tile language becomes PTX and cubins; see `pipeline`."""
