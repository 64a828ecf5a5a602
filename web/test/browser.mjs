// Serves the built page, and opens it in a headless Chromium on SwiftShader.

import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright-core";

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
};

/** A file server for a folder; resolves to its address. */
export const serve = (folder) =>
  new Promise((resolve) => {
    const server = createServer(async (request, response) => {
      const path = normalize(new URL(request.url, "http://localhost").pathname);
      const name = path === "/" ? "/index.html" : path;
      try {
        const content = await readFile(join(folder, name));
        response.setHeader("content-type", TYPES[extname(name)] ?? "text/plain");
        response.end(content);
      } catch {
        response.statusCode = 404;
        response.end();
      }
    });
    server.listen(0, "127.0.0.1", () => resolve({ server, url: `http://127.0.0.1:${server.address().port}/` }));
  });

const installed = (name) => spawnSync("which", [name], { encoding: "utf8" }).stdout.trim();

/** A headless Chromium whose WebGPU runs on SwiftShader. */
export const launch = () => {
  const executablePath = ["chromium", "chromium-browser", "google-chrome"].map(installed).find(Boolean);
  if (!executablePath) throw new Error("Chromium is not installed (scripts/install-drivers.sh --all)");
  return chromium.launch({
    executablePath,
    headless: true,
    args: [
      "--no-sandbox",
      "--enable-unsafe-webgpu",
      "--use-webgpu-adapter=swiftshader",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-quic",
      "--disable-sync",
      "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    ],
  });
};
