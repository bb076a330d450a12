-- answers of models that runs share; in the schema that no reader of published days is let into, as they repeat parts of questions

CREATE TABLE staging.llm_answers (
    key TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    reason TEXT,
    model TEXT NOT NULL,
    schema_name TEXT NOT NULL,
    step TEXT NOT NULL,
    tokens_in BIGINT NOT NULL,
    tokens_out BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    probability DOUBLE PRECISION,
    created_at TIMESTAMPTZ NOT NULL
);
