// Opens the device, and hands it to the three parts.

import { call } from "./gpu.js";
import { checkPart } from "./check.js";
import { digitsPart } from "./digits.js";
import { speedPart } from "./speed.js";

const adapter = document.getElementById("adapter");
const notice = document.getElementById("notice");

const sentences = {
  DeviceLost: "The browser took the GPU away, as it does when a driver crashes or memory runs out. Reload the page to go on.",
  NoAdapter: "WebGPU is there, but it offers no GPU that can run this. A newer driver or another browser may help.",
  Worker: "The page's program could not be loaded.",
};

const tell = (sentence) => {
  notice.textContent = sentence;
  notice.hidden = false;
};

const disable = () => {
  for (const button of document.querySelectorAll("button.run, button.restart, button.save")) button.disabled = true;
};

/** Shows an error: in a sentence for the whole page if it ends all work, else by the part that it came from. */
const fail = (say) => (error) => {
  const sentence = sentences[error.name];
  say(sentence ? "" : `It failed: ${error.message}`);
  if (!sentence) return;
  tell(`${sentence} (${error.message})`);
  disable();
};

const number = (bytes) => (bytes >= 1 << 30 ? `${bytes / (1 << 30)} GiB` : `${Math.round(bytes / (1 << 20))} MiB`);

const open = async () => {
  if (!isSecureContext) {
    throw Object.assign(new Error(), {
      sentence: "Browsers offer WebGPU only to pages that come over https or from this machine (localhost).",
    });
  }
  if (!navigator.gpu) {
    throw Object.assign(new Error(), {
      sentence:
        "This browser has no WebGPU. Chrome and Edge have it since version 113, Safari since 26, and Firefox since 141 on Windows and 145 on macOS.",
    });
  }
  const limits = new URLSearchParams(location.search).get("limits");
  const about = await call("open", limits);
  const words = [
    about.adapter || "A GPU without a name",
    about.types.join(", "),
    `${about.storage_buffers} storage buffers a stage`,
    `${about.invocations} invocations a workgroup`,
    `bindings up to ${number(about.binding_bytes)}`,
  ];
  if (limits === "default") words.push("opened with WebGPU's default limits");
  if (about.software) words.push("a software driver: right, but slow");
  adapter.textContent = `${words.join(" · ")}.`;
  return about;
};

try {
  const about = await open();
  const verdict = checkPart(call, fail);
  speedPart(call, fail, about, verdict);
  digitsPart(call, fail);
  for (const button of document.querySelectorAll("button.run, button.restart")) button.disabled = false;
} catch (error) {
  adapter.textContent = "";
  tell(error.sentence ?? `${sentences[error.name] ?? "The GPU could not be opened."} (${error.message})`);
}
