"use strict";
// Draws the figures in the colours of the page, and moves between rollouts.
const composerFigures = (() => {
  const NARROW = 520, LONGEST_ROW = 18;
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plots = [...document.querySelectorAll(".plot")];
  let chosen = (data) => data;
  let extra = {};

  const themed = (layout, width) => {
    const text = style("--text"), grid = style("--line");
    const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
    const out = { ...layout, ...extra, font: { color: text, family: "system-ui, sans-serif", size: 12 } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) out[key] = { ...layout[key], ...axis };
    }
    if (width < NARROW && out.yaxis && out.yaxis.ticktext) {
      const short = (name) => (name.length > LONGEST_ROW ? `${name.slice(0, LONGEST_ROW - 1)}…` : name);
      out.yaxis.ticktext = out.yaxis.ticktext.map(short);
    }
    out.hoverlabel = { bgcolor: style("--card"), bordercolor: grid, font: { color: text } };
    out.autosize = true;
    delete out.height;
    return out;
  };

  const draw = (plot) => {
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "yes";
    const figure = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
    plot.figureSource = figure;
    if (figure.layout.height) plot.style.height = `${figure.layout.height}px`;
    // On a narrow screen each entry of a legend takes a line of its own.
    else if (plot.clientWidth < NARROW && extra.showlegend !== false) {
      plot.style.height = `${plot.clientHeight + 18 * Math.max(0, figure.data.length - 2)}px`;
    }
    const options = { responsive: true, displayModeBar: false };
    Plotly.newPlot(plot, chosen(figure.data), themed(figure.layout, plot.clientWidth), options);
  };

  const redraw = (plot) => {
    if (!plot.dataset.drawn) return;
    Plotly.react(plot, chosen(plot.figureSource.data), themed(plot.figureSource.layout, plot.clientWidth));
  };

  // One task a figure: the page can be scrolled meanwhile.
  plots.forEach((plot) => setTimeout(() => draw(plot)));
  window.addEventListener("beforeprint", () => plots.forEach(draw));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(redraw));

  for (const button of document.querySelectorAll("button.save")) {
    button.addEventListener("click", async () => {
      const plot = document.getElementById(button.dataset.plot);
      draw(plot);
      const { data, layout } = plot;
      const size = { width: Math.max(720, plot.clientWidth), height: Math.max(360, plot.clientHeight) };
      const whole = { ...layout, ...size, showlegend: data.length > 1 && layout.showlegend !== undefined, paper_bgcolor: style("--card") };
      const link = document.createElement("a");
      link.href = await Plotly.toImage({ data, layout: whole }, { format: "png", scale: 2, ...size });
      link.download = `${plot.id.replace("plot-", "")}.png`;
      link.click();
    });
  }

  return {
    // Keeps what `filter` leaves of every figure's traces; `layout` is added to every figure's own.
    show(filter, layout = {}) {
      chosen = filter;
      extra = layout;
      plots.forEach(redraw);
    },
    // Moves the focus among rollouts by one, from the one that has it.
    step(rollouts, by) {
      if (!rollouts.length) return;
      const at = rollouts.findIndex((rollout) => rollout.contains(document.activeElement));
      const next = at < 0 ? 0 : Math.min(rollouts.length - 1, Math.max(0, at + by));
      const summary = rollouts[next].querySelector("summary");
      summary.focus({ preventScroll: true });
      summary.scrollIntoView({ block: "center" });
    },
  };
})();
