"""Superset in the compose file: its own state in a folder, the secret from the environment."""

import os

SECRET_KEY = os.environ["SUPERSET_SECRET_KEY"]
SQLALCHEMY_DATABASE_URI = "sqlite:////app/superset_home/superset.db"
TALISMAN_ENABLED = False  # bound to this machine; put a proxy with TLS in front before others reach it
