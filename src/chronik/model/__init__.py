"""The words every room shares: ids, error codes, limits, settings, configuration keys.

Touches: nothing. May import: the standard library's types only. Start reading at `limits.py`.
"""
