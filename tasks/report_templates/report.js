
"use strict";
// Filters the report by agent, application and date. Everything is readable without it; whatever it writes, it writes as text.
(() => {
  const data = JSON.parse(document.getElementById("figures").textContent);
  const form = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const bands = ["excellent", "good", "marginal", "poor"];
  const fewest = 5; // answers that an interval needs

  // figures, rounded and spelled as the page was made with

  const plain = (value, digits) => {
    const text = value.toFixed(digits);
    return Number(text) === 0 ? text.replace("-", "") : text;
  };
  const one = (value) => (value === null ? "–" : plain(value, 1).replace("-", "−"));
  const signed = (value) => (value === null || one(value).startsWith("−") ? one(value) : "+" + one(value));
  const percent = (value, digits = 1) => (value === null ? "–" : plain(100 * value, digits) + "\u00a0%");
  const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const money = (value) => (value === null ? "–" : plain(value, value >= 1 || value === 0 ? 2 : 4));
  const span = (ends, spell = one) => (ends === null ? "" : spell(ends[0]) + " to " + spell(ends[1]));
  const listed = (pairs) => pairs.map(([name, n]) => name + " (" + count(n) + ")").join(", ") || "–";

  // the 97.5 % quantile of Student's t: Abramowitz & Stegun 26.7.5
  const quantile = (freedom) => {
    const z = 1.959963984540054;
    const g1 = (z ** 3 + z) / 4;
    const g2 = (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96;
    const g3 = (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384;
    const g4 = (79 * z ** 9 + 776 * z ** 7 + 1482 * z ** 5 - 1920 * z ** 3 - 945 * z) / 92160;
    return z + g1 / freedom + g2 / freedom ** 2 + g3 / freedom ** 3 + g4 / freedom ** 4;
  };
  const mean = (sum) => (sum.scored ? sum.phi / sum.scored : null);
  const variance = (sum) =>
    sum.scored > 1 ? Math.max(0, sum.phi_squares - (sum.phi * sum.phi) / sum.scored) / (sum.scored - 1) : 0;
  const interval = (sum) => {
    if (sum.scored < fewest) return null;
    const reach = quantile(sum.scored - 1) * Math.sqrt(variance(sum) / sum.scored);
    return [Math.max(0, mean(sum) - reach), Math.min(100, mean(sum) + reach)];
  };
  const difference = (now, before) => {
    if (now.scored < fewest || before.scored < fewest) return null;
    const parts = [now, before].map((sum) => variance(sum) / sum.scored);
    const error = parts[0] + parts[1];
    const middle = mean(now) - mean(before);
    if (error === 0) return [middle, middle];
    const freedom = error ** 2 / (parts[0] ** 2 / (now.scored - 1) + parts[1] ** 2 / (before.scored - 1));
    const reach = quantile(freedom) * Math.sqrt(error);
    return [middle - reach, middle + reach];
  };

  // the selection

  let chosen = { agent: null, app: null, from: "", to: "" };
  const isAll = () => chosen.agent === null && chosen.app === null && !chosen.from && !chosen.to;
  const inRange = (from, to) => (!chosen.from || to >= chosen.from) && (!chosen.to || from <= chosen.to);
  const meets = (table, n, ofAnyDay = false) =>
    (chosen.agent === null || table.a[n] === chosen.agent) &&
    (chosen.app === null || table.p[n] === chosen.app || table.p[n] < 0) &&
    (ofAnyDay || inRange(table.from[table.d[n]], table.to[table.d[n]]));

  // adds up the columns of a table by keys of its rows
  const added = (table, columns, keysOf, ofAnyDay = false) => {
    const sums = new Map();
    for (let n = 0; n < table.d.length; n += 1) {
      if (!meets(table, n, ofAnyDay)) continue;
      for (const key of keysOf(n)) {
        let sum = sums.get(key);
        if (!sum) sums.set(key, (sum = Object.fromEntries(columns.map((column) => [column, 0]))));
        for (const column of columns) sum[column] += table[column][n];
      }
    }
    return sums;
  };
  const cellColumns = ["rows", "scored", "phi", "phi_squares", "p_right", "p_right_rows", ...bands]
    .concat(["reformulated", "in_enrichment", "in_generation", "in_both"]);
  const costColumns = ["judged", "llm_calls", "tokens_in", "tokens_out", "cost"];
  const none = (columns) => Object.fromEntries(columns.map((column) => [column, 0]));
  const noAnswers = none(cellColumns);

  const bar = (element, parts, total, spell) => {
    [...element.children].forEach((part, n) => {
      part.style.width = (total ? (100 * parts[n][1]) / total : 0).toFixed(1) + "%";
    });
    element.setAttribute("aria-label", parts.map(spell).join(", "));
  };
  const withShare = (n, of) => count(n) + (of ? " (" + percent(n / of, 0) + ")" : "");

  // what stands in the places of the page that the figures name
  const fill = (root, sum, more = {}) => {
    const spelled = {
      rows: () => count(sum.rows),
      scored: () => count(sum.scored),
      unscored: () => count(sum.rows - sum.scored),
      coverage: () => percent(sum.rows ? sum.scored / sum.rows : null),
      mean: () => one(mean(sum)),
      interval: () => span(interval(sum)),
      p_right: () => percent(sum.p_right_rows ? sum.p_right / sum.p_right_rows : null, 0),
      reformulated: () => count(sum.reformulated),
      in_enrichment: () => withShare(sum.in_enrichment, sum.scored),
      in_generation: () => withShare(sum.in_generation, sum.scored),
      ...more,
    };
    for (const place of all("[data-f]", root)) {
      const name = place.dataset.f;
      if (name === "bands") {
        const parts = bands.map((band) => [band, sum[band]]);
        bar(place, parts, sum.scored, ([band, n]) => band + " " + percent(sum.scored ? n / sum.scored : 0, 0));
      } else if (name === "band") {
        place.textContent = percent(sum.scored ? sum[place.dataset.band] / sum.scored : null, 0);
      } else if (name === "nothing_scored") {
        place.hidden = sum.scored > 0;
      } else if (name === "stages") {
        const faultless = sum.scored - sum.in_enrichment - sum.in_generation + sum.in_both;
        const parts = [
          ["only the reformulation", sum.in_enrichment - sum.in_both],
          ["both", sum.in_both],
          ["only the SQL", sum.in_generation - sum.in_both],
          ["no finding", faultless],
        ];
        bar(place, parts, sum.scored, ([part, n]) => part + " " + count(n));
      } else if (spelled[name]) {
        place.textContent = spelled[name]();
      }
    }
  };

  // the most frequent names of each agent
  const ranked = (sums, column, names, most) => {
    const ofAgent = new Map();
    for (const [key, sum] of sums) {
      const [agent, name] = key.split(" ").map(Number);
      if (!ofAgent.has(agent)) ofAgent.set(agent, []);
      ofAgent.get(agent).push([names[name], sum[column], name]);
    }
    for (const pairs of ofAgent.values()) {
      pairs.sort((left, right) => right[1] - left[1] || left[2] - right[2]);
      pairs.splice(most);
    }
    return (agent) => listed((ofAgent.get(agent) || []).map(([name, n]) => [name, n]));
  };

  const tableRows = (name) => all('[data-table="' + name + '"] tbody tr');
  const number = (element, name) => Number(element.dataset[name]);

  const showTiles = (cells, total) => {
    const tiles = document.querySelector(".tiles");
    const alerts = data.alerts.filter(
      ([agent, app, day]) =>
        (chosen.agent === null || agent === chosen.agent) &&
        (chosen.app === null || app === chosen.app || (app < 0 && cells.has("a" + agent))) &&
        inRange(day, day),
    ).length;
    const ends = interval(total);
    fill(tiles, total, {
      interval: () => (ends ? " (" + span(ends) + ")" : ""),
      alerts: () => count(isAll() ? data.alert_count : alerts),
    });
  };

  const showVersions = (cells) => {
    let before = null;
    for (const row of tableRows("versions")) {
      const agent = number(row, "agent");
      const sum = cells.get("v" + agent + " " + row.dataset.version);
      row.hidden = !sum;
      if (!sum) continue;
      const older = before && before.agent === agent ? before.sum : null;
      const ends = older && mean(sum) !== null && mean(older) !== null ? difference(sum, older) : null;
      const isCompared = older !== null && mean(sum) !== null && mean(older) !== null;
      const isWhole = chosen.app === null && !chosen.from && !chosen.to;
      for (const place of all('[data-f="whole"]', row)) {
        place.dataset.told = place.dataset.told || place.textContent;
        place.textContent = isWhole ? place.dataset.told : "–";
      }
      fill(row, sum, {
        change: () => signed(isCompared ? mean(sum) - mean(older) : null),
        change_span: () => span(ends, signed),
        verdict: () =>
          !isCompared ? "" : !ends ? "too few" : ends[0] > 0 ? "better" : ends[1] < 0 ? "worse" : "not clear",
      });
      before = { agent, sum };
    }
    for (const row of tableRows("bands")) {
      const sum = cells.get("v" + row.dataset.agent + " " + row.dataset.version);
      row.hidden = !sum;
      if (sum) fill(row, sum);
    }
  };

  const showAgents = (cells) => {
    const unscored = data.unscored;
    const reasons = ranked(
      added(unscored, ["rows"], (n) => [unscored.a[n] + " " + unscored.reason[n]]), "rows", data.reasons, 99,
    );
    const faults = data.faults;
    const codesOf = (stage) => {
      const keys = (n) => (faults.stage[n] === stage ? [faults.a[n] + " " + faults.c[n]] : []);
      return ranked(added(faults, ["occurrences"], keys), "occurrences", data.codes, 3);
    };
    const [generation, enrichment] = [codesOf(0), codesOf(1)];
    for (const name of ["coverage", "stages"]) {
      for (const row of tableRows(name)) {
        const agent = number(row, "agent");
        const sum = cells.get("a" + agent);
        row.hidden = !sum;
        if (!sum) continue;
        fill(row, sum, {
          reasons: () => reasons(agent),
          enrichment_codes: () => enrichment(agent),
          generation_codes: () => generation(agent),
        });
      }
    }
  };

  const showFindings = () => {
    const counts = added(data.faults, ["occurrences"], (n) => [data.faults.c[n]]);
    const of = (row) => (counts.get(number(row, "code")) || { occurrences: 0 }).occurrences;
    const rows = tableRows("findings");
    rows.sort((left, right) => of(right) - of(left) || number(left, "code") - number(right, "code"));
    const total = rows.reduce((sum, row) => sum + of(row), 0);
    const most = Math.max(1, ...rows.map(of));
    let running = 0;
    for (const row of rows) {
      row.parentNode.append(row);
      running += of(row);
      row.hidden = of(row) === 0;
      row.querySelector('[data-f="occurrences"]').textContent = count(of(row));
      row.querySelector('[data-f="running"]').textContent = percent(total ? running / total : null, 0);
      row.querySelector('[data-f="meter"]').style.width = ((100 * of(row)) / most).toFixed(1) + "%";
    }
  };

  const showCosts = () => {
    const costs = data.costs;
    const keys = (n) => ["all", String(costs.a[n]), costs.a[n] + " " + costs.d[n]];
    const sums = added(costs, costColumns, keys);
    for (const row of all('[data-table="costs"] tr[data-agent], [data-table="cost-days"] tr[data-agent]')) {
      const sum = sums.get(row.dataset.agent + (row.dataset.bucket ? " " + row.dataset.bucket : ""));
      row.hidden = !sum && row.dataset.agent !== "all";
      const told = sum || none(costColumns);
      const spelled = Object.fromEntries(costColumns.map((column) => [column, () => count(told[column])]));
      fill(row, noAnswers, {
        ...spelled,
        cost: () => money(told.cost),
        cost_each: () => money(told.judged ? (1000 * told.cost) / told.judged : null),
      });
    }
  };

  // the marks of a chart, moved to where the selection has them; axes stay

  const moment = (day) => Date.parse(day + "T00:00:00Z");
  const across = (day) => ((moment(day) - data.chart.start) / (data.chart.end - data.chart.start)) * data.chart.width;
  const down = (phi) => data.chart.height * (1 - phi / 100);
  const point = (x, y) => x.toFixed(2) + "," + y.toFixed(2);
  const lineOf = (points) => (points.length ? "M" + points.map(([x, y]) => point(x, y)).join("L") : "");

  const redraw = (svg, points) => {
    const mark = (name) => svg.querySelector("." + name + "_marks path");
    const scored = points.filter((p) => p.mean !== null);
    const line = mark("mean");
    if (line) line.setAttribute("d", lineOf(scored.map((p) => [across(p.day), down(p.mean)])));
    const week = mark("week");
    const weeks = scored.filter((p) => p.week !== null);
    if (week) week.setAttribute("d", lineOf(weeks.map((p) => [across(p.day), down(p.week)])));
    const area = mark("interval");
    if (area) {
      const runs = [[]];
      for (const p of scored) (p.interval ? runs[runs.length - 1].push(p) : runs.push([]));
      const outline = (run) =>
        lineOf([
          ...run.map((p) => [across(p.day), down(p.interval[1])]),
          ...run.map((p) => [across(p.day), down(p.interval[0])]).reverse(),
        ]) + "Z";
      area.setAttribute("d", runs.filter((run) => run.length).map(outline).join(""));
    }
    all(".dots_marks path", svg).forEach((dot, n) => {
      dot.setAttribute("display", n < scored.length ? "inline" : "none");
      if (n < scored.length) {
        dot.setAttribute("transform", "translate(" + point(across(scored[n].day), down(scored[n].mean)) + ")");
      }
    });
    const left = chosen.from ? across(chosen.from) - 0.5 : -Infinity;
    const right = chosen.to ? across(chosen.to) + 0.5 : Infinity;
    for (const sign of all(".version_marks *, .label_marks *, .alert_marks *, .told_marks *", svg)) {
      const x = Number((/translate\(([-\d.]+)/.exec(sign.getAttribute("transform") || "") || [0, NaN])[1]);
      // a label stands four pixels before its line
      const isIn = x >= left - 4.5 && x <= right;
      sign.setAttribute("display", isIn || Number.isNaN(x) ? "inline" : "none");
    }
  };

  const cell = (tag, text, isNumber) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (tag === "th") made.setAttribute("scope", "row");
    if (isNumber) made.className = "n";
    return made;
  };

  const figures = all("[data-trend]").map((figure) => {
    const svg = figure.querySelector("svg");
    const body = figure.querySelector("tbody");
    const capped = figure.querySelector('[data-f="capped"]');
    return {
      figure,
      svg,
      body,
      capped,
      agent: number(figure, "trend"),
      rows: [...body.children],
      note: capped.textContent,
      marks: svg ? all("path, [transform]", svg).map((e) => [e, e.getAttribute("d"), e.getAttribute("transform")]) : [],
    };
  });

  const showTrends = () => {
    const cells = data.cells;
    const key = (n) => [cells.a[n] + " " + cells.d[n]];
    const days = added(cells, cellColumns, key, true); // the week before the range counts for its first days
    for (const trend of figures) {
      const { figure, svg, body, capped, agent } = trend;
      const known = cells.from.map((day, d) => ({ day, end: cells.to[d], sum: days.get(agent + " " + d) }));
      const rows = known.filter((p) => p.sum);
      const points = rows
        .map((p, n) => {
          const since = moment(p.day) - 6 * 86400000;
          const week = rows.slice(Math.max(0, n - 6), n + 1).filter((q) => moment(q.day) >= since);
          const n7 = week.reduce((total, q) => total + q.sum.scored, 0);
          const phi7 = week.reduce((total, q) => total + q.sum.phi, 0);
          const isDaily = cells.grain === "day";
          return { ...p, mean: mean(p.sum), interval: interval(p.sum), week: isDaily && n7 ? phi7 / n7 : null };
        })
        .filter((p) => inRange(p.day, p.end));
      figure.hidden = points.length === 0;
      const hasScored = points.some((p) => p.mean !== null);
      figure.querySelector("[data-unscored]").hidden = !svg || hasScored || points.length === 0;
      for (const told of all("[data-alert]", figure)) told.hidden = !inRange(told.dataset.day, told.dataset.day);
      if (isAll()) {
        body.replaceChildren(...trend.rows);
        capped.textContent = trend.note;
        for (const [element, d, transform] of trend.marks) {
          element.removeAttribute("display");
          if (d !== null) element.setAttribute("d", d);
          if (transform !== null) element.setAttribute("transform", transform);
        }
        continue;
      }
      capped.textContent = ", of the selection";
      body.replaceChildren(
        ...points.map((p) => {
          const row = document.createElement("tr");
          row.append(cell("th", p.day), cell("td", count(p.sum.rows), true), cell("td", one(p.mean), true));
          row.append(cell("td", span(p.interval) || "–", true));
          if (cells.grain === "day") row.append(cell("td", one(p.week), true));
          return row;
        }),
      );
      if (svg) redraw(svg, points);
    }
  };

  const showItems = (cells) => {
    for (const item of all("[data-item]")) {
      const { agent, app, day, until } = item.dataset;
      const isIn =
        (chosen.agent === null || agent === undefined || Number(agent) === chosen.agent) &&
        // what concerns an agent as a whole concerns its applications
        (chosen.app === null || agent === undefined || (app === undefined ? cells.has("a" + agent) : Number(app) === chosen.app)) &&
        (day === undefined ? !chosen.from && !chosen.to : inRange(day, until || day));
      item.hidden = !isIn;
    }
    for (const group of all("[data-group]")) group.hidden = all("[data-item]:not([hidden])", group).length === 0;
    for (const group of all("[data-open]")) group.open = chosen.agent !== null && !group.hidden;
    for (const list of all("[data-list]")) {
      const items = all("[data-item], [data-trend]", list);
      const note = list.querySelector("[data-none]");
      if (note) note.hidden = items.length === 0 || items.some((item) => !item.hidden);
    }
    for (const whole of all("[data-whole]")) whole.hidden = !isAll();
  };

  const told = (total) => {
    const every = data.cells.rows.reduce((sum, n) => sum + n, 0);
    if (isAll()) return "Everything is shown: " + count(every) + " answers.";
    if (chosen.from && chosen.to && chosen.from > chosen.to) return "The first day lies after the last: nothing is selected.";
    const parts = [
      chosen.agent === null ? "all agents" : "agent " + data.agents[chosen.agent],
      chosen.app === null ? "all applications" : "application " + data.apps[chosen.app],
    ];
    if (chosen.from || chosen.to) parts.push((chosen.from || "the first day") + " to " + (chosen.to || "the last day"));
    return "Selected: " + parts.join(", ") + ": " + count(total.rows) + " of " + count(every) + " answers.";
  };

  const show = () => {
    const table = data.cells;
    const cells = added(table, cellColumns, (n) => ["all", "a" + table.a[n], "v" + table.a[n] + " " + table.v[n]]);
    const total = cells.get("all") || noAnswers;
    showTiles(cells, total);
    showVersions(cells);
    showAgents(cells);
    showFindings();
    showCosts();
    showTrends();
    showItems(cells);
    shown.textContent = told(total);
  };

  // the address holds the selection, so that it can be sent

  const write = () => {
    const address = new URLSearchParams();
    if (chosen.agent !== null) address.set("agent", data.agents[chosen.agent]);
    if (chosen.app !== null) address.set("app", data.apps[chosen.app]);
    if (chosen.from) address.set("from", chosen.from);
    if (chosen.to) address.set("to", chosen.to);
    const fragment = address.toString();
    try {
      history.replaceState(null, "", fragment ? "#" + fragment : location.pathname + location.search);
    } catch {
      // a preview without an address of its own: the selection works, it cannot be sent
    }
  };
  const read = () => {
    const text = location.hash.slice(1);
    if (!text.includes("=")) return false; // a part of the page
    const address = new URLSearchParams(text);
    const place = (names, name) => (names.indexOf(name) < 0 ? null : names.indexOf(name));
    const day = (text) => (/^\d{4}-\d{2}-\d{2}$/.test(text || "") ? text : "");
    chosen = {
      agent: place(data.agents, address.get("agent")),
      app: place(data.apps, address.get("app")),
      from: day(address.get("from")),
      to: day(address.get("to")),
    };
    const { agent, app, from, to } = form.elements;
    agent.value = chosen.agent === null ? "" : String(chosen.agent);
    app.value = chosen.app === null ? "" : String(chosen.app);
    from.value = chosen.from;
    to.value = chosen.to;
    return true;
  };
  const choose = () => {
    const { agent, app, from, to } = form.elements;
    const place = (select) => (select.value === "" ? null : Number(select.value));
    chosen = { agent: place(agent), app: place(app), from: from.value, to: to.value };
    write();
    show();
  };

  form.addEventListener("change", choose);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(choose));
  window.addEventListener("hashchange", () => {
    if (read()) show();
  });
  form.hidden = false;
  if (read()) show();
})();
