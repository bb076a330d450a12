#!/bin/sh
# Roles that log in: stef_worker writes, bi reads. Run once by the image of PostgreSQL, after postgres-roles.sql.
set -eu
psql -v ON_ERROR_STOP=1 -v worker="$WAREHOUSE_WORKER_PASSWORD" -v bi="$WAREHOUSE_BI_PASSWORD" \
    -U "$POSTGRES_USER" -d "$POSTGRES_DB" <<'SQL'
CREATE ROLE stef_worker LOGIN PASSWORD :'worker';
GRANT stef_writer TO stef_worker;
CREATE ROLE bi LOGIN PASSWORD :'bi';
GRANT stef_reader TO bi;
SQL
