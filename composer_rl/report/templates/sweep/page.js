"use strict";
// Switches arms and seeds in figures and tables, and puts rollouts of two arms side by side.
(() => {
  const armSwitches = [...document.querySelectorAll(".switch[data-arm]")];
  const seedSwitches = [...document.querySelectorAll(".switch[data-seed]")];
  const eachSeed = document.getElementById("each-seed");
  const shown = document.getElementById("shown");
  const isOn = (button) => button.getAttribute("aria-pressed") === "true";
  const set = (button, on) => button.setAttribute("aria-pressed", String(on));

  const state = () => ({
    arms: new Set(armSwitches.filter(isOn).map((button) => Number(button.dataset.arm))),
    seeds: new Set(seedSwitches.filter(isOn).map((button) => Number(button.dataset.seed))),
    allSeeds: seedSwitches.every(isOn),
    lines: Boolean(eachSeed && eachSeed.checked),
  });

  const kept = (trace, { arms, seeds, allSeeds, lines }) => {
    const meta = trace.meta || {};
    if (meta.arm !== undefined && !arms.has(meta.arm)) return null;
    if (meta.all_seeds && !allSeeds) return null;
    if (meta.seed !== undefined) {
      // Beside a mean they stay pale.
      return seeds.has(meta.seed) && (lines || !allSeeds) ? { ...trace, visible: true, opacity: allSeeds ? 0.5 : 0.9 } : null;
    }
    if (!meta.seeds || allSeeds) return trace;
    const at = meta.seeds.map((seed, index) => (seeds.has(seed) ? index : -1)).filter((index) => index >= 0);
    return { ...trace, x: at.map((i) => trace.x[i]), y: at.map((i) => trace.y[i]), customdata: at.map((i) => trace.customdata[i]) };
  };

  const update = () => {
    const now = state();
    // The switches are the legend.
    composerFigures.show((data) => data.map((trace) => kept(trace, now)).filter(Boolean), { showlegend: false });
    for (const cell of document.querySelectorAll("main [data-arm]:not(.switch):not(template)")) {
      const off = !now.arms.has(Number(cell.dataset.arm));
      // A verdict is never taken away: an arm that is switched off stays there, pale.
      if (cell.closest("#verdicts")) cell.classList.toggle("off", off);
      else cell.hidden = off || Boolean(cell.dataset.seed && !now.seeds.has(Number(cell.dataset.seed)));
    }
    if (shown) shown.textContent = `${now.arms.size} of ${armSwitches.length} arms, ${now.seeds.size} of ${seedSwitches.length} seeds`;
  };

  for (const button of [...armSwitches, ...seedSwitches]) {
    const only = () => {
      const row = button.dataset.arm !== undefined ? armSwitches : seedSwitches;
      row.forEach((other) => set(other, other === button));
      update();
    };
    button.addEventListener("click", (event) => {
      if (event.shiftKey) return only();
      set(button, !isOn(button));
      return update();
    });
    button.addEventListener("dblclick", only);
  }
  if (eachSeed) eachSeed.addEventListener("change", update);
  const all = document.getElementById("show-all");
  if (all) all.addEventListener("click", () => { [...armSwitches, ...seedSwitches].forEach((button) => set(button, true)); update(); });
  if (armSwitches.length) update();

  // What a link leads to does not end up under the switches.
  const bar = document.getElementById("switches");
  const clear = () => {
    const height = getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0;
    document.documentElement.style.scrollPaddingTop = `${height + 12}px`;
  };
  window.addEventListener("resize", clear);
  clear();

  const left = document.getElementById("left"), right = document.getElementById("right");
  const pairs = document.getElementById("pairs"), common = document.getElementById("common");
  const samplesOf = (arm) => {
    const template = document.querySelector(`template[data-arm="${arm}"]`);
    return [...template.content.cloneNode(true).querySelectorAll(".sample")];
  };
  const name = (menu) => menu.options[menu.selectedIndex].text;
  const absent = (menu) => {
    const cell = document.createElement("p");
    cell.className = "none note";
    cell.textContent = `${name(menu)} has no rollout of this task here.`;
    return cell;
  };

  const lay = () => {
    const columns = [samplesOf(left.value), samplesOf(right.value)];
    columns.forEach((column, side) => column.forEach((sample) => {
      const rollout = sample.querySelector(".rollout");
      rollout.id = `${side ? "right" : "left"}-${rollout.id}`;
    }));
    const byTask = columns.map((column) => new Map(column.map((sample) => [sample.dataset.task, sample])));
    const tasks = [...new Set([...byTask[0].keys(), ...byTask[1].keys()])];
    const both = tasks.filter((task) => byTask[0].has(task) && byTask[1].has(task));
    const wanted = common.checked ? both : [...both, ...tasks.filter((task) => !both.includes(task))];
    pairs.replaceChildren(...wanted.map((task) => {
      const row = document.createElement("div");
      row.className = "sides";
      [left, right].forEach((menu, side) => {
        const cell = byTask[side].get(task) || absent(menu);
        const note = cell.querySelector && cell.querySelector(".note");
        if (note) note.textContent = [name(menu), note.textContent].filter(Boolean).join(", ");
        row.append(cell);
      });
      return row;
    }));
    document.getElementById("pairs-shown").textContent =
      `${both.length} ${both.length === 1 ? "task" : "tasks"} on both sides, ${tasks.length - both.length} on one`;
  };
  if (pairs) {
    [left, right, common].forEach((control) => control.addEventListener("change", lay));
    lay();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (!pairs || (event.key !== "j" && event.key !== "k")) return;
    composerFigures.step([...pairs.querySelectorAll(".rollout")], event.key === "j" ? 1 : -1);
  });
})();
