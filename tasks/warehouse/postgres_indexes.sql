-- what BI and the report ask by: the day, the agent, the query, the finding; PostgreSQL only, since an index makes the swap of a
-- day slow in DuckDB, which needs none to read a column

CREATE INDEX IF NOT EXISTS query_scores_dt_query ON query_scores (dt, query_id);
CREATE INDEX IF NOT EXISTS query_scores_agent_dt ON query_scores (agent_id, dt);
CREATE INDEX IF NOT EXISTS query_scores_app_dt ON query_scores (app_id, dt);
CREATE INDEX IF NOT EXISTS query_scores_phi ON query_scores (phi, p_right) WHERE status = 'scored';
CREATE INDEX IF NOT EXISTS query_scores_feedback ON query_scores (dt, query_id) WHERE user_feedback IS NOT NULL;
CREATE INDEX IF NOT EXISTS query_findings_dt_query ON query_findings (dt, query_id, ordinal);
CREATE INDEX IF NOT EXISTS query_findings_code_dt ON query_findings (code, dt);
CREATE INDEX IF NOT EXISTS query_findings_agent_dt ON query_findings (agent_id, dt);
CREATE INDEX IF NOT EXISTS agent_daily_dt_agent ON agent_daily (dt, agent_id);
CREATE INDEX IF NOT EXISTS agent_daily_agent_dt ON agent_daily (agent_id, dt);
CREATE INDEX IF NOT EXISTS agent_alerts_dt_agent ON agent_alerts (dt, agent_id);
CREATE INDEX IF NOT EXISTS scoring_runs_run ON scoring_runs (run_id);
CREATE INDEX IF NOT EXISTS scoring_runs_dt ON scoring_runs (dt, started_at);
CREATE INDEX IF NOT EXISTS score_changes_dt_query ON score_changes (dt, query_id);
CREATE INDEX IF NOT EXISTS log_catalogue_dt_app ON log_catalogue (dt, app_id);
CREATE INDEX IF NOT EXISTS experiment_runs_name ON experiment_runs (name);
CREATE INDEX IF NOT EXISTS experiment_results_name ON experiment_results (name, ordinal);
