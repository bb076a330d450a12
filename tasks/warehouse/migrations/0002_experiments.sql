-- experiments: execution accuracy on gold SQL, a run in the place of the earlier one of its name

CREATE TABLE experiment_runs (
    name TEXT NOT NULL,
    dataset TEXT,
    database TEXT,
    dialect TEXT,
    agent TEXT,
    model TEXT,
    prompt TEXT,
    prompt_version TEXT,
    judge TEXT,
    core_version TEXT,
    options TEXT,
    started_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ,
    rows BIGINT,
    correct BIGINT,
    incorrect BIGINT,
    not_run BIGINT,
    gold_failed BIGINT,
    accuracy DOUBLE PRECISION,
    accuracy_low DOUBLE PRECISION,
    accuracy_high DOUBLE PRECISION,
    coverage DOUBLE PRECISION,
    mean_phi DOUBLE PRECISION,
    tokens BIGINT
);
COMMENT ON TABLE experiment_runs IS 'One named run of an experiment: data set, agent, model, prompt, and how many answers were right. Grain: name.';
COMMENT ON COLUMN experiment_runs.database IS 'URL without password';
COMMENT ON COLUMN experiment_runs.agent IS 'baseline, module:function, or the file of predictions';
COMMENT ON COLUMN experiment_runs.options IS 'JSON object: how results were compared';
COMMENT ON COLUMN experiment_runs.accuracy IS 'correct / (correct + incorrect), 0-1';
COMMENT ON COLUMN experiment_runs.accuracy_low IS 'lower end of the 95 % Wilson interval';
COMMENT ON COLUMN experiment_runs.accuracy_high IS 'upper end of the 95 % Wilson interval';
COMMENT ON COLUMN experiment_runs.coverage IS '(correct + incorrect) / rows, 0-1';
COMMENT ON COLUMN experiment_runs.not_run IS 'answers that failed for a reason that is no answer';
COMMENT ON COLUMN experiment_runs.gold_failed IS 'questions whose gold SQL fails: faults of the data set';

CREATE TABLE experiment_results (
    name TEXT NOT NULL,
    ordinal BIGINT,
    query_id TEXT NOT NULL,
    query TEXT,
    enriched_question TEXT,
    expected_sql TEXT,
    predicted_sql TEXT,
    level TEXT,
    split TEXT,
    execution_accuracy TEXT,
    accuracy_reason TEXT,
    flags TEXT,
    latency DOUBLE PRECISION,
    tokens BIGINT,
    phi DOUBLE PRECISION,
    p_right DOUBLE PRECISION,
    verdict TEXT,
    gamma DOUBLE PRECISION,
    findings TEXT,
    status TEXT,
    reason TEXT,
    error_codes TEXT,
    error_analysis TEXT
);
COMMENT ON TABLE experiment_results IS 'Each question of a run: gold and predicted SQL, whether their results agree, and what STEF says. Grain: name, query_id.';
COMMENT ON COLUMN experiment_results.ordinal IS 'Of the row in its data set, from 1';
COMMENT ON COLUMN experiment_results.expected_sql IS 'Accepted queries, a semicolon between them';
COMMENT ON COLUMN experiment_results.execution_accuracy IS 'correct, incorrect, not_run or gold_failed';
COMMENT ON COLUMN experiment_results.flags IS 'JSON list, e.g. both_empty, tie';
COMMENT ON COLUMN experiment_results.latency IS 'Seconds the agent took; null when the answer came from the cache';
COMMENT ON COLUMN experiment_results.phi IS 'Φ, 0-100';
COMMENT ON COLUMN experiment_results.p_right IS 'Probability that the answer is right, 0-1';
COMMENT ON COLUMN experiment_results.gamma IS 'Confidence of the verdict, 0-1';
COMMENT ON COLUMN experiment_results.findings IS 'JSON list of finding codes';
COMMENT ON COLUMN experiment_results.reason IS 'Why unscored';
COMMENT ON COLUMN experiment_results.error_codes IS 'JSON list; null until analysed';
