// "How fast?": measures cases, draws each as a bar beside a copy, and saves the report.

import { announce } from "./announce.js";
import { Runner } from "./runner.js";

/** The fraction of a copy at the end of a bar: a gradient that reads everything once. */
const MOST = 5 / 3;

export const speedPart = (call, failed, about) => {
  const part = document.getElementById("speed");
  const find = (selector) => part.querySelector(selector);
  const [status, rows, save] = [find(".status"), find(".rows"), find(".save")];
  const say = (text) => (status.textContent = text);

  let cases = [];
  let timing = "";
  let next = 0;
  let groups = new Map();

  const element = (name, className, text = "") => {
    const made = document.createElement(name);
    [made.className, made.textContent] = [className, text];
    return made;
  };

  if (about.software) {
    find(".key").before(element("strong", "", "This driver is software: the bars show your CPU, not a GPU."));
    rows.ariaLabel += ", on the CPU";
  }

  /** The rows of one operation and shape; each element type has a bar there. */
  const group = ({ op, shape, format }) => {
    const name = op.replaceAll("-", " ").replace("rms", "RMS");
    const words = [name, op.endsWith("forward") ? "" : "gradient", format ?? "", shape];
    const label = words.filter(Boolean).join(" ");
    if (!groups.has(label)) {
      const row = element("div", "row");
      row.setAttribute("role", "listitem");
      row.append(element("div", "label", label));
      rows.append(row);
      groups.set(label, row);
    }
    return groups.get(label);
  };

  const show = (one, { row, reason }) => {
    const cell = element("div", `cell ${one.dtype}`);
    const [bar, filled] = [element("div", "bar"), element("span", "")];
    bar.append(filled);
    let text = "";
    if (row) {
      const [{ bytes, fraction_of_copy: fraction }] = row.models;
      filled.style.width = `${(100 * Math.min(fraction, MOST)) / MOST}%`;
      text = `${(bytes / row.time_ms / 1e6).toFixed(1)} GB/s, ${Math.round(100 * fraction)}%`;
    }
    cell.append(element("span", "type", one.dtype), bar, element("span", "number", text));
    group(one).append(cell);
    if (reason) group(one).append(element("div", "reason", reason));
  };

  const begin = async () => {
    ({ cases, timing } = await call("speed_begin", about.adapter));
    [next, groups] = [0, new Map()];
    rows.replaceChildren();
  };

  const step = async () => {
    if (next === cases.length) await begin();
    show(cases[next], await call("speed_case", next));
    next += 1;
    if (next < cases.length) return [next / cases.length, `${next} of ${cases.length} cases.`];
    announce("The measurement is done.");
    return [1, `${cases.length} cases, by ${timing}.`];
  };

  new Runner(find(".run"), about.software ? 60 : 30, { step, say, fail: failed(say) });

  save.addEventListener("click", async () => {
    try {
      const report = await call("report", `${new Date().toISOString().slice(0, 19)}Z`);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(report)], { type: "application/json" }));
      link.download = "report.json";
      link.click();
    } catch (error) {
      failed(say)(error);
    }
  });
};
