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
COMMENT ON TABLE staging.llm_answers IS 'Answers of models by what determines them, so that no run pays for what another has paid. Grain: key. Not for BI.';
COMMENT ON COLUMN staging.llm_answers.key IS 'SHA-256, in hex, over everything that determines the answer';
COMMENT ON COLUMN staging.llm_answers.text IS 'The answer, or the message of a settled failure';
COMMENT ON COLUMN staging.llm_answers.reason IS 'Of a settled failure; null for an answer';
