-- Roles for a warehouse in PostgreSQL: stef_writer scores days, stef_reader reads what is published. Both are groups without a
-- login; grant them to the roles that log in. Run this in STEF's database as the role that owns, or shall own, its tables (the one
-- that runs `stef migrate`): before or after they are made, and again at any time. It needs CREATEROLE where the groups are absent.
--
--   psql --single-transaction -v ON_ERROR_STOP=1 -d stef -f deployments/postgres-roles.sql

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'stef_writer') THEN
        CREATE ROLE stef_writer NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'stef_reader') THEN
        CREATE ROLE stef_reader NOLOGIN;
    END IF;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO stef_writer, stef_reader', current_database());
    IF to_regnamespace('stef') IS NULL THEN
        CREATE SCHEMA stef;
    END IF;
    IF to_regnamespace('stef_staging') IS NULL THEN
        CREATE SCHEMA stef_staging;
    END IF;
END
$$;

-- readers: what is published, and nothing that waits in staging
GRANT USAGE ON SCHEMA stef TO stef_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA stef TO stef_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA stef GRANT SELECT ON TABLES TO stef_reader;

-- writers: rows, and no table, view or schema
GRANT USAGE ON SCHEMA stef, stef_staging TO stef_writer;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA stef, stef_staging TO stef_writer;
ALTER DEFAULT PRIVILEGES IN SCHEMA stef, stef_staging GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO stef_writer;
