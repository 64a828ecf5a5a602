// Runs every part of the built page to its end in a headless Chromium, at the sizes of a desktop, a laptop and a phone,
// and what the page says when something is missing. Writes screenshots and report.json to a folder.
//
//   node test/run.mjs [FOLDER]          after scripts/build-page.sh and `npm ci`

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { launch, serve } from "./browser.mjs";

const web = join(import.meta.dirname, "..");
const out = process.argv[2] ?? join(web, "target", "page");
const MINUTE = 60_000;
const DESKTOP = { viewport: { width: 1920, height: 1080 } };
const LAPTOP = { viewport: { width: 1366, height: 768 } };
const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, colorScheme: "dark" };

await mkdir(out, { recursive: true });
const { server, url } = await serve(join(web, "dist"));
// The list of cases takes minutes on SwiftShader, so it has a browser of its own meanwhile.
const [browser, other] = await Promise.all([launch(), launch()]);
const complaints = [];

/** A page on which every error, and every request to elsewhere, is a complaint. */
const open = async (options, { address = url, prepare = () => {}, where = browser } = {}) => {
  const context = await where.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(MINUTE);
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    if (!/^(http:\/\/127\.0\.0\.1:|data:|blob:http:\/\/127\.0\.0\.1:)/.test(request.url())) complaints.push(request.url());
  });
  await page.addInitScript(prepare);
  await page.goto(address);
  return page;
};
const close = (page) => page.context().close();

const ready = (page) => page.locator("#check .run:enabled").waitFor();
const text = (page, selector) => page.locator(selector).innerText();
const status = async (page, part, pattern, timeout = MINUTE) => {
  await page.waitForFunction(
    ([part, source]) => new RegExp(source).test(document.querySelector(`#${part} .status`).textContent),
    [part, pattern.source],
    { timeout },
  );
  return text(page, `#${part} .status`);
};
const press = (page, part, button = ".run") => page.locator(`#${part} ${button}`).click();
const picture = (page, name) => page.screenshot({ path: join(out, `${name}.png`), fullPage: true });

/** Every case of the list. */
const cases = async () => {
  const page = await open(DESKTOP, { where: other });
  await ready(page);
  await press(page, "check");
  const done = await status(page, "check", /^\d+ cases: /, 15 * MINUTE);
  assert.match(done, /^\d{3,} cases: all right\.$/);
  assert.equal(await page.locator("#check .failures li").count(), 0);
  // Browsers have no f64, and SwiftShader small workgroups and conversions to f16 that round in their own way.
  for (const reason of await page.locator("#check .lacks li").allInnerTexts()) {
    assert.match(reason, /SHADER_F64|registers hold|does not round to nearest even/);
  }
  await picture(page, "cases");
};

