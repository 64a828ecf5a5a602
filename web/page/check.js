// "Is it right here?": runs verify's default list, and counts the outcomes by operation.

import { announce } from "./announce.js";
import { Runner } from "./runner.js";

export const checkPart = (call, failed, { software }) => {
  const part = document.getElementById("check");
  const find = (selector) => part.querySelector(selector);
  const [status, rows] = [find(".status"), find("tbody")];
  const [failures, lacks] = [find(".failures"), find(".lacks")];
  const say = (text) => (status.textContent = text);

  let cases = 0;
  let next = 0;
  let wrong = 0;
  let counts = new Map();
  let reasons = new Map();

  const add = (list, text, code) => {
    const item = document.createElement("li");
    item.textContent = text;
    if (code) {
      const command = document.createElement("code");
      command.textContent = code;
      item.append(" ", command);
    }
    list.append(item);
    return item;
  };

  /** A table's row, with a cell for each number. */
  const row = (operation) => {
    const line = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = operation.replaceAll("_", " ").replace("rms", "RMS");
    const cells = [0, 0, 0].map((count) => {
      const cell = document.createElement("td");
      cell.textContent = count;
      return cell;
    });
    line.append(head, ...cells);
    rows.append(line);
    return cells;
  };

  const count = ({ case: id, operator, unsupported, fault }) => {
    if (!counts.has(operator)) counts.set(operator, row(operator));
    const column = fault ? 1 : unsupported ? 2 : 0;
    const cell = counts.get(operator)[column];
    cell.textContent = Number(cell.textContent) + 1;
    if (fault) {
      if (wrong === 0) announce(`A case failed: ${id}`);
      wrong += 1;
      cell.classList.add("wrong");
      add(failures, `${id}: ${fault}.`, `wgpu-norm verify --case ${id}`);
    } else if (unsupported) {
      if (!reasons.has(unsupported)) reasons.set(unsupported, [0, add(lacks, "")]);
      const reason = reasons.get(unsupported);
      reason[0] += 1;
      reason[1].textContent = `${reason[0]} not supported: ${unsupported}.`;
    }
  };

  const begin = async () => {
    cases = await call("verify_begin", new URLSearchParams(location.search).get("cases") ?? "");
    [next, wrong, counts, reasons] = [0, 0, new Map(), new Map()];
    for (const list of [rows, failures, lacks]) list.replaceChildren();
  };

  const step = async () => {
    if (next === cases) await begin();
    if (cases === 0) return [1, "No case has such words in its ID."];
    count(await call("verify_case", next));
    next += 1;
    const verdict = wrong ? `${wrong} wrong` : "all right";
    if (next < cases) return [next / cases, `${next} of ${cases} cases: ${verdict} so far.`];
    announce(`The check is done: ${verdict}.`);
    return [1, `${cases} cases: ${verdict}.`];
  };

  new Runner(find(".run"), software ? 360 : 120, { step, say, fail: failed(say) });
};
