"use strict";
// Draws the figures in the colours of the page.
(() => {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const themed = (layout) => {
    const text = style("--text"), grid = style("--line");
    const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
    const out = { ...layout, font: { color: text, family: "system-ui, sans-serif", size: 12 } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) out[key] = { ...layout[key], ...axis };
    }
    out.hoverlabel = { bgcolor: style("--card"), bordercolor: grid, font: { color: text } };
    out.autosize = true;
    return out;
  };

  const draw = (plot) => {
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "yes";
    const figure = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
    plot.layoutSource = figure.layout;
    // On a narrow screen each entry of a legend takes a line of its own.
    if (plot.clientWidth < 520) plot.style.height = `${plot.clientHeight + 18 * Math.max(0, figure.data.length - 2)}px`;
    Plotly.newPlot(plot, figure.data, themed(figure.layout), { responsive: true, displayModeBar: false });
  };

  const plots = [...document.querySelectorAll(".plot")];
  // One task a figure: the page can be scrolled meanwhile.
  plots.forEach((plot) => setTimeout(() => draw(plot)));
  window.addEventListener("beforeprint", () => plots.forEach(draw));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    plots.filter((plot) => plot.dataset.drawn).forEach((plot) => Plotly.relayout(plot, themed(plot.layoutSource)));
  });
})();
