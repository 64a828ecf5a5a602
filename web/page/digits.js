// "What for?": two networks learn digits; their curves, and what they take a drawn digit for.

import uPlot from "./uplot.js";
import { announce } from "./announce.js";
import { drawing } from "./drawing.js";
import { Runner } from "./runner.js";

const SEED = 1;
/** Steps between two looks at the images that the networks do not learn from. */
const TEST_EVERY = 10;
/** The training ends after this many epochs. */
const EPOCHS = 5;

const NAMES = ["with norms", "without"];

/** The height of a chart, without its legend. */
const HEIGHT = 170;

/** A chart of one curve for each network. */
const chart = (place, range) => {
  let plot;
  const make = (data) => {
    plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const [ink, line] = [style.getPropertyValue("--soft"), style.getPropertyValue("--line")];
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const series = NAMES.map((label, network) => ({
      label: network ? `${label} (dashed)` : label,
      stroke: style.getPropertyValue(network ? "--without" : "--with"),
      width: 2,
      dash: network ? [6, 4] : undefined,
      points: { show: false },
    }));
    const options = {
      width: place.clientWidth || 300,
      height: HEIGHT,
      scales: { x: { time: false }, y: { range } },
      axes: [{ ...axis, size: 32 }, { ...axis, size: 44 }],
      series: [{ label: "step" }, ...series],
      legend: { live: false },
      cursor: { show: false },
    };
    plot = new uPlot(options, data, place);
  };
  make([[], [], []]);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth || 300, height: HEIGHT })).observe(place);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", () => make(plot.data));
  return { show: (data) => plot.setData(data) };
};

export const digitsPart = (call, failed, { software }) => {
  const part = document.getElementById("digits");
  const find = (selector) => part.querySelector(selector);
  const [rate, batch, status] = [find(".rate"), find(".batch"), find(".status")];
  const say = (text) => (status.textContent = text);

  const loss = chart(find(".loss"), (_, __, most) => [0, Math.max(2.5, 1.05 * most)]);
  const accuracy = chart(find(".accuracy"), [0, 100]);
  let losses;
  let accuracies;
  /** Whether the next step begins a new training. */
  let fresh = true;
  let drawn = null;

  const clear = () => {
    [losses, accuracies] = [
      [[], [], []],
      [[], [], []],
    ];
    loss.show(losses);
    accuracy.show(accuracies);
  };
  clear();

  const begin = async () => {
    fresh = false;
    clear();
    await call("digits_begin", SEED, Number(rate.value), Number(batch.value));
    await test(0);
  };

  const add = (curves, step, values) => {
    curves[0].push(step);
    // JSON has null for NaN, and a curve a gap.
    values.forEach((value, network) => curves[network + 1].push(Number.isFinite(value) ? value : null));
  };

  const test = async (step) => {
    add(accuracies, step, await call("digits_accuracy"));
    accuracy.show(accuracies);
    await guess();
  };

  const step = async () => {
    if (fresh) await begin();
    const done = await call("digits_step");
    add(losses, done.step, done.loss);
    loss.show(losses);
    const last = done.epoch >= EPOCHS;
    if (done.step % TEST_EVERY === 0 || last) await test(done.step);
    const latest = NAMES.map((name, network) => `${accuracies[network + 1].at(-1)?.toFixed(1) ?? "-"}% ${name}`);
    const text = `Step ${done.step}. Test images right: ${latest.join(", ")}.`;
    if (last) {
      fresh = true;
      announce(text);
    }
    return [Math.min(1, done.epoch / EPOCHS), text];
  };

  const runner = new Runner(find(".run"), software ? 20 : 10, {
    step,
    say,
    fail: (error) => {
      fresh = true;
      failed(say)(error);
    },
  });

  find(".restart").addEventListener("click", () => {
    fresh = true;
    runner.start();
  });
  // The buffers have room for a batch, so another size needs another training.
  batch.addEventListener("change", () => (fresh = true));
  rate.addEventListener("change", () => call("digits_set_rate", Number(rate.value)).catch(failed(say)));

  const headings = find(".guesses thead").insertRow();
  const heading = (row, text, scope) => {
    const head = document.createElement("th");
    [head.scope, head.textContent] = [scope, text];
    row.append(head);
  };
  for (const text of ["digit", ...Array(10).keys()]) heading(headings, text, "col");
  const cells = NAMES.map((name) => {
    const row = find(".guesses tbody").insertRow();
    heading(row, name, "row");
    return Array.from({ length: 10 }, () => row.insertCell());
  });
  const verdict = find(".guess");

  const guess = async () => {
    if (!drawn) {
      verdict.textContent = "";
      for (const cell of cells.flat()) {
        cell.textContent = "";
        cell.className = "";
      }
      return;
    }
    const found = await call("digits_guess", drawn);
    // A network whose numbers have become NaN takes it for nothing.
    const best = found.map((row) => (row.every(Number.isFinite) ? row.indexOf(Math.max(...row)) : -1));
    found.forEach((row, network) =>
      row.forEach((probability, digit) => {
        const cell = cells[network][digit];
        cell.textContent = Number.isFinite(probability) ? Math.round(100 * probability) : "-";
        cell.className = digit === best[network] ? "best" : "";
      }),
    );
    const words = best.map((digit, network) => {
      const name = `The network ${NAMES[network]}`;
      return digit < 0 ? `${name} has diverged.` : `${name} takes it for ${digit}.`;
    });
    verdict.textContent = words.join(" ");
  };

  const changed = async (pixels) => {
    drawn = pixels;
    try {
      await guess();
      announce(verdict.textContent);
    } catch (error) {
      failed((text) => (verdict.textContent = text))(error);
    }
  };
  const pen = (down) => {
    const [text, word] = [find(".pen"), down ? "The pen is down." : ""];
    if (text.textContent === word) return;
    text.textContent = word;
    announce(word || "The pen is up.");
  };
  drawing({ pad: find(".pad"), seen: find(".seen"), clear: find(".clear"), changed, pen });
};
