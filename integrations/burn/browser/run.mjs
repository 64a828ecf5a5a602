// Runs the built test in a headless Chromium.
//
//   node run.mjs          after scripts/build-wasm.sh, and `npm ci` in web

import { launch, serve } from "../../../web/test/browser.mjs";

const { server, url } = await serve(import.meta.dirname);
const browser = await launch();
const page = await browser.newPage();
page.on("console", (message) => {
  if (!message.location().url.endsWith("favicon.ico")) console.log(message.text());
});
// A panic in the program leaves its promise pending.
const failure = new Promise((_, reject) => {
  page.on("pageerror", reject);
  page.on("crash", () => reject(new Error("the page crashed")));
  setTimeout(() => reject(new Error("no end after 5 minutes")), 5 * 60_000);
});
const program = `${url}pkg/burn_wgpu_norm_browser.js`;
const test = async () => {
  await page.goto(program); // any page of this origin
  await page.evaluate(async (program) => {
    const { default: init, test } = await import(program);
    await init();
    await test();
  }, program);
};
const begun = Date.now();
let failed = 0;
try {
  await Promise.race([test(), failure]);
  console.log(`passed in ${((Date.now() - begun) / 1000).toFixed(0)} s`);
} catch (error) {
  failed = 1;
  console.log(`FAILED: ${error.message}`);
}
await browser.close();
server.close();
process.exit(failed);
