-- what BI and the report read; dropped and made anew whenever this file changes, so a column may be added freely
-- portable SQL only: the same file runs on every warehouse

DROP VIEW IF EXISTS v_agent_trend;
DROP VIEW IF EXISTS v_agent_compare;
DROP VIEW IF EXISTS v_worst_queries;
DROP VIEW IF EXISTS v_finding_pareto;
DROP VIEW IF EXISTS v_agent_calendar;
DROP VIEW IF EXISTS v_agent_shares;
DROP VIEW IF EXISTS v_agent_cost;
DROP VIEW IF EXISTS v_gate_history;

-- windows are calendar days, not rows: a day without data shortens the week instead of reaching back past it
CREATE VIEW v_agent_trend AS
WITH daily AS (
    SELECT
        dt,
        agent_id,
        CAST(sum(rows) AS BIGINT) AS rows,
        CAST(sum(scored) AS BIGINT) AS scored,
        sum(mean_phi * scored) AS phi_sum,
        sum(mean_p_right * scored) / nullif(sum(scored) FILTER (WHERE mean_p_right IS NOT NULL), 0) AS mean_p_right
    FROM agent_daily
    WHERE app_id = '*'
    GROUP BY dt, agent_id
),
weekly AS (
    SELECT
        daily.*,
        CAST(sum(scored) OVER week AS BIGINT) AS scored_7d,
        sum(phi_sum) OVER week AS phi_sum_7d,
        CAST(coalesce(sum(scored) OVER week_before, 0) AS BIGINT) AS scored_7d_before,
        sum(phi_sum) OVER week_before AS phi_sum_7d_before
    FROM daily
    WINDOW
        week AS (
            PARTITION BY agent_id ORDER BY dt
            RANGE BETWEEN INTERVAL '6 days' PRECEDING AND CURRENT ROW
        ),
        week_before AS (
            PARTITION BY agent_id ORDER BY dt
            RANGE BETWEEN INTERVAL '13 days' PRECEDING AND INTERVAL '7 days' PRECEDING
        )
)
SELECT
    dt,
    agent_id,
    '*' AS app_id,
    rows,
    scored,
    CAST(scored AS DOUBLE PRECISION) / nullif(rows, 0) AS coverage,
    phi_sum / nullif(scored, 0) AS mean_phi,
    mean_p_right,
    scored_7d,
    phi_sum_7d / nullif(scored_7d, 0) AS mean_phi_7d,
    scored_7d_before,
    phi_sum_7d_before / nullif(scored_7d_before, 0) AS mean_phi_7d_before,
    phi_sum_7d / nullif(scored_7d, 0) - phi_sum_7d_before / nullif(scored_7d_before, 0) AS change_7d
FROM weekly;

CREATE VIEW v_agent_compare AS
WITH versions AS (
    SELECT
        agent_id,
        agent_version,
        count(*) AS rows,
        count(*) FILTER (WHERE status = 'scored') AS scored,
        avg(phi) FILTER (WHERE status = 'scored') AS mean_phi,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY phi) FILTER (WHERE status = 'scored') AS median_phi,
        percentile_cont(0.9) WITHIN GROUP (ORDER BY phi) FILTER (WHERE status = 'scored') AS p90_phi,
        avg(p_right) FILTER (WHERE status = 'scored') AS mean_p_right,
        min(dt) AS first_day,
        max(dt) AS last_day
    FROM query_scores
    GROUP BY agent_id, agent_version
)
SELECT
    agent_id,
    agent_version,
    rows,
    scored,
    CAST(scored AS DOUBLE PRECISION) / rows AS coverage,
    mean_phi,
    median_phi,
    p90_phi,
    mean_p_right,
    first_day,
    last_day,
    lag(agent_version) OVER by_age AS previous_version,
    mean_phi - lag(mean_phi) OVER by_age AS mean_phi_change,
    mean_p_right - lag(mean_p_right) OVER by_age AS mean_p_right_change
FROM versions
WINDOW by_age AS (PARTITION BY agent_id ORDER BY first_day, last_day, agent_version);