const tests = {
  async "the page is there before its program"() {
    const page = await open(DESKTOP);
    const title = await text(page, "h1");
    assert.equal(title, "wgpu-norm in your browser");
    const painted = await page.evaluate(() => performance.getEntriesByType("paint")[0]?.startTime);
    await ready(page);
    const loaded = await page.evaluate(() => performance.now());
    assert.ok(painted < loaded, `painted after ${painted} ms, ready after ${loaded} ms`);
    assert.match(await text(page, "#adapter"), /f32, f16, bf16 .* a software driver/);
    assert.match(await text(page, "header"), /instance/);
    return page;
  },

  async "links lead to the manual, and to the repository once it has an address"(page) {
    const manifest = await readFile(join(web, "..", "Cargo.toml"), "utf8");
    const repository = manifest.match(/^repository = "(.*)"$/m)?.[1];
    const links = await page.locator("header a:visible").evaluateAll((links) => links.map((link) => link.href));
    assert.deepEqual(links, ["https://docs.rs/wgpu-norm", repository].filter(Boolean));
  },

  async "before the first click, one large button, times, and nothing empty"() {
    for (const [name, screen] of Object.entries({ DESKTOP, LAPTOP, PHONE })) {
      const page = await open(screen);
      await ready(page);
      const first = page.locator("button").first();
      assert.equal(await first.innerText(), "Train two networks");
      const box = await first.boundingBox();
      assert.ok(box.height >= 56 && box.y + box.height <= screen.viewport.height, `${JSON.stringify(box)}`);
      assert.ok(box.width > 1.5 * (await page.locator("#check .run").boundingBox()).width);
      const results = page.locator("main").locator("table, canvas, progress, .chart, .bars, .save, .restart");
      assert.equal(await results.filter({ visible: true }).count(), 0);
      const texts = await page.locator("main :is(p, div, select):visible").allInnerTexts();
      assert.ok(texts.every((text) => text.trim()), `${texts}`);
      for (const part of ["digits", "check", "speed"]) {
        assert.match(await text(page, `#${part} .status`), /^Takes about \d+ (seconds|minutes)\.$/);
      }
      await picture(page, `begin-${name.toLowerCase()}`);
      await close(page);
    }
  },

  async "training is right, and the page answers meanwhile"(page) {
    // The longest time for which the page did not answer.
    await page.evaluate(() => {
      window.longest = 0;
      let last = performance.now();
      setInterval(() => {
        const now = performance.now();
        window.longest = Math.max(window.longest, now - last);
        last = now;
      }, 10);
    });
    await page.locator("#digits .rate").selectOption("0.1");
    await press(page, "digits");
    const done = await status(page, "digits", /^Step \d{3}\. .*without\.$/, 4 * MINUTE);
    const [, normed] = done.match(/: ([\d.]+)% with norms/).map(Number);
    // examples/digits reaches 98.1 %; an image is 0.3 %.
    assert.ok(normed >= 97.5, done);
    console.log(`    ${done}`);
    const longest = await page.evaluate(() => window.longest);
    assert.ok(longest < 1000, `the page did not answer for ${longest} ms`);

    // A one, drawn by mouse.
    await page.locator("#digits .pad").scrollIntoViewIfNeeded();
    const box = await page.locator("#digits .pad").boundingBox();
    await page.mouse.move(box.x + 0.5 * box.width, box.y + 0.15 * box.height);
    await page.mouse.down();
    await page.mouse.move(box.x + 0.5 * box.width, box.y + 0.85 * box.height, { steps: 8 });
    await page.mouse.up();
    await page.locator("#digits .guess", { hasText: "takes it for" }).waitFor();
    const percents = await page.locator("#digits .guesses tbody tr").first().locator("td").allInnerTexts();
    const sum = percents.reduce((sum, percent) => sum + Number(percent), 0);
    assert.ok(Math.abs(sum - 100) <= 5, `${percents}`);
    await picture(page, "desktop-digits");

    // And a stroke by keyboard.
    await press(page, "digits", ".clear");
    await page.locator("#digits .pad").focus();
    for (const key of [" ", ...Array(12).fill("ArrowDown"), " "]) await page.keyboard.press(key);
    await page.locator("#digits .guess", { hasText: "takes it for" }).waitFor();
    return page;
  },

  async "times are measured, and make a report with the cases so far"(page) {
    await press(page, "check");
    await status(page, "check", /^[1-9]\d of/);
    await press(page, "check");
    await page.locator("#check .run", { hasText: "Resume" }).waitFor();
    await press(page, "speed");
    await status(page, "speed", /\d+ of \d+ cases\. About \d+ (seconds|minutes) left\./);
    assert.match(await text(page, "#speed .bars"), /your CPU, not a GPU/);
    const done = await status(page, "speed", /\d+ cases, by /, 3 * MINUTE);
    const bars = await page.locator("#speed .rows .number").allInnerTexts();
    assert.equal(bars.length, Number(done.match(/^\d+/)[0]));
    for (const bar of bars) assert.match(bar, /^[\d.]+ GB\/s, [1-9]\d*%$/);
    const [download] = await Promise.all([page.waitForEvent("download"), press(page, "speed", ".save")]);
    await download.saveAs(join(out, "report.json"));
    await picture(page, "desktop");
    await close(page);
  },

  async "a phone, in the dark, by touch"() {
    const page = await open(PHONE);
    await ready(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= PHONE.viewport.width, `${wide} pixels wide`);
    await page.locator("#digits .run").tap();
    await status(page, "digits", /Step \d\d/);
    await page.locator("#digits .run").tap();
    await picture(page, "phone");
    await close(page);
  },

  async "all by keyboard"() {
    const page = await open(DESKTOP);
    await ready(page);
    const reached = [];
    const run = page.locator("#digits .run");
    await run.focus();
    await page.keyboard.press("Enter");
    await status(page, "digits", /Step \d/);
    await page.keyboard.press("Enter");
    await run.filter({ hasText: "Resume" }).waitFor();
    await page.locator("body").focus();
    for (let turn = 0; turn < 12; turn++) {
      await page.keyboard.press("Tab");
      reached.push(await page.evaluate(() => document.activeElement.className));
    }
    for (const name of ["run", "restart", "rate", "batch", "pad", "clear"]) assert.ok(reached.includes(name), `${reached}`);
    await close(page);
  },

  async "the largest loss is in its chart"() {
    const page = await open(LAPTOP);
    await ready(page);
    await page.locator("#digits .rate").selectOption("0.4");
    await press(page, "digits");
    await status(page, "digits", /Step [3-9]\d/);
    // The rows of the plot that have a pixel of a curve, by its colour: where a curve is clipped, the first has one.
    const { rows, height } = await page.locator("#digits .loss").evaluate((chart) => {
      const [canvas, plot] = [chart.querySelector("canvas"), chart.querySelector(".u-over")];
      const places = [plot.offsetLeft, plot.offsetTop, plot.clientWidth, plot.clientHeight];
      const { data, width, height } = canvas.getContext("2d").getImageData(...places);
      const rows = new Set();
      for (let pixel = 0; pixel < width * height; pixel++) {
        const [red, green, blue, alpha] = data.subarray(4 * pixel);
        const colour = Math.max(red, green, blue) - Math.min(red, green, blue);
        if (colour > 60 && alpha > 128) rows.add(Math.floor(pixel / width));
      }
      return { rows: [...rows], height };
    });
    assert.ok(rows.length > height / 2 && rows[0] >= 2, `rows ${rows} of ${height}`);
    await picture(page, "laptop");
    await close(page);
  },

  async "a hidden tab pauses, and goes on"() {
    const page = await open(DESKTOP);
    await ready(page);
    const hide = (hidden) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await press(page, "check");
    await status(page, "check", /so far/);
    await hide(true);
    await status(page, "check", /Paused while this tab is hidden/);
    await hide(false);
    await status(page, "check", /so far/);
    await close(page);
  },

  async "default limits"() {
    const page = await open(DESKTOP, { address: `${url}?limits=default&cases=layer_norm,rms_norm` });
    await ready(page);
    assert.match(await text(page, "#adapter"), /8 storage buffers .* default limits/);
    await press(page, "check");
    assert.match(await status(page, "check", /^[3-9]\d of/), /all right so far/);
    await press(page, "digits");
    await status(page, "digits", /Step \d\d/);
    await close(page);
  },

  async "a lost device"() {
    const page = await open(DESKTOP);
    await ready(page);
    await press(page, "check");
    await status(page, "check", /so far/);
    await page.workers()[0].evaluate(() => {
      const { createBuffer } = GPUDevice.prototype;
      GPUDevice.prototype.createBuffer = function (descriptor) {
        this.destroy();
        return createBuffer.call(this, descriptor);
      };
    });
    await page.locator("#notice", { hasText: "took the GPU away" }).waitFor();
    assert.ok(await page.locator("#check .run").isDisabled());
    await picture(page, "lost-device");
    await close(page);
  },

  async "no WebGPU"() {
    const without = () => Object.defineProperty(navigator, "gpu", { value: undefined });
    const page = await open(DESKTOP, { prepare: without });
    await page.locator("#notice", { hasText: "has no WebGPU" }).waitFor();
    assert.ok(await page.locator("#check .run").isDisabled());
    await close(page);
  },

  async "a buffer that WebGPU refuses fails one case"() {
    const page = await open(DESKTOP);
    await ready(page);
    await page.workers()[0].evaluate(() => {
      const { createBuffer } = GPUDevice.prototype;
      GPUDevice.prototype.createBuffer = function (descriptor) {
        GPUDevice.prototype.createBuffer = createBuffer;
        return this.createBuffer({ ...descriptor, usage: descriptor.usage | GPUBufferUsage.MAP_WRITE });
      };
    });
    await press(page, "check");
    assert.match(await status(page, "check", /^[2-9] of/), /: 1 wrong so far/);
    assert.match(await text(page, "#check .failures"), /wgpu-norm verify --case /);
    await close(page);
  },

  "every case is right": () => allCases,
};

const begun = Date.now();
const seconds = (since) => `${((Date.now() - since) / 1000).toFixed(0)} s`;
const allCases = cases();
allCases.catch(() => {}); // its test says so
let failed = 0;
let page;
for (const [name, test] of Object.entries(tests)) {
  const begin = Date.now();
  try {
    page = (await test(page)) ?? page;
    assert.deepEqual(complaints.splice(0), []);
    console.log(`ok: ${name} (${seconds(begin)})`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}: ${error.message.split("\nBrowser logs")[0]}`);
  }
}
console.log(`${failed ? `${failed} failed` : "passed"} in ${seconds(begun)}; pictures in ${out}`);
await Promise.all([browser.close(), other.close()]);
server.close();
process.exit(failed ? 1 : 0);
