-- pages of Great Expectations that a run leaves, and the kinds of alert there are by now
ALTER TABLE scoring_runs ADD COLUMN data_docs TEXT;
COMMENT ON COLUMN scoring_runs.data_docs IS 'Path of the index of the run''s Data Docs';
COMMENT ON TABLE agent_alerts IS 'What got worse beyond what chance explains. Grain: dt, agent_id, app_id, kind; app_id * is the agent as a whole.';
COMMENT ON COLUMN agent_alerts.kind IS 'phi_fall, version_worse, finding_rise or coverage_fall';
COMMENT ON COLUMN agent_alerts.detail IS 'JSON: findings and examples that drive it';
COMMENT ON COLUMN agent_alerts.p_value IS 'Chance of such a change by noise alone, 0-1, corrected for all that was tested on the day';
