// Everything that computes: the program in WebAssembly, and its device. It has a thread of its own, so that the page
// answers while it works.

import init, { Page } from "./pkg/wgpu_norm_page.js";

let page;

const open = async (limits) => {
  try {
    await init();
  } catch (error) {
    throw Object.assign(error, { name: "Worker" });
  }
  page = await Page.open(limits === "default");
  const about = JSON.parse(page.about());
  // JavaScript learns more of an adapter's name than wgpu does. The program asks for the same adapter.
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  const { vendor, architecture, description } = adapter?.info ?? {};
  return { ...about, adapter: [vendor, architecture, description].filter(Boolean).join(" ") || about.adapter };
};

/** Calls a method of the program by name; texts that it returns are JSON. */
const ofPage = async (name, args) => {
  const result = await page[name](...args);
  return typeof result === "string" ? JSON.parse(result) : result;
};

// The program handles one call at a time.
let queue = Promise.resolve();
self.addEventListener("message", ({ data: { id, name, args } }) => {
  queue = queue.then(async () => {
    try {
      const result = name === "open" ? await open(...args) : await ofPage(name, args);
      self.postMessage({ id, result });
    } catch (error) {
      self.postMessage({ id, error: { name: error?.name ?? "Error", message: error?.message ?? String(error) } });
    }
  });
});
