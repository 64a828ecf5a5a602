// Everything that computes: the program in WebAssembly, and its device. It has a thread of its own, so that the page
// answers while it works.

import init, { Page } from "./pkg/wgpu_norm_page.js";

let page;

const functions = {
  async open(limits) {
    await init();
    page = await Page.open(limits === "default");
    const about = JSON.parse(page.about());
    // What browsers tell of an adapter is less than a driver's name, and wgpu hides some of it.
    const info = (await navigator.gpu?.requestAdapter())?.info ?? {};
    const name = [info.vendor, info.architecture, info.description].filter(Boolean).join(" ");
    return { ...about, adapter: name || about.adapter, software: Boolean(info.isFallbackAdapter) };
  },
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
      const result = await (functions[name]?.(...args) ?? ofPage(name, args));
      self.postMessage({ id, result });
    } catch (error) {
      self.postMessage({ id, error: { name: error?.name ?? "Error", message: error?.message ?? String(error) } });
    }
  });
});
