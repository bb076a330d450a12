-- what a verdict rests on, and what tells a backfill whether a row must be scored anew
ALTER TABLE query_scores ADD COLUMN verdict_basis TEXT;
ALTER TABLE query_scores ADD COLUMN input_hash TEXT;
ALTER TABLE query_scores ADD COLUMN bearing TEXT;
ALTER TABLE staging.query_scores ADD COLUMN verdict_basis TEXT;
ALTER TABLE staging.query_scores ADD COLUMN input_hash TEXT;
ALTER TABLE staging.query_scores ADD COLUMN bearing TEXT;

-- grain: app_id, content_hash; rules as they were, so that a later change can be told entry by entry
CREATE TABLE rules_history (
    app_id TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    version TEXT,
    document TEXT NOT NULL,
    recorded_at TIMESTAMPTZ NOT NULL
);
