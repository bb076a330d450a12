#!/bin/sh
# Bring Superset's own tables up to date, import the dashboard, and serve. The first admin is made by hand:
#   docker compose exec superset superset fab create-admin
set -eu
[ -n "${SUPERSET_SECRET_KEY:-}" ] || { echo "SUPERSET_SECRET_KEY is not set; see .env.example" >&2; exit 1; }
superset db upgrade
superset init
SUPERSET_STEF_URI="$STEF_WAREHOUSE" python /app/stef/load.py
exec gunicorn --bind 0.0.0.0:8088 --workers 2 --worker-class gevent --timeout 120 "superset.app:create_app()"
