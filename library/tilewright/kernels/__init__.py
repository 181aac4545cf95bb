"""The kernel library, in pure DSL: each file is one family and imports nothing but the language."""