-- sorts carry keys alone, texts join last; the second window keeps PostgreSQL from putting that join first, which it takes for tiny
CREATE VIEW v_worst_queries AS
WITH ranked_of_all AS (
    SELECT
        dt,
        query_id,
        agent_id,
        row_number() OVER (ORDER BY phi, p_right NULLS LAST, dt DESC, query_id) AS worst_rank
    FROM query_scores
    WHERE status = 'scored'
),
-- findings of a query in a row: neither a join of all of them nor an aggregate of texts
in_a_row AS (
    SELECT
        dt,
        query_id,
        count(*) OVER (PARTITION BY dt, query_id) AS findings,
        row_number() OVER weightiest AS importance,
        code,
        lead(code) OVER weightiest AS code_2,
        lead(code, 2) OVER weightiest AS code_3,
        message,
        lead(message) OVER weightiest AS message_2,
        lead(message, 2) OVER weightiest AS message_3
    FROM query_findings
    WINDOW weightiest AS (
        PARTITION BY dt, query_id
        ORDER BY
            CASE severity WHEN 'critical' THEN 1 WHEN 'major' THEN 2 WHEN 'minor' THEN 3 ELSE 4 END,
            ordinal
    )
),
told AS (
    SELECT
        dt,
        query_id,
        findings,
        concat_ws(', ', code, code_2, code_3) AS finding_codes,
        nullif(concat_ws('; ', message, message_2, message_3), '') AS finding_messages
    FROM in_a_row
    WHERE importance = 1
),
ranked AS (
    SELECT
        r.dt,
        r.query_id,
        r.worst_rank,
        row_number() OVER (PARTITION BY r.agent_id ORDER BY r.worst_rank) AS worst_rank_of_agent,
        coalesce(told.findings, 0) AS findings,
        told.finding_codes,
        told.finding_messages
    FROM ranked_of_all AS r
    LEFT JOIN told ON told.dt = r.dt AND told.query_id = r.query_id
)
SELECT
    r.worst_rank,
    r.worst_rank_of_agent,
    s.dt,
    s.query_id,
    s.agent_id,
    s.agent_version,
    s.app_id,
    s.phi,
    s.band,
    s.p_right,
    s.user_question,
    s.enriched_question,
    s.generated_sql,
    s.sql_dialect,
    s.filter_status,
    s.enrichment_status,
    s.verdict,
    s.confidence,
    s.verdict_reasons,
    r.findings,
    r.finding_codes,
    r.finding_messages
FROM ranked AS r
JOIN query_scores AS s ON s.dt = r.dt AND s.query_id = r.query_id;

-- a query belongs to one agent, so what agents count adds up to all of them together
CREATE VIEW v_finding_pareto AS
WITH a_query AS (
    SELECT f.agent_id, f.dt, f.query_id, f.code, f.dimension, f.severity, f.stage, count(*) AS occurrences
    FROM query_findings AS f
    JOIN query_scores AS s ON s.dt = f.dt AND s.query_id = f.query_id AND s.status = 'scored'
    GROUP BY f.agent_id, f.dt, f.query_id, f.code, f.dimension, f.severity, f.stage
),
an_agent AS (
    SELECT
        agent_id,
        code,
        dimension,
        severity,
        stage,
        CAST(sum(occurrences) AS BIGINT) AS occurrences,
        count(*) AS queries
    FROM a_query
    GROUP BY agent_id, code, dimension, severity, stage
),
counted AS (
    SELECT agent_id, code, dimension, severity, stage, occurrences, queries FROM an_agent
    UNION ALL
    SELECT '*', code, dimension, severity, stage, CAST(sum(occurrences) AS BIGINT), CAST(sum(queries) AS BIGINT)
    FROM an_agent
    GROUP BY code, dimension, severity, stage
),
population AS (
    SELECT agent_id, count(*) AS scored FROM query_scores WHERE status = 'scored' GROUP BY agent_id
    UNION ALL
    SELECT '*', count(*) FROM query_scores WHERE status = 'scored'
)
SELECT
    c.agent_id,
    row_number() OVER falling AS pareto_rank,
    c.code,
    c.dimension,
    c.severity,
    c.stage,
    c.occurrences,
    c.queries,
    CAST(c.queries AS DOUBLE PRECISION) / p.scored AS share,
    CAST(sum(c.occurrences) OVER falling AS DOUBLE PRECISION)
        / CAST(sum(c.occurrences) OVER (PARTITION BY c.agent_id) AS DOUBLE PRECISION) AS cumulative_share
FROM counted AS c
JOIN population AS p ON p.agent_id = c.agent_id
WINDOW falling AS (
    PARTITION BY c.agent_id
    ORDER BY c.occurrences DESC, c.code, c.severity, c.stage, c.dimension
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
);

