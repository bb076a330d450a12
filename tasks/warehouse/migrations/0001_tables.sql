-- tables of data-contract.md; uniqueness is the gate's job, because a primary key makes replacing a day slow
-- portable SQL only: the same file runs on every warehouse

CREATE TABLE query_scores (
    dt DATE NOT NULL,
    query_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    agent_version TEXT,
    app_id TEXT,
    asked_at TIMESTAMPTZ,
    user_question TEXT,
    enriched_question TEXT,
    generated_sql TEXT,
    dialect TEXT,
    user_feedback BOOLEAN,
    extra TEXT,
    status TEXT NOT NULL,
    reason TEXT,
    parse_status TEXT,
    sql_dialect TEXT,
    question_spec TEXT,
    enriched_spec TEXT,
    sql_spec TEXT,
    alignment TEXT,
    filter_status TEXT,
    enrichment_status TEXT,
    verdict TEXT,
    confidence DOUBLE PRECISION,
    verdict_reasons TEXT,
    sigma_filters BIGINT,
    sigma_verdict BIGINT,
    delta_lenient BIGINT,
    base BIGINT,
    gamma_factor DOUBLE PRECISION,
    phi DOUBLE PRECISION,
    band TEXT,
    p_right DOUBLE PRECISION,
    rules_app TEXT,
    rules_version TEXT,
    rules_hash TEXT,
    catalogue TEXT,
    judge TEXT,
    model TEXT,
    prompt_version TEXT,
    core_version TEXT,
    tokens_in BIGINT,
    tokens_out BIGINT,
    llm_calls BIGINT,
    cost DOUBLE PRECISION,
    run_id TEXT NOT NULL,
    scored_at TIMESTAMPTZ
);

CREATE TABLE query_findings (
    dt DATE NOT NULL,
    query_id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    agent_id TEXT NOT NULL,
    agent_version TEXT,
    app_id TEXT,
    code TEXT NOT NULL,
    dimension TEXT,
    severity TEXT,
    stage TEXT,
    question_part TEXT,
    sql_part TEXT,
    message TEXT,
    run_id TEXT
);

CREATE TABLE agent_daily (
    dt DATE NOT NULL,
    agent_id TEXT NOT NULL,
    agent_version TEXT,
    app_id TEXT NOT NULL,
    rows BIGINT NOT NULL,
    scored BIGINT NOT NULL,
    coverage DOUBLE PRECISION NOT NULL,
    mean_phi DOUBLE PRECISION,
    median_phi DOUBLE PRECISION,
    p90_phi DOUBLE PRECISION,
    mean_p_right DOUBLE PRECISION,
    shares TEXT,
    tokens_in BIGINT,
    tokens_out BIGINT,
    llm_calls BIGINT,
    cost DOUBLE PRECISION,
    run_id TEXT
);

CREATE TABLE agent_alerts (
    dt DATE NOT NULL,
    agent_id TEXT NOT NULL,
    app_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    agent_version TEXT,
    previous_version TEXT,
    observed DOUBLE PRECISION,
    expected DOUBLE PRECISION,
    change DOUBLE PRECISION,
    p_value DOUBLE PRECISION,
    rows BIGINT,
    baseline_rows BIGINT,
    message TEXT,
    detail TEXT,
    run_id TEXT
);

CREATE TABLE scoring_runs (
    run_id TEXT NOT NULL,
    kind TEXT,
    dt DATE,
    started_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ,
    outcome TEXT,
    message TEXT,
    logs TEXT,
    files TEXT,
    rules_version TEXT,
    judge TEXT,
    model TEXT,
    prompt_version TEXT,
    core_version TEXT,
    rows_in BIGINT,
    rows_scored BIGINT,
    rows_unscored BIGINT,
    duplicates BIGINT,
    out_of_day BIGINT,
    llm_calls BIGINT,
    cache_hits BIGINT,
    tokens_in BIGINT,
    tokens_out BIGINT,
    cost DOUBLE PRECISION,
    gates TEXT,
    notes TEXT
);

CREATE TABLE score_changes (
    run_id TEXT NOT NULL,
    dt DATE NOT NULL,
    query_id TEXT NOT NULL,
    agent_id TEXT,
    old_phi DOUBLE PRECISION,
    new_phi DOUBLE PRECISION,
    old_band TEXT,
    new_band TEXT,
    old_status TEXT,
    new_status TEXT,
    old_filter_status TEXT,
    new_filter_status TEXT,
    changed TEXT
);

CREATE TABLE log_catalogue (
    dt DATE NOT NULL,
    app_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    questions BIGINT,
    witnesses TEXT
);

-- rows wait here, as they would be published, until the gate lets them through
CREATE SCHEMA staging;
CREATE TABLE staging.query_scores AS SELECT * FROM query_scores WITH NO DATA;
CREATE TABLE staging.query_findings AS SELECT * FROM query_findings WITH NO DATA;
CREATE TABLE staging.agent_daily AS SELECT * FROM agent_daily WITH NO DATA;
CREATE TABLE staging.agent_alerts AS SELECT * FROM agent_alerts WITH NO DATA;
CREATE TABLE staging.score_changes AS SELECT * FROM score_changes WITH NO DATA;
CREATE TABLE staging.log_catalogue AS SELECT * FROM log_catalogue WITH NO DATA;

-- which run holds a day's place in staging, or published it last: one row a day and table
CREATE TABLE staging.manifest (
    dt DATE NOT NULL,
    table_name TEXT NOT NULL,
    run_id TEXT NOT NULL,
    row_count BIGINT NOT NULL,
    published BOOLEAN NOT NULL
);
