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
COMMENT ON TABLE query_scores IS 'One row a query of the log and UTC day: inputs, both specifications, alignment, verdict and score. Grain: dt, query_id.';
COMMENT ON COLUMN query_scores.dt IS 'Partition of the log, a UTC day';
COMMENT ON COLUMN query_scores.app_id IS 'Application of the log row';
COMMENT ON COLUMN query_scores.extra IS 'JSON object of further columns of the log';
COMMENT ON COLUMN query_scores.status IS 'scored or unscored; an unscored row lowers coverage, not the score';
COMMENT ON COLUMN query_scores.reason IS 'Why the row is unscored';
COMMENT ON COLUMN query_scores.sql_dialect IS 'Dialect the SQL was read in';
COMMENT ON COLUMN query_scores.question_spec IS 'JSON, canonical form: what the question asks for';
COMMENT ON COLUMN query_scores.enriched_spec IS 'JSON, canonical form: what the reformulation asks for';
COMMENT ON COLUMN query_scores.sql_spec IS 'JSON, canonical form: what the SQL does';
COMMENT ON COLUMN query_scores.alignment IS 'JSON: required, matched, missing, extra and benign conditions';
COMMENT ON COLUMN query_scores.filter_status IS 'fully_applied, fully_applied_with_extras, partially_applied or not_applied';
COMMENT ON COLUMN query_scores.enrichment_status IS 'absent, faithful, adds, drops or contradicts';
COMMENT ON COLUMN query_scores.verdict IS 'correct, likely_correct, potentially_incorrect or incorrect';
COMMENT ON COLUMN query_scores.confidence IS 'Confidence of the judge, 0-1';
COMMENT ON COLUMN query_scores.verdict_reasons IS 'JSON list of sentences';
COMMENT ON COLUMN query_scores.sigma_filters IS 'Points for filters: 0, 3, 4 or 5';
COMMENT ON COLUMN query_scores.sigma_verdict IS 'Points for the verdict: 0, 2, 3 or 5';
COMMENT ON COLUMN query_scores.delta_lenient IS '1 when every extra condition is benign by the rules, else 0';
COMMENT ON COLUMN query_scores.base IS 'least(10, sigma_filters + sigma_verdict + delta_lenient)';
COMMENT ON COLUMN query_scores.gamma_factor IS '1.0, 0.8 or 0.5 by the confidence';
COMMENT ON COLUMN query_scores.phi IS 'Accuracy score, 0-100: 10 * base * gamma_factor';
COMMENT ON COLUMN query_scores.band IS 'excellent from 90, good from 75, marginal from 50, else poor';
COMMENT ON COLUMN query_scores.p_right IS 'Calibrated probability that the SQL answers the question, 0-1';
COMMENT ON COLUMN query_scores.rules_app IS 'Application whose rules were used';
COMMENT ON COLUMN query_scores.rules_version IS 'Content hash of those rules';
COMMENT ON COLUMN query_scores.rules_hash IS 'Content hash of the part of the rules that bears on this row';
COMMENT ON COLUMN query_scores.catalogue IS 'Fingerprint of what the log had shown of the application; null: not used';
COMMENT ON COLUMN query_scores.cost IS 'In the currency of the price table';
COMMENT ON COLUMN query_scores.run_id IS 'Run that wrote the row';
COMMENT ON COLUMN query_scores.scored_at IS 'UTC';

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
COMMENT ON TABLE query_findings IS 'Departures of a query from its question, in order. Grain: dt, query_id, ordinal.';
COMMENT ON COLUMN query_findings.code IS 'Finding code, method section 8';
COMMENT ON COLUMN query_findings.severity IS 'critical, major, minor or info';
COMMENT ON COLUMN query_findings.stage IS 'Stage at fault: enrichment, generation or evaluation';

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
COMMENT ON TABLE agent_daily IS 'Figures of one agent version on one UTC day. Grain: dt, agent_id, agent_version, app_id; app_id * is all applications together.';
COMMENT ON COLUMN agent_daily.app_id IS 'Application, or * for all of them together';
COMMENT ON COLUMN agent_daily.rows IS 'Rows of the day';
COMMENT ON COLUMN agent_daily.scored IS 'Rows that were scored';
COMMENT ON COLUMN agent_daily.coverage IS 'scored / rows, 0-1';
COMMENT ON COLUMN agent_daily.mean_phi IS 'Mean score of the scored rows, 0-100; null when none was scored';
COMMENT ON COLUMN agent_daily.median_phi IS 'Median score of the scored rows, 0-100';
COMMENT ON COLUMN agent_daily.p90_phi IS '90th percentile of the score, linear interpolation, 0-100';
COMMENT ON COLUMN agent_daily.mean_p_right IS 'Mean calibrated probability of the scored rows, 0-1';
COMMENT ON COLUMN agent_daily.shares IS 'JSON object of fractions 0-1: band, filter_status, verdict, enrichment and finding over scored rows, reason over all rows';

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
COMMENT ON TABLE agent_alerts IS 'Falls that the noise of the day does not explain. Grain: dt, agent_id, app_id, kind; app_id * is the agent as a whole.';
COMMENT ON COLUMN agent_alerts.kind IS 'phi_fall or coverage_fall';
COMMENT ON COLUMN agent_alerts.detail IS 'JSON: findings and examples that drive the fall';
COMMENT ON COLUMN agent_alerts.p_value IS 'Chance of such a fall by noise alone, 0-1';

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
COMMENT ON TABLE scoring_runs IS 'What ran, over what, with which rules, judge and code, and how it ended. Grain: run_id.';
COMMENT ON COLUMN scoring_runs.dt IS 'UTC day that was scored';
COMMENT ON COLUMN scoring_runs.outcome IS 'published, gate_failed or failed';
COMMENT ON COLUMN scoring_runs.files IS 'JSON list of path, size and sha256 of the input';
COMMENT ON COLUMN scoring_runs.gates IS 'JSON list of gate results';
COMMENT ON COLUMN scoring_runs.notes IS 'JSON list of sentences';
COMMENT ON COLUMN scoring_runs.duplicates IS 'Rows whose query_id had been seen; the first was kept';
COMMENT ON COLUMN scoring_runs.out_of_day IS 'Rows whose asked_at lies outside dt';

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
COMMENT ON TABLE score_changes IS 'What a backfill moved: old and new score of each row it changed. Grain: run_id, dt, query_id.';
COMMENT ON COLUMN score_changes.changed IS 'JSON list: rules, judge, model, prompt or core';

CREATE TABLE log_catalogue (
    dt DATE NOT NULL,
    app_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    questions BIGINT,
    witnesses TEXT
);
COMMENT ON TABLE log_catalogue IS 'What the SQL of a day shows of the tables, columns and joins of an application. Grain: dt, app_id, kind, key.';
COMMENT ON COLUMN log_catalogue.kind IS 'table, column, name, edge or pair';
COMMENT ON COLUMN log_catalogue.questions IS 'Different questions of the day whose SQL shows it';
COMMENT ON COLUMN log_catalogue.witnesses IS 'JSON list of the hashes of some of them';

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
