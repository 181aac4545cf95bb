"""What build time and run time agree on: types, signatures, keys, manifest, packs."""