-- every day from the first to the last published one for every agent, so that a day without answers shows
CREATE VIEW v_agent_calendar AS
WITH bounds AS (
    SELECT min(dt) AS first_day, max(dt) AS last_day FROM agent_daily
),
days AS (
    SELECT b.first_day + CAST(spine.n AS INTEGER) AS dt
    FROM bounds AS b
    CROSS JOIN LATERAL generate_series(0, CAST(b.last_day - b.first_day AS INTEGER)) AS spine (n)
),
agents AS (
    SELECT DISTINCT agent_id FROM agent_daily
),
daily AS (
    SELECT
        dt,
        agent_id,
        CAST(sum(rows) AS BIGINT) AS rows,
        CAST(sum(scored) AS BIGINT) AS scored,
        sum(mean_phi * scored) AS phi_sum,
        sum(mean_p_right * scored) / nullif(sum(scored) FILTER (WHERE mean_p_right IS NOT NULL), 0) AS mean_p_right
    FROM agent_daily
    WHERE app_id = '*'
    GROUP BY dt, agent_id
),
published AS (
    SELECT DISTINCT dt FROM agent_daily
)
SELECT
    days.dt,
    agents.agent_id,
    coalesce(daily.rows, 0) AS rows,
    coalesce(daily.scored, 0) AS scored,
    CAST(daily.scored AS DOUBLE PRECISION) / nullif(daily.rows, 0) AS coverage,
    daily.phi_sum / nullif(daily.scored, 0) AS mean_phi,
    daily.mean_p_right,
    coalesce(daily.rows, 0) = 0 AS is_silent,
    published.dt IS NOT NULL AS is_published,
    max(CASE WHEN daily.rows > 0 THEN days.dt END) OVER (
        PARTITION BY agents.agent_id ORDER BY days.dt
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS last_heard
FROM days
CROSS JOIN agents
LEFT JOIN daily ON daily.dt = days.dt AND daily.agent_id = agents.agent_id
LEFT JOIN published ON published.dt = days.dt;

-- rows of a value instead of JSON: what a chart stacks
CREATE VIEW v_agent_shares AS
WITH counted AS (
    SELECT
        dt,
        agent_id,
        agent_version,
        status,
        band,
        verdict,
        filter_status,
        enrichment_status,
        reason,
        count(*) AS rows
    FROM query_scores
    GROUP BY dt, agent_id, agent_version, status, band, verdict, filter_status, enrichment_status, reason
),
valued AS (
    SELECT dt, agent_id, agent_version, 'band' AS kind, coalesce(band, 'none') AS value, rows
    FROM counted WHERE status = 'scored'
    UNION ALL
    SELECT dt, agent_id, agent_version, 'verdict', coalesce(verdict, 'none'), rows
    FROM counted WHERE status = 'scored'
    UNION ALL
    SELECT dt, agent_id, agent_version, 'filter_status', coalesce(filter_status, 'none'), rows
    FROM counted WHERE status = 'scored'
    UNION ALL
    SELECT dt, agent_id, agent_version, 'enrichment', coalesce(enrichment_status, 'none'), rows
    FROM counted WHERE status = 'scored'
    UNION ALL
    SELECT dt, agent_id, agent_version, 'reason', CASE status WHEN 'scored' THEN 'scored' ELSE coalesce(reason, 'unknown') END, rows
    FROM counted
),
summed AS (
    SELECT dt, agent_id, agent_version, kind, value, CAST(sum(rows) AS BIGINT) AS rows
    FROM valued
    GROUP BY dt, agent_id, agent_version, kind, value
)
SELECT
    dt,
    agent_id,
    agent_version,
    kind,
    value,
    rows,
    CAST(sum(rows) OVER whole AS BIGINT) AS of_rows,
    CAST(rows AS DOUBLE PRECISION) / CAST(sum(rows) OVER whole AS DOUBLE PRECISION) AS share
FROM summed
WINDOW whole AS (PARTITION BY dt, agent_id, agent_version, kind);

CREATE VIEW v_agent_cost AS
SELECT
    dt,
    agent_id,
    judge,
    model,
    count(*) AS rows,
    count(*) FILTER (WHERE status = 'scored') AS scored,
    count(cost) AS priced,
    CAST(coalesce(sum(llm_calls), 0) AS BIGINT) AS llm_calls,
    CAST(coalesce(sum(tokens_in), 0) AS BIGINT) AS tokens_in,
    CAST(coalesce(sum(tokens_out), 0) AS BIGINT) AS tokens_out,
    sum(cost) AS cost,
    sum(cost) / nullif(count(*) FILTER (WHERE status = 'scored' AND cost IS NOT NULL), 0) AS cost_per_scored
FROM query_scores
GROUP BY dt, agent_id, judge, model;

CREATE VIEW v_gate_history AS
WITH judged AS (
    SELECT run_id, dt, kind, started_at, outcome, CAST(gates AS JSON) AS gates
    FROM scoring_runs
    WHERE gates IS NOT NULL
),
each_gate AS (
    SELECT
        j.run_id,
        j.dt,
        j.kind,
        j.started_at,
        j.outcome,
        spine.n + 1 AS place,
        j.gates -> CAST(spine.n AS INTEGER) AS result
    FROM judged AS j
    CROSS JOIN LATERAL generate_series(0, CAST(json_array_length(j.gates) AS INTEGER) - 1) AS spine (n)
)
SELECT
    run_id,
    dt,
    kind,
    started_at,
    outcome,
    CAST(place AS BIGINT) AS place,
    result ->> 'gate' AS gate,
    CAST(result ->> 'passed' AS BOOLEAN) AS passed,
    CAST(result ->> 'expectations' AS BIGINT) AS expectations,
    CAST(json_array_length(result -> 'failures') AS BIGINT) AS failures,
    result -> 'failures' -> 0 ->> 'message' AS first_failure
FROM each_gate;
