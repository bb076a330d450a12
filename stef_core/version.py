"""Version of the meaning of a score: raised whenever reading, alignment, the symbolic judge or the composition changes."""

CORE_VERSION = "1"
