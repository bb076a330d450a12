"""Experiments: what can be told of SQL when gold SQL exists."""
