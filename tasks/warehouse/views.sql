-- what BI and the report read; dropped and made anew whenever this file changes, so a column may be added freely
-- portable SQL only: the same file runs on every warehouse

DROP VIEW IF EXISTS v_agent_trend;
DROP VIEW IF EXISTS v_agent_compare;
DROP VIEW IF EXISTS v_worst_queries;
DROP VIEW IF EXISTS v_finding_pareto;

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

CREATE VIEW v_worst_queries AS
WITH ordered AS (
    SELECT
        dt,
        query_id,
        ordinal,
        code,
        message,
        row_number() OVER (
            PARTITION BY dt, query_id
            ORDER BY
                CASE severity WHEN 'critical' THEN 1 WHEN 'major' THEN 2 WHEN 'minor' THEN 3 ELSE 4 END,
                ordinal
        ) AS importance
    FROM query_findings
),
told AS (
    SELECT
        dt,
        query_id,
        count(*) AS findings,
        string_agg(code, ', ' ORDER BY importance) FILTER (WHERE importance <= 3) AS finding_codes,
        string_agg(message, '; ' ORDER BY importance) FILTER (WHERE importance <= 3) AS finding_messages
    FROM ordered
    GROUP BY dt, query_id
)
SELECT
    row_number() OVER (ORDER BY s.phi, s.p_right NULLS LAST, s.dt DESC, s.query_id) AS worst_rank,
    row_number() OVER (
        PARTITION BY s.agent_id
        ORDER BY s.phi, s.p_right NULLS LAST, s.dt DESC, s.query_id
    ) AS worst_rank_of_agent,
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
    coalesce(told.findings, 0) AS findings,
    told.finding_codes,
    told.finding_messages
FROM query_scores AS s
LEFT JOIN told ON told.dt = s.dt AND told.query_id = s.query_id
WHERE s.status = 'scored';

CREATE VIEW v_finding_pareto AS
WITH marked AS (
    SELECT f.dt, f.query_id, f.agent_id, f.code, f.dimension, f.severity, f.stage
    FROM query_findings AS f
    JOIN query_scores AS s ON s.dt = f.dt AND s.query_id = f.query_id AND s.status = 'scored'
),
both_ways AS (
    SELECT * FROM marked
    UNION ALL
    SELECT dt, query_id, '*', code, dimension, severity, stage FROM marked
),
population AS (
    SELECT agent_id, count(*) AS scored FROM query_scores WHERE status = 'scored' GROUP BY agent_id
    UNION ALL
    SELECT '*', count(*) FROM query_scores WHERE status = 'scored'
),
a_query AS (
    SELECT agent_id, dt, query_id, code, dimension, severity, stage, count(*) AS occurrences
    FROM both_ways
    GROUP BY agent_id, dt, query_id, code, dimension, severity, stage
),
counted AS (
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
