// Serves this folder, opens the page in a headless Chromium on SwiftShader, prints what the page reports.
// Exits with 0 if the report's last line is "passed".
//
//   node run.mjs [CHROMIUM]

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LIMIT_MS = 1_200_000;
const TYPES = { html: "text/html", js: "text/javascript", wasm: "application/wasm" };
const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;

const body = async (request) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
};

let done;
const report = new Promise((resolve) => (done = resolve));
const server = createServer(async (request, response) => {
  if (request.method === "POST") {
    const text = await body(request);
    response.end();
    if (request.url === "/report") done(text);
    else console.error(`page: ${text}`);
    return;
  }
  const name = request.url === "/" ? "index.html" : request.url.slice(1);
  try {
    // Serves only the page's own files.
    if (!/^(index\.html|pkg\/[\w.]+)$/.test(name)) throw new Error(name);
    const content = await readFile(join(here, name));
    response.setHeader("content-type", TYPES[name.split(".").pop()] ?? "text/plain");
    response.end(content);
  } catch {
    response.statusCode = 404;
    response.end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const profile = await mkdtemp(join(tmpdir(), "wgpu-norm-browser-"));
const chromium = spawn(process.argv[2] ?? "chromium", [
  "--headless=new",
  "--no-sandbox",
  `--user-data-dir=${profile}`,
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
  `http://127.0.0.1:${server.address().port}/`,
], { stdio: "ignore" });
chromium.on("error", (error) => done(`${error.message}\nfailed`));
chromium.on("exit", (code) => done(`the browser ended with ${code}\nfailed`));
const timer = setTimeout(() => done(`no report within ${LIMIT_MS / 1000} s\nfailed`), LIMIT_MS);

const text = await report;
console.log(text);
clearTimeout(timer);
const ended = new Promise((resolve) => chromium.on("exit", resolve));
if (chromium.kill() && chromium.exitCode === null) await ended;
await rm(profile, { recursive: true, force: true, maxRetries: 10 });
process.exit(text.trimEnd().endsWith("\npassed") ? 0 : 1);
