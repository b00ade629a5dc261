"use strict";
// Filters the rollouts and the configuration. Every text on the page is already there, escaped.
(() => {
  const form = document.getElementById("filters");
  const rollouts = [...document.querySelectorAll(".rollout")];
  const visible = () => rollouts.filter((rollout) => !rollout.hidden);

  const filter = () => {
    const wanted = Object.fromEntries(new FormData(form));
    for (const rollout of rollouts) {
      const data = rollout.dataset;
      rollout.hidden = Boolean(
        (wanted.outcome && data.outcome !== wanted.outcome) ||
        (wanted.kind && !JSON.parse(data.kinds).includes(wanted.kind)) ||
        (wanted.step && data.step !== wanted.step) ||
        (wanted.split && data.split !== wanted.split)
      );
    }
    for (const side of document.querySelectorAll(".side")) {
      side.querySelector(".none").hidden = Boolean(side.querySelector(".rollout:not([hidden])"));
    }
    document.getElementById("shown").textContent = `${visible().length} of ${rollouts.length} shown`;
  };

  if (form) {
    form.addEventListener("change", filter);
    form.addEventListener("reset", () => setTimeout(filter));
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();
  }

  const openTarget = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") {
      target.hidden = false;
      target.open = true;
      target.querySelector("summary").focus({ preventScroll: true });
      target.scrollIntoView({ block: "start" });
    }
  };
  window.addEventListener("hashchange", openTarget);
  openTarget();

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "f" && form) {
      event.preventDefault();
      form.elements.outcome.focus();
    } else if (event.key === "j" || event.key === "k") {
      composerFigures.step(visible(), event.key === "j" ? 1 : -1);
    }
  });

  const search = document.getElementById("config-search");
  if (search) {
    const rows = [...document.querySelectorAll(".settings tr")];
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        count += row.hidden ? 0 : 1;
      }
      document.getElementById("config-shown").textContent = words.length ? `${count} of ${rows.length}` : "";
    });
  }
})();
