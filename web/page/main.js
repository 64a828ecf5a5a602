// Opens the device, and hands it to the three parts.

import { call } from "./gpu.js";
import { checkPart } from "./check.js";
import { digitsPart } from "./digits.js";
import { speedPart } from "./speed.js";

const adapter = document.getElementById("adapter");
const notice = document.getElementById("notice");
let opened = false;

/** The sentence for an error that ends all work. */
const sentence = ({ name }) =>
  ({
    DeviceLost:
      "The browser took the GPU away, as it does when a driver crashes or memory runs out. Reload the page to go on.",
    NoAdapter: "WebGPU is there, but it offers no GPU that can run this. A newer driver or another browser may help.",
    Worker: opened
      ? "The page's program broke down. Reload the page to go on."
      : "The page's program could not be loaded.",
  })[name];

const tell = (text) => {
  notice.textContent = text;
  notice.hidden = false;
};

/** Shows an error: in a sentence for the whole page if it ends all work, else by the part that it came from. */
const fail = (say) => (error) => {
  const known = sentence(error);
  say(known ? "" : `It failed: ${error.message}`);
  if (!known) return;
  tell(`${known} (${error.message})`);
  // What was measured can still be saved.
  for (const control of document.querySelectorAll("main button:not(.save), main select")) control.disabled = true;
};

const size = (bytes) => {
  const gib = bytes / (1 << 30);
  return gib >= 1 ? `${Number(gib.toFixed(2))} GiB` : `${Math.round(1024 * gib)} MiB`;
};

const open = async () => {
  if (!isSecureContext) {
    throw new Error("Browsers offer WebGPU only to pages that come over https or from this machine (localhost).");
  }
  if (!navigator.gpu) {
    throw new Error(
      "This browser has no WebGPU, or has it switched off. Current versions of Chrome, Edge, Safari and Firefox have it; on Linux it may need a flag.",
    );
  }
  const limits = new URLSearchParams(location.search).get("limits");
  const about = await call("open", limits);
  const words = [
    about.adapter || "A GPU that the browser does not name",
    about.types.join(", "),
    `${about.storage_buffers} storage buffers a stage`,
    `${about.invocations} invocations a workgroup`,
    `bindings up to ${size(about.binding_bytes)}`,
  ];
  if (limits === "default") words.push("opened with WebGPU's default limits");
  if (about.software) words.push("a software driver: right, but slow");
  adapter.textContent = `${words.join(" · ")}.`;
  const repository = document.getElementById("repository");
  if (about.repository) [repository.href, repository.hidden] = [about.repository, false];
  return about;
};

try {
  const about = await open();
  opened = true;
  for (const part of [digitsPart, checkPart, speedPart]) part(call, fail, about);
  for (const button of document.querySelectorAll("button.run")) button.disabled = false;
} catch (error) {
  adapter.textContent = "";
  const known = sentence(error);
  tell(known ? `${known} (${error.message})` : error.message);
}
